"""What goes wrong while records are written, by what has to be done about it. Used in Spark's tasks and in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import PenstockError, Retry, Stop

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException


@dataclass(frozen=True)
class Why:
    """Why a record is refused."""

    text: str
    code: str


_UNKNOWN = Why("there is no topic {topic!r}", code="kafka.topic")
_TOO_LARGE = Why("it is larger than the topic {topic!r} or `batchBytes` allows", code="kafka.too-large")
_NOT_TAKEN = Why("the topic {topic!r} does not take it: {said}", code="kafka.refused")
# Kafka's names. The first are about the topic: all records for it share them.
_TOPIC = {
    "UNKNOWN_TOPIC_OR_PART": _UNKNOWN,
    "_UNKNOWN_TOPIC": _UNKNOWN,
    "_UNKNOWN_PARTITION": _UNKNOWN,
    "TOPIC_EXCEPTION": Why("{topic!r} is no name of a topic", code="kafka.topic"),
}
_RECORD = {
    "MSG_SIZE_TOO_LARGE": _TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": _TOO_LARGE,
    "INVALID_RECORD": _NOT_TAKEN,
    "INVALID_TIMESTAMP": _NOT_TAKEN,
    "POLICY_VIOLATION": _NOT_TAKEN,
}
_FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")
_NEVER = {
    "TOPIC_AUTHORIZATION_FAILED": "allow Write and Describe on every topic that it writes to",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "allow the transactional ids that begin with `penstock.`: Describe and Write",
    "CLUSTER_AUTHORIZATION_FAILED": "allow IdempotentWrite on the cluster, or Write on the topics",
    "INVALID_TRANSACTION_TIMEOUT": "make `transactionTimeout` shorter: the servers' `transaction.max.timeout.ms` is the limit",
    "SASL_AUTHENTICATION_FAILED": "correct user and password",
    "_AUTHENTICATION": "correct user and password",
    "UNSUPPORTED_VERSION": "exactly once needs servers with transactions: Kafka 2.5 or newer",
    "_UNSUPPORTED_FEATURE": "exactly once needs servers with transactions: Kafka 2.5 or newer",
}

Kind = Literal["retry", "fenced", "blocked", "stop"]


@dataclass(frozen=True)
class Failed:
    """Why a writer did not come to its end. It is handed to the engine as data: Spark must not try a task again by itself."""

    kind: Kind
    why: str
    hint: str = ""

    def to_json(self) -> list[str]:
        return [self.kind, self.why, self.hint]

    def error(self, destination: str) -> PenstockError:
        if self.kind == "stop":
            return Stop(f"{destination}: Kafka does not let it write", code="kafka.write", why=self.why, hint=self.hint)
        if self.kind == "blocked":
            return Retry(
                f"{destination}: it can't be seen what is there already",
                code="kafka.blocked",
                why=self.why,
                hint="another producer has a transaction open on these partitions; it is waited for",
            )
        return Retry(
            f"{destination}: the records could not be written",
            code="kafka.write",
            why=self.why,
            hint="it is tried again; what was written already is not written twice",
        )


class WriterFailedError(Exception):
    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.why)
        self.failed = failed


def told(e: KafkaException) -> Failed:
    error: KafkaError = e.args[0]
    name = error.name()
    if name in _FENCED:
        return Failed("fenced", f"another writer has taken over: {error.str()}")
    if name in _NEVER:
        return Failed("stop", error.str(), _NEVER[name])
    return Failed("retry", error.str())


def never(error: Any) -> bool:
    """Whether no record is taken until somebody has changed something."""
    return error.name() in _NEVER


def refusal(error: Any, topic: str) -> Why | None:
    """Why Kafka does not take a record; None where it has nothing to do with the record."""
    found = _TOPIC.get(error.name()) or _RECORD.get(error.name())
    return found and Why(found.text.format(topic=topic, said=error.str()), found.code)


def is_about_topic(error: Any) -> bool:
    return error.name() in _TOPIC
