"""What the ledger writes down, step by step: each method is one transaction.

All methods may be called from any thread. How a transaction is made safe is in `database.py`.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import LedgerError
from penstock.ledger.anew import Anew
from penstock.ledger.api import (
    Attempt,
    Kind,
    Lane,
    Late,
    Nack,
    NackState,
    Prepared,
    Snapshot,
    State,
    TargetRef,
    Totals,
)
from penstock.ledger.replays import KEEP_ERROR
from penstock.ledger.skips import Skips
from penstock.ranges import Known, Range, Ranges
from penstock.testing import faults

KEEP_BATCHES = 1000  # rows of this many settled batches stay for people to look at, unless a lane was told otherwise

Frontier = Callable[[int, Mapping[int, bool]], int]
BY_A_PERSON = ("skip", "step")  # reasons of a split: nothing was tried, so what is held stays
_SNAPSHOT = "batch, epoch, state, ranges, batch_time, parent, reason, acked_to"
_DELIVERY = "destination, hash, plugin, settings, staged, filtered, receipt, kind, produced, nacked, gate, held"


class Ledger(Anew, Skips):
    """The durable account of snapshots, deliveries, frontiers, acks and dead letters."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._keeps: dict[int, int] = {}

    def keep(self, lane: int, batches: int) -> None:
        """How many settled batches of a lane stay for people to look at. Not stored: each start says it anew."""
        self._keeps[lane] = batches

    # -- lanes ----------------------------------------------------------------------------------------------------

    def lane(self, pipeline: str, source: str) -> Lane:
        """Where this lane stands; a lane never seen before starts at the ledger's epoch."""
        if not self._read("SELECT 1 FROM lane WHERE pipeline = ? AND source = ?", pipeline, source):
            with self._write("lane") as db:
                db.execute(
                    "INSERT INTO lane (pipeline, source, epoch) SELECT ?, ?, value FROM meta WHERE key = 'epoch'",
                    (pipeline, source),
                )
        [(key, epoch, next_batch, next_seq, acked)] = self._read(
            "SELECT id, epoch, next_batch, next_seq, acked_batch FROM lane WHERE pipeline = ? AND source = ?",
            pipeline,
            source,
        )
        strands: dict[str, Range] = {}
        settled = set()
        for name, range_, batch in self._read("SELECT name, range, batch FROM strand WHERE lane = ?", key):
            strands[name] = Range.from_json(json.loads(range_))
            if batch <= acked:
                settled.add(name)
        return Lane(key, pipeline, source, epoch, next_batch, acked, Known(strands, next_seq, settled))

    # -- batches --------------------------------------------------------------------------------------------------

    def unfinished(self, lane: int) -> list[Snapshot]:
        """Snapshots that are neither done nor given up, in order."""
        return self._snapshots("lane = ? AND state IN ('open', 'prepared', 'taken')", lane)

    def snapshot(self, lane: int, batch: int) -> Snapshot:
        """One row as it is now."""
        [found] = self._snapshots("lane = ? AND batch = ?", lane, batch)
        return found

    def _snapshots(self, where: str, lane: int, *args: Any) -> list[Snapshot]:
        rows = self._read(f"SELECT {_SNAPSHOT} FROM snapshot WHERE {where} ORDER BY batch", lane, *args)
        return [
            Snapshot(lane, b, e, State(st), Ranges.from_json(r), t, parent, reason or "", acked_to)
            for b, e, st, r, t, parent, reason, acked_to in rows
        ]

    def records(self, s: Snapshot) -> int:
        [(records,)] = self._read("SELECT records FROM snapshot WHERE lane = ? AND batch = ?", s.lane, s.batch)
        return int(records or 0)

    def take(self, lane: Lane, ranges: Ranges, targets: Collection[TargetRef] = ()) -> tuple[Snapshot, Attempt]:
        """Writes a snapshot and its first attempt, in one transaction, before anything is read."""
        with self._write("snapshot") as db:
            return self._take(db, lane, ranges, targets, State.OPEN)

    def take_and_settle(
        self, lane: Lane, ranges: Ranges, targets: Collection[TargetRef], frontier: Frontier
    ) -> tuple[Snapshot, Attempt, list[Ranges]]:
        """At most once: the batch is settled before it is read, and never run again. Returns what may be acked now."""
        with self._write("snapshot") as db:
            s, attempt = self._take(db, lane, ranges, targets, State.TAKEN)
            return s, attempt, self._advance(db, lane.key, frontier)

    def _take(
        self, db: sqlite3.Connection, lane: Lane, ranges: Ranges, targets: Collection[TargetRef], state: State
    ) -> tuple[Snapshot, Attempt]:
        (batch, epoch) = db.execute("SELECT next_batch, epoch FROM lane WHERE id = ?", (lane.key,)).fetchone()
        s = Snapshot(lane.key, batch, epoch, state, ranges, _now())
        self._insert_snapshot(db, s)
        db.executemany("DELETE FROM strand WHERE lane = ? AND name = ?", ((lane.key, name) for name in ranges.forget))
        db.executemany(
            "INSERT OR REPLACE INTO strand VALUES (?, ?, ?, ?)",
            ((lane.key, r.strand, _json(r.to_json()), batch) for r in ranges),
        )
        db.execute(
            "UPDATE lane SET next_batch = ?, next_seq = max(next_seq, ?) WHERE id = ?",
            (batch + 1, ranges.next_seq, lane.key),
        )
        return s, self._insert_attempt(db, s, targets)

    def _insert_snapshot(self, db: sqlite3.Connection, s: Snapshot) -> None:
        db.execute(
            f"INSERT INTO snapshot (lane, {_SNAPSHOT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (s.lane, s.batch, s.epoch, s.state, s.ranges.to_json(), s.batch_time, s.parent, s.reason or None),
        )

    def retry(self, s: Snapshot, targets: Collection[TargetRef] = ()) -> Attempt:
        """One more attempt at a snapshot that is written down."""
        with self._write("attempt") as db:
            return self._insert_attempt(db, s, targets)

    def _insert_attempt(self, db: sqlite3.Connection, s: Snapshot, targets: Collection[TargetRef]) -> Attempt:
        (last,) = db.execute(
            "SELECT coalesce(max(number), 0) FROM attempt WHERE lane = ? AND batch = ?", (s.lane, s.batch)
        ).fetchone()
        attempt = Attempt(last + 1, secrets.token_hex(8))
        db.execute(
            "INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                s.lane,
                s.batch,
                attempt.number,
                attempt.id,
                self.fence,
                _now(),
                _json([[t.destination, t.plugin, dict(t.settings)] for t in targets]),
            ),
        )
        return attempt

    def failed(self, s: Snapshot, attempt: Attempt, error: str) -> None:
        """Why an attempt ended. One that has no such row was ended by the death of its process."""
        with self._write("failed attempt") as db:
            db.execute(
                "UPDATE attempt SET error = ? WHERE lane = ? AND batch = ? AND number = ?",
                (error[:KEEP_ERROR], s.lane, s.batch, attempt.number),
            )

    def deaths(self, s: Snapshot) -> int:
        """How many attempts at an unprepared snapshot ended without a word. Asked before the next one is written."""
        [(n,)] = self._read(
            "SELECT count(*) FROM attempt WHERE lane = ? AND batch = ? AND error IS NULL", s.lane, s.batch
        )
        return int(n)

    def attempted(self, s: Snapshot) -> list[TargetRef]:
        """Every destination that some attempt may have staged something at, as it was then."""
        rows = self._read("SELECT DISTINCT targets FROM attempt WHERE lane = ? AND batch = ?", s.lane, s.batch)
        return [TargetRef(d, p, st) for (targets,) in rows if targets for d, p, st in json.loads(targets)]

    def drop(self, s: Snapshot) -> None:
        """Gives up an unprepared snapshot whose input changed; its strands are taken anew."""
        with self._write("dropped snapshot") as db:
            self._leave_open(db, s, State.DROPPED)
            self._hold(db, s, None)
            db.execute("DELETE FROM strand WHERE lane = ? AND batch = ?", (s.lane, s.batch))

    def _leave_open(self, db: sqlite3.Connection, s: Snapshot, state: State) -> None:
        changed = db.execute(
            "UPDATE snapshot SET state = ? WHERE lane = ? AND batch = ? AND state = 'open'", (state, s.lane, s.batch)
        ).rowcount
        if changed != 1:
            raise LedgerError(f"Batch {s.batch} is prepared and can't be given up", code="ledger.prepared")

    def split(
        self, s: Snapshot, first: Ranges, second: Ranges, reason: str, held: Nack | None = None
    ) -> list[Snapshot]:
        """Two smaller batches stand for an unprepared one. What waits behind it gets later numbers, so that the order of
        numbers stays the order of records."""
        if not first or not second:
            raise LedgerError(f"Batch {s.batch} can't be split into itself and nothing", code="ledger.split")
        with self._write("split") as db:
            self._leave_open(db, s, State.SPLIT)
            if db.execute(
                "SELECT 1 FROM snapshot WHERE lane = ? AND batch > ? AND state IN ('prepared', 'done', 'taken')",
                (s.lane, s.batch),
            ).fetchone():
                raise LedgerError(f"A batch after {s.batch} is prepared, so it can't be split", code="ledger.prepared")
            (number,) = db.execute("SELECT next_batch FROM lane WHERE id = ?", (s.lane,)).fetchone()
            halves: list[Snapshot] = []
            for ranges in (first, second):
                half = Snapshot(s.lane, number, s.epoch, State.OPEN, ranges, s.batch_time, s.batch, reason)
                self._insert_snapshot(db, half)
                took = halves[0].batch if halves else s.batch  # a strand in both halves belongs to the second
                db.executemany(
                    "UPDATE strand SET batch = ? WHERE lane = ? AND name = ? AND batch IN (?, ?)",
                    ((number, s.lane, r.strand, s.batch, took) for r in ranges),
                )
                halves.append(half)
                number += 1
            waiting = db.execute(
                "SELECT batch FROM snapshot WHERE lane = ? AND state = 'open' AND batch > ? AND batch < ? ORDER BY batch",
                (s.lane, s.batch, halves[0].batch),
            ).fetchall()
            for (old,) in waiting:
                for table in ("snapshot", "attempt", "strand", "nack"):
                    db.execute(f"UPDATE {table} SET batch = ? WHERE lane = ? AND batch = ?", (number, s.lane, old))
                number += 1
            db.execute("UPDATE lane SET next_batch = ? WHERE id = ?", (number, s.lane))
            if held is None and reason in BY_A_PERSON:
                low = min(r.base if r.low is None else r.low for r in second)
                db.execute(
                    "UPDATE nack SET batch = CASE WHEN seq < ? THEN ? ELSE ? END WHERE lane = ? AND state = 'held' AND batch = ?",
                    (low, halves[0].batch, halves[1].batch, s.lane, s.batch),
                )
            else:
                self._hold(db, s, None)
                self._hold(db, halves[1], held)
        return halves

    def hold(self, s: Snapshot, held: Nack) -> None:
        """The record that closed the gate, where there is nothing before it to split off."""
        with self._write("held record") as db:
            self._hold(db, s, held)

    def _hold(self, db: sqlite3.Connection, s: Snapshot, held: Nack | None) -> None:
        """A batch holds at most one record, until it is tried again."""
        db.execute("DELETE FROM nack WHERE lane = ? AND state = 'held' AND batch = ?", (s.lane, s.batch))
        if held is not None:
            self._insert_nacks(db, s, [held])

    def _insert_nacks(self, db: sqlite3.Connection, s: Snapshot, nacks: Iterable[Nack]) -> None:
        if (original := self._original(db, s.lane)) is not None:
            self._failed_again(db, s, original, nacks)
            return
        db.executemany(
            "INSERT OR REPLACE INTO nack (lane, seq, part, destination, batch, id, position, node, code, error, state, at, record)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    s.lane,
                    n.seq,
                    n.part,
                    n.destination,
                    s.batch,
                    n.id,
                    n.position,
                    n.node,
                    n.code,
                    n.error[:KEEP_ERROR],
                    n.state,
                    n.at,
                    n.record,
                )
                for n in nacks
            ),
        )

    def forget(self, lane: int, strands: Sequence[str]) -> None:
        """Strands that are gone for good: what comes under their names is new."""
        with self._write("forgotten strands") as db:
            db.executemany("DELETE FROM strand WHERE lane = ? AND name = ?", ((lane, name) for name in strands))

    def prepare(
        self,
        s: Snapshot,
        records: int,
        deliveries: Sequence[Prepared],
        nacks: Iterable[Nack] = (),
        rings: Mapping[str, str] | None = None,
    ) -> None:
        """The point of no return: from here on the batch is only rolled forward. Nacks and gates are saved with it."""
        with self._write("prepare") as db:
            changed = db.execute(
                "UPDATE snapshot SET state = 'prepared', records = ? WHERE lane = ? AND batch = ? AND state = 'open'",
                (records, s.lane, s.batch),
            ).rowcount
            if changed != 1:
                raise LedgerError(f"Batch {s.batch} is not open and can't be prepared", code="ledger.prepared")
            self._insert_deliveries(db, s, deliveries)
            self._hold(db, s, None)
            self._insert_nacks(db, s, nacks)
            self._save_rings(db, s.lane, rings or {})

    def _save_rings(self, db: sqlite3.Connection, lane: int, rings: Mapping[str, str]) -> None:
        db.executemany("INSERT OR REPLACE INTO gate VALUES (?, ?, ?)", ((lane, d, ring) for d, ring in rings.items()))

    def rings(self, lane: int) -> dict[str, str]:
        """The gates' rings by destination, as the last outcome left them."""
        return dict(self._read("SELECT destination, ring FROM gate WHERE lane = ?", lane))

    def _insert_deliveries(self, db: sqlite3.Connection, s: Snapshot, deliveries: Sequence[Prepared]) -> None:
        db.executemany(
            f"INSERT INTO delivery (lane, batch, state, {_DELIVERY}) VALUES (?, ?, 'prepared', ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, NULL)",
            (
                (
                    s.lane,
                    s.batch,
                    d.destination,
                    d.hash,
                    d.plugin,
                    _json(dict(d.settings)),
                    _json(d.staged),
                    d.filtered,
                    d.kind,
                    d.produced,
                    d.nacked,
                    None if d.gate is None else _json(d.gate),
                )
                for d in deliveries
            ),
        )

    def prepared(self, s: Snapshot) -> list[Prepared]:
        rows = self._read(f"SELECT {_DELIVERY} FROM delivery WHERE lane = ? AND batch = ?", s.lane, s.batch)
        return [
            Prepared(
                d,
                hash_,
                plugin,
                json.loads(settings),
                json.loads(staged),
                filtered,
                receipt and json.loads(receipt),
                Kind(kind),
                produced,
                nacked,
                gate and json.loads(gate),
                held and json.loads(held),
            )
            for d, hash_, plugin, settings, staged, filtered, receipt, kind, produced, nacked, gate, held in rows
        ]

    def done(
        self,
        s: Snapshot,
        destination: str,
        receipt: Any,
        written: int,
        frontier: Frontier,
        *,
        late: Late | None = None,
        discarded: int = 0,
        settle: bool = True,
    ) -> list[Ranges]:
        """One delivery is finished. Returns the ranges that this settled, in order: the frontier is stored, so they may
        be acked now, once. Without `settle` the frontier stays, for `advance` to raise it.

        `frontier(acked, batches)` gives the batch up to which everything is settled, from the last one and what is known
        of the batches after it (number → all its deliveries are done).
        """
        with self._write("done") as db:
            return self._done(db, s, destination, receipt, written, frontier, late or Late(), discarded, settle)

    def _done(
        self,
        db: sqlite3.Connection,
        s: Snapshot,
        destination: str,
        receipt: Any,
        written: int,
        frontier: Frontier,
        late: Late,
        discarded: int,
        settle: bool,
    ) -> list[Ranges]:
        changed = db.execute(
            "UPDATE delivery SET state = 'done', receipt = ?, held = NULL, at = ?"
            " WHERE lane = ? AND batch = ? AND destination = ? AND state = 'prepared'",
            (_json(receipt), _now(), s.lane, s.batch, destination),
        ).rowcount
        if changed:
            self._add_up(db, s, destination, written, len({(n.seq, n.part) for n in late.nacks}), discarded)
            db.execute(
                "DELETE FROM nack WHERE lane = ? AND state = 'held' AND batch = ? AND destination = ?",
                (s.lane, s.batch, destination),
            )
            self._insert_nacks(db, s, late.nacks)
            self._insert_deliveries(db, s, late.deliveries)
            self._save_rings(db, s.lane, {destination: late.ring} if late.ring else {})
            db.executemany(
                "UPDATE skip SET state = 'done' WHERE lane = ? AND strand = '' AND number = ?",
                ((s.lane, seq) for seq in late.skipped),
            )
        (pending,) = db.execute(
            "SELECT count(*) FROM delivery WHERE lane = ? AND batch = ? AND state = 'prepared'", (s.lane, s.batch)
        ).fetchone()
        if not db.execute(
            "SELECT 1 FROM snapshot WHERE lane = ? AND batch = ? AND state IN ('prepared', 'done')",
            (s.lane, s.batch),
        ).fetchone():
            raise LedgerError(f"Batch {s.batch} is not prepared and can't be done", code="ledger.prepared")
        settled: list[Ranges] = []
        if not pending:
            self._finish(db, s)
            settled = self._advance(db, s.lane, frontier) if settle else []
        return settled

    def _add_up(
        self, db: sqlite3.Connection, s: Snapshot, destination: str, written: int, late: int, discarded: int
    ) -> None:
        db.execute(
            "INSERT INTO total (lane, destination, delivered, filtered, dead_lettered, discarded, produced)"
            " SELECT ?1, ?3, ?4, filtered, nacked + ?5, ?6, produced FROM delivery"
            " WHERE lane = ?1 AND batch = ?2 AND destination = ?3 AND kind = 'destination'"
            " ON CONFLICT DO UPDATE SET delivered = delivered + excluded.delivered, filtered = filtered + excluded.filtered,"
            " dead_lettered = dead_lettered + excluded.dead_lettered, discarded = discarded + excluded.discarded,"
            " produced = produced + excluded.produced",
            (s.lane, s.batch, destination, written, late, discarded),
        )

    def _finish(self, db: sqlite3.Connection, s: Snapshot) -> None:
        db.execute(
            "UPDATE lane SET read = read + coalesce((SELECT records FROM snapshot WHERE lane = ?1 AND batch = ?2"
            " AND state IN ('prepared', 'taken')), 0) WHERE id = ?1",
            (s.lane, s.batch),
        )
        db.execute("UPDATE snapshot SET state = 'done' WHERE lane = ? AND batch = ?", (s.lane, s.batch))
        if (original := self._original(db, s.lane)) is not None:
            self._replayed(db, s, original)

    def processed(
        self,
        s: Snapshot,
        records: int,
        deliveries: Sequence[Prepared],
        nacks: Iterable[Nack],
        receipts: Mapping[str, Any],
    ) -> None:
        """At most once: what became of a batch that was settled before it was read."""
        with self._write("processed") as db:
            db.execute("UPDATE snapshot SET records = ? WHERE lane = ? AND batch = ?", (records, s.lane, s.batch))
            self._insert_deliveries(db, s, deliveries)
            self._insert_nacks(db, s, nacks)
            for d in deliveries:
                receipt = receipts[d.destination]
                db.execute(
                    "UPDATE delivery SET state = 'done', receipt = ?, at = ?"
                    " WHERE lane = ? AND batch = ? AND destination = ?",
                    (_json(receipt), _now(), s.lane, s.batch, d.destination),
                )
                late = len({(seq, part) for seq, part, *_ in receipt.get("refused", ())})
                self._add_up(db, s, d.destination, receipt["written"], late, 0)
            self._finish(db, s)
            db.execute("UPDATE lane SET acked = acked + ? WHERE id = ?", (records, s.lane))

    def lost(self, s: Snapshot, records: int | None, destinations: Collection[str]) -> None:
        """At most once: a batch that was in flight when its process died. What of it arrived is not known."""
        with self._write("discarded batch") as db:
            db.execute("UPDATE snapshot SET records = ? WHERE lane = ? AND batch = ?", (records, s.lane, s.batch))
            for name in destinations:
                db.execute(
                    "INSERT INTO total (lane, destination, discarded) VALUES (?, ?, ?)"
                    " ON CONFLICT DO UPDATE SET discarded = discarded + excluded.discarded",
                    (s.lane, name, records or 0),
                )
            self._finish(db, s)
            db.execute("UPDATE lane SET acked = acked + ? WHERE id = ?", (records or 0, s.lane))

    def hold_delivery(self, s: Snapshot, destination: str, held: Nack, settled_to: int, detail: Any) -> Ranges | None:
        """A delivery stopped at a record that closed the gate after prepare. Returns what may be acked of the batch now:
        the records before it, once every other delivery is done; None when that is nothing new."""
        with self._write("held delivery") as db:
            db.execute(
                "UPDATE delivery SET held = ? WHERE lane = ? AND batch = ? AND destination = ?",
                (_json(detail), s.lane, s.batch, destination),
            )
            db.execute(
                "DELETE FROM nack WHERE lane = ? AND state = 'held' AND batch = ? AND destination = ?",
                (s.lane, s.batch, destination),
            )
            self._insert_nacks(db, s, [held])
            (others,) = db.execute(
                "SELECT count(*) FROM delivery WHERE lane = ? AND batch = ? AND state = 'prepared' AND destination != ?",
                (s.lane, s.batch, destination),
            ).fetchone()
            (acked_to, acked) = db.execute(
                "SELECT s.acked_to, l.acked_batch FROM snapshot s JOIN lane l ON l.id = s.lane WHERE s.lane = ? AND s.batch = ?",
                (s.lane, s.batch),
            ).fetchone()
            first = db.execute(
                "SELECT count(*) FROM snapshot WHERE lane = ? AND batch > ? AND batch < ? AND state NOT IN ('dropped', 'split')",
                (s.lane, acked, s.batch),
            ).fetchone() == (0,)
            if others or not first or (acked_to is not None and acked_to >= settled_to):
                return None
            db.execute("UPDATE snapshot SET acked_to = ? WHERE lane = ? AND batch = ?", (settled_to, s.lane, s.batch))
        before, _ = s.ranges.split(settled_to)
        return (before if acked_to is None else before.split(acked_to)[1]) or None

    def abandon(self, s: Snapshot, destination: str, pipeline: str, rows: int, frontier: Frontier) -> list[Ranges]:
        """A person gave a delivery up: counted as discarded, and written down."""
        with self._write("audit") as db:
            detail = {"batch": s.batch, "destination": destination, "records": rows}
            db.execute("INSERT INTO audit VALUES (?, ?, 'abandon', ?)", (_now(), pipeline, _json(detail)))
            receipt = {"written": 0, "discarded": rows}
            return self._done(db, s, destination, receipt, 0, frontier, Late(), rows, True)

    def unacked(self, lane: int) -> list[Snapshot]:
        """Batches that are done and behind the frontier's reach only because nobody has raised it yet."""
        return self._snapshots(
            "lane = ?1 AND state = 'done' AND batch > (SELECT acked_batch FROM lane WHERE id = ?1)"
            " AND NOT EXISTS (SELECT 1 FROM snapshot o WHERE o.lane = ?1 AND o.batch < snapshot.batch"
            " AND o.state IN ('open', 'prepared'))",
            lane,
        )

    def advance(self, lane: int, frontier: Frontier) -> list[Ranges]:
        """Raises the frontier over what is done. Returns what may be acked now, once."""
        with self._write("frontier") as db:
            return self._advance(db, lane, frontier)

    def _advance(self, db: sqlite3.Connection, lane: int, frontier: Frontier) -> list[Ranges]:
        (acked,) = db.execute("SELECT acked_batch FROM lane WHERE id = ?", (lane,)).fetchone()
        rows = db.execute(
            "SELECT batch, state IN ('done', 'dropped', 'split', 'taken') FROM snapshot WHERE lane = ? AND batch > ?",
            (lane, acked),
        ).fetchall()
        reached = frontier(acked, {batch: bool(settled) for batch, settled in rows})
        if reached <= acked:
            return []
        ranges = db.execute(
            "SELECT ranges, acked_to FROM snapshot WHERE lane = ? AND batch > ? AND batch <= ?"
            " AND state IN ('done', 'taken') ORDER BY batch",
            (lane, acked, reached),
        ).fetchall()
        if faults.safeguard("ack-once"):
            db.execute(
                "UPDATE lane SET acked_batch = ?2, acked = acked + (SELECT coalesce(sum(records), 0) FROM snapshot"
                " WHERE lane = ?1 AND batch > acked_batch AND batch <= ?2 AND state = 'done') WHERE id = ?1",
                (lane, reached),
            )
        kept = self._keeps.get(lane, KEEP_BATCHES)
        for table in ("snapshot", "attempt", "delivery"):
            db.execute(f"DELETE FROM {table} WHERE lane = ? AND batch <= ?", (lane, reached - kept))
        found = [(Ranges.from_json(r), acked_to) for r, acked_to in ranges]
        return [r if acked_to is None else r.split(acked_to)[1] for r, acked_to in found]

    # -- looking --------------------------------------------------------------------------------------------------

    def totals(self, lane: int) -> Totals:
        [(read, acked)] = self._read("SELECT read, acked FROM lane WHERE id = ?", lane)
        names = ("delivered", "filtered", "dead_lettered", "discarded", "produced")
        rows = self._read(f"SELECT destination, {', '.join(names)} FROM total WHERE lane = ?", lane)
        columns = {name: {row[0]: row[i] for row in rows} for i, name in enumerate(names, 1)}
        return Totals(read, acked, **columns)

    def stuck(self, lane: int, error: str | None) -> None:
        """Why the lane does not go on; None: it does."""
        with self._write("lane") as db:
            db.execute("UPDATE lane SET error = ? WHERE id = ?", (error, lane))

    def refused(self, lane: int, ranges: Ranges) -> dict[int, str]:
        """The records of these ranges that have a dead letter, by their seq, and why."""
        low = min(r.base if r.low is None else r.low for r in ranges)
        ends = [r.high for r in ranges if r.high is not None]
        high = min([ranges.next_seq, *ends])
        query = "SELECT seq, error FROM nack WHERE lane = ? AND seq >= ? AND seq < ? ORDER BY seq, part, destination"
        return dict(reversed(self._read(query, lane, low, high)))

    def nacks(self, lane: int, state: NackState | None = None) -> list[Nack]:
        """Dead letters in record order."""
        rows = self._read(
            "SELECT seq, part, destination, id, position, node, code, error, at, state, record, batch FROM nack"
            " WHERE lane = ? AND (?2 IS NULL OR state = ?2) ORDER BY seq, part, destination",
            lane,
            state,
        )
        return [
            Nack(seq, part, d, id_, position, node, code, error, at, NackState(st), text, batch)
            for seq, part, d, id_, position, node, code, error, at, st, text, batch in rows
        ]


def _now() -> int:
    return time.time_ns() // 1_000_000


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
