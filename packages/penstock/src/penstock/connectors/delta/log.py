"""The log of a Delta table on a local file system, read without Spark: which deliveries have commits, and whether the files that
these added are there. Nothing is changed. For `penstock reconcile`; the engine asks the JVM (`table.py`).

A commit is `_delta_log/<version, 20 digits>.json`, one action in a line. Old ones are taken away after a checkpoint, which has the
last number of each transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:.+\.)?parquet")


@dataclass(frozen=True)
class Added:
    path: str  # relative to the table's folder, or with a scheme
    size: int
    rows: int | None  # as its statistics say; None: they don't


@dataclass(frozen=True)
class Commit:
    version: int
    metadata: Any  # `userMetadata`, a text or None
    added: Sequence[Added]
    removed: frozenset[str]


class Log:
    """Of the table in the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "_delta_log"

    def versions(self) -> list[int]:
        """Those whose commits are there, the newest first. FileNotFoundError where there is no table."""
        found = (_COMMIT.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def commits(self) -> Iterator[Commit]:
        """The newest first."""
        for version in self.versions():
            try:
                text = (self.folder / f"{version:020}.json").read_text()
            except FileNotFoundError:  # taken away just now, with all before it
                return
            yield _commit(version, text)

    def transaction(self, app: str) -> int | None:
        """The last number of a transaction, by the newest checkpoint."""
        import pyarrow.parquet as pq

        files: dict[int, list[Path]] = {}
        for path in self.folder.iterdir():
            if match := _CHECKPOINT.fullmatch(path.name):
                files.setdefault(int(match[1]), []).append(path)
        parts = files[max(files)] if files else []
        rows = [row for path in parts for row in pq.read_table(path, columns=["txn"]).column("txn").to_pylist()]
        return max((int(row["version"]) for row in rows if row is not None and row["appId"] == app), default=None)

    def lost(self, added: Sequence[Added], removed: set[str]) -> str:
        """The first of these files that is not there as it was written; empty where all are. Those that later commits have removed
        need not be there."""
        for a in added:
            if a.path in removed or ":/" in a.path:
                continue
            try:
                size = (self.root / unquote(a.path)).stat().st_size
            except FileNotFoundError:
                return f"{unquote(a.path)} is not there"
            if size != a.size:
                return f"{unquote(a.path)} has {size:,} bytes, and {a.size:,} were written"
        return ""


def _commit(version: int, text: str) -> Commit:
    metadata: Any = None
    added: list[Added] = []
    removed: set[str] = set()
    for line in text.splitlines():
        if not line.startswith(('{"add"', '{"remove"', '{"commitInfo"')):
            continue
        action = json.loads(line)
        if "add" in action:
            a = action["add"]
            rows = json.loads(a["stats"]).get("numRecords") if a.get("stats") else None
            added.append(Added(a["path"], a["size"], rows))
        elif "remove" in action:
            removed.add(action["remove"]["path"])
        else:
            metadata = action["commitInfo"].get("userMetadata")
    return Commit(version, metadata, tuple(added), frozenset(removed))
