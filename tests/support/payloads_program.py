"""A source on the SDK, for tests: payloads with types, a schema that changes, bytes that do not fit theirs, and a note of what it was
told. As a program or offered by an entry point."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from penstock_sdk import Connector, Record, Settings, Source, setting
from penstock_sdk.avro import compiled
from penstock_sdk.schemas import from_environment
from penstock_sdk.source import Settled

SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": "string"}]}'


class PayloadsSettings(Settings):
    mode: Literal["typed", "changing", "cut", "unknown", "lines"] = setting("What it gives.")
    count: int = setting("Records.", default=6)
    told: Path | None = setting("Where it writes what became of its records.", default=None)


class Payloads(Source[PayloadsSettings]):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self._next = 0 if position is None else int(position) + 1

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if self._next >= self.settings.count:
            self.context.stopping.wait(timeout)
            return []
        self._next += 1
        n = self._next - 1
        return [_MADE[self.settings.mode](n)]


def _position(n: int) -> bytes:
    return b"%d" % n


def typed(n: int) -> dict[str, Any]:
    return {
        "n": 2**53 + 1 + n,
        "price": Decimal("12.34") + n,
        "day": date(2026, 1, 1 + n),
        "at": datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC),
        "raw": bytes([n, 255]),
    }


def _typed(n: int) -> Record:
    return Record(typed(n), key={"id": 2**60 + n}, position=_position(n), namespace="orders")


def _changing(n: int) -> Record:
    """From the fourth on there is one field more."""
    more = {"extra": f"x{n}"} if n >= 3 else {}
    return Record({"n": 2**53 + 1 + n, **more}, position=_position(n), namespace="orders")


def _registered() -> dict[str, str]:
    registry = from_environment()
    assert registry is not None
    found = registry.create("things", SCHEMA.encode())
    return {"opencdc.payload.schema.subject": found.subject, "opencdc.payload.schema.version": str(found.version)}


def _cut(n: int) -> Record:
    """The second is cut off, the fourth has more bytes than its schema."""
    data = compiled(SCHEMA.encode()).encode({"n": n, "t": f"text {n}"})
    data = {1: data[:-3], 3: data + b"\0"}.get(n, data)
    return Record(data, position=_position(n), metadata=_registered())


def _unknown(n: int) -> Record:
    named = {"opencdc.payload.schema.subject": "nothing", "opencdc.payload.schema.version": "7"}
    return Record(b"\0", position=_position(n), metadata=named)


def _lines(n: int) -> Record:
    return Record(b'{"n": %d}' % n if n % 3 else b"no object", position=_position(n))


_MADE = {"typed": _typed, "changing": _changing, "cut": _cut, "unknown": _unknown, "lines": _lines}


class Answering(Payloads):
    """Somebody waits for the outcome of each record."""

    def settle(self, settled: Sequence[Settled]) -> None:
        assert self.settings.told is not None
        with self.settings.told.open("a") as file:
            file.writelines(json.dumps([int(one.position), one.error]) + "\n" for one in settled)


connector = Connector("payloads", "1.0.0", "Payloads.", Payloads)
answering = Connector("answering", "1.0.0", "Answers.", Answering)
