"""Step 4, account: what was read must be what was staged and what was filtered, to the record. Fails closed."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.batch.context import Work
from penstock.engine.batch.process import FILTERED, Processed
from penstock.engine.batch.read import RECORDS, Scan
from penstock.errors import AccountError
from penstock.ledger import Snapshot
from penstock.native import Staged
from penstock.testing import faults


def account(work: Work, s: Snapshot, scan: Scan, processed: Processed, staged: Mapping[str, Staged]) -> tuple[int, int]:
    """Returns how many records were read and how many of them were filtered, or raises."""
    seen = dict(scan.seen.get)
    records = seen.pop(RECORDS)
    filtered = processed.seen.get[FILTERED] if processed.seen else 0
    work.source.recheck(s.ranges)
    work.source.verify(s.ranges, records, {name: value or 0 for name, value in seen.items()})
    promised = work.source.promised(s.ranges)
    if promised is not None and promised != records:
        _refuse(s, f"the source promised {promised} records and {records} were read")
    for name, st in staged.items():
        if records != st.rows + filtered:
            _refuse(s, f"{records} records were read; {st.rows} were staged at {name} and {filtered} filtered")
    return records, filtered


def _refuse(s: Snapshot, why: str) -> None:
    if faults.safeguard("account"):
        raise AccountError(
            f"The numbers of batch {s.batch} do not add up",
            code="account.mismatch",
            why=why,
            hint="nothing of it was delivered; the same batch is tried again at the next start",
        )
