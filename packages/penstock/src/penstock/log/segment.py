"""A segment as its readers see it: mapped into memory, each head and each payload checked as it is read. Runs wherever a log is read.

A file that compaction has replaced stays readable for those who have it open. Nothing here changes anything on disk.
"""

from __future__ import annotations

import mmap
import os
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.log import index
from penstock.log.errors import LogDamaged, LogVersion
from penstock.log.format import (
    ENTRY_MAGIC,
    HEADER_BYTES,
    LENGTHS,
    VERSION,
    Bad,
    Head,
    Header,
    Kind,
    data_crc,
    read_head,
)
from penstock.log.index import Index, Mark, Place
from penstock.testing import faults

SUFFIX = ".seg"
CUT = "the end of the segment is missing"
BEHIND = 8 << 20  # bytes of a mapped segment that stay with a reader after it has read them
_NAME = re.compile(r"\d{20}\.seg")


@dataclass(frozen=True, slots=True)
class Damage:
    """Records that can't be read: offsets from `offset` up to `end`, at `position`; what can be read goes on at `next`."""

    offset: int
    end: int
    position: int
    next: int
    why: str
    namespace: str = ""


def name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def bases(folder: Path) -> list[int]:
    """Of all segments that are there, lowest first."""
    return sorted(int(entry.name[:20]) for entry in folder.iterdir() if _NAME.fullmatch(entry.name))


