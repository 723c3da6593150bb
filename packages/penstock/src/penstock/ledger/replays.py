"""Dead letters that go through their pipeline again: what was asked for, what comes next, and what became of them.

A replay is asked for beside the engine (`decisions.py`) and carried out by a lane of its own, whose name is that of the source and
`SUFFIX`; no connector's id can be that. Its batches are like any other; what is different is here: a record that fails again
is the same dead letter with one more try, one that does not is `replayed`, in the transaction that ends its batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.ledger.database import Database
from penstock.ranges import Range, Ranges
from penstock.testing import faults

if TYPE_CHECKING:
    from penstock.ledger.api import Nack, Snapshot

SUFFIX = "~replay"
LETTERS = 10_000  # of one batch
KEEP_ERROR = 2000  # characters of an error's text


# The file with the dead letters of a batch is in its place when the batch is done.
_IN_PLACE = "NOT EXISTS (SELECT 1 FROM snapshot s WHERE s.lane = n.lane AND s.batch = n.batch AND s.state = 'prepared')"

_WAITS = "n.lane = r.lane AND n.replay = r.number AND n.state = 'open'"


@dataclass(frozen=True)
class Chosen:
    """Dead letters for one batch: of one replay, for one destination, as far as they can be read together."""

    replay: int
    start: str  # 'start' or 'failed'
    destination: str  # "" = every one
    node: str  # what failed, where it begins there; else ""
    letters: tuple[tuple[int, int, int], ...]  # seq, part and the batch it is of


def replays(source: str) -> str:
    """The source whose dead letters a lane replays; "" for any other lane."""
    return source.removesuffix(SUFFIX) if source.endswith(SUFFIX) else ""


class Replays(Database):
    """The part of the ledger that is about replays. Each method that writes is one transaction, or is called inside of one."""

    def replays_asked(self) -> set[tuple[str, str]]:
        """The pipelines and sources of which dead letters can be replayed now, or have a batch of a replay that is unfinished."""
        rows = self._read(
            "SELECT l.pipeline, l.source FROM replay r JOIN lane l ON l.id = r.lane WHERE r.state = 'asked'"
            f" AND (EXISTS (SELECT 1 FROM nack n WHERE {_WAITS} AND {_IN_PLACE})"
            f" OR NOT EXISTS (SELECT 1 FROM nack n WHERE {_WAITS}))"
            " UNION SELECT pipeline, source FROM lane l WHERE source LIKE '%' || ?1 AND EXISTS"
            " (SELECT 1 FROM snapshot s WHERE s.lane = l.id AND s.state IN ('open', 'prepared'))",
            SUFFIX,
        )
        return {(pipeline, source.removesuffix(SUFFIX)) for pipeline, source in rows}

    def next_letters(self, lane: int, *, one_batch: bool) -> Chosen | None:
        """What is to be replayed next of this lane's dead letters; None: nothing is left, and what was asked for is done. With
        `one_batch` only letters of one batch come together."""
        for number, start in self._read(
            "SELECT number, start FROM replay WHERE lane = ? AND state = 'asked' ORDER BY number", lane
        ):
            first = self._read(
                f"SELECT destination, node, batch FROM nack n WHERE lane = ? AND replay = ? AND state = 'open' AND {_IN_PLACE}"
                " ORDER BY seq, part, destination LIMIT 1",
                lane,
                number,
            )
            if not first:
                self._ended(lane, number)
                continue
            [(destination, node, batch)] = first
            node = node if start == "failed" else ""
            letters = self._read(
                f"SELECT seq, part, batch FROM nack n WHERE lane = ?1 AND replay = ?2 AND state = 'open' AND {_IN_PLACE}"
                " AND destination = ?3 AND (?4 = '' OR node = ?4) AND (?5 IS NULL OR batch = ?5) ORDER BY seq, part LIMIT ?6",
                lane,
                number,
                destination,
                node,
                batch if one_batch else None,
                LETTERS,
            )
            return Chosen(number, start, destination, node, tuple(letters))
        return None

    def _ended(self, lane: int, number: int) -> None:
        """Unless something is left that has to wait for its batch."""
        with self._write("ended replay") as db:
            db.execute(
                "UPDATE replay SET state = 'done' WHERE number = ?1 AND NOT EXISTS"
                " (SELECT 1 FROM nack WHERE lane = ?2 AND replay = ?1 AND state = 'open')",
                (number, lane),
            )

    def cannot_replay(
        self, lane: int, chosen: Chosen, letters: Iterable[tuple[int, int, int]], code: str, error: str
    ) -> None:
        """These stay open; they are not part of the replay any longer."""
        with self._write("replay") as db:
            db.executemany(
                "UPDATE nack SET tries = tries + 1, replay = NULL, code = ?1,"
                " error = CASE code WHEN ?1 THEN error ELSE ?2 || ' (before: ' || error || ')' END"
                " WHERE lane = ?3 AND seq = ?4 AND part = ?5 AND destination = ?6 AND replay = ?7 AND state = 'open'",
                ((code, error, lane, seq, part, chosen.destination, chosen.replay) for seq, part, _ in letters),
            )

    def taken_back(self, lane: int, chosen: Chosen) -> bool:
        """Whether one of these does not wait for its replay any more: somebody has dropped it."""
        return any(
            not self._read(
                "SELECT 1 FROM nack WHERE lane = ? AND seq = ? AND part = ? AND destination = ? AND replay = ? AND state = 'open'",
                lane,
                seq,
                part,
                chosen.destination,
                chosen.replay,
            )
            for seq, part, _ in chosen.letters
        )

    def _original(self, db: sqlite3.Connection, lane: int) -> int | None:
        """The lane whose dead letters this one replays; None for a lane that replays nothing."""
        (pipeline, source) = db.execute("SELECT pipeline, source FROM lane WHERE id = ?", (lane,)).fetchone()
        if not (of := replays(source)):
            return None
        (key,) = db.execute("SELECT id FROM lane WHERE pipeline = ? AND source = ?", (pipeline, of)).fetchone()
        return int(key)

    def _failed_again(self, db: sqlite3.Connection, s: Snapshot, original: int, nacks: Iterable[Nack]) -> None:
        """What a replay could not deliver either stays open. A part, or a destination, that had no dead letter before gets one, beside
        that of the record it came from."""
        of = _of(db, s)
        targets = db.execute(
            "SELECT destination FROM delivery WHERE lane = ? AND batch = ? AND kind = 'destination'", (s.lane, s.batch)
        ).fetchall()
        same = {"", of["destination"], *(targets[0] if len(targets) == 1 else ())}  # the only one is every one
        for n in nacks:
            destination = of["destination"] if n.destination in same else n.destination
            again = (n.node, n.code, n.error[:KEEP_ERROR], n.at)
            changed = db.execute(
                "UPDATE nack SET tries = tries + 1, replay = NULL, node = ?, code = ?, error = ?, at = ?"
                " WHERE lane = ? AND seq = ? AND part = ? AND destination = ? AND state IN ('open', 'dropped')",
                (*again, original, n.seq, n.part, destination),
            ).rowcount
            if not changed:
                db.execute(
                    "INSERT OR REPLACE INTO nack (lane, seq, part, destination, batch, id, position, node, code, error, at, state, tries)"
                    " SELECT lane, seq, ?1, ?2, batch, ?3, position, ?4, ?5, ?6, ?7, 'open', tries + 1 FROM nack"
                    " WHERE lane = ?8 AND seq = ?9 ORDER BY replay = ?10 DESC, part, destination LIMIT 1",
                    (n.part, destination, n.id, *again, original, n.seq, of["replay"]),
                )

    def _replayed(self, db: sqlite3.Connection, s: Snapshot, original: int) -> None:
        """The batch is done: what did not fail again has reached its destinations."""
        if faults.safeguard("replayed-with-done"):
            self._mark(db, _of(db, s), original)

    def mark_replayed(self, s: Snapshot) -> None:
        """Only where the safeguard is off: a transaction too late."""
        with self._write("replayed") as db:
            if (original := self._original(db, s.lane)) is not None:
                self._mark(db, _of(db, s), original)

    def _mark(self, db: sqlite3.Connection, of: dict[str, Any], original: int) -> None:
        db.executemany(
            "UPDATE nack SET state = 'replayed' WHERE lane = ? AND seq = ? AND part = ? AND destination = ?"
            " AND replay = ? AND state IN ('open', 'dropped')",  # dropped when it was on its way already
            ((original, seq, part, of["destination"], of["replay"]) for seq, part, _ in of["letters"]),
        )


def _of(db: sqlite3.Connection, s: Snapshot) -> dict[str, Any]:
    """What the ranges of a replay say."""
    (text,) = db.execute("SELECT ranges FROM snapshot WHERE lane = ? AND batch = ?", (s.lane, s.batch)).fetchone()
    ranges = Ranges.from_json(text)
    return {**ranges[-1].position, "letters": [x for r in ranges for x in letters_in(r)]}


def letters_in(r: Range) -> list[tuple[int, int, int]]:
    """Seq, part and batch of each dead letter of a replay. Both halves of one that was cut name all of them."""
    of = r.position.get("letters", ())
    return [tuple(x) for x in of if (r.low is None or x[0] >= r.low) and (r.high is None or x[0] < r.high)]
