"""What is tested: a connector that can be started again and again, in this process or as a program. Each start is a fresh one."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from penstock_protocol.interfaces import DestinationPlugin, PluginError, SourcePlugin, Specification
from penstock_protocol.process import PluginProcess
from penstock_protocol.schemas import Schemas, SchemaService
from penstock_protocol.server import Served
from penstock_sdk import avro
from penstock_sdk.connector import Connector
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.testing.results import Refused


class Started(ABC):
    """One life of the connector. Ended by `end`, also if it hangs."""

    dialect: int | None = None  # that it speaks, if it is a program

    @abstractmethod
    def specify(self, patience: float) -> Specification: ...

    @abstractmethod
    def source(self) -> SourcePlugin: ...

    @abstractmethod
    def destination(self) -> DestinationPlugin: ...

    def kill(self) -> None:  # noqa: B027 - what runs in this process can't be killed
        """At once, as when the power fails."""

    def end(self) -> None:  # noqa: B027
        """In the way of hosts."""


class Subject(ABC):
    """`connector`: where its code is here to be looked at."""

    connector: Connector | None = None

    @abstractmethod
    def start(self, patience: float, dialects: Sequence[int] = ()) -> Started:
        """`Refused` if it does not start."""


# -- in this process -----------------------------------------------------------------------------------------------------------


class Inside(Subject):
    """A connector of the SDK, or anything else that could be served."""

    def __init__(self, connector: Connector | Served) -> None:
        self._served = connector if isinstance(connector, Served) else None
        self.connector = None if isinstance(connector, Served) else connector

    def start(self, patience: float, dialects: Sequence[int] = ()) -> Started:  # noqa: ARG002
        return _Inside(self._served or served(self.connector))


def served(connector: Connector | None) -> Served:
    """What a program of the connector would serve."""
    assert connector is not None
    return Served(
        connector.specification(),
        None if connector.source is None else partial(SourceAdapter, connector.source),
        None if connector.destination is None else partial(DestinationAdapter, connector.destination),
    )


class _Inside(Started):
    def __init__(self, served: Served) -> None:
        self._served = served

    def specify(self, patience: float) -> Specification:  # noqa: ARG002
        return self._served.specification

    def source(self) -> SourcePlugin:
        if self._served.source is None:
            raise Refused("Configure", "the connector does not have this role")
        return self._served.source()

    def destination(self) -> DestinationPlugin:
        if self._served.destination is None:
            raise Refused("Configure", "the connector does not have this role")
        return self._served.destination()


# -- as a program --------------------------------------------------------------------------------------------------------------


class Program(Subject):
    """A command, in any language."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        connector: Connector | None = None,
    ) -> None:
        """`connector`: whose program it is, if that is known."""
        self.command, self.environment, self.connector = list(command), dict(environment or {}), connector
        self.tokens: set[str] = set()  # of those that were started

    @cached_property
    def schemas(self) -> SchemaService:
        """Many connectors send Avro, and ask their host to keep the schemas."""
        made = SchemaService(Schemas(avro.check), lambda token: token in self.tokens)
        atexit.register(made.close)
        return made

    def start(self, patience: float, dialects: Sequence[int] = ()) -> Running:
        return Running(self, patience, dialects)


class Running(Started):
    def __init__(self, program: Program, patience: float, dialects: Sequence[int]) -> None:
        self.said: list[tuple[str, str]] = []  # what it logged: level and text
        self._token = secrets.token_hex(16)
        program.tokens.add(self._token)
        try:
            self.process = PluginProcess(
                program.command,
                connector_id="conformance:kit",
                token=self._token,
                utilities=program.schemas.address,
                log=lambda level, text: self.said.append((level, text)),
                environment=program.environment,
                patience=patience,
                dialects=dialects,
            )
        except PluginError as e:
            raise Refused("the start", str(e), gone=True) from e
        self.dialect = self.process.handshake.dialect

    def specify(self, patience: float) -> Specification:
        return self.process.specify(patience)

    def source(self) -> SourcePlugin:
        return self.process.source()

    def destination(self) -> DestinationPlugin:
        return self.process.destination()

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> None:
        self.process.close()

    def left(self) -> list[int]:
        """Processes that it has started and that are still there, found by a mark in their environment. Linux only."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._token.encode() in (folder / "environ").read_bytes()
                ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:  # it has gone, or belongs to somebody else
                continue
            if marked and not ended:
                found.append(int(folder.name))
        return sorted(found)

    def clear(self) -> None:
        """Ends what it has left behind."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


KNOWS_PROCESSES = sys.platform == "linux"
