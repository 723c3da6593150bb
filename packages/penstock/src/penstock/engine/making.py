"""Makes lanes of plans: everything that a lane is given of the engine it runs in. Used at the start, and whenever a running engine is
given one more.

`Maker.lane` makes one lane; it does not run before its thread is started, which is left to whoever asked for it.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import deadletters
from penstock.engine import session
from penstock.engine.backoff import Backoff
from penstock.engine.batch.context import DLQ, Work, folder_name
from penstock.engine.classify import classify
from penstock.engine.plans import LanePlan, PipelinePlan
from penstock.engine.running import Lane, Running
from penstock.engine.stop import StopSignal
from penstock.engine.view import Status
from penstock.ledger import Lane as LaneRow
from penstock.ledger import Ledger, Prepared, TargetRef, Totals
from penstock.native import NativeDestination, Surroundings
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.lane import LaneLoop, Report

LOGS, SINKS = "logs", "sinks"  # folders in the state folder: of sources and destinations in processes of their own
PLACES = "places"  # and of destinations in Spark that have no other place to stage
ONCE_TRIES = 3  # `--once` gives up after this many retries in a row; a continuous run never does

Events = Callable[[str, str, str, dict[str, Any]], None]  # event, pipeline, source, details


@dataclass(frozen=True)
class Maker:
    """What all lanes of an engine have in common. From the engine's own thread: lanes inherit Spark's settings of the thread that
    makes them."""

    state: Path
    ledger: Ledger
    spark: SparkSession
    report: Events
    once: bool
    idle: float
    lifecycle: bool = True
    finish: bool = False
    abandon: tuple[str, ...] = ()
    backoff: Backoff | None = None

    def pipeline(self, plan: PipelinePlan, before: Mapping[str, Totals] | None = None) -> Running:
        """`before`: what its lanes had done when the engine began, where they ran in it already; by source."""
        running = Running(plan)
        for lane in plan.lanes if plan.steps is None else [x for x in plan.lanes if x.name == plan.steps[0]]:
            running.lanes.append(self.lane(plan, lane, running.stop, (before or {}).get(lane.name)))
        return running

    def lane(self, plan: PipelinePlan, lane: LanePlan, stop: StopSignal, before: Totals | None = None) -> Lane:
        """One lane of a pipeline, also of one that is running: append it to `Running.lanes`, then start its thread."""
        from pyspark import InheritableThread

        from penstock.engine.lane import LaneLoop
        from penstock.engine.replay import as_replay

        row = self.ledger.lane(plan.id, lane.name)
        self.ledger.keep(row.key, plan.keep)
        own = session.for_lane(self.spark)
        for target in lane.all_targets():
            target.destination.spark = own
            target.destination.place = self._place(plan, target.destination)
        work = Work(
            row,
            lane.source,
            lane.nodes,
            lane.targets,
            lane.limits,
            own,
            self.ledger,
            partial(self._rebuilt, plan, own),
            self.state,
            plan.window,
            lane.dlq,
            plan.guarantee,
            plan.handlers,
            self.finish,
            self.abandon,
            secrets=plan.secrets,
            around=self._around(plan, lane, row),
            start=partial(self._start_destination, plan),
        )
        loop = LaneLoop(
            as_replay(work) if lane.replays else work,
            stop,
            self.reporter(plan, lane.name),
            once=self.once or lane.replays or plan.steps is not None,  # these end when there is nothing left
            backoff=self.backoff or Backoff(tries=ONCE_TRIES if self.once else None),
            tag=self._tag(plan.id, lane.name),
            steps=plan.steps[1] if plan.steps else None,
        )
        thread = InheritableThread(target=_body(loop, plan.secrets), name=loop.tag, daemon=True, session=work.spark)
        return Lane(lane, loop, row.key, before or self.ledger.totals(row.key), thread)

    def replay(self, running: Running, source: str) -> Lane | None:
        """The lane that replays dead letters of a source; None where it can't be made: the source was an object of a program."""
        from penstock.engine.replay import ReplaySource

        if running.plan.lane is None:
            return None
        like = running.plan.lane(source)
        of = ReplaySource(like.source, running.plan.id, self.state, self.ledger, tuple(like.targets))
        return self.lane(running.plan, replace(like, source=of, dlq=None, replays=True), running.stop)

    def part_with(self, running: Sequence[Running]) -> None:
        """Connectors that were taken out of their pipeline hear of it. One that can't be told now is told at the next start."""
        logs, sinks = (self.state / name for name in (LOGS, SINKS))
        if not self.lifecycle or not (logs.is_dir() or sinks.is_dir()):
            return
        from penstock.host.parting import gone, part_destination, part_source

        for r in running:
            there = {lane.source.source_id for lane in r.plan.lanes}
            found = [(folder, known, part_source) for folder, known in gone(logs, r.plan.id, there)]
            there = {name for lane in r.plan.lanes for name in lane.targets} | _unfinished(r, self.ledger)
            found += [(folder, known, part_destination) for folder, known in gone(sinks, r.plan.id, there)]
            for folder, known, part in found:
                report = self.reporter(r.plan, known.connector)
                report("removed", {"what": part(folder, known, logging_to(report))})

    def reporter(self, plan: PipelinePlan, source: str) -> Report:
        hide = plan.secrets.hide

        def report(event: str, details: dict[str, Any]) -> None:
            shown = {name: hide(value) if isinstance(value, str) else value for name, value in details.items()}
            self.report(event, plan.id, source, shown)

        return report

    def _start_destination(self, plan: PipelinePlan, destination: NativeDestination[Any]) -> None:
        """What it needs of where it runs. Of a queue for dead letters the connector hears no more than that."""
        name = destination.destination_id
        folder = self.state / SINKS / deadletters.folder(plan.id, name)
        log = logging_to(self.reporter(plan, name))
        destination.start(Surroundings(plan.id, folder, (), log, self.once, self.idle, self.lifecycle and name != DLQ))

    def _place(self, plan: PipelinePlan, destination: NativeDestination[Any]) -> Path:
        return self.state / PLACES / deadletters.folder(plan.id, destination.destination_id)

    def _rebuilt(self, plan: PipelinePlan, spark: SparkSession, p: Prepared | TargetRef) -> NativeDestination[Any]:
        """A destination as it was, with the lane's session."""
        made = plan.rebuild(p)
        made.spark = spark
        made.place = self._place(plan, made)
        return made

    def _around(self, plan: PipelinePlan, lane: LanePlan, row: LaneRow) -> Surroundings:
        log = logging_to(self.reporter(plan, lane.name))
        return surroundings(self.state, plan, lane, row, log, once=self.once, idle=self.idle, lifecycle=self.lifecycle)

    def _tag(self, pipeline: str, source: str) -> str:
        """Of the lane's jobs, and the name of its pool. No id has a slash, so a-b/c and a/b-c stay apart; the state folder
        tells engines apart that share one Spark. The same at every run: Spark never forgets a pool."""
        engine = hashlib.sha256(str(self.state).encode()).hexdigest()[:8]
        return f"penstock-{engine}-{pipeline}/{source}"


def surroundings(
    state: Path,
    plan: PipelinePlan,
    lane: LanePlan,
    row: LaneRow,
    log: Callable[[str, str], None],
    *,
    once: bool,
    idle: float,
    lifecycle: bool,
) -> Surroundings:
    """What a source is told about where it runs."""
    return Surroundings(plan.id, state / LOGS / folder_name(row), tuple(lane.targets), log, once, idle, lifecycle)


def logging_to(report: Report) -> Callable[[str, str], None]:
    return lambda level, text: report("log", {"level": level, "text": text})


def _unfinished(r: Running, ledger: Ledger) -> set[str]:
    """Destinations that something is prepared for."""
    batches = [s for lane in r.lanes for s in ledger.unfinished(lane.key)]
    return {p.destination for s in batches for p in ledger.prepared(s) if p.receipt is None}


def _body(loop: LaneLoop, secrets: Secrets) -> Callable[[], None]:
    """The lane's thread. However it ends, the supervisor hears of it: an exception nobody caught is not a success."""

    def run() -> None:
        try:
            loop.run()
        except BaseException as e:
            if loop.error is None:
                loop.error = classify(e)
                loop.trace = secrets.clean_chain(loop.error, traceback.format_exc())
            loop.status = Status.DEGRADED

    return run
