"""The yardstick: decode, filter, set, encode as hand-written Structured Streaming. `python handwritten_decode.py IN OUT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target = sys.argv[1:]
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
after = F.from_json("value", "id STRING, amount BIGINT, region STRING, pad STRING")
query = (
    spark.readStream.text(source)
    .select(after.alias("after"))
    .where(~(F.col("after.amount") < 50))
    .select(F.to_json(F.col("after").withField("region", F.lit("eu"))).alias("value"))
    .writeStream.format("text")
    .option("path", target)
    .option("checkpointLocation", target + ".checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
