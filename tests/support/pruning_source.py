"""A source on the SDK, for tests: numbers from an upstream that forgets what it was told of, as a queue does whose acks delete.

Everything up to the position that it is opened at, or that is acked, is gone for good. Whoever asks for that again gets an error, and a
line `gone` in the calls. Its acks can hang, with what was acked gone already: then it is time to kill somebody. Run as a program.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.connectors.chaos.calls import append, record_call, text
from penstock_sdk import Connector, Context, Record, Settings, Source, serve, setting


class PruningSettings(Settings):
    upstream: Path = setting("The folder with all that the upstream keeps.")
    calls: Path = setting("A file that gets a JSON line for each call.")
    records: int = setting("How many there are.", default=10, least=0)
    rate: float = setting("Records per second. 0: as fast as they are read.", default=0, least=0)
    batch: int = setting("Records that one read gives.", default=50, least=1)
    hold: int = setting(
        "In so many lives the first ack never returns, and nothing is given after it.", default=0, least=0
    )


class Pruning(Source[PruningSettings]):
    def __init__(self, settings: PruningSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._gone, self._held = settings.upstream / "gone", settings.upstream / "held"
        self._next, self._given, self._since = 1, 0, 0.0
        self._holding = False

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        record_call(self.settings.calls, "open", position=None if position is None else text(position))
        self.settings.upstream.mkdir(exist_ok=True)
        at = int(position or 0)
        if at < self._forgotten():
            record_call(self.settings.calls, "gone", position=str(at + 1))
            raise ValueError(f"number {at + 1} is gone: it was acked")
        self._forget(at)  # whoever goes on there has everything before
        self._next, self._since = at + 1, time.monotonic()

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        most = min(max_records, self.settings.batch, self.settings.records - self._next + 1)
        if self.settings.rate:
            most = min(most, int((time.monotonic() - self._since) * self.settings.rate) - self._given)
        most = 0 if self._holding else max(0, most)
        record_call(self.settings.calls, "read", count=most)
        if not most:
            self.context.stopping.wait(min(timeout, 0.01))
            return []
        first, self._next = self._next, self._next + most
        self._given += most
        return [Record(b"%012d" % n, key=b"%d" % n, position=b"%d" % n) for n in range(first, first + most)]

    def ack(self, positions: Sequence[bytes]) -> None:
        record_call(self.settings.calls, "ack", positions=[text(position) for position in positions])
        self._forget(int(positions[-1]))
        held = len(self._held.read_text().splitlines()) if self._held.exists() else 0
        if held < self.settings.hold:
            self._holding = True
            append(self._held, [{"position": text(positions[-1])}])
            threading.Event().wait()

    def _forgotten(self) -> int:
        return int(self._gone.read_text()) if self._gone.exists() else 0

    def _forget(self, upto: int) -> None:
        temp = self._gone.with_suffix(".tmp")
        with temp.open("w") as file:
            file.write(str(upto))
            file.flush()
            os.fsync(file.fileno())
        temp.replace(self._gone)


connector = Connector("pruning", "0.1.0", "Forgets what it was told of.", source=Pruning)

if __name__ == "__main__":
    sys.exit(serve(connector))
