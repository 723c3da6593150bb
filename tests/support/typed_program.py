"""A connector on the SDK, for tests: a source that gives values of every type, and a destination that keeps what it sees as text."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock_sdk import Batch, Connector, Destination, Record, Settings, Source, serve, setting

VALUES: dict[str, Any] = {
    "big": 2**53 + 1,
    "bytes": b"\x00\xff",
    "date": date(2026, 3, 4),
    "decimal": Decimal("12345678901234567890.12"),
    "list": [1, None, 2.5],
    "nested": {"at": datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=UTC), "day": date(1999, 1, 1)},
    "nothing": None,
    "text": "ü",
    "time": time(1, 2, 3, 4),
}
BAD: dict[str, Any] = {"fine": 1, "length": timedelta(1)}


class TypesSettings(Settings):
    bad: bool = setting("Gives one that has no form on the wire.", default=False)


class Types(Source[TypesSettings]):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self._left = 3

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if not self._left:
            self.context.stopping.wait(timeout)
            return []
        self._left -= 1
        payload = BAD if self.settings.bad else VALUES
        return [Record(payload, before=payload, key={"id": 2**60}, position=b"%d" % self._left, namespace="t")]


class SeenSettings(Settings):
    path: Path = setting("The file.")


class Seen(Destination[SeenSettings]):
    def write(self, batch: Batch) -> None:
        with self.settings.path.open("a") as file:
            for record in batch:
                file.write(f"{(record.key, record.before, record.after)!r}\n")


if __name__ == "__main__":
    sys.exit(serve(Connector("typed", "v0.1.0", "Gives and keeps types.", Types, Seen)))
