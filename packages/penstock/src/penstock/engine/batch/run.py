"""A batch, step by step. Called by the lane with a snapshot that is in the ledger; runs in the lane's thread.

Two halves with the prepare between them. Whatever is raised in `compute` leaves the snapshot as it was, to be tried again or
given up. After it the batch is prepared, and only ever finished: by `commit.finish`, here or in recovery.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.batch.account import account
from penstock.engine.batch.context import Work
from penstock.engine.batch.prepare import prepare
from penstock.engine.batch.process import process
from penstock.engine.batch.read import read
from penstock.engine.batch.stage import stage
from penstock.ledger import Attempt, Snapshot


@dataclass(frozen=True)
class Counts:
    records: int
    filtered: int


def compute(work: Work, s: Snapshot, attempt: Attempt) -> Counts:
    scan = read(work, s)
    processed = process(work, scan.rows)
    staged = stage(work, s, attempt, processed.rows)
    records, filtered = account(work, s, scan, processed, staged)
    prepare(work, s, records, filtered, staged)
    return Counts(records, filtered)
