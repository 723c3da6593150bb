"""One open file, read in large blocks. `lines` has one at a time that it reads, and those that come after it.

A block begins a few bytes before what is wanted: if these are not the ones that stood there, the file was truncated and has grown again.
A line without its end is read again with the next block, so nothing is kept but where we are.
"""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path
from zlib import crc32

from penstock.connectors.lines.position import HEAD, TAIL, Position, ends, prefix
from penstock_sdk import Record, Stop

BLOCK = 1 << 20
PIECE = "lines.piece"  # metadata of a line that is too long: first, middle or last


class Found(Enum):
    LINES = 1  # there are some to take
    NOTHING = 2  # nothing new; `partial` may have the beginning of a line
    TRUNCATED = 3


class Reader:
    """`fd` is its own, and closed with it."""

    def __init__(self, fd: int, path: Path, *, generation: int, offset: int = 0, longest: int, split: bool) -> None:
        self.fd = fd
        self.path = path
        self.generation = generation
        self.offset = offset  # behind the last line that was taken
        self.partial = b""  # behind it: a line without its end, as far as it was seen
        self._longest, self._split = longest, split
        self._lines: list[bytes] = []  # read, not taken, the next one last
        self._block, self._base, self._now = b"", 0, ""  # where they are from, its offset, and when it was read
        self._head, self._tail = ends(fd, offset)
        self._inside = offset > 0 and not self._tail.endswith(b"\n")  # of a line that was given in part
        stat = os.fstat(fd)
        self.device, self.inode = stat.st_dev, stat.st_ino
        self.seen = stat.st_size  # the largest size so far
        self.modified = stat.st_mtime_ns
        self._looked: tuple[int, int] | None = None  # size and time of change when there was nothing more to read
        self._changed = time.monotonic() - max(0.0, time.time() - stat.st_mtime)  # when it grew last

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def quiet(self) -> float:
        """For how many seconds nothing was written to it."""
        return time.monotonic() - self._changed

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def place(self) -> Position:
        """Where it is, as a position that another file can be compared with."""
        return Position(self.generation, self.inode, self.offset, crc32(self._head), crc32(self._tail))

    # -- lines --------------------------------------------------------------------------------------------------------------

    def load(self) -> Found:
        """The next block, when all of the one before was taken."""
        if self._lines:
            return Found.LINES
        stat = os.fstat(self.fd)
        if (stat.st_size, stat.st_mtime_ns) == self._looked:
            return Found.NOTHING
        if stat.st_size < self.offset:
            return Found.TRUNCATED
        length = BLOCK
        while True:
            block = os.pread(self.fd, len(self._tail) + length, self.offset - len(self._tail))
            if block[: len(self._tail)] != self._tail:
                return Found.TRUNCATED
            if len(self._head) < HEAD and os.pread(self.fd, len(self._head), 0) != self._head:
                return Found.TRUNCATED
            fresh = len(block) - len(self._tail)
            end = block.rfind(b"\n", len(self._tail))
            if end >= 0 or fresh < length or fresh > self._longest:
                break
            length *= 2  # a long line: as much of it as is allowed
        if stat.st_size != self.seen:
            self._changed = time.monotonic()
        self.seen, self.modified = stat.st_size, stat.st_mtime_ns
        return self._found(block, end, (stat.st_size, stat.st_mtime_ns))

    def _found(self, block: bytes, end: int, looked: tuple[int, int]) -> Found:
        start = len(self._tail)
        self._block, self._base = block, self.offset - start
        self._now = str(time.time_ns())
        if end >= 0:
            self._lines = block[start:end].split(b"\n")
            self._lines.reverse()
            self.partial = b""
            return Found.LINES
        self.partial = block[start:]
        if len(self.partial) > self._longest:
            return Found.LINES  # too long already, whatever comes
        self._looked = looked if self._base + len(block) >= looked[0] else None
        return Found.NOTHING

    def take(self, most: int) -> list[Record]:
        """At most so many of the lines that are there. Several pieces of one line come one by one."""
        if not self._lines:
            return [self._piece(self.partial[: self._longest])] if len(self.partial) > self._longest else []
        lines = self._lines[: -most - 1 : -1]
        if self._inside or max(map(len, lines)) > self._longest:
            return (
                [self._special(lines[0])]
                if self._inside or len(lines[0]) > self._longest
                else self._take(lines, long=True)
            )
        return self._take(lines)

    def _take(self, lines: list[bytes], *, long: bool = False) -> list[Record]:
        if long:  # those before the first that is too long
            lines = lines[: next(i for i, line in enumerate(lines) if len(line) > self._longest)]
        block, base, offset, path, now = self._block, self._base, self.offset, str(self.path), self._now
        start = prefix(self.generation, self.inode)
        made: list[Record] = []
        i = 0
        while len(self._head) < HEAD and i < len(lines):  # its first lines: the checksum of the head still changes
            made.append(self._record(lines[i], len(lines[i]) + 1))
            i += 1
        offset = self.offset
        head = crc32(self._head)
        for line in lines[i:]:
            offset += len(line) + 1
            end = offset - base
            made.append(
                Record(
                    line,
                    position=b"%b%d:%x:%x" % (start, offset, head, crc32(block[end - TAIL if end > TAIL else 0 : end])),
                    metadata={"file.path": path, "opencdc.readAt": now},
                )
            )
        del self._lines[len(self._lines) - len(lines) :]
        self._moved(offset)
        return made

    def _record(self, line: bytes, length: int, piece: str = "") -> Record:
        """One record, slowly. `length`: how many bytes it is in the file."""
        self._moved(self.offset + length)
        metadata = {"file.path": str(self.path), "opencdc.readAt": self._now}
        if piece:
            metadata[PIECE] = piece
        start = prefix(self.generation, self.inode)
        position = b"%b%d:%x:%x" % (start, self.offset, crc32(self._head), crc32(self._tail))
        return Record(line, position=position, metadata=metadata)

    def _moved(self, offset: int) -> None:
        """Keeps the bytes before the offset, and the first ones of the file."""
        end = offset - self._base
        if len(self._head) < HEAD:
            have = len(self._head) - self._base  # the block begins at or before the end of what is known
            self._head += self._block[have : min(HEAD - self._base, end)]
        self._tail = self._block[max(0, end - TAIL) : end]
        self.offset = offset

    # -- lines that are not as others ---------------------------------------------------------------------------------------

    def _special(self, line: bytes) -> Record:
        """A line that is too long, or the rest of one."""
        if len(line) > self._longest:
            piece = self._piece(line[: self._longest])
            self._lines[-1] = line[self._longest :]
            return piece
        self._lines.pop()
        self._inside = False
        return self._record(line, len(line) + 1, "last")

    def _piece(self, data: bytes) -> Record:
        if not self._split:
            raise Stop(
                f"{self.path}: the line at byte {self.offset} is longer than {self._longest} bytes",
                code="lines.long",
                hint="raise `max-line-bytes`, or set `long-lines: split`",
            )
        record = self._record(data, len(data), "middle" if self._inside else "first")
        self._inside = True
        self.partial = self.partial[len(data) :]
        return record

    def rest(self) -> Record | None:
        """The last line, which will never have an end any more."""
        if not self.partial:
            return None
        line, self.partial = self.partial, b""
        self._looked = None
        return self._record(line, len(line), "last" if self._inside else "")

    def begin_again(self) -> None:
        """After a truncation."""
        self.generation += 1
        self.offset, self.partial, self._head, self._tail = 0, b"", b"", b""
        self._inside, self._looked, self._changed = False, None, time.monotonic()
        self.seen = self.size()


def last_line(fd: int) -> int:
    """Where the line begins that has no end yet, or would."""
    at = os.fstat(fd).st_size
    while at > 0:
        start = max(0, at - BLOCK)
        found = os.pread(fd, at - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0
