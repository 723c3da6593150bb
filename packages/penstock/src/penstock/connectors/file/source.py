"""`file` as a source: Conduit's meaning. Runs in a connector host, or in a plugin program; one thread reads, acks change nothing.

The position is the byte offset behind the line, the key the number of the line since the start. Where Conduit would lose lines without a
word, this one says something: see README.md.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.connectors.file.settings import FileSourceSettings
from penstock_sdk import Record, Source, Stop

BLOCK = 1 << 20
POLL = 0.2  # seconds


class FileSource(Source[FileSourceSettings]):
    _fd = -1

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        if position and not position.isdigit():
            raise Stop(
                f"invalid position {position[:80].decode(errors='replace')}, expected a number", code="file.position"
            )
        self._offset = int(position or 0)
        self._count = 0
        self._lines: list[bytes] = []  # read, not given, the next one last
        self._torn = False  # the first of them has no end

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        most = min(max_records, self.settings.sdk_batch_size or max_records)
        deadline = time.monotonic() + timeout
        while not self._lines and not self._load():
            left = deadline - time.monotonic()
            if left <= 0 or self.context.stopping.wait(min(left, POLL)):
                return ()
        return self._take(most)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, most: int) -> list[Record]:
        path, now = str(self.settings.path), str(time.time_ns())
        made: list[Record] = []
        for _ in range(min(most, len(self._lines))):
            data = self._lines.pop()
            self._offset += len(data) + (0 if self._torn and not self._lines else 1)
            self._count += 1
            metadata = {"file.path": path, "opencdc.readAt": now}
            made.append(Record(data, key=b"%d" % self._count, position=b"%d" % self._offset, metadata=metadata))
        return made

    def _load(self) -> bool:
        """The next block. The last line is whole with its end, or with the end of the file."""
        if self._fd < 0 and not self._open():
            return False
        size = os.fstat(self._fd).st_size
        if size < self._offset:
            self.context.log.warn(
                "the file is shorter than the position: it is read from its beginning", offset=self._offset, size=size
            )
            self._offset = self._count = 0
        if size == self._offset:
            return self._replaced()
        length = BLOCK
        while True:
            block = os.pread(self._fd, length, self._offset)
            end = block.rfind(b"\n")
            if end >= 0 or len(block) < length:
                break
            length *= 2
        if not block:
            return False
        self._torn = end < 0
        self._lines = [block] if self._torn else block[:end].split(b"\n")
        self._lines.reverse()
        return True

    def _open(self) -> bool:
        path = self.settings.path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as e:
            raise Stop(f"Error reading {path}: {e.strerror}", code="file.path") from e
        mode = os.fstat(self._fd).st_mode
        if not stat.S_ISREG(mode):
            self.close()
            kind = "a directory" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "no regular file"
            raise Stop(f"Error reading {path}: is {kind}", code="file.path", hint="give the path of a regular file")
        return True

    def _replaced(self) -> bool:
        """At the end: whether another file has taken the place. Then that one is read from its beginning."""
        try:
            found = Path(self.settings.path).stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino) or ours.st_size > self._offset:
            return False
        self.context.log.warn("the file was replaced by another one, which is read from its beginning")
        self.close()
        self._offset = self._count = 0
        return self._load()
