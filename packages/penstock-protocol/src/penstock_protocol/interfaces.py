"""What a connector is to its host: three small interfaces, with nothing of gRPC in them. A host calls them; a connector, or a client
that speaks to one in another process, implements them.

The calls come in order: `configure`, one of the lifecycle calls, `open`, then reading or writing, `stop`, `teardown`. `teardown` is
allowed at any time and is the last one. Every call may raise `PluginError`, with the connector's own words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_protocol.records import Records  # with all of protobuf, which whoever declares settings does not need


class PluginError(Exception):
    """The connector says no, or is gone. `gone`: its process or its stream has ended, so that no other call will succeed."""

    def __init__(self, text: str, *, gone: bool = False, unimplemented: bool = False) -> None:
        super().__init__(text)
        self.gone = gone
        self.unimplemented = unimplemented


class EndOfStream(Exception):
    """The stream has ended well: there is nothing more to read."""


class ParameterType(IntEnum):
    STRING = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    FILE = 5
    DURATION = 6


class ValidationType(IntEnum):
    REQUIRED = 1
    GREATER_THAN = 2
    LESS_THAN = 3
    INCLUSION = 4
    EXCLUSION = 5
    REGEX = 6


@dataclass(frozen=True, slots=True)
class Validation:
    type: ValidationType
    value: str = ""  # of a list, with commas between


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of a connector."""

    default: str = ""
    description: str = ""
    type: ParameterType = ParameterType.STRING
    validations: tuple[Validation, ...] = ()


@dataclass(frozen=True, slots=True)
class Specification:
    name: str
    version: str
    summary: str = ""
    description: str = ""
    author: str = ""
    source: Mapping[str, Parameter] = field(default_factory=dict)
    destination: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ack:
    """What became of a record at a destination. An empty error: it was written."""

    position: bytes
    error: str = ""


class SpecifierPlugin(ABC):
    @abstractmethod
    def specify(self) -> Specification:
        """Called once; the process may end after it."""


class _Plugin(ABC):
    @abstractmethod
    def configure(self, config: Mapping[str, str]) -> None:
        """Checks the settings and keeps them. Followed by `teardown`, if all that was wanted was the check."""

    @abstractmethod
    def teardown(self) -> None:
        """Lets go of everything."""

    @property
    def pid(self) -> int:
        """Of its own process, which leads a group; 0: it has none."""
        return 0

    def abort(self) -> None:  # noqa: B027 - what runs in this process can't be ended
        """Ends it at once, whatever it does; only `teardown` may follow. From any thread."""

    def on_created(self, config: Mapping[str, str]) -> None:  # noqa: B027 - a connector need not care
        """Once, before the connector is opened for the first time."""

    def on_updated(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:  # noqa: B027
        """Once, before it is opened with other settings than the last time."""

    def on_deleted(self, config: Mapping[str, str]) -> None:  # noqa: B027
        """Once, after it was taken out of its pipeline: it has not been configured then."""


class SourcePlugin(_Plugin):
    """`read` and `ack` run at the same time, neither is entered twice."""

    @abstractmethod
    def open(self, position: bytes) -> None:
        """Start right after this position; empty: from the beginning."""

    @abstractmethod
    def read(self, timeout: float) -> Records:
        """Waits for at least one, but not longer than so many seconds: then there are none. `EndOfStream` when there will be no more."""

    @abstractmethod
    def ack(self, positions: Sequence[bytes]) -> None:
        """In the order of the records, each once."""

    def disconnected(self) -> None:
        """The stream is over, whoever has ended it and how: nobody reads any more."""

    @abstractmethod
    def stop(self) -> bytes:
        """No new records are fetched. The position of the last one that was, or will be, given."""


class DestinationPlugin(_Plugin):
    """`write` and `acks` run at the same time, neither is entered twice."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def write(self, records: Records) -> None:
        """Never with none. Returns when they are on their way; `acks` says what became of them."""

    @abstractmethod
    def acks(self, timeout: float) -> Sequence[Ack]:
        """One for each record that was written. Waits for at least one, but not longer than so many seconds: then there are none.
        `EndOfStream` when there will be no more."""

    @abstractmethod
    def stop(self, position: bytes) -> None:
        """There is no record after the one with this position: what is held back is written now."""
