"""The processed batch on disk: written once under the attempt, as uncompressed Parquet, and read by everything that follows.

Spark's cache would be recomputed when an executor is lost, with other outcomes; a file is not. It is kept until the batch is
done where something after the prepare still needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import fs, record
from penstock.engine import aside
from penstock.engine.batch.process import Flow
from penstock.native.staging import part_order
from penstock.record import Shape
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BLOCK = 64 * 1024 * 1024  # spark.sql.files.maxPartitionBytes of a lane's session


@dataclass(frozen=True)
class Materialised:
    """A folder with one part per outcome."""

    folder: Path
    rows: int  # to be delivered
    schema: StructType
    shape: Shape
    checked: bool
    spark: SparkSession

    @cached_property
    def flow(self) -> Flow:
        """Reads them. Made when it is asked for: Spark looks into the folder."""
        return Flow(reread(self.spark, self.folder, self.schema), self.shape, ordered=False, checked=self.checked)

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
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    faults.reach("materialise")
    fs.make_folder(folder.parent, 0o700)
    rows = flow.rows
    fields = {f.name: f for f in rows.schema}
    kept = [c for c in (*record.COLUMNS, record.GIVEN, record.LINE) if c in fields]
    kept = [c for c in kept if c in columns or c in (record.GIVEN, record.LINE)]
    to = folder
    if flow.marked:
        outcome = F.coalesce(F.col(record.OUTCOME), F.lit(aside.DELIVERED)).alias(record.OUTCOME)
        writer = rows.select(*kept, record.ASIDE, outcome).write.partitionBy(record.OUTCOME)
    else:
        writer, to = rows.select(*kept).write, _delivered(folder)
    writer.option("compression", "uncompressed").parquet(str(to))
    return Materialised(folder, _count(folder), StructType([fields[c] for c in kept]), flow.shape, flow.checked, spark)


def _delivered(folder: Path) -> Path:
    return folder / f"{record.OUTCOME}={aside.DELIVERED}"


def _count(folder: Path) -> int:
    """Rows that are to be delivered, as their files have it."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in _delivered(folder).glob("part-*"))


def reread(spark: SparkSession, folder: Path, schema: StructType) -> DataFrame:
    """What is to be delivered, with the order of the stretches it was written in: Spark sorts files by size."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    part = _delivered(folder)
    if not part.exists():
        return spark.createDataFrame([], StructType([*schema.fields, StructField(record.ORDER, LongType())]))
    number = F.regexp_extract(F.col("_metadata.file_name"), r"part-(\d+)-", 1).cast("long")
    order = number * 100_000 + F.floor(F.col("_metadata.file_block_start") / _BLOCK)
    rows = spark.read.schema(schema).parquet(str(part))
    return rows.select(*schema.names, order.cast("long").alias(record.ORDER))
