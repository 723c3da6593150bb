"""One engine per state folder. An flock that the kernel drops with the process, and who holds it for people to read."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import IO

from penstock import fs
from penstock.errors import UsageError
from penstock.testing import faults

STATE_VERSION = 1


class StateFolder:
    """The folder that holds ledger, staging and logs. Open it before anything else; close it last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

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
        if self._lock is not None:
            self._lock.close()
            self._lock = None

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
        lock = open(self.path / "lock", "a+")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if faults.safeguard("lock"):
                lock.seek(0)
                holder = _describe(lock.read())
                lock.close()
                raise UsageError(
                    f"The state folder {self.path} is in use by another engine",
                    code="state.locked",
                    why=holder,
                    hint="stop that one first, or give this run a state folder of its own with --state",
                ) from None
        lock.truncate(0)
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "machine": socket.gethostname(), "started": started}, lock)
        lock.flush()
        self._lock = lock


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"pid {holder['pid']} on {holder['machine']}, started {holder['started']}"
    except (ValueError, KeyError, TypeError):
        return "its pid is not known yet"
