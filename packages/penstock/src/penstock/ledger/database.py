"""The ledger's database: SQLite in WAL with `synchronous=FULL`, numbered migrations, one transaction per step.

One connection per engine, shared by its lanes under a lock. Every write checks the fence, so an engine that was replaced
can no longer change anything. A write that fails breaks the ledger for this process: nothing continues in place, the next
start reads what is really there.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from penstock.errors import Fenced, LedgerError, UsageError
from penstock.testing import faults

STEPS = sorted(r.name for r in resources.files("penstock.ledger.migrations").iterdir() if r.name.endswith(".sql"))


class Database:
    """All methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fence = 0
        self._lock = threading.RLock()
        self._broken: Exception | None = None
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        except sqlite3.Error as e:
            raise self._cannot_open(e) from e
        try:
            self._refuse_newer()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._migrate()
            self._take_over()
            self._files = self._identities()
        except BaseException as e:
            self._db.close()
            if isinstance(e, sqlite3.Error):
                raise self._cannot_open(e) from e
            raise

    def _cannot_open(self, cause: sqlite3.Error) -> LedgerError:
        return LedgerError(
            f"The ledger {self.path} can't be opened",
            code="ledger.open",
            why=str(cause),
            hint="check free space and permissions of the state folder; the file itself is never repaired by itself",
        )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- starting -------------------------------------------------------------------------------------------------

    def _refuse_newer(self) -> None:
        """Before anything is changed, the journal's mode included."""
        at = self._version()
        if at > len(STEPS) and faults.safeguard("version"):
            raise UsageError(
                f"The ledger {self.path} has version {at}; this Penstock reads up to {len(STEPS)}",
                code="state.version",
                hint="install the Penstock that wrote it, or a newer one; nothing was changed",
            )

    def _version(self) -> int:
        (at,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(at)

    def _migrate(self) -> None:
        at = self._version()
        for number, name in enumerate(STEPS[at:], at + 1):
            script = resources.files("penstock.ledger.migrations").joinpath(name).read_text()
            self._db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")

    def _take_over(self) -> None:
        """Raises the fence: from here on the writes of any older engine are refused."""
        epoch = secrets.randbits(48) if faults.safeguard("epoch") else 1
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?), ('fence', 0)", (epoch,))
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'fence'")
        (self.fence,) = self._db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchone()
        self._db.execute("COMMIT")

    @contextmanager
    def _write(self, name: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._broken is not None:
                raise self._error(name, self._broken)
            try:
                self._check_in_place()
                self._db.execute("BEGIN IMMEDIATE")
                self._check_fence()
                yield self._db
                faults.reach("ledger", name)
                self._db.execute("COMMIT")
            except (sqlite3.Error, OSError) as e:
                self._broken = e
                raise self._error(name, e) from e
            finally:
                self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as e:
            self._broken = e

    def _check_fence(self) -> None:
        (fence,) = self._db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchone()
        if fence != self.fence and faults.safeguard("fence"):
            raise Fenced(
                "Another engine has taken this state folder over",
                code="state.fenced",
                why=f"this engine has fencing number {self.fence}, the ledger is at {fence}",
                hint="run one engine per state folder; nothing this one had staged was published",
            )

    def _check_in_place(self) -> None:
        """SQLite would go on writing to a file that was deleted under it, and the account would vanish with the process."""
        try:
            if self._identities() == self._files:
                return
        except FileNotFoundError:
            pass
        raise OSError("the ledger file was removed or replaced while the engine was running")

    def _identities(self) -> list[tuple[int, int]]:
        """Device and inode of the ledger and of its write-ahead log."""
        stats = [path.stat() for path in (self.path, self.path.with_name(self.path.name + "-wal"))]
        return [(stat.st_dev, stat.st_ino) for stat in stats]

    def _error(self, name: str, cause: Exception) -> LedgerError:
        return LedgerError(
            f"The ledger could not write the {name}",
            code="ledger.write",
            where=str(self.path),
            why=str(cause),
            hint="free space or restore the state folder, then start again: recovery goes on from what is really on disk",
        )

    def _read(self, sql: str, *args: Any) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(sql, args).fetchall()
            except sqlite3.Error as e:
                raise LedgerError(f"The ledger {self.path} can't be read", code="ledger.read", why=str(e)) from e
