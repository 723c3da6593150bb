"""Step 2, read: a DataFrame of exactly the snapshot's ranges, counted directly above the scan. Nothing runs yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine.batch.context import Work
from penstock.ledger import Snapshot
from penstock.ranges import Ranges
from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

RECORDS = "records"
LARGEST = "largest"  # bytes of the largest payload, where it is raw


@dataclass(frozen=True)
class Scan:
    rows: DataFrame  # the record columns that the source gave, of those that are looked at
    seen: Observation  # RECORDS and the source's evidence; read it only after the job succeeded


def read(work: Work, s: Snapshot, columns: Collection[str]) -> Scan:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    work.source.recheck(s.ranges)
    wanted = {*columns, record.SEQ} if s.ranges.cut else set(columns)
    inner = f"{record.AFTER}."
    frame = work.source.frame(work.spark, s.ranges, wanted)
    inside = _inside(s.ranges)
    if record.SKIP in frame.columns:
        inside = ~F.col(record.SKIP) if inside is None else inside & ~F.col(record.SKIP)
    counted = F.count(F.lit(1)) if inside is None else F.count_if(inside)
    seen = Observation()
    evidence = (c.alias(name) for name, c in work.source.evidence().items())
    sizes = [F.max(F.octet_length(record.AFTER)).alias(LARGEST)] if _measured(work, frame) else []
    rows = frame.observe(seen, counted.alias(RECORDS), *sizes, *evidence)
    if inside is not None:
        # Depends on something the optimiser can't know: a filter it could push into the scan would change what is counted.
        rows = rows.where(inside & (F.spark_partition_id() >= 0))
    names = {record.AFTER if c.startswith(inner) else c for c in wanted}
    return Scan(rows.select(*(c for c in frame.columns if c in names)), seen)


def _measured(work: Work, frame: DataFrame) -> bool:
    return work.source.shape is Shape.RAW and record.AFTER in frame.columns


def _inside(ranges: Ranges) -> Column | None:
    """Which records count, where ranges were cut: seqs tell strands apart, so one stretch per cut is enough."""
    from pyspark.sql import functions as F

    seq = F.col(record.SEQ)
    ordered = sorted(ranges, key=lambda r: r.base)
    outside = []
    for r, following in zip(ordered, [*ordered[1:], None], strict=True):
        if r.low is not None:
            outside.append((seq >= r.base) & (seq < r.low))
        if r.high is not None:
            end = (seq < following.base) if following is not None else F.lit(True)
            outside.append((seq >= r.high) & end)
    return ~reduce(lambda a, b: a | b, outside) if outside else None


def with_defaults(rows: DataFrame, work: Work, s: Snapshot, columns: Collection[str]) -> DataFrame:
    """Adds what a record has where its source says nothing."""
    from pyspark.sql import functions as F

    missing = set(columns) - set(rows.columns)
    if not missing:
        return rows
    known = defaults(work, s)
    made = {c: F.lit(v) for c, v in known.items() if c in missing and c != record.TIMESTAMP}
    if record.TIMESTAMP in missing:
        made[record.TIMESTAMP] = F.timestamp_millis(F.lit(s.batch_time))
    made |= {c: F.lit(None).cast(kind) for c, kind in _NOTHING.items() if c in missing}
    return rows.withColumns({c: made[c] for c in record.COLUMNS if c in made})


_NOTHING = {
    record.SEQ: "long",
    record.POSITION: "binary",
    record.NAMESPACE: "string",
    record.METADATA: "map<string,string>",
    record.KEY: "binary",
    record.BEFORE: "binary",
    record.AFTER: "binary",
}


def defaults(work: Work, s: Snapshot) -> dict[str, Any]:
    """The same as values, as far as they are not null. Time is the snapshot's, equal on every attempt."""
    return {
        record.SOURCE: work.source.source_id,
        record.PART: 0,
        record.OPERATION: "create",
        record.PHASE: "sync",
        record.TIMESTAMP: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=s.batch_time),
    }
