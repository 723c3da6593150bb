"""`kafka` to `kafka`: a million records of 150 bytes from a topic to another one, against Structured Streaming by hand.

`python -m bench kafka-out`, or `python -m bench.kafka_out SHARE ROUNDS`. A real broker on the same machine, four partitions on both sides,
one Spark for everything, alternating. By hand: `readStream` and `writeStream` with `availableNow` and a checkpoint, which is at least
once. Ours is exactly once: transactions, two headers on each record, and everything accounted for.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS = 1_000_000
PARTITIONS = 4
WIDTH = 150


def main(share: float = 1.0, rounds: int = 3) -> None:
    from penstock.connectors.kafka import jars
    from penstock.engine import session
    from penstock.packages import KAFKA
    from tests.support import kafka

    records = int(RECORDS * share)
    package = KAFKA["4.2"]
    assert package is not None
    broker = kafka.Broker()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        spark = session.start(f"local[{os.cpu_count()},4]", {}, folder / "spark.log", packages=[package])
        try:
            jars.complete(spark)
            given(spark, broker.servers, records)
            compare(spark, folder, broker.servers, records, rounds)
        finally:
            spark.stop()
            broker.stop()


def given(spark: Any, servers: str, records: int) -> None:
    """Values that do not compress to nothing, with keys."""
    from pyspark.sql import functions as F

    from tests.support import kafka

    kafka.create_topic(servers, "in", PARTITIONS)
    n = F.col("id")
    text = F.concat(F.sha2(n.cast("string"), 512), F.lpad(n.cast("string"), WIDTH - 128, "."))
    rows = spark.range(0, records, 1, PARTITIONS).select(n.cast("string").alias("key"), text.alias("value"))
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "in").save()


def compare(spark: Any, folder: Path, servers: str, records: int, rounds: int) -> None:
    from tests.support import kafka

    cases: dict[str, Callable[[str], None]] = {
        "by hand": lambda topic: by_hand(spark, folder, servers, topic),
        "exactly once": lambda topic: piped(spark, folder, servers, topic),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for n in range(-1, rounds):  # the first round is for Java
        print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for i, (name, case) in enumerate(cases.items() if n % 2 else [*cases.items()][::-1]):
            topic = kafka.create_topic(servers, f"out-{n + 1}-{i}", PARTITIONS)
            began = time.monotonic()
            case(topic)
            taken = time.monotonic() - began
            found = counted(spark, servers, topic)
            if found != records:
                raise SystemExit(f"{name}: {found:,} records of {records:,} are there")
            kafka.delete_topic(servers, topic)
            print(f"    {name}: {taken:.1f} s", flush=True)
            if n >= 0:
                times[name].append(taken)
    hand = statistics.median(times["by hand"])
    for name, found_ in times.items():
        middle = statistics.median(found_)
        shown = ", ".join(f"{t:.1f}" for t in found_)
        print(f"  {name}: {middle:.1f} s ({shown}), {records / middle:,.0f} records/s, {hand / middle:.2f} of by hand")


def counted(spark: Any, servers: str, topic: str) -> int:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    found: int = rows.option("kafka.isolation.level", "read_committed").load().count()
    return found


def piped(spark: Any, folder: Path, servers: str, topic: str) -> None:
    from penstock.pipeline import Pipeline, run

    p = Pipeline("p").source("in", "kafka", servers=servers, topics="in", start="earliest")
    p.destination("out", "kafka", servers=servers, topic=topic, format="payload")
    run([p], once=True, state=folder / f"state-{topic}", spark=spark).raise_for_error()


def by_hand(spark: Any, folder: Path, servers: str, topic: str) -> None:
    """What one would write, with the settings that matter."""
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "in")
    rows = rows.option("startingOffsets", "earliest").load().select("key", "value")
    out = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic)
    out = out.option("kafka.compression.type", "snappy").option("kafka.acks", "all")
    out.option("checkpointLocation", str(folder / f"checkpoint-{topic}")).trigger(
        availableNow=True
    ).start().awaitTermination()


if __name__ == "__main__":
    main(*(kind(given_) for kind, given_ in zip((float, int), sys.argv[1:], strict=False)))
