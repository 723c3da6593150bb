"""The position of a line: which file, how far, and enough of what stands there to recognise it. Pure, but for reading a fingerprint.

As text: `1:generation:inode:offset:head:tail`. The generation grows with every file and every truncation, so that positions are unique
over the life of a source. Head and tail are checksums of the first bytes of the file and of the last ones before the offset: a file
that was truncated, written anew or has inherited the inode does not match.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from zlib import crc32

from penstock_sdk import Stop

HEAD = 256  # bytes at the beginning of a file
TAIL = 128  # bytes before the offset; more of them cost every line
_POSITION = re.compile(rb"1:([0-9]+):([0-9]+):([0-9]+):([0-9a-f]+):([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Position:
    """Right behind a line."""

    generation: int
    inode: int
    offset: int
    head: int
    tail: int

    @classmethod
    def parse(cls, text: bytes) -> Position:
        found = _POSITION.fullmatch(text)
        if found is None:
            raise Stop(
                f"{text[:80]!r} is no position of `lines`",
                code="lines.position",
                hint="it was written by another connector: give this one a new id, or reset the position",
            )
        generation, inode, offset = (int(found[i]) for i in (1, 2, 3))
        return cls(generation, inode, offset, int(found[4], 16), int(found[5], 16))

    def matches(self, fd: int) -> bool:
        """Whether the file is the one, as far as what stands in it tells."""
        if os.fstat(fd).st_size < self.offset:
            return False
        head, tail = ends(fd, self.offset)
        return crc32(head) == self.head and crc32(tail) == self.tail


def ends(fd: int, offset: int) -> tuple[bytes, bytes]:
    """The first bytes of a file and the last ones before an offset."""
    first = min(HEAD, offset)
    last = min(TAIL, offset)
    return os.pread(fd, first, 0), os.pread(fd, last, offset - last)


def prefix(generation: int, inode: int) -> bytes:
    """What the positions of a file begin with."""
    return b"1:%d:%d:" % (generation, inode)
