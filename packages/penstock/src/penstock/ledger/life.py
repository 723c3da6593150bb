"""The life of one record as data: its batches, what came of it at each destination, the ack; and what follows from the ledger's rows. Pure.

`trace.py` asks the ledger for the rows, `penstock trace` shows what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.ledger.api import Kind, Nack, NackState, State
from penstock.ledger.replays import letters_in
from penstock.ranges import Range, Ranges


class Fate(StrEnum):
    """What came of a record at a destination. Where batches were filtered in part, the ledger has numbers and no names."""

    DELIVERED = "delivered"
    FILTERED = "filtered"
    EITHER = "delivered-or-filtered"
    DEAD_LETTERED = "dead-lettered"
    HELD = "held"
    REPLAYED = "replayed"
    DROPPED = "dropped"
    DISCARDED = "discarded"
    PENDING = "pending"
    NOT_KEPT = "older-than-retention"


@dataclass(frozen=True)
class LaneAt:
    """A lane, and which of its batches are kept."""

    key: int
    pipeline: str
    source: str
    next_batch: int
    next_seq: int
    acked_batch: int
    oldest: int | None = None  # batch
    oldest_time: int | None = None

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.source}"

    @property
    def pruned(self) -> bool:
        """Whether there were batches that are no longer kept."""
        return self.next_batch > 1 if self.oldest is None else self.oldest > 1


@dataclass(frozen=True)
class BatchRow:
    batch: int
    state: State
    ranges: Ranges
    time: int
    records: int | None
    parent: int | None
    reason: str
    acked_to: int | None

    def of(self, strand: str) -> Range | None:
        return next((r for r in self.ranges if r.strand == strand), None)


@dataclass(frozen=True)
class Tries:
    """The attempts at a batch."""

    count: int = 0
    error: str | None = None  # of the last that said why it ended
    targets: tuple[str, ...] = ()  # the destinations of the last


@dataclass(frozen=True)
class DeliveryRow:
    destination: str
    kind: Kind
    state: str
    hash: str
    filtered: int
    produced: int
    nacked: int
    receipt: Mapping[str, Any]
    at: int | None
    plugin: str


@dataclass(frozen=True)
class Arrival:
    """A record at a destination. `nacks`: its bad parts there; `among`: how many of the batch were filtered, and how many it had."""

    destination: str
    fate: Fate
    delivery: DeliveryRow | None = None
    nacks: tuple[Nack, ...] = ()
    among: tuple[int, int] | None = None


@dataclass(frozen=True)
class Skipped:
    reason: str
    state: str
    at: int


@dataclass(frozen=True)
class Again:
    """A replay of the record, or a try at one."""

    batch: BatchRow
    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True)
class Life:
    """`seqs`: the seq of the record, and the one behind it; further apart where its source does not say which of these it is. `batches`:
    the one that stands for it last, before that those which were split."""

    lane: LaneAt
    seqs: tuple[int, int]
    batches: tuple[BatchRow, ...]
    tries: Tries
    arrivals: tuple[Arrival, ...]
    letters: tuple[DeliveryRow, ...]  # where its dead letters went
    acked: bool | None  # None: the part of its batch before some seq is, and which side it is on nobody knows
    skipped: Skipped | None = None
    replays: tuple[Again, ...] = ()
    nacks: tuple[Nack, ...] = ()

    @property
    def exact(self) -> bool:
        return self.seqs[1] - self.seqs[0] == 1


# -- what follows ---------------------------------------------------------------------------------------------------


def arrivals(
    row: BatchRow | None, deliveries: Sequence[DeliveryRow], nacks: Sequence[Nack], targets: Sequence[str]
) -> Iterator[Arrival]:
    """What came of a record at each destination. `nacks` are its own; `targets` where an attempt at its batch would bring it."""
    here = [d for d in deliveries if d.kind is Kind.DESTINATION]
    for d in here:
        own = tuple(n for n in nacks if n.destination in ("", d.destination))
        among = (d.filtered, row.records or 0) if row is not None and d.filtered else None
        yield Arrival(d.destination, fate(d, own, row), d, own, among if not own else None)
    if here:
        return
    if row is not None and row.state in (State.OPEN, State.TAKEN, State.PREPARED):
        held = tuple(n for n in nacks if n.state is NackState.HELD)
        for name in targets or ("",):
            own = tuple(n for n in held if n.destination in ("", name))
            yield Arrival(name, Fate.HELD if own else Fate.PENDING, None, own)
    elif row is not None and row.state is State.DONE:
        yield Arrival("", Fate.DISCARDED)  # at most once, and its process died
    elif nacks:
        for name in sorted({n.destination for n in nacks}):
            own = tuple(n for n in nacks if n.destination == name)
            yield Arrival(name, _fate_of(own), None, own)
        if all(n.destination for n in nacks):
            yield Arrival("", Fate.NOT_KEPT)  # what came of it elsewhere


def fate(d: DeliveryRow, nacks: Sequence[Nack], row: BatchRow | None) -> Fate:
    if nacks:
        return _fate_of(nacks)
    if d.state != "done":
        return Fate.PENDING
    if d.receipt.get("discarded"):
        return Fate.DISCARDED
    if not d.filtered:
        return Fate.DELIVERED
    records = None if row is None else row.records
    everything = records is not None and d.filtered + d.nacked >= records + d.produced
    return Fate.FILTERED if everything else Fate.EITHER


def _fate_of(nacks: Sequence[Nack]) -> Fate:
    """Of several parts the one that needs somebody most."""
    states = {n.state for n in nacks}
    order = {
        NackState.HELD: Fate.HELD,
        NackState.OPEN: Fate.DEAD_LETTERED,
        NackState.DROPPED: Fate.DROPPED,
        NackState.REPLAYED: Fate.REPLAYED,
    }
    return next(found for state, found in order.items() if state in states)


def replayed(batches: Sequence[tuple[BatchRow, Sequence[DeliveryRow]]], nacks: Sequence[Nack]) -> Iterator[Again]:
    """The replays of a record, the oldest first. Of a batch in which only some records failed again, the record's nacks say whether it is
    one of them, and that it was replayed once more."""
    sent = [{(r.position["destination"], x[0], x[1]) for r in row.ranges for x in letters_in(r)} for row, _ in batches]
    for i, (row, deliveries) in enumerate(batches):
        own = [n for n in nacks if (n.destination, n.seq, n.part) in sent[i]]
        later = {key for keys in sent[i + 1 :] for key in keys}
        failed = any(
            n.state in (NackState.OPEN, NackState.DROPPED) or (n.destination, n.seq, n.part) in later for n in own
        )
        made = {n.destination for n in nacks if n not in own and n.at >= row.time}
        found = []
        for a in arrivals(row, deliveries, (), ()):
            if a.delivery is not None and a.delivery.nacked and a.fate is not Fate.PENDING:
                if row.state is not State.DONE:
                    a = replace(a, fate=Fate.PENDING, among=None)
                elif failed or a.destination in made:
                    a = replace(a, fate=Fate.DEAD_LETTERED, among=None)
            found.append(a)
        yield Again(row, tuple(found))


def acked(lane: LaneAt, row: BatchRow | None, batch: int, seqs: tuple[int, int]) -> bool | None:
    if batch <= lane.acked_batch:
        return True
    to = None if row is None else row.acked_to
    if to is None or to <= seqs[0]:
        return False
    return True if to >= seqs[1] else None
