"""A connector on the SDK, for tests: a list of numbers that remembers its acks, and a file. Run as a program, or used in this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock_sdk import Acks, Batch, Connector, Destination, Record, Rejected, Retry, Settings, Source, serve, setting


class CountSettings(Settings):
    """Numbers."""

    count: int = setting("How many.", default=10, least=0)
    journal: Path = setting("Where it writes down what it is told.")
    fail: int = setting("After this one reading fails.", default=0)


class Count(Source[CountSettings]):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self._at = int(position or b"0")
        self._retried = False
        self._tell(f"open {position!r}")

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if not self._retried:
            self._retried = True
            raise Retry("not yet")
        if self.settings.fail and self._at >= self.settings.fail:
            raise ValueError("worn out")
        if self._at >= self.settings.count:
            self.context.stopping.wait(timeout)
            return []
        first, self._at = self._at, min(self._at + 3, self.settings.count)
        return [Record({"n": n}, position=b"%d" % n, namespace="numbers") for n in range(first + 1, self._at + 1)]

    def ack(self, positions: Sequence[bytes]) -> None:
        self._tell(f"ack {b' '.join(positions).decode()}")

    def close(self) -> None:
        self._tell("close")

    @classmethod
    def created(cls, settings: CountSettings) -> None:
        with settings.journal.open("a") as file:
            file.write("created\n")

    def _tell(self, text: str) -> None:
        with self.settings.journal.open("a") as file:
            file.write(text + "\n")


class AsyncCount(Count):
    """The same with coroutines."""

    async def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # type: ignore[override]
        super().open(position, last)

    async def read(self, max_records: int, timeout: float) -> Sequence[Record]:  # type: ignore[override]
        return super().read(max_records, min(timeout, 0.01))


class KeepSettings(Settings):
    path: Path = setting("The file.")
    later: bool = setting("Answers at the end, backwards.", default=False)


class Keep(Destination[KeepSettings]):
    def open(self) -> None:
        self._file = self.settings.path.open("a")
        self._tries = 0

    def write(self, batch: Batch) -> None:
        self._tries += 1
        if self._tries == 1:
            raise Retry("not yet")
        bad = {i: "five is refused" for i, r in enumerate(batch) if isinstance(r.after, dict) and r.after["n"] == 5}
        for i, record in enumerate(batch):
            if i not in bad:
                self._file.write(f"{record.namespace} {record.after!r}\n")
        self._file.flush()
        if bad:
            raise Rejected(bad)

    def close(self) -> None:
        self._file.close()


class KeepLater(Keep):
    """Answers from last to first, when it is told to flush."""

    def open(self) -> None:
        super().open()
        self._held: list[tuple[Batch, Acks]] = []

    def write_async(self, batch: Batch, acks: Acks) -> None:
        self._held.append((batch, acks))

    def flush(self) -> None:
        for _, acks in reversed(self._held):
            for i in reversed(range(acks.open())):
                acks.ok(i)


SYNC = Connector("counting", "v0.1.0", "Counts and keeps.", Count, Keep)
ASYNC = Connector("counting", "v0.1.0", "Counts and keeps.", AsyncCount, KeepLater)

if __name__ == "__main__":
    sys.exit(serve(ASYNC if sys.argv[1:] == ["async"] else SYNC))
