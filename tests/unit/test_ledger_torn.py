"""Kill point K16: a write of the ledger that is torn at any frame. What is opened afterwards has all of the last transaction, or
nothing of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.ledger import Ledger, Nack, NackState, Prepared
from penstock.ranges import Range, Ranges
from penstock.testing import faults

WAL_HEAD, FRAME_HEAD = 32, 24
NACKS = [Nack(n, 0, "out", f"id {n}", b"3", "node", "code", "x" * 300, 0, NackState.HELD) for n in range(40)]


@dataclass(frozen=True)
class Torn:
    """A ledger's files before and after its last transaction, and what they say."""

    database: bytes
    short: bytes  # the write-ahead log before it
    long: bytes  # and after it
    before: list[str]
    during: list[str]  # the files as they were when it was about to commit
    after: list[str]

    @property
    def frame(self) -> int:
        return FRAME_HEAD + int.from_bytes(self.long[8:12], "big")


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    faults.install()


def rows(folder: Path) -> list[str]:
    """Everything that the ledger says after it was opened, but for the fence, which each opening raises."""
    Ledger(folder / "ledger.db").close()
    db = sqlite3.connect(folder / "ledger.db")
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        return [line for line in db.iterdump() if 'INSERT INTO "meta"' not in line]
    finally:
        db.close()


def copied(state: Path, to: Path) -> list[str]:
    to.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copy(state / name, to / name)
    return rows(to)


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Torn:
    top = tmp_path_factory.mktemp("torn")
    state = top / "state"
    state.mkdir()
    ledger = Ledger(state / "ledger.db")
    lane = ledger.lane("p", "in")
    done, _ = ledger.take(lane, Ranges((Range("a", {"size": 1}),), next_seq=1))
    ledger.prepare(done, 1, [Prepared("out", "hash a", "files", {}, {"rows": 1}, 0)])
    ledger.done(done, "out", {}, 1, frontier)
    batch, _ = ledger.take(lane, Ranges((Range("b", {"size": 50}),), next_seq=50))
    wal = state / "ledger.db-wal"
    short, before = wal.read_bytes(), copied(state, top / "before")
    during: list[list[str]] = []

    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("ledger", "prepare"):
            during.append(copied(state, top / "during"))

    faults.install(hook)
    ledger.prepare(batch, 50, [Prepared("out", "hash b", "files", {"path": "x" * 5000}, {"rows": 10}, 0)], nacks=NACKS)
    faults.install()
    long, after = wal.read_bytes(), copied(state, top / "after")
    made = Torn((state / "ledger.db").read_bytes(), short, long, before, during[0], after)
    ledger.close()
    return made


def opened(torn: Torn, folder: Path, wal: bytes, database: bytes | None = None) -> list[str]:
    folder.mkdir()
    (folder / "ledger.db").write_bytes(torn.database if database is None else database)
    (folder / "ledger.db-wal").write_bytes(wal)
    return rows(folder)


def test_the_last_transaction_is_large_enough_to_be_torn(torn: Torn) -> None:
    assert torn.before != torn.after
    assert torn.long.startswith(torn.short), "it was appended to, not begun anew"
    assert (len(torn.long) - len(torn.short)) // torn.frame >= 5
    assert (len(torn.long) - WAL_HEAD) % torn.frame == 0


def test_a_copy_made_while_the_transaction_was_open_has_nothing_of_it(torn: Torn) -> None:
    assert torn.during == torn.before


@pytest.mark.parametrize("fill", ["nothing", "zeros", "garbage"])
def test_a_write_torn_at_any_frame_is_there_wholly_or_not_at_all(torn: Torn, tmp_path: Path, fill: str) -> None:
    noise = random.Random(5)
    first, end = len(torn.short), len(torn.long)
    boundaries = range(first, end, torn.frame)
    inside = [at + by for at in boundaries for by in (1, FRAME_HEAD - 1, FRAME_HEAD, FRAME_HEAD + 700, torn.frame - 1)]
    for cut in sorted({*boundaries, *inside}):
        missing = end - cut
        rest = {"nothing": b"", "zeros": bytes(missing), "garbage": noise.randbytes(missing)}[fill]
        expected = torn.after if torn.long[:cut] + rest == torn.long else torn.before
        assert opened(torn, tmp_path / f"{cut}", torn.long[:cut] + rest) == expected, cut
    assert opened(torn, tmp_path / "whole", torn.long) == torn.after


def test_frames_that_reached_the_disk_in_another_order_are_not_half_a_transaction(torn: Torn, tmp_path: Path) -> None:
    """Any one frame is missing, the later ones are there, the one that commits included."""
    for at in range(len(torn.short), len(torn.long), torn.frame):
        wal = bytearray(torn.long)
        wal[at : at + torn.frame] = bytes(torn.frame)
        assert opened(torn, tmp_path / f"{at}", bytes(wal)) == torn.before, at


def test_a_checkpoint_that_was_torn_is_done_again_from_the_log(torn: Torn, tmp_path: Path) -> None:
    """Its pages were being written to the ledger itself: whatever stands there, the log has them."""
    page = torn.frame - FRAME_HEAD
    database = bytearray(torn.database)
    frames = range(WAL_HEAD, len(torn.long), torn.frame)
    numbers = {int.from_bytes(torn.long[at : at + 4], "big") for at in frames}
    for number in numbers - {1}:
        start = (number - 1) * page
        database[start : start + page] = random.Random(number).randbytes(page)[: len(database[start : start + page])]
    assert opened(torn, tmp_path / "torn", torn.long, bytes(database)) == torn.after


def test_without_its_log_the_ledger_has_lost_the_transaction(torn: Torn, tmp_path: Path) -> None:
    """The control: these tests would see it."""
    assert opened(torn, tmp_path / "control", torn.short) == torn.before != torn.after
