"""The engine: takes the state folder, checks everything that needs no Spark, starts Spark, runs a thread per lane, stops.

One instance per process run. `stop.request()` may come from a signal handler at any time.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine import java, session
from penstock.engine.backoff import Backoff
from penstock.engine.batch.context import Guarantee, Outcomes, Target, Work
from penstock.engine.classify import SparkDied, classify
from penstock.engine.gate import DEFAULT, Window
from penstock.engine.lock import StateFolder
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, LaneView, PipelineView, Remaining, Status, View
from penstock.errors import Fenced, LedgerError, PenstockError
from penstock.ledger import Ledger, Nack, NackState, Prepared, TargetRef, Totals
from penstock.native import Limits, NativeDestination, NativeSource, Where
from penstock.plan.nodes import Node, stages
from penstock.secrets import Secrets
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.lane import LaneLoop, Report

DEADLINE = 30.0  # seconds a graceful stop may take
GIVE_UP = 15.0  # seconds after which lanes that do not even react to a forceful stop are left behind
TICK = 0.1
ONCE_TRIES = 3  # `--once` gives up after this many retries in a row; a continuous run never does


@dataclass(frozen=True)
class LanePlan:
    """One source and what is downstream of it, not yet running. `targets` makes a lane's own destinations."""

    source: NativeSource[Any]
    limits: Limits
    nodes: tuple[Node, ...]
    targets: Mapping[str, Target]
    dlq: Target | None = None


@dataclass(frozen=True)
class PipelinePlan:
    id: str
    lanes: tuple[LanePlan, ...]
    rebuild: Callable[[Prepared | TargetRef], NativeDestination[Any]]
    window: Window = DEFAULT
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    handlers: tuple[Callable[[Outcomes], None], ...] = ()
    secrets: Secrets = field(default_factory=Secrets)  # what came by reference; no text that leaves the engine holds it


@dataclass(frozen=True)
class LaneResult:
    source: str
    read: int  # of batches finished in this run
    acked: int
    delivered: Mapping[str, int]
    filtered: Mapping[str, int]
    dead_lettered: Mapping[str, int]
    discarded: Mapping[str, int]
    produced: Mapping[str, int]
    held: tuple[Nack, ...]  # what the gate closed at
    remaining: Remaining | None


@dataclass(frozen=True)
class PipelineResult:
    id: str
    status: Status
    error: PenstockError | None
    trace: str
    seconds: float
    lanes: tuple[LaneResult, ...]


@dataclass(frozen=True)
class _Lane:
    plan: LanePlan
    loop: LaneLoop
    key: int  # in the ledger
    before: Totals  # what the ledger had when this run began
    thread: Any  # an InheritableThread


@dataclass
class _Running:
    plan: PipelinePlan
    stop: StopSignal = field(default_factory=StopSignal)
    lanes: list[_Lane] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    cut_off: PenstockError | None = None  # what ended the whole engine while this pipeline was running
    told: bool = False

    def alive(self) -> list[LaneLoop]:
        return [lane.loop for lane in self.lanes if lane.thread.is_alive()]

    def failed(self) -> _Lane | None:
        return next((lane for lane in self.lanes if lane.loop.status is Status.DEGRADED), None)


