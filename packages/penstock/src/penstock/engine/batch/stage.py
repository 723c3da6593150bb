"""Step 3b, stage: the jobs run here. Every destination writes its rows where nobody sees them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.engine.batch.context import Work
from penstock.ledger import Attempt, Snapshot
from penstock.native import Delivery, Staged
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stage(work: Work, s: Snapshot, attempt: Attempt, rows: DataFrame) -> dict[str, Staged]:
    faults.reach("stage")
    attempt_id = attempt.id if faults.safeguard("attempt-names") else "attempt"
    staged = {}
    for name, target in work.targets.items():
        d = Delivery(**asdict(work.delivery_id(s, name)), attempt=attempt.number, attempt_id=attempt_id, rows=rows)
        staged[name] = target.destination.stage(d)
    faults.reach("K6")
    return staged
