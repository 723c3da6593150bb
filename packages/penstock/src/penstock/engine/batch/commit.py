"""Steps 6 and 7, commit and done, and the acks they allow. Called by `run` and by recovery: there is one way forward.

Destinations commit side by side. Each is idempotent under its hash, so this may be entered again at any point. An ack is
not a step: it is what the ledger says once a transaction has raised the frontier.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from penstock.engine.batch.context import Work
from penstock.engine.frontier import frontier
from penstock.ledger import Prepared, Snapshot
from penstock.native import Ranges, Receipt, Staged
from penstock.testing import faults


def finish(work: Work, s: Snapshot) -> list[Ranges]:
    """Commits every delivery of a prepared batch that is not done, marks it done, and acks what that settles.

    Returns what was acked, and which strands of it are gone for good.
    """
    faults.reach("commit")
    pending = [p for p in work.ledger.prepared(s) if p.receipt is None]
    if len(pending) == 1:
        receipts = [_commit(work, s, pending[0])]
    else:
        with ThreadPoolExecutor(max(1, len(pending))) as pool:
            receipts = list(pool.map(lambda p: _commit(work, s, p), pending))
    faults.reach("K8")
    acked = []
    for p, receipt in zip(pending, receipts, strict=True):
        settled = work.ledger.done(s, p.destination, receipt.to_json(), receipt.written, frontier)
        for ranges in settled:
            faults.reach("done")
            faults.reach("ack")
            gone = tuple(work.source.acked(ranges))
            if gone:
                work.ledger.forget(s.lane, gone)
            faults.reach("acked")
            acked.append(replace(ranges, forget=gone))
    return acked


def _commit(work: Work, s: Snapshot, p: Prepared) -> Receipt:
    target = work.targets.get(p.destination)
    same = target is not None and (target.plugin, dict(target.settings)) == (p.plugin, dict(p.settings))
    destination = target.destination if target is not None and same else work.rebuild(p)
    d = replace(work.delivery_id(s, p.destination), hash=p.hash)
    receipt = destination.find(d) if faults.safeguard("receipt") else None
    if receipt is not None:
        destination.discard(d)
    else:
        receipt = destination.commit(d, Staged.from_json(p.staged))
    return replace(receipt, filtered=p.filtered)