class Engine:
    def __init__(
        self,
        state: Path,
        *,
        spark: SparkSession | None = None,
        master: str = "local[*,4]",
        conf: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
        backoff: Backoff | None = None,
        report: Callable[[str, str, str, dict[str, Any]], None] = lambda *_: None,
        finish: bool = False,
        abandon: Collection[str] = (),
    ) -> None:
        """With `finish`, what is prepared for destinations that are no longer in their pipeline is delivered as it was
        prepared; what is prepared for those named in `abandon` is given up."""
        self.stop = StopSignal()
        self.secrets = Secrets()  # of all pipelines
        self._state = StateFolder(state)
        self._spark = spark
        self._master = master
        self._conf = dict(conf or {})
        self._deadline = deadline
        self._backoff = backoff
        self._finish = finish
        self._abandon = tuple(abandon)
        self._report = report  # (event, pipeline, source, details)
        self._doing = Doing("checking", time.monotonic())
        self._running: list[_Running] = []
        self._ledger: Ledger | None = None

    def run(self, pipelines: Sequence[PipelinePlan], *, once: bool) -> list[PipelineResult]:
        """Returns when every lane has ended. Raises `UsageError` for what is wrong before anything runs."""
        session.refuse_conflicts(self._conf)
        for p in pipelines:
            self.secrets.include(p.secrets)
        self._state.open()
        ledger: Ledger | None = None
        starting: session.Starting | None = None
        try:
            refused = {p.id: bad for p in pipelines if (bad := _check(p)) is not None}
            for name, result in refused.items():
                self._report("degraded", name, "", {"error": str(result.error)})
            ledger = Ledger(self._state.ledger)
            running: list[_Running] = []
            if len(refused) < len(pipelines):
                starting = self._begin([p for p in pipelines if p.id not in refused])
                spark = self._started(starting)
                if spark is None:
                    return [_unbegun(p.id) for p in pipelines]
                running = [self._make(p, ledger, spark, once) for p in pipelines if p.id not in refused]
                # All are made first: beside lanes at work, making a hundred took ten seconds, not one.
                self._running, self._ledger = running, ledger
                self._say("running")
                for r in running:
                    for lane in r.lanes:
                        lane.thread.start()
                self._watch(running, spark)
            results = refused | {r.plan.id: _result(r, ledger) for r in running}
            return [results[p.id] for p in pipelines]
        finally:
            self._say("stopping Spark")
            self._running, self._ledger = [], None
            if ledger is not None:
                ledger.close()
            if starting is not None:
                starting.abandon()
                if self._spark is not None:
                    session.end(self._spark)
                    self._spark = None
            self._state.close()

    def view(self) -> View:
        """What is going on now. From any thread, at any time."""
        ledger, running = self._ledger, self._running
        if ledger is None:
            return View(self._doing)
        try:
            return View(self._doing, tuple(_view(r, ledger) for r in running))
        except PenstockError:  # the ledger is being closed, or broken: the lanes say that themselves
            return View(self._doing)

    def _say(self, what: str) -> None:
        self._doing = Doing(what, time.monotonic())

    def _begin(self, pipelines: Sequence[PipelinePlan]) -> session.Starting | None:
        """Spark of our own starts beside what is left to do; None where there is a session already."""
        if self._spark is None:
            self._spark = session.active()
        if self._spark is not None:
            session.refuse_session(self._spark)
            return None
        java.require()
        self._say("starting Spark")
        self._report("starting", "", "", {"what": "Spark"})
        log = self._state.path / "spark.log"
        python = {module for p in pipelines for module in _python_modules(p)}
        return session.begin(self._master, self._conf, log, secrets=self.secrets, python=python)

    def _started(self, starting: session.Starting | None) -> SparkSession | None:
        import penstock.engine.lane  # noqa: F401 -- with all that it imports, while Spark starts

        if starting is not None:
            self._spark = starting.wait(lambda: self.stop.requested)
        return self._spark

    def _make(self, plan: PipelinePlan, ledger: Ledger, spark: SparkSession, once: bool) -> _Running:
        from pyspark import InheritableThread

        from penstock.engine.lane import LaneLoop

        running = _Running(plan)
        for lane in plan.lanes:
            row = ledger.lane(plan.id, lane.source.source_id)
            work = Work(
                row,
                lane.source,
                lane.nodes,
                lane.targets,
                lane.limits,
                session.for_lane(spark),
                ledger,
                plan.rebuild,
                self._state.path,
                plan.window,
                lane.dlq,
                plan.guarantee,
                plan.handlers,
                self._finish,
                self._abandon,
                secrets=plan.secrets,
            )
            loop = LaneLoop(
                work,
                running.stop,
                self._reporter(plan, lane.source.source_id),
                once=once,
                backoff=self._backoff or Backoff(tries=ONCE_TRIES if once else None),
                tag=self._tag(plan.id, lane.source.source_id),
            )
            thread = InheritableThread(target=_body(loop, plan.secrets), name=loop.tag, daemon=True, session=work.spark)
            running.lanes.append(_Lane(lane, loop, row.key, ledger.totals(row.key), thread))
        return running

    def _tag(self, pipeline: str, source: str) -> str:
        """Of the lane's jobs, and the name of its pool. No id has a slash, so a-b/c and a/b-c stay apart; the state folder
        tells engines apart that share one Spark. The same at every run: Spark never forgets a pool."""
        engine = hashlib.sha256(str(self._state.path).encode()).hexdigest()[:8]
        return f"penstock-{engine}-{pipeline}/{source}"

    def _reporter(self, plan: PipelinePlan, source: str) -> Report:
        hide = plan.secrets.hide

        def report(event: str, details: dict[str, Any]) -> None:
            shown = {name: hide(value) if isinstance(value, str) else value for name, value in details.items()}
            self._report(event, plan.id, source, shown)

        return report

    def _watch(self, running: list[_Running], spark: SparkSession) -> None:
        """Until all lanes have ended: hands stops on, turns them forceful in time, stops a pipeline one of whose lanes failed."""
        stopping = False
        while any(r.alive() for r in running) and not self.stop.overdue(self._deadline + GIVE_UP):
            time.sleep(TICK)
            self._tell(running)
            end = next((e for r in running for lane in r.lanes if _ends_all(e := lane.loop.error)), None)
            if self.stop.requested and not stopping:
                stopping = True
                self._say("stopping")
                busy = [
                    f"{r.plan.id}/{lane.plan.source.source_id}: {lane.loop.doing.what}"
                    for r in running
                    for lane in r.lanes
                    if lane.thread.is_alive()
                ]
                self._report("stopping", "", "", {"deadline": self._deadline, "waiting_for": busy})
            late = self.stop.overdue(self._deadline) or (self.stop.requested and not faults.safeguard("drain"))
            for r in running:
                if end is not None and r.cut_off is None and r.alive():
                    r.cut_off = end
                if end is not None or self.stop.forced or late or r.failed():
                    r.stop.force()
                elif self.stop.requested and not r.stop.requested:
                    r.stop.request()
                if r.stop.forced and not isinstance(end, SparkDied):
                    for loop in r.alive():  # again and again: a job may start just after it was looked for
                        _cancel(spark, loop.tag)
        self._tell(running)

    def _tell(self, running: list[_Running]) -> None:
        """A pipeline that failed is heard of at once: the others may go on for days."""
        for r in running:
            if not r.told and (lane := r.failed()) is not None:
                r.told = True
                self._report("degraded", r.plan.id, lane.plan.source.source_id, {"error": str(lane.loop.error)})


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


