"""One engine per state folder."""

from __future__ import annotations

from pathlib import Path

from penstock import fs
from penstock.errors import UsageError
from penstock.filelock import FileLock, Held
from penstock.testing import faults

STATE_VERSION = 1


class StateFolder:
    """The folder that holds ledger, staging and logs. Open it before anything else; close it last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock")

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    def open(self) -> None:
        """Takes the lock, checks the version. Raises `UsageError` (exit 2) when this engine must not run here."""
        try:
            self.check_version()
            fs.make_folder(self.path, 0o700)
            self._take_lock()
            fs.replace(self.path / "VERSION", f"penstock state {STATE_VERSION}\n".encode())
        except OSError as e:
            self.close()
            raise UsageError(
                f"The state folder {self.path} can't be used",
                code="state.unusable",
                why=str(e),
                hint="make it writable, free space, or name another one with --state",
            ) from e

    def close(self) -> None:
        self._lock.release()

    def check_version(self) -> None:
        try:
            text = (self.path / "VERSION").read_text(errors="replace")
        except FileNotFoundError:
            return
        number = text.removeprefix("penstock state ").strip()
        if (not number.isdecimal() or int(number) > STATE_VERSION) and faults.safeguard("version"):
            raise UsageError(
                f"The state folder {self.path} has version {number[:20]!r}; this Penstock reads up to {STATE_VERSION}",
                code="state.version",
                hint="install the Penstock that wrote it, or a newer one; nothing was changed",
            )

    def _take_lock(self) -> None:
        try:
            self._lock.take()
        except Held as held:
            raise UsageError(
                f"The state folder {self.path} is in use by another engine",
                code="state.locked",
                why=str(held),
                hint="stop that one first, or give this run a state folder of its own with --state",
            ) from None
