"""Step 1, snapshot: ask the source what is there and write it down, with the first attempt, before anything is read."""

from __future__ import annotations

from collections.abc import Callable

from penstock.engine.batch import at_most_once
from penstock.engine.batch.context import Guarantee, Work
from penstock.ledger import Attempt, Snapshot
from penstock.ranges import Known, Limits, Ranges
from penstock.testing import faults


def take(
    work: Work, known: Known, limits: Limits, enough: Callable[[Ranges], bool] = lambda _: True
) -> tuple[Snapshot, Attempt] | None:
    """The next batch, or None when the source has nothing new, or not enough to be worth a batch yet."""
    ranges = work.source.available(known, limits)
    if ranges is None or not enough(ranges):
        return None
    faults.reach("K1")
    known.took(ranges)
    if work.guarantee is Guarantee.AT_MOST_ONCE and faults.safeguard("settle-first"):
        s, attempt, acked = at_most_once.take(work, ranges)
        for done in acked:
            known.settled(done)
    else:
        s, attempt = work.ledger.take(work.lane, ranges, work.refs)
    faults.reach("K2")
    return s, attempt
