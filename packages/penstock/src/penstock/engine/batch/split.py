"""`split`: the one way to make a batch smaller, before it is prepared.

| use                          | where it is cut                       | what follows                                            |
|------------------------------|---------------------------------------|---------------------------------------------------------|
| `gate`: too many nacks       | before the record that was one too many | the first half runs; the record is held, the pipeline stops |
| `killed`: it kills a process | at the middle record                  | both halves run, each of them cut again if it kills     |
| `unreadable`: a bad file     | before it, then behind it             | what is around it runs; the file becomes a dead letter  |

The halves have ranges, numbers and hashes of their own, and name the batch they come from. Ranges only ever shrink.
"""

from __future__ import annotations

import shutil

from penstock.engine.batch.commit import same
from penstock.engine.batch.context import DEAD_LETTERS, DLQ, Work
from penstock.engine.batch.deadletter import DeadLetters
from penstock.errors import PenstockError
from penstock.ledger import Nack, Snapshot
from penstock.native import ExactlyOnceDestination
from penstock.testing import faults


def split(work: Work, s: Snapshot, at: int, reason: str, held: Nack | None = None) -> list[Snapshot]:
    """Cuts an open batch before the record with seq `at`. Returns the halves, or nothing where one would be empty: then only
    `held` is written down."""
    first, second = s.ranges.split(at)
    discard(work, s)
    if not first or not second:
        if held is not None:
            work.ledger.hold(s, held)
        return []
    faults.reach("K3")
    halves = work.ledger.split(s, first, second, reason, held)
    faults.reach("K4")
    return halves


def discard(work: Work, s: Snapshot) -> None:
    """Removes whatever attempts at an unprepared batch have staged, also at destinations that have changed since."""
    for ref in work.ledger.attempted(s):
        target = work.dlq if ref.destination == DLQ else work.targets.get(ref.destination)
        try:
            destination = target.destination if target is not None and same(target, ref) else work.rebuild(ref)
        except PenstockError:
            continue  # it can't be made any more: what it staged is under its own hidden folder
        if isinstance(destination, ExactlyOnceDestination):
            destination.discard(work.delivery_id(s, ref.destination))
    DeadLetters(work).discard(work.delivery_id(s, DEAD_LETTERS))
    shutil.rmtree(work.workdir(s), ignore_errors=True)
