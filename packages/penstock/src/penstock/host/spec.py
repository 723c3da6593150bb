"""What the engine tells a connector host when it starts it, over a socket that both keep open: never on a command line, since settings hold
secrets. And what the host says there: where it listens, then each change of where it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

RIGHTS = ("read", "write", "control")


class _Line:
    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"  # type: ignore[call-overload]

    @classmethod
    def parse(cls, line: bytes) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class SourceSpec(_Line):
    """A hosted source. `settings` have values where the file has references."""

    connector_id: str  # <pipeline>:<connector>
    plugin: str
    settings: Mapping[str, str]
    log: str  # folder
    tokens: Mapping[str, str]  # right → token
    max_bytes: int | None = None  # of the log
    segment_bytes: int = 64 << 20
    compression: Literal["zstd"] | None = None
    window: int = 100_000  # positions by which a resend is recognised
    references: Mapping[str, str] = field(default_factory=dict)  # the settings as the file has them: what is kept
    before: Mapping[str, str] | None = None  # the settings that it was opened with the last time, with values
    lifecycle: bool = True  # False: a trial, of which the connector must not hear
    role: str = "source"


@dataclass(frozen=True, slots=True)
class DestinationSpec(_Line):
    """A hosted destination."""

    connector_id: str
    plugin: str
    settings: Mapping[str, str]
    folder: str  # where it keeps what it has answered, and what is remembered of it
    tokens: Mapping[str, str]
    records: int = 1000  # that it is sent at once, at most
    patience: float = 120.0  # seconds that it may take for one call
    references: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] | None = None
    lifecycle: bool = True
    role: str = "destination"


@dataclass(frozen=True, slots=True)
class Ready(_Line):
    """Where the host listens; or, with no port, why it can't."""

    port: int = 0
    log_id: str = ""
    end: int = 0  # of the log, as it is found
    resumes: bool = True  # the source goes on after a position, so it is opened when everything before that is settled
    answers: bool = False  # it wants to hear of records that were refused, too
    error: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status(_Line):
    """Where a source stands, for the engine that waits, and for people."""

    end: int = 0  # of the log: every offset below it is durable
    size: int = 0  # of the log, in bytes
    open: bool = False
    read: int = 0  # records that the source gave since it was opened
    logged: int = 0
    resent: int = 0  # that were in the log already
    unacked: int = 0
    drained: bool = False  # after a stop: everything that it will ever give is in the log
    quiet: bool = False  # when it was last asked it had nothing
    ended: bool = False  # it gives nothing any more
    error: Mapping[str, Any] = field(default_factory=dict)  # why
    plugin: int = 0  # the process of its program, which leads a group of its own


@dataclass(frozen=True, slots=True)
class Sending(_Line):
    """Where a destination stands."""

    open: bool = False
    sent: int = 0  # records that were answered since its host was started
    resent: int = 0  # records that were sent again, because nobody knows whether they were written
    starts: int = 0  # of its program
    error: Mapping[str, Any] = field(default_factory=dict)  # why it can't go on
    plugin: int = 0


@dataclass(frozen=True, slots=True)
class Question(_Line):
    """A record was refused: may the delivery go on behind it? The host waits for the engine's answer."""

    number: int
    delivery: str
    seq: int
    part: int
    reason: str
    code: str


def parse_told(line: bytes) -> Sending | Question:
    found = json.loads(line)
    return Question(**found) if "delivery" in found else Sending(**found)
