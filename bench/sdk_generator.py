"""A source written with the SDK that does nothing but make records up. For `bench.hosted`; found through an entry point of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_sdk import Connector, Record, Settings, Source, setting


class GeneratorSettings(Settings):
    count: int = setting("Records.", default=1_000_000)
    size: int = setting("Bytes of each.", default=25)


class Generator(Source[GeneratorSettings]):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        self._next = 0 if position is None else int(position) + 1
        self._body = b"x" * max(0, self.settings.size - 12)

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        first, end = self._next, min(self._next + max_records, self.settings.count)
        self._next = end
        if first == end:
            self.context.stopping.wait(timeout)
        body = self._body
        return [Record(b"%012d%b" % (n, body), position=b"%d" % n) for n in range(first, end)]


connector = Connector("bench-generator", "1.0.0", "Makes records up.", Generator)
