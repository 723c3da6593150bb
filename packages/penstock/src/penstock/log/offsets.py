"""What each reader of a log has acknowledged: the file `offsets`, and the object that keeps it up.

A process makes one `Offsets` for the readers it owns; several processes may do so for one log, each with readers of its own. Tools
and compaction use `load`, `forget` and `compaction_point`. Safe to use from several threads.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import google_crc32c
import msgspec

from penstock import fs
from penstock.log.acked import Acked, Known, ReaderState, compaction_point, merge
from penstock.log.errors import LogDamaged, LogError, LogUnwritable, LogVersion
from penstock.log.format import Span
from penstock.testing import faults

if TYPE_CHECKING:
    from penstock.log.reader import Reader

__all__ = ["Offsets", "OffsetsDamaged", "ReaderState", "compaction_point", "forget", "load"]

VERSION = 1
FILE = "offsets"
LOCK = "offsets.lock"
_HEADER = re.compile(rb"penstock-offsets ([1-9][0-9]{0,8}) ([0-9a-f]{8})")
_SLICE = 0.05  # seconds: a flusher that waits looks at the clock this often, as a clock can jump

States = dict[str, ReaderState]
Spans = Callable[[int, int | None], Iterable[Span]]


class OffsetsDamaged(LogDamaged):
    """The file of the readers' offsets is not what was written. No record of the log is touched by that."""

    def __init__(self, file: Path, why: str) -> None:
        LogError.__init__(
            self,
            f"The readers' offsets in {file} are damaged",
            code="log.offsets-damaged",
            where=str(file),
            why=why,
            hint="penstock log repair sets every reader back to nothing acknowledged: they get everything again, nothing is lost",
        )
        self.segment, self.position, self.offset, self.count = file, 0, 0, None


def load(folder: Path) -> dict[str, ReaderState]:
    """What the file says now. Takes no lock: the file is only ever replaced as a whole."""
    file = folder / FILE
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return {}
    head, newline, body = content.partition(b"\n")
    header = _HEADER.fullmatch(head)
    if header is None or not newline:
        raise OffsetsDamaged(file, "it does not begin like a file of offsets")
    if (version := int(header[1])) > VERSION:
        raise LogVersion(file, version, VERSION)
    if header[2] != _crc(body):
        raise OffsetsDamaged(file, "its checksum is wrong")
    try:
        return msgspec.json.decode(body, type=dict[str, ReaderState])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OffsetsDamaged(file, str(error)) from error


def forget(folder: Path, reader: str) -> bool:
    """The reader is gone and holds nothing any more. True if there was one. A process that owns it drops it too, unless
    it has acked since."""
    before, _ = _update(folder, lambda states: {name: s for name, s in states.items() if name != reader})
    return reader in before


