"""Opens a ledger to look at it, while an engine runs or not: nothing is written, migrated or fenced, and no file is made.

`look.py` asks its questions through here. SQLite alone would not keep that promise: a reader of a ledger in WAL mode that was closed
makes `-wal` and `-shm` and leaves them. So there are three ways, by what is beside the ledger:

    -wal and -shm            an engine is running, or was killed: SQLite's own locks, which no writer waits for
    no -wal, or an empty one everything is in the file: read as it is (`immutable`), and asked again if it changed meanwhile
    -wal without -shm        a copy of a folder: both are copied once more, to a place where SQLite may make the rest
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.errors import LedgerError, UsageError
from penstock.ledger.database import STEPS

T = TypeVar("T")
VERSION = len(STEPS)
_TRIES = 5
_RUN_FIRST = "run a pipeline first (penstock run FILE), or name another folder with --state"


def ask(path: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """The answer to `question` on one state of the ledger; it may be asked several times. Never changes anything."""
    for _ in range(_TRIES):
        found = _find(path)
        try:
            answer = _asked(found, question)
        except sqlite3.Error as e:
            if _find(path) == found:
                raise _unreadable(path, str(e)) from e
            continue  # an engine was starting or stopping just then
        if found.locks or _find(path) == found:
            return answer
    raise _unreadable(path, "it changes all the time without the files of a running engine beside it")


@dataclass(frozen=True)
class _Found:
    """The ledger's files at one moment."""

    path: Path
    ledger: tuple[int, ...]  # device, inode, size, time of the last change
    wal: tuple[int, ...] | None
    shm: bool

    @property
    def locks(self) -> bool:
        return self.wal is not None and self.shm

    @property
    def whole(self) -> bool:
        """Nothing of it is in the write-ahead log."""
        return self.wal is None or self.wal[2] == 0


def _find(path: Path) -> _Found:
    try:
        ledger = _stat(path)
        wal = _stat(path.with_name(path.name + "-wal"))
        shm = _stat(path.with_name(path.name + "-shm")) is not None
    except OSError as e:
        raise unreadable(path, e) from e
    if ledger is None or ledger[2] == 0:
        raise empty(path.parent)
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError("no permission to read it"))
    return _Found(path, ledger, wal, shm)


def _stat(path: Path) -> tuple[int, ...] | None:
    """The file is not opened: to close it would let go of the locks that an engine in this process has on it."""
    try:
        s = path.stat()
    except FileNotFoundError:
        return None
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns


def _asked(found: _Found, question: Callable[[sqlite3.Connection], T]) -> T:
    if found.locks:
        # An engine that closes the ledger in this very moment takes both files away, and SQLite makes them anew. They do no harm.
        return _connected(found.path, "mode=ro", found.path, question)
    if found.whole:
        return _connected(found.path, "mode=ro&immutable=1", found.path, question)
    with tempfile.TemporaryDirectory(prefix="penstock-look-") as folder:
        copy = Path(folder) / found.path.name
        for suffix in ("", "-wal"):
            try:
                shutil.copyfile(f"{found.path}{suffix}", f"{copy}{suffix}")
            except OSError as e:
                raise unreadable(found.path, e) from e
        return _connected(copy, "mode=ro", found.path, question)


def _connected(file: Path, how: str, named: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    uri = f"{file.absolute().as_uri()}?{how}"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)) as db:
        db.execute("BEGIN")  # one state for all that is asked
        _check_version(db, named)
        return question(db)


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    (at,) = db.execute("PRAGMA user_version").fetchone()
    if at > VERSION:
        raise UsageError(
            f"The ledger {path} has version {at}; this Penstock reads up to {VERSION}",
            code="state.version",
            hint="install the Penstock that wrote it, or a newer one; nothing was changed",
        )
    if at == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise empty(path.parent)
    if at < VERSION:
        raise UsageError(
            f"The ledger {path} has version {at}; this Penstock looks at version {VERSION}",
            code="state.older",
            hint="run a pipeline on it once, which brings it up to date, or look with the Penstock that wrote it;"
            " nothing was changed",
        )


# -- what can be wrong ----------------------------------------------------------------------------------------------


def empty(folder: Path) -> UsageError:
    return UsageError(f"No pipeline has run yet in the state folder {folder}", code="state.empty", hint=_RUN_FIRST)


def missing(folder: Path, hint: str = _RUN_FIRST) -> UsageError:
    return UsageError(f"There is no state folder at {folder}", code="state.missing", hint=hint)


def unreadable(path: Path, cause: OSError) -> UsageError:
    return UsageError(
        f"{path} can't be read",
        code="state.unreadable",
        why=cause.strerror or str(cause),
        hint="a state folder belongs to the user that ran the pipeline: look as that user",
    )


def _unreadable(path: Path, why: str) -> LedgerError:
    return LedgerError(
        f"The ledger {path} can't be read",
        code="ledger.read",
        why=why,
        hint="if the file is damaged, restore the state folder from a backup; nothing was changed",
    )
