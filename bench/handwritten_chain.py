"""The yardstick: five operations on fields as hand-written Structured Streaming. `python handwritten_chain.py FORM IN OUT`.

`text`: lines of JSON, decoded with `from_json` into columns and encoded with `to_json`. `object`: the same on the object as it is, with
`withField` and `dropFields`. `parquet`: Parquet to Parquet, columns as they are.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

form, source, target = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
SCHEMA = "id STRING, amount BIGINT, region STRING, price DOUBLE, at {}, pad STRING"


def operations(rows: DataFrame) -> DataFrame:
    return (
        rows.withColumn("region", F.lit("us"))
        .withColumn("origin", F.lit("shop"))
        .withColumn("amount", F.col("amount").cast("string"))
        .withColumnRenamed("id", "key")
        .drop("price")
    )


if form == "object":
    after = F.from_json("value", SCHEMA.format("STRING"))
    rows = spark.readStream.text(source).select(after.alias("after"))
    after = F.col("after").withField("region", F.lit("us")).withField("origin", F.lit("shop"))
    after = after.withField("amount", F.col("after.amount").cast("string")).withField("key", F.col("after.id"))
    rows = rows.select(F.to_json(after.dropFields("id", "price")).alias("value"))
elif form == "text":
    rows = (
        spark.readStream.text(source)
        .select(F.from_json("value", SCHEMA.format("STRING")).alias("after"))
        .select("after.*")
    )
    rows = operations(rows).select(F.to_json(F.struct("*")).alias("value"))
else:
    rows = operations(spark.readStream.schema(SCHEMA.format("TIMESTAMP")).parquet(source))
query = (
    rows.writeStream.format("parquet" if form == "parquet" else "text")
    .option("path", target)
    .option("checkpointLocation", target + ".checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
