"""A batch, step by step. Called by the lane with a snapshot that is in the ledger; runs in the lane's thread.

Whatever is raised before `prepare` leaves the snapshot as it was, to be tried again; after it, the batch is only ever
finished by `finish`, here or in recovery.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.batch.account import account
from penstock.engine.batch.commit import finish
from penstock.engine.batch.context import Work
from penstock.engine.batch.prepare import prepare
from penstock.engine.batch.process import process
from penstock.engine.batch.read import read
from penstock.engine.batch.stage import stage
from penstock.ledger import Attempt, Snapshot
from penstock.ranges import Ranges


@dataclass(frozen=True)
class Done:
    records: int
    filtered: int
    acked: list[Ranges]


def run(work: Work, s: Snapshot, attempt: Attempt) -> Done:
    scan = read(work, s)
    processed = process(work, scan.rows)
    staged = stage(work, s, attempt, processed.rows)
    records, filtered = account(work, s, scan, processed, staged)
    prepare(work, s, records, filtered, staged)
    return Done(records, filtered, finish(work, s))
