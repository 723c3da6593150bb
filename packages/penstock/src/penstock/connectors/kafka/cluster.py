"""Kafka as the source asks it: which topics and partitions there are, where they begin and end, and what a group has read. Nothing of it
reads records but `widths` and `count`. In the engine process, from the lane's thread; `stop` may be set from any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.connection import ANSWER, Heard, KafkaConnection, answered, connected, trouble
from penstock.connectors.kafka.planning import Stretch
from penstock.connectors.kafka.source_settings import Place
from penstock.errors import PenstockError, Retry

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_SAMPLE = 200  # records whose size is looked at
_SAMPLED = 8  # partitions that they come from
COUNTED = 200_000  # offsets that are worth reading to count what is in them


@dataclass(frozen=True)
class Topic:
    """As it is now."""

    id: str
    partitions: int


class Cluster:
    """One connection to Kafka."""

    def __init__(self, settings: KafkaConnection, stop: threading.Event) -> None:
        self.settings = settings
        self._heard = Heard()
        self._stop = stop
        with connected(settings):
            from confluent_kafka.admin import AdminClient

            given: dict[str, Any] = {**settings.librdkafka(), "error_cb": self._heard}
            self._admin = AdminClient(given)
            self._heard.serve = lambda: self._admin.poll(0.2)

    def _asks(self) -> Any:
        return connected(self.settings, self._heard)

    def look(self) -> tuple[str, list[str]]:
        """The id of the cluster, and the names of all topics that are not Kafka's own."""
        with self._asks():
            found = self._admin.list_topics(timeout=ANSWER)
        self._heard.forget()
        return found.cluster_id or "", sorted(name for name in found.topics if not name.startswith("__"))

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that are there."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        made: dict[str, Topic] = {}
        if not names:
            return made
        with self._asks():
            asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER)
            for name, future in asked.items():
                try:
                    found = answered(future, self._stop)
                except KafkaException as e:
                    if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
                made[name] = Topic(str(found.topic_id), len(found.partitions))
        return made

    # -- offsets -------------------------------------------------------------------------------------------------------------

    def begins(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset that is still there, of each; whoever has no leader for a moment is not in it."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(dict.fromkeys(places, OffsetSpec.earliest()))  # type: ignore[no-untyped-call]

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset behind the last record that is committed, of each: one request, whatever their number."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(dict.fromkeys(places, OffsetSpec.latest()))  # type: ignore[no-untyped-call]

    def since(self, places: Collection[Place], moment: int) -> dict[Place, int]:
        """The first record that is not older than so many milliseconds; where there is none, the end."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        found = self._offsets(dict.fromkeys(places, OffsetSpec.for_timestamp(moment)))
        late = [p for p, offset in found.items() if offset < 0]
        return found | (self.ends(late) if late else {})

    def _offsets(self, wanted: Mapping[Place, Any]) -> dict[Place, int]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

        if not wanted:
            return {}
        found: dict[Place, int] = {}
        with self._asks():
            asked = self._admin.list_offsets(
                {TopicPartition(*p): spec for p, spec in wanted.items()},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=ANSWER,
            )
            missing = None
            for tp, future in asked.items():
                try:
                    found[tp.topic, tp.partition] = answered(future, self._stop).offset
                except KafkaException as e:
                    missing = self._passes(e)
            if not found and missing is not None:
                raise missing
        self._heard.forget()
        return found

    def _passes(self, e: Any) -> Exception:
        """What may be over in a moment: a leader that is chosen, a partition that is just made or, so far, just gone."""
        from confluent_kafka import KafkaError as E

        if e.args[0].code() in (E._NOENT, E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_PARTITION, E._UNKNOWN_TOPIC):
            return Retry(
                f"Kafka at {self.settings.servers} has no leader for a partition",
                code="kafka.connection",
                why=e.args[0].str(),
                hint="it chooses one by itself; see that all of its brokers run",
            )
        error = trouble(e.args[0], self.settings, self._heard)
        if not isinstance(error, Retry):
            raise error from e
        return error

    # -- groups --------------------------------------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[Place, int]) -> Future[Any]:
        """Writes down how far a group is. Nothing is awaited."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        made = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        given = [ConsumerGroupTopicPartitions(group, made)]
        future: Future[Any] = self._admin.alter_consumer_group_offsets(given, request_timeout=ANSWER)[group]
        return future

    def refusal(self, commit: Future[Any], timeout: float) -> str | None:
        """Why what `commit` was given was not written; None: it was."""
        from confluent_kafka import KafkaException

        try:
            found = [p.error for p in commit.result(timeout).topic_partitions if p.error is not None]
        except KafkaException as e:
            found = [e.args[0]]
        except NotYet:
            return f"nothing came for {timeout:.0f} s"
        return trouble(found[0], self.settings).what if found else None

    # -- records -------------------------------------------------------------------------------------------------------------

    def width(self, starts: Mapping[Place, int]) -> int | None:
        """Bytes that a record has about, by the first ones from these offsets on. None where none can be had."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            some = sorted(starts)[:_SAMPLED]
            consumer.assign([TopicPartition(*p, starts[p]) for p in some])
            sizes: list[int] = []
            until = time.monotonic() + 2.0
            while len(sizes) < _SAMPLE and time.monotonic() < until and not self._stop.is_set():
                messages = [m for m in consumer.consume(_SAMPLE, 0.2) if m.error() is None]
                if sizes and not messages:
                    break
                sizes += [len(m.value() or b"") + len(m.key() or b"") for m in messages]
            return sum(sizes) // len(sizes) + 1 if sizes else None
        finally:
            _close(consumer)

    def count(self, stretches: Collection[Stretch]) -> int | None:
        """How many records there are. Reads them; None where they are too many, or can't be had in a few seconds."""
        from confluent_kafka import TopicPartition

        ends = {s.place: s.end for s in stretches if s.offsets}
        if sum(s.offsets for s in stretches) > COUNTED:
            return None
        if not ends:
            return 0
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(*s.place, s.start) for s in stretches if s.offsets])
            n = 0
            until = time.monotonic() + ANSWER
            while time.monotonic() < until:
                found = consumer.consume(10_000, 0.2)
                if any(m.error() is not None for m in found):
                    return None
                n += len([m for m in found if (m.offset() or 0) < ends[m.topic() or "", m.partition() or 0]])
                at = consumer.position([TopicPartition(*p) for p in ends])
                if all(p.offset >= ends[p.topic, p.partition] for p in at):
                    return n
            return None
        finally:
            _close(consumer)

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        more = {
            "group.id": self.settings.client_id,  # it has to have one, and neither joins nor commits
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 8192,
            "error_cb": self._heard,
        }
        return Consumer({**self.settings.librdkafka(), **more})


def _close(consumer: Consumer) -> None:
    with suppress(Exception):
        consumer.close()


def counted(settings: KafkaConnection, stretches: Collection[Stretch]) -> int | None:
    """`Cluster.count` for those who have no connection any more."""
    try:
        return Cluster(settings, threading.Event()).count(stretches)
    except PenstockError:
        return None
