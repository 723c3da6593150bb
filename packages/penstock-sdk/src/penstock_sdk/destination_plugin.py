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
DELIVERY = "penstock.delivery"  # metadata: the hash of the delivery, from hosts that have one


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

    def open(self) -> None:
        self._make()
        retried(lambda: self._call("open"), self._context.stopping)
        self._ready = True

    def write(self, records: Records) -> None:
        """A record that can't be read is refused in its place; the author's code gets the others."""
        positions: list[bytes] = []
        found: list[Record] = []
        refused: dict[int, str] = {}
        for place, message in enumerate(records):
            positions.append(message.position)
            try:
                record = from_wire(message)
                if self._decoder is not None:
                    self._decoder.decode(record)
                found.append(record)
            except Rejected as e:
                refused[place] = e.what
        if positions:
            batch = Batch(found, found[0].metadata.get(DELIVERY, "") if found else "")
            self._take(batch, positions, refused)

    def write_batch(self, batch: Batch) -> None:
        """The same for a host in this process."""
        self._take(batch, [record.position for record in batch], {})

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
        if batch.records:
            self._write(batch, acks)
        with self._changed:
            self._written = positions[-1]
            self._changed.notify_all()

    def _write(self, batch: Batch, acks: Acks) -> None:
        if self._later:
            self._call("write_async", batch, acks)
            return
        try:
            retried(lambda: self._call("write", batch), self._context.stopping)
            refused: dict[int, str] = {}
        except Rejected as e:
            refused = e.records or dict.fromkeys(range(len(batch)), str(e))
        for i in range(len(batch)):
            if i in refused:
                acks.reject(i, refused[i])
            else:
                acks.ok(i)

    def _answered(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def acks(self, timeout: float) -> Sequence[Ack]:
        with self._changed:
            self._changed.wait_for(lambda: self._first_is_answered() or self._ended(), timeout)
            found: list[Ack] = []
            while self._first_is_answered():
                position, acks, i = self._waiting.popleft()
                found.append(Ack(position, acks.answered(i) or ""))
            if not found and self._ended():
                raise EndOfStream
            return found

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
        self._call("flush")
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            missing = sum(acks.answered(i) is None for _, acks, i in self._waiting)
        if missing:
            raise PluginError(f"{missing} records were taken and never answered: after flush every one must be")
