"""The rows of the ledger as plain data. What the engine and the ledger's implementation agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.ranges import Known, Ranges


class State(StrEnum):
    """How far a batch has come. Before `prepared` a crash means start over; after it only forward."""

    OPEN = "open"
    PREPARED = "prepared"
    DONE = "done"
    DROPPED = "dropped"  # given up unread: its input changed and the source was told to take it anew


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


@dataclass(frozen=True)
class Attempt:
    """One try at a snapshot, written before its first job starts."""

    number: int
    id: str


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


@dataclass(frozen=True)
class Totals:
    """What a lane has done since its ledger began."""

    read: int
    acked: int
    delivered: Mapping[str, int]
    filtered: Mapping[str, int]
