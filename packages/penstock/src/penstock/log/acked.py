"""What one reader has acknowledged, and which records there are to acknowledge. Pure: no files, no locks, no threads.

`Offsets` keeps an `Acked` per reader and one `Known` for all of them, under a lock of its own. An ack only notes the offset;
what follows from it is worked out by `settle` when somebody asks or a flush is due, so that a million acks cost a second.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from penstock.log.format import Span
from penstock.testing import faults

MAX_RANGES = 1000  # of one reader in the file; what is dropped is redelivered
_SHIFT = 12
_PAGE = 1 << _SHIFT  # offsets to a page
_MASK = _PAGE - 1
_FULL = (1 << _PAGE) - 1


class OffsetSet:
    """Offsets as bits, in pages of 4,096: setting one costs the same however many gaps there are, in any order."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def __contains__(self, offset: int) -> bool:
        return bool(self._pages.get(offset >> _SHIFT, 0) >> (offset & _MASK) & 1)

    def add(self, offset: int) -> None:
        number = offset >> _SHIFT
        self._pages[number] = self._pages.get(number, 0) | 1 << (offset & _MASK)

    def add_range(self, start: int, end: int) -> None:
        for number, low, high in _cuts(start, end):
            if high - low == _PAGE:
                self._pages[number] = _FULL  # one object for all of them
            else:
                self._pages[number] = self._pages.get(number, 0) | ((1 << high - low) - 1) << low

    def count(self, start: int, end: int) -> int:
        """How many of `start` … `end` - 1 are in it."""
        return sum(
            (self._pages.get(number, 0) >> low & (1 << high - low) - 1).bit_count()
            for number, low, high in _cuts(start, end)
        )

    def first_missing(self, start: int, end: int) -> int:
        """The first of `start` … `end` - 1 that is not in it; `end` if all are."""
        while start < end:
            rest = self._pages.get(start >> _SHIFT, 0) >> (start & _MASK)
            ones = (rest ^ (rest + 1)).bit_length() - 1
            reached_end_of_page = (start & _MASK) + ones == _PAGE
            start += ones
            if not reached_end_of_page:
                break
        return min(start, end)

    def ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """From `start` on, in order: first offset, and the one after the last."""
        first = last = -1
        for number in sorted(self._pages):
            base = number << _SHIFT
            at = max(start - base, 0)
            rest = self._pages[number] >> at
            while rest:
                zeros = (rest & -rest).bit_length() - 1
                rest >>= zeros
                ones = (rest ^ (rest + 1)).bit_length() - 1
                rest >>= ones
                at += zeros
                if base + at != last:
                    if first >= 0:
                        yield first, last
                    first = base + at
                at += ones
                last = base + at
        if first >= 0:
            yield first, last

    def drop_below(self, offset: int) -> None:
        """Forgets whole pages below it. What is left below `offset` in its page means nothing any more."""
        for number in [n for n in self._pages if n < offset >> _SHIFT]:
            del self._pages[number]

    def clear(self) -> None:
        self._pages.clear()

    def highest(self) -> int:
        """Only for the control of `offset-prefix`; -1 where there is none."""
        number = max(self._pages, default=0)
        return (number << _SHIFT) + self._pages.get(number, 0).bit_length() - 1


