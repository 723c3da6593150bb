"""The engine: takes the state folder, checks everything that needs no Spark, starts Spark, runs a thread per lane, stops.

One instance per process run. `stop.request()` may come from a signal handler at any time.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock import deadletters
from penstock.engine import java, packages, session
from penstock.engine.backoff import Backoff
from penstock.engine.batch.context import DLQ, Guarantee, Outcomes, Target, Work, folder_name
from penstock.engine.classify import SparkDied, classify
from penstock.engine.gate import DEFAULT, Window
from penstock.engine.lock import StateFolder
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, LaneView, PipelineView, Remaining, Status, View
from penstock.errors import Fenced, LedgerError, PenstockError
from penstock.ledger import Lane, Ledger, Nack, NackState, Prepared, TargetRef, Totals
from penstock.native import Limits, NativeDestination, NativeSource, Surroundings, Unsuitable, Where
from penstock.plan.nodes import Node, shape_behind, stages
from penstock.secrets import Secrets
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.lane import LaneLoop, Report

LOGS, SINKS = "logs", "sinks"  # folders in the state folder: of sources and destinations in processes of their own
PLACES = "places"  # and of destinations in Spark that have no other place to stage
DEADLINE = 30.0  # seconds a graceful stop may take
GIVE_UP = 15.0  # seconds after which lanes that do not even react to a forceful stop are left behind
INTERRUPT = 5.0  # seconds after a forceful stop in which a source may still come to an end by itself
TICK = 0.1
IDLE = 2.0  # seconds
ONCE_TRIES = 3  # `--once` gives up after this many retries in a row; a continuous run never does


@dataclass(frozen=True)
class LanePlan:
    """One source and what is downstream of it, not yet running. `targets` makes a lane's own destinations."""

    source: NativeSource[Any]
    limits: Limits
    nodes: tuple[Node, ...]
    targets: Mapping[str, Target]
    dlq: Target | None = None


