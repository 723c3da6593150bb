"""Takes away what no reader needs any more, from closed segments only. Runs beside the writer and any number of readers.

Below the lowest pending offset over all readers only the last record of each namespace stays; at and above it everything does. Offsets do
not change. Neighbouring segments are merged into one: it takes the place of the first in one rename, and says in its header how far it
covers, so that those it was made of count for nothing from that moment on, removed or not.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.filelock import FileLock, Held
from penstock.log import arrow, index, segment
from penstock.log.errors import LogDamaged, LogLocked, LogUnwritable
from penstock.log.format import HEADER_BYTES, LENGTHS, VERSION, Bad, Head, Header, Kind, data_crc, pack_head
from penstock.log.index import IndexFile, Mark, Place
from penstock.log.offsets import LOCK, compaction_point, load, locked
from penstock.log.reader import Reader, SegmentInfo
from penstock.log.segment import Damage, Segment
from penstock.testing import faults

COMPACT = ".compact"  # a segment on its way
MERGED_BYTES = 1 << 30  # not larger than this by merging


def new_generation() -> int:
    """For a segment that is written anew. An index of another one never passes for its own."""
    return secrets.randbelow((1 << 32) - 1) + 1


@dataclass(frozen=True, slots=True)
class Compacted:
    """What it did. `point`: nothing at or above it was touched; None: the log has no readers, so everything is kept."""

    point: int | None = None
    removed: int = 0  # records
    freed: int = 0  # bytes
    segments: int = 0  # files less


def point(folder: Path) -> int | None:
    """The lowest offset that some reader still needs."""
    with Reader(folder) as reader:
        return _point(reader)


def _point(reader: Reader) -> int | None:
    states = load(reader.folder)
    if not states:
        return None
    end = reader.end
    return compaction_point(states, reader.spans(min(state.frontier for state in states.values()), end), end)


def compact(folder: Path, *, min_gain: float = 0.0, merged_bytes: int = MERGED_BYTES) -> Compacted:
    """`min_gain`: a segment is written anew only if at least this part of it goes away. `LogLocked`: another process is at it."""
    with Reader(folder) as reader:
        reader.segments()  # says so if there is no log, or one that is too new
    lock = FileLock(folder / "compaction.lock")
    try:
        lock.take()
        _sweep(folder)
        with Reader(folder) as reader:
            return _compact(reader, min_gain, merged_bytes)
    except Held as held:
        raise LogLocked(folder, "is being compacted", str(held)) from None
    except OSError as e:
        raise LogUnwritable(folder / "compaction.lock", e, range(0)) from e
    finally:
        lock.release()


def _sweep(folder: Path) -> None:
    """What a compaction that did not finish has left."""
    for left in folder.glob(f"*{COMPACT}"):
        left.unlink()
    with Reader(folder) as reader:
        counting = {info.path for info in reader.segments()}
    last = max(counting)
    for base in segment.bases(folder):
        path = folder / segment.name(base)
        if path not in counting and path < last:
            _remove(path)
    for left in folder.glob(f"*{index.SUFFIX}"):
        path = left.with_suffix(segment.SUFFIX)
        if path < last and (not path.exists() or index.outlived(left, segment.header(path))):
            left.unlink(missing_ok=True)


def _compact(reader: Reader, min_gain: float, merged_bytes: int) -> Compacted:
    closed = [info for info in reader.segments() if not info.active]
    at = _point(reader)
    if at is None:
        return Compacted()
    if not faults.safeguard("compaction-hold"):
        at = reader.end
    closed = [info for info in closed if info.header.base < at]
    keep = _Keep(at, _last(reader, closed, at) if faults.safeguard("compaction-last") else {})
    plans = [_plan(info, keep) for info in closed]
    removed = freed = gone = 0
    for group in _groups(plans, min_gain, merged_bytes):
        size = _rewrite(reader, [plan.info for plan in group], keep)
        if size is None:
            break  # a new reader needs what was about to go
        removed += sum(plan.removed for plan in group)
        gone += len(group) - 1
        freed += sum(plan.info.size for plan in group) - size
    return Compacted(at, removed, freed, gone)


# -- what stays -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Keep:
    point: int
    last: Mapping[str, int]  # the offset of the last record of each namespace below the point, in closed segments

    def runs(self, head: Head) -> list[tuple[int, int]]:
        """The consecutive records of an entry that stay, as offsets from, to."""
        if head.offset >= self.point:
            return [(head.offset, head.end)]
        runs = []
        last = self.last.get(head.namespace, -1) if head.kind != Kind.LOST else -1
        if head.offset <= last < head.end:
            runs.append((last, last + 1))
        if head.end > self.point:
            if runs and runs[-1][1] == self.point:
                return [(runs[-1][0], head.end)]
            runs.append((self.point, head.end))
        return runs


@dataclass(frozen=True, slots=True)
class _Plan:
    info: SegmentInfo
    removed: int
    kept_bytes: int


def _last(reader: Reader, closed: Sequence[SegmentInfo], at: int) -> dict[str, int]:
    last: dict[str, int] = {}
    for span in reader.spans(0, min(at, closed[-1].end)) if closed else ():
        if not span.lost:
            last[span.namespace] = span.end - 1
    return last


def _plan(info: SegmentInfo, keep: _Keep) -> _Plan:
    removed, kept = 0, HEADER_BYTES
    for head in _heads(info):
        stay = sum(to - first for first, to in keep.runs(head))
        removed += head.count - stay
        kept += (head.next - head.position) * stay // head.count
    return _Plan(info, removed, kept)


def _groups(plans: Sequence[_Plan], min_gain: float, merged_bytes: int) -> Iterator[list[_Plan]]:
    """Neighbours that are written anew as one segment."""
    group: list[_Plan] = []
    for plan in plans:
        worth = plan.removed > 0 and plan.info.size - plan.kept_bytes >= min_gain * plan.info.size
        small = plan.kept_bytes <= merged_bytes // 16
        if not worth and not small:
            if group and _worth(group):
                yield group
            group = []
            continue
        if group and sum(p.kept_bytes for p in group) + plan.kept_bytes > merged_bytes:
            if _worth(group):
                yield group
            group = []
        group.append(plan)
    if group and _worth(group):
        yield group


def _worth(group: Sequence[_Plan]) -> bool:
    return len(group) > 1 or group[0].removed > 0


def _heads(info: SegmentInfo) -> Iterator[Head]:
    opened = Segment(info.path)
    try:
        for step in opened.walk(Mark(HEADER_BYTES, info.header.base), info.size, info.end):
            if isinstance(step, Damage):
                raise LogDamaged(step.why, segment=info.path, position=step.position, offset=step.offset)
            yield step
    finally:
        opened.close()


# -- writing anew -----------------------------------------------------------------------------------------------------------


def _rewrite(reader: Reader, group: Sequence[SegmentInfo], keep: _Keep) -> int | None:
    """The new segment's size; None if it was given up, because a reader came that needs more."""
    first, last = group[0], group[-1]
    header = Header(
        first.header.log_id,
        first.header.base,
        VERSION,
        new_generation(),
        last.end,
        max([min(keep.point, last.end), *(info.header.holes for info in group)]),
    )
    with NewSegment(first.path, header, COMPACT) as made:
        for info in group:
            opened = Segment(info.path)
            try:
                for head in _heads(info):
                    _copy(opened, head, keep.runs(head), made)
            finally:
                opened.close()
        made.finish()
        with locked(reader.folder / LOCK):
            if faults.safeguard("compaction-hold") and (_point(reader) or 0) < keep.point:
                return None
            fs.fsync_folder(reader.folder)  # the offsets that allow it are there after a power cut, too
            made.publish()
    for info in group[1:]:
        _remove(info.path)
    fs.fsync_folder(reader.folder)
    return made.position


