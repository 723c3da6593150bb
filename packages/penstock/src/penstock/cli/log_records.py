"""The records of a log one by one, as `penstock log show` shows them: with what is lost and what was compacted away between them.

Reads entries, not batches: the time of each single one is wanted, and no more than one entry is held at once. Changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.log import Lost, Mode, Reader, Span, arrow, batches, segment
from penstock.log.errors import LogDamaged
from penstock.log.format import Bad, Kind
from penstock.log.reader import Entry
from penstock.log.segment import Segment
from penstock_sdk.record import Record

PIECE = 64  # rows of a batch that are decoded at once
FIELDS = frozenset({"position", "operation", "timestamp", "metadata", "key", "before", "after"})

Wanted = Callable[[str], bool]  # by the namespace


@dataclass(frozen=True, slots=True)
class One:
    """A record. One that was appended in columns of another kind has them in `columns`; `record` is None if it has no more."""

    offset: int
    appended: int  # ns since 1970
    namespace: str
    phase: str
    record: Record | None
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gone:
    """Records that can't be read. `repaired`: marked so by `repair`; else the log is damaged here and now."""

    lost: Lost
    repaired: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that compaction has taken away."""

    count: int


Item = One | Gone | Gap


def everything(namespace: str) -> bool:  # noqa: ARG001
    return True


def last(reader: Reader, count: int, end: int, wanted: Wanted) -> int:
    """The offset with which the last `count` records below `end` begin. Looks back as far as it has to, and at heads alone."""
    first, back = reader.first, count
    while True:
        start = max(first, end - back)
        found = deque[Span]()
        total = 0
        for span in reader.spans(start, end):
            if wanted(span.namespace):
                found.append(span)
                total += span.count
                while total - found[0].count >= count:
                    total -= found.popleft().count
        if total >= count:
            return found[0].offset + total - count
        if start == first:
            return first
        back *= 8


def items(reader: Reader, start: int, end: int, wanted: Wanted) -> Iterator[Item]:
    """From `start` up to, not including, `end`. Damage is an item like the others."""
    at, gap = start, 0
    if start < min(reader.first, end):  # compaction never takes the first segment's name away
        at = min(reader.first, end)
        path = reader.folder / segment.name(reader.first)
        yield Gone(Lost(start, at - start, "the segments before this one are missing", path, 0), repaired=False)
    for found in _entries(reader, at, end):
        first, to = (found.lost.offset, found.lost.end) if isinstance(found, Gone) else _cut(found, start, end)
        gap += max(0, first - at)
        at = max(at, to)
        if isinstance(found, Entry) and not wanted(found.head.namespace):
            continue
        if gap:
            yield Gap(gap)
            gap = 0
        if isinstance(found, Gone):
            yield found
        else:
            yield from _ones(found, first, to)
    if gap := gap + max(0, end - at):
        yield Gap(gap)


def _cut(entry: Entry, start: int, end: int) -> tuple[int, int]:
    return max(entry.head.offset, start), min(entry.head.end, end)


def _entries(reader: Reader, start: int, end: int) -> Iterator[Entry | Gone]:
    while start < end:
        try:
            for found in reader.entries(start, end):
                yield Gone(found, _repaired(found)) if isinstance(found, Lost) else found
                start = max(start, found.end if isinstance(found, Lost) else found.head.end)
        except LogDamaged as damaged:  # a segment that can't be opened: on with the next one
            following = next((base for base in reader.bases() if base > damaged.offset), None)
            if following is None:
                raise
            count = min(following, end) - max(start, damaged.offset)
            lost = Lost(max(start, damaged.offset), count, damaged.why, damaged.segment, damaged.position)
            yield Gone(lost, repaired=False)
            start = following
        else:
            return


def _repaired(lost: Lost) -> bool:
    """Whether there is an entry that says so, or bytes that are damaged."""
    try:
        opened = Segment(lost.segment)
        return opened.head(lost.position, opened.size).kind == Kind.LOST
    except (Bad, OSError, LogDamaged):
        return False


# -- decoding ---------------------------------------------------------------------------------------------------------------


def _ones(entry: Entry, first: int, to: int) -> Iterator[One | Gone]:
    head = entry.head
    try:
        mode = Mode(head.mode)
        if head.kind == Kind.RECORD:
            single = batches.unpack(entry.data, head.namespace, mode)
            yield One(head.offset, head.timestamp, head.namespace, mode.phase, single)
            return
        batch = arrow.read(entry.data)
        why = (
            ""
            if batch.num_rows == head.count
            else f"a batch does not have the {head.count} records that its entry names"
        )
    except ValueError as error:
        why = str(error)
    if why:
        lost = Lost(first, to - first, why, entry.segment, head.position, head.namespace)
        yield Gone(lost, repaired=False)
        return
    for at in range(first, to, PIECE):
        rows = batch.slice(at - head.offset, min(PIECE, to - at))
        for i, (record, columns) in enumerate(_rows(rows, head.namespace, mode)):
            yield One(at + i, head.timestamp, head.namespace, mode.phase, record, columns)


def _rows(rows: pa.RecordBatch, namespace: str, mode: Mode) -> Iterator[tuple[Record | None, dict[str, Any]]]:
    """If a row is no record, the others still are."""
    more = [name for name in rows.schema.names if name not in FIELDS]
    try:
        records = batches.to_records(rows, namespace, mode)
    except ValueError:
        if rows.num_rows == 1:
            yield None, columns(rows, 0, rows.schema.names)
            return
        for i in range(rows.num_rows):
            yield from _rows(rows.slice(i, 1), namespace, mode)
        return
    for i, record in enumerate(records):
        yield record, columns(rows, i, more)


def columns(rows: pa.RecordBatch, i: int, names: list[str]) -> dict[str, Any]:
    """The cells of a row."""
    return {name: _cell(rows.column(rows.schema.names.index(name)).slice(i, 1)) for name in names}


def _cell(column: pa.Array) -> Any:
    try:
        return column.to_pylist()[0]
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
        pass  # text that is not UTF-8, a year that Python has not
    if pa.types.is_string(column.type):
        return column.view(pa.binary())[0].as_py()
    try:
        return str(column.cast(pa.string())[0])
    except pa.ArrowException:
        return f"a value of type {column.type} that can't be shown"
