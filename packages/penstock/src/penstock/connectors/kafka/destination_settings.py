"""Settings of `kafka` as a destination, declared once. No Spark."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Duration, Size
from penstock.connectors.kafka.connection import KafkaConnection
from penstock.plan.templated import checked

TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAMESPACE = re.compile(r"\{\{-?\s*index\s+\.Metadata\s+\"opencdc\.collection\"\s*-?\}\}")


def _topic(value: str) -> str:
    if "{{" not in value and (not TOPIC.fullmatch(value) or value in (".", "..")):
        raise ValueError(
            "must be the name of a topic (letters, digits, `.`, `_` and `-`, at most 249), or a Go template"
        )
    return checked(value)


class KafkaDestinationSettings(KafkaConnection):
    """Writes records to topics of Kafka, exactly once for those who read committed records.

    The topic is fixed, the namespace of each record, or what a template makes of it. Every record has two headers more than its own:
    `penstock.hash`, the delivery it came with, and `penstock.id`, its place in its source.
    """

    topic: Annotated[str, AfterValidator(_topic)] = Field(
        '{{ index .Metadata "opencdc.collection" }}',
        description="The topic, or a Go template that is evaluated for each record. Default: its namespace. No topic is made.",
    )
    format: Literal["opencdc", "payload"] = Field(
        "opencdc",
        description="What is written. `opencdc`: the whole record as JSON, as Conduit does. `payload`: its payload alone, raw ones as they"
        " are, else as JSON; of a delete, and of a record without a payload, a tombstone.",
    )
    headers: Literal["none", "metadata"] = Field(
        "none", description="`metadata`: what a record has of it becomes headers."
    )
    acks: Literal["all", "one", "none"] = Field(
        "all", description="Who has to have a record. Has to be `all`: less can't be exactly once, nor at least once."
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "snappy", description="How records are compressed."
    )
    batch_bytes: Annotated[Size, Field(ge=1024, le=100_000_000)] = Field(
        1_000_012,
        alias="batchBytes",
        description="The most that is sent to a partition at once, before compression. A record that is larger is a nack.",
    )
    delivery_timeout: Annotated[Duration, Field(ge=1)] | None = Field(
        None,
        alias="deliveryTimeout",
        description="How long a record may wait for its acknowledgement, until the batch is tried again. Default: as `transactionTimeout`.",
    )
    transaction_timeout: Annotated[Duration, Field(ge=5, le=86_400)] = Field(
        300.0,
        alias="transactionTimeout",
        description="After this time the servers give a transaction up, so that a dead engine holds up nobody who reads. A batch has to be"
        " written by then.",
    )

    @model_validator(mode="after")
    def _can_be_kept(self) -> KafkaDestinationSettings:
        if self.acks != "all":
            raise ValueError("must have `acks: all`: what fewer servers have may be lost, and was acknowledged")
        if self.delivery_timeout is not None and self.delivery_timeout > self.transaction_timeout:
            raise ValueError("must not have a `deliveryTimeout` above the `transactionTimeout`")
        return self

    @property
    def fixed(self) -> str | None:
        """The topic of all records."""
        return self.topic if "{{" not in self.topic else None

    @property
    def by_namespace(self) -> bool:
        return _NAMESPACE.fullmatch(self.topic.strip()) is not None
