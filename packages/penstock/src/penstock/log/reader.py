"""Reads a log: any process, any number of them, no lock, while it is being written and compacted. Changes nothing.

Rows come as Arrow batches that lie where the file is mapped, where they were appended as batches. Every byte is checked before it is
believed. Only what is durable is seen. A reader is for one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa

from penstock.log import arrow, batches, index, segment
from penstock.log.errors import LogDamaged, LogError
from penstock.log.format import Bad, Head, Header, Kind, Mode, Span
from penstock.log.index import Mark, Place
from penstock.log.segment import Damage, Segment
from penstock.testing import faults
from penstock_sdk.record import Record

FOREIGN = "it is a segment of another log"
BEYOND = "it holds offsets that belong to the next segment"
MISSING = "the segment of an index is missing"
JOINED = 1000  # single records that follow each other are given as one batch, up to so many,
JOINED_BYTES = 4 << 20  # or so much


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive records of one namespace."""

    offset: int  # of the first
    namespace: str
    mode: Mode
    timestamp: int  # ns since 1970: when they, or the first of them, were appended
    rows: pa.RecordBatch

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)

    @property
    def end(self) -> int:
        return self.offset + self.count

    def records(self) -> list[Record]:
        return batches.to_records(self.rows, self.namespace, self.mode)


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that were durable and can't be read any more: one stub per offset, for whoever has to account for them."""

    offset: int
    count: int
    why: str
    segment: Path
    position: int  # byte in the segment
    namespace: str = ""  # where that is known
    repaired: bool = False  # `repair` has accounted for it

    @property
    def end(self) -> int:
        return self.offset + self.count


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it lies in its segment."""

    head: Head
    segment: Path
    data: pa.Buffer


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    path: Path
    header: Header
    end: int  # the offset where the next one begins; of the active one, how far it is durable
    size: int
    active: bool


class Reader:
    """`on_damage`: `stop` raises `LogDamaged`, `skip` gives `Lost` in place of what can't be read."""

    def __init__(self, folder: Path, *, on_damage: Literal["stop", "skip"] = "stop") -> None:
        self.folder = folder
        self._skip = on_damage == "skip"
        self._open: dict[int, Segment] = {}
        self._log_id: bytes | None = None
        self._headers: dict[int, tuple[tuple[int, int], int]] = {}  # which file, and how far it covers
        self._check()

    def _check(self) -> None:
        if not self.bases():
            raise LogError(
                f"There is no log in {self.folder}",
                code="log.missing",
                hint="penstock log list shows those that are there",
            )
        if not self._skip and (orphan := index.orphan(self.folder)) is not None:
            raise LogDamaged(
                MISSING, segment=orphan[0].with_suffix(segment.SUFFIX), position=0, offset=int(orphan[0].stem)
            )

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def log_id(self) -> str:
        return self._segment(segment.bases(self.folder)[-1]).header.log_id.hex()

    @property
    def first(self) -> int:
        """The log begins here; what is missing after it was compacted away."""
        return segment.bases(self.folder)[0]

    @property
    def end(self) -> int:
        """Every offset below it is durable."""
        while True:
            base = segment.bases(self.folder)[-1]
            try:
                mark = self._segment(base).durable()
            except LogDamaged:  # its header: what is in it is not known
                if not self._skip:
                    raise
                return base
            if segment.bases(self.folder)[-1] == base:  # it was not closed meanwhile
                return mark.offset

    # -- reading ----------------------------------------------------------------------------------------------------------------

    def read(
        self, start: int, end: int | None = None, *, namespaces: Callable[[str], bool] | None = None
    ) -> Iterator[Rows | Lost]:
        """Records from `start` up to, not including, `end`, as far as they are durable now; of the namespaces that are wanted."""
        end = self.end if end is None else min(end, self.end)
        singles: list[Entry] = []
        size = 0
        for found in self.entries(start, end):
            if isinstance(found, Entry) and namespaces is not None and not namespaces(found.head.namespace):
                continue
            if singles and (size >= JOINED_BYTES or not _follows(singles, found)):
                yield from self._given(singles, start, end)
                singles = []
            if isinstance(found, Lost):
                yield found
            elif found.head.kind == Kind.RECORD:
                size = found.head.length + (size if singles else 0)
                singles.append(found)
            else:
                yield from self._given([found], start, end)
        if singles:
            yield from self._given(singles, start, end)

    def follow(
        self,
        start: int,
        *,
        stop: Callable[[], bool],
        poll: float = 0.02,
        namespaces: Callable[[str], bool] | None = None,
    ) -> Iterator[Rows | Lost]:
        """The same, and what is appended later, until `stop()` is true and everything up to then was given."""
        while True:
            last = stop()
            end = self.end
            yield from self.read(start, end, namespaces=namespaces)
            start = max(start, end)
            if last:
                return
            if self.end == end:
                time.sleep(poll)

    def entries(self, start: int, end: int | None = None) -> Iterator[Entry | Lost]:
        """Entries with records in this range, checked; a batch may begin before it or end after it."""
        for opened, step in self._walk(start, end):
            if isinstance(step, Damage):
                yield self._lost(opened, step, start, end)
            elif step.kind == Kind.LOST:
                yield self._lost(opened, _told(opened, step), start, end, known=True)
            else:
                try:
                    data = opened.data(step)
                except Bad as bad:
                    damage = Damage(step.offset, step.end, step.position, step.next, str(bad), step.namespace)
                    yield self._lost(opened, damage, start, end)
                else:
                    yield Entry(step, opened.path, data)

    def deliveries(self, start: int, end: int | None = None) -> Iterator[tuple[Span, str]]:
        """Which of these records came with which delivery, as their writer was told; empty where it was told nothing."""
        for found in self.entries(start, end):
            if isinstance(found, Lost):
                yield Span(found.offset, found.count, found.namespace, lost=True), ""
                continue
            head = found.head
            span = Span(head.offset, head.count, head.namespace)
            try:
                if head.kind == Kind.RECORD:
                    yield span, batches.delivery_of(found.data)
                else:
                    metadata = arrow.read(found.data).schema.metadata or {}
                    yield span, metadata.get(batches.DELIVERY, b"").decode()
            except ValueError as e:
                raise LogDamaged(str(e), segment=found.segment, position=head.position, offset=head.offset) from None

    def spans(self, start: int = 0, end: int | None = None) -> Iterator[Span]:
        """Which offsets there are, and of which namespaces: heads are read, data is not. What is lost has a span too: it is pending
        until somebody has accounted for it."""
        for opened, step in self._walk(start, end):
            if isinstance(step, Damage):
                lost = self._lost(opened, step, start, end)
                yield Span(lost.offset, lost.count, lost.namespace, lost=True)
            else:
                first, last = max(step.offset, start), step.end if end is None else min(step.end, end)
                yield Span(first, last - first, step.namespace, step.kind == Kind.LOST)

    def count(self, start: int = 0, end: int | None = None) -> int:
        """How many records a range holds: those that `read` gives, and those that it says are lost."""
        return sum(span.count for span in self.spans(start, end))

    def last(self) -> dict[str, Rows]:
        """The last record of each namespace, with its offset."""
        while True:
            try:
                return self._last()
            except FileNotFoundError:
                continue  # merged into another one

    def _last(self) -> dict[str, Rows]:
        found: dict[str, tuple[Segment, Place]] = {}
        for base in reversed(self.bases()):
            opened = self._segment(base)
            for namespace, place in self._names(opened).items():
                found.setdefault(namespace, (opened, place))
        return {namespace: self._at(*place) for namespace, place in sorted(found.items())}

    def segments(self) -> list[SegmentInfo]:
        while True:
            try:
                return self._segments()
            except FileNotFoundError:
                continue  # merged into another one

    # -- one after the other ------------------------------------------------------------------------------------------------------

    def _walk(self, start: int, end: int | None) -> Iterator[tuple[Segment, Head | Damage]]:
        """What overlaps the range, segment by segment. Each segment is looked up when it is its turn: compaction may have merged it
        into one that begins earlier."""
        end = self.end if end is None else min(end, self.end)
        at = max(start, 0)
        if at < (first := self.first):
            yield self._segment(first), Damage(at, first, 0, 0, "the segments before this one are missing")
            at = first
        while at < end:
            try:
                opened, limit, reach = self._holding(at)
            except LogDamaged as damaged:  # its header: what it should hold is said by its name and by the next one's
                reach = next((base for base in self.bases() if base > at), 0)
                if not self._skip or not reach:
                    raise
                yield Segment(damaged.segment, Header(bytes(16), damaged.offset)), Damage(at, reach, 0, 0, damaged.why)
                at = reach
                continue
            for step in opened.walk(opened.start(at), limit, reach):
                if step.offset >= end:
                    return
                if isinstance(step, Head) and step.end > reach:  # the next segment is the one that has these
                    if not self._skip or step.offset < reach:
                        last = reach if self._skip else step.end
                        yield opened, Damage(step.offset, last, step.position, step.next, BEYOND, step.namespace)
                    break
                if isinstance(step, Head):
                    opened.seen = Mark(step.position, step.offset)
                if step.end > at:
                    yield opened, step
                    at = step.end
            at = max(reach, at)

    def _holding(self, offset: int) -> tuple[Segment, int, int]:
        """The segment with this offset, up to which byte it can be read, and to which offset it reaches."""
        while True:
            bases = self.bases()
            at = max(i for i, base in enumerate(bases) if base <= offset or i == 0)
            try:
                opened = self._segment(bases[at])
            except FileNotFoundError:
                continue
            if at == len(bases) - 1:
                mark = opened.durable()
                if segment.bases(self.folder)[-1] != bases[at]:
                    continue  # closed meanwhile
                return opened, min(mark.position, opened.size), mark.offset
            return opened, opened.size, max(bases[at + 1], opened.header.covers)  # merged with the next one meanwhile

    def bases(self) -> list[int]:
        """Of the segments that count: one that was merged into an earlier one may not be removed yet."""
        try:
            found = segment.bases(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        counting: list[int] = []
        covered = 0
        for base in found:
            if base >= covered or not faults.safeguard("compaction-cover"):
                counting.append(base)
                covered = max(covered, self._covers(base))
        return counting

    def _covers(self, base: int) -> int:
        path = self.folder / segment.name(base)
        try:
            found = path.stat()
            known = self._headers.get(base)
            if known is None or known[0] != (found.st_ino, found.st_ctime_ns):
                known = self._headers[base] = (found.st_ino, found.st_ctime_ns), segment.header(path).covers
        except (Bad, OSError):
            return 0  # whoever reads it will say so
        return known[1]

    def _segment(self, base: int) -> Segment:
        path = self.folder / segment.name(base)
        opened = self._open.pop(base, None)
        if opened is not None and path.stat().st_ino != opened.inode:
            opened = None
        if opened is None:
            opened = Segment(path)
            self._same_log(opened)
            if len(self._open) >= 4:
                del self._open[next(iter(self._open))]
        self._open[base] = opened
        return opened

    def _same_log(self, opened: Segment) -> None:
        if self._log_id is None:
            self._log_id = opened.header.log_id
        if opened.header.log_id != self._log_id:
            raise LogDamaged(FOREIGN, segment=opened.path, position=0, offset=opened.header.base)

    def _segments(self) -> list[SegmentInfo]:
        bases = self.bases()
        made = []
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            opened = self._segment(base)
            end = opened.durable().offset if following is None else following
            made.append(SegmentInfo(opened.path, opened.header, end, opened.size, following is None))
        return made

    # -- what was found -----------------------------------------------------------------------------------------------------------

    def _lost(self, opened: Segment, damage: Damage, start: int, end: int | None, *, known: bool = False) -> Lost:
        """`known`: it was accounted for by `repair`."""
        first = max(damage.offset, start)
        count = max(0, (damage.end if end is None else min(damage.end, end)) - first)
        if not self._skip and not known:
            raise LogDamaged(
                damage.why,
                segment=opened.path,
                position=damage.position,
                offset=damage.offset,
                count=damage.end - damage.offset,
            )
        return Lost(first, count, damage.why, opened.path, damage.position, damage.namespace, known)

    def _given(self, entries: list[Entry], start: int, end: int) -> Iterator[Rows | Lost]:
        """A batch, or single records. What has right checksums and can't be decoded all the same is damaged, too."""
        head = entries[0].head
        try:
            made = [self._rows(entries[0], start, end)] if head.kind == Kind.BATCH else list(_joined(entries))
        except LogDamaged as damaged:
            if not self._skip:
                raise
            if len(entries) > 1:
                for entry in entries:
                    yield from self._given([entry], start, end)
            else:
                first, last = max(head.offset, start), min(head.end, end)
                yield Lost(first, last - first, damaged.why, damaged.segment, damaged.position, head.namespace)
        else:
            yield from made

    def _rows(self, entry: Entry, start: int, end: int) -> Rows:
        head = entry.head
        batch = _batch(entry)
        first, last = max(head.offset, start), min(head.end, end)
        if last - first < head.count:
            batch = batch.slice(first - head.offset, last - first)
        return Rows(first, head.namespace, Mode(head.mode), head.timestamp, batch)

    def _names(self, opened: Segment) -> dict[str, Place]:
        """Where each namespace has its last record in a segment."""
        found = opened.index()
        names = dict(found.names)
        limit = min(opened.durable().position, opened.size) if self.bases()[-1] == opened.header.base else opened.size
        for step in opened.walk(found.last(opened.header.base), limit, None):
            if isinstance(step, Damage):
                self._lost(opened, step, 0, None)
            elif step.kind != Kind.LOST:
                names[step.namespace] = Place(step.position, step.end - 1)
        return names

    def _at(self, opened: Segment, place: Place) -> Rows:
        try:
            head = opened.head(place.position, opened.size)
            entry = Entry(head, opened.path, opened.data(head))
        except Bad as bad:
            raise LogDamaged(str(bad), segment=opened.path, position=place.position, offset=place.offset) from None
        if head.kind == Kind.RECORD:
            return next(_joined([entry]))
        return self._rows(entry, place.offset, place.offset + 1)


def _batch(entry: Entry) -> pa.RecordBatch:
    head = entry.head
    try:
        batch = arrow.read(entry.data)
    except ValueError as e:
        raise LogDamaged(str(e), segment=entry.segment, position=head.position, offset=head.offset) from e
    if batch.num_rows != head.count:
        why = f"an entry with {batch.num_rows} records says that it has {head.count}"
        raise LogDamaged(why, segment=entry.segment, position=head.position, offset=head.offset)
    return batch


def _record(entry: Entry) -> Record:
    head = entry.head
    try:
        return batches.unpack(entry.data, head.namespace, Mode(head.mode))
    except ValueError as e:
        raise LogDamaged(str(e), segment=entry.segment, position=head.position, offset=head.offset) from e


def _follows(singles: list[Entry], found: Entry | Lost) -> bool:
    if isinstance(found, Lost) or found.head.kind != Kind.RECORD or len(singles) >= JOINED:
        return False
    last, head = singles[-1].head, found.head
    return head.offset == last.end and head.key == last.key and head.mode == last.mode


def _joined(singles: Iterable[Entry]) -> Iterator[Rows]:
    """Single records as batches: a new one where the shape of a payload changes."""
    entries = list(singles)
    head = entries[0].head
    namespace, mode = head.namespace, Mode(head.mode)
    records = [_record(entry) for entry in entries]
    at = 0
    for group in batches.groups(records):
        first = entries[at].head
        yield Rows(first.offset, namespace, mode, first.timestamp, group.to_arrow())
        at += len(group.records)


def _told(opened: Segment, head: Head) -> Damage:
    """What `repair` wrote in place of records that were lost."""
    try:
        why = bytes(opened.data(head)).decode(errors="replace")
    except Bad as bad:
        why = str(bad)
    return Damage(head.offset, head.end, head.position, head.next, why, head.namespace)
