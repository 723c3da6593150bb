"""What every step of a batch is given: the lane's own parts. Made once per lane by `engine/lane.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.ledger import Lane, Ledger, Prepared, Snapshot
from penstock.native import DeliveryId, ExactlyOnceDestination, Limits, NativeSource, Processor
from penstock.plan.hashing import delivery_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Target:
    """A destination of the lane, with what the ledger needs to make it again."""

    destination: ExactlyOnceDestination[Any]
    plugin: str
    settings: Mapping[str, str]  # references, never expanded values


@dataclass(frozen=True)
class Work:
    """One lane's parts."""

    lane: Lane
    source: NativeSource[Any]
    processors: tuple[Processor[Any], ...]
    targets: Mapping[str, Target]
    limits: Limits
    spark: SparkSession
    ledger: Ledger
    rebuild: Callable[[Prepared], ExactlyOnceDestination[Any]]  # a destination as it was at prepare

    def delivery_id(self, s: Snapshot, destination: str) -> DeliveryId:
        lane = self.lane
        name = delivery_hash(lane.pipeline, lane.source, s.epoch, destination, s.ranges)
        return DeliveryId(lane.pipeline, lane.source, destination, s.batch, name, self.ledger.fence)
