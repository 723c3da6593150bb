"""Which files of a folder are there, and which of them are settled. Plain Python, no Spark: it runs while the JVM starts.

A file is settled when its size and modification time have not changed for `settle` seconds: by the clock on the wall when
the file is older than that, else by watching it. A clock that is wrong can only make this wait longer, or take a file that
still grows, which the check around the read then finds.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Stop
from penstock.testing import faults

SKIPPED_SUFFIXES = (".tmp", ".part")
GIVE_UP_SETTLING = 30.0  # seconds after which `--once` no longer waits for a file that keeps changing


@dataclass(frozen=True)
class Entry:
    path: str
    size: int
    mtime_ns: int


@dataclass
class _Seen:
    entry: Entry
    since: float  # monotonic: unchanged from here on
    first: float  # monotonic: first seen


@dataclass
class Listing:
    """Lists one folder (or one file) again and again. One instance per source, one thread."""

    path: Path
    settle: float
    present: set[str] = field(default_factory=set)  # every file the last look has seen, settled or not
    _young: dict[str, _Seen] = field(default_factory=dict)
    _one_file: bool = False

    def settled(self) -> list[Entry]:
        """Settled files, oldest first. Raises `Stop` when the folder is not there or can't be read."""
        wall, now = time.time(), time.monotonic()
        young: dict[str, _Seen] = {}
        result = []
        entries = self._scan()
        self.present = {entry.path for entry in entries}
        for entry in entries:
            if wall - entry.mtime_ns / 1e9 - self.settle >= 0 or self.settle == 0 or not faults.safeguard("settle"):
                result.append(entry)
                continue
            seen = self._young.get(entry.path)
            if seen is None:
                seen = _Seen(entry, now, now)
            elif seen.entry != entry:
                seen = _Seen(entry, now, seen.first)
            young[entry.path] = seen
            if now - seen.since >= self.settle:
                result.append(entry)
        self._young = young
        result.sort(key=lambda e: (e.mtime_ns, e.path))
        return result

    def settling(self) -> bool:
        """True while a file is there that may settle soon."""
        now = time.monotonic()
        return any(now - s.since < self.settle and now - s.first < GIVE_UP_SETTLING for s in self._young.values())

    def _scan(self) -> list[Entry]:
        try:
            if self.path.is_file():
                self._one_file = True
                stat = self.path.stat()
                return [Entry(str(self.path), stat.st_size, stat.st_mtime_ns)]
            if self._one_file and not self.path.exists():
                return []  # it was put away
            entries = []
            with os.scandir(self.path) as found:
                for item in found:
                    if item.name.startswith((".", "_")) or item.name.endswith(SKIPPED_SUFFIXES):
                        continue
                    if not _is_text(item.name):
                        raise Stop(
                            f"The source folder {self.path} holds a file whose name is not UTF-8: {item.name!r}",
                            code="files.name",
                            hint="rename it, or move it away",
                        )
                    try:
                        if item.is_file():
                            stat = item.stat()
                            entries.append(Entry(item.path, stat.st_size, stat.st_mtime_ns))
                    except OSError as e:
                        if e.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                            raise
                        continue  # deleted between the two calls, or a link to nowhere: there is no file
        except OSError as e:
            raise Stop(
                f"The source folder {self.path} can't be read",
                code="files.unreadable",
                why=e.strerror or str(e),
                hint="check the path and its permissions",
            ) from e
        return entries


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
