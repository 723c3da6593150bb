"""Pipelines from Kafka to Kafka, for those who kill them, and the oracle over what a plain client reads."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.kafka import jars
from penstock.errors import Stop
from penstock.packages import KAFKA
from tests.support import kafka
from tests.support.harness import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAD = "x" * 20
PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    dead-letter-queue: {{window-size: 0}}
    connectors:
      - id: in
        type: source
        plugin: kafka
        settings: {{servers: "{servers}", topics: {topic}, start: earliest, poll: 20ms, discover: 200ms}}
        batch: {{max-records: {batch}}}
      - id: out
        type: destination
        plugin: kafka
        settings: {{servers: "{servers}", topic: {to}, format: payload, transactionTimeout: 10s}}
{processors}"""


def with_package(spark: SparkSession) -> SparkSession:
    """The tests' JVM is there before anyone knows that Kafka is needed."""
    package = KAFKA["4.2"]
    assert package is not None
    try:
        jars.add(spark, f"ivy://{package.coordinates[0]}?exclude={','.join(package.excludes)}")
        jars.complete(spark)
    except Stop as e:
        pytest.skip(f"Spark's package for Kafka can't be had from Maven: {e.why}")
    return spark


def topic(partitions: int = 1, servers: str = "", **config: Any) -> str:
    return kafka.create_topic(servers or kafka.broker().servers, "s" + secrets.token_hex(6), partitions, **config)


def issue(servers: str, name: str, partition: int, first: int, last: int) -> list[str]:
    """Records as the oracle knows them; returns their ids."""
    ids = [f"p{partition}:{n}" for n in range(first, last)]
    kafka.produce(servers, name, [f"{i}:{PAD}".encode() for i in ids], partition)
    return ids


@dataclass
class FromKafka(Case):
    """A topic that is read; each record names its partition and its place there."""

    servers: str = ""
    topic: str = ""
    partitions: int = 3
    batch: int = 40
    counts: dict[int, int] = field(default_factory=dict)

    def issue_more(self, per: int) -> None:
        for p in range(self.partitions):
            first = self.counts.get(p, 0)
            self.issued += issue(self.servers, self.topic, p, first, first + per)
            self.counts[p] = first + per


@dataclass
class Between(FromKafka):
    """From one topic to another one."""

    to: str = ""

    def configure(self) -> None:
        self.topic = self.topic or topic(self.partitions, self.servers)
        self.to = self.to or topic(2, self.servers)
        given = {"servers": self.servers, "topic": self.topic, "to": self.to, "batch": self.batch}
        (self.root / "p.yaml").write_text(PIPELINE.format(processors=self.processors, **given))

    def found(self) -> Counter[str]:
        return Counter(
            (m.value or b"").decode().rpartition(":")[0] for m in kafka.read_committed(self.servers, self.to)
        )

    def wrong(self, *, without: frozenset[str] = frozenset()) -> list[str]:
        """Whatever is missing, twice, invented, or not in the order of its partition."""
        found, wanted = self.found(), Counter(i for i in self.issued if i not in without)
        wrong = [f"missing: {sorted(wanted - found)}"] if wanted - found else []
        wrong += [f"too many: {sorted(found - wanted)}"] if found - wanted else []
        by: dict[tuple[int, str], list[int]] = {}
        for m in kafka.read_committed(self.servers, self.to):
            strand, n, _ = (m.value or b"").decode().split(":")
            by.setdefault((m.partition, strand), []).append(int(n))
        return wrong + [f"{where} in another order" for where, ns in by.items() if ns != sorted(ns)]
