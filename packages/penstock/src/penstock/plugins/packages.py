"""Which versions go together: Python packages that Spark needs beside it, and the Java packages of Delta and Kafka per Spark.

Plain data: nothing here imports Spark or asks the network. `penstock doctor` shows it, and a connector that needs a package takes its
coordinates from here.
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

    coordinates: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    python: Mapping[str, str] = field(default_factory=dict)  # name → the one version that fits


# The same as the extra `spark` of the package; a test compares them.
PYTHON: Mapping[str, Range] = {
    "pyspark": Range("4.2", "4.4"),
    "pandas": Range("2.2", "3"),
    "pyarrow": Range("20"),
}

_DELTA = Package(("io.delta:delta-spark_4.2_2.13:4.4.0",), python={"delta-spark": "4.4.0"})
# The token provider that Kafka's package asks for was not published for 4.2; the one of 4.0 serves.
_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_KAFKA = Package(("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", f"{_PROVIDER}:4.0.0"), (_PROVIDER,))

# Spark's minor version → package; None where it is not published yet.
DELTA: Mapping[str, Package | None] = {"4.2": _DELTA, "4.3": None}
KAFKA: Mapping[str, Package | None] = {"4.2": _KAFKA, "4.3": None}


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
