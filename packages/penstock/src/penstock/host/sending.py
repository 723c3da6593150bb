"""How rows go to a hosted destination: in batches, each answered before the next one, with marks for what is settled.

A connector may refuse the whole rest of a batch for one bad record. So of a connector that is not `exact` only a record that was refused as
the first of a batch is bad; the rest is sent again. One that is refused while something behind it was written is bad as well: sending it
again would break the order. Pure but for the marks; tested without a connector.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.host.marks import Mark, Marks
from penstock.host.outgoing import Outgoing
from penstock.native import Refusal
from penstock.testing import faults

FIRST = 1  # records of the first batch: a connector may take long for each
STEP = 20  # above what it has once gone away with, batches grow by so manieth of that
QUICK, SLOW = 0.25, 2.0  # seconds: batches that take less grow, those that take more shrink
UNFIT = "destination.unfit"

Write = Callable[[Outgoing], Sequence[str]]
Ask = Callable[[Refusal], bool]


class Superseded(Exception):
    """Another attempt of the same task has come."""


class Stopped(Exception):
    """A record was refused that must not be passed."""


class Turn:
    """Attempts at one partition: the newest one is served, an older one is turned away before its next batch."""

    def __init__(self) -> None:
        self._newest = (-1, -1)
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, attempt: tuple[int, int]) -> Iterator[None]:
        self._newest = max(self._newest, attempt)
        if not faults.safeguard("newest-attempt"):
            yield
            return
        with self._lock:  # what an older one has under way is answered first
            self.check(attempt)
            yield

    def check(self, attempt: tuple[int, int]) -> None:
        if attempt < self._newest and faults.safeguard("newest-attempt"):
            raise Superseded


class Pace:
    """How many records a batch has. Shared by all that write to one connector."""

    def __init__(self, most: int) -> None:
        self._most = self._safe = most
        self.records = min(FIRST, most)

    def took(self, count: int, seconds: float) -> None:
        if seconds > SLOW:
            self.records = max(1, self.records // 2)
        elif seconds < QUICK and count >= self.records:
            quick = self.records * 2
            slow = max(self.records, self._safe) + max(1, self._safe // STEP)
            self.records = min(self._most, quick if quick <= self._safe else slow)

    def refused(self) -> None:
        """Look for it one by one: batches grow again behind it."""
        self.records = 1

    def lost(self) -> None:
        """The connector went away: a smaller batch may be what it can bear, and costs less if it goes again."""
        self.records = self._safe = max(1, self.records // 2)


class Send:
    """Of one partition. Called with its rows in order, again with those that a call has not come to an end with."""

    def __init__(self, marks: Marks, partition: int, pace: Pace, ask: Ask) -> None:
        self._marks, self._partition, self._pace, self._ask = marks, partition, pace, ask
        self._mark: Mark = marks.partition(partition)
        self.unanswered = 0  # of the batch that was under way when a call failed

    def __call__(self, found: Outgoing, write: Write, *, exact: bool, check: Callable[[], None]) -> None:
        mark = self._mark
        if found.places and (found.places[0] <= mark.at or mark.beyond):
            found = found.only([i for i, place in enumerate(found.places) if not mark.has(place)])
        start = 0
        while start < len(found):
            check()
            why = found.unfit(start)
            if why is not None:
                self._unfit(found, start, why)
                start += 1
                continue
            batch = found.part(start, found.end(start, self._pace.records))
            self.unanswered = len(batch)
            began = time.monotonic()
            answers = write(batch)
            self.unanswered = 0
            self._pace.took(len(batch), time.monotonic() - began)
            start += self._settle(batch, answers, exact=exact)

    def _settle(self, batch: Outgoing, answers: Sequence[str], *, exact: bool) -> int:
        """How many of the batch are settled; the rest is to be sent again."""
        mark, n = self._mark, len(batch)
        if not any(answers):
            mark.at, mark.written = batch.places[-1], mark.written + n
            self._marks.save(self._partition)
            return n
        if not exact and faults.safeguard("tail-again"):
            self._pace.refused()
            while n > 1 and answers[n - 1]:
                n -= 1  # only the first of a batch that is refused to its end is surely bad
        refused: list[Refusal] = []
        for i in range(n):
            if not answers[i]:
                mark.written += 1
            else:
                refusal = Refusal(*batch.places[i], answers[i])
                if not self._ask(refusal):
                    behind = [batch.places[k] for k in range(i + 1, n) if not answers[k]]
                    mark.beyond.update(behind)  # they are there, and must not be sent again
                    mark.written += len(behind)
                    self._marks.save(self._partition, refused)
                    raise Stopped
                refused.append(refusal)
            mark.at = batch.places[i]
        self._marks.save(self._partition, refused)
        return n

    def _unfit(self, found: Outgoing, i: int, why: str) -> None:
        refusal = Refusal(*found.places[i], why, UNFIT)
        if not self._ask(refusal):
            raise Stopped
        self._mark.at = found.places[i]
        self._marks.save(self._partition, [refusal])
