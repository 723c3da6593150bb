"""A source on the SDK that fetches more than it gives at once, for tests of the calls that a source gets: run as a program.

It gives one record at a time of ten that it has fetched. The second read has to be tried again. The read after `wait` records goes on only
when an ack has come beside it. A stop finds the rest of the ten: `drain` gives them three at a time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.connectors.chaos.calls import record_call, text
from penstock_sdk import Connector, Context, Record, Retry, Settings, Source, serve, setting

FETCHED = 10
PATIENCE = 60.0


class FetchingSettings(Settings):
    calls: Path = setting("A file that gets a JSON line for each call.")
    wait: int = setting("After so many records it waits for an ack.", default=4)
    give: int = setting("After so many records it gives nothing more until it is stopped.", default=14)


class Fetching(Source[FetchingSettings]):
    def __init__(self, settings: FetchingSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._fetched: list[Record] = []
        self._at = self._given = self._reads = 0
        self._acked = threading.Event()

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self._tell("open", position=None if position is None else text(position))
        self._at = int(position or b"0")

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        self._reads += 1
        if self._reads == 2:
            self._tell("retry")
            raise Retry("not yet")
        if self._given == self.settings.wait:
            self._tell("waits", acked=self._acked.wait(PATIENCE))
        if self._given >= self.settings.give:
            self.context.stopping.wait(timeout)
            return []
        if not self._fetched:
            self._fetched = [
                Record({"n": self._at + i}, position=b"%d" % (self._at + i)) for i in range(1, FETCHED + 1)
            ]
            self._at += FETCHED
        self._given += 1
        self._tell("read", count=1)
        return [self._fetched.pop(0)]

    def drain(self) -> Sequence[Record]:
        found, self._fetched = self._fetched[:3], self._fetched[3:]
        self._tell("drain", count=len(found))
        return found

    def ack(self, positions: Sequence[bytes]) -> None:
        self._tell("ack", positions=[text(position) for position in positions])
        self._acked.set()

    def close(self) -> None:
        self._tell("close")

    def _tell(self, method: str, **more: object) -> None:
        record_call(self.settings.calls, method, **more)


connector = Connector("fetching", "1.0.0", "Fetches more than it gives.", Fetching)

if __name__ == "__main__":
    sys.exit(serve(connector))
