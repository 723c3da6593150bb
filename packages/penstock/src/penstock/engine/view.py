"""What a running engine can be asked at any time: what each lane is doing, how far it is, how much waits. Plain data.

`Engine.view()` makes it; the live table of `penstock run` and its lines every few seconds show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.native import Behind


def human_size(n: float) -> str:
    """1234567 → 1.2 MB"""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:,.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:,.1f} TB"


@dataclass(frozen=True)
class Doing:
    """What is going on, in words, and since when (`time.monotonic()`)."""

    what: str
    since: float


class Status(StrEnum):
    RUNNING = "running"
    RECOVERING = "recovering"  # waiting after a Retry
    STOPPED = "stopped"
    DEGRADED = "degraded"

    @property
    def ended_well(self) -> bool:
        return self is Status.STOPPED


@dataclass(frozen=True)
class Remaining:
    """What a stop could not finish; it is delivered at the next start. `records` is None where counting would take long."""

    batches: int
    files: int
    bytes: int
    records: int | None


@dataclass(frozen=True)
class LaneView:
    """One source and what is downstream of it. Counts are those of this run, of batches that are done."""

    source: str
    status: str  # one of Status
    doing: Doing
    read: int = 0
    acked: int = 0
    delivered: Mapping[str, int] = field(default_factory=dict)  # every destination is in it, in the order of the file
    filtered: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    behind: Behind | None = None


@dataclass(frozen=True)
class PipelineView:
    id: str
    lanes: tuple[LaneView, ...]


@dataclass(frozen=True)
class View:
    """`doing` is the engine's own: starting Spark, running, stopping."""

    doing: Doing
    pipelines: tuple[PipelineView, ...] = ()
