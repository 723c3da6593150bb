"""`lines` as a source: follows one file. Runs in a connector host, or in a plugin program; one thread reads, acks change nothing.

It reads one file to its end before it begins the next. Files that have come after it are opened as soon as they are noticed, so that they
can be renamed or removed and are read all the same. README.md says what is promised.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.connectors.lines import trail
from penstock.connectors.lines.position import Position
from penstock.connectors.lines.reader import Found, Reader, last_line
from penstock.connectors.lines.settings import LinesSettings
from penstock_sdk import Record, Retry, Source, Stop

EVIDENCE = 64  # bytes before the position, from which on a file is recognised by what stands in it alone


class LinesSource(Source[LinesSettings]):
    _current: Reader | None = None
    _position: Position | None = None  # where to begin, while that file was not found
    _left: Reader | None = None  # the file before the current one

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        self._path = self.settings.path
        self._next: deque[Reader] = deque()
        self._read: set[tuple[int, int]] = set()
        self._generation = 1
        self._from_end = self.settings.from_ == "end" and not position
        self._told = False
        if position:
            self._position = Position.parse(position)
            self._generation = self._position.generation
        try:
            self._begin()
        except PermissionError as e:
            raise Stop(
                f"{self._path} can't be read: {e.strerror}", code="lines.path", hint="allow it, or run as another user"
            ) from e
        self._from_end = False  # a file that appears later is all new

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        deadline = time.monotonic() + timeout
        poll = self.settings.poll.total_seconds()
        while True:
            try:
                found = self._step(max_records)
            except PermissionError as e:  # a file that was just made may get its mode a moment later
                raise Retry(f"{e.filename or self._path} can't be read: {e.strerror}", code="lines.path") from e
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0 or self.context.stopping.wait(min(left, poll)):
                return ()

    def close(self) -> None:
        for reader in (self._current, self._left, *getattr(self, "_next", ())):
            if reader is not None:
                reader.close()
        self._current = self._left = None
        self._next = deque()

    # -- the beginning ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The file to begin with, if it is there."""
        if self._position is not None:
            self._resume(self._position)
            return
        try:
            fd = trail.opened(self._path)
        except FileNotFoundError:
            return
        self._current = self._reader(fd, self._path, last_line(fd) if self._from_end else 0)

    def _resume(self, position: Position) -> None:
        """The file with the position: at its path, or wherever rotation has put it."""
        beside = trail.siblings(self._path)
        same = [self._path, *(self._path.parent / each.name for each in beside if each.inode == position.inode)]
        rotated = sorted((s for s in beside if s.rotated and not s.compressed), key=trail.Sibling.age, reverse=True)
        others = [self._path.parent / each.name for each in rotated if position.offset >= EVIDENCE]
        for path in same:
            if (fd := self._matching(path, position, inode=position.inode)) >= 0:
                return self._resumed(fd, path, position)
        for path in others:
            if (fd := self._matching(path, position)) >= 0:
                self.context.log.warn("the file is recognised by what stands in it, not by its inode", path=str(path))
                return self._resumed(fd, path, position)
        if not self._path.exists():  # it may come, with the one that we look for beside it
            if not self._told:
                self.context.log.warn("the file that was being read is not there; waiting", path=str(self._path))
                self._told = True
            return None
        packed = ", ".join(s.name for s in beside if s.compressed and s.name.startswith(self._path.name))
        self._lost(
            f"the file that was read up to byte {position.offset} is neither {self._path} nor a rotated one beside it: "
            "what was written to it after that is not there",
            f"compressed files can't be read: unpack them beside it and start again ({packed})" if packed else "",
        )
        self._position = None
        self._generation += 1
        self._current = self._reader(trail.opened(self._path), self._path)
        return None

    def _resumed(self, fd: int, path: Path, position: Position) -> None:
        self._current, self._position = self._reader(fd, path, position.offset), None

    def _matching(self, path: Path, position: Position, inode: int | None = None) -> int:
        try:
            fd = trail.opened(path)
        except FileNotFoundError:
            return -1
        except PermissionError:
            if path == self._path:
                raise
            return -1
        if (inode is None or os.fstat(fd).st_ino == inode) and position.matches(fd):
            return fd
        os.close(fd)
        return -1

    def _reader(self, fd: int, path: Path, offset: int = 0) -> Reader:
        reader = Reader(
            fd,
            self._path,
            generation=self._generation,
            offset=offset,
            longest=self.settings.max_line_bytes,
            split=self.settings.long_lines == "split",
        )
        self._read.add(reader.identity)
        if path != self._path:
            self.context.log.info("reading a rotated file", path=str(path), offset=offset)
        return reader

    def _lost(self, what: str, why: str = "") -> None:
        if self.settings.on_loss == "stop":
            hint = "put the file back beside the path; or accept the loss with `on-loss: continue`, which goes on with what is at the path"
            raise Stop(f"lines may be lost: {what}", code="lines.lost", why=why, hint=hint)
        self.context.log.warn(f"lines may be lost: {what}", why=why)

    # -- one step -----------------------------------------------------------------------------------------------------------

    def _step(self, most: int) -> Sequence[Record]:
        """What can be given now."""
        while True:
            if self._current is None:
                self._begin()
                if self._current is None:
                    return ()
            current = self._current
            found = current.load()
            if found is Found.LINES:
                return current.take(most)
            if found is Found.TRUNCATED:
                if (record := self._truncated(current)) is not None:
                    return [record]
                continue
            self._notice(current)
            if not self._may_leave(current):
                return ()
            if current.load() is not Found.NOTHING:  # written between the look and the rotation
                continue
            if (record := current.rest()) is not None:
                return [record]
            self._leave(current)

    def _notice(self, current: Reader) -> None:
        """Opens whatever has come after the newest file that is known."""
        newest = self._next[-1] if self._next else current
        try:
            at_path = self._path.stat()
        except FileNotFoundError:
            return
        if (at_path.st_dev, at_path.st_ino) == newest.identity:
            self._look_back()
            return
        modified = os.fstat(newest.fd).st_mtime_ns
        for path, fd in trail.newer(self._path, newest.identity, modified, self._read):
            self._next.append(self._reader(fd, path))

    def _look_back(self) -> None:
        """A writer that went on after the grace had passed: nothing of that can be given any more, but it is said."""
        if self._left is not None and (more := self._left.size() - self._left.offset) > 0:
            self.context.log.error(
                "a rotated file was written to after it was left: these bytes are not read; raise `rotation-grace`",
                bytes=more,
                inode=self._left.inode,
            )
            self._left.close()
            self._left = None

    def _may_leave(self, current: Reader) -> bool:
        """Only for something: while what comes next is empty, the writer may still be busy here."""
        grace = self.settings.rotation_grace.total_seconds()
        return any(each.size() for each in self._next) and current.quiet() >= grace

    def _leave(self, current: Reader) -> None:
        if self._left is not None:
            self._left.close()
        self._left, self._current = current, self._next.popleft()
        self._generation = current.generation + 1
        self._current.generation = self._generation

    def _truncated(self, current: Reader) -> Record | None:
        """The rest of what was there may be in a copy beside it. Else the file begins again, after the line that was cut off."""
        if (copy := self._copy(current)) is not None:
            self.context.log.info("the file was truncated; its rest is read from the copy", copy=str(copy[0]))
            self._generation = current.generation
            self._current = self._reader(copy[1], copy[0], current.offset)
            current.close()
            return None
        unread = current.seen - current.offset - len(current.partial)
        if unread > 0:
            self._lost(f"{self._path} was truncated, and {unread} bytes of it had not been read")
        if (record := current.rest()) is not None:
            current.seen = current.offset
            return record
        self.context.log.info(
            "the file was truncated; it is read from its beginning", generation=current.generation + 1
        )
        current.begin_again()
        return None

    def _copy(self, current: Reader) -> tuple[Path, int] | None:
        """A copy that was made after we looked last, with more in it than was read. Empty-handed where all was read."""
        place = current.place()
        for each in sorted(trail.siblings(self._path), key=trail.Sibling.age, reverse=True):
            if not each.rotated or each.compressed or current.offset == 0:
                continue
            path = self._path.parent / each.name
            if (fd := self._matching(path, place)) < 0:
                continue
            stat = os.fstat(fd)
            if stat.st_size > current.offset and stat.st_ctime_ns >= current.modified:
                return path, fd
            os.close(fd)
            break
        return None
