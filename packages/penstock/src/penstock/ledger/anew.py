"""A lane that goes back: `rewind` and `reset`, each one transaction with a row in the audit, and what a person does to a running engine.

A lane that goes back gets a new epoch, so that every hash is new and whatever is read again is delivered again, once. Totals stay: they
are what was done. Nothing here may run beside the lane itself.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import UsageError
from penstock.ledger.database import Database
from penstock.ledger.replays import replays
from penstock.ranges import Known


@dataclass(frozen=True)
class Forgotten:
    """What a reset has given up."""

    batches: int  # that were begun and not prepared
    dead_letters: int  # that were open


class Anew(Database):
    """The part of the ledger that is about going back."""

    def sources(self, pipeline: str) -> list[str]:
        """The sources of a pipeline that the ledger knows."""
        rows = self._read("SELECT source FROM lane WHERE pipeline = ? ORDER BY source", pipeline)
        return [name for (name,) in rows if not replays(name)]

    def rewind(
        self, pipeline: str, source: str, known: Known | None = None, why: Mapping[str, Any] | None = None
    ) -> None:
        """Everything that the source has behind what is `known` is read again, under a new epoch; without it, all that the source still
        has. Only while no batch is unfinished."""
        with self._write("rewind") as db:
            lane, acked = self._row(db, pipeline, source)
            self._refuse(db, lane, f"{pipeline}/{source}", "rewound", "open", "prepared", "taken")
            self._stand(db, lane, acked, known)
            self._note(db, pipeline, "rewind", why)

    def reset(self, pipeline: str, source: str, why: Mapping[str, Any]) -> Forgotten:
        """The lane begins as if it had never run, under a new epoch. Only while no batch is prepared: that one may be visible already."""
        with self._write("reset") as db:
            lane, acked = self._row(db, pipeline, source)
            self._refuse(db, lane, f"{pipeline}/{source}", "reset", "prepared", "taken")
            batches = db.execute(
                "UPDATE snapshot SET state = 'dropped' WHERE lane = ? AND state = 'open'", (lane,)
            ).rowcount
            db.execute("DELETE FROM nack WHERE lane = ? AND state = 'held'", (lane,))
            letters = db.execute(
                "UPDATE nack SET state = 'dropped' WHERE lane = ? AND state = 'open'", (lane,)
            ).rowcount
            db.execute("DELETE FROM gate WHERE lane = ?", (lane,))
            db.execute("UPDATE lane SET error = NULL WHERE id = ?", (lane,))
            self._stand(db, lane, acked, None)
            self._note(db, pipeline, "reset", {**why, "batches": batches, "dead_letters": letters})
        return Forgotten(batches, letters)

    def decided(self, pipeline: str, what: str, detail: Mapping[str, Any]) -> None:
        """What a person had a running engine do."""
        with self._write("audit") as db:
            self._note(db, pipeline, what, detail)

    def _row(self, db: sqlite3.Connection, pipeline: str, source: str) -> tuple[int, int]:
        db.execute(
            "INSERT OR IGNORE INTO lane (pipeline, source, epoch) SELECT ?, ?, value FROM meta WHERE key = 'epoch'",
            (pipeline, source),
        )
        (lane, acked) = db.execute(
            "SELECT id, acked_batch FROM lane WHERE pipeline = ? AND source = ?", (pipeline, source)
        ).fetchone()
        return lane, acked

    def _refuse(self, db: sqlite3.Connection, lane: int, name: str, done: str, *states: str) -> None:
        marks = ", ".join("?" * len(states))
        found = db.execute(
            f"SELECT batch, state FROM snapshot WHERE lane = ? AND state IN ({marks}) ORDER BY batch", (lane, *states)
        ).fetchone()
        if found is not None:
            raise UsageError(
                f"{name} has an unfinished batch and can't be {done}",
                code="state.unfinished",
                why=f"batch {found[0]} is {found[1]}",
                hint="run the pipeline with --once first, so that recovery finishes it; where a record is held, correct the cause before"
                " that, or leave it out with penstock pipelines skip",
            )

    def _stand(self, db: sqlite3.Connection, lane: int, acked: int, known: Known | None) -> None:
        """Every batch that told of these strands is settled, or was given up: they count as acked."""
        db.execute("DELETE FROM strand WHERE lane = ?", (lane,))
        if known is not None:
            db.executemany(
                "INSERT INTO strand (lane, name, range, batch) VALUES (?, ?, ?, ?)",
                (
                    (lane, name, json.dumps(r.to_json(), separators=(",", ":")), acked)
                    for name, r in known.strands.items()
                ),
            )
        next_seq = 0 if known is None else known.next_seq
        db.execute("UPDATE lane SET epoch = epoch + 1, next_seq = max(next_seq, ?) WHERE id = ?", (next_seq, lane))

    def _note(self, db: sqlite3.Connection, pipeline: str, what: str, detail: Mapping[str, Any] | None) -> None:
        if detail is not None:
            row = (time.time_ns() // 1_000_000, pipeline, what, json.dumps(detail, separators=(",", ":")))
            db.execute("INSERT INTO audit (at, pipeline, what, detail) VALUES (?, ?, ?, ?)", row)
