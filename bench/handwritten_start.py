"""The job of `penstock init`'s pipeline written by hand: `handwritten_start.py sql|python IN OUT`, in a plain session.

`sql` reads typed JSON with Spark's own reader; `python` sees each line as Python does, as Penstock's open payloads do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id STRING, customer STRING, item STRING, quantity INT, price DOUBLE, status STRING, _corrupt_record STRING"


def by_sql(spark: SparkSession, source: str) -> DataFrame:
    rows = spark.read.schema(SCHEMA).json(source)
    good = rows.where("_corrupt_record IS NULL AND status <> 'cancelled'").drop("_corrupt_record")
    return good.withColumn("total", F.round(F.col("quantity") * F.col("price"), 2)).select(
        F.to_json(F.struct("*")).alias("value")
    )


def by_python(spark: SparkSession, source: str) -> DataFrame:
    def orders(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            made = []
            for line in batch.column(0).to_pylist():
                try:
                    order = json.loads(line)
                except ValueError:
                    continue
                if order["status"] != "cancelled":
                    made.append(json.dumps({**order, "total": round(order["quantity"] * order["price"], 2)}))
            yield pa.RecordBatch.from_pydict({"value": made})

    return spark.read.text(source).mapInArrow(orders, "value STRING")


if __name__ == "__main__":
    how, source, out = sys.argv[1:]
    session = SparkSession.builder.master("local[*]").getOrCreate()
    made = {"sql": by_sql, "python": by_python}[how](session, source)
    made.write.mode("overwrite").text(out)
    print("delivered", flush=True)
