"""What topics have already of a delivery: their ends are read back. Called in Spark's tasks and in the engine, after every writer that
could still add to it has lost its transactional id."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connectors.kafka.book import Place
from penstock.connectors.kafka.trouble import Failed, WriterFailedError

HASH, ID = "penstock.hash", "penstock.id"  # headers of every record
Starts = Mapping[str, Mapping[int, int]]  # topic → partition → offset
_AT_ONCE = 10_000
PATIENCE = 60.0  # seconds without progress
DOUBT = 5.0  # seconds


class Doubt:
    """A server that has just started may not know a topic yet that it has. So that it has none is believed after a while: one while for
    all topics together."""

    def __init__(self) -> None:
        self._until = 0.0

    def remains(self) -> bool:
        self._until = self._until or time.monotonic() + DOUBT
        return time.monotonic() < self._until


def partitions(client: Any, topic: str, wanted: int, doubt: Doubt) -> int:
    """How many a topic has; 0: there is no such topic. `wanted`: so many it had."""
    while True:
        found = client.list_topics(topic, timeout=30).topics.get(topic)
        name = "" if found is None or found.error is None else found.error.name()
        if name == "TOPIC_AUTHORIZATION_FAILED":
            return 1  # what it says when it is written to counts
        if found is not None and not name and len(found.partitions) >= max(1, wanted):
            return len(found.partitions)
        if name == "TOPIC_EXCEPTION" or not doubt.remains():
            return 0 if found is None or name else len(found.partitions)
        time.sleep(0.2)


def there(config: Mapping[str, Any], starts: Starts, topics: Sequence[str], hash_: str) -> set[bytes]:
    """The ids of the delivery's records that are committed, from the offsets on that the partitions had before it began."""
    from confluent_kafka import Consumer, TopicPartition

    wanted = hash_.encode()
    found: set[bytes] = set()
    consumer = Consumer(_reading(config))
    ends_of = Consumer({**_reading(config), "isolation.level": "read_uncommitted"})
    try:
        ends: dict[tuple[str, int], int] = {}
        assigned = []
        doubt = Doubt()
        for topic in topics:  # one that was never there, or is gone with what was in it, has no partitions
            for n in range(partitions(consumer, topic, len(starts.get(topic, ())), doubt)):
                low, end = ends_of.get_watermark_offsets(TopicPartition(topic, n), timeout=30, cached=False)
                start = max(low, starts.get(topic, {}).get(n, 0))
                if start > end:  # another topic has this name now
                    start = low
                if start < end:
                    ends[topic, n] = end
                    assigned.append(TopicPartition(topic, n, start))
        consumer.assign(assigned)
        until = time.monotonic() + PATIENCE
        while ends:
            messages = consumer.consume(_AT_ONCE, 0.1)
            for m in messages:
                if m.error() is not None:
                    continue
                headers: dict[str, Any] = dict(m.headers() or ())
                if headers.get(HASH) == wanted:
                    found.add(headers[ID])
            if messages:
                until = time.monotonic() + PATIENCE
            for p in consumer.position([TopicPartition(*key) for key in ends]):
                if p.offset >= ends[p.topic, p.partition]:
                    del ends[p.topic, p.partition]
            if ends and time.monotonic() > until:
                raise _blocked(", ".join(f"{topic}/{n}" for topic, n in ends))
    finally:
        consumer.close()
        ends_of.close()
    return found


def is_at(config: Mapping[str, Any], places: Sequence[Place], hash_: str) -> bool:
    """Whether a delivery's records are where they were written. What retention or compaction has taken away since counts as there."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(_reading(config))
    ends_of = Consumer({**_reading(config), "isolation.level": "read_uncommitted"})
    try:
        doubt = Doubt()
        for topic, n, offset in places:
            if n >= partitions(consumer, topic, n + 1, doubt):
                return False
            low, end = ends_of.get_watermark_offsets(TopicPartition(topic, n), timeout=30, cached=False)
            if end <= offset:
                return False
            if offset < low:
                continue
            consumer.assign([TopicPartition(topic, n, offset)])
            until = time.monotonic() + PATIENCE
            while consumer.position([TopicPartition(topic, n)])[0].offset <= offset:
                for m in consumer.consume(1, 0.1):
                    if (
                        m.error() is None
                        and m.offset() == offset
                        and dict(m.headers() or ()).get(HASH) != hash_.encode()
                    ):
                        return False
                if time.monotonic() > until:
                    raise _blocked(f"{topic}/{n}")
    finally:
        consumer.close()
        ends_of.close()
    return True


# How far a partition goes is asked of a consumer that sees everything: to the others, what comes behind an open transaction of anybody's
# is not there yet, and what is committed behind it would be missed.


def _reading(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **config,
        "group.id": "penstock",  # never used: partitions are assigned, and nothing is committed
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 50,
    }


def _blocked(where: str) -> WriterFailedError:
    return WriterFailedError(Failed("blocked", f"{where} could not be read to the end in {PATIENCE:.0f} s"))
