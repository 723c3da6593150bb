"""The one writer of a log. Runs in a connector host, or wherever records are queued.

Threads may append at the same time. An append is durable, and visible to readers, only after the fsync that a thread of the writer's own
does for many of them together. After a failed fsync nothing is known about the file any more: the writer gives up, and the next one
that opens the log reads what is there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from penstock import fs
from penstock.errors import Rejected
from penstock.filelock import FileLock, Held
from penstock.log import arrow, batches, index, segment
from penstock.log.errors import LogError, LogFull, LogLocked, LogUnwritable
from penstock.log.format import HEADER_BYTES, MAX_DATA, VERSION, Header, Kind, Mode, data_crc, pack_head
from penstock.log.index import IndexFile, Mark, Place
from penstock.log.recovery import New, Recovered, recover, refuse_newer
from penstock.testing import faults
from penstock_sdk.record import Record

SEGMENT_BYTES = 1 << 30
ENTRY_BYTES = 4 << 20  # a larger batch is cut into several entries
FEW = 8  # so many records or more of a kind are a batch
_PIECES = 512  # buffers in one call of the system


@dataclass(slots=True)
class _Entry:
    kind: Kind
    count: int
    mode: Mode
    key: bytes
    data: Any  # bytes or a buffer of Arrow's
    crc: int


class Writer:
    """Appends to the log in `folder`, which is made if it is not there. Only one at a time: `LogLocked` names the other one."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int | None = None,
        when_full: Literal["block", "error"] = "block",
        commit_interval: float = 0.05,
        commit_bytes: int = 8 << 20,
        compression: Literal["zstd"] | None = None,
        on_damage: Literal["stop", "skip"] = "stop",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`max_bytes` bounds all segments together; segments are then at most a quarter of it, since only closed ones can be
        compacted. `commit_interval` and `commit_bytes`: an fsync follows the first append that waits for one after so many seconds, or
        after so many bytes."""
        self.folder = folder
        self._segment_bytes = segment_bytes if max_bytes is None else min(segment_bytes, max_bytes // 4)
        self._entry_bytes = max(1, min(ENTRY_BYTES, self._segment_bytes // 16))
        self._max_bytes = max_bytes
        self._block = when_full == "block"
        self._commit_interval, self._commit_bytes = commit_interval, commit_bytes
        self._compression = compression
        self._clock = clock
        refuse_newer(folder)
        self._lock = FileLock(folder / "writer.lock")
        try:
            fs.make_folder(folder)
            self._lock.take()
        except Held as held:
            raise LogLocked(folder, "is being written", str(held)) from None
        except OSError as e:
            raise LogUnwritable(self._lock.path, e, range(0)) from e
        self._appending = threading.Lock()  # taken first, held also where `_changed` is let go of for a while
        self._changed = threading.Condition(threading.Lock())
        self._fd = -1
        self._index: IndexFile | None = None
        self._closed = False
        self._failed: Exception | None = None
        self._syncing = False
        self._waiting_since = 0.0
        try:
            self.recovered = recover(folder, skip=on_damage == "skip")
            self._continue(self.recovered)
        except BaseException as e:
            self.abandon()
            if isinstance(e, OSError):
                raise LogUnwritable(self._lock.path, e, range(0)) from e
            raise
        self._committer = threading.Thread(target=self._commit_together, name=f"log {folder.name}", daemon=True)
        self._committer.start()

    def _continue(self, found: Recovered) -> None:
        self._path, self._header, self._seed = found.path, found.header, found.header.seed
        self._position, self._end = found.position, found.end
        self._durable = self._end
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._index = IndexFile(index.path_of(self._path), self._header, found.index)
        self._names = dict(found.names)
        self._pointed = found.index.last(0).position if found.index else HEADER_BYTES
        self._synced = self._position
        if found.index is None and self._position > HEADER_BYTES:
            self._point(Mark(self._position, self._end), self._names)
        for _ in range(2):  # both slots: one may be damaged
            self._index.durable(Mark(self._position, self._end))
        self._closed_bytes = self._measured()
        if self._header.version != VERSION:
            self._roll()

    # -- what callers see ---------------------------------------------------------------------------------------------------

    @property
    def log_id(self) -> str:
        return self._header.log_id.hex()

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return self._end

    @property
    def durable(self) -> int:
        """Every offset below it is on disk."""
        return self._durable

    @property
    def size(self) -> int:
        """Of all segments, in bytes."""
        return self._closed_bytes + self._position

    def append(self, records: Sequence[Record], delivery: str = "") -> range:
        """Their offsets. `LogFull`, `LogUnwritable`: those in its `appended` are in the log, the others are not. `delivery` is written
        beside each: `Reader.deliveries` says it."""
        entries: list[_Entry] = []
        for group in batches.groups(records):
            key = group.namespace.encode()
            if len(group.records) < FEW:
                entries += [self._entry(Kind.RECORD, 1, group.mode, key, data) for data in group.packed(delivery)]
            else:
                entries += self._batches(_marked(group.to_arrow(), delivery), key, group.mode)
        return self._append(entries)

    def append_batch(
        self, batch: pa.RecordBatch, namespace: str = "", mode: Mode = Mode.SYNC, delivery: str = ""
    ) -> range:
        """The same for records in columns, whatever columns they are."""
        return self._append(list(self._batches(_marked(batch, delivery), namespace.encode(), mode)))

    def commit(self) -> int:
        """Everything that was appended before this call is durable when it returns."""
        with self._changed:
            end = self._end
            while self._durable < end:
                self._check()
                if self._syncing:
                    self._changed.wait()
                else:
                    self._sync()
            return self._durable

    def wait(self, end: int, timeout: float | None = None) -> bool:
        """Until every offset below `end` is durable. False: not within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._durable >= end or self._gone(), timeout)
            if self._durable < end:
                self._check()
            return self._durable >= end

    def close(self) -> None:
        """Makes everything durable. A second call does nothing."""
        try:
            if not self._closed:
                self.commit()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets go of everything as a crash would: nothing is written any more."""
        with self._changed:
            while self._syncing:
                self._changed.wait()
            self._closed = True
            self._changed.notify_all()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            if self._index is not None:
                self._index.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- appending ------------------------------------------------------------------------------------------------------------

    def _batches(self, batch: pa.RecordBatch, key: bytes, mode: Mode) -> Iterator[_Entry]:
        """In pieces that are not too large, as long as they have more than one record."""
        if batch.num_rows == 0:
            return
        # Columns may share buffers. What is surely small is not measured further: `nbytes` takes 7 µs for four columns.
        most = batch.get_total_buffer_size() * batch.num_columns
        if batch.num_rows > 1 and most > self._entry_bytes and batch.nbytes > self._entry_bytes:
            half = batch.num_rows // 2
            yield from self._batches(batch.slice(0, half), key, mode)
            yield from self._batches(batch.slice(half), key, mode)
        else:
            data = arrow.write(batch, self._compression)
            yield self._entry(Kind.BATCH, batch.num_rows, mode, key, data)

    def _entry(self, kind: Kind, count: int, mode: Mode, key: bytes, data: Any) -> _Entry:
        if len(key) + len(data) > MAX_DATA:
            raise Rejected(
                f"A record of {len(data):,} bytes does not fit into a log",
                code="log.too-large",
                why=f"the largest has {MAX_DATA:,}",
            )
        return _Entry(kind, count, mode, key, data, data_crc(self._seed, data))

    def _append(self, entries: Sequence[_Entry]) -> range:
        with self._appending, self._changed:
            self._check()
            first = self._end
            timestamp = self._clock()
            pieces: list[Any] = []
            position, end, names = self._position, self._end, dict[str, Place]()
            for entry in entries:
                need = len(entry.data) + len(entry.key) + 200
                room = self._max_bytes is None or self._closed_bytes + position + need <= self._max_bytes
                full = position + len(entry.data) + len(entry.key) > self._segment_bytes and position > HEADER_BYTES
                if pieces and (full or not room or len(pieces) >= _PIECES):
                    self._write(pieces, position, end, names, first)
                    pieces, names = [], {}
                if full:
                    self._roll(first)
                    position = self._position
                if not room:
                    self._make_room(need, first)
                    position = self._position
                head = pack_head(
                    self._seed,
                    position,
                    entry.kind,
                    end,
                    entry.count,
                    self._durable,
                    timestamp,
                    entry.mode,
                    entry.key,
                    len(entry.data),
                    entry.crc,
                )
                pieces += (head, entry.data)
                end += entry.count
                names[entry.key.decode()] = Place(position, end - 1)
                position += len(head) + len(entry.data)
            if pieces:
                self._write(pieces, position, end, names, first)
            return range(first, end)

    def _write(self, pieces: list[Any], position: int, end: int, names: dict[str, Place], first: int) -> None:
        """All of it, or nothing."""
        faults.reach("K12", str(self._path))
        idle = self._end == self._durable
        try:
            _writev(self._fd, pieces)
            self._position, self._end = position, end
        except BaseException as e:  # also Ctrl-C: a part of an entry must never stay
            try:
                os.ftruncate(self._fd, self._position)
            except OSError as again:
                self._failed = again
            if isinstance(e, OSError):
                raise LogUnwritable(self._path, e, range(first, self._end)) from e
            raise
        self._names.update(names)
        if idle:
            self._waiting_since = time.monotonic()
        if idle or position - self._synced >= self._commit_bytes:
            self._changed.notify_all()

    def _check(self) -> None:
        if self._failed is not None:
            raise LogError(
                f"The log {self.folder} can't be written any more",
                code="log.failed",
                why=str(self._failed),
                hint="what was durable is safe; open it again",
            )
        if self._closed:
            raise LogError(f"The log {self.folder} is closed", code="log.closed")

    def _gone(self) -> bool:
        return self._closed or self._failed is not None

    # -- durable --------------------------------------------------------------------------------------------------------------

    def _commit_together(self) -> None:
        """The writer's own thread: one fsync for all that was appended meanwhile."""
        with self._changed:
            while not self._gone():
                left = self._waiting_since + self._commit_interval - time.monotonic()
                if self._end == self._durable or self._syncing:
                    self._changed.wait()
                elif left > 0 and self._position - self._synced < self._commit_bytes:
                    self._changed.wait(left)
                else:
                    try:
                        self._sync()
                    except LogError:
                        return

    def _sync(self) -> None:
        """Others append while the disk is busy: what counts is what was written when this began."""
        mark = Mark(self._position, self._end)
        names = dict(self._names) if mark.position - self._pointed >= index.EVERY else None
        self._syncing = True
        self._waiting_since = time.monotonic()
        self._changed.release()
        error: Exception | None = None
        try:
            faults.reach("K13", str(self._path))
            fs.fsync(self._fd, self._path)
        except Exception as e:
            error = e
        finally:
            self._changed.acquire()
            self._syncing = False
            self._changed.notify_all()
        if error is not None:
            self._failed = error
            self._check()
        self._now_durable(mark, names)

    def _now_durable(self, mark: Mark, names: dict[str, Place] | None) -> None:
        assert self._index is not None
        if names is not None:
            self._point(mark, names)
        try:
            self._index.durable(mark)
        except OSError as e:  # readers would never see it
            self._failed = e
            self._check()
        self._durable, self._synced = mark.offset, mark.position
        self._changed.notify_all()

    def _point(self, mark: Mark, names: dict[str, Place]) -> None:
        """Names that are in no point yet are kept for the next one."""
        assert self._index is not None
        if self._index.point(mark, names):
            self._pointed = mark.position
            self._names = {name: place for name, place in self._names.items() if place.position >= mark.position}

    # -- segments -------------------------------------------------------------------------------------------------------------

    def _roll(self, first: int | None = None) -> None:
        """The active segment is closed, durable to its end and with a whole index, before the next one has a name."""
        while self._syncing:
            self._changed.wait()
        assert self._index is not None
        while self._durable < self._end:
            self._sync()
            while self._syncing:
                self._changed.wait()
        faults.reach("K14", "synced")
        try:
            self._point(Mark(self._position, self._end), self._names)
            self._index.sync()
            made = New(self.folder, Header(self._header.log_id, self._end))
        except OSError as e:
            raise LogUnwritable(self._path, e, range(self._end if first is None else first, self._end)) from e
        os.close(self._fd)
        self._index.close()
        self._fd, self._index, self._path, self._header = made.fd, made.index, made.path, made.header
        self._position = self._synced = self._pointed = HEADER_BYTES
        self._names = {}
        try:
            made.publish()
        except OSError as e:
            self._failed = e
            self._check()
        self._closed_bytes = self._measured()

    def _measured(self) -> int:
        """Of the closed segments. Compaction may take them away beside us."""
        total = 0
        for base in segment.bases(self.folder):
            if base < self._header.base:
                try:
                    total += (self.folder / segment.name(base)).stat().st_size
                except FileNotFoundError:
                    continue
        return total

    def _make_room(self, need: int, first: int) -> None:
        """Waits for readers to ack, and compacts what they have acked."""
        assert self._max_bytes is not None
        while True:
            self._check()
            self._closed_bytes = self._measured()
            if self._closed_bytes + self._position + need <= self._max_bytes:
                return
            if self._compacted(first):
                continue
            if not self._block or HEADER_BYTES + need > self._max_bytes:
                raise LogFull(self.folder, self.size, self._max_bytes, need, range(first, self._end))
            self._changed.wait(0.1)

    def _compacted(self, first: int) -> bool:
        """True if that has made the log smaller. The active segment is closed for it once half of it is no longer needed."""
        from penstock.log import compaction

        point = compaction.point(self.folder)
        if point is None:
            return False
        if self._position > HEADER_BYTES and point - self._header.base >= (self._end - self._header.base) / 2:
            self._roll(first)
        self._changed.release()
        try:
            return compaction.compact(self.folder, min_gain=0.5).freed > 0
        except LogLocked:
            return False  # another process is at it
        finally:
            self._changed.acquire()


def _marked(batch: pa.RecordBatch, delivery: str) -> pa.RecordBatch:
    if not delivery:
        return batch
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), batches.DELIVERY: delivery.encode()})


def _writev(fd: int, pieces: list[Any]) -> None:
    total = sum(len(piece) for piece in pieces)
    written = os.writev(fd, pieces)
    if written < total:  # the disk is full, as a rule: the next call says so
        rest = b"".join(bytes(piece) for piece in pieces)
        fs.write(fd, rest[written:])
