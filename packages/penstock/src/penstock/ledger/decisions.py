"""What a person decides about records, written beside a running engine or without one: one transaction, with a row in the audit.

The fence is not raised: an engine that runs goes on, and sees what was decided at its next look. A ledger of another version is not
touched.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import LedgerError
from penstock.ledger import readonly
from penstock.ledger.api import NackState
from penstock.ledger.look import Wanted, condition
from penstock.testing import faults

WAIT = 10.0  # seconds for an engine that is writing


def drop(path: Path, wanted: Sequence[Wanted], why: Mapping[str, Any]) -> dict[str, int]:
    """Open dead letters that nobody wants to see again. How many there were of each pipeline; those in other states stay as they are."""
    with _decided(path) as db:
        found = _open(db, wanted)
        db.executemany(
            "UPDATE nack SET state = ? WHERE lane = ? AND seq = ? AND part = ? AND destination = ?",
            ((NackState.DROPPED, *key) for key in found),
        )
        counts = Counter(found.values())
        for pipeline, n in counts.items():
            _note(db, pipeline, "drop", {"dead_letters": n, **why})
    return dict(counts)


def replay(path: Path, wanted: Sequence[Wanted], start: str, why: Mapping[str, Any]) -> dict[str, int]:
    """Open dead letters that are to go through their pipeline again. How many there are of each pipeline. One that waits for a replay
    already is left to that: a batch may have it."""
    with _decided(path) as db:
        waiting = " AND NOT EXISTS (SELECT 1 FROM replay r WHERE r.number = n.replay AND r.state = 'asked')"
        found = _open(db, wanted, waiting)
        for lane in sorted({key[0] for key in found}):
            number = db.execute(
                "INSERT INTO replay (lane, start, state, at) VALUES (?, ?, 'asked', ?)", (lane, start, _now())
            ).lastrowid
            db.executemany(
                "UPDATE nack SET replay = ? WHERE lane = ? AND seq = ? AND part = ? AND destination = ?",
                ((number, *key) for key in found if key[0] == lane),
            )
        counts = Counter(found.values())
        for pipeline, n in counts.items():
            _note(db, pipeline, "replay", {"dead_letters": n, "from": start, **why})
    return dict(counts)


def skip(path: Path, lane: int, pipeline: str, strand: str, number: int, why: Mapping[str, Any]) -> bool:
    """A record that is to be settled without being sent, from the next batch on. Without a strand the number is its seq. False: it was to
    be already."""
    with _decided(path) as db:
        changed = db.execute(
            "INSERT OR IGNORE INTO skip VALUES (?, ?, ?, ?, ?, 'asked', ?)",
            (lane, strand, number, None if strand else number, str(why.get("reason", "")), _now()),
        ).rowcount
        if changed:
            _note(db, pipeline, "skip", dict(why))
    return bool(changed)


def note(path: Path, pipeline: str, what: str, detail: Mapping[str, Any]) -> None:
    """Only that somebody did something."""
    with _decided(path) as db:
        _note(db, pipeline, what, detail)


def _open(db: sqlite3.Connection, wanted: Sequence[Wanted], more: str = "") -> dict[tuple[int, int, int, str], str]:
    """Open dead letters, and the pipeline of each."""
    found = {}
    for w in wanted:
        with condition(w):
            for *key, pipeline in db.execute(
                f"SELECT n.lane, n.seq, n.part, n.destination, l.pipeline FROM nack n{w.sql} AND n.state = 'open'{more}",
                vars(w),
            ):
                found[tuple(key)] = pipeline
    return found


def _now() -> int:
    return time.time_ns() // 1_000_000


def _note(db: sqlite3.Connection, pipeline: str, what: str, detail: Mapping[str, Any]) -> None:
    db.execute(
        "INSERT INTO audit VALUES (?, ?, ?, ?)",
        (_now(), pipeline, what, json.dumps(detail, separators=(",", ":"))),
    )


@contextmanager
def _decided(path: Path) -> Iterator[sqlite3.Connection]:
    """All of it or nothing, and on disk when this ends."""
    readonly.ask(path, lambda _: None)  # says so where there is none, or one of another version
    uri = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=WAIT)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA foreign_keys=ON")
            db.execute("BEGIN IMMEDIATE")
            yield db
            faults.reach("ledger", "decision")
            db.execute("COMMIT")
    except sqlite3.Error as e:
        raise LedgerError(
            "The ledger could not write the decision",
            code="ledger.write",
            where=str(path),
            why=str(e),
            hint="nothing was changed; free space, or try again when the engine is not so busy",
        ) from e
