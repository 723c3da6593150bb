"""Step 5, prepare: one transaction with all that commit needs. Before it a crash means start over; after it only forward."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.batch.context import Work
from penstock.ledger import Prepared, Snapshot
from penstock.native import Staged
from penstock.testing import faults


def prepare(work: Work, s: Snapshot, records: int, filtered: int, staged: Mapping[str, Staged]) -> None:
    faults.reach("prepare")
    deliveries = []
    for name, st in staged.items():
        target = work.targets[name]
        hash_ = work.delivery_id(s, name).hash
        deliveries.append(Prepared(name, hash_, target.plugin, target.settings, st.to_json(), filtered))
    work.ledger.prepare(s, records, deliveries)
    faults.reach("K7")
