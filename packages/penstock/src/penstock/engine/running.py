"""A pipeline that runs, as its engine sees it: lanes with their threads, how it was told to stop, and what can be said of it.

Made by `making.py`, watched by `supervisor.py`. What lanes do is theirs; here is only asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.plans import LanePlan, LaneResult, PipelinePlan, PipelineResult
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, LaneView, PipelineView, Status
from penstock.errors import PenstockError
from penstock.ledger import Ledger, NackState, Totals

if TYPE_CHECKING:
    from penstock.engine.lane import LaneLoop


@dataclass(frozen=True)
class Lane:
    plan: LanePlan
    loop: LaneLoop
    key: int  # in the ledger
    before: Totals  # what the ledger had when this run began
    thread: Any  # an InheritableThread


@dataclass
class Running:
    """`lanes` only grows, so it may be looked at from any thread."""

    plan: PipelinePlan
    stop: StopSignal = field(default_factory=StopSignal)
    lanes: list[Lane] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    cut_off: PenstockError | None = None  # what ended the whole engine while this pipeline was running
    told: bool = False
    refused: PipelineResult | None = None  # it was not fit to run, and has no lanes
    stopped_by: str | None = None  # the person who stopped it; the engine waits for it to be started again
    ending: bool = False
    ended: threading.Event = field(default_factory=threading.Event)  # lanes have ended, and what they shared is closed
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        for lane in self.lanes:
            lane.thread.start()

    def alive(self) -> list[LaneLoop]:
        return [lane.loop for lane in self.lanes if lane.thread.is_alive()]

    def failed(self) -> Lane | None:
        """One without which the pipeline can't go on. A replay is none: what it is about is settled for its source."""
        return next((lane for lane in self._degraded() if not lane.plan.replays), None)

    def _degraded(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.loop.status is Status.DEGRADED]

    @property
    def error(self) -> PenstockError | None:
        failed = self.failed() or next(iter(self._degraded()), None)
        if self.refused is not None:
            return self.refused.error
        return failed.loop.error if failed else self.cut_off

    @property
    def status(self) -> Status:
        """Of the pipeline as a whole."""
        if not self.alive():
            return Status.DEGRADED if self.error else Status.STOPPED
        recovering = any(lane.loop.status is Status.RECOVERING for lane in self.lanes)
        return Status.RECOVERING if recovering else Status.RUNNING

    def interrupt(self) -> None:
        """Whatever lanes wait for that are still there."""
        left = [lane for lane in self.lanes if lane.thread.is_alive()]
        for lane in left:
            lane.plan.source.interrupt()
        if left and self.plan.beside is not None:
            self.plan.beside.interrupt()

    def end(self, resent: Callable[[str, int], None]) -> None:
        """After the last lane has ended, or was left behind. May be called from several threads: one of them does it, the others wait."""
        with self._ending:
            if self.ended.is_set():
                return
            self.interrupt()  # nothing is left running
            if self.plan.beside is not None:
                self.plan.beside.close()
                for name, n in self.plan.beside.resent().items():
                    resent(name, n)
            self.ended.set()

    # -- what can be said of it ----------------------------------------------------------------------------------------

    def result(self, ledger: Ledger) -> PipelineResult:
        if self.refused is not None:
            return self.refused
        failed, error = self.failed() or next(iter(self._degraded()), None), self.error
        return PipelineResult(
            self.plan.id,
            Status.DEGRADED if error else Status.STOPPED,
            error,
            failed.loop.trace if failed else "",
            time.monotonic() - self.started,
            tuple(_result(lane, ledger) for lane in self.lanes),
        )

    def view(self, ledger: Ledger) -> PipelineView:
        return PipelineView(self.plan.id, tuple(self._lane_view(lane, ledger) for lane in self.lanes))

    def _lane_view(self, lane: Lane, ledger: Ledger) -> LaneView:
        n, loop = _gained(lane, ledger), lane.loop
        counts = (n.read, n.acked, n.delivered, n.filtered, n.dead_lettered)
        doing = loop.doing
        if self.stopped_by is not None and loop.status is Status.STOPPED:
            doing = Doing(f"stopped by {self.stopped_by}", doing.since)
        return LaneView(lane.plan.name, loop.status.value, doing, *counts, loop.behind)


def _result(lane: Lane, ledger: Ledger) -> LaneResult:
    n = _gained(lane, ledger)
    return LaneResult(
        lane.plan.name,
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


def _gained(lane: Lane, ledger: Ledger) -> Totals:
    """What the lane has done in this run; every destination of the plan is in it."""
    now, before = ledger.totals(lane.key), lane.before

    def since(name: str) -> dict[str, int]:
        after, first = getattr(now, name), getattr(before, name)
        return {d: after.get(d, 0) - first.get(d, 0) for d in lane.plan.targets}

    names = ("delivered", "filtered", "dead_lettered", "discarded", "produced")
    return Totals(now.read - before.read, now.acked - before.acked, **{name: since(name) for name in names})
