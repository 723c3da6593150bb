"""A destination as the protocol sees it; see `source_plugin`. Answers every record once, in the order in which they came, whatever order
the author's code answers them in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock_protocol.interfaces import Ack, DestinationPlugin, EndOfStream, PluginError
from penstock_protocol.records import Records
from penstock_sdk.adapter import Adapter
from penstock_sdk.context import Context
from penstock_sdk.destination import Acks, Batch, Destination
from penstock_sdk.errors import Rejected
from penstock_sdk.retry import retried
from penstock_sdk.wire import from_records

STOP_PATIENCE = 60.0  # seconds that a stop waits for the last record
DELIVERY = "penstock.delivery"  # metadata: the hash of the delivery, from hosts that have one


class DestinationAdapter(Adapter, DestinationPlugin):
    """`kind` is the author's class."""

    def __init__(self, kind: type[Destination[Any]], context: Context | None = None) -> None:
        super().__init__(kind, context)
        self._later = kind.write_async is not Destination.write_async
        self._changed = threading.Condition()
        self._waiting: deque[tuple[bytes, Acks, int]] = deque()  # position, and where its answer is
        self._written = b""  # the position of the last record that was taken
        self._stopped = False

    def open(self) -> None:
        destination = self._make()
        retried(lambda: destination("open"), self._context.stopping)

    def write(self, records: Records) -> None:
        found = from_records(records)
        if not found:
            return
        self.write_batch(Batch(found, found[0].metadata.get(DELIVERY, "")))

    def write_batch(self, batch: Batch) -> None:
        """The same for a host in this process."""
        self._opened()
        acks = Acks(len(batch), self._answered)
        with self._changed:
            self._waiting.extend((record.position, acks, i) for i, record in enumerate(batch))
        self._write(batch, acks)
        with self._changed:
            self._written = batch.records[-1].position
            self._changed.notify_all()

    def _write(self, batch: Batch, acks: Acks) -> None:
        destination = self._opened()
        if self._later:
            destination("write_async", batch, acks)
            return
        try:
            retried(lambda: destination("write", batch), self._context.stopping)
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
        destination = self._opened()
        with self._changed:
            if position and not self._changed.wait_for(lambda: self._written == position, STOP_PATIENCE):
                raise PluginError(f"the record with position {position!r}, which should be the last one, did not come")
        destination("flush")
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            missing = sum(acks.answered(i) is None for _, acks, i in self._waiting)
        if missing:
            raise PluginError(f"{missing} records were taken and never answered: after flush every one must be")
