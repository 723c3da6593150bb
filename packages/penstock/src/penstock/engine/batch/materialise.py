"""The processed batch on disk: written once under the attempt, as uncompressed Parquet, and read by everything that follows.

Spark's cache would be recomputed when an executor is lost, with other outcomes; a file is not. It is kept until the batch is
done where something after the prepare still needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import fs, record
from penstock.engine import aside
from penstock.engine.batch.process import Flow
from penstock.native.staging import part_order
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BLOCK = 64 * 1024 * 1024  # spark.sql.files.maxPartitionBytes of a lane's session
_ROWS = "rows"


@dataclass(frozen=True)
class Materialised:
    """A folder with one part per outcome."""

    folder: Path
    rows: int  # to be delivered
    flow: Flow  # reads them

    def lines(self) -> AsideFiles:
        return AsideFiles(self.folder, parquet=True)


@dataclass(frozen=True)
class AsideFiles:
    """Where the lines aside of a job are."""

    folder: Path
    parquet: bool

    def files(self, outcome: str) -> list[Path]:
        """In the order of partitions."""
        found = self.folder.glob(f"{record.OUTCOME}={outcome}/**/part-*")
        return sorted(found, key=part_order)


def materialise(spark: SparkSession, flow: Flow, columns: Sequence[str], folder: Path) -> Materialised:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    faults.reach("materialise")
    fs.make_folder(folder.parent, 0o700)
    rows = flow.rows
    text = F.lit(None).cast("string")
    outcome = F.col(record.OUTCOME) if flow.marked else text
    names = [c for c in record.COLUMNS if c in columns]
    kept = [*names, *(c for c in (record.GIVEN, record.LINE) if c in rows.columns)]
    line = F.col(record.ASIDE) if flow.marked else text
    rows = rows.select(
        *kept, line.alias(record.ASIDE), F.coalesce(outcome, F.lit(aside.DELIVERED)).alias(record.OUTCOME)
    )
    seen = Observation()
    rows = rows.observe(seen, F.count_if(F.col(record.OUTCOME) == aside.DELIVERED).alias(_ROWS))
    rows.write.partitionBy(record.OUTCOME).option("compression", "uncompressed").parquet(str(folder))
    schema = rows.select(*kept).schema
    return Materialised(
        folder, seen.get[_ROWS], Flow(reread(spark, folder, schema), flow.shape, ordered=False, checked=flow.checked)
    )


def reread(spark: SparkSession, folder: Path, schema: StructType) -> DataFrame:
    """What is to be delivered, with the order of the stretches it was written in: Spark sorts files by size."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    part = folder / f"{record.OUTCOME}={aside.DELIVERED}"
    if not part.exists():
        return spark.createDataFrame([], StructType([*schema.fields, StructField(record.ORDER, LongType())]))
    number = F.regexp_extract(F.col("_metadata.file_name"), r"part-(\d+)-", 1).cast("long")
    order = number * 100_000 + F.floor(F.col("_metadata.file_block_start") / _BLOCK)
    rows = spark.read.schema(schema).parquet(str(part))
    return rows.select(*schema.names, order.cast("long").alias(record.ORDER))
