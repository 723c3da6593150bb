"""Ledgers of other versions: one of the version before is opened with all it holds, a newer one is refused untouched."""

from __future__ import annotations

import shutil
import sqlite3
from importlib import resources
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError, UsageError
from penstock.ledger import Kind, Ledger, Prepared, State
from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges
from penstock.testing import faults

GOLDEN = Path(__file__).parents[1] / "data" / "state-v1" / "ledger.db"
VERSION = len([r for r in resources.files("penstock.ledger.migrations").iterdir() if r.name.endswith(".sql")])
EPOCH = 205196022026844

# A batch that a Penstock of version 1 had prepared when it died, and one it had only taken.
UNFINISHED = """
INSERT INTO snapshot VALUES (1, 3, 205196022026844, 'prepared', '{"next_seq":36,"ranges":[["c",{"to":9},24,9]]}', 7, 4);
INSERT INTO snapshot VALUES (1, 4, 205196022026844, 'open', '{"next_seq":48,"ranges":[["d",{"to":9},36,9]]}', 8, NULL);
INSERT INTO attempt VALUES (1, 3, 1, 'third', 1, 7, NULL), (1, 4, 1, 'fourth', 1, 8, 'no space'), (1, 4, 2, 'fifth', 1, 9, NULL);
INSERT INTO delivery VALUES (1, 3, 'out', 'h3', 'prepared', 'files', '{"path": "./out"}', '{"rows": 3}', 1, NULL);
INSERT INTO strand VALUES (1, 'c', '["c",{"to":9},24,9]', 3), (1, 'd', '["d",{"to":9},36,9]', 4);
UPDATE lane SET next_batch = 5, next_seq = 48;
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN, tmp_path / "ledger.db"))


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def execute(path: Path, script: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()


def version(path: Path) -> object:
    return query(path, "PRAGMA user_version")[0][0]


def dump(path: Path) -> list[str]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return list(db.iterdump())
    finally:
        db.close()


def columns(path: Path) -> dict[str, list[str]]:
    tables = [str(name) for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {t: [str(row[1]) for row in query(path, f"PRAGMA table_info({t})")] for t in tables}


@pytest.mark.contract("X7", reason="golden file: the migration itself is what is tried")
def test_a_ledger_of_version_1_is_opened_with_all_it_holds(path: Path) -> None:
    assert version(path) == 1
    execute(path, UNFINISHED)
    old = columns(path)
    before = {t: query(path, f"SELECT {', '.join(names)} FROM {t}") for t, names in old.items() if t != "meta"}
    Ledger(path).close()
    assert version(path) == VERSION
    for t, rows in before.items():
        assert query(path, f"SELECT {', '.join(old[t])} FROM {t}") == rows
    assert query(path, "SELECT key, value FROM meta ORDER BY key") == [("epoch", EPOCH), ("fence", 2)]


@pytest.mark.contract("X7", reason="golden file: the migration itself is what is tried")
def test_a_migrated_ledger_is_made_as_a_new_one_is(path: Path) -> None:
    """Whatever its first version was, a ledger has the same tables with the same columns in the same order."""
    Ledger(path).close()
    new = path.with_name("new.db")
    Ledger(new).close()
    assert columns(path) == columns(new)


@pytest.mark.contract("X7", reason="golden file: the migration itself is what is tried")
def test_what_version_1_delivered_is_known_and_not_delivered_again(path: Path) -> None:
    ledger = Ledger(path)
    lane = ledger.lane("p", "in")
    assert (lane.key, lane.epoch, lane.next_batch, lane.acked_batch, lane.known.next_seq) == (1, EPOCH, 3, 2, 24)
    assert lane.known.acked == {"/tmp/g/in/a.txt", "/tmp/g/in/b.txt"}
    assert lane.known.strands["/tmp/g/in/b.txt"].base == 12
    assert not any(r.cut for r in lane.known.strands.values())
    totals = ledger.totals(lane.key)
    assert (totals.read, totals.acked, totals.delivered, totals.filtered) == (10, 10, {"out": 10}, {"out": 0})
    assert totals.dead_lettered == totals.discarded == totals.produced == {"out": 0}
    assert ledger.unfinished(lane.key) == []
    assert ledger.nacks(lane.key) == []
    assert ledger.rings(lane.key) == {}
    assert ledger.advance(lane.key, frontier) == []
    ledger.close()


@pytest.mark.contract("X7", reason="golden file: the hash is what every version has to give")
@pytest.mark.parametrize("batch", [1, 2])
def test_a_batch_of_version_1_has_the_hash_it_had(path: Path, batch: int) -> None:
    ledger = Ledger(path)
    s = ledger.snapshot(1, batch)
    assert [d.hash for d in ledger.prepared(s)] == [delivery_hash("p", "in", s.epoch, "out", s.ranges)]
    ledger.close()


@pytest.mark.contract("X7", reason="golden file: the migration itself is what is tried")
def test_what_version_1_left_unfinished_is_finished_by_this_one(path: Path) -> None:
    execute(path, UNFINISHED)
    ledger = Ledger(path)
    third, fourth = ledger.unfinished(1)
    assert [(s.batch, s.state, s.parent, s.reason, s.acked_to) for s in (third, fourth)] == [
        (3, State.PREPARED, None, "", None),
        (4, State.OPEN, None, "", None),
    ]
    [delivery] = ledger.prepared(third)
    assert delivery == Prepared("out", "h3", "files", {"path": "./out"}, {"rows": 3}, 1, kind=Kind.DESTINATION)
    assert ledger.done(third, "out", {"written": 3}, 3, frontier) == [Ranges((Range("c", {"to": 9}, 24, 9),), 36)]

    assert ledger.attempted(fourth) == []  # version 1 did not say who had staged something
    assert ledger.deaths(fourth) == 1
    assert ledger.retry(fourth).number == 3
    first, second = ledger.split(fourth, *fourth.ranges.split(40), "killed")
    for half in (first, second):
        ledger.prepare(half, 2, [Prepared("out", f"h{half.batch}", "files", {}, {}, 0)])
        assert ledger.done(half, "out", {}, 2, frontier) == [half.ranges]
    totals = ledger.totals(1)
    assert (totals.read, totals.acked, totals.delivered, totals.filtered) == (18, 18, {"out": 17}, {"out": 1})
    ledger.close()


@pytest.mark.contract("X7", reason="a migration is one transaction; SQLite itself is what would have to fail")
def test_a_migration_that_fails_half_way_leaves_version_1_as_it_was(path: Path) -> None:
    execute(path, "CREATE TABLE audit (something_else TEXT)")  # the last table that the step makes
    before = dump(path)
    with pytest.raises(LedgerError) as caught:
        Ledger(path)
    assert caught.value.code == "ledger.open"
    assert (version(path), dump(path)) == (1, before)
    execute(path, "DROP TABLE audit")
    Ledger(path).close()
    assert version(path) == VERSION


@pytest.mark.contract("X7", safeguard="version")
@pytest.mark.parametrize("newer", [VERSION + 1, 99])
def test_a_ledger_of_the_next_version_is_refused_untouched(tmp_path: Path, newer: int) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.take(ledger.lane("p", "in"), Ranges((Range("a", {}),), 1))
    ledger.close()
    execute(path, f"PRAGMA user_version={newer}")
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        Ledger(path)
    assert caught.value.code == "state.version"
    assert f"version {newer};" in caught.value.what
    assert f"up to {VERSION}" in caught.value.what
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.db"]
    faults.install(off=["version"])
    Ledger(path).close()
    assert path.read_bytes() != before
