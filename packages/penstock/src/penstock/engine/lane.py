"""A lane: one source and everything downstream of it, as a loop in one thread.

Recovery first, then batch after batch. `Retry` leaves the loop, waits, and enters it again through recovery; any other error
ends the lane and, through the supervisor, its pipeline. The jobs of the thread carry the lane's tag, so that a forceful stop
can cancel them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.engine.backoff import Backoff
from penstock.engine.batch import snapshot
from penstock.engine.batch.commit import finish
from penstock.engine.batch.context import Work
from penstock.engine.batch.run import compute
from penstock.engine.classify import SparkDied, classify
from penstock.engine.recovery import Action, decide
from penstock.engine.stop import StopSignal
from penstock.errors import InputChanged, LedgerError, PenstockError, Retry
from penstock.ledger import Attempt, Snapshot, State
from penstock.ranges import Known
from penstock.testing import faults

WAIT = 1.0  # seconds between two looks at a source that has nothing

Report = Callable[[str, dict[str, Any]], None]


class Status(StrEnum):
    RUNNING = "running"
    RECOVERING = "recovering"  # waiting after a Retry
    STOPPED = "stopped"
    DEGRADED = "degraded"


@dataclass(frozen=True)
class Remaining:
    """What a stop could not finish; it is delivered at the next start. `records` is None where counting would take long."""

    batches: int
    files: int
    bytes: int
    records: int | None


class LaneLoop:
    """`run` is the body of the lane's thread. The fields are for the supervisor to read."""

    def __init__(self, work: Work, stop: StopSignal, report: Report, *, once: bool, backoff: Backoff, tag: str) -> None:
        self._work = work
        self._stop = stop
        self._report = report
        self._once = once
        self._backoff = backoff
        self._failures = 0
        self.tag = tag
        self.status = Status.RUNNING
        self.error: PenstockError | None = None
        self.trace = ""

    def run(self) -> None:
        context = self._work.spark.sparkContext
        context.addJobTag(self.tag)
        context.setLocalProperty("spark.scheduler.pool", self.tag)
        while self.status is Status.RUNNING:
            try:
                self._loop()
                self.status = Status.STOPPED
            except Exception as e:
                self._fail(classify(e), traceback.format_exc())
        self._work.source.close()

    def _fail(self, error: PenstockError, trace: str) -> None:
        """Decides what an error that left the loop means for the lane."""
        if self._stop.forced and not isinstance(error, LedgerError):
            self.status = Status.STOPPED  # its job was cancelled; the batch is read again at the next start
            return
        self._failures += 1
        delay = self._backoff.delay(self._failures) if isinstance(error, Retry) else None
        if delay is not None and not self._stop.requested:
            self.status = Status.RECOVERING
            self._report("retry", {"error": str(error), "seconds": round(delay, 1), "try": self._failures})
            self._stop.sleep(delay)
        if delay is None or self._stop.requested:
            self.error, self.trace, self.status = error, trace, Status.DEGRADED
        else:
            self.status = Status.RUNNING

    def _loop(self) -> None:
        """Enters through recovery; returns when the lane has nothing left to do, or is told to stop."""
        ledger, lane = self._work.ledger, self._work.lane
        work = replace(self._work, lane=ledger.lane(lane.pipeline, lane.source))
        known = work.lane.known
        for s in ledger.unfinished(work.lane.key):
            if not self._stop.requested or s.state is State.PREPARED:
                self._recover(work, known, s)
        while not self._stop.requested:
            taken = snapshot.take(work, known)
            if taken is not None:
                known.took(taken[0].ranges)
                self._batch(work, known, *taken)
            elif self._once and work.source.idle():
                return
            else:
                work.source.wait(WAIT)

    def _recover(self, work: Work, known: Known, s: Snapshot) -> None:
        faults.reach("K11")
        action = decide(s.state)
        self._report(
            "recovery", {"batch": s.batch, "state": s.state.value, "action": action.name.lower().replace("_", "-")}
        )
        if action is Action.FINISH:
            self._finish(work, known, s)
        elif action is Action.RUN_AGAIN:
            _discard(work, s)
            self._batch(work, known, s, work.ledger.retry(s))
        elif action is Action.FORGET:
            if s.state is State.OPEN:
                work.ledger.drop(s)
            known.dropped(s.ranges)

    def _batch(self, work: Work, known: Known, s: Snapshot, attempt: Attempt) -> None:
        self._report(
            "snapshot", {"batch": s.batch, "attempt": attempt.number, "files": len(s.ranges), "bytes": s.ranges.size}
        )
        try:
            counts = compute(work, s, attempt)
        except Exception as e:
            error = self._explain(work, s, e)
            if not isinstance(error, LedgerError | SparkDied):
                work.ledger.failed(s, attempt, str(error))
            if not (isinstance(error, InputChanged) and error.reread):
                raise error from e
            _discard(work, s)
            work.ledger.drop(s)
            known.dropped(s.ranges)
            self._report("reread", {"batch": s.batch, "why": error.what})
            return
        self._finish(work, known, s)
        self._failures = 0
        self._report("batch", {"batch": s.batch, "files": len(s.ranges), "bytes": s.ranges.size, **asdict(counts)})

    def _finish(self, work: Work, known: Known, s: Snapshot) -> None:
        """Prepared work no longer depends on its input: whatever goes wrong, the next try goes on where this one stopped."""
        try:
            for ranges in finish(work, s):
                known.settled(ranges)
        except Exception as e:
            raise _named(classify(e), work, s) from e

    def _explain(self, work: Work, s: Snapshot, e: Exception) -> PenstockError:
        """A job that failed because its input changed under it says so. Never asked about prepared work."""
        error = classify(e)
        if not isinstance(e, PenstockError) and not isinstance(error, SparkDied):
            try:
                work.source.recheck(s.ranges)
            except PenstockError as changed:
                error = changed
        return _named(error, work, s)

    def remaining(self) -> Remaining | None:
        """What is written down and not delivered, counted after the lane has ended; None when that is nothing."""
        rows = self._work.ledger.unfinished(self._work.lane.key)
        if not rows:
            return None
        counts = [self._work.source.count(s.ranges) for s in rows]
        records = None if None in counts else sum(c for c in counts if c is not None)
        return Remaining(len(rows), sum(len(s.ranges) for s in rows), sum(s.ranges.size for s in rows), records)


def _named(error: PenstockError, work: Work, s: Snapshot) -> PenstockError:
    """Every error says which batch it came from."""
    if not error.where:
        error.where = f"{work.lane.pipeline}/{work.lane.source}, batch {s.batch}"
    return error


def _discard(work: Work, s: Snapshot) -> None:
    for name, target in work.targets.items():
        target.destination.discard(work.delivery_id(s, name))
