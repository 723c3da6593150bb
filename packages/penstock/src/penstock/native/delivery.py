"""A delivery: one batch of one lane going to one destination. What a destination is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


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
    rows: DataFrame | None = field(compare=False, default=None)  # the record columns the destination asked for
    schema: StructType | None = field(compare=False, default=None)  # of the record columns that reach it
    shape: Shape = Shape.RAW
    size: int = 0  # bytes of input in the batch
    ordering: Ordering = Ordering.SOURCE
    ordered: bool = (
        True  # False: rows have a column `_order`, by which stretches of a strand follow each other; else partitions do
    )


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
class Refusal:
    """A record that a destination refused while it was being committed: a late nack."""

    seq: int
    part: int
    reason: str
    code: str = "destination.refused"


class Refuse(Protocol):
    """Given to `commit`. Called for each record that is refused, in record order; may be called again for the same one.

    True: go on with the next record, this one becomes a dead letter. False: too many; publish nothing from this record on
    and return with `stopped_at`.
    """

    def __call__(self, refusal: Refusal) -> bool: ...


@dataclass(frozen=True)
class Receipt:
    """How a delivery ended. JSON; the destination's word, kept in the ledger and, where it can, beside the data."""

    written: int
    filtered: int = 0
    nacks: Mapping[str, int] = field(default_factory=dict)  # reason → how many
    made: tuple[str, ...] = ()  # names or ids of what is visible now
    refused: tuple[Refusal, ...] = ()  # all of them, also those of an earlier call of `commit`
    stopped_at: int | None = None  # seq of the record before which it stopped, because `refuse` said so

    def to_json(self) -> Any:
        value = {"written": self.written, "filtered": self.filtered, "nacks": dict(self.nacks), "made": list(self.made)}
        if self.refused:
            value["refused"] = [[r.seq, r.part, r.reason, r.code] for r in self.refused]
        return value

    @classmethod
    def from_json(cls, value: Any) -> Receipt:
        refused = tuple(Refusal(*r) for r in value.get("refused", ()))
        return cls(value["written"], value["filtered"], value["nacks"], tuple(value["made"]), refused)
