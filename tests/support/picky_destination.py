"""A destination on the SDK that refuses what a file says, for tests: run as a program. The file may change while it runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from penstock_sdk import Batch, Connector, Destination, Record, Rejected, Settings, serve, setting


class PickySettings(Settings):
    path: Path = setting("A file that gets a JSON line for each record that is not refused.")
    refuse: Path | None = setting("A file with the raw payloads that are refused, a line each.", default=None)
    rest: bool = setting("It stops at the first bad record of a batch, and refuses the rest with it.", default=False)
    all: bool = setting("Everything is refused while that file has a line.", default=False)


class Picky(Destination[PickySettings]):
    def write(self, batch: Batch) -> None:
        bad = self._bad()
        refused: dict[int, str] = {}
        good: list[Record] = []
        for i, record in enumerate(batch):
            if _text(record) in bad or (bad and self.settings.all) or (refused and self.settings.rest):
                refused[i] = "it stands in the file"
            else:
                good.append(record)
        lines = [
            {"position": r.position.decode(), "after": _text(r), "id": r.id, "delivery": batch.delivery} for r in good
        ]
        with self.settings.path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        if refused:
            raise Rejected(refused)

    def _bad(self) -> set[str]:
        found = self.settings.refuse
        return set(found.read_text().splitlines()) if found is not None and found.exists() else set()


def _text(record: Record) -> str:
    return record.after.decode() if isinstance(record.after, bytes) else json.dumps(record.after, default=repr)


connector = Connector("picky", "0.1.0", "Refuses what a file says.", destination=Picky)

if __name__ == "__main__":
    sys.exit(serve(connector))
