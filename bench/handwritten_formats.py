"""The yardstick: one format to itself as hand-written Structured Streaming. `python handwritten_formats.py FORMAT IN OUT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

form, source, target = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
options = {"header": "true"} if form == "csv" else {}
schema = "id STRING, amount BIGINT, region STRING, price DOUBLE, at TIMESTAMP, pad STRING"
if form == "csv":
    schema = "id STRING, amount STRING, region STRING, price STRING, at STRING, pad STRING"
query = (
    spark.readStream.schema(schema)
    .options(**options)
    .format(form)
    .load(source)
    .writeStream.format(form)
    .options(**options)
    .option("path", target)
    .option("checkpointLocation", target + ".checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
