"""What starts a connector that runs in a process of its own, and ends it. Two kinds: one that is written with the SDK and installed as a
Python package is called directly; a program is started, and spoken to over gRPC.

A program is started when it is first needed, ends at its teardown, and is started again when it is needed again. Hosts, `penstock plugins`
and `validate --connect` call this; nothing here imports Spark.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock_protocol.interfaces import DestinationPlugin, PluginError, SourcePlugin, Specification
from penstock_sdk import Connector, Context, SettingsError
from penstock_sdk.foreign import parse_parameters
from penstock_sdk.problems import Problem as SettingProblem

if TYPE_CHECKING:
    from penstock_protocol.process import PluginProcess

P = TypeVar("P", SourcePlugin, DestinationPlugin)
Log = Callable[[str, str], None]  # level and text
CHECK = 30.0  # seconds that a program may take to say what it thinks of its settings


def _quiet(_: str, __: str) -> None:
    pass


class Dispenser(ABC):
    """One connector, of one version."""

    registry: str
    name: str
    version: str

    @property
    @abstractmethod
    def specification(self) -> Specification:
        """Starts nothing."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Of source and destination, what it is."""

    @abstractmethod
    def source(self, connector_id: str, log: Log = _quiet, **more: Any) -> SourcePlugin:
        """Ready for `configure`; ends with `teardown`. `more`: what a program is told beside it (see `PluginProcess`)."""

    @abstractmethod
    def destination(self, connector_id: str, log: Log = _quiet, **more: Any) -> DestinationPlugin: ...

    @abstractmethod
    def problems(self, kind: str, config: Mapping[str, str]) -> Sequence[SettingProblem]:
        """What can be said about settings without starting anything."""

    def parameters(self, kind: str) -> Mapping[str, Any]:
        return self.specification.source if kind == "source" else self.specification.destination

    def check(self, kind: str, connector_id: str, config: Mapping[str, str], log: Log = _quiet) -> None:
        """Configure and Teardown: what the connector itself says. PluginError with its words."""
        plugin: SourcePlugin | DestinationPlugin
        plugin = self.source(connector_id, log) if kind == "source" else self.destination(connector_id, log)
        try:
            plugin.configure(config)
        finally:
            try:
                plugin.teardown()
            except PluginError as e:
                log("warn", f"its teardown failed: {e}")


class Direct(Dispenser):
    """A connector that an installed package offers. The same classes as in a program, without the program."""

    registry = "builtin"

    def __init__(self, connector: Connector) -> None:
        self.connector = connector
        self.name, self.version = connector.name, connector.version

    @property
    def specification(self) -> Specification:
        return self.connector.specification()

    @property
    def kinds(self) -> tuple[str, ...]:
        has = {"source": self.connector.source, "destination": self.connector.destination}
        return tuple(kind for kind, cls in has.items() if cls is not None)

    def source(self, connector_id: str, log: Log = _quiet, **more: Any) -> SourcePlugin:  # noqa: ARG002
        from penstock_sdk.source_plugin import SourceAdapter

        assert self.connector.source is not None
        return SourceAdapter(self.connector.source, Context(connector_id))

    def destination(self, connector_id: str, log: Log = _quiet, **more: Any) -> DestinationPlugin:  # noqa: ARG002
        from penstock_sdk.destination_plugin import DestinationAdapter

        assert self.connector.destination is not None
        return DestinationAdapter(self.connector.destination, Context(connector_id))

    def problems(self, kind: str, config: Mapping[str, str]) -> Sequence[SettingProblem]:
        cls = self.connector.source if kind == "source" else self.connector.destination
        assert cls is not None
        try:
            cls.settings_type.parse(config)
        except SettingsError as e:
            return e.problems
        return ()


class Program(Dispenser):
    """A plugin program. `command` is asked for before every start, so that what has changed since is not run."""

    registry = "standalone"

    def __init__(self, specification: Specification, command: Callable[[], Sequence[str]]) -> None:
        self._specification, self._command = specification, command
        self.name, self.version = specification.name, specification.version

    @property
    def specification(self) -> Specification:
        return self._specification

    @property
    def kinds(self) -> tuple[str, ...]:
        """A specification does not say what a connector is, only what it can be told. One that can be told nothing may be both."""
        s = self._specification
        return tuple(kind for kind in ("source", "destination") if self.parameters(kind)) or (
            ("source", "destination") if not (s.source or s.destination) else ()
        )

    def source(self, connector_id: str, log: Log = _quiet, **more: Any) -> SourcePlugin:
        process = self._start(connector_id, log, more)
        return _ending(process, process.source())

    def destination(self, connector_id: str, log: Log = _quiet, **more: Any) -> DestinationPlugin:
        process = self._start(connector_id, log, more)
        return _ending(process, process.destination())

    def _start(self, connector_id: str, log: Log, more: Mapping[str, Any]) -> PluginProcess:
        from penstock_protocol.process import PluginProcess

        return PluginProcess(self._command(), connector_id=connector_id, log=log, **more)

    def problems(self, kind: str, config: Mapping[str, str]) -> Sequence[SettingProblem]:
        return parse_parameters(self.parameters(kind), config)

    def check(self, kind: str, connector_id: str, config: Mapping[str, str], log: Log = _quiet) -> None:
        with self._start(connector_id, log, {}) as process:
            plugin = process.source(CHECK) if kind == "source" else process.destination(CHECK)
            try:
                plugin.configure(config)
            finally:
                try:
                    plugin.teardown()
                except PluginError as e:
                    log("warn", f"its teardown failed: {e}")


def _ending(process: PluginProcess, plugin: P) -> P:
    """With its teardown ends the process as well: one process serves one role, once."""
    teardown = plugin.teardown
    aborted = threading.Event()

    def torn_down() -> None:
        try:
            if not aborted.is_set():
                teardown()
        finally:
            process.close()

    def abort() -> None:
        aborted.set()
        process.kill()

    for name, made in {"teardown": torn_down, "abort": abort, "process": process}.items():
        setattr(plugin, name, made)
    return plugin


def ask(command: Sequence[str], log: Log = _quiet, patience: float = 60.0) -> Specification:
    """Starts a program only to hear what it is. There is no teardown then: the answer is the end of it."""
    from penstock_protocol.process import PluginProcess

    with PluginProcess(command, connector_id="load-specifications", log=log, patience=patience) as process:
        return process.specify(timeout=patience)
