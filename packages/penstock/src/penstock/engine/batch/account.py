"""Step 4, account: what was read must be what was staged, filtered and dead-lettered, to the record. Fails closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from penstock.engine.aside import added
from penstock.engine.batch.context import Work
from penstock.engine.batch.deadletter import Letters, place_of, read_counts, read_dead
from penstock.engine.batch.process import FILTERED, WARNED
from penstock.engine.batch.read import LARGEST, RECORDS
from penstock.engine.batch.stage import Part, StagedBatch
from penstock.errors import AccountError, TooLarge
from penstock.ledger import Snapshot
from penstock.testing import faults


@dataclass(frozen=True)
class Sums:
    """What a chain of processors came to; two chains in a row add up."""

    produced: int = 0
    filtered: int = 0
    dead: int = 0
    warned: Mapping[str, int] = field(default_factory=dict)  # by processor: what went on although something is wrong

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.produced + other.produced,
            self.filtered + other.filtered,
            self.dead + other.dead,
            added(self.warned, other.warned),
        )


@dataclass(frozen=True)
class Account:
    records: int
    sums: Mapping[str, Sums]  # per destination
    letters: Letters
    dead: int  # records with a dead letter at some destination

    @property
    def warned(self) -> dict[str, int]:
        """By processor. What all destinations share is counted once."""
        found: dict[str, int] = {}
        for sums in self.sums.values():
            found |= sums.warned
        return found


def account(work: Work, s: Snapshot, batch: StagedBatch) -> Account:
    seen = dict(batch.scan.seen.get)
    records = seen.pop(RECORDS)
    largest = seen.pop(LARGEST, None) or 0
    if largest > work.limits.max_record_bytes and not work.refuse_large:
        raise TooLarge(f"A record has {largest} bytes", code="record.too-large")
    work.source.recheck(s.ranges)
    work.source.verify(s.ranges, records, {name: value or 0 for name, value in seen.items()})
    promised = work.source.promised(s.ranges) if not s.ranges.cut else None
    if promised is not None and promised != records:
        _refuse(s, f"the source promised {promised} records and {records} were read")
    common = _sums(batch.common)
    sums = {name: common + _sums(target.own) for name, target in batch.targets.items()}
    for name, target in batch.targets.items():
        n, rows = sums[name], target.staged.rows
        if records + n.produced != rows + n.filtered + n.dead:
            made = f" and {n.produced} more made by splitting" if n.produced else ""
            _refuse(
                s,
                f"{records} records were read{made}; {rows} were staged at {name}, {n.filtered} filtered"
                f" and {n.dead} nacked",
            )
    lines = [("", batch.common.lines), *((name, t.own.lines) for name, t in batch.targets.items())]
    single = len(batch.targets) == 1  # one destination: its nacks are those of every destination
    where = tuple(("" if single else name, files) for name, files in lines if files is not None)
    letters = Letters(work.source.source_id, place_of(work, s), where)
    dead = len(set(chain.from_iterable(letters.seqs().values()))) if any(n.dead for n in sums.values()) else 0
    return Account(records, sums, letters, dead)


def _sums(part: Part) -> Sums:
    filtered = sum(seen.get[FILTERED] for seen in part.filtered)
    warned: dict[str, int] = {}
    for seen in part.filtered:
        own = {name.removeprefix(WARNED): n for name, n in seen.get.items() if name.startswith(WARNED)}
        warned = added(warned, own)
    if part.lines is None:
        return Sums(0, filtered, 0, warned)
    count = read_counts(part.lines)
    dead = sum(1 for _ in read_dead(part.lines))
    return Sums(count.produced, filtered + count.filtered, dead, added(warned, count.warned))


def _refuse(s: Snapshot, why: str) -> None:
    if faults.safeguard("account"):
        raise AccountError(
            f"The numbers of batch {s.batch} do not add up",
            code="account.mismatch",
            why=why,
            hint="nothing of it was delivered; a processor that returns another number of rows than it was given is the"
            " likely cause. The same batch is tried again at the next start",
        )
