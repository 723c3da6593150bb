"""What a ledger leaves behind when a write or its opening fails: no lock, no open file, no changed byte."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError, UsageError
from penstock.ledger import Ledger, Prepared, Totals
from penstock.ranges import Range, Ranges
from penstock.testing import faults

RANGES = Ranges((Range("a", {"size": 1}),), 3)
PREPARED = Prepared("out", "hash", "files", {}, {}, 0)


class SomethingElseError(Exception):
    pass


def is_free(path: Path) -> bool:
    """Whether another connection can write at once."""
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        db.close()
    return True


def open_files(path: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(str(path)):
            found.append(target)
    return found


def test_the_look_from_outside_does_see_a_lock(tmp_path: Path) -> None:
    """The control of the test below."""
    ledger = Ledger(tmp_path / "ledger.db")
    lane = ledger.lane("p", "in")
    seen: list[bool] = []
    faults.install(lambda *_: seen.append(is_free(ledger.path)))
    ledger.take(lane, RANGES)
    assert seen == [False]
    assert is_free(ledger.path)
    ledger.close()


@pytest.mark.parametrize("name", ["snapshot", "prepare", "done"])
@pytest.mark.parametrize("error", [SomethingElseError, KeyboardInterrupt, sqlite3.OperationalError, OSError])
def test_whatever_is_raised_before_a_commit_rolls_back_and_leaves_no_lock(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    lane = ledger.lane("p", "in")

    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("ledger", name):
            raise error

    def work(failing: bool) -> None:
        faults.install(hook if failing else None)
        s, _ = ledger.take(lane, RANGES)
        ledger.prepare(s, 1, [PREPARED])
        ledger.done(s, "out", {}, 1, frontier)

    with pytest.raises((error, LedgerError)):
        work(failing=True)
    assert is_free(ledger.path)
    batches = [s.batch for s in ledger.unfinished(lane.key)]
    assert batches == ([] if name == "snapshot" else [1])
    assert ledger.totals(lane.key) == Totals(0, 0, {}, {})
    if issubclass(error, sqlite3.Error | OSError):
        with pytest.raises(LedgerError):
            work(failing=False)
    else:
        work(failing=False)
        assert ledger.totals(lane.key).delivered == {"out": 1}
    ledger.close()


def newer(path: Path, journal: str) -> bytes:
    Ledger(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA journal_mode={journal}")
    db.execute("PRAGMA user_version=99")
    db.commit()
    db.close()
    return path.read_bytes()


@pytest.mark.contract("X7", safeguard="version")
@pytest.mark.parametrize(
    "journal",
    [
        "wal",
        pytest.param(
            "delete",
        ),
    ],
)
def test_a_newer_ledger_is_refused_without_a_changed_byte(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "ledger.db"
    before = newer(path, journal)
    with pytest.raises(UsageError):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["newer", "no ledger"])
def test_a_ledger_that_was_refused_keeps_no_file_open(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger.db"
    if kind == "newer":
        newer(path, "wal")
    else:
        path.write_bytes(b"not a database, " * 300)
    with pytest.raises((UsageError, LedgerError)) as caught:
        Ledger(path)
    assert caught.value.__traceback__ is not None
    assert open_files(path) == []


def test_a_closed_ledger_keeps_no_file_open(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    assert open_files(ledger.path)
    ledger.close()
    assert open_files(ledger.path) == []
