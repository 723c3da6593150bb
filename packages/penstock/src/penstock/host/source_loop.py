"""From a source into its commit log, and acks back. Runs in a connector host; the engine reads the log, and says how far all is settled.

One thread reads and appends (`run`); `acked` and `stop` come from others. Nothing is acked that is not settled, and the engine gets nothing
that is not durable: it reads the log, which shows only that. A log that is full makes the append wait, and with it the source.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import Rejected, Stop
from penstock.host.resends import Resends
from penstock.host.unacked import Unacked
from penstock.log import Writer
from penstock_protocol.interfaces import EndOfStream, SourcePlugin
from penstock_sdk import Record
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records

POLL = 0.5  # seconds that a read waits at most


@dataclass(frozen=True, slots=True)
class Status:
    """For people, and for the engine that waits for the end."""

    read: int  # records that the source gave
    logged: int
    resent: int  # that were in the log already
    unacked: int
    end: int  # of the log
    drained: bool  # after a stop: everything that it will ever give is in the log
    ended: bool


class SourceLoop:
    """`source` is open, right after the last record of the log."""

    def __init__(self, source: SourcePlugin, writer: Writer, resends: Resends) -> None:
        self._source, self._writer, self._resends = source, writer, resends
        self._unacked = Unacked()
        self._settled = 0  # every offset below it
        self._acking = threading.Lock()
        self._read = self._logged = 0
        self._last: bytes | None = None  # after a stop: the position of the last record that comes
        self._seen = b""  # the position of the last that came
        self._changed = threading.Condition()
        self._ended = False

    def run(self) -> None:
        """Until the source ends, which it does after a stop when everything was acked. Raises what it raises."""
        try:
            while not self._over():
                try:
                    records = self._given()
                except EndOfStream:
                    return
                if records:
                    self._take(records)
                    self._acked()  # what came again may be settled already
        finally:
            self._source.disconnected()  # a stop would wait for somebody who reads
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _over(self) -> bool:
        """Everything came, and everything was acked; some plugins only end their stream when they are torn down."""
        return self._drained() and not self._unacked

    def _given(self) -> Sequence[Record]:
        if isinstance(self._source, SourceAdapter):
            return self._source.read_records(POLL)
        return from_records(self._source.read(POLL))

    def _take(self, records: Sequence[Record]) -> None:
        """Appends what is new, and remembers for which offset each record waits."""
        known = [self._resends.offset(record.position) for record in records]
        new = [record for record, offset in zip(records, known, strict=True) if offset is None]
        try:
            offsets = self._writer.append(new)
        except Rejected as e:
            raise self._unfit(e, new) from e
        self._resends.remember([record.position for record in new], offsets)
        self._resends.count += len(records) - len(new)
        fresh = iter(offsets)
        self._unacked.add(
            (next(fresh) if offset is None else offset, record.position)
            for record, offset in zip(records, known, strict=True)
        )
        with self._changed:
            self._read += len(records)
            self._logged += len(new)
            self._seen = records[-1].position
            self._changed.notify_all()

    def _unfit(self, e: Rejected, records: Sequence[Record]) -> Stop:
        first = records[min(e.records, default=0)]
        return Stop(
            f"The record at position {first.position[:80]!r} can't be written to the log",
            code="host.unfit-record",
            why=e.what,
            hint="nothing after it was read; change it where it comes from, or leave it out there",
        )

    # -- from other threads -------------------------------------------------------------------------------------------------

    def acked(self, end: int) -> None:
        """Every offset below `end` is settled, and the ledger has stored that."""
        with self._changed:
            self._settled = max(self._settled, end)
        self._acked()

    def _acked(self) -> None:
        """One at a time, so that the source gets them in order."""
        with self._acking:
            positions = self._unacked.through(self._settled)
            if positions:
                self._source.ack(positions)
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """No new records; those that were fetched still come. Returns when the source has understood."""
        last = self._source.stop()
        with self._changed:
            self._last = last
            self._changed.notify_all()

    def _drained(self) -> bool:
        return self._last is not None and (not self._last or self._last == self._seen)

    def wait_drained(self, timeout: float) -> bool:
        """After a stop: until everything that it will give is durable in the log. False: not within so many seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._drained() or self._ended, timeout):
                return False
        self._writer.commit()
        return True

    def status(self) -> Status:
        with self._changed:
            counts = (self._read, self._logged, self._resends.count, len(self._unacked), self._writer.durable)
            return Status(*counts, self._drained(), self._ended)
