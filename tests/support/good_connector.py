"""A connector that keeps every rule, for the tests of the conformance kit: lines of a file, read by position and appended with fsync.
Run as a program, or used in this process. The bad ones in `bad_connectors` are made from it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock_sdk import Batch, Connector, Destination, Record, Settings, Source, serve, setting


class ShelfSource(Settings):
    """Lines of a file."""

    path: Path = setting("The file.")
    at_once: int = setting("How many lines are read at once.", default=7, least=1, most=1000)
    prefix: str = setting("Stands before each line.", default="> ", pattern="[a-z> ]*")


class Reader(Source[ShelfSource]):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self.at = int(position or b"0")

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        found: list[Record] = []
        if self.settings.path.exists():
            with self.settings.path.open("rb") as file:
                file.seek(self.at)
                while len(found) < self.settings.at_once and (line := file.readline()).endswith(b"\n"):
                    self.at += len(line)
                    found.append(self.record(line[:-1], b"%d" % self.at))
        if not found:
            self.context.stopping.wait(min(timeout, 0.02))
        return found

    def record(self, line: bytes, position: bytes) -> Record:
        return Record(self.settings.prefix.encode() + line, position=position)


class ShelfDestination(Settings):
    path: Path = setting("The file.")
    mode: str = setting("How it is opened.", default="a")


class Writer(Destination[ShelfDestination]):
    def open(self) -> None:
        self.file = self.settings.path.open(self.settings.mode)

    def write(self, batch: Batch) -> None:
        for record in batch:
            self.file.write(line(record))
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


def line(record: Record) -> str:
    kept = [record.operation, record.key, record.before, record.after, record.metadata]
    return json.dumps(kept, default=_text, ensure_ascii=False) + "\n"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


GOOD = Connector("shelf", "v1.2.3", "Reads and writes lines.", Reader, Writer)

if __name__ == "__main__":
    print("a line on standard output before serving would break the handshake", file=sys.stderr) if sys.argv[
        1:
    ] else None
    sys.exit(serve(GOOD))
