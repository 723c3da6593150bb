"""Step 3a, process: the processors of the lane as one plan. A processor gives columns; only this file touches rows.

Filtered rows are counted where they are dropped. Nothing runs yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import record
from penstock.engine.batch.context import Work
from penstock.errors import Stop
from penstock.native import Columns
from penstock.record import Outcome, Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

FILTERED = "filtered"


@dataclass(frozen=True)
class Processed:
    rows: DataFrame  # what is to be delivered
    seen: Observation | None  # FILTERED; None when nothing can filter


def process(work: Work, rows: DataFrame) -> Processed:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if not work.processors:
        return Processed(rows, None)
    kept = F.col(record.OUTCOME).isNull()
    rows = rows.withColumn(record.OUTCOME, F.lit(None).cast("string"))
    for p in work.processors:
        step = p.compile(Columns({c: F.col(c) for c in record.COLUMNS}, Shape.RAW))
        if step is None:
            raise Stop(f"The processor {p.processor_id} can't run on Spark columns", code="processor.unsupported")
        changed = {c: F.when(kept, value).otherwise(F.col(c)) for c, value in step.set.items()}
        if step.drop is not None:
            filtered = F.lit(Outcome.FILTERED.value)
            changed[record.OUTCOME] = F.when(kept & step.drop, filtered).otherwise(F.col(record.OUTCOME))
        rows = rows.withColumns(changed)
    # A condition that is always true must not let the optimiser throw the scan away, and the counts with it: the outcome
    # depends on something it can't know.
    rows = rows.withColumn(record.OUTCOME, F.when(F.spark_partition_id() >= 0, F.col(record.OUTCOME)))
    seen = Observation()
    counted = rows.observe(seen, F.count(F.col(record.OUTCOME)).alias(FILTERED))
    return Processed(counted.where(kept).drop(record.OUTCOME), seen)