def _copy(opened: Segment, head: Head, runs: Sequence[tuple[int, int]], made: NewSegment) -> None:
    if not runs:
        return
    try:
        data = opened.data(head)
    except Bad as bad:
        raise LogDamaged(str(bad), segment=opened.path, position=head.position, offset=head.offset) from None
    if runs == [(head.offset, head.end)] or head.kind == Kind.LOST:
        for first, to in runs:
            made.add(replace(head, offset=first, count=to - first), data)
        return
    batch = arrow.read(data)
    compression = "zstd" if head.length < batch.nbytes else None
    for first, to in runs:
        part = arrow.write(batch.slice(first - head.offset, to - first), compression)
        made.add(replace(head, offset=first, count=to - first), part)


class NewSegment:
    """A segment and its index that take the place of an old one, all at once. Used by compaction and repair."""

    def __init__(self, path: Path, header: Header, suffix: str) -> None:
        self.path = path
        self._header = header
        self._new, self._new_index = path.with_suffix(suffix), path.with_suffix(f"{index.SUFFIX}{suffix}")
        self._file = self._new.open("wb")
        self._index: IndexFile | None = None
        self._names: dict[str, Place] = {}
        self._pointed = self.position = self._file.write(header.pack())
        self.end = header.base
        self._published = False

    def __enter__(self) -> NewSegment:
        try:
            self._index = IndexFile(self._new_index, self._header)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """What was not published is gone."""
        try:
            self._file.close()
        except OSError:
            pass  # the disk is full; the file goes
        if self._index is not None:
            self._index.close()
        if not self._published:
            self._new.unlink(missing_ok=True)
            self._new_index.unlink(missing_ok=True)

    def add(self, head: Head, data: Any) -> None:
        """An entry with the offset, count, time, mode and key of `head`."""
        assert self._index is not None
        seed = self._header.seed
        if self.position - self._pointed >= index.EVERY:
            self._point()
        packed = pack_head(
            seed,
            self.position,
            head.kind,
            head.offset,
            head.count,
            head.durable,
            head.timestamp,
            head.mode,
            head.key,
            len(data),
            data_crc(seed, data),
        )
        if head.kind != Kind.LOST:
            self._names[head.namespace] = Place(self.position, head.end - 1)
        self.position += self._file.write(packed) + self._file.write(data)
        self.end = head.end

    def _point(self) -> None:
        assert self._index is not None
        self._index.point(Mark(self.position, self.end), self._names)
        self._pointed, self._names = self.position, {}

    def finish(self) -> None:
        """Everything is on disk, still without a name that anybody looks for."""
        assert self._index is not None
        if self._header.covers:
            self._file.seek(0)
            self._file.write(replace(self._header, length=self.position % LENGTHS).pack())
        self._file.flush()
        fs.fsync(self._file.fileno(), self._new)
        self._point()
        self._index.durable(Mark(self.position, self._header.covers or self.end))
        self._index.sync()

    def publish(self) -> None:
        """The new segment has the old one's name, also after a crash. Whoever has the old one open reads on in it."""
        self._published = True
        faults.reach("K15", self._new.name)
        self._new.replace(self.path)
        faults.reach("K15", self._new_index.name)
        self._new_index.replace(index.path_of(self.path))
        fs.fsync_folder(self.path.parent)


def _remove(path: Path) -> None:
    for file in (path, index.path_of(path)):
        faults.reach("K15", file.name)
        file.unlink(missing_ok=True)
