"""The ledger in SQLite: WAL, `synchronous=FULL`, one transaction per step, numbered migrations.

One connection per engine, shared by its lanes under a lock. Every write checks the fence, so an engine that was replaced
can no longer change anything. A write that fails breaks the ledger for this process: nothing continues in place, the next
start reads what is really there.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from penstock.errors import Fenced, LedgerError, UsageError
from penstock.ledger.api import Attempt, Lane, Prepared, Snapshot, State, Totals
from penstock.ranges import Known, Range, Ranges
from penstock.testing import faults

_STEPS = sorted(r.name for r in resources.files("penstock.ledger.migrations").iterdir() if r.name.endswith(".sql"))
KEEP_BATCHES = 100  # rows of this many settled batches stay for people to look at


class Ledger:
    """All methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fence = 0
        self._lock = threading.RLock()
        self._broken: Exception | None = None
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        except sqlite3.Error as e:
            raise self._cannot_open(e) from e
        try:
            self._refuse_newer()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._migrate()
            self._take_over()
            self._files = self._identities()
        except BaseException as e:
            self._db.close()
            if isinstance(e, sqlite3.Error):
                raise self._cannot_open(e) from e
            raise

    def _cannot_open(self, cause: sqlite3.Error) -> LedgerError:
        return LedgerError(
            f"The ledger {self.path} can't be opened",
            code="ledger.open",
            why=str(cause),
            hint="check free space and permissions of the state folder; the file itself is never repaired by itself",
        )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- starting -------------------------------------------------------------------------------------------------

    def _refuse_newer(self) -> None:
        """Before anything is changed, the journal's mode included."""
        at = self._version()
        if at > len(_STEPS) and faults.safeguard("version"):
            raise UsageError(
                f"The ledger {self.path} has version {at}; this Penstock reads up to {len(_STEPS)}",
                code="state.version",
                hint="install the Penstock that wrote it, or a newer one; nothing was changed",
            )

    def _version(self) -> int:
        (at,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(at)

    def _migrate(self) -> None:
        at = self._version()
        for number, name in enumerate(_STEPS[at:], at + 1):
            script = resources.files("penstock.ledger.migrations").joinpath(name).read_text()
            self._db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")

    def _take_over(self) -> None:
        """Raises the fence: from here on the writes of any older engine are refused."""
        epoch = secrets.randbits(48) if faults.safeguard("epoch") else 1
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?), ('fence', 0)", (epoch,))
        self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'fence'")
        (self.fence,) = self._db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchone()
        self._db.execute("COMMIT")

    @contextmanager
    def _write(self, name: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._broken is not None:
                raise self._error(name, self._broken)
            try:
                self._check_in_place()
                self._db.execute("BEGIN IMMEDIATE")
                self._check_fence()
                yield self._db
                faults.reach("ledger", name)
                self._db.execute("COMMIT")
            except (sqlite3.Error, OSError) as e:
                self._broken = e
                raise self._error(name, e) from e
            finally:
                self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as e:
            self._broken = e

    def _check_fence(self) -> None:
        (fence,) = self._db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchone()
        if fence != self.fence and faults.safeguard("fence"):
            raise Fenced(
                "Another engine has taken this state folder over",
                code="state.fenced",
                why=f"this engine has fencing number {self.fence}, the ledger is at {fence}",
                hint="run one engine per state folder; nothing this one had staged was published",
            )

    def _check_in_place(self) -> None:
        """SQLite would go on writing to a file that was deleted under it, and the account would vanish with the process."""
        try:
            if self._identities() == self._files:
                return
        except FileNotFoundError:
            pass
        raise OSError("the ledger file was removed or replaced while the engine was running")

    def _identities(self) -> list[tuple[int, int]]:
        """Device and inode of the ledger and of its write-ahead log."""
        stats = [path.stat() for path in (self.path, self.path.with_name(self.path.name + "-wal"))]
        return [(stat.st_dev, stat.st_ino) for stat in stats]

    def _error(self, name: str, cause: Exception) -> LedgerError:
        return LedgerError(
            f"The ledger could not write the {name}",
            code="ledger.write",
            where=str(self.path),
            why=str(cause),
            hint="free space or restore the state folder, then start again: recovery goes on from what is really on disk",
        )

    def _read(self, sql: str, *args: Any) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(sql, args).fetchall()
            except sqlite3.Error as e:
                raise LedgerError(f"The ledger {self.path} can't be read", code="ledger.read", why=str(e)) from e

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

    def rewind(self, pipeline: str, source: str) -> None:
        """Everything the source still has is read again, under a new epoch. Only while no batch is unfinished."""
        lane = self.lane(pipeline, source)
        if self.unfinished(lane.key):
            raise UsageError(
                f"{pipeline}/{source} has an unfinished batch and can't be rewound",
                code="state.unfinished",
                hint="run the pipeline with --once first, so that recovery finishes it",
            )
        with self._write("rewind") as db:
            db.execute("DELETE FROM strand WHERE lane = ?", (lane.key,))
            db.execute("UPDATE lane SET epoch = epoch + 1 WHERE id = ?", (lane.key,))

    # -- batches --------------------------------------------------------------------------------------------------

    def unfinished(self, lane: int) -> list[Snapshot]:
        """Snapshots that are neither done nor given up, in order."""
        rows = self._read(
            "SELECT batch, epoch, state, ranges, batch_time FROM snapshot"
            " WHERE lane = ? AND state IN ('open', 'prepared') ORDER BY batch",
            lane,
        )
        return [Snapshot(lane, b, e, State(s), Ranges.from_json(r), t) for b, e, s, r, t in rows]

    def take(self, lane: Lane, ranges: Ranges) -> tuple[Snapshot, Attempt]:
        """Writes a snapshot and its first attempt, in one transaction, before anything is read."""
        attempt = Attempt(1, secrets.token_hex(8))
        now = time.time_ns() // 1_000_000
        with self._write("snapshot") as db:
            (batch, epoch) = db.execute("SELECT next_batch, epoch FROM lane WHERE id = ?", (lane.key,)).fetchone()
            db.execute(
                "INSERT INTO snapshot VALUES (?, ?, ?, 'open', ?, ?, NULL)",
                (lane.key, batch, epoch, ranges.to_json(), now),
            )
            db.executemany("DELETE FROM strand WHERE lane = ? AND name = ?", ((lane.key, s) for s in ranges.forget))
            db.executemany(
                "INSERT OR REPLACE INTO strand VALUES (?, ?, ?, ?)",
                ((lane.key, r.strand, json.dumps(r.to_json(), separators=(",", ":")), batch) for r in ranges),
            )
            db.execute(
                "UPDATE lane SET next_batch = ?, next_seq = max(next_seq, ?) WHERE id = ?",
                (batch + 1, ranges.next_seq, lane.key),
            )
            self._insert_attempt(db, lane.key, batch, attempt, now)
        return Snapshot(lane.key, batch, epoch, State.OPEN, ranges, now), attempt

    def retry(self, s: Snapshot) -> Attempt:
        """One more attempt at a snapshot that is written down."""
        with self._write("attempt") as db:
            (last,) = db.execute(
                "SELECT coalesce(max(number), 0) FROM attempt WHERE lane = ? AND batch = ?", (s.lane, s.batch)
            ).fetchone()
            attempt = Attempt(last + 1, secrets.token_hex(8))
            self._insert_attempt(db, s.lane, s.batch, attempt, time.time_ns() // 1_000_000)
        return attempt

    def _insert_attempt(self, db: sqlite3.Connection, lane: int, batch: int, attempt: Attempt, now: int) -> None:
        db.execute(
            "INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (lane, batch, attempt.number, attempt.id, self.fence, now),
        )

    def failed(self, s: Snapshot, attempt: Attempt, error: str) -> None:
        """For people: why an attempt ended. Recovery does not need it."""
        with self._write("failed attempt") as db:
            db.execute(
                "UPDATE attempt SET error = ? WHERE lane = ? AND batch = ? AND number = ?",
                (error[:2000], s.lane, s.batch, attempt.number),
            )

    def drop(self, s: Snapshot) -> None:
        """Gives up an unprepared snapshot whose input changed; its strands are taken anew."""
        with self._write("dropped snapshot") as db:
            changed = db.execute(
                "UPDATE snapshot SET state = 'dropped' WHERE lane = ? AND batch = ? AND state = 'open'",
                (s.lane, s.batch),
            ).rowcount
            if changed != 1:
                raise LedgerError(f"Batch {s.batch} is prepared and can't be given up", code="ledger.prepared")
            db.execute("DELETE FROM strand WHERE lane = ? AND batch = ?", (s.lane, s.batch))

    def forget(self, lane: int, strands: Sequence[str]) -> None:
        """Strands that are gone for good: what comes under their names is new."""
        with self._write("forgotten strands") as db:
            db.executemany("DELETE FROM strand WHERE lane = ? AND name = ?", ((lane, name) for name in strands))

    def prepare(self, s: Snapshot, records: int, deliveries: Sequence[Prepared]) -> None:
        """The point of no return: from here on the batch is only rolled forward."""
        with self._write("prepare") as db:
            db.execute(
                "UPDATE snapshot SET state = 'prepared', records = ? WHERE lane = ? AND batch = ?",
                (records, s.lane, s.batch),
            )
            db.executemany(
                "INSERT INTO delivery VALUES (?, ?, ?, ?, 'prepared', ?, ?, ?, ?, NULL)",
                (
                    (
                        s.lane,
                        s.batch,
                        d.destination,
                        d.hash,
                        d.plugin,
                        json.dumps(dict(d.settings)),
                        json.dumps(d.staged),
                        d.filtered,
                    )
                    for d in deliveries
                ),
            )

    def prepared(self, s: Snapshot) -> list[Prepared]:
        rows = self._read(
            "SELECT destination, hash, plugin, settings, staged, filtered, receipt FROM delivery WHERE lane = ? AND batch = ?",
            s.lane,
            s.batch,
        )
        return [
            Prepared(d, h, p, json.loads(settings), json.loads(staged), f, receipt and json.loads(receipt))
            for d, h, p, settings, staged, f, receipt in rows
        ]

    def done(
        self,
        s: Snapshot,
        destination: str,
        receipt: Any,
        written: int,
        frontier: Callable[[int, Mapping[int, bool]], int],
    ) -> list[Ranges]:
        """One delivery is finished. Returns the ranges that this settled, in order: the frontier is stored, so they may
        be acked now, once.

        `frontier(acked, batches)` gives the batch up to which everything is settled, from the last one and what is known
        of the batches after it (number → all its deliveries are done).
        """
        with self._write("done") as db:
            changed = db.execute(
                "UPDATE delivery SET state = 'done', receipt = ? WHERE lane = ? AND batch = ? AND destination = ? AND state = 'prepared'",
                (json.dumps(receipt), s.lane, s.batch, destination),
            ).rowcount
            if changed:
                db.execute(
                    "INSERT INTO total SELECT ?1, ?3, ?4, filtered FROM delivery WHERE lane = ?1 AND batch = ?2 AND destination = ?3"
                    " ON CONFLICT DO UPDATE SET delivered = delivered + excluded.delivered,"
                    " filtered = filtered + excluded.filtered",
                    (s.lane, s.batch, destination, written),
                )
            (pending,) = db.execute(
                "SELECT count(*) FROM delivery WHERE lane = ? AND batch = ? AND state = 'prepared'", (s.lane, s.batch)
            ).fetchone()
            if db.execute(
                "SELECT 1 FROM snapshot WHERE lane = ? AND batch = ? AND state = 'open'", (s.lane, s.batch)
            ).fetchone():
                raise LedgerError(f"Batch {s.batch} is not prepared and can't be done", code="ledger.prepared")
            settled: list[Ranges] = []
            if not pending:
                db.execute(
                    "UPDATE lane SET read = read + coalesce((SELECT records FROM snapshot WHERE lane = ?1 AND batch = ?2"
                    " AND state = 'prepared'), 0) WHERE id = ?1",
                    (s.lane, s.batch),
                )
                db.execute("UPDATE snapshot SET state = 'done' WHERE lane = ? AND batch = ?", (s.lane, s.batch))
                settled = self._advance(db, s.lane, frontier)
        return settled

    def _advance(
        self, db: sqlite3.Connection, lane: int, frontier: Callable[[int, Mapping[int, bool]], int]
    ) -> list[Ranges]:
        (acked,) = db.execute("SELECT acked_batch FROM lane WHERE id = ?", (lane,)).fetchone()
        rows = db.execute(
            "SELECT batch, state IN ('done', 'dropped') FROM snapshot WHERE lane = ? AND batch > ?", (lane, acked)
        ).fetchall()
        reached = frontier(acked, {batch: bool(settled) for batch, settled in rows})
        if reached <= acked:
            return []
        ranges = db.execute(
            "SELECT ranges FROM snapshot WHERE lane = ? AND batch > ? AND batch <= ? AND state = 'done' ORDER BY batch",
            (lane, acked, reached),
        ).fetchall()
        if faults.safeguard("ack-once"):
            db.execute(
                "UPDATE lane SET acked_batch = ?2, acked = acked + (SELECT coalesce(sum(records), 0) FROM snapshot"
                " WHERE lane = ?1 AND batch > acked_batch AND batch <= ?2 AND state = 'done') WHERE id = ?1",
                (lane, reached),
            )
        for table in ("snapshot", "attempt", "delivery"):
            db.execute(f"DELETE FROM {table} WHERE lane = ? AND batch <= ?", (lane, reached - KEEP_BATCHES))
        return [Ranges.from_json(r) for (r,) in ranges]

    # -- looking --------------------------------------------------------------------------------------------------

    def totals(self, lane: int) -> Totals:
        [(read, acked)] = self._read("SELECT read, acked FROM lane WHERE id = ?", lane)
        rows = self._read("SELECT destination, delivered, filtered FROM total WHERE lane = ?", lane)
        return Totals(read, acked, {d: n for d, n, _ in rows}, {d: n for d, _, n in rows})
