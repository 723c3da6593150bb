"""What every step of a batch is given: the lane's own parts. Made once per lane by the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import deadletters
from penstock.engine.gate import DEFAULT, Window
from penstock.ledger import Lane, Ledger, Prepared, Snapshot, TargetRef
from penstock.native import (
    DeliveryId,
    ExactlyOnceDestination,
    Limits,
    NativeDestination,
    NativeSource,
    Surroundings,
)
from penstock.plan.hashing import delivery_hash
from penstock.plan.nodes import Node, shape_behind
from penstock.record import Shape
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DLQ = "dead-letter-queue"  # the delivery name of the configured dead letter queue
DEAD_LETTERS = (
    "dead-letters"  # and of the state folder's own; no connector's id has a colon, so `…:<destination>` is free
)


class Guarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


@dataclass(frozen=True)
class Target:
    """A destination of the lane, with what the ledger needs to make it again."""

    destination: NativeDestination[Any]
    plugin: str
    settings: Mapping[str, str]  # references, never expanded values
    nodes: tuple[Node, ...] = ()  # the destination's own processors
    _chains: dict[Shape, tuple[Node, ...]] = field(default_factory=dict, compare=False, repr=False)

    def chain(self, shape: Shape) -> tuple[Node, ...]:
        """Its own processors, and what the destination itself needs to take what reaches it."""
        if shape not in self._chains:
            last = self.destination.processors_for(shape_behind(self.nodes, shape))
            self._chains[shape] = (*self.nodes, *(Node(p) for p in last))
        return self._chains[shape]

    def ref(self, name: str) -> TargetRef:
        return TargetRef(name, self.plugin, self.settings)

    def stages(self, guarantee: Guarantee) -> ExactlyOnceDestination[Any] | None:
        """The destination, where its rows are staged before they are published."""
        staged = guarantee is Guarantee.EXACTLY_ONCE and isinstance(self.destination, ExactlyOnceDestination)
        return self.destination if staged and isinstance(self.destination, ExactlyOnceDestination) else None

    @property
    def may_refuse(self) -> bool:
        """True where single records may be refused when the batch is prepared already."""
        return self.destination.may_refuse


@dataclass(frozen=True)
class Outcomes:
    """What `on_outcome` handlers are told: how one batch of one lane ended. Per destination where that matters."""

    pipeline: str
    source: str
    batch: int
    records: int
    delivered: Mapping[str, int]
    filtered: Mapping[str, int]
    dead_lettered: Mapping[str, int]


@dataclass(frozen=True)
class Work:
    """One lane's parts."""

    lane: Lane
    source: NativeSource[Any]
    nodes: tuple[Node, ...]  # the processors every record of the lane goes through
    targets: Mapping[str, Target]
    limits: Limits
    spark: SparkSession
    ledger: Ledger
    rebuild: Callable[[Prepared | TargetRef], NativeDestination[Any]]  # a destination as it was
    state: Path  # the state folder
    window: Window = DEFAULT
    dlq: Target | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    handlers: tuple[Callable[[Outcomes], None], ...] = ()
    finish_gone: bool = False  # finish what is prepared for destinations that are gone
    abandon: Collection[str] = field(default_factory=tuple)  # or give it up
    rehearsed: set[int] = field(default_factory=set)  # nodes (by id()) whose expressions Spark has tried on no record
    refuse_large: bool = False  # this batch is known to hold one
    secrets: Secrets = field(default_factory=Secrets)  # what no text that leaves the lane may hold
    around: Surroundings | None = None  # for sources that keep something of their own
    start: Callable[[NativeDestination[Any]], None] | None = (
        None  # gives a destination what it needs of that, before it is written
    )
    recovering: Callable[[str, bool], None] | None = (
        None  # is told of each destination whether it had the batch already
    )
    narrow: Callable[[Work, Snapshot], Work] | None = None  # of a replay: what one batch needs of all this
    hopes: set[str] = field(default_factory=lambda: {"no nack"})  # emptied by a batch that had one, see `hopeful`

    @property
    def replaying(self) -> bool:
        """Its records are dead letters already: what fails again is no new one."""
        return self.narrow is not None

    def of(self, s: Snapshot) -> Work:
        """What a batch is computed with."""
        return self if self.narrow is None else self.narrow(self, s)

    @property
    def hopeful(self) -> bool:
        """Batches are staged as if no record would fail, until one does; then with all that a dead letter needs, until a batch
        has none again."""
        return bool(self.hopes) and not self.refuse_large

    def delivery_id(self, s: Snapshot, destination: str) -> DeliveryId:
        lane = self.lane
        name = delivery_hash(lane.pipeline, lane.source, s.epoch, destination, s.ranges)
        return DeliveryId(lane.pipeline, lane.source, destination, s.batch, name, self.ledger.fence, s.epoch)

    def workdir(self, s: Snapshot) -> Path:
        """What the attempts at a batch keep until it is done."""
        return self.state / "work" / folder_name(self.lane) / self.delivery_id(s, "").hash

    @property
    def refs(self) -> list[TargetRef]:
        found = [target.ref(name) for name, target in self.targets.items()]
        return [*found, self.dlq.ref(DLQ)] if self.dlq else found


def folder_name(lane: Lane) -> str:
    return deadletters.folder(lane.pipeline, lane.source)
