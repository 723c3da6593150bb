"""Reads every byte of a log and says what is wrong with it. Takes no lock and changes nothing; beside a writer it looks at what is durable.

Used by `penstock log verify`, and by `repair` to know what to mend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log import arrow, batches, index, segment
from penstock.log.errors import LogDamaged, LogError
from penstock.log.format import HEADER_BYTES, Bad, Head, Kind, Mode
from penstock.log.index import Mark
from penstock.log.offsets import load
from penstock.log.reader import BEYOND, FOREIGN, MISSING, Reader
from penstock.log.segment import Damage, Segment


@dataclass(frozen=True, slots=True)
class Problem:
    """`offset` and `count`: the records that can't be read because of it, if any."""

    file: Path
    position: int
    what: str
    offset: int | None = None
    count: int = 0


@dataclass(slots=True)
class Verified:
    problems: list[Problem] = field(default_factory=list)
    segments: int = 0
    entries: int = 0
    records: int = 0
    lost: int = 0  # records that an earlier repair has marked as lost
    bytes: int = 0


def verify(folder: Path) -> Verified:
    found = Verified()
    for check in (_segments, _offsets):
        try:
            check(folder, found)
        except FileNotFoundError:
            return verify(folder)  # merged away by a compaction beside us: once more
    return found


def _segments(folder: Path, found: Verified) -> None:
    reader = Reader(folder, on_damage="skip")
    bases = reader.bases()
    log_id: bytes | None = None
    if (orphan := index.orphan(folder)) is not None:
        path, end = orphan
        found.problems.append(
            Problem(path.with_suffix(segment.SUFFIX), 0, MISSING, int(path.stem), end - int(path.stem))
        )
    if bases[0] > 0:
        what = "the segments before this one are missing"
        found.problems.append(Problem(folder / segment.name(bases[0]), 0, what, 0, bases[0]))
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        path = folder / segment.name(base)
        found.segments += 1
        try:
            opened = Segment(path)
        except LogDamaged as damaged:
            count = 0 if following is None else following - base
            found.problems.append(Problem(path, 0, damaged.why, base, count))
            continue
        log_id = log_id or opened.header.log_id
        if opened.header.log_id != log_id:
            found.problems.append(Problem(path, 0, FOREIGN, base, 0 if following is None else following - base))
            continue
        mark = opened.durable() if following is None else Mark(opened.size, max(following, opened.header.covers))
        limit = min(mark.position, opened.size)
        found.bytes += limit
        for step in checked(opened, limit, mark.offset):
            if isinstance(step, Damage):
                count = max(0, step.end - step.offset)
                found.problems.append(Problem(path, step.position, step.why, step.offset, count))
                continue
            if step.end > mark.offset:
                found.problems.append(Problem(path, step.position, BEYOND))
                continue
            found.entries += 1
            if step.kind == Kind.LOST:
                found.lost += step.count
            else:
                found.records += step.count
        found.problems += _index(opened, limit)


def checked(opened: Segment, limit: int, end: int | None) -> Iterator[Head | Damage]:
    """Every entry of a segment whose data can be decoded, and what is damaged."""
    for step in opened.walk(Mark(HEADER_BYTES, opened.header.base), limit, end):
        why = "" if isinstance(step, Damage) else undecodable(opened, step)
        if isinstance(step, Head) and why:
            yield Damage(step.offset, step.end, step.position, step.next, why, step.namespace)
        else:
            yield step


def undecodable(opened: Segment, head: Head) -> str:
    """Why the data of an entry can't be read; empty if it can."""
    try:
        data = opened.data(head)
        if head.kind == Kind.BATCH and arrow.read(data).num_rows != head.count:
            return f"a batch does not have the {head.count} records that its entry names"
        if head.kind == Kind.RECORD:
            batches.unpack(data, head.namespace, Mode(head.mode))
    except (Bad, ValueError, LogError) as e:
        return str(e)
    return ""


def _index(opened: Segment, limit: int) -> Iterator[Problem]:
    """It is derived, so what is wrong with it costs nothing but time. A missing one is no problem."""
    path = index.path_of(opened.path)
    if not path.exists():
        return
    found = index.load(path, opened.header, opened.size)
    if found is None and index.outlived(path, opened.header):
        return  # nobody believes it, and the next compaction takes it away
    if found is None:
        yield Problem(path, 0, "it does not belong to its segment; repair makes it anew")
        return
    if all(index.torn_slots(path, opened.header) for _ in range(3)):
        yield Problem(
            path, 0, "how far its segment is durable can't be read; opening the log for writing puts it right"
        )
    for position, offset in zip(found.positions, found.offsets, strict=True):
        if position >= limit:
            continue
        try:
            right = opened.head(position, limit).offset >= offset
        except Bad:
            right = False
        if not right:
            yield Problem(
                path,
                position,
                f"it says that offset {offset} is at byte {position}, which is not so; repair makes it anew",
            )
            return


def _offsets(folder: Path, found: Verified) -> None:
    try:
        load(folder)
    except LogDamaged as damaged:
        found.problems.append(Problem(folder / "offsets", 0, damaged.why))
