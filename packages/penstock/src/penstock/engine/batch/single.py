"""One record alone: a batch is cut so that a person's decision is about a record and not about its neighbours. Before it is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import record
from penstock.connectors.places import numbers
from penstock.engine.batch.commit import ack
from penstock.engine.batch.context import Work
from penstock.engine.batch.read import read
from penstock.engine.batch.split import discard, split
from penstock.engine.frontier import frontier
from penstock.ledger import Snapshot
from penstock.ledger.skips import Skip
from penstock.native import Ranges
from penstock.testing import faults

SKIP, STEP = "skip", "step"  # why a batch was split


@dataclass(frozen=True)
class Skipped:
    """What became of a batch with a record that is to be skipped: settled, where it was that record alone; else it was split."""

    seq: int | None = None
    acked: Sequence[Ranges] = ()


def skip(work: Work, s: Snapshot) -> Skipped | None:
    """None: no record of the batch is to be skipped."""
    asked = {seq: x for x in work.ledger.skips(work.lane.key) if (seq := _seq(s, x)) is not None}
    found = _there(work, s, sorted(asked)) if asked else []
    if not found:
        return None
    at = found[0]
    if (start_of(s) < at and split(work, s, at, SKIP)) or (not _alone(s, at) and split(work, s, at + 1, SKIP)):
        return Skipped()
    discard(work, s)
    faults.reach("skip")
    return Skipped(at, ack(work, s.lane, work.ledger.skip(s, asked[at], at, list(work.targets), frontier)))


def cut(work: Work, s: Snapshot) -> bool:
    """True: the batch had several records, and one with the first of them comes before one with the others now."""
    seqs = _first_two(work, s)
    return len(seqs) == 2 and bool(split(work, s, seqs[1], STEP))


def start_of(s: Snapshot) -> int:
    """No record of the batch has a lower seq."""
    return min(r.base if r.low is None else r.low for r in s.ranges)


def _seq(s: Snapshot, skip: Skip) -> int | None:
    """The seq that a record would have in this batch; None where it can't be in it."""
    if not skip.strand:
        return skip.number if start_of(s) <= skip.number < s.ranges.next_seq else None
    for r in s.ranges:
        n = numbers(r) if r.strand == skip.strand else None
        if n is not None and n.low <= skip.number < n.high:
            return n.first + skip.number
    return None


def _alone(s: Snapshot, seq: int) -> bool:
    return len(s.ranges) == 1 and s.ranges[0].high == seq + 1


def _there(work: Work, s: Snapshot, seqs: list[int]) -> list[int]:
    from pyspark.sql import functions as F

    work.source.begin(s.ranges)
    rows = read(work, s, {record.SEQ}).rows.select(record.SEQ).where(F.col(record.SEQ).isin(seqs)).collect()
    return sorted(row[0] for row in rows)


def _first_two(work: Work, s: Snapshot) -> list[int]:
    work.source.begin(s.ranges)
    rows = read(work, s, {record.SEQ}).rows.select(record.SEQ).orderBy(record.SEQ).limit(2).collect()
    return [row[0] for row in rows]
