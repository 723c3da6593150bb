"""A disk that forgets: turns a folder of real files into something that a power cut could have left of it.

Tests install `hook`: penstock/fs.py reaches the point "fsync" before each fsync, so it sees what becomes durable and when.
`kill` is the end of a process, all written bytes stay; `crash` is the end of the machine, only fsynced ones must stay.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECTOR: Final = 512  # a disk writes so many bytes wholly or not at all
VERSIONS: Final = 16  # remembered of a file that is overwritten in place

Choose = Callable[[int], int]  # given n, one of 0 … n-1; 0 is what forgets most


class Killed(BaseException):
    """Raised out of a named point: the process is gone. No `except Exception` of production code may catch it."""


@dataclass(eq=False)
class File:
    """An inode. The open descriptor keeps its number from being used again."""

    fd: int
    durable: bytes = b""
    seen: list[bytes] = field(default_factory=list)  # what it has held since its last fsync, the newest last

    def now(self) -> bytes:
        return self.seen[-1] if self.seen else self.durable

    def look(self) -> None:
        content = _content(self.fd)
        last = self.now()
        if content == last:
            return
        if self.seen and content.startswith(last):
            self.seen.pop()  # it only grew, and any prefix of it may survive anyway
        self.seen.append(content)
        if len(self.seen) > VERSIONS:
            del self.seen[0]


@dataclass(eq=False)
class Folder:
    """A folder's names as of its last fsync, as of now, and the changes in between, each of them atomic."""

    fd: int
    durable: dict[str, Node] = field(default_factory=dict)
    names: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)


Node = File | Folder


class Forgetful:
    """One root folder, everything in it durable at first. Call `close` at the end. Of `*.lock` only the names count."""

    def __init__(
        self, root: Path, before: Callable[[str, str], None] | None = None, trusted: tuple[str, ...] = ()
    ) -> None:
        """`before` sees each point first, and may raise `Killed` there: what was about to be fsynced is not durable then. `trusted` files,
        whose names begin so, lose nothing: somebody else fsyncs them."""
        self.root = root
        self.before = before
        self.trusted = trusted
        self.dead = False
        self._nodes: dict[tuple[int, int], Node] = {}
        self._lock = threading.RLock()  # a writer has a thread of its own that commits
        self._start()

    def hook(self, point: str, detail: str) -> None:
        """For `faults.install`. Once the process is dead, every point raises: nothing it still does in a `finally` counts."""
        with self._lock:
            if self.dead:
                raise Killed(point)
            self.look()
            try:
                if self.before is not None:
                    self.before(point, detail)
            except Killed:
                self.dead = True
                raise
            if point == "fsync":
                self._fsynced(Path(detail))

    def look(self) -> None:
        """Takes note of what is in the folder. `hook` does it, so only what lasts from one point to the next is seen."""
        with self._lock:
            if not self.dead:
                self._look(self._top, self.root)

    def kill(self) -> None:
        """The process is gone, at the point where `Killed` was raised or else now; the machine goes on."""
        self._end(lambda folder: folder.names, File.now)
        self._look(self._top, self.root)  # the same names on new inodes: not a change
        self.dead = False

    def crash(self, choose: Choose) -> None:
        """The machine is gone, at the point where `Killed` was raised or else now. What is left is durable."""
        self._end(lambda folder: survivors(folder, choose), lambda file: content(file.durable, file.seen, choose))
        self.close()
        self._start()

    def close(self) -> None:
        for node in self._nodes.values():
            os.close(node.fd)
        self._nodes.clear()

    # -- what is durable -------------------------------------------------------------------------------------------

    def _fsynced(self, path: Path) -> None:
        try:
            node = self._nodes.get(_key(os.stat(path)))
        except FileNotFoundError:
            return  # the fsync will say so
        if isinstance(node, File):
            node.durable = node.now()
            node.seen = []
        elif isinstance(node, Folder):
            node.durable = dict(node.names)
            node.changes = []
            self._let_go()

    def _let_go(self) -> None:
        """Inodes that can't come back are closed, or a long test runs out of descriptors."""
        kept = set(_reach(self._top))
        for key, node in list(self._nodes.items()):
            if node not in kept:
                os.close(node.fd)
                del self._nodes[key]

    # -- what is there ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.dead = False
        fd = os.open(self.root, os.O_RDONLY)
        self._top = Folder(fd)
        self._nodes[_key(os.fstat(fd))] = self._top
        self._look(self._top, self.root)
        for node in list(self._nodes.values()):
            if isinstance(node, File):
                node.durable, node.seen = node.now(), []
            else:
                node.durable, node.changes = dict(node.names), []

    def _look(self, folder: Folder, path: Path) -> None:
        names = {}
        try:
            there = sorted(os.listdir(path))
        except FileNotFoundError:
            there = []  # another thread has removed it meanwhile
        for name in there:
            try:
                node = names[name] = self._node(path / name)
            except OSError as e:
                if e.errno in (errno.ENOENT, errno.ENXIO):
                    continue  # another thread was faster, or it is a socket
                raise
            if isinstance(node, Folder):
                self._look(node, path / name)
            elif not name.endswith(".lock"):  # holds a time, so a test that is run again would do something else
                node.look()
        if self.trusted:
            for name in [n for n in {*names, *folder.names} if n.startswith(self.trusted)]:
                self._trust(folder, name, names.get(name))
        folder.changes += changes(folder.names, names)
        folder.names = names

    def _trust(self, folder: Folder, name: str, node: Node | None) -> None:
        for known in (folder.durable, folder.names):
            known.pop(name, None)
            if node is not None:
                known[name] = node
        if isinstance(node, File):
            node.durable, node.seen = node.now(), []

    def _node(self, path: Path) -> Node:
        fd = os.open(path, os.O_RDONLY)
        key = _key(os.fstat(fd))
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = Folder(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else File(fd)
        else:
            os.close(fd)
        return known

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, names: Callable[[Folder], dict[str, Node]], bytes_of: Callable[[File], bytes]) -> None:
        """Makes the folder anew. All files are made again, so that whoever still holds the old ones does no harm."""
        with self._lock:
            self.look()
            while paths := list(self.root.iterdir()):  # a task that lives on may be at work in there
                for path in paths:
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            made: dict[File, Path] = {}

            def make(folder: Folder, at: Path) -> None:
                for name, node in names(folder).items():
                    if isinstance(node, Folder):
                        (at / name).mkdir(exist_ok=True)
                        self._again(node, at / name)
                        make(node, at / name)
                    elif node in made:
                        os.link(made[node], at / name)
                    else:
                        (at / name).write_bytes(bytes_of(node))
                        made[node] = at / name
                        self._again(node, at / name)

            make(self._top, self.root)

    def _again(self, node: Node, path: Path) -> None:
        """The node lives on at another inode."""
        self._nodes = {key: known for key, known in self._nodes.items() if known is not node}
        os.close(node.fd)
        node.fd = os.open(path, os.O_RDONLY)
        self._nodes[_key(os.fstat(node.fd))] = node


