"""What the engine tells a connector host when it starts it, over a socket that both keep open: never on a command line, since settings hold
secrets. And what the host answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RIGHTS = ("read", "control")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A hosted source. `settings` have values where the file has references."""

    connector_id: str  # <pipeline>:<connector>
    plugin: str
    settings: Mapping[str, str]
    log: str  # folder
    tokens: Mapping[str, str]  # right → token
    max_bytes: int | None = None  # of the log
    window: int = 100_000  # positions by which a resend is recognised
    utilities: str = ""  # where the schema service listens
    utilities_token: str = ""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def parse(line: bytes) -> SourceSpec:
        return SourceSpec(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Ready:
    """Where the host listens; or, with no port, why it can't."""

    port: int = 0
    log_id: str = ""
    end: int = 0  # of the log, as it is found
    error: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def parse(line: bytes) -> Ready:
        return Ready(**json.loads(line))