class Offsets:
    """The readers that this process owns: those it has registered, or acked for. Of others it says what the file says."""

    def __init__(
        self,
        folder: Path,
        *,
        spans: Spans | None = None,
        flush_interval: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.flush_interval = flush_interval
        self._given = spans
        self._clock = clock
        self._log: Reader | None = None
        self._readers: dict[str, Acked] = {}
        self._known = Known(0)
        self._dirty: set[str] = set()  # acked since they were last written
        self._written: dict[str, ReaderState] = {}  # as this object has last seen it in the file
        self._since = 0.0  # the flush after the first of these acks is counted from here
        self._error: Exception | None = None  # of the last flush, until it was raised or a flush succeeds
        self._closed = False
        self._flusher: threading.Thread | None = None
        self._lock = threading.Lock()  # of everything above
        self._wake = threading.Condition(self._lock)
        self._writing = threading.Lock()  # one flush at a time; taken before `_lock`
        self._unsure = False  # a flush failed: what can be read in the file may not be on disk. Of `_writing`

    def register(self, reader: str, start: int = 0) -> None:
        """Known from now on, on disk when this returns; it holds everything from `start`. A known one keeps its state."""
        if reader in self._readers:
            return
        if start > 0 and self._given is None:
            with self._lock:
                start = min(start, self._reader().end)  # what is not durable yet may get another life after a crash
        new = ReaderState(start, {}, updated=_now())
        # Also if it is there: whoever wrote it may have been killed before it was on disk.
        _, after = _update(self.folder, lambda states: {reader: new, **states}, always=True)
        with self._lock:
            self._own(reader, after[reader])

    def ack(self, reader: str, offsets: int | range | Iterable[int]) -> None:
        """Exactly these. An unknown reader is registered first. One that is not in the log yet refuses them all."""
        if reader not in self._readers:
            self.register(reader)
        if not isinstance(offsets, int | range):
            offsets = [index(o) for o in offsets]
        with self._lock:
            acked = self._changing(reader)
            if isinstance(offsets, int):
                self._check(reader, acked, offsets, offsets)
                acked.add(offsets)
            elif offsets:
                low, high = min(offsets), max(offsets)
                self._check(reader, acked, low, high)
                if isinstance(offsets, range) and offsets.step == 1:
                    acked.add_range(low, high + 1)
                else:
                    for offset in offsets:
                        acked.add(offset)
            self._changed(reader)

    def ack_through(self, reader: str, offset: int, namespace: str | None = None) -> None:
        """Everything (of a namespace) at or below it."""
        if reader not in self._readers:
            self.register(reader)
        with self._lock:
            acked = self._changing(reader)
            self._check(reader, acked, offset, offset)
            acked.add_through(offset, namespace, self._known)
            self._changed(reader)

    def effective(self, reader: str) -> dict[str, int]:
        """Per namespace the highest offset such that every record of it at or below, from the reader's start on, is
        acked. Never goes back."""
        with self._lock:
            acked = self._readers.get(reader)
            if acked is not None:
                acked.settle(self._known)
                return dict(acked.effective)
        return dict(self._foreign(reader).namespaces)

    def pending(self, reader: str) -> int | None:
        """The lowest offset in the log that it has not acked."""
        with self._lock:
            acked, known = self._view(reader)
            return acked.settle(known)

    def lag(self, reader: str) -> int:
        """How many records of the log it has not acked."""
        with self._lock:
            acked, known = self._view(reader)
            acked.settle(known)
            return acked.lag(known)

    def flush(self) -> None:
        """Everything acked so far is on disk when this returns."""
        with self._writing:
            with self._lock:
                ours = {name: self._state(name) for name in self._dirty}
                self._known.drop_below(min((a.frontier for a in self._readers.values()), default=0))
                self._dirty.clear()
            if not ours:
                return
            try:
                before, after = _update(
                    self.folder, lambda states: {**states, **_merged(states, ours)}, always=self._unsure
                )
            except BaseException:
                with self._lock:
                    self._dirty |= ours.keys()
                    self._since = self._clock()
                self._unsure = True
                raise
            self._unsure = False
            with self._lock:
                self._error = None
                self._follow(before, after)

    def close(self) -> None:
        """Flushes. If that fails, it can be called again."""
        with self._lock:
            self._closed = True
            self._wake.notify_all()
        if self._flusher is not None:
            self._flusher.join()
        self.flush()
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Below: with `_lock` held, but for the flusher.

    def _own(self, reader: str, state: ReaderState) -> Acked:
        if state.frontier < self._known.start:
            # What is known begins above it. The others use it for the last time before it is read anew from further down.
            for acked in self._readers.values():
                acked.settle(self._known)
            self._known = Known(state.frontier)
        elif not self._readers:
            self._known = Known(state.frontier)
        self._written.setdefault(reader, state)
        return self._readers.setdefault(reader, Acked(state.frontier, state.namespaces, state.ranges))

    def _changing(self, reader: str) -> Acked:
        if self._closed:
            raise ValueError(f"the offsets of {self.folder} are closed")
        acked = self._readers.get(reader)
        if acked is None:  # forgotten a moment ago, and acking all the same
            acked = self._own(reader, ReaderState(0, {}))
        return acked

    def _check(self, reader: str, acked: Acked, low: int, high: int) -> None:
        if high >= self._known.end and high >= acked.frontier:
            try:
                self._extend(self._known)
            except LogDamaged:
                if high >= self._known.end:  # else the damage is behind it, and is told to whoever reads that far
                    raise
            if high >= self._known.end:
                raise LogError(
                    f"The reader {reader} acknowledged offset {high} of {self.folder}, which ends before {self._known.end}",
                    code="log.ack-beyond-end",
                    why="only a record that is durable in the log can have been read from it",
                    hint="if the log was put back from an older copy: penstock log forget makes the reader begin anew",
                )
        if not faults.safeguard("offset-members"):
            acked.add_range(acked.frontier, high + 1)
        if low < acked.frontier and not faults.safeguard("offset-forward"):
            acked.settle(self._known)
            acked.back_to(low, self._known)

    def _changed(self, reader: str) -> None:
        if reader not in self._dirty:
            if not self._dirty:
                self._since = self._clock()
            self._dirty.add(reader)
            if self._flusher is None:
                self._flusher = threading.Thread(target=self._flush_forever, name="penstock-offsets", daemon=True)
                self._flusher.start()
            self._wake.notify_all()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _state(self, reader: str) -> ReaderState:
        acked = self._readers[reader]
        acked.settle(self._known)
        return ReaderState(acked.frontier, dict(acked.effective), acked.ranges(), _now())

    def _follow(self, before: Mapping[str, ReaderState], after: Mapping[str, ReaderState]) -> None:
        """Takes over what others have done to the file: forgotten readers, and acks for a reader of ours."""
        for name, acked in list(self._readers.items()):
            theirs = before.get(name)
            if theirs is not None and theirs != self._written.get(name):
                acked.absorb(theirs.frontier, theirs.namespaces, theirs.ranges)
            if name in after:
                self._written[name] = after[name]
            elif name not in self._dirty:
                del self._readers[name]
                del self._written[name]

    def _view(self, reader: str) -> tuple[Acked, Known]:
        if (acked := self._readers.get(reader)) is not None:
            self._extend(self._known)
            return acked, self._known
        state = self._foreign(reader)
        known = Known(state.frontier)
        self._extend(known)
        return Acked(state.frontier, state.namespaces, state.ranges), known

    def _foreign(self, reader: str) -> ReaderState:
        states = load(self.folder)
        if reader not in states:
            raise LogError(
                f"The log {self.folder} has no reader {reader}",
                code="log.unknown-reader",
                hint=f"it has {', '.join(sorted(states)) or 'none'}",
            )
        return states[reader]

    def _extend(self, known: Known) -> None:
        """Up to the end that the log has now."""
        if self._given is not None:
            known.extend(self._given(known.end, None))
            return
        log = self._reader()
        end = log.end
        known.extend(log.spans(known.end, end))
        known.end = max(known.end, end)  # the last ones may be compacted away

    def _reader(self) -> Reader:
        if self._log is None:
            from penstock.log.reader import Reader

            self._log = Reader(self.folder)
        return self._log

    def _flush_forever(self) -> None:
        while True:
            with self._lock:
                while not self._closed and (patience := self._patience()) != 0:
                    self._wake.wait(patience)
                if self._closed:
                    return
            try:
                self.flush()
            except Exception as error:  # raised by the next ack, as nobody waits for this thread
                with self._lock:
                    self._error = error

    def _patience(self) -> float | None:
        """Seconds to wait; 0 when a flush is due, None while nothing has changed."""
        if not self._dirty:
            return None
        left = self._since + self.flush_interval - self._clock()
        if not faults.safeguard("offset-flush"):
            return _SLICE
        return min(max(left, 0), _SLICE)


def _merged(states: Mapping[str, ReaderState], ours: Mapping[str, ReaderState]) -> dict[str, ReaderState]:
    return {name: merge(states[name], state) if name in states else state for name, state in ours.items()}


def _update(folder: Path, change: Callable[[States], States], *, always: bool = False) -> tuple[States, States]:
    """Reads, changes and replaces the file under its lock. Returns what it was and what it is. Nothing is written if nothing
    changes, unless told to."""
    try:
        with locked(folder / LOCK):
            before = load(folder)
            after = change(before)
            if after != before or always:
                body = msgspec.json.encode(after) + b"\n"
                head = b"penstock-offsets %d %s\n" % (VERSION, _crc(body))
                fs.replace(folder / FILE, head + body)
            return before, after
    except OSError as error:
        raise LogUnwritable(folder / FILE, error, range(0)) from error


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Waits for it: nobody holds it for longer than one replacement takes."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _crc(body: bytes) -> bytes:
    return b"%08x" % google_crc32c.value(body)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
