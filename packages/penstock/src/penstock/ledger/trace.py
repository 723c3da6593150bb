"""The life of one record, by what the ledger keeps: which batches have held its seq, what came of it at each destination, whether it is
acked. Queries over one state of the ledger, and what follows from them; changes nothing.

`penstock trace` asks. A record has no row of its own: it is found by the ranges of its batch. Batches of one strand follow each other in
the order of their seqs, so the one that holds a seq is found by halving, without reading all of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from penstock.ledger.api import Kind, Nack, NackState, State
from penstock.ledger.life import BatchRow, DeliveryRow, LaneAt, Life, Skipped, Tries, acked, arrivals, replayed
from penstock.ledger.replays import SUFFIX, letters_in
from penstock.ranges import Range, Ranges

GIVEN_UP = (State.SPLIT, State.DROPPED)  # batches that no record is in any more
TAKINGS = 20  # times that a strand was begun anew which are looked at
_ROW = "batch, epoch, state, ranges, batch_time, records, parent, reason, acked_to"
_NACK = "n.seq, n.part, n.destination, n.id, n.position, n.node, n.code, n.error, n.at, n.state, n.record, n.batch"


class Trace:
    """One state of a ledger. Only for as long as the question is being answered."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        return self._db.execute(sql, parameters).fetchall()

    # -- lanes ----------------------------------------------------------------------------------------------------

    def lanes(self, pipeline: str | None = None, source: str | None = None) -> list[LaneAt]:
        """Those of sources; what replays do is shown with the records they are about."""
        rows = self._rows(
            "SELECT id, pipeline, source, next_batch, next_seq, acked_batch FROM lane WHERE (?1 IS NULL OR pipeline = ?1)"
            " AND (?2 IS NULL OR source = ?2) ORDER BY pipeline, source",
            pipeline,
            source,
        )
        found = []
        for key, p, s, next_batch, next_seq, acked_batch in rows:
            if not s.endswith(SUFFIX):
                oldest = self._rows("SELECT batch, batch_time FROM snapshot WHERE lane = ? ORDER BY batch LIMIT 1", key)
                found.append(LaneAt(key, p, s, next_batch, next_seq, acked_batch, *(oldest[0] if oldest else ())))
        return found

    def kept(self, lane: int) -> int:
        [(n,)] = self._rows("SELECT count(*) FROM snapshot WHERE lane = ?", lane)
        return int(n)

    def sample(self, lane: int) -> Range | None:
        """Any range of the lane: it says what kind of source it has."""
        last = self._rows(f"SELECT {_ROW} FROM snapshot WHERE lane = ? ORDER BY batch DESC LIMIT 1", lane)
        if last:
            return _batch(last[0]).ranges[0]
        strand = self._rows("SELECT range FROM strand WHERE lane = ? LIMIT 1", lane)
        return Range.from_json(json.loads(strand[0][0])) if strand else None

    def strand(self, lane: int, name: str) -> Range | None:
        """The last range that was taken of a strand; None where nothing is known of it."""
        found = self._rows("SELECT range FROM strand WHERE lane = ? AND name = ?", lane, name)
        return Range.from_json(json.loads(found[0][0])) if found else None

    # -- batches --------------------------------------------------------------------------------------------------

    def batch(self, lane: int, number: int) -> BatchRow | None:
        found = self._rows(f"SELECT {_ROW} FROM snapshot WHERE lane = ? AND batch = ?", lane, number)
        return _batch(found[0]) if found else None

    def newest_first(self, lane: int) -> Iterator[BatchRow]:
        """All batches that have records, one by one."""
        for row in self._db.execute(
            f"SELECT {_ROW} FROM snapshot WHERE lane = ? AND state NOT IN ('split', 'dropped') ORDER BY batch DESC",
            (lane,),
        ):
            yield _batch(row)

    def takings(self, lane: int, strand: str, first: Callable[[Range], int]) -> Iterator[Range]:
        """A range of each time that the strand was read from a beginning, the newest first: after a rewind its records have other seqs.
        `first(range)`, the seq of number 0, is the same for all ranges of one time, and grows from one to the next."""
        last = self._newest(lane, strand)
        for _ in range(TAKINGS):
            if last is None:
                return
            r = last.of(strand)
            assert r is not None
            yield r
            began = self._halved(lane, strand, first(r), partial(_begins, first, first(r)))
            last = self._last(lane, strand, (began or last).batch)

    def holding(self, lane: int, strand: str, seq: int, seqs: Callable[[Range], tuple[int, int]]) -> BatchRow | None:
        """The batch that has this record of a strand. `seqs` gives the first seq of a range, and the one behind its last."""
        found = self._halved(lane, strand, seq, lambda r: seqs(r)[1] > seq)
        r = None if found is None else found.of(strand)
        return found if r is not None and seqs(r)[0] <= seq else None

    def _halved(self, lane: int, strand: str, seq: int, fits: Callable[[Range], bool]) -> BatchRow | None:
        """The first batch whose range of the strand fits; so do those of all later ones. It has no record before `seq`."""
        low = self._least(lane, seq)
        if low is None:
            return None
        there = self.batch(lane, low)  # where each batch has strands of its own, that is it
        if there is not None and (r := there.of(strand)) is not None and there.state not in GIVEN_UP and fits(r):
            return there
        [(high,)] = self._rows("SELECT max(batch) FROM snapshot WHERE lane = ?", lane)
        found = None
        while low <= high:
            middle = (low + high) // 2
            rows = self._rows(
                f"SELECT {_ROW} {_OF_STRAND} AND batch <= ? ORDER BY batch LIMIT 1", *_asked(lane, strand, middle), high
            )
            row = _batch(rows[0]) if rows else None
            r = None if row is None else row.of(strand)
            if row is None or r is None:
                high = middle - 1
            elif fits(r):
                found, high = row, middle - 1
            else:
                low = row.batch + 1
        return found

    def _least(self, lane: int, seq: int) -> int | None:
        """The first batch that can have this seq: `next_seq` of those before is not above it, and never falls."""
        [(low, high)] = self._rows(
            "SELECT (SELECT min(batch) FROM snapshot WHERE lane = ?1), (SELECT max(batch) FROM snapshot WHERE lane = ?1)",
            lane,
        )
        found = None
        while low is not None and low <= high:
            middle = (low + high) // 2
            [(batch, next_seq)] = self._rows(
                "SELECT batch, json_extract(ranges, '$.next_seq') FROM snapshot WHERE lane = ? AND batch >= ?"
                " ORDER BY batch LIMIT 1",
                lane,
                middle,
            )
            if next_seq > seq:
                found, high = batch, middle - 1
            else:
                low = batch + 1
        return found

    def _newest(self, lane: int, strand: str) -> BatchRow | None:
        """The last batch with something of the strand. The ledger knows its number, unless the strand was forgotten."""
        for (number,) in self._rows("SELECT batch FROM strand WHERE lane = ? AND name = ?", lane, strand):
            row = self.batch(lane, number)
            if row is not None and row.of(strand) is not None and row.state not in GIVEN_UP:
                return row
        return self._last(lane, strand, 1 << 62)

    def _last(self, lane: int, strand: str, before: int) -> BatchRow | None:
        """The last batch with something of the strand, of those before this number."""
        there = self._rows(
            f"SELECT {_ROW} {_OF_STRAND} AND batch < ? ORDER BY batch DESC LIMIT 1", *_asked(lane, strand, 0), before
        )
        return _batch(there[0]) if there else None

    def _parents(self, lane: int, batch: BatchRow) -> list[BatchRow]:
        """The batches that it was split from, the oldest first, as far as they are kept."""
        found: list[BatchRow] = []
        at: BatchRow | None = batch
        while at is not None and at.parent is not None:
            at = self.batch(lane, at.parent)
            found[:0] = [at] if at is not None else []
        return found

    def _tries(self, lane: int, batch: int) -> Tries:
        rows = self._rows(
            "SELECT error, targets FROM attempt WHERE lane = ? AND batch = ? ORDER BY number", lane, batch
        )
        errors = [error for error, _ in rows if error is not None]
        targets = json.loads(rows[-1][1] or "[]") if rows else []
        return Tries(len(rows), errors[-1] if errors else None, tuple(name for name, *_ in targets))

    def _deliveries(self, lane: int, batch: int) -> list[DeliveryRow]:
        rows = self._rows(
            "SELECT destination, kind, state, hash, filtered, produced, nacked, receipt, at, plugin FROM delivery"
            " WHERE lane = ? AND batch = ? ORDER BY destination",
            lane,
            batch,
        )
        return [
            DeliveryRow(
                d, Kind(kind), state, hash_, filtered, produced, nacked, json.loads(receipt or "{}"), at, plugin
            )
            for d, kind, state, hash_, filtered, produced, nacked, receipt, at, plugin in rows
        ]

    # -- dead letters ---------------------------------------------------------------------------------------------

    def nacks(self, lane: int, seq: int) -> list[Nack]:
        rows = self._rows(
            f"SELECT {_NACK} FROM nack n WHERE lane = ? AND seq = ? ORDER BY part, destination", lane, seq
        )
        return [_nack(row) for row in rows]

    def ids(self, start: str, limit: int) -> list[str]:
        """The ids of dead letters that begin so, by the index."""
        rows = self._rows(
            "SELECT DISTINCT id FROM nack WHERE id >= ? AND id < ? ORDER BY 1 LIMIT ?", start, start + "g", limit
        )
        return [id_ for (id_,) in rows]

    def by_id(self, id_: str) -> list[tuple[int, Nack]]:
        """Lane and nack of every dead letter with this id."""
        rows = self._rows(f"SELECT n.lane, {_NACK} FROM nack n WHERE n.id = ? ORDER BY n.lane, n.seq", id_)
        return [(lane, _nack(row)) for lane, *row in rows]

    # -- one record -----------------------------------------------------------------------------------------------

    def life(self, lane: LaneAt, seqs: tuple[int, int], number: int, nacks: Sequence[Nack] | None = None) -> Life:
        """All of a record that is in this batch. The batch may be gone: a dead letter is kept for longer."""
        if nacks is None:
            nacks = self.nacks(lane.key, seqs[0]) if seqs[1] - seqs[0] == 1 else []
        row = self.batch(lane.key, number)
        deliveries = self._deliveries(lane.key, number)
        tries = self._tries(lane.key, number)
        return Life(
            lane,
            seqs,
            () if row is None else (*self._parents(lane.key, row), row),
            tries,
            tuple(arrivals(row, deliveries, nacks, tries.targets)),
            tuple(d for d in deliveries if d.kind is not Kind.DESTINATION) if nacks else (),
            acked(lane, row, number, seqs),
            self._skipped(lane.key, seqs),
            tuple(replayed(self._replays(lane, nacks), nacks)),
            tuple(nacks),
        )

    def _skipped(self, lane: int, seqs: tuple[int, int]) -> Skipped | None:
        if seqs[1] - seqs[0] != 1:
            return None
        rows = self._rows("SELECT reason, state, at FROM skip WHERE lane = ? AND seq = ?", lane, seqs[0])
        return Skipped(*rows[0]) if rows else None

    def _replays(self, lane: LaneAt, nacks: Sequence[Nack]) -> list[tuple[BatchRow, list[DeliveryRow]]]:
        """Each batch of a replay that has the record, or a part of it, in their order."""
        rows = self._rows("SELECT id FROM lane WHERE pipeline = ? AND source = ?", lane.pipeline, lane.source + SUFFIX)
        found: dict[int, tuple[BatchRow, list[DeliveryRow]]] = {}
        for key, seq in ((key, seq) for (key,) in rows for seq in {n.seq for n in nacks}):
            for text in self._rows(
                f"SELECT {_ROW} FROM snapshot WHERE lane = ? AND instr(ranges, ?) > 0 AND state NOT IN ('split', 'dropped')",
                key,
                f"[{seq},",
            ):
                row = _batch(text)
                if any(x[0] == seq for r in row.ranges for x in letters_in(r)):
                    found[row.batch] = row, self._deliveries(key, row.batch)
        return [found[batch] for batch in sorted(found)]


_OF_STRAND = (
    "FROM snapshot WHERE lane = ? AND state NOT IN ('split', 'dropped') AND instr(ranges, ?) > 0 AND batch >= ?"
)


def _asked(lane: int, strand: str, least: int) -> tuple[int, str, int]:
    """What `_OF_STRAND` is asked with: a range begins with the name of its strand, as `Ranges.to_json` writes it."""
    return lane, f"[{json.dumps(strand)},", least


def _begins(first: Callable[[Range], int], at: int, r: Range) -> bool:
    return first(r) >= at


# -- rows -----------------------------------------------------------------------------------------------------------


def _batch(row: Sequence[Any]) -> BatchRow:
    batch, _, state, ranges, time, records, parent, reason, acked_to = row
    return BatchRow(batch, State(state), Ranges.from_json(ranges), time, records, parent, reason or "", acked_to)


def _nack(row: Sequence[Any]) -> Nack:
    seq, part, destination, id_, position, node, code, error, at, state, record, batch = row
    return Nack(seq, part, destination, id_, position, node, code, error, at, NackState(state), record, batch)
