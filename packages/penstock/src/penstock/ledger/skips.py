"""Records that a person wants to be settled without being sent. Asked for beside the engine (`decisions.py`), done by the lane that comes
to them: the record becomes a batch of its own, which is done before it is read, and counts as discarded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import LedgerError
from penstock.ledger.replays import Replays
from penstock.ranges import Ranges

if TYPE_CHECKING:
    from penstock.ledger.api import Snapshot


@dataclass(frozen=True)
class Skip:
    """A record that is to be skipped: its number in a strand; without one, its seq."""

    strand: str
    number: int


class Skips(Replays):
    def skips(self, lane: int) -> list[Skip]:
        """The records that are to be skipped and have not been yet."""
        rows = self._read("SELECT strand, number FROM skip WHERE lane = ? AND state = 'asked' ORDER BY 1, 2", lane)
        return [Skip(strand, number) for strand, number in rows]

    def skip(
        self,
        s: Snapshot,
        skip: Skip,
        seq: int,
        destinations: Collection[str],
        frontier: Callable[[int, Mapping[int, bool]], int],
    ) -> list[Ranges]:
        """Settles an open batch that holds this one record. Returns what may be acked now, once."""
        with self._write("skip") as db:
            changed = db.execute(
                "UPDATE snapshot SET state = 'prepared', records = 1 WHERE lane = ? AND batch = ? AND state = 'open'",
                (s.lane, s.batch),
            ).rowcount
            if changed != 1:
                raise LedgerError(f"Batch {s.batch} is not open and can't be skipped", code="ledger.prepared")
            db.execute(
                "UPDATE nack SET state = 'dropped' WHERE lane = ? AND seq = ? AND state IN ('held', 'open')",
                (s.lane, seq),
            )
            for name in destinations:
                db.execute(
                    "INSERT INTO total (lane, destination, discarded) VALUES (?, ?, 1)"
                    " ON CONFLICT DO UPDATE SET discarded = discarded + 1",
                    (s.lane, name),
                )
            db.execute(
                "UPDATE skip SET state = 'done', seq = ? WHERE lane = ? AND strand = ? AND number = ?",
                (seq, s.lane, skip.strand, skip.number),
            )
            self._finish(db, s)
            return self._advance(db, s.lane, frontier)

    def _finish(self, db: sqlite3.Connection, s: Snapshot) -> None:
        raise NotImplementedError

    def _advance(
        self, db: sqlite3.Connection, lane: int, frontier: Callable[[int, Mapping[int, bool]], int]
    ) -> list[Ranges]:
        raise NotImplementedError
