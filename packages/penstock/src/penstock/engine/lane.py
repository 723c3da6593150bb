"""A lane: one source and everything downstream of it, as a loop in one thread.

Recovery first, then batch after batch. `Retry` leaves the loop, waits, and enters it again through recovery; any other error
ends the lane and, through the supervisor, its pipeline. The jobs of the thread carry the lane's tag, so that a forceful stop
can cancel them.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.engine.backoff import Backoff
from penstock.engine.batch import single, snapshot
from penstock.engine.batch.account import Account
from penstock.engine.batch.admit import GateClosed
from penstock.engine.batch.at_most_once import lost, send
from penstock.engine.batch.commit import ack, finish, tell
from penstock.engine.batch.context import Work, folder_name
from penstock.engine.batch.isolate import cut_in_halves, cut_out, give_up, suspicious
from penstock.engine.batch.rehearse import rehearse
from penstock.engine.batch.run import compute
from penstock.engine.batch.split import discard, split
from penstock.engine.classify import SparkDied, WorkerDied, classify
from penstock.engine.frontier import frontier
from penstock.engine.pace import Pace
from penstock.engine.recovery import Action, decide
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, Remaining, Status, human_size
from penstock.errors import InputChanged, LedgerError, PenstockError, Retry, TooLarge, UnreadableFile
from penstock.ledger import Attempt, NackState, Snapshot, State
from penstock.ranges import Behind, Known, Ranges
from penstock.testing import faults

WAIT = 1.0  # seconds between two looks at a source that has nothing

Report = Callable[[str, dict[str, Any]], None]


class LaneLoop:
    """`run` is the body of the lane's thread. The fields are for the supervisor to read."""

    def __init__(
        self,
        work: Work,
        stop: StopSignal,
        report: Report,
        *,
        once: bool,
        backoff: Backoff,
        tag: str,
        steps: int | None = None,
    ) -> None:
        """With `steps` it ends after so many records, each a batch of its own."""
        self._work = work
        self._stop = stop
        self._report = report
        self._once = once
        self._steps = steps
        self._backoff = backoff
        self._failures = 0
        self._closed: GateClosed | None = None  # what comes before it is still delivered, nothing from it on
        self._rehearsed = self._started = False
        self._stuck = True  # the ledger may say why it did not go on; it is told when it does
        self._forgotten: set[int] = set()  # only ever with a safeguard off
        self._pace = Pace(work.limits.max_bytes)
        self._waiting_since: float | None = None  # a batch that is not full
        self._drains: bool | None = None  # the source was told to stop; True: what is on its way is still taken
        self.tag = tag
        self.doing = Doing("beginning", time.monotonic())
        self.behind: Behind | None = None
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

    def _say(self, what: str) -> None:
        """For whoever looks (`Engine.view`). One assignment: read from other threads."""
        if self.doing.what != what:
            self.doing = Doing(what, time.monotonic())

    def _fail(self, error: PenstockError, trace: str) -> None:
        """Decides what an error that left the loop means for the lane."""
        trace = self._work.secrets.clean_chain(error, trace)
        if self._stop.forced and not isinstance(error, LedgerError):
            self.status = Status.STOPPED  # its job was cancelled; the batch is read again at the next start
            return
        self._failures += 1
        delay = self._backoff.delay(self._failures) if isinstance(error, Retry) else None
        self._note(str(error))
        if delay is not None and not self._stop.requested:
            self.status = Status.RECOVERING
            self._report("retry", {"error": str(error), "seconds": round(delay, 1), "try": self._failures})
            self._say(f"trying again in {delay:.0f} s (try {self._failures})")
            self._stop.sleep(delay)
        if delay is None or self._stop.requested:
            self.error, self.trace, self.status = error, trace, Status.DEGRADED
        else:
            self.status = Status.RUNNING

    def _note(self, error: str | None) -> None:
        """For those who look later. What can't be written down is said all the same."""
        if error is None and not self._stuck:
            return
        with suppress(PenstockError):
            self._work.ledger.stuck(self._work.lane.key, error)
        self._stuck = error is not None

    def _loop(self) -> None:
        """Enters through recovery; returns when the lane has nothing left to do, or is told to stop."""
        ledger, lane = self._work.ledger, self._work.lane
        work = replace(self._work, lane=ledger.lane(lane.pipeline, lane.source))
        known = work.lane.known
        self._started, self._drains = False, None
        work.source.around = work.around  # what is prepared may ask where its records came from
        unfinished = {s.batch for s in ledger.unfinished(work.lane.key)}  # to be recovered, others are our own halves
        self._tidy(work)
        while True:
            waiting = [s for s in ledger.unfinished(work.lane.key) if s.batch not in self._forgotten]
            if waiting and not (self._closed and single.start_of(waiting[0]) >= self._closed.seq):
                s = waiting[0]
                if self._stop.requested and s.state is not State.PREPARED:
                    return
                if s.state is not State.PREPARED:
                    self._begin(work)
                if s.state is State.OPEN:
                    if self._steps == 0:
                        return
                    if self._apart(work, known, s):
                        continue
                self._resume(work, known, s, recovering=s.batch in unfinished)
                unfinished.discard(s.batch)
                if self._steps and s.state is State.OPEN:
                    self._steps -= 1
            elif self._closed:
                raise self._closed
            elif self._steps == 0:
                return
            elif (taken := self._next(work, known)) is not None:
                if taken[0].state is State.OPEN and (self._steps is not None or self._skips(work)):
                    work.ledger.failed(*taken, "put aside: a person wants to have records apart")
                    continue
                started = time.monotonic()
                self._batch(work, known, *taken)
                self._pace.note(taken[0].ranges.size, time.monotonic() - started)
            elif self._over(work):
                return
            else:
                self._say("waiting for input" if self._drains is None else "waiting for the source to stop")
                work.source.wait(WAIT)

    def _skips(self, work: Work) -> bool:
        return not work.replaying and bool(work.ledger.skips(work.lane.key))

    def _apart(self, work: Work, known: Known, s: Snapshot) -> bool:
        """Records of an open batch that a person has decided about. True: it is settled, or others stand for it."""
        if self._skips(work) and (skipped := single.skip(work, s)) is not None:
            for ranges in skipped.acked:
                known.settled(ranges)
            if skipped.seq is not None:
                self._report("skipped", {"batch": s.batch, "seq": skipped.seq})
            return True
        return bool(self._steps) and single.cut(work, s)

    def _begin(self, work: Work) -> None:
        """Before the source is touched. Prepared work needs neither plan nor source, and is finished first."""
        if not self._rehearsed:
            if faults.safeguard("rehearse"):
                self._say("trying the plan")
                rehearse(work)
            self._rehearsed = True
        if not self._started:
            if work.around is not None:
                work.source.start(work.around)
            self._started = True

    def _next(self, work: Work, known: Known) -> tuple[Snapshot, Attempt] | None:
        """The next batch. After a stop only what is on its way already."""
        if self._stop.requested and (not self._started or not self._stop_source(work)):
            return None
        self._begin(work)
        return self._take(work, known)

    def _over(self, work: Work) -> bool:
        """There is nothing to take now: whether that is the end."""
        if not self._stop.requested and not (self._once and work.source.idle()):
            return False
        told = self._drains is not None
        return not self._stop_source(work) or (told and work.source.drained())

    def _stop_source(self, work: Work) -> bool:
        if self._drains is None:
            self._say("stopping the source")
            self._drains = self._started and work.source.stop()
        return self._drains

    def _take(self, work: Work, known: Known) -> tuple[Snapshot, Attempt] | None:
        """The next batch, as large as the pace allows."""
        limits = replace(work.limits, aim=self._pace.size)
        if self.doing.what != "waiting for input":  # it looks all the time then
            self._say("looking for input")
        taken = snapshot.take(work, known, limits, self._enough)
        self._note(None)
        self.behind = work.source.behind()
        if taken is not None:
            self._waiting_since = None
        return taken

    def _enough(self, ranges: Ranges) -> bool:
        """A batch that is not full waits for more, up to `max-delay`."""
        if self._once or self._stop.requested or ranges.full or not self._work.limits.max_delay:
            return True
        now = time.monotonic()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        return now - self._waiting_since >= self._work.limits.max_delay

    def _tidy(self, work: Work) -> None:
        """What a death between two steps has left: batches that are done and not acked, folders nobody needs."""
        rows = work.ledger.unacked(work.lane.key)
        for s in rows:
            tell(work, s)
        if rows:
            for ranges in ack(work, work.lane.key, work.ledger.advance(work.lane.key, frontier)):
                work.lane.known.settled(ranges)
        needed = {work.workdir(s).name for s in work.ledger.unfinished(work.lane.key)}
        folder = self._work.state / "work" / folder_name(work.lane)
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in needed:
                shutil.rmtree(path, ignore_errors=True)

    def _resume(self, work: Work, known: Known, s: Snapshot, *, recovering: bool) -> None:
        """A batch that is written down already: left by an earlier run, or a half of one that was split."""
        action = decide(s.state)
        if recovering:
            faults.reach("K11")
            name = action.name.lower().replace("_", "-")
            self._report("recovery", {"batch": s.batch, "state": s.state.value, "action": name})
        if action is Action.FINISH:
            told = replace(work, recovering=lambda name, there: self._recovered(s, name, there)) if recovering else work
            self._finish(told, known, s)
        elif action is Action.RUN_AGAIN:
            deaths = work.ledger.deaths(s)
            discard(work, s)
            if suspicious(s, deaths):
                self._halve(work, known, s, deaths, f"it ended the process {deaths} times")
            else:
                self._batch(work, known, s, work.ledger.retry(s, work.refs))
        elif action is Action.DISCARD:
            self._lose(work, s)
        elif action is Action.FORGET:
            if s.state is State.OPEN:
                work.ledger.drop(s)
            self._forgotten.add(s.batch)
            known.dropped(s.ranges)

    def _recovered(self, s: Snapshot, destination: str, there: bool) -> None:
        self._report("recovered", {"batch": s.batch, "destination": destination, "there": there})

    def _batch(self, work: Work, known: Known, s: Snapshot, attempt: Attempt) -> None:
        self._report(
            "snapshot", {"batch": s.batch, "attempt": attempt.number, "files": len(s.ranges), "bytes": s.ranges.size}
        )
        self._say(f"processing batch {s.batch} ({human_size(s.ranges.size)})")
        try:
            numbers = (send if s.state is State.TAKEN else compute)(work.of(s), s, attempt)
        except Exception as e:
            error = self._explain(work, s, e)
            if s.state is State.TAKEN:
                self._after_loss(work, s, error, e)
            if not isinstance(error, LedgerError | SparkDied):
                work.ledger.failed(s, attempt, str(error))
            self._after_failure(work, known, s, error, e)
            return
        if s.state is not State.TAKEN:
            self._finish(work, known, s)
        self._failures = 0
        self._report_batch(s, numbers)

    def _report_batch(self, s: Snapshot, numbers: Account) -> None:
        details = {"records": numbers.records, "files": len(s.ranges), "bytes": s.ranges.size}
        filtered = min((n.filtered for n in numbers.sums.values()), default=0)
        dead = numbers.dead
        self._report("batch", {"batch": s.batch, **details, "filtered": filtered, "dead_lettered": dead})
        for node, n in numbers.warned.items():
            if n:
                self._report("warning", {"batch": s.batch, "processor": node, "records": n})

    def _after_failure(self, work: Work, known: Known, s: Snapshot, error: PenstockError, e: Exception) -> None:
        """An unprepared batch failed. Some failures make it smaller, or give it up; every other one leaves the loop."""
        if isinstance(error, GateClosed):
            held = error.letter.nack(state=NackState.HELD, record=error.letter.json())
            if not faults.safeguard("split"):
                raise error from e
            split(work, s, error.seq, "gate", held)
            self._closed = error
            return
        if isinstance(error, TooLarge):
            discard(work, s)
            self._batch(replace(work, refuse_large=True), known, s, work.ledger.retry(s, work.refs))
            return
        if isinstance(error, WorkerDied) and faults.safeguard("isolate"):
            self._halve(work, known, s, 0, error.what)
            return
        if isinstance(error, UnreadableFile) and faults.safeguard("isolate"):
            if not cut_out(work, s, error.path):
                self._give_up(work, known, s, error.code, f"{error.what}: {error.why}")
            return
        if not (isinstance(error, InputChanged) and error.reread):
            _forget_errors(work, s, error)
            raise error from e
        discard(work, s)
        work.ledger.drop(s)
        known.dropped(s.ranges)
        self._report("reread", {"batch": s.batch, "why": error.what})

    def _halve(self, work: Work, known: Known, s: Snapshot, deaths: int, why: str) -> None:
        """A batch that kills is cut; one that can't be cut becomes a dead letter. To find its middle it is read, which may fail, too."""
        try:
            cut = cut_in_halves(work, s, deaths)
        except Exception as e:
            error = self._explain(work, s, e)
            if not isinstance(error, UnreadableFile | InputChanged):
                raise error from e
            self._after_failure(work, known, s, error, e)
            return
        if cut:
            self._report("halved", {"batch": s.batch, "why": why})
        else:
            self._give_up(work, known, s, "batch.killed", f"processing it ends the process: {why}")

    def _give_up(self, work: Work, known: Known, s: Snapshot, code: str, why: str) -> None:
        attempt = work.ledger.retry(s, work.refs)
        try:
            numbers = give_up(work.of(s), s, attempt, code, why)
        except GateClosed as e:
            work.ledger.failed(s, attempt, str(e))
            work.ledger.hold(s, e.letter.nack(state=NackState.HELD, record=e.letter.json()))
            self._closed = e
            return
        self._finish(work, known, s)
        self._report_batch(s, numbers)

    def _lose(self, work: Work, s: Snapshot) -> None:
        records = lost(work, s)
        self._report("lost", {"batch": s.batch, "records": "an unknown number of" if records is None else records})

    def _after_loss(self, work: Work, s: Snapshot, error: PenstockError, e: Exception) -> None:
        """At most once: what was not processed is gone, and the lane stops to say so."""
        if not isinstance(error, GateClosed | LedgerError):
            self._lose(work, s)
        _forget_errors(work, s, error)
        raise error from e

    def _finish(self, work: Work, known: Known, s: Snapshot) -> None:
        """Prepared work no longer depends on its input: whatever goes wrong, the next try goes on where this one stopped."""
        self._say(f"delivering batch {s.batch}")
        try:
            for ranges in finish(work, s):
                known.settled(ranges)
        except Exception as e:
            raise _named(classify(e), work, s) from e

    def _explain(self, work: Work, s: Snapshot, e: Exception) -> PenstockError:
        """A job that failed because its input changed under it says so. Never asked about prepared work."""
        error = classify(e)
        if not isinstance(e, PenstockError) and not isinstance(error, SparkDied) and _stopped(work):
            error = SparkDied("Spark was shut down", code="spark.died", why=error.why, hint="see spark.log")
        foreign = not isinstance(e, PenstockError) or isinstance(e, UnreadableFile)
        if foreign and not isinstance(error, SparkDied):
            try:
                work.source.recheck(s.ranges)
            except PenstockError as changed:
                error = changed
        return _named(error, work, s)

    def remaining(self) -> Remaining | None:
        """What is written down and not delivered, counted after the lane has ended; None when that is nothing."""
        rows = self._work.ledger.unfinished(self._work.lane.key)
        left = self._work.source.left()
        if not rows and not left:
            return None
        counts = [left, *(self._work.source.count(s.ranges) for s in rows)]
        records = None if None in counts else sum(c for c in counts if c is not None)
        return Remaining(len(rows), sum(len(s.ranges) for s in rows), sum(s.ranges.size for s in rows), records)


def _named(error: PenstockError, work: Work, s: Snapshot) -> PenstockError:
    """Every error says which batch it came from, and none what a setting got by reference."""
    work.secrets.clean(error)
    if not error.where:
        error.where = f"{work.lane.pipeline}/{work.lane.source}, batch {s.batch}"
    return error


def _forget_errors(work: Work, s: Snapshot, error: PenstockError) -> None:
    """What tasks have written aside may quote a secret. An unprepared batch is computed anew: nobody reads it again."""
    if not work.secrets or isinstance(error, LedgerError):
        return
    if all(u.batch != s.batch or u.state is not State.PREPARED for u in work.ledger.unfinished(work.lane.key)):
        shutil.rmtree(work.workdir(s), ignore_errors=True)


def _stopped(work: Work) -> bool:
    """A JVM that runs out of memory may still answer while its Spark is gone."""
    try:
        return bool(work.spark.sparkContext._jsc.sc().isStopped())
    except Exception:
        return True
