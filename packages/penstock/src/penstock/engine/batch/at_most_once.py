"""At most once: a batch is settled and acked before it is read, processed once, and never run again.

Whatever happens between the two costs the batch: what was in flight counts as discarded. The one exception to "what is not
accounted for is not acked".
"""

from __future__ import annotations

from penstock.engine.batch.account import Account, account
from penstock.engine.batch.admit import admit
from penstock.engine.batch.commit import ack, commit
from penstock.engine.batch.context import Work
from penstock.engine.batch.late import LateNacks
from penstock.engine.batch.prepare import deliveries_of, stage_letters
from penstock.engine.batch.stage import stage
from penstock.engine.frontier import frontier
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
    deliveries = deliveries_of(work, s, {name: t.staged for name, t in staged.targets.items()}, a.sums)
    deliveries += stage_letters(work, s, attempt, a.letters)
    faults.reach("commit")
    receipts = {}
    for p in deliveries:
        receipt = commit(work, s, p, LateNacks(work, s, p))
        assert receipt is not None
        receipts[p.destination] = receipt.to_json()
    work.ledger.processed(s, a.records, deliveries, [letter.nack() for letter in a.letters], receipts)
    admit(work, s, a)
    return a


def lost(work: Work, s: Snapshot) -> int | None:
    """A batch that was in flight when its process died, or that failed. Returns how many records it had, if that is known."""
    records = work.source.count(s.ranges)
    work.ledger.lost(s, records, list(work.targets))
    return records