class Beside(Protocol):
    """What destinations of several lanes have in common, and what outlives each of them."""

    def close(self) -> None: ...
    def interrupt(self) -> None: ...
    def resent(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class PipelinePlan:
    id: str
    lanes: tuple[LanePlan, ...]
    rebuild: Callable[[Prepared | TargetRef], NativeDestination[Any]]
    window: Window = DEFAULT
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    handlers: tuple[Callable[[Outcomes], None], ...] = ()
    secrets: Secrets = field(default_factory=Secrets)  # what came by reference; no text that leaves the engine holds it
    beside: Beside | None = None  # what its lanes share


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
        idle: float = IDLE,
        lifecycle: bool = True,
    ) -> None:
        """With `finish`, what is prepared for destinations that are no longer in their pipeline is delivered as it was
        prepared; what is prepared for those named in `abandon` is given up. `idle`: after so many seconds without a record a source that
        could always get more counts as having nothing. Without `lifecycle` no connector hears that it is new or gone: for trials."""
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
        self._idle, self._lifecycle = idle, lifecycle
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
                self._part_with(running, ledger)
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
        needs = [part.packages for p in pipelines for part in _connectors(p) if part.packages]
        if self._spark is None:
            self._spark = session.active()
        if self._spark is not None:
            session.refuse_session(self._spark)
            if needs:
                packages.refuse_missing(self._spark, packages.needed(needs, self._spark.version))
            return None
        java.require()
        wanted = packages.needed(needs, packages.installed()) if needs else []
        self._say("starting Spark")
        self._report("starting", "", "", {"what": "Spark"})
        log = self._state.path / "spark.log"
        python = {module for p in pipelines for module in _python_modules(p)}
        return session.begin(self._master, self._conf, log, secrets=self.secrets, python=python, packages=wanted)

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
            own = session.for_lane(spark)
            for target in (*lane.targets.values(), *([lane.dlq] if lane.dlq else [])):
                target.destination.spark = own
                target.destination.place = self._place(plan, target.destination)
            work = Work(
                row,
                lane.source,
                lane.nodes,
                lane.targets,
                lane.limits,
                own,
                ledger,
                partial(self._rebuilt, plan, own),
                self._state.path,
                plan.window,
                lane.dlq,
                plan.guarantee,
                plan.handlers,
                self._finish,
                self._abandon,
                secrets=plan.secrets,
                around=self._around(plan, lane, row, once),
                start=partial(self._start_destination, plan, once),
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

    def _part_with(self, running: Sequence[_Running], ledger: Ledger) -> None:
        """Connectors that were taken out of their pipeline hear of it. One that can't be told now is told at the next start."""
        logs, sinks = (self._state.path / name for name in (LOGS, SINKS))
        if not self._lifecycle or not (logs.is_dir() or sinks.is_dir()):
            return
        from penstock.host.parting import gone, part_destination, part_source

        for r in running:
            there = {lane.plan.source.source_id for lane in r.lanes}
            found = [(folder, known, part_source) for folder, known in gone(logs, r.plan.id, there)]
            there = {name for lane in r.lanes for name in lane.plan.targets} | _unfinished(r, ledger)
            found += [(folder, known, part_destination) for folder, known in gone(sinks, r.plan.id, there)]
            for folder, known, part in found:
                report = self._reporter(r.plan, known.connector)
                report("removed", {"what": part(folder, known, _logging(report))})

    def _start_destination(self, plan: PipelinePlan, once: bool, destination: NativeDestination[Any]) -> None:
        """What it needs of where it runs. Of a queue for dead letters the connector hears no more than that."""
        name = destination.destination_id
        folder = self._state.path / SINKS / deadletters.folder(plan.id, name)
        log = _logging(self._reporter(plan, name))
        destination.start(Surroundings(plan.id, folder, (), log, once, self._idle, self._lifecycle and name != DLQ))

    def _place(self, plan: PipelinePlan, destination: NativeDestination[Any]) -> Path:
        return self._state.path / PLACES / deadletters.folder(plan.id, destination.destination_id)

    def _rebuilt(self, plan: PipelinePlan, spark: SparkSession, p: Prepared | TargetRef) -> NativeDestination[Any]:
        """A destination as it was, with the lane's session."""
        made = plan.rebuild(p)
        made.spark = spark
        made.place = self._place(plan, made)
        return made

    def _around(self, plan: PipelinePlan, lane: LanePlan, row: Lane, once: bool) -> Surroundings:
        source = lane.source.source_id
        report = self._reporter(plan, source)
        return Surroundings(
            plan.id,
            self._state.path / LOGS / folder_name(row),
            tuple(lane.targets),
            _logging(report),
            once,
            self._idle,
            self._lifecycle,
        )

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
                if r.stop.forced_for(INTERRUPT):
                    _interrupt(r)
        for r in running:
            _interrupt(r)  # nothing is left running
            if r.plan.beside is not None:
                r.plan.beside.close()
                for name, n in r.plan.beside.resent().items():
                    self._report("resent", r.plan.id, name, {"records": n})
        self._tell(running)

    def _tell(self, running: list[_Running]) -> None:
        """A pipeline that failed is heard of at once: the others may go on for days."""
        for r in running:
            if not r.told and (lane := r.failed()) is not None:
                r.told = True
                self._report("degraded", r.plan.id, lane.plan.source.source_id, {"error": str(lane.loop.error)})


def _connectors(p: PipelinePlan) -> list[NativeSource[Any] | NativeDestination[Any]]:
    found: list[NativeSource[Any] | NativeDestination[Any]] = []
    for lane in p.lanes:
        found += [
            lane.source,
            *(t.destination for t in lane.targets.values()),
            *([lane.dlq.destination] if lane.dlq else []),
        ]
    return found


def _unfinished(r: _Running, ledger: Ledger) -> set[str]:
    """Destinations that something is prepared for."""
    batches = [s for lane in r.lanes for s in ledger.unfinished(lane.key)]
    return {p.destination for s in batches for p in ledger.prepared(s) if p.receipt is None}


def _interrupt(r: _Running) -> None:
    """Whatever lanes wait for that are still there."""
    left = [lane for lane in r.lanes if lane.thread.is_alive()]
    for lane in left:
        lane.plan.source.interrupt()
    if left and r.plan.beside is not None:
        r.plan.beside.interrupt()


def _logging(report: Report) -> Callable[[str, str], None]:
    return lambda level, text: report("log", {"level": level, "text": text})


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
        for shape in lane.source.shapes():
            with suppress(Unsuitable):
                behind = shape_behind(lane.nodes, shape)
                for nodes in (lane.nodes, *((*lane.nodes, *t.chain(behind)) for t in lane.targets.values())):
                    for stage in stages(nodes, shape):
                        if stage.where is Where.PYTHON:
                            found |= {type(node.processor).__module__ for node in stage.nodes}
        found.update(lane.source.modules)
        if found:
            parts = (lane.source, *(t.destination for t in lane.targets.values()))
            found |= {type(part).__module__ for part in parts}
    return {module for module in found if module.startswith("penstock.")}
