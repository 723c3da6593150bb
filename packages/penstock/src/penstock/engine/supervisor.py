"""The engine: takes the state folder, checks everything that needs no Spark, starts Spark, runs a thread per lane, stops.

One instance per process run. `stop.request()` may come from a signal handler at any time. Lanes are made in `making.py`; what people
ask of a running engine is in `operations.py`, and comes through the socket of `control.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from penstock.engine import java, packages, session
from penstock.engine.backoff import Backoff
from penstock.engine.classify import SparkDied
from penstock.engine.control import Control
from penstock.engine.lock import StateFolder
from penstock.engine.making import Maker
from penstock.engine.operations import Operations
from penstock.engine.plans import (
    Beside,
    LanePlan,
    LaneResult,
    PipelinePlan,
    PipelineResult,
    check,
    python_modules,
    unbegun,
)
from penstock.engine.running import Running
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, View
from penstock.errors import Fenced, LedgerError, PenstockError
from penstock.ledger import Ledger
from penstock.secrets import Secrets
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Beside", "Engine", "LanePlan", "LaneResult", "PipelinePlan", "PipelineResult"]

DEADLINE = 30.0  # seconds a graceful stop may take
GIVE_UP = 15.0  # seconds after which lanes that do not even react to a forceful stop are left behind
INTERRUPT = 5.0  # seconds after a forceful stop in which a source may still come to an end by itself
TICK = 0.1
LOOK = 1.0  # seconds between two looks at what people have asked for in the ledger
IDLE = 2.0  # seconds


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
        only_replays: bool = False,
    ) -> None:
        """With `finish`, what is prepared for destinations that are no longer in their pipeline is delivered as it was
        prepared; what is prepared for those named in `abandon` is given up. `idle`: after so many seconds without a record a source that
        could always get more counts as having nothing. Without `lifecycle` no connector hears that it is new or gone: for trials. With
        `only_replays` no source is read: only dead letters that somebody wants to be replayed."""
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
        self._idle, self._lifecycle, self._only_replays = idle, lifecycle, only_replays
        self._report = report  # (event, pipeline, source, details)
        self._doing = Doing("checking", time.monotonic())
        self._looked = 0.0
        self._running: list[Running] = []
        self._ledger: Ledger | None = None
        self._asked: SimpleQueue[tuple[PipelinePlan, Future[Running]]] = SimpleQueue()  # to run once more

    def run(self, pipelines: Sequence[PipelinePlan], *, once: bool) -> list[PipelineResult]:
        """Returns when every lane has ended, and in a continuous run none waits to be started again by the person who stopped it.
        Raises `UsageError` for what is wrong before anything runs."""
        session.refuse_conflicts(self._conf)
        for p in pipelines:
            self.secrets.include(p.secrets)
        self._state.open()
        ledger: Ledger | None = None
        starting: session.Starting | None = None
        try:
            refused = {p.id: bad for p in pipelines if (bad := check(p, sources=not self._only_replays)) is not None}
            for name, result in refused.items():
                self._report("degraded", name, "", {"error": str(result.error)})
            ledger = Ledger(self._state.ledger)
            if len(refused) == len(pipelines):
                return [refused[p.id] for p in pipelines]
            starting = self._begin([p for p in pipelines if p.id not in refused])
            spark = self._started(starting)
            if spark is None:
                return [unbegun(p.id) for p in pipelines]
            maker = self._maker(ledger, spark, once)
            # All are made first: beside lanes at work, making a hundred took ten seconds, not one.
            make = Running if self._only_replays else maker.pipeline
            running = [Running(p, refused=refused[p.id]) if p.id in refused else make(p) for p in pipelines]
            self._running, self._ledger = running, ledger
            maker.part_with([r for r in running if r.lanes])
            self._say("running")
            for r in running:
                r.begin()
            self._replay(running, maker)
            with Control(self._state.path, self._operations(running, ledger).answer, self._no_control, off=once):
                self._watch(running, maker)
            return [r.result(ledger) for r in running]
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
            return View(self._doing, tuple(r.view(ledger) for r in running if r.lanes))
        except PenstockError:  # the ledger is being closed, or broken: the lanes say that themselves
            return View(self._doing)

    def _say(self, what: str) -> None:
        self._doing = Doing(what, time.monotonic())

    # -- starting ------------------------------------------------------------------------------------------------------

    def _begin(self, pipelines: Sequence[PipelinePlan]) -> session.Starting | None:
        """Spark of our own starts beside what is left to do; None where there is a session already."""
        needs = [part.packages for p in pipelines for part in p.connectors() if part.packages]
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
        python = {module for p in pipelines for module in python_modules(p)}
        return session.begin(self._master, self._conf, log, secrets=self.secrets, python=python, packages=wanted)

    def _started(self, starting: session.Starting | None) -> SparkSession | None:
        import penstock.engine.lane  # noqa: F401 -- with all that it imports, while Spark starts

        if starting is not None:
            self._spark = starting.wait(lambda: self.stop.requested)
        return self._spark

    def _maker(self, ledger: Ledger, spark: SparkSession, once: bool) -> Maker:
        return Maker(
            self._state.path,
            ledger,
            spark,
            self._report,
            once,
            self._idle,
            self._lifecycle,
            self._finish,
            self._abandon,
            self._backoff,
        )

    # -- asked by people -----------------------------------------------------------------------------------------------

    def _operations(self, running: list[Running], ledger: Ledger) -> Operations:
        return Operations(self._state.path, running, ledger, self._once_more, lambda: self.stop.requested, self._report)

    def _no_control(self, why: str) -> None:
        self._report("no-control", "", "", {"why": why})

    def _once_more(self, plan: PipelinePlan) -> Future[Running]:
        """From any thread: the plan runs, in the place of the one with its id, as soon as the engine's own thread has made it."""
        future: Future[Running] = Future()
        self._asked.put((plan, future))
        return future

    def _run_asked(self, running: list[Running], maker: Maker) -> None:
        while True:
            try:
                plan, future = self._asked.get_nowait()
            except Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                future.set_result(self._run_again(plan, running, maker))
            except Exception as e:  # for whoever asked
                future.set_exception(e)

    def _run_again(self, plan: PipelinePlan, running: list[Running], maker: Maker) -> Running:
        at = next(i for i, r in enumerate(running) if r.plan.id == plan.id)
        old = running[at]
        needs = [part.packages for part in plan.connectors() if part.packages]
        if needs:  # Spark can't load more once it runs: it has those of the pipelines that were fit to run at its start
            packages.refuse_missing(maker.spark, packages.needed(needs, maker.spark.version))
        self.secrets.include(plan.secrets)
        made = maker.pipeline(plan, {lane.plan.name: lane.before for lane in old.lanes})
        made.started = old.started
        if plan.steps is not None:
            made.stopped_by = old.stopped_by or "a step"  # before it begins: the engine must not end with its last lane
        running[at] = made
        made.begin()
        return made

    def _replay(self, running: Sequence[Running], maker: Maker) -> None:
        """Begins replays that were asked for. One that could not go on is not begun again before the next start."""
        self._looked = time.monotonic()
        asked = maker.ledger.replays_asked()
        for r in running if asked and not self.stop.requested else ():
            if r.refused or r.plan.steps or r.stop.requested or r.failed() is not None:
                continue
            busy = {x.plan.source.source_id for x in r.lanes if x.plan.replays and not x.loop.status.ended_well}
            for source in (lane.source.source_id for lane in r.plan.lanes):
                if (
                    (r.plan.id, source) in asked
                    and source not in busy
                    and (lane := maker.replay(r, source)) is not None
                ):
                    r.lanes.append(lane)
                    lane.thread.start()

    # -- watching ------------------------------------------------------------------------------------------------------

    def _watch(self, running: list[Running], maker: Maker) -> None:
        """Until all lanes have ended: hands stops on, turns them forceful in time, stops a pipeline one of whose lanes failed."""
        stopping = False
        end: PenstockError | None = None
        while self._goes_on(running, end) and not self.stop.overdue(self._deadline + GIVE_UP):
            time.sleep(TICK)
            self._run_asked(running, maker)
            if not maker.once and time.monotonic() - self._looked > LOOK:
                self._replay(running, maker)
            self._tell(running)
            end = next((e for r in running for lane in r.lanes if _ends_all(e := lane.loop.error)), None)
            if self.stop.requested and not stopping:
                stopping = True
                self._say_stopping(running)
            for r in running:
                self._steer(r, end, maker.spark)
        for r in running:
            self._end(r)
        self._tell(running)

    def _goes_on(self, running: Sequence[Running], end: PenstockError | None) -> bool:
        """While lanes run, or somebody has stopped a pipeline and may start it again."""
        if any(r.alive() for r in running):
            return True
        return end is None and not self.stop.requested and any(r.stopped_by is not None for r in running)

    def _steer(self, r: Running, end: PenstockError | None, spark: SparkSession) -> None:
        late = self.stop.overdue(self._deadline) or r.stop.overdue(self._deadline)
        late = late or (self.stop.requested and not faults.safeguard("drain"))
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
            r.interrupt()
        if r.stopped_by is not None and not r.alive() and not r.ending:
            r.ending = True
            # In a thread: closing takes as long as connectors take, and the others are watched meanwhile.
            Thread(target=self._end, args=[r], name=f"ending {r.plan.id}", daemon=True).start()

    def _end(self, r: Running) -> None:
        r.end(lambda name, n: self._report("resent", r.plan.id, name, {"records": n}))

    def _say_stopping(self, running: Sequence[Running]) -> None:
        self._say("stopping")
        busy = [
            f"{r.plan.id}/{lane.plan.name}: {lane.loop.doing.what}"
            for r in running
            for lane in r.lanes
            if lane.thread.is_alive()
        ]
        self._report("stopping", "", "", {"deadline": self._deadline, "waiting_for": busy})

    def _tell(self, running: list[Running]) -> None:
        """A pipeline that failed is heard of at once: the others may go on for days."""
        for r in running:
            if not r.told and (lane := r.failed()) is not None:
                r.told = True
                self._report("degraded", r.plan.id, lane.plan.name, {"error": str(lane.loop.error)})


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
