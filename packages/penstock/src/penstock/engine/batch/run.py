"""A batch, step by step. Called by the lane with a snapshot that is in the ledger; runs in the lane's thread.

Two halves with the prepare between them. Whatever is raised in `compute` leaves the snapshot as it was, to be tried again,
split or given up. After it the batch is prepared, and only ever finished: by `commit.finish`, here or in recovery.
"""

from __future__ import annotations

from penstock.engine.batch.account import Account, account
from penstock.engine.batch.admit import admit
from penstock.engine.batch.context import Work
from penstock.engine.batch.prepare import prepare
from penstock.engine.batch.stage import stage
from penstock.ledger import Attempt, Snapshot


def compute(work: Work, s: Snapshot, attempt: Attempt) -> Account:
    """Raises `GateClosed` where the batch has to be split before a record."""
    staged = stage(work, s, attempt)
    numbers = account(work, s, staged)
    if not numbers.dead:
        work.hopes.add("no nack")
    gates = admit(work, s, numbers)
    prepare(work, s, attempt, numbers, gates, staged)
    return numbers
