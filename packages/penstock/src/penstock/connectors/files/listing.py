"""Which files a path names, and which of them are settled. Plain Python, no Spark: it runs while the JVM starts.

A file is settled when its size and modification time have not changed for `settle` seconds: by the clock on the wall when
the file is older than that, else by watching it. A clock that is wrong can only make this wait longer, or take a file that
still grows, which the check around the read then finds.

A path is a file, a folder, or a pattern as the shell has it. What exists under the very name that was given is that, whatever
characters are in it. A folder is walked as the pattern that matches everything in it.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Stop
from penstock.testing import faults

SKIPPED_PREFIXES = (".", "_")
SKIPPED_SUFFIXES = (".tmp", ".part")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
GIVE_UP_SETTLING = 30.0  # seconds after which `--once` no longer waits for a file that keeps changing
GONE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR)  # deleted between two calls, or a link to nowhere: there is no file
ANY_FOLDERS = "**"
NOWHERE: frozenset[int] = frozenset()
_MAGIC = re.compile(r"[*?[]")


class Entry(NamedTuple):  # a data class takes three times as long to make
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
    """Lists what one path names again and again. One instance per source, one thread.

    `path` is absolute. `recursive` also takes what is in sub-folders; those named `key=value` are walked in any case.
    """

    path: Path
    settle: float
    recursive: bool = False
    present: set[str] = field(default_factory=set)  # every file the last look has seen, settled or not
    _young: dict[str, _Seen] = field(default_factory=dict)
    _waiting: list[_Seen] = field(default_factory=list)  # those that the last look did not give
    _one_file: bool = False
    _pattern: _Pattern | None = None

    @property
    def root(self) -> Path:
        """The folder below which everything is: of a file its own, of a pattern the part before the first wildcard."""
        if pattern := self._as_pattern():
            return pattern.root
        self._one_file = self._one_file or self.path.is_file()
        return self.path.parent if self._one_file else self.path

    def settled(self) -> list[Entry]:
        """Settled files, oldest first. Raises `Stop` when the folder is not there or can't be read."""
        wall, now = time.time(), time.monotonic()
        old = (wall - self.settle) * 1e9
        all_old = self.settle == 0 or not faults.safeguard("settle")
        young: dict[str, _Seen] = {}
        waiting: list[_Seen] = []
        result = []
        entries = self._scan()
        self.present = {entry.path for entry in entries}
        for entry in entries:
            if entry.mtime_ns <= old or all_old:
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
            else:
                waiting.append(seen)
        self._young, self._waiting = young, waiting
        result.sort(key=attrgetter("mtime_ns", "path"))
        return result

    def settling(self) -> bool:
        """True while a file is there that may settle soon. One that has settled since the last look is still to be given."""
        now = time.monotonic()
        return any(now - s.first < GIVE_UP_SETTLING for s in self._waiting)

    def _as_pattern(self) -> _Pattern | None:
        """Decided at the first look and kept: a folder with an odd name that vanishes is no pattern without a match, and a
        file whose name happens to be the pattern does not hide the others."""
        if self._pattern is None:
            magic = _MAGIC.search(str(self.path)) is not None
            self._pattern = _Pattern.of(self.path) if magic and not os.path.lexists(self.path) else _Pattern(self.path)
        return self._pattern if self._pattern.components else None

    def _scan(self) -> list[Entry]:
        if pattern := self._as_pattern():
            return _walk(pattern, self.recursive)
        try:
            if self.path.is_file():
                self._one_file = True
                stat = self.path.stat()
                return [Entry(str(self.path), stat.st_size, stat.st_mtime_ns)]
            if self._one_file and not self.path.exists():
                return []  # it was put away
        except OSError as e:
            raise _unreadable(str(self.path), e) from e
        return _walk(_Pattern(self.path), self.recursive)


def partitions(root: Path, path: str) -> dict[str, str | None]:
    """What the folders named `key=value` between `root` and the file say, the outermost first. `path` is below `root`."""
    *folders, _ = path.removeprefix(str(root)).split("/")
    pairs = (folder.split("=", 1) for folder in folders if _is_partition(folder))
    return {_decoded(key): None if value == NO_VALUE else _decoded(value) for key, value in pairs}


# -- patterns -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Component:
    """One name of a pattern. `**` stands for any number of folders."""

    text: str
    match: Callable[[str], object]
    hidden: bool  # names a hidden file or folder outright, so it is meant

    @classmethod
    def of(cls, text: str) -> _Component:
        literal = _MAGIC.search(text) is None
        return cls(text, re.compile(fnmatch.translate(text)).match, literal and text.startswith(SKIPPED_PREFIXES))


