"""A source as the protocol sees it. The same object serves a plugin program and a host in the same process: only who calls it differs.

Keeps count of what is on its way: the stream ends well only when every record that was given has been acked.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock_protocol.interfaces import EndOfStream, PluginError, SourcePlugin
from penstock_protocol.records import Records
from penstock_sdk.adapter import Adapter
from penstock_sdk.context import Context
from penstock_sdk.errors import Retry
from penstock_sdk.record import Record
from penstock_sdk.retry import Backoff, retried
from penstock_sdk.source import Settled, Source
from penstock_sdk.wire import to_records

if TYPE_CHECKING:
    from penstock_sdk.schemas import Encoder

MAX_RECORDS = 1000
STOP_PATIENCE = 60.0  # seconds that a stop waits for reading to end


class SourceAdapter(Adapter, SourcePlugin):
    """`kind` is the author's class. `encoder`: for a program whose host has a schema service."""

    def __init__(self, kind: type[Source[Any]], context: Context | None = None, encoder: Encoder | None = None) -> None:
        super().__init__(kind, context)
        self._encoder = encoder
        self._changed = threading.Condition()
        self._in_flight: deque[bytes] = deque()
        self._last = b""  # of the records given since then: a host reads on until it has this one
        self._reading = self._drained = self._over = False
        self._tries = 0
        self._backoff = Backoff()

    # -- the calls, in order ------------------------------------------------------------------------------------------------

    def open(self, position: bytes, last: Mapping[str, Record] | None = None) -> None:
        self._make()
        retried(lambda: self._call("open", position or None, last or {}), self._context.stopping)
        self._ready = True

    def read(self, timeout: float) -> Records:
        found = self._fetched(timeout)
        records = to_records(found, self._encoder)  # what does not go over the wire is not on its way
        self._given(found)
        return records

    def read_records(self, timeout: float) -> Sequence[Record]:
        """The same for a host in this process."""
        return self._given(self._fetched(timeout))

    def _fetched(self, timeout: float) -> Sequence[Record]:
        self._check_open()
        self._reading = True
        if self._context.stopping.is_set():
            return self._rest(timeout)
        try:
            found: Sequence[Record] = self._call("read", MAX_RECORDS, timeout)
            self._tries = 0
        except Retry as e:
            if self._tries >= self._backoff.tries:
                raise
            self._context.log.warn("read is tried again", error=str(e))
            self._context.stopping.wait(self._backoff.pause(self._tries))
            self._tries += 1
            return ()
        return found

    def _rest(self, timeout: float) -> Sequence[Record]:
        """After a stop: what was fetched, then nothing while acks are missing, then the end."""
        if not self._drained:
            found: Sequence[Record] = self._call("drain")
            if found:
                return found
            with self._changed:
                self._drained = True
                self._changed.notify_all()
        with self._changed:
            if self._changed.wait_for(lambda: not self._in_flight, timeout):
                raise EndOfStream
        return ()

    def _given(self, found: Sequence[Record]) -> Sequence[Record]:
        positions = [record.position for record in found]
        if not all(positions):
            raise PluginError("a record has no position: without one it can't be acknowledged")
        with self._changed:
            self._in_flight.extend(positions)
            if positions:
                self._last = positions[-1]
        return found

    def ack(self, positions: Sequence[bytes]) -> None:
        if self._kind.settle is not Source.settle:
            self.settle([Settled(position) for position in positions])
            return
        self._expect(positions)
        if self._kind.ack is not Source.ack:
            self._call("ack", positions)
        self._acked(len(positions))

    def settle(self, settled: Sequence[Settled]) -> None:
        """Acks come in order, each once: what does not fit was not given by this source."""
        self._expect([one.position for one in settled])
        self._call("settle", settled)
        self._acked(len(settled))

    def _expect(self, positions: Sequence[bytes]) -> None:
        self._check_open()
        with self._changed:
            if len(positions) > len(self._in_flight):
                raise PluginError(f"{len(positions)} acknowledgements for {len(self._in_flight)} records in flight")
            for given, position in zip(positions, self._in_flight, strict=False):
                if given != position:
                    raise PluginError(f"position {given!r} was acknowledged where {position!r} is next")

    def _acked(self, n: int) -> None:
        with self._changed:
            for _ in range(n):
                self._in_flight.popleft()
            self._changed.notify_all()

    def disconnected(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def stop(self) -> bytes:
        self._context.stopping.set()
        with self._changed:
            if self._reading:  # else there is nobody who would end it
                self._changed.wait_for(lambda: self._drained or self._over, STOP_PATIENCE)
            return self._last

    def teardown(self) -> None:
        super().teardown()
        if self._in_flight:
            self._context.log.warn("records are not acknowledged; they will be read again", count=len(self._in_flight))