def header(path: Path) -> Header:
    """Raises `Bad`, `LogVersion` or `OSError`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return _header(path, fd)
    finally:
        os.close(fd)


def _header(path: Path, fd: int) -> Header:
    found = Header.unpack(os.pread(fd, HEADER_BYTES, 0))
    if found.version > VERSION:
        raise LogVersion(path, found.version, VERSION)
    if found.base != int(path.name[:20]):
        raise Bad(f"its header says that it begins at offset {found.base}")
    return found


class Segment:
    """An open segment. Entries that were read from it stay valid after it is closed."""

    def __init__(self, path: Path, given: Header | None = None) -> None:
        """Raises `FileNotFoundError`, `LogVersion` or `LogDamaged`. `given`: a header to be believed instead of its own."""
        self.path = path
        self._fd = os.open(path, os.O_RDONLY)  # once: the name may be given to another file at any moment
        self._closing = [weakref.finalize(self, os.close, self._fd)]
        try:
            self.header = given or _header(path, self._fd)
        except Bad as bad:
            raise LogDamaged(str(bad), segment=path, position=0, offset=int(path.name[:20])) from None
        self.seed = self.header.seed
        self.seen: Mark | None = None  # the last entry that a reader has come to
        self.inode = os.fstat(self._fd).st_ino
        self._map: mmap.mmap | None = None
        self._buffer: pa.Buffer | None = None
        self._index: Index | None = None
        self._slots: int | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Not needed: it is closed when nobody has it any more."""
        self._map = self._buffer = None  # whoever has a part of it keeps it mapped
        for close in self._closing:
            close()

    # -- entries ------------------------------------------------------------------------------------------------------

    def head(self, position: int, limit: int) -> Head:
        return read_head(self._mapped(limit), position, limit, self.header, self.seed)

    def data(self, head: Head) -> pa.Buffer:
        """The entry's data where it lies in the file, checked."""
        self._mapped(head.next)
        assert self._buffer is not None
        found = self._buffer.slice(head.data, head.length)
        if data_crc(self.seed, found) != head.data_crc and faults.safeguard("log-crc"):
            raise Bad("the checksum of an entry's data is wrong")
        return found

    def find(self, position: int, limit: int, offset: int) -> Head | None:
        """The next good head at or after `position` whose records are at or after `offset`."""
        mapped = self._mapped(limit)
        while (position := mapped.find(ENTRY_MAGIC, position, limit)) >= 0:
            try:
                head = self.head(position, limit)
            except Bad:
                head = None
            if head is not None and head.offset >= offset:
                return head
            position += 1
        return None

    def _mapped(self, limit: int) -> mmap.mmap:
        if self._map is None or len(self._map) < limit:
            self._map = mmap.mmap(self._fd, limit, access=mmap.ACCESS_READ)
            self._buffer = pa.py_buffer(self._map)
        return self._map

    def walk(self, start: Mark, limit: int, end: int | None) -> Iterator[Head | Damage]:
        """Every head from `start` up to byte `limit`, and what is damaged or missing between them. `end`: the offset that the segment
        reaches, if that is known."""
        position, expected = start
        kept = position
        holes = self.header.holes
        while position < limit:
            try:
                head = self._next(position, limit, expected)
            except Bad as bad:
                found = self.find(position + 1, limit, expected)
                lost = found.offset if found else max(expected, end or 0)
                position, at = found.position if found else limit, position
                yield Damage(expected, lost, at, position, str(bad))
                expected = lost
                continue
            if head.offset > max(expected, holes):
                yield Damage(max(expected, holes), head.offset, position, position, "records are missing")
            yield head
            position, expected = head.next, head.end
            if position - kept >= BEHIND:
                self._let_go(kept, position)
                kept = position
        if end is not None and self._cut():
            yield Damage(expected, max(expected, end), position, position, CUT)
        elif end is not None and end > max(expected, holes):
            yield Damage(max(expected, holes), end, position, position, CUT)

    def _cut(self) -> bool:
        """Of a segment that was written anew the header says how long it is: between its records some may be missing by right."""
        return self.header.length > 0 and self.size % LENGTHS != self.header.length

    def _let_go(self, start: int, end: int) -> None:
        """Pages that were read no longer count as this process's memory, which would grow to the size of the segment. Rows that lie there
        stay valid: whoever looks at them again gets them from the page cache. At most 5 % of what reading costs."""
        if self._map is not None:
            first, last = (at // mmap.PAGESIZE * mmap.PAGESIZE for at in (start, end))
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _next(self, position: int, limit: int, expected: int) -> Head:
        head = self.head(position, limit)
        if head.offset < expected:
            raise Bad(f"offset {head.offset} stands where {expected} or more belongs")
        return head

    def start(self, offset: int) -> Mark:
        """Where to begin to walk for this offset."""
        mark = self.index().before(offset, self.header.base)
        return self.seen if self.seen is not None and mark.offset < self.seen.offset <= offset else mark

    # -- index ----------------------------------------------------------------------------------------------------------

    def index(self) -> Index:
        """As of when it was first asked for. Without a file, what reading the segment shows."""
        if self._index is None:
            found = index.load(index.path_of(self.path), self.header, self.size)
            self._index = self._scanned() if found is None else found
        return self._index

    def durable(self) -> Mark:
        """Up to where a segment that is being written to is durable; without an index, what can be read of it."""
        if self._slots is None:
            self._slots = index.open_slots(index.path_of(self.path), self.header)
            if self._slots is not None:
                self._closing.append(weakref.finalize(self, os.close, self._slots))
        mark = index.durable(self._slots, index.seed_of(self.header)) if self._slots is not None else None
        return self._readable() if mark is None or not faults.safeguard("log-durable") else mark

    def _readable(self) -> Mark:
        found = index.load(index.path_of(self.path), self.header, self.size)
        mark = Index().last(self.header.base) if found is None else found.last(self.header.base)
        for step in self.walk(mark, self.size, None):
            problem = step if isinstance(step, Damage) else self.problem(step)
            if problem is None:
                mark = Mark(step.next, step.end if isinstance(step, Head) else mark.offset)
            elif not self.vouched(problem):
                break
        return mark

    def problem(self, head: Head) -> Damage | None:
        """What is wrong with the data of an entry, if anything."""
        try:
            self.data(head)
        except Bad as bad:
            return Damage(head.offset, head.end, head.position, head.next, str(bad), head.namespace)
        return None

    def vouched(self, problem: Damage) -> bool:
        """True if a later entry says that what should be there was durable once: it is damaged, not torn."""
        later = self.find(problem.position + 1, self.size, problem.offset)
        while later is not None:
            if later.durable > problem.offset:
                return True
            later = self.find(later.next, self.size, later.end)
        return False

    def _scanned(self) -> Index:
        return scan(self, Mark(HEADER_BYTES, self.header.base), self.size)


def scan(segment: Segment, start: Mark, limit: int) -> Index:
    """What an index of this part would say: heads are read, data is not. Damage is passed over."""
    made, names, since = Index(), dict[str, Place](), start.position
    position, offset = start
    for step in segment.walk(start, limit, None):
        if isinstance(step, Damage):
            continue
        if step.position - since >= index.EVERY:
            made.add(step.position, step.offset, names)
            names, since = {}, step.position
        if step.kind != Kind.LOST:
            names[step.namespace] = Place(step.position, step.end - 1)
        position, offset = step.next, step.end
    made.add(position, offset, names)
    return made
