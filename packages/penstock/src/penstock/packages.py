"""Which versions go together: Python packages that Spark needs beside it, and the Java packages of Delta and Kafka per Spark.

Plain data: nothing here imports Spark or asks the network. `penstock doctor` shows it, connectors that need a package name it, and the
engine gives it to Spark (`engine/packages.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Range:
    """Versions from `low` on, below `high`, if there is one."""

    low: str
    high: str = ""

    def __contains__(self, version: str) -> bool:
        numbers = parts(version)
        return parts(self.low) <= numbers and (not self.high or numbers < parts(self.high))

    def __str__(self) -> str:
        return f">={self.low}" + (f",<{self.high}" if self.high else "")


@dataclass(frozen=True)
class Package:
    """What Spark resolves (`spark.jars.packages` and `spark.jars.excludes`), and what is to be installed in Python with it."""

    coordinates: tuple[str, ...]  # the first is the package itself
    excludes: tuple[str, ...] = ()
    python: Mapping[str, str] = field(default_factory=dict)  # name → the one version that fits
    conf: Mapping[str, str] = field(default_factory=dict)  # what Spark has to be told for it
    entry: str = ""  # a class of it: whether a Spark that is there already has it


# As connectors say what they need: Spark's minor version → a package, or its coordinates; None where it is not published yet.
Needs = Mapping[str, Package | str | None]


# The same as the extra `spark` of the package; a test compares them.
PYTHON: Mapping[str, Range] = {
    "pyspark": Range("4.2", "4.4"),
    "pandas": Range("2.2", "3"),
    "pyarrow": Range("20"),
}

# What Delta asks for and Spark has, most of it newer: 13 MB are left of 87.
_SPARK_HAS = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-hadoop",
    "org.roaringbitmap:RoaringBitmap",
    "org.slf4j:slf4j-api",
)
_DELTA = Package(
    ("io.delta:delta-spark_4.2_2.13:4.4.0",),
    _SPARK_HAS,
    python={"delta-spark": "4.4.0"},
    conf={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "4",  # tasks to learn what a table is; 50 by default, at every commit
    },
    entry="org.apache.spark.sql.delta.DeltaLog",
)
# The token provider that Kafka's package asks for was not published for 4.2; the one of 4.0 serves. What is excluded is excluded in every
# version, so Spark does not fetch this one either: `connectors/kafka/jars.py` does.
_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_KAFKA = Package(
    ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", f"{_PROVIDER}:4.0.0"),
    (
        _PROVIDER,
        "at.yawk.lz4:lz4-java",  # from here on what Spark has in the same version
        "com.google.code.findbugs:jsr305",
        "org.scala-lang.modules:scala-parallel-collections_2.13",
        "org.slf4j:slf4j-api",
        "org.xerial.snappy:snappy-java",
    ),
    entry="org.apache.spark.sql.kafka010.KafkaSourceProvider",
)
POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.14"
_POSTGRES = Package((POSTGRES_DRIVER,), ("org.checkerframework:checker-qual",), entry="org.postgresql.Driver")

# Spark's minor version → package; None where it is not published yet.
DELTA: Mapping[str, Package | None] = {"4.2": _DELTA, "4.3": None}
KAFKA: Mapping[str, Package | None] = {"4.2": _KAFKA, "4.3": None}
POSTGRES: Mapping[str, Package | None] = {
    "4.2": _POSTGRES,
    "4.3": _POSTGRES,
}  # a JDBC driver: it does not depend on Spark


def parts(version: str) -> tuple[int, ...]:
    """4.2.0 → (4, 2), 4.3.0.dev1 → (4, 3): the numbers in front, without zeros at the end, so that 3 and 3.0 are the same."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(n) for n in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def minor(spark: str) -> str:
    """4.2.0 → 4.2, the key of the tables."""
    return ".".join(spark.split(".")[:2])
