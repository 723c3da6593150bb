"""The files beside the one that is followed: where rotation has put the older ones, and in which order. Called by the source.

Only names that look like a rotation of the path count: a number, a date or a time in them (`app.log.1`, `app.log-20261116`,
`app-2.log`), or `.old` and `.prev`. What was written last is the newest; where that is equal, the name decides.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock_sdk import Stop

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".z")
_TRIES = 10
_STAMP = 6  # digits from which on a number is a date: larger is newer then


@dataclass(frozen=True, slots=True)
class Sibling:
    name: str
    device: int
    inode: int
    modified: int
    rotated: bool  # by its name

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def compressed(self) -> bool:
        return self.name.lower().endswith(COMPRESSED)

    def age(self) -> tuple[int, int, int, str]:
        """The larger, the newer: `.1` is newer than `.2`."""
        numbers = re.findall(r"[0-9]+", self.name)
        last = numbers[-1] if numbers else "0"
        return self.modified, *((1, 0) if len(last) >= _STAMP else (0, -int(last))), self.name


def opened(path: Path) -> int:
    """For reading. A FIFO does not block, and is refused. OSError where it can't be opened."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "no regular file"
        raise Stop(f"{path} is {kind}", code="lines.path", hint="`lines` follows a regular file")
    return fd


def siblings(path: Path) -> list[Sibling]:
    """All files in the folder but the path itself."""
    return list(_siblings(path))


def _siblings(path: Path) -> Iterator[Sibling]:
    looks = _rotated(path.name)
    try:
        entries = list(os.scandir(path.parent))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.name == path.name or not entry.is_file(follow_symlinks=False):
                continue
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # just gone
        rotated = looks.fullmatch(entry.name) is not None
        yield Sibling(entry.name, found.st_dev, found.st_ino, found.st_mtime_ns, rotated)


def _rotated(name: str) -> re.Pattern[str]:
    stem, dot, extension = name.rpartition(".")
    more = r"[-._][-._:T0-9A-Za-z+]*[0-9][-._:T0-9A-Za-z+]*|[-._](?:old|prev)"
    names = rf"{re.escape(name)}(?:{more})"
    if dot and stem:
        names += rf"|{re.escape(stem)}(?:{more}){re.escape(dot + extension)}"
    return re.compile(names)


def newer(path: Path, identity: tuple[int, int], modified: int, read: set[tuple[int, int]]) -> list[tuple[Path, int]]:
    """What came after the file with this identity, opened, the oldest first; the last one is the path. Nothing while the folder changes.
    `read`: what was read in this run, which is not new though it be as young."""
    for _ in range(_TRIES):
        made: list[tuple[Path, int]] = []
        try:
            names = _newer(path, identity, modified, read)
            made += ((path.parent / each.name, opened(path.parent / each.name)) for each in names)
            made.append((path, opened(path)))
        except FileNotFoundError:
            _close(made)
            if not path.exists():
                return []
            continue
        except BaseException:
            _close(made)
            raise
        ours = {(s.st_dev, s.st_ino) for _, fd in made for s in (os.fstat(fd),)}
        if len(ours) == len(made) and [each.identity for each in _newer(path, identity, modified, read)] == [
            (s.st_dev, s.st_ino) for _, fd in made[:-1] for s in (os.fstat(fd),)
        ]:
            return made
        _close(made)
    return []


def _newer(path: Path, identity: tuple[int, int], modified: int, read: set[tuple[int, int]]) -> list[Sibling]:
    found = siblings(path)
    at_path = path.stat()
    here = next((each for each in found if each.identity == identity), None)
    made = []
    for each in found:
        if not each.rotated or each.compressed or each.identity in (identity, (at_path.st_dev, at_path.st_ino)):
            continue
        if here is not None:
            later = each.age() > here.age()
        else:
            later = each.modified > modified or (each.modified == modified and each.identity not in read)
        if later:
            made.append(each)
    return sorted(made, key=Sibling.age)


def _close(files: list[tuple[Path, int]]) -> None:
    for _, fd in files:
        os.close(fd)
