"""From a source into its commit log, and acks back. Runs in a connector host; the engine reads the log, and says how far all is settled.

One thread reads and appends (`run`), another acks (`send_acks`); `acked` and `stop` come from others. Nothing is acked that is not
settled, and the engine gets nothing that is not durable: it reads the log, which shows only that. A log that is full makes the append
wait, and with it the source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import Rejected, Stop
from penstock.host.resends import Resends
from penstock.host.unacked import Unacked
from penstock.log import Writer
from penstock.testing import faults
from penstock_protocol.interfaces import EndOfStream, SourcePlugin
from penstock_sdk import Record
from penstock_sdk.source import Settled
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records

POLL = 0.5  # seconds that a read waits at most
ACKS = 10_000  # positions that a source is told at once, at most


@dataclass(frozen=True, slots=True)
class Counts:
    read: int  # records that the source gave
    logged: int
    resent: int  # that were in the log already
    unacked: int
    quiet: bool  # when the source was last asked it had nothing
    ended: bool


class SourceLoop:
    """`source` is open, right after the last record of the log. `changed` is called when the counts are others."""

    def __init__(
        self,
        source: SourcePlugin,
        writer: Writer,
        resends: Resends,
        changed: Callable[[], None] = lambda: None,
        settled: int = 0,
    ) -> None:
        self._source, self._writer, self._resends, self._tell = source, writer, resends, changed
        self._unacked = Unacked()
        self._settled = settled  # every offset below it
        self._refused: dict[int, str] = {}  # of these, what was not delivered, and why
        self._acks_end = False
        self._read = self._logged = 0
        self._last: bytes | None = None  # after a stop: the position of the last record that comes
        self._seen = b""  # the position of the last that came
        self._changed = threading.Condition()
        self._quiet = self._ended = False

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
                self._note_quiet(not records)
        finally:
            self._source.disconnected()  # a stop would wait for somebody who reads
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _over(self) -> bool:
        """Everything came, and everything was acked; some plugins only end their stream when they are torn down."""
        return self._drained() and not self._unacked

    def _note_quiet(self, quiet: bool) -> None:
        if quiet != self._quiet:
            self._quiet = quiet
            self._tell()

    def _given(self) -> Sequence[Record]:
        if isinstance(self._source, SourceAdapter):
            return self._source.read_records(POLL)
        return from_records(self._source.read(POLL))

    def _take(self, records: Sequence[Record]) -> None:
        """Appends what is new, and remembers for which offset each record waits."""
        positions = [record.position for record in records]
        if self._resends.knows(positions) and faults.safeguard("resend"):
            offsets: Sequence[int] = self._take_some(records, positions)
        else:
            offsets = self._append(records)
            self._resends.remember(positions, offsets)
            self._logged += len(records)
        self._unacked.add(offsets, positions)
        with self._changed:
            self._read += len(records)
            self._seen = positions[-1]
            self._changed.notify_all()
        self._tell()

    def _take_some(self, records: Sequence[Record], positions: Sequence[bytes]) -> list[int]:
        """Some of these are in the log already."""
        known = [self._resends.offset(position) for position in positions]
        new = [record for record, offset in zip(records, known, strict=True) if offset is None]
        offsets = self._append(new)
        self._resends.remember([record.position for record in new], offsets)
        self._resends.count += len(records) - len(new)
        self._logged += len(new)
        fresh = iter(offsets)
        return [next(fresh) if offset is None else offset for offset in known]

    def _append(self, records: Sequence[Record]) -> range:
        try:
            return self._writer.append(records)
        except Rejected as e:
            raise self._unfit(e, records) from e

    def _unfit(self, e: Rejected, records: Sequence[Record]) -> Stop:
        first = records[min(e.records, default=0)]
        return Stop(
            f"The record at position {first.position[:80]!r} can't be written to the log",
            code="host.unfit-record",
            why=e.what,
            hint="nothing after it was read; change it where it comes from, or leave it out there",
        )

    # -- from other threads -------------------------------------------------------------------------------------------------

    def acked(self, end: int, refused: Mapping[int, str]) -> None:
        """Every offset below `end` is settled, and the ledger has stored that. `refused`: those of them with a dead letter."""
        with self._changed:
            self._settled = max(self._settled, end)
            self._refused.update(refused)
            self._changed.notify_all()

    def send_acks(self) -> None:
        """The body of the thread that acks, in order, until there is nothing left to ack or `end_acks` is called. Raises what the source
        raises. A source that can't be read any more still hears of what it gave."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unacked.has(self._may_ack()) or self._acks_over())
                settled = self._unacked.through(self._may_ack(), ACKS)
                if not settled and self._acks_over():
                    return
            if self._refused and isinstance(self._source, SourceAdapter):
                pairs = (pair for piece in settled for pair in zip(*piece, strict=True))
                self._source.settle([Settled(position, self._refused.pop(at, "")) for at, position in pairs])
            else:
                self._source.ack([position for _, positions in settled for position in positions])
            with self._changed:
                self._changed.notify_all()
            self._tell()

    def _acks_over(self) -> bool:
        return self._acks_end or (self._ended and not self._unacked)

    def _may_ack(self) -> int:
        return self._settled if faults.safeguard("ack-after-commit") else self._writer.end

    def end_acks(self) -> None:
        """What is settled is still acked, and nothing after it."""
        with self._changed:
            self._acks_end = True
            self._changed.notify_all()

    def stop(self) -> None:
        """No new records; those that were fetched still come. Returns when the source has understood."""
        last = self._source.stop()
        with self._changed:
            self._last = last
            self._changed.notify_all()

    def _drained(self) -> bool:
        return self._last is not None and (not self._last or self._last == self._seen)

    def wait_drained(self, timeout: float | None) -> bool:
        """After a stop: until everything that it will give is durable in the log. False: not within so many seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._drained() or self._ended, timeout):
                return False
        self._writer.commit()
        return True

    def counts(self) -> Counts:
        with self._changed:
            counts = (self._read, self._logged, self._resends.count, len(self._unacked))
            return Counts(*counts, self._quiet, self._ended)
