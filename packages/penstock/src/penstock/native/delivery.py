"""A delivery: one batch of one lane going to one destination. What a destination is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.record import Shape

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Ordering(StrEnum):
    SOURCE = "source"
    KEY = "key"
    NONE = "none"


Locate = Callable[[int], tuple[bytes, dict[str, str]]]


@runtime_checkable
class LocatesMany(Protocol):
    """What is asked where each of many records is may have a quicker way than one after the other."""

    def __call__(self, seq: int, /) -> tuple[bytes, dict[str, str]]: ...

    def many(self, seqs: np.ndarray[Any, Any], /) -> tuple[pa.Array, list[tuple[int, dict[str, str]]]]:
        """The positions, and the metadata: how many records in a row have which."""


@dataclass(frozen=True)
class Kept:
    """Rows that were written to Parquet before the delivery was prepared."""

    folder: Path
    columns: tuple[str, ...]  # that the destination is given
    defaults: Mapping[str, Any]  # of those that the files do not have; what is not named is null
    spark: SparkSession
    frame: Callable[[], DataFrame]  # all of it, as `Delivery.rows`


@dataclass(frozen=True)
class DeliveryId:
    """The name of a delivery: equal over attempts, restarts and machines."""

    pipeline: str
    lane: str
    destination: str
    batch: int
    hash: str  # 32 hex digits over epoch, ids and real positions
    fence: int  # raised by every start of an engine on this state folder; a destination that can refuses older ones
    epoch: int  # of the lane: another state folder has another one, and its fences say nothing about these


@dataclass(frozen=True)
class Delivery(DeliveryId):
    """One try at a delivery. `rows` is None in `commit`, `find` and `discard`: nothing is recomputed there."""

    attempt: int
    attempt_id: str  # random: no two attempts, not even of a process believed dead, share a staging place
    rows: DataFrame | None = field(compare=False, default=None)  # the record columns the destination asked for
    kept: Kept | None = field(compare=False, default=None)  # instead of `rows`, for a destination that `reads_kept`
    schema: StructType | None = field(compare=False, default=None)  # of the record columns that reach it
    shape: Shape = Shape.RAW
    size: int = 0  # bytes of input in the batch
    bases: tuple[int, ...] = ()  # where the seqs of each strand in the batch begin; none: it is not known
    ordering: Ordering = Ordering.SOURCE
    locate: Locate | None = field(
        compare=False, default=None
    )  # position and metadata by seq, where rows do not have them
    partitions: int = 1  # that may be written side by side where the order is not the source's; the same at every try
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
    payload: str | None = None  # JSON of what was to be written, from a destination that `keeps_refused`

    def to_json(self) -> list[Any]:
        found = [self.seq, self.part, self.reason, self.code]
        return found if self.payload is None else [*found, self.payload]


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
    settled_to: int | None = None  # then: every record with a lower seq is settled; None: all before `stopped_at`

    def to_json(self) -> Any:
        value = {"written": self.written, "filtered": self.filtered, "nacks": dict(self.nacks), "made": list(self.made)}
        if self.refused:
            value["refused"] = [r.to_json() for r in self.refused]
        return value

    @classmethod
    def from_json(cls, value: Any) -> Receipt:
        refused = tuple(Refusal(*r) for r in value.get("refused", ()))
        return cls(value["written"], value["filtered"], value["nacks"], tuple(value["made"]), refused)
