"""The yardstick: text to text as hand-written Structured Streaming. `python handwritten_text.py IN OUT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

source, target = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
query = (
    spark.readStream.text(source)
    .writeStream.format("text")
    .option("path", target)
    .option("checkpointLocation", target + ".checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
