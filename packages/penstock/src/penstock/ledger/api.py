"""The rows of the ledger as plain data. What the engine and the ledger's implementation agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.ranges import Known, Ranges


class State(StrEnum):
    """How far a batch has come. Before `prepared` a crash means start over; after it only forward."""

    OPEN = "open"
    PREPARED = "prepared"
    DONE = "done"
    DROPPED = "dropped"  # given up unread: its input changed and the source was told to take it anew
    SPLIT = "split"  # two smaller batches stand for it
    TAKEN = "taken"  # at most once: acked before it was processed, and never run again


class Kind(StrEnum):
    """What a delivery is for."""

    DESTINATION = "destination"
    DEAD_LETTERS = "dead-letters"  # the state folder's own
    DLQ = "dlq"  # the configured dead letter queue


class NackState(StrEnum):
    OPEN = "open"
    HELD = "held"  # it closed the gate: the source is not acked
    REPLAYED = "replayed"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Lane:
    """Where a lane stands. `key` is the ledger's own name for it."""

    key: int
    pipeline: str
    source: str
    epoch: int
    next_batch: int
    acked_batch: int
    known: Known


@dataclass(frozen=True)
class Snapshot:
    """A batch: written once, before anything of it is read. Retries find it."""

    lane: int
    batch: int
    epoch: int
    state: State
    ranges: Ranges
    batch_time: int  # milliseconds since 1970
    parent: int | None = None  # the batch it was split from
    reason: str = ""  # why that was split
    acked_to: int | None = None  # of a prepared batch: records before this seq are acked already


@dataclass(frozen=True)
class Attempt:
    """One try at a snapshot, written before its first job starts."""

    number: int
    id: str


@dataclass(frozen=True)
class TargetRef:
    """Enough to make a destination again: references, never expanded values."""

    destination: str
    plugin: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Prepared:
    """A delivery from prepare on: what was staged, and who can publish it."""

    destination: str
    hash: str
    plugin: str
    settings: Mapping[str, str]  # references, never expanded values
    staged: Any  # JSON of native.Staged
    filtered: int
    receipt: Any = None  # JSON of native.Receipt; None = not done
    kind: Kind = Kind.DESTINATION
    produced: int = 0
    nacked: int = 0
    gate: Any = None  # JSON: what a nack that comes late needs to know
    held: Any = None  # JSON: the record at which it stopped


@dataclass(frozen=True)
class Nack:
    """A dead letter as the ledger knows it."""

    seq: int
    part: int
    destination: str  # "" = every destination
    id: str
    position: bytes
    node: str
    code: str
    error: str
    at: int  # milliseconds since 1970
    state: NackState = NackState.OPEN
    record: str | None = None  # JSON of the whole dead letter, while held
    batch: int = 0
    tries: int = 0  # replays that were in vain


@dataclass(frozen=True)
class Late:
    """What a commit brought that prepare did not know: nacks, the deliveries that carry them, and the ring they changed."""

    nacks: Sequence[Nack] = ()
    deliveries: Sequence[Prepared] = ()
    ring: str | None = None
    skipped: Sequence[int] = ()  # of the nacks, those that a person wants to be skipped


@dataclass(frozen=True)
class Totals:
    """What a lane has done since its ledger began, per destination where that matters."""

    read: int
    acked: int
    delivered: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    discarded: Mapping[str, int] = field(default_factory=dict)
    produced: Mapping[str, int] = field(default_factory=dict)