def _ends_all(error: PenstockError | None) -> bool:
    """What no lane can go on after: also those that are waiting for input, and would not find out."""
    unwritable = isinstance(error, LedgerError) and error.code == "ledger.write"
    return unwritable or isinstance(error, SparkDied | Fenced)


def _cancel(spark: SparkSession, tag: str) -> None:
    """A Spark that is gone has no jobs to cancel; the lanes find out themselves."""
    try:
        spark.sparkContext.cancelJobsWithTag(tag)
    except Exception:
        return


def _result(r: _Running, ledger: Ledger) -> PipelineResult:
    failed = r.failed()
    error = failed.loop.error if failed else r.cut_off
    lanes = []
    for lane in r.lanes:
        n = _gained(lane, ledger)
        lanes.append(
            LaneResult(
                lane.plan.source.source_id,
                n.read,
                n.acked,
                n.delivered,
                n.filtered,
                n.dead_lettered,
                n.discarded,
                n.produced,
                tuple(ledger.nacks(lane.key, NackState.HELD)),
                lane.loop.remaining(),
            )
        )
    return PipelineResult(
        r.plan.id,
        Status.DEGRADED if error else Status.STOPPED,
        error,
        failed.loop.trace if failed else "",
        time.monotonic() - r.started,
        tuple(lanes),
    )


def _view(r: _Running, ledger: Ledger) -> PipelineView:
    lanes = []
    for lane in r.lanes:
        n, loop = _gained(lane, ledger), lane.loop
        counts = (n.read, n.acked, n.delivered, n.filtered, n.dead_lettered)
        lanes.append(LaneView(lane.plan.source.source_id, loop.status.value, loop.doing, *counts, loop.behind))
    return PipelineView(r.plan.id, tuple(lanes))


def _gained(lane: _Lane, ledger: Ledger) -> Totals:
    """What the lane has done in this run; every destination of the plan is in it."""
    now, before = ledger.totals(lane.key), lane.before

    def since(name: str) -> dict[str, int]:
        after, first = getattr(now, name), getattr(before, name)
        return {d: after.get(d, 0) - first.get(d, 0) for d in lane.plan.targets}

    names = ("delivered", "filtered", "dead_lettered", "discarded", "produced")
    return Totals(now.read - before.read, now.acked - before.acked, **{name: since(name) for name in names})


def _check(pipeline: PipelinePlan) -> PipelineResult | None:
    """What can be said without Spark is said before it starts; one bad pipeline does not keep the others from running."""
    try:
        for lane in pipeline.lanes:
            lane.source.check()
            for target in (*lane.targets.values(), *([lane.dlq] if lane.dlq else [])):
                target.destination.check()
    except Exception as e:
        error = classify(e)
        trace = pipeline.secrets.clean_chain(error, traceback.format_exc())
        return PipelineResult(pipeline.id, Status.DEGRADED, error, trace, 0.0, ())
    return None


def _unbegun(id: str) -> PipelineResult:
    """Stopped before there was anything to stop."""
    return PipelineResult(id, Status.STOPPED, None, "", 0.0, ())


def _python_modules(p: PipelinePlan) -> set[str]:
    """The modules of Python stages, as far as there are any and that is known before Spark is there."""
    found: set[str] = set()
    for lane in p.lanes:
        for nodes in (lane.nodes, *((*lane.nodes, *t.nodes) for t in lane.targets.values())):
            for stage in stages(nodes, lane.source.shape):
                if stage.where is Where.PYTHON:
                    found |= {type(node.processor).__module__ for node in stage.nodes}
        if found:
            parts = (lane.source, *(t.destination for t in lane.targets.values()))
            found |= {type(part).__module__ for part in parts}
    return {module for module in found if module.startswith("penstock.")}
