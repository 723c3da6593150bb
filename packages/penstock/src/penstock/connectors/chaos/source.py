"""`chaos` as a source: counts, and does on the way what it was told. Runs in a connector host, or in a plugin program."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from penstock.connectors.chaos.calls import record_call, text
from penstock.connectors.chaos.modes import Method
from penstock.connectors.chaos.sequence import order, place_after, position_of
from penstock.connectors.chaos.settings import ChaosSourceSettings
from penstock_sdk import Context, Record, Source


class ChaosSource(Source[ChaosSourceSettings]):
    def __init__(self, settings: ChaosSourceSettings, context: Context) -> None:
        super().__init__(settings, context)
        s, stopping = settings, context.stopping
        self._open, self._close = Method("open", s.on_open, stopping), Method("close", s.on_close, stopping)
        self._read, self._ack = Method("read", s.on_read, stopping), Method("ack", s.on_ack, stopping)
        self._drain = Method("drain", s.on_drain, stopping)
        self._numbers: Iterator[int] = iter(())
        self._given = 0
        self._since = 0.0

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        record_call(self.settings.calls, "open", position=None if position is None else text(position))
        self._open()
        self._numbers = order(self.settings, place_after(self.settings, position))
        self._since = time.monotonic()

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        made = [self._record(n) for n in itertools.islice(self._numbers, self._allowed(max_records))]
        try:
            record_call(self.settings.calls, "read", count=len(made))
            self._read(len(made))
        except BaseException:
            self._numbers = itertools.chain([self._number(r) for r in made], self._numbers)
            raise
        self._given += len(made)
        if not made:
            self.context.stopping.wait(min(timeout, 1 / self.settings.rate if self.settings.rate else timeout))
        return made

    def _allowed(self, most: int) -> int:
        most = min(most, self.settings.batch)
        if not self.settings.rate:
            return most
        return max(0, min(most, int((time.monotonic() - self._since) * self.settings.rate) - self._given))

    def _record(self, number: int) -> Record:
        size = self.settings.size
        after = b"%0*d" % (size, number) if size else {"n": number}
        return Record(after, key=b"%d" % number, position=position_of(self.settings, number), namespace="chaos")

    @staticmethod
    def _number(record: Record) -> int:
        assert isinstance(record.key, bytes)
        return int(record.key)

    def drain(self) -> Sequence[Record]:
        record_call(self.settings.calls, "drain")
        self._drain()
        return ()

    def ack(self, positions: Sequence[bytes]) -> None:
        record_call(self.settings.calls, "ack", positions=[text(position) for position in positions])
        self._ack(len(positions))

    def close(self) -> None:
        record_call(self.settings.calls, "close")
        self._close()

    @classmethod
    def created(cls, settings: ChaosSourceSettings) -> None:
        record_call(settings.calls, "created")
        Method("created", settings.on_created)()

    @classmethod
    def updated(cls, before: ChaosSourceSettings, after: ChaosSourceSettings) -> None:
        record_call(after.calls, "updated", before=before.as_config())
        Method("updated", after.on_updated)()

    @classmethod
    def deleted(cls, settings: ChaosSourceSettings) -> None:
        record_call(settings.calls, "deleted")
        Method("deleted", settings.on_deleted)()
