"""Which batches are settled. Pure: the ledger calls it inside the transaction that finishes a delivery."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.testing import faults


def frontier(acked: int, batches: Mapping[int, bool]) -> int:
    """The highest batch such that it and every batch after `acked` up to it is settled.

    `batches` says of every batch after `acked` whether all destinations that decide are done with it. A batch that is
    done while one before it is not does not count: a source is told in the order of its records, or not at all.
    """
    if not faults.safeguard("prefix-ack"):
        return max((b for b, settled in batches.items() if settled), default=acked)
    reached = acked
    for batch in sorted(batches):
        if not batches[batch]:
            break
        reached = batch
    return reached
