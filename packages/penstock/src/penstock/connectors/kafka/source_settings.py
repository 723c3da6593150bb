"""Settings of `kafka` as a source, declared once. No Spark."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Duration
from penstock.connectors.kafka.connection import SHARED, KafkaConnection, listed

Place = tuple[str, int]  # topic and partition
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OFFSET = re.compile(r"\s*([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})\s*=\s*([0-9]{1,18})\s*")


def _topics(value: str) -> str:
    names = listed(value)
    if not all(_TOPIC.fullmatch(name) for name in names.split(",")):
        raise ValueError("must be names of topics with commas between them: letters, digits, `.`, `_` and `-`")
    return names


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as e:
        raise ValueError(f"must be a regular expression: {e}") from e
    return value


def _offsets(value: str) -> str:
    parts = [_OFFSET.fullmatch(part) for part in value.split(",")]
    found = [(part[1], int(part[2])) for part in parts if part is not None]
    if len(found) != len(parts) or len(set(found)) != len(found):
        raise ValueError("must be offsets of partitions, each once: `orders/0=1200, orders/1=980`")
    return value


def _moment(value: str) -> str:
    try:
        milliseconds(value)
    except (ValueError, OverflowError) as e:
        raise ValueError("must be a moment with its zone, `2026-01-31T12:00:00Z`, or milliseconds since 1970") from e
    return value


def milliseconds(value: str) -> int:
    """Of a moment, since 1970."""
    if value.isdigit():
        return int(value)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    passed = moment - datetime.fromtimestamp(0, UTC)
    return (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000


class KafkaSourceSettings(KafkaConnection):
    """Reads topics of Kafka in exact ranges of offsets.

    Every partition keeps its order. Only committed records of transactions are read. Where reading goes on is in the ledger; the offsets
    of the consumer group are written for the tools that show lag, and never read.
    """

    passed: ClassVar[frozenset[str]] = SHARED | {"fetch.max.bytes", "fetch.min.bytes", "max.partition.fetch.bytes"}

    topics: Annotated[str, AfterValidator(_topics)] | None = Field(
        None, description="The topics, with commas between them. This or `pattern`."
    )
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        None,
        min_length=1,
        description="A regular expression: all topics whose whole name matches it, also those that are made later. Topics that begin with"
        " `__` are Kafka's own, and left out.",
    )
    start: Literal["earliest", "latest", "offsets", "timestamp"] | None = Field(
        None,
        description="Where to begin, at the first start only. Default: `latest`, or `earliest` with `readFromBeginning: true`."
        " Partitions and topics that appear later are always read from their first record.",
    )
    start_offsets: Annotated[str, AfterValidator(_offsets)] | None = Field(
        None, description="start: offsets. The first offset to read of every partition: `orders/0=1200, orders/1=980`."
    )
    start_timestamp: Annotated[str, AfterValidator(_moment)] | None = Field(
        None,
        description="start: timestamp. Of every partition the first record that is not older is the first to be read:"
        " `2026-01-31T12:00:00Z`.",
    )
    read_from_beginning: bool | None = Field(
        None,
        alias="readFromBeginning",
        description="Conduit's name: `true` is `start: earliest`, `false` is `start: latest`.",
    )
    group_id: str | None = Field(
        None,
        alias="groupID",
        min_length=1,
        description="The consumer group under which tools see how far this source is. Default: `penstock.PIPELINE.SOURCE`.",
    )
    retry_group_join_errors: bool = Field(
        True,
        alias="retryGroupJoinErrors",
        description="Only `true`: no group is joined, so nothing of the kind can fail.",
    )
    tombstones: Literal["create", "delete"] = Field(
        "create",
        description="The operation of a record without a value. Its payload is empty either way, and its key is kept.",
    )
    poll: Duration = Field(0.1, description="How long to wait before looking again where nothing was new.")
    discover: Duration = Field(5.0, description="How often to look for new partitions and topics.")

    @model_validator(mode="after")
    def _means_one_thing(self) -> KafkaSourceSettings:
        if (self.topics is None) == (self.pattern is None):
            raise ValueError("must have `topics` or `pattern`, and not both")
        if self.read_from_beginning is not None and self.start is not None:
            raise ValueError("must have `start` or `readFromBeginning`, and not both")
        for kind, given in (("offsets", self.start_offsets), ("timestamp", self.start_timestamp)):
            if (self.start == kind) != (given is not None):
                raise ValueError(f"must have both `start: {kind}` and `start-{kind}`, or neither")
        if not self.retry_group_join_errors:
            raise ValueError("must not have `retryGroupJoinErrors: false`: no consumer group is joined here")
        if self.insecure_skip_verify:
            raise ValueError(
                "must not have `insecureSkipVerify: true`: Spark's reader always verifies; give the servers' certificate in `caCert`"
            )
        if self.poll < 0.01 or self.discover < 0.1:
            raise ValueError("must have a `poll` of 10ms and a `discover` of 100ms at least")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.topics.split(",")) if self.topics else ()

    @property
    def begins(self) -> str:
        return self.start or ("earliest" if self.read_from_beginning else "latest")

    @property
    def first_offsets(self) -> dict[Place, int]:
        parts = (_OFFSET.fullmatch(part) for part in (self.start_offsets or "").split(","))
        return {(part[1], int(part[2])): int(part[3]) for part in parts if part is not None}

    @property
    def what(self) -> str:
        """For messages."""
        return self.topics or f"topics like {self.pattern}"