def changes(before: dict[str, Node], after: dict[str, Node]) -> list[dict[str, Node | None]]:
    """What has happened between two looks. A rename is one change of both names, and so is a chain of them."""
    changed: dict[str, Node | None] = {
        name: after.get(name) for name in sorted({*before, *after}) if before.get(name) is not after.get(name)
    }
    groups: list[set[str]] = [{name} for name in changed]
    for old in [name for name in changed if name in before]:
        for new in [name for name, node in changed.items() if node is before[old]]:
            groups = _joined(groups, {old, new})
    return [{name: changed[name] for name in sorted(group)} for group in groups]


def survivors(folder: Folder, choose: Choose) -> dict[str, Node]:
    """The folder's durable names and any of the later changes, but those of one name in their order."""
    groups: list[set[str]] = []
    for change in folder.changes:
        groups = _joined(groups, set(change))
    names: dict[str, Node | None] = {**folder.durable}
    for group in groups:
        of_group = [change for change in folder.changes if group & change.keys()]
        for change in of_group[: choose(len(of_group) + 1)]:
            names |= change
    return {name: node for name, node in names.items() if node is not None}


def content(durable: bytes, seen: list[bytes], choose: Choose) -> bytes:
    """The durable bytes, and of everything that was written since then: nothing, all, a part, some sectors, or rubbish."""
    if not seen:
        return durable
    states = [durable, *seen]
    at = choose(len(states))
    size = len(states[at])
    if at and choose(2) == 0:
        before = len(states[at - 1])
        if size > before:
            size = before + choose(size - before + 1)
        elif size < before and not states[at - 1].startswith(states[at]):
            size = choose(size + 1)  # cut, then written again
    way = choose(4)
    if way in (0, 3):  # 3: whoever chooses the highest each time keeps everything
        return states[at][:size]
    made = bytearray()
    for start in range(0, size, SECTOR):
        width = min(SECTOR, size - start)
        # A sector that was cut off has its old bytes, one that was never written has zeros.
        sectors = [(state + durable[len(state) :])[start : start + width] for state in states]
        sectors = list(dict.fromkeys(sectors))  # in this order, so that a test that is run again does the same
        made += sectors[choose(len(sectors))].ljust(width, b"\0")
    first = min(len(durable), size)
    if way == 2 and first < size:
        start = first + choose(size - first)
        end = start + 1 + choose(min(SECTOR, size - start))
        made[start:end] = (
            bytes(end - start) if choose(2) == 0 else random.Random(choose(1 << 16)).randbytes(end - start)
        )
    return bytes(made)


def _joined(groups: list[set[str]], names: set[str]) -> list[set[str]]:
    touched = [group for group in groups if group & names]
    return [group for group in groups if not group & names] + [names.union(*touched)]


def _reach(folder: Folder) -> Iterator[Node]:
    yield folder
    changed = (node for change in folder.changes for node in change.values() if node is not None)
    for node in (*folder.durable.values(), *folder.names.values(), *changed):
        if isinstance(node, Folder):
            yield from _reach(node)
        else:
            yield node


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
