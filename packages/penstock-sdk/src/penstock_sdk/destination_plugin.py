"""A destination as the protocol sees it; see `source_plugin`. Answers every record once, in the order in which they came, whatever order
the author's code answers them in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock_protocol.interfaces import Ack, DestinationPlugin, EndOfStream, PluginError
from penstock_protocol.records import Records
from penstock_sdk.adapter import Adapter
from penstock_sdk.context import Context
from penstock_sdk.destination import Acks, Batch, Destination
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record
from penstock_sdk.retry import retried
from penstock_sdk.wire import from_wire

if TYPE_CHECKING:
    from penstock_sdk.schemas import Decoder

STOP_PATIENCE = 60.0  # seconds that a stop waits for the last record
LINGER = 0.05  # seconds after which records that are not answered are flushed, if no others have come

# Metadata from hosts that have them. They are for the adapter: the author's code finds them in the batch and in its records.
DELIVERY = "penstock.delivery"  # the hash of the delivery
SOURCE = "penstock.source"  # where the record comes from: with its position and part it is who it is
PART = "penstock.part"  # missing: 0
ID = "penstock.record"  # who it is in one text, for those who have no SDK of ours


class DestinationAdapter(Adapter, DestinationPlugin):
    """`kind` is the author's class. `decoder`: for a program, whose host may send payloads as Avro."""

    def __init__(
        self, kind: type[Destination[Any]], context: Context | None = None, decoder: Decoder | None = None
    ) -> None:
        super().__init__(kind, context)
        self._decoder = decoder
        self._later = kind.write_async is not Destination.write_async
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, Acks, int]] = deque()  # position, and where its answer is
        self._written = b""  # the position of the last record that was taken
        self._stopped = False
        self._writing = threading.Lock()  # the author's code is entered by one at a time
        self._unflushed = False

    def open(self) -> None:
        self._make()
        retried(lambda: self._call("open"), self._context.stopping)
        self._ready = True

    def write(self, records: Records) -> None:
        """A record that can't be read is refused in its place; the author's code gets the others."""
        positions: list[bytes] = []
        found: list[Record] = []
        refused: dict[int, str] = {}
        delivery = ""
        for place, message in enumerate(records):
            positions.append(message.position)
            try:
                record = from_wire(message)
                if self._decoder is not None:
                    self._decoder.decode(record)
                delivery = _identified(record) or delivery
                found.append(record)
            except Rejected as e:
                refused[place] = e.what
        if positions:
            self._take(Batch(found, delivery), positions, refused)

    # -- for a host in this process, which needs no positions to know what an answer is for ---------------------------------

    def deliver(self, batch: Batch) -> Acks:
        """Raises what the author's code raises, but for what it refuses."""
        self._check_open()
        acks = Acks(len(batch), self._answered)
        self._write(batch, acks)
        return acks

    def wait(self, acks: Acks, timeout: float) -> bool:
        """Whether all of them are answered within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not acks.open(), timeout)

    def flush(self) -> None:
        self._call("flush")

    def _take(self, batch: Batch, positions: Sequence[bytes], refused: Mapping[int, str]) -> None:
        """`refused`: which of the positions are of records that are not in the batch, and why."""
        self._check_open()
        acks, ours = Acks(len(batch), self._answered), Acks(len(refused), self._answered)
        for i, why in enumerate(refused.values()):
            ours.reject(i, why)
        taken, left = enumerate(batch), enumerate(refused)
        with self._changed:
            for place, position in enumerate(positions):
                i, _ = next(left if place in refused else taken)
                self._waiting.append((position, ours if place in refused else acks, i))
            self._changed.notify_all()
        with self._writing:
            if batch.records:
                self._write(batch, acks)
            with self._changed:
                self._written = positions[-1]
                self._unflushed = self._later
                self._changed.notify_all()

    def _write(self, batch: Batch, acks: Acks) -> None:
        if self._later:
            self._call("write_async", batch, acks)
            return
        acks.answer(self._refused(batch))

    def _refused(self, batch: Batch) -> Mapping[int, str]:
        """What `write` refuses. Where it does not say which records are bad, they are looked for: half by half."""
        try:
            retried(lambda: self._call("write", batch), self._context.stopping)
        except Rejected as e:
            if e.records:
                return e.records
            if len(batch) == 1:
                return {0: str(e)}
            middle = len(batch) // 2
            halves = [batch.part(0, middle), batch.part(middle, len(batch))]
            first, second = (self._refused(half) for half in halves)
            return {**first, **{middle + i: why for i, why in second.items()}}
        return {}

    def _answered(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def acks(self, timeout: float) -> Sequence[Ack]:
        with self._changed:
            soon = min(timeout, LINGER) if self._unflushed else timeout
            if not self._changed.wait_for(lambda: self._first_is_answered() or self._ended(), soon):
                self._flush_soon()
            found: list[Ack] = []
            while self._first_is_answered():
                position, acks, i = self._waiting.popleft()
                found.append(Ack(position, acks.answered(i) or ""))
            if not found and self._ended():
                raise EndOfStream
            return found

    def _flush_soon(self) -> None:
        """What `write_async` has taken and not answered waits for more, which may only come when this is answered."""
        if self._waiting and self._unflushed and self._writing.acquire(blocking=False):
            self._unflushed = False
            self._changed.release()
            try:
                self._call("flush")
            finally:
                self._changed.acquire()
                self._writing.release()

    def _first_is_answered(self) -> bool:
        return bool(self._waiting) and self._waiting[0][1].answered(self._waiting[0][2]) is not None

    def _ended(self) -> bool:
        return self._stopped and not self._waiting

    def stop(self, position: bytes) -> None:
        """The call may overtake records that are on their way: the last one is waited for, so that it is not flushed without them."""
        self._check_open()
        with self._changed:
            if position and not self._changed.wait_for(lambda: self._written == position, STOP_PATIENCE):
                raise PluginError(f"the record with position {position!r}, which should be the last one, did not come")
        with self._writing:
            self._call("flush")
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            missing = sum(acks.answered(i) is None for _, acks, i in self._waiting)
        if missing:
            raise PluginError(f"{missing} records were taken and never answered: after flush every one must be")


def _identified(record: Record) -> str:
    """What a host has put into the metadata of a record goes to where the author finds it. The delivery that it belongs to."""
    metadata = record.metadata
    record.source = metadata.pop(SOURCE, "")
    part = metadata.pop(PART, "0")
    record.part = int(part) if part.isascii() and part.isdigit() else 0
    metadata.pop(ID, None)
    return metadata.pop(DELIVERY, "")
