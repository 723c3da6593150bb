"""Staged rows into the table: one commit, with the transaction and the note. Runs Spark jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.connectors.delta.notes import Note
from penstock.native.staging import free_names
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BATCH = "penstock_batch"


def append(rows: DataFrame, root: str, note: Note) -> None:
    writer = rows.write.format("delta").mode("append").option("userMetadata", note.text())
    if faults.safeguard("delta-note"):
        writer = writer.option("txnAppId", note.app).option("txnVersion", str(note.batch))
    writer.save(root)


@contextmanager
def noted(spark: SparkSession, note: Note) -> Iterator[SparkSession]:
    """A MERGE is told by settings what goes with its commit: in a session of its own, since a lane's destinations commit side by side."""
    from pyspark.sql import SparkSession

    own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    own.conf.set("spark.databricks.delta.commitInfo.userMetadata", note.text())
    if faults.safeguard("delta-note"):
        own.conf.set("spark.databricks.delta.write.txnAppId", note.app)
        own.conf.set("spark.databricks.delta.write.txnVersion", str(note.batch))
    yield own


def merge(rows: DataFrame, root: str, manifest: Mapping[str, Any], keys: Sequence[str]) -> None:
    """The last change of each key in the batch."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    (seq, part, op), columns = manifest["own"], manifest["columns"]
    last = Window.partitionBy(*map(quoted, keys)).orderBy(F.col(quoted(seq)).desc(), F.col(quoted(part)).desc())
    [place] = free_names(["_place"], rows.columns).values()
    rows.withColumn(place, F.row_number().over(last)).where(F.col(quoted(place)) == 1).createOrReplaceTempView(_BATCH)
    same = " AND ".join(f"t.{quoted(k)} = s.{quoted(k)}" for k in keys)
    changes = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in columns if c not in keys)
    names, values = (", ".join(f"{of}{quoted(c)}" for c in columns) for of in ("", "s."))
    update = f" WHEN MATCHED THEN UPDATE SET {changes}" if changes else ""
    rows.sparkSession.sql(
        f"MERGE INTO delta.{quoted(root)} t USING {_BATCH} s ON {same}"
        f" WHEN MATCHED AND s.{quoted(op)} = 'd' THEN DELETE{update}"
        f" WHEN NOT MATCHED AND s.{quoted(op)} <> 'd' THEN INSERT ({names}) VALUES ({values})"
    )


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
