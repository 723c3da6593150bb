"""A delivery: one batch of one lane going to one destination. What a destination is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Ordering(StrEnum):
    SOURCE = "source"
    KEY = "key"
    NONE = "none"


@dataclass(frozen=True)
class DeliveryId:
    """The name of a delivery: equal over attempts, restarts and machines."""

    pipeline: str
    lane: str
    destination: str
    batch: int
    hash: str  # 32 hex digits over epoch, ids and real positions
    fence: int  # raised by every start of an engine on this state folder; a destination that can refuses older ones


@dataclass(frozen=True)
class Delivery(DeliveryId):
    """One try at a delivery. `rows` is None in `commit`, `find` and `discard`: nothing is recomputed there."""

    attempt: int
    attempt_id: str  # random: no two attempts, not even of a process believed dead, share a staging place
    rows: DataFrame | None = field(compare=False, default=None)
    shape: Shape = Shape.RAW
    ordering: Ordering = Ordering.SOURCE


@dataclass(frozen=True)
class Staged:
    """What `stage` wrote and `commit` will publish: exactly this and nothing else. JSON; kept in the ledger from prepare on."""

    rows: int  # counted from what was written, not from the plan
    bytes: int = 0
    manifest: Any = None  # the destination's own: names, ids, a staging table

    def to_json(self) -> Any:
        return {"rows": self.rows, "bytes": self.bytes, "manifest": self.manifest}

    @classmethod
    def from_json(cls, value: Any) -> Staged:
        return cls(value["rows"], value["bytes"], value["manifest"])


@dataclass(frozen=True)
class Receipt:
    """How a delivery ended. JSON; the destination's word, kept in the ledger and, where it can, beside the data."""

    written: int
    filtered: int = 0
    nacks: Mapping[str, int] = field(default_factory=dict)  # reason → how many
    made: tuple[str, ...] = ()  # names or ids of what is visible now

    def to_json(self) -> Any:
        return {"written": self.written, "filtered": self.filtered, "nacks": dict(self.nacks), "made": list(self.made)}

    @classmethod
    def from_json(cls, value: Any) -> Receipt:
        return cls(value["written"], value["filtered"], value["nacks"], tuple(value["made"]))
