"""What a destination asks the cluster before it writes. Runs in the engine process."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.connection import ANSWER, Heard, answered, connected
from penstock.connectors.kafka.destination_settings import KafkaDestinationSettings
from penstock.connectors.kafka.writing import Limits
from penstock.errors import Stop

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Target:
    """With one client, made when it is first needed."""

    def __init__(self, settings: KafkaDestinationSettings) -> None:
        self._settings = settings
        self.heard = Heard()
        self._made: AdminClient | None = None

    @property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._made is None:
            config: dict[str, Any] = {**self._settings.librdkafka(), "error_cb": self.heard}
            made = AdminClient(config)
            self.heard.serve = lambda: made.poll(0.2)
            self._made = made
        return self._made

    def check(self, topic: str | None) -> None:
        """It answers, and has the topic."""
        with connected(self._settings, self.heard):
            found = self._admin.list_topics(timeout=ANSWER) if topic is None else self._known(topic)
        self.heard.forget()
        error = getattr(found, "error", None)
        if error is not None and error.name() == "UNKNOWN_TOPIC_OR_PART":
            raise Stop(
                f"Kafka at {self._settings.servers} has no topic {topic!r}",
                code="kafka.unknown-topic",
                hint="correct `topic`, or create it: how many partitions and replicas it has is for you to say",
            )

    def ends(self, topics: Collection[str]) -> dict[str, dict[str, int]]:
        """Where the partitions end now: what is published later comes behind. A topic that is not there has none."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def begins(self, topics: Collection[str]) -> dict[str, dict[str, int]]:
        """Where they begin: retention takes away what is older."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def _offsets(self, topics: Collection[str], which: Any) -> dict[str, dict[str, int]]:
        from confluent_kafka import TopicPartition

        found: dict[str, dict[str, int]] = {}
        with connected(self._settings, self.heard):
            asked = {TopicPartition(topic, n): which for topic in topics for n in self._known(topic).partitions}
            answers = self._admin.list_offsets(asked, request_timeout=ANSWER) if asked else {}
            for p, future in answers.items():
                found.setdefault(p.topic, {})[str(p.partition)] = answered(future).offset
        return found

    def limits(self, topics: Collection[str]) -> dict[str, Limits]:
        """What the topics say of themselves. Where that may not be asked they say it of each record."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        made = dict.fromkeys(topics, Limits())
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        with connected(self._settings, self.heard):
            answers = self._admin.describe_configs(resources, request_timeout=ANSWER) if resources else {}
            for resource, future in answers.items():
                try:
                    found = answered(future)
                except KafkaException:
                    continue
                most = int(found["max.message.bytes"].value)
                keyed = "compact" in found["cleanup.policy"].value
                made[resource.name] = Limits(most if most < self._settings.batch_bytes else None, keyed)
        return made

    def _known(self, topic: str) -> Any:
        return self._admin.list_topics(topic, timeout=ANSWER).topics[topic]
