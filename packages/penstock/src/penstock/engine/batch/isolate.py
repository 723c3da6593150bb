"""A batch that can't be computed whole: one that kills the process, or holds a file that can't be read to its end.

It is cut until what is bad is alone: one record, or one file that can't be cut. That becomes a dead letter without a
payload, and goes through the gate like any other.
"""

from __future__ import annotations

import time

from penstock import record
from penstock.engine import aside
from penstock.engine.batch.account import Account, Sums
from penstock.engine.batch.admit import admit
from penstock.engine.batch.context import Work
from penstock.engine.batch.deadletter import Letters, letter_of, place_of
from penstock.engine.batch.prepare import deliveries_of, stage_letters
from penstock.engine.batch.read import read
from penstock.engine.batch.split import discard, split
from penstock.ledger import Attempt, Snapshot
from penstock.native import Staged
from penstock.testing import faults

DEATHS = 3  # unprepared deaths after which a batch is cut
DEATHS_OF_A_HALF = 1  # and of a batch that was cut for the same reason
KILLED = "killed"
UNREADABLE = "unreadable"


def suspicious(s: Snapshot, deaths: int) -> bool:
    """True once a batch has to be taken for one that kills."""
    limit = DEATHS_OF_A_HALF if s.reason == KILLED else DEATHS
    return deaths >= limit and faults.safeguard("isolate")


def cut_in_halves(work: Work, s: Snapshot, deaths: int) -> bool:
    """True when two halves stand for the batch now; False when it can't be cut any more."""
    at = _middle(work, s, deaths)
    return at is not None and bool(split(work, s, at, KILLED))


def _middle(work: Work, s: Snapshot, deaths: int) -> int | None:
    """A seq with about as many records before it as behind it. Files are told apart without reading them."""
    from pyspark.sql import functions as F

    if len(s.ranges) > 1:
        ordered = sorted(s.ranges, key=lambda r: r.base)
        return ordered[len(ordered) // 2].base
    if deaths > DEATHS + 1:
        return None  # finding the middle seems to kill too
    seq = F.col(record.SEQ)
    rows = read(work, s, {record.SEQ}).rows
    numbers = rows.agg(F.min(seq), F.max(seq), F.percentile_approx(seq, 0.5, 10_000)).first()
    if numbers is None or numbers[0] is None or numbers[0] == numbers[1]:
        return None
    low, _, middle = numbers
    return int(max(middle, low + 1))


def cut_out(work: Work, s: Snapshot, path: str) -> bool:
    """Cuts before a bad file, or behind it where it comes first. False when it is alone."""
    ordered = sorted(s.ranges, key=lambda r: r.base)
    places = [i for i, r in enumerate(ordered) if r.strand == path]
    if not places or len(ordered) == 1:
        return False
    i = places[0]
    at = ordered[i].base if i > 0 else ordered[1].base
    return bool(split(work, s, at, UNREADABLE))


def give_up(work: Work, s: Snapshot, attempt: Attempt, code: str, error: str) -> Account:
    """Prepares a batch whose only outcome is one dead letter without payload. Raises `GateClosed` like any other batch."""
    discard(work, s)
    first = min(s.ranges, key=lambda r: r.base)
    seq = first.base if first.low is None else first.low
    dead = aside.Dead(seq, 0, work.source.source_id, code, error[: aside.ERROR_CHARACTERS], time.time_ns() // 1_000_000)
    letter = letter_of(work.source.source_id, "", dead, place_of(work, s))
    sums = {name: Sums(dead=1) for name in work.targets}
    a = Account(1, sums, Letters(work.source.source_id, place_of(work, s), made=(letter,)), 1)
    gates = admit(work, s, a, {seq: 0})  # its input can't be read, so its place is not counted
    staged = {name: Staged(0) for name in work.targets}  # nobody was asked to stage anything
    deliveries = [*deliveries_of(work, s, staged, sums), *stage_letters(work, s, attempt, a.letters)]
    work.ledger.prepare(s, 1, deliveries, [letter.nack()], {name: ring.to_json() for name, ring in gates.rings.items()})
    return a
