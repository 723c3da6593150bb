"""At most once: a batch is settled and acked before it is read, processed once, and never run again.

Whatever happens between the two costs the batch: what was in flight counts as discarded. The one exception to "what is not
accounted for is not acked".
"""

from __future__ import annotations

from penstock.engine.batch.account import Account, account
from penstock.engine.batch.admit import Admitted, GateClosed, admit
from penstock.engine.batch.commit import ack, commit
from penstock.engine.batch.context import Work
from penstock.engine.batch.late import LateNacks
from penstock.engine.batch.prepare import deliveries_of, late_detail, schema_of, stage_letters
from penstock.engine.batch.stage import stage
from penstock.engine.frontier import frontier
from penstock.engine.gate import Ring
from penstock.ledger import Attempt, Snapshot
from penstock.native import Ranges
from penstock.testing import faults


def take(work: Work, ranges: Ranges) -> tuple[Snapshot, Attempt, list[Ranges]]:
    """Settles a batch before anything of it is read. Returns what was acked."""
    s, attempt, settled = work.ledger.take_and_settle(work.lane, ranges, work.refs, frontier)
    return s, attempt, ack(work, s.lane, settled)


def send(work: Work, s: Snapshot, attempt: Attempt) -> Account:
    """Processes and writes a batch that is settled already. Whatever raises here has lost it."""
    staged = stage(work, s, attempt)
    a = account(work, s, staged)
    rings = work.ledger.rings(s.lane)
    before = {name: Ring.from_json(rings.get(name)) for name in work.targets}
    open_gates = Admitted(before, before, dict.fromkeys(work.targets, ()))
    details = {name: late_detail(work, s, open_gates, staged, name, a) for name in work.targets}
    deliveries = deliveries_of(work, s, {name: t.staged for name, t in staged.targets.items()}, a.sums, details)
    deliveries += stage_letters(work, s, attempt, a.letters, schema=schema_of(work, staged.scan))
    nacks = [letter.nack() for letter in a.letters]
    faults.reach("commit")
    receipts = {}
    closed: GateClosed | None = None
    for p in deliveries:  # grows by the dead letters of what is refused
        receipt = commit(work, s, p, lambda _: True)  # nothing can be held: its source is acked
        assert receipt is not None
        receipts[p.destination] = receipt.to_json()
        late = LateNacks(work, s, p)
        if not all(late(refusal) for refusal in receipt.refused):
            closed = late.closed()
        if (brought := late.settle(receipt)) is not None:
            nacks += brought.nacks
            deliveries += brought.deliveries
    work.ledger.processed(s, a.records, deliveries, nacks, receipts)
    admit(work, s, a)
    if closed is not None:
        raise closed
    return a


def lost(work: Work, s: Snapshot) -> int | None:
    """A batch that was in flight when its process died, or that failed. Returns how many records it had, if that is known."""
    records = work.source.count(s.ranges)
    work.ledger.lost(s, records, list(work.targets))
    return records