@dataclass(frozen=True)
class _Pattern:
    """A folder and what has to match below it, name by name. None at all: everything."""

    root: Path
    components: tuple[_Component, ...] = ()

    @classmethod
    def of(cls, path: Path) -> _Pattern:
        """A leading folder that exists as it is written is that folder: nobody chooses the name of the current one."""
        names = list(path.parts)
        root = Path(names.pop(0))
        while len(names) > 1 and (not _MAGIC.search(names[0]) or (root / names[0]).is_dir()):
            root /= names.pop(0)
        if names[-1] == ANY_FOLDERS:
            names.append("*")
        return cls(root, tuple(_Component.of(name) for name in names))

    def start(self) -> frozenset[int]:
        return self._opened([0])

    def step(self, at: frozenset[int], name: str, descend: bool) -> tuple[bool, frozenset[int]]:
        """Whether a file of this name in a folder is taken, and where in the pattern a folder of this name leads.

        A place is the number of the component that is to match next; the one behind the last means everything. There may be
        several, because of `**`. None: nothing in the folder can match.
        """
        hidden = name.startswith(SKIPPED_PREFIXES) or name.endswith(SKIPPED_SUFFIXES)
        partition = _is_partition(name)
        end = len(self.components)
        take, places = False, []
        for i in at:
            component = self.components[i] if i < end else None
            if component is not None and component.text == ANY_FOLDERS:
                if not hidden or partition:
                    places.append(i)
            elif component is None or component.match(name):
                meant = not hidden or (component is not None and component.hidden)
                if i + 1 >= end:
                    take = take or meant
                    if partition or (descend and meant):
                        places.append(end)
                elif meant or partition:
                    places.append(i + 1)
        return take, self._opened(places)

    def _opened(self, places: list[int]) -> frozenset[int]:
        if not places:
            return NOWHERE
        opened = set(places)
        for i in places:
            while i < len(self.components) and self.components[i].text == ANY_FOLDERS:
                i += 1  # `**` matches no folder at all, too
                opened.add(i)
        return frozenset(opened)


# -- folders --------------------------------------------------------------------------------------------------------


class _Folder(NamedTuple):
    path: str
    at: frozenset[int]
    above: _Folder | None
    id: tuple[int, int]


def _walk(pattern: _Pattern, recursive: bool) -> list[Entry]:
    """Every file that matches, with one `stat` for each. 10^5 files take 0.45 s, of which `scandir` and `stat` are 0.28."""
    entries: list[Entry] = []
    try:
        stat = pattern.root.stat()
    except OSError as e:
        raise _unreadable(str(pattern.root), e) from e
    folders = [_Folder(str(pattern.root), pattern.start(), None, (stat.st_dev, stat.st_ino))]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder.path) as found:
                for item in found:
                    take, below = pattern.step(folder.at, item.name, recursive)
                    if not take and not below:
                        continue
                    try:
                        if item.is_file():
                            if take:
                                stat = item.stat()
                                entries.append(Entry(_text(item), stat.st_size, stat.st_mtime_ns))
                        elif below and item.is_dir():
                            stat = item.stat()  # of a link, its target
                            inner = _Folder(_text(item), below, folder, (stat.st_dev, stat.st_ino))
                            if not _is_loop(inner):
                                folders.append(inner)
                    except OSError as e:
                        if e.errno not in GONE:
                            raise
        except OSError as e:
            if folder.above is None or e.errno not in GONE:
                raise _unreadable(folder.path, e) from e
    return entries


def _is_loop(folder: _Folder) -> bool:
    """Only among the folders above it: one that is reached in two ways is listed under both names, whatever the order."""
    above = folder.above
    while above is not None:
        if above.id == folder.id:
            return True
        above = above.above
    return False


def _is_partition(name: str) -> bool:
    """Of a folder, as Spark has it: `_day=1` is a column like any other."""
    return "=" in name and name[0] not in ".="


def _decoded(text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _text(item: os.DirEntry[str]) -> str:
    name = item.name
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as e:
            raise Stop(
                f"The source folder {Path(item.path).parent} holds a file whose name is not UTF-8: {name!r}",
                code="files.name",
                hint="rename it, or move it away",
            ) from e
    return item.path


def _unreadable(path: str, e: OSError) -> Stop:
    return Stop(
        f"The source folder {path} can't be read",
        code="files.unreadable",
        why=e.strerror or str(e),
        hint="check the path and its permissions",
    )
