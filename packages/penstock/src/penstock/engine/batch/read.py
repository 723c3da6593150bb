"""Step 2, read: a DataFrame of exactly the snapshot's ranges, counted directly above the scan. Nothing runs yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import record
from penstock.engine.batch.context import Work
from penstock.ledger import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

RECORDS = "records"


@dataclass(frozen=True)
class Scan:
    rows: DataFrame  # the record columns that are looked at
    seen: Observation  # RECORDS and the source's evidence; read it only after the job succeeded


def read(work: Work, s: Snapshot) -> Scan:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    work.source.recheck(s.ranges)
    columns = set(record.COLUMNS) if work.processors else {record.AFTER}
    frame = work.source.frame(work.spark, s.ranges, columns)
    seen = Observation()
    counts = [F.count(F.lit(1)).alias(RECORDS)]
    counted = frame.observe(seen, *counts, *(c.alias(name) for name, c in work.source.evidence().items()))
    missing = columns - set(frame.columns)
    return Scan(counted.withColumns({c: v for c, v in _defaults(work.lane.source, s).items() if c in missing}), seen)


def _defaults(source: str, s: Snapshot) -> dict[str, Column]:
    """What a record has where its source says nothing. Time is the snapshot's, equal on every attempt."""
    from pyspark.sql import functions as F

    nothing = F.lit(None)
    return {
        record.SOURCE: F.lit(source),
        record.SEQ: nothing.cast("long"),
        record.PART: F.lit(0),
        record.POSITION: nothing.cast("binary"),
        record.OPERATION: F.lit("create"),
        record.NAMESPACE: nothing.cast("string"),
        record.PHASE: F.lit("sync"),
        record.TIMESTAMP: F.timestamp_millis(F.lit(s.batch_time)),
        record.METADATA: nothing.cast("map<string,string>"),
        record.KEY: nothing.cast("binary"),
        record.BEFORE: nothing.cast("binary"),
        record.AFTER: nothing.cast("binary"),
    }
