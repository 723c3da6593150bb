"""The ledger when things go wrong: a second engine, a file taken away, a disk that refuses, a newer version."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import Fenced, LedgerError, UsageError
from penstock.ledger import Ledger, Nack, NackState, Prepared, State, Totals
from penstock.ranges import Range, Ranges
from penstock.testing import faults

PREPARED = Prepared("out", "hash", "files", {"path": "x"}, {"rows": 1}, 0)
HELD = Nack(3, 0, "out", "id", b"3", "node", "code", "error", 0, NackState.HELD)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()


def ranges(*names: str) -> Ranges:
    return Ranges(tuple(Range(n, {"size": 1}) for n in names), next_seq=len(names))


def contents(path: Path) -> list[str]:
    """Every row that is committed, read with SQLite alone."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return list(db.iterdump())
    finally:
        db.close()


class Begun:
    """A ledger with a lane, one batch of each unfinished state, and every kind of write that could come next."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.lane = ledger.lane("p", "in")
        self.prepared, _ = ledger.take(self.lane, ranges("a"))
        ledger.prepare(self.prepared, 1, [PREPARED])
        self.open, self.attempt = ledger.take(self.lane, ranges("b"))
        self.taken, _, _ = ledger.take_and_settle(ledger.lane("p", "at most once"), ranges("a"), (), frontier)
        self.done, _ = ledger.take(ledger.lane("p", "done"), ranges("a"))
        ledger.prepare(self.done, 1, [PREPARED])
        ledger.done(self.done, "out", {}, 1, frontier, settle=False)

    def write(self, name: str) -> object:
        writes: dict[str, Callable[[], object]] = {
            "lane": lambda: self.ledger.lane("p", "another"),
            "snapshot": lambda: self.ledger.take(self.lane, ranges("c")),
            "attempt": lambda: self.ledger.retry(self.open),
            "failed attempt": lambda: self.ledger.failed(self.open, self.attempt, "why"),
            "dropped snapshot": lambda: self.ledger.drop(self.open),
            "prepare": lambda: self.ledger.prepare(self.open, 1, [PREPARED]),
            "done": lambda: self.ledger.done(self.prepared, "out", {}, 1, frontier),
            "rewind": lambda: self.ledger.rewind("p", "rewound"),
            "split": lambda: self.ledger.split(self.open, *self.open.ranges.split(3), "why", HELD),
            "held record": lambda: self.ledger.hold(self.open, HELD),
            "held delivery": lambda: self.ledger.hold_delivery(self.prepared, "out", HELD, 3, {}),
            "audit": lambda: self.ledger.abandon(self.prepared, "out", "p", 1, frontier),
            "frontier": lambda: self.ledger.advance(self.done.lane, frontier),
            "forgotten strands": lambda: self.ledger.forget(self.lane.key, ["a"]),
            "processed": lambda: self.ledger.processed(self.taken, 1, [PREPARED], [HELD], {"out": {"written": 1}}),
            "discarded batch": lambda: self.ledger.lost(self.taken, 1, ["out"]),
        }
        return writes[name]()


WRITES = [
    "lane",
    "snapshot",
    "attempt",
    "failed attempt",
    "dropped snapshot",
    "prepare",
    "done",
    "rewind",
    "split",
    "held record",
    "held delivery",
    "audit",
    "frontier",
    "forgotten strands",
    "processed",
    "discarded batch",
]


def begin(ledger: Ledger) -> Begun:
    ledger.lane("p", "rewound")
    return Begun(ledger)


# -- another engine -------------------------------------------------------------------------------------------------


@pytest.mark.contract("X6", safeguard="fence")
@pytest.mark.parametrize("name", WRITES)
def test_a_second_ledger_on_the_file_fences_the_first(ledger: Ledger, name: str) -> None:
    begun = begin(ledger)
    second = Ledger(ledger.path)
    before = contents(ledger.path)
    for _ in range(2):
        with pytest.raises(Fenced) as caught:
            begun.write(name)
    assert caught.value.code == "state.fenced"
    assert contents(ledger.path) == before
    assert second.fence == ledger.fence + 1
    second.close()


@pytest.mark.contract("X6", safeguard="fence")
def test_the_newer_ledger_goes_on_after_the_older_was_fenced(ledger: Ledger) -> None:
    begun = begin(ledger)
    second = Ledger(ledger.path)
    with pytest.raises(Fenced):
        begun.write("snapshot")
    assert second.done(begun.prepared, "out", {}, 1, frontier) == [begun.prepared.ranges]
    second.close()


@pytest.mark.contract("X6", safeguard="fence")
@pytest.mark.parametrize("name", WRITES)
def test_without_the_fence_the_write_of_a_replaced_engine_goes_through(ledger: Ledger, name: str) -> None:
    begun = begin(ledger)
    Ledger(ledger.path).close()
    before = contents(ledger.path)
    faults.install(off=["fence"])
    begun.write(name)
    assert contents(ledger.path) != before


# -- epochs ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("X3", safeguard="epoch")
def test_no_two_new_ledgers_start_at_the_same_epoch(tmp_path: Path) -> None:
    def epochs(kind: str) -> set[int]:
        found = set()
        for n in range(10):
            ledger = Ledger(tmp_path / f"{kind}{n}.db")
            found.add(ledger.lane("p", "in").epoch)
            ledger.close()
        return found

    assert len(epochs("kept")) == 10
    faults.install(off=["epoch"])
    assert len(epochs("control")) == 1


def test_a_reopened_ledger_keeps_its_epoch_for_old_and_new_lanes(ledger: Ledger) -> None:
    epoch = ledger.lane("p", "in").epoch
    again = Ledger(ledger.path)
    assert again.lane("p", "in").epoch == epoch
    assert again.lane("p", "new").epoch == epoch
    again.close()


# -- the file under it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["deleted", "replaced", "folder gone"])
def test_a_ledger_whose_file_was_taken_away_never_writes_again(ledger: Ledger, trouble: str, tmp_path: Path) -> None:
    begun = begin(ledger)
    saved = tmp_path / "saved.db"
    shutil.copy(ledger.path, saved)
    os.unlink(ledger.path)
    if trouble == "replaced":
        os.rename(saved, ledger.path)
    elif trouble == "folder gone":
        os.rename(tmp_path, tmp_path.with_name("elsewhere"))
    for name in ("done", "snapshot", "prepare"):
        with pytest.raises(LedgerError) as caught:
            begun.write(name)
        assert caught.value.code == "ledger.write"
        assert "removed or replaced" in caught.value.why
    if trouble == "folder gone":
        os.rename(tmp_path.with_name("elsewhere"), tmp_path)


def test_a_file_that_is_put_back_does_not_mend_the_ledger_of_this_process(ledger: Ledger, tmp_path: Path) -> None:
    begun = begin(ledger)
    os.rename(ledger.path, tmp_path / "away.db")
    with pytest.raises(LedgerError):
        begun.write("snapshot")
    os.rename(tmp_path / "away.db", ledger.path)
    with pytest.raises(LedgerError):
        begun.write("snapshot")
    ledger.close()
    again = Ledger(ledger.path)
    assert [s.batch for s in again.unfinished(begun.lane.key)] == [1, 2]
    again.close()


@pytest.mark.parametrize("content", [b"not a database, " * 300, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_ledger_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError) as caught:
        Ledger(path)
    assert caught.value.code == "ledger.open"
    assert path.read_bytes() == content


def test_a_ledger_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no" / "ledger.db")


# -- a transaction that fails ---------------------------------------------------------------------------------------


def _fail_at(name: str, error: BaseException) -> None:
    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("ledger", name):
            raise error

    faults.install(hook)


@pytest.mark.parametrize("name", WRITES)
def test_an_error_in_a_transaction_leaves_the_file_as_it_was_and_breaks_the_ledger(ledger: Ledger, name: str) -> None:
    begun = begin(ledger)
    before = contents(ledger.path)
    _fail_at(name, sqlite3.OperationalError("disk I/O error"))
    with pytest.raises(LedgerError) as caught:
        begun.write(name)
    assert name in caught.value.what
    assert caught.value.why == "disk I/O error"
    faults.install()
    for other in WRITES:
        with pytest.raises(LedgerError):
            begun.write(other)
    ledger.close()
    assert contents(ledger.path) == before


@pytest.mark.parametrize("name", ["snapshot", "prepare", "done"])
def test_a_broken_ledger_shows_nothing_that_was_never_committed(ledger: Ledger, name: str) -> None:
    begun = begin(ledger)
    _fail_at(name, sqlite3.OperationalError("database or disk is full"))
    with pytest.raises(LedgerError):
        begun.write(name)
    assert [(s.batch, s.state) for s in ledger.unfinished(begun.lane.key)] == [(1, State.PREPARED), (2, State.OPEN)]
    assert ledger.totals(begun.lane.key) == Totals(0, 0, {}, {})
    assert ledger.prepared(begun.open) == []


@pytest.mark.parametrize("name", ["snapshot", "prepare", "done"])
def test_the_next_start_does_again_what_a_failed_transaction_did_not(ledger: Ledger, name: str) -> None:
    begun = begin(ledger)
    _fail_at(name, sqlite3.OperationalError("disk I/O error"))
    with pytest.raises(LedgerError):
        begun.write(name)
    faults.install()
    ledger.close()
    begun.ledger = Ledger(ledger.path)
    begun.write(name)
    begun.ledger.close()


def test_an_error_that_is_not_sqlites_leaves_nothing_behind_either(ledger: Ledger) -> None:
    begun = begin(ledger)
    before = contents(ledger.path)

    def broken_frontier(acked: int, batches: object) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.done(begun.prepared, "out", {}, 1, broken_frontier)
    with pytest.raises(UnicodeEncodeError):
        ledger.take(begun.lane, ranges("not utf-8 \udcff"))
    with pytest.raises(TypeError):
        ledger.prepare(begun.open, 1, [PREPARED, Prepared("two", "h", "files", {}, {"staged": object()}, 0)])
    assert contents(ledger.path) == before
    assert [s.batch for s in ledger.unfinished(begun.lane.key)] == [1, 2]
    assert ledger.done(begun.prepared, "out", {}, 1, frontier) == [begun.prepared.ranges]


CHILD = """
import resource, sys
from pathlib import Path
from penstock.errors import LedgerError
from penstock.ledger import Ledger
from penstock.ranges import Range, Ranges
ledger = Ledger(Path(sys.argv[1]))
lane = ledger.lane("p", "in")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
while True:
    try:
        s, _ = ledger.take(lane, Ranges((Range("x" * 20_000, {"size": 1}),), 0))
    except LedgerError as e:
        try:
            ledger.retry(s)
        except LedgerError:
            print("refused", e.why, flush=True)
        break
    print(s.batch, flush=True)
"""


def test_what_take_returned_is_on_disk_and_what_the_disk_refused_is_not(tmp_path: Path) -> None:
    """The kernel itself refuses to let the file grow, as a full disk would."""
    path = tmp_path / "ledger.db"
    child = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    *taken, refused = child.stdout.splitlines()
    assert refused.startswith("refused")
    assert taken
    again = Ledger(path)
    assert [str(s.batch) for s in again.unfinished(again.lane("p", "in").key)] == taken
    again.close()


# -- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("X7", safeguard="version")
def test_a_newer_ledger_is_refused_untouched(ledger: Ledger) -> None:
    Begun(ledger)
    ledger.close()
    with sqlite3.connect(ledger.path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    before, raw = contents(ledger.path), ledger.path.read_bytes()
    with pytest.raises(UsageError) as caught:
        Ledger(ledger.path)
    assert caught.value.code == "state.version"
    assert "99" in caught.value.what
    assert contents(ledger.path) == before
    assert ledger.path.read_bytes() == raw
    faults.install(off=["version"])
    Ledger(ledger.path).close()
    assert contents(ledger.path) != before  # taken over: the fence is higher
