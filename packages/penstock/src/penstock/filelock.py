"""One process at a time: an flock that the kernel drops with the process, and who holds it for people to read."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from penstock.testing import faults


class Held(Exception):
    """By another process; the text says by which."""


class FileLock:
    """`take` never waits. Dropped by `release`, or with the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def take(self) -> None:
        lock = open(self.path, "a+")  # noqa: SIM115 - held until released
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if faults.safeguard("lock"):
                lock.seek(0)
                holder = _describe(lock.read())
                lock.close()
                raise Held(holder) from None
        self._file = lock
        started = datetime.now().astimezone().isoformat(timespec="seconds")
        holder = json.dumps({"pid": os.getpid(), "machine": socket.gethostname(), "started": started})
        with suppress(OSError):  # a disk that is full: it is only for people
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), holder.encode())

    def release(self) -> None:
        if self._file is not None:
            # Closing alone drops it only when nobody else has the file: a child that was just forked has, and so has who looks at /proc.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()
            self._file = None


def _describe(text: str) -> str:
    try:
        holder = json.loads(text)
        return f"pid {holder['pid']} on {holder['machine']}, started {holder['started']}"
    except (ValueError, KeyError, TypeError):
        return "its pid is not known yet"
