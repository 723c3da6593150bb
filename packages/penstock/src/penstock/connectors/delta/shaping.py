"""A table that takes the fields of the records: found, made, given columns, or refused. Runs before anything is staged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.connectors.delta.columns import compare, odd_names
from penstock.connectors.delta.commits import quoted
from penstock.connectors.delta.settings import DeltaDestinationSettings
from penstock.connectors.delta.table import Layout, Table
from penstock.connectors.delta.trouble import explained
from penstock.errors import Retry, Stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType


def location(spark: SparkSession, name: str) -> str:
    """Of a table in Spark's catalog: where its files are."""
    from pyspark.errors import AnalysisException

    why, found = "", None
    try:
        found = (
            spark.sql(f"DESCRIBE DETAIL {'.'.join(map(quoted, name.split('.')))}").select("format", "location").head()
        )
    except AnalysisException as e:
        why = str(e).partition("\n")[0]
    if found is None or found["format"] != "delta":
        raise Stop(
            f"Spark's catalog has no Delta table {name!r}",
            code="delta.table",
            why=why or f"its format is {found and found['format']}",
            hint="make it there (a catalog in memory ends with Spark), or give the folder of the table in `path`",
        )
    where: str = found["location"]
    return where.removeprefix("file:") if where.startswith("file:/") else where


def fit(table: Table, name: str, fields: StructType, settings: DeltaDestinationSettings) -> Layout:
    layout = table.layout()
    new = compare(fields, layout.schema).new if layout is not None else tuple(fields.names)
    if odd := odd_names(new):
        raise _misfit(name, f"Delta takes no names like {', '.join(map(repr, odd))}")
    if layout is None or (new and settings.merge_schema):
        kept = [f for f in layout.schema.fields if f.name not in new] if layout is not None else []
        wanted = [*kept, *(f for f in fields.fields if f.name in new)]
        with suppress(Retry):  # somebody else was at it: then it may be as it should
            _shape(table, name, wanted, settings.partitions if layout is None else ())
        layout = table.layout()
    if layout is None:
        raise Retry(f"The table {name} was not made, since somebody else was at it", code="delta.conflict")
    compared = compare(fields, layout.schema)
    names = {f.name for f in layout.schema.fields}
    missing = [f"there is no column for {field!r}" for field in compared.new if field not in names]
    other = [f"{field!r} has other fields than the column" for field in compared.new if field in names]
    if wrong := [*compared.bad, *missing, *other]:
        raise _misfit(name, "; ".join(wrong))
    if settings.partitions and settings.partitions != layout.partitions:
        raise _misfit(
            name, f"it is partitioned by {', '.join(layout.partitions) or 'nothing'}, not as `partition-by` says"
        )
    return layout


def no_rows(spark: SparkSession, fields: Sequence[StructField]) -> DataFrame:
    from pyspark.sql import functions as F

    return spark.range(0).select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in fields))


def _misfit(name: str, why: str) -> Stop:
    return Stop(
        f"The records do not fit the table {name}",
        code="delta.schema",
        why=why,
        hint="nothing was written: change the table, or the fields with processors; `merge-schema: true` adds columns that are missing",
    )


def _shape(table: Table, name: str, fields: Sequence[StructField], partitions: tuple[str, ...]) -> None:
    """A commit without rows: Delta itself says whether it can hold such columns."""
    writer = no_rows(table.spark, fields).write.format("delta").mode("append").option("mergeSchema", "true")
    with explained(name):
        (writer.partitionBy(*partitions) if partitions else writer).save(table.root)
