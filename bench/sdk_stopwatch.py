"""A source that gives records at a rate, each with the time in it, and a destination that counts and notes when they come. As an installed
package would bring them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock_sdk import Batch, Connector, Destination, Record, Settings, Source, setting


class TickingSettings(Settings):
    count: int = setting("Records.", default=1000)
    rate: float = setting("Records per second.", default=100.0)


class Ticking(Source[TickingSettings]):
    """A payload is the moment at which the record was read, in nanoseconds."""

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        self._next = self._first = 0 if position is None else int(position) + 1
        self._since = time.monotonic()

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        passed = time.monotonic() - self._since
        due = min(self._first + int(passed * self.settings.rate), self.settings.count)
        first, self._next = self._next, min(due, self._next + max_records)
        if first == self._next:
            self.context.stopping.wait(min(timeout, 1 / self.settings.rate))
        now = b"%d" % time.time_ns()
        return [Record(now, position=b"%d" % n) for n in range(first, self._next)]


class CountingSettings(Settings):
    total: Path | None = setting("A file that gets the number of records, at the end.", default=None)
    times: Path | None = setting(
        "A file that gets a line for each record: its payload, and when it came.", default=None
    )


class Counting(Destination[CountingSettings]):
    """What comes is forgotten."""

    def open(self) -> None:
        self._count = 0

    def write(self, batch: Batch) -> None:
        self._count += len(batch)
        if self.settings.times is not None:
            now = b"%d" % time.time_ns()
            with self.settings.times.open("ab") as file:
                file.writelines(b"%b %b\n" % (r.after, now) for r in batch if isinstance(r.after, bytes))

    def close(self) -> None:
        if self.settings.total is not None:
            self.settings.total.write_text(str(self._count))


connector = Connector("bench-stopwatch", "1.0.0", "Gives the time, and counts.", Ticking, Counting)