def _cuts(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Page by page: its number, and the part of it that lies in `start` … `end` - 1."""
    while start < end:
        number = start >> _SHIFT
        stop = min(end, (number + 1) << _SHIFT)
        yield number, start & _MASK, stop - (number << _SHIFT)
        start = stop


class Runs:
    """The offsets of one namespace's records: stretches without a gap, in order."""

    def __init__(self) -> None:
        self.starts = array("q")
        self.ends = array("q")

    def add(self, start: int, end: int) -> None:
        if self.ends and self.ends[-1] == start:
            self.ends[-1] = end
        else:
            self.starts.append(start)
            self.ends.append(end)

    def last_below(self, offset: int) -> int | None:
        """The highest record below it."""
        i = bisect_left(self.starts, offset)
        return min(self.ends[i - 1], offset) - 1 if i else None

    def after(self, offset: int) -> Iterator[tuple[int, int]]:
        """The stretches at or above it; the first one may be cut."""
        for i in range(bisect_right(self.ends, offset), len(self.ends)):
            yield max(self.starts[i], offset), self.ends[i]

    def drop_below(self, offset: int) -> None:
        i = bisect_right(self.ends, offset)
        del self.starts[:i]
        del self.ends[:i]


class Known:
    """The records of a log from `start` to `end`, by namespace. 16 bytes for each stretch of one namespace, so an ack
    does not scan the log. Cut off below as readers go on."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.namespaces: dict[str, Runs] = {}

    def extend(self, spans: Iterable[Span]) -> None:
        for span in spans:
            start, end = max(span.offset, self.end), span.end
            if start >= end:
                continue
            runs = self.namespaces.get(span.namespace)
            if runs is None:
                runs = self.namespaces[span.namespace] = Runs()
            runs.add(start, end)
            self.end = end

    def drop_below(self, offset: int) -> None:
        if offset <= self.start:
            return
        self.start = offset
        self.end = max(self.end, offset)
        for namespace, runs in list(self.namespaces.items()):
            runs.drop_below(offset)
            if not runs.ends:
                del self.namespaces[namespace]


class Acked:
    """One reader. A record is acked if it lies below `frontier`, or in `beyond`, or at or below its namespace's `effective`."""

    def __init__(
        self, frontier: int = 0, effective: Mapping[str, int] | None = None, ranges: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.frontier = frontier
        self.effective = dict(effective or {})
        self.beyond = OffsetSet()
        self._start = frontier  # what lies below it was acked before, or was never this reader's
        for start, end in ranges:
            self.beyond.add_range(start, end)

    def add(self, offset: int) -> None:
        if offset > self.frontier:
            self.beyond.add(offset)
        elif offset == self.frontier:
            self.frontier += 1

    def add_range(self, start: int, end: int) -> None:
        if start > self.frontier:
            self.beyond.add_range(start, end)
        elif end > self.frontier:
            self.frontier = end

    def add_through(self, offset: int, namespace: str | None, known: Known) -> None:
        """Everything at or below it, or everything of a namespace."""
        if namespace is None:
            self.add_range(self.frontier, offset + 1)
            return
        runs = known.namespaces.get(namespace)
        last = None if runs is None else runs.last_below(offset + 1)
        if last is not None and last >= self._start:
            self._raise(namespace, last)

    def absorb(self, frontier: int, effective: Mapping[str, int], ranges: Iterable[tuple[int, int]]) -> None:
        """What another process has written down for the same reader counts as well."""
        self.frontier = max(self.frontier, frontier)
        for namespace, offset in effective.items():
            self._raise(namespace, offset)
        for start, end in ranges:
            self.add_range(start, end)

    def settle(self, known: Known) -> int | None:
        """Works out `frontier` and `effective`. Returns the lowest record that is pending, of those that are known."""
        if not faults.safeguard("offset-prefix"):
            self.frontier = max(self.frontier, self.beyond.highest() + 1)
        lowest: int | None = None
        for namespace, runs in known.namespaces.items():
            pending = self._advance(namespace, runs)
            if pending is not None and (lowest is None or pending < lowest):
                lowest = pending
        self.frontier = max(self.frontier, known.end if lowest is None else lowest)
        self.beyond.drop_below(self.frontier)
        return lowest

    def _advance(self, namespace: str, runs: Runs) -> int | None:
        """Raises a namespace's effective offset as far as no record is missing; returns the record that stops it."""
        last = runs.last_below(self.frontier)
        if last is not None and last >= self._start:
            self._raise(namespace, last)
        for start, end in runs.after(max(self.frontier, self.effective.get(namespace, -1) + 1)):
            missing = self.beyond.first_missing(start, end)
            if missing > start:
                self._raise(namespace, missing - 1)
            if missing < end:
                return missing
        return None

    def lag(self, known: Known) -> int:
        """How many of the known records are pending."""
        return sum(
            end - start - self.beyond.count(start, end)
            for namespace, runs in known.namespaces.items()
            for start, end in runs.after(max(self.frontier, self.effective.get(namespace, -1) + 1))
        )

    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The lowest ones beyond the frontier, as many as are kept."""
        limit = MAX_RANGES if faults.safeguard("offset-bound") else None
        return tuple(islice(self.beyond.ranges(self.frontier), limit))

    def back_to(self, offset: int, known: Known) -> None:
        """Only for the control of `offset-forward`: the last ack counts, whatever came before it."""
        self.frontier = self._start = offset + 1
        self.beyond.clear()
        for namespace in [n for n, reached in self.effective.items() if reached > offset]:
            last = known.namespaces[namespace].last_below(offset + 1) if namespace in known.namespaces else None
            self.effective[namespace] = offset if last is None else last

    def _raise(self, namespace: str, offset: int) -> None:
        if offset > self.effective.get(namespace, -1):
            self.effective[namespace] = offset


@dataclass(frozen=True, slots=True)
class ReaderState:
    """One reader in the file. A record is acked if one of the three says so."""

    frontier: int  # everything below it
    namespaces: Mapping[str, int]  # of this namespace everything at or below it: the effective offset
    ranges: tuple[tuple[int, int], ...] = ()  # first, and the one after the last; in order, at or above the frontier
    updated: str = field(default="", compare=False)  # for people

    @property
    def reach(self) -> int:
        """The log was durable at least up to here: nobody acks what can't be read yet."""
        return max(
            self.frontier, self.ranges[-1][1] if self.ranges else 0, max(self.namespaces.values(), default=-1) + 1
        )

    def first_pending(self, span: Span) -> int | None:
        """The lowest record of a span that is not acked."""
        at = max(span.offset, self.frontier, self.namespaces.get(span.namespace, -1) + 1)
        i = bisect_right(self.ranges, at, key=lambda r: r[0])
        if i and self.ranges[i - 1][1] > at:
            at = self.ranges[i - 1][1]
        return at if at < span.end else None


def compaction_point(states: Mapping[str, ReaderState], spans: Iterable[Span], end: int) -> int | None:
    """The lowest record that some reader has not acked; `end` if there is none. None without readers: nothing may go.

    `spans` are the log's, in order; those below every reader's frontier may be left out.
    """
    if not states:
        return None
    for span in spans:
        found = [at for state in states.values() if (at := state.first_pending(span)) is not None]
        if found:
            return min(found)
    return end


def merge(old: ReaderState, new: ReaderState) -> ReaderState:
    """An older state never replaces a newer one: what either of them has acked is acked."""
    if not faults.safeguard("offset-forward"):
        return new
    both = Acked(old.frontier, old.namespaces, old.ranges)
    both.absorb(new.frontier, new.namespaces, new.ranges)
    return ReaderState(both.frontier, both.effective, both.ranges(), new.updated)
