"""The batches that a ledger still has, whole: ranges, deliveries, receipts. For `penstock reconcile`, which holds them to what destinations
say. Reads by `readonly.py` and changes nothing, so it is safe beside an engine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.ledger import readonly
from penstock.ledger.api import Kind, State
from penstock.ledger.look import BatchView, LaneView, View
from penstock.ranges import Range, Ranges

GIVEN_UP = "discarded"  # in the receipt of a delivery that a person has given up


@dataclass(frozen=True)
class KeptDelivery:
    """A row of `delivery`. It has what makes its destination again."""

    destination: str
    hash: str
    plugin: str
    settings: Mapping[str, str]  # references, never values
    staged: Any  # JSON of native.Staged
    filtered: int
    nacked: int
    produced: int
    kind: Kind
    receipt: Any  # JSON of native.Receipt; None: it is prepared

    @property
    def written(self) -> int:
        return int((self.receipt or {}).get("written", 0))

    @property
    def refused(self) -> int:
        return len({(seq, part) for seq, part, *_ in (self.receipt or {}).get("refused", ())})

    @property
    def discarded(self) -> int:
        return int((self.receipt or {}).get(GIVEN_UP, 0))


@dataclass(frozen=True)
class KeptBatch:
    batch: int
    epoch: int
    state: State
    ranges: Ranges
    records: int | None  # not known before it is prepared
    deliveries: Sequence[KeptDelivery]


@dataclass(frozen=True)
class KeptLane:
    """A lane in one state of the ledger."""

    view: LaneView
    fence: int  # of the ledger
    epoch: int
    batches: Sequence[KeptBatch]  # in their order
    strands: Mapping[str, tuple[Range, int]]  # of these batches: the last range of each, and the batch that took it
    unfinished: Sequence[BatchView]

    @property
    def name(self) -> str:
        return self.view.name


def kept(path: Path, pipeline: str) -> list[KeptLane]:
    """The lanes of a pipeline; none where it is not known."""
    return readonly.ask(path, lambda db: _lanes(db, pipeline))


def _lanes(db: sqlite3.Connection, pipeline: str) -> list[KeptLane]:
    view = View(db)
    [(fence,)] = db.execute("SELECT value FROM meta WHERE key = 'fence'").fetchall()
    made = []
    for lane in view.lanes(pipeline):
        [(epoch,)] = db.execute("SELECT epoch FROM lane WHERE id = ?", (lane.key,)).fetchall()
        rows = db.execute(
            "SELECT name, range, batch FROM strand"
            " WHERE lane = ?1 AND batch >= (SELECT min(batch) FROM snapshot WHERE lane = ?1)",
            (lane.key,),
        ).fetchall()
        strands = {name: (Range.from_json(json.loads(found)), batch) for name, found, batch in rows}
        made.append(KeptLane(lane, fence, epoch, _batches(db, lane.key), strands, view.unfinished(lane.key)))
    return made


def _batches(db: sqlite3.Connection, lane: int) -> list[KeptBatch]:
    deliveries: dict[int, list[KeptDelivery]] = {}
    rows = db.execute(
        "SELECT batch, destination, hash, plugin, settings, staged, filtered, nacked, produced, kind, receipt"
        " FROM delivery WHERE lane = ? ORDER BY batch, destination",
        (lane,),
    )
    for batch, name, hash_, plugin, settings, staged, filtered, nacked, produced, kind, receipt in rows:
        found = KeptDelivery(
            name,
            hash_,
            plugin,
            json.loads(settings),
            json.loads(staged),
            filtered,
            nacked,
            produced,
            Kind(kind),
            None if receipt is None else json.loads(receipt),
        )
        deliveries.setdefault(batch, []).append(found)
    snapshots = db.execute(
        "SELECT batch, epoch, state, ranges, records FROM snapshot WHERE lane = ? ORDER BY batch", (lane,)
    )
    return [
        KeptBatch(batch, epoch, State(state), Ranges.from_json(ranges), records, tuple(deliveries.get(batch, ())))
        for batch, epoch, state, ranges, records in snapshots
    ]
