"""Step 4b: the nacks of a batch go through the gates of its destinations, in record order. See `engine/gate.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine.batch.account import Account
from penstock.engine.batch.context import Work
from penstock.engine.batch.deadletter import Letter
from penstock.engine.batch.read import read
from penstock.engine.gate import Ring, Window, pass_through
from penstock.errors import Stop
from penstock.ledger import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa


STOPS = "expect.stop"  # the code of a nack that closes the gate, whatever its window


class GateClosed(Stop):
    """Too many nacks. `seq` is the record that was one too many; nothing from it on has an outcome."""

    def __init__(self, letter: Letter, window: Window) -> None:
        d = letter.dead
        limit = f"{window.threshold} nacks in {window.size} records" if window.threshold else "no nack at all"
        allowed = "the processor stops the pipeline" if d.code == STOPS else f"the dead letter queue allows {limit}"
        super().__init__(
            f"A record was nacked by {d.node!r}: {d.error}",
            code="gate.closed",
            why=f"{allowed}; the record is {_place(letter)}",
            hint="everything before it is delivered. Correct the cause and start again: it goes on at this record. To go on"
            + (
                " past bad records set `on-fail: reject`"
                if d.code == STOPS
                else " past bad records set `dead-letter-queue: {window-size: 0}`"
            ),
        )
        self.letter = letter
        self.seq = d.seq


@dataclass(frozen=True)
class Admitted:
    """What the gates are after the batch, and what they were before: a nack that comes late goes through them again."""

    rings: Mapping[str, Ring]
    before: Mapping[str, Ring]
    nacks: Mapping[str, Sequence[int]]  # per destination the ordinals of its nacks


def admit(work: Work, s: Snapshot, a: Account, places: Mapping[int, int] | None = None) -> Admitted:
    """Raises `GateClosed` when a gate closes: then the batch has to be split before that record. `places` are the ordinals
    of nacked records, where they need not be counted."""
    saved = work.ledger.rings(s.lane)
    before = {name: Ring.from_json(saved.get(name)) for name in work.targets}
    seqs = a.letters.seqs()
    every = sorted({seq for found in seqs.values() for seq in found})
    if places is None:
        counted = ordinals(work, s, every) if every and work.window.needs_ordinals else range(len(every))
        places = dict(zip(every, counted, strict=True))
    rings, nacks = {}, {}
    closed = a.letters.with_code(STOPS) if every and not work.replaying and _may_stop(work) else []
    for name in work.targets:
        own = sorted({*seqs.get("", ()), *seqs.get(name, ())})
        nacks[name] = [places[seq] for seq in own]
        rings[name], at = pass_through(work.window, before[name], a.records, nacks[name])
        if at is not None:
            closed.append(own[nacks[name].index(at)])
    if closed:
        raise GateClosed(a.letters.at(min(closed)), work.window)
    return Admitted(rings, before, nacks)


def _may_stop(work: Work) -> bool:
    nodes = [*work.nodes, *(node for target in work.targets.values() for node in target.nodes)]
    return any(node.processor.code == STOPS for node in nodes)


def ordinals(work: Work, s: Snapshot, seqs: Sequence[int]) -> list[int]:
    """How many records of the batch come before each of these. One job, only in batches with nacks."""
    frame = read(work, s, {record.SEQ}).rows.select(record.SEQ)
    rows = frame.mapInArrow(_Histogram(tuple(seqs)), "place int, n long").groupBy("place").sum("n").collect()
    counts = {row[0]: row[1] for row in rows}
    found, total = [], 0
    for i in range(len(seqs)):
        total += counts.get(i, 0)
        found.append(total)
    return found


@dataclass(frozen=True)
class _Histogram:
    """Runs in Spark tasks: counts records between the given seqs."""

    seqs: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        bounds = np.array(self.seqs, np.int64)
        total: Any = np.zeros(len(bounds) + 1, np.int64)
        for batch in batches:
            places = np.searchsorted(bounds, batch.column(0).to_numpy(zero_copy_only=False), side="right")
            total += np.bincount(places, minlength=len(total))
        used = np.nonzero(total)[0]
        schema = pa.schema([("place", pa.int32()), ("n", pa.int64())])
        yield pa.RecordBatch.from_arrays([pa.array(used, pa.int32()), pa.array(total[used], pa.int64())], schema=schema)


def _place(letter: Letter) -> str:
    try:
        return letter.position.decode() or f"number {letter.dead.seq}"
    except UnicodeDecodeError:
        return letter.position.hex()
