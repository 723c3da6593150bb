"""The parts of a pipeline, made of its model: connectors, processors in their places, and the plan that the engine runs.

Called by `checks` (`validate`) and by `pipeline` (`run`). Making a part does no I/O, imports no Spark and runs nothing that a file
names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from penstock.config import (
    ConfigErrors,
    ConnectorConfig,
    Loaded,
    PipelineConfig,
    Problem,
    ProcessorConfig,
    expand,
    expand_settings,
    parse_settings,
)
from penstock.errors import UsageError
from penstock.native import Limits, NativeDestination, NativeSource
from penstock.plan.condition import Condition
from penstock.plan.nodes import Node
from penstock.plugins import builtin, registry
from penstock.secrets import PLAIN, Secrets
from penstock.testing.faults import safeguard

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.engine.batch.context import Outcomes, Target
    from penstock.engine.plans import LanePlan, PipelinePlan
    from penstock.host.sink import Sinks
    from penstock.ledger import Prepared, TargetRef

DLQ = "dead-letter-queue"  # the id of the configured queue; also its delivery name in the ledger
KeyPath = tuple[str | int, ...]
Config = ConnectorConfig | ProcessorConfig
_FILE = re.compile(r"\$\{file:[^${}]+\}")


class Assembly:
    """One pipeline's parts. What is only looked at (`made`) is made once; what is run (`plan`) is made anew for every lane."""

    def __init__(
        self,
        config: PipelineConfig,
        objects: Mapping[tuple[str, str], Any] | None = None,
        loaded: Loaded | None = None,
        path: KeyPath = (),
    ) -> None:
        """`objects` are what a program gave instead of a plugin's name, by kind and id; `path` leads to it in its file."""
        self.config = config
        self.objects = objects or {}
        self.loaded = loaded
        self.path = path
        self._sinks: Any = None  # what hosted destinations of a plan share
        self._made: dict[KeyPath, Any] = {}

    def connectors(self, kind: str) -> Iterator[tuple[KeyPath, ConnectorConfig]]:
        for i, c in enumerate(self.config.connectors):
            if c.type == kind:
                yield (*self.path, "connectors", i), c

    def make(self, kind: str, config: Config, path: KeyPath) -> Any:
        """Raises `ConfigErrors` for its settings, `KeyError` for a plugin that is not known."""
        if (kind, config.id) in self.objects:
            return self.objects[kind, config.id]
        settings = self.expanded(config)
        if builtin.bare(config.plugin) == "python" and self._folder is not None:
            settings.setdefault("path", str(self._folder))
        if (hosted := self._hosted(kind, config, settings)) is not None:
            return hosted
        cls = builtin.settings_class(kind, config.plugin)
        parsed = parse_settings(cls, settings, self.loaded, *path, "settings")
        return builtin.implementation(kind, config.plugin)(parsed, config.id)

    def _hosted(self, kind: str, config: Config, settings: Mapping[str, str]) -> Any:
        """A connector that runs in a process of its own; None for what is none."""
        if kind == "processor" or builtin.known(kind, config.plugin) or registry.hosted(kind, config.plugin) is None:
            return None
        if kind == "destination":
            return self._hosted_destination(config, settings)
        from penstock.host.feed import HostedSource, LogOptions

        log = config.log.model_dump(exclude_none=True) if isinstance(config, ConnectorConfig) else {}
        return HostedSource(config.plugin, settings, config.settings, config.id, LogOptions(**log))

    def _hosted_destination(self, config: Config, settings: Mapping[str, str]) -> Any:
        from penstock.host.sink import RECORDS, HostedDestination, Options, Sinks
        from penstock.native import Ordering

        if self._sinks is None:
            self._sinks = Sinks()
        options = Options()
        if isinstance(config, ConnectorConfig):
            options = Options(Ordering(config.ordering or "source"), config.batch.max_records or RECORDS)
        sink = self._sinks.of(config.id, lifecycle=config.id != DLQ)
        return HostedDestination(config.plugin, settings, config.settings, config.id, sink, options)

    def expanded(self, config: Config) -> dict[str, str]:
        """Its settings, with values where the file has references."""
        return expand_settings(config.settings, os.environ, folder=self._folder)

    def made(self, kind: str, config: Config, path: KeyPath) -> Any:
        """The one that is looked at; None where it can't be made."""
        if path not in self._made:
            try:
                self._made[path] = self.make(kind, config, path)
            except (ConfigErrors, KeyError):
                self._made[path] = None
        return self._made[path]

    def why_not(self, kind: str, config: Config, path: KeyPath) -> list[Problem]:
        """Why it can't be made; empty where it can."""
        if path in self._made and self._made[path] is not None:
            return []
        try:
            self._made[path] = self.make(kind, config, path)
        except ConfigErrors as e:
            return e.problems
        return []

    def placed(self, path: KeyPath, processors: Sequence[ProcessorConfig]) -> list[tuple[KeyPath, Node]] | None:
        """Processors in their places; None where one of them can't be made."""
        found = []
        for i, p in enumerate(processors):
            place = (*path, "processors", i)
            made = self.made("processor", p, place)
            if made is None:
                return None
            found.append((place, self._node(p, made)))
        return found

    def _node(self, p: ProcessorConfig, processor: Any) -> Node:
        text = expand(p.condition, os.environ, folder=self._folder) if p.condition.strip() else ""
        return Node(processor, Condition(text, p.namespaces, p.condition), p.settings)

    @property
    def _folder(self) -> Path | None:
        return self.loaded.file.absolute().parent if self.loaded is not None else None

    def problem(self, code: str, what: str, path: KeyPath, hint: str = "") -> Problem:
        if self.loaded is None:
            return Problem(code, what, "", hint=hint)
        return self.loaded.problem(code, what, *path, hint=hint)

    @property
    def queue(self) -> ConnectorConfig:
        """The dead letter queue as the destination it is."""
        queue = self.config.dead_letter_queue
        return ConnectorConfig(id=DLQ, type="destination", plugin=queue.plugin or "none", settings=queue.settings)

    @cached_property
    def secrets(self) -> Secrets:
        """Every value that settings and conditions get by reference. What errors of this pipeline must not say."""
        secrets = Secrets()
        own = [p for c in self.config.connectors for p in c.processors]
        parts: list[Config] = [*self.config.connectors, *own, *self.config.processors, self.queue]
        for part in parts:
            condition = part.condition if isinstance(part, ProcessorConfig) else ""
            for text in (*part.settings.values(), condition):
                learn(secrets, text, self._folder)
        return secrets

    def hidden(self, p: Problem) -> Problem:
        return hidden(p, self.secrets)

    # -- the plan ---------------------------------------------------------------------------------------------------

    def plan(self, handlers: tuple[Callable[[Outcomes], None], ...] = ()) -> PipelinePlan:
        """What the engine runs. For pipelines without problems."""
        from penstock.engine.batch.context import Guarantee
        from penstock.engine.gate import Window
        from penstock.engine.plans import PipelinePlan
        from penstock.host.sink import Sinks

        sinks = Sinks()
        lanes = [self._lane(sinks, path, c) for path, c in self.connectors("source")]
        queue = self.config.dead_letter_queue
        return PipelinePlan(
            self.config.id,
            tuple(lanes),
            partial(rebuild, secrets=self.secrets, sinks=sinks),
            Window(queue.window_size, queue.window_nack_threshold),
            Guarantee(self.config.guarantee),
            handlers,
            self.secrets,
            sinks,
            self.config.retention.batches,
            again=None if any(kind != "processor" for kind, _ in self.objects) else partial(self.plan, handlers),
            lane=partial(self._one_more, sinks),
        )

    def _lane(self, sinks: Sinks, path: KeyPath, c: ConnectorConfig) -> LanePlan:
        from penstock.engine.plans import LanePlan

        self._sinks = sinks
        limits = Limits(**c.batch.model_dump(exclude_none=True))
        source = self.make("source", c, path)
        nodes = self._lane_nodes(path, c, source)
        targets = {d.id: self._target(d, d_path) for d_path, d in self.connectors("destination")}
        return LanePlan(source, limits, nodes, targets, self._dlq())

    def _one_more(self, sinks: Sinks, source: str) -> LanePlan:
        """A lane of a source with parts of its own, beside those of the plan with these sinks."""
        return next(self._lane(sinks, path, c) for path, c in self.connectors("source") if c.id == source)

    def _lane_nodes(self, path: KeyPath, c: ConnectorConfig, source: NativeSource[Any]) -> tuple[Node, ...]:
        """What the source itself needs, then its own processors, then the pipeline's."""
        own = tuple(Node(p) for p in source.processors)
        return (*own, *self._nodes(path, c.processors), *self._nodes(self.path, self.config.processors))

    def _nodes(self, path: KeyPath, processors: Sequence[ProcessorConfig]) -> tuple[Node, ...]:
        places = [(*path, "processors", i) for i in range(len(processors))]
        made = [self.make("processor", p, place) for p, place in zip(processors, places, strict=True)]
        return tuple(self._node(p, m) for p, m in zip(processors, made, strict=True))

    def _target(self, d: ConnectorConfig, path: KeyPath) -> Target:
        from penstock.engine.batch.context import Target

        destination = self.make("destination", d, path)
        return Target(destination, d.plugin, d.settings, self._nodes(path, d.processors))

    def _dlq(self) -> Target | None:
        from penstock.engine.batch.context import Target

        queue = self.config.dead_letter_queue
        if queue.plugin is None:
            return None
        destination = self.make("destination", self.queue, (*self.path, "dead-letter-queue"))
        return Target(destination, queue.plugin, queue.settings)


def rebuild(
    p: Prepared | TargetRef, secrets: Secrets | None = None, sinks: Sinks | None = None
) -> NativeDestination[Any]:
    """A destination as it was at prepare, for work that outlived a change of the file. Its values are `secrets` too."""
    secrets = Secrets() if secrets is None else secrets
    for text in p.settings.values():
        learn(secrets, text, None)
    hosted = sinks is not None and registry.problem("destination", p.plugin) is None
    if sinks is not None and hosted and registry.hosted("destination", p.plugin) is not None:
        from penstock.host.sink import HostedDestination

        name = p.destination.partition(":")[0]  # dead letters that came late have the destination's name behind theirs
        values = expand_settings(p.settings, os.environ)
        return HostedDestination(p.plugin, values, p.settings, name, sinks.of(name, lifecycle=name != DLQ))
    if not builtin.known("destination", p.plugin):
        raise UsageError(
            f"The destination {p.destination!r} ({p.plugin}) can't be made again: it was an object of a program",
            code="state.destination-gone",
            hint=f"put it back until its work is finished, or give that up with --abandon {p.destination}",
        )
    cls = builtin.settings_class("destination", p.plugin)
    try:
        settings = parse_settings(cls, expand_settings(p.settings, os.environ))
    except ConfigErrors as e:
        raise ConfigErrors(hidden(problem, secrets) for problem in e.problems) from None
    made: NativeDestination[Any] = builtin.implementation("destination", p.plugin)(settings, p.destination)
    return made


def hidden(p: Problem, secrets: Secrets) -> Problem:
    """The problem without values; the line it shows is the file's own."""
    return replace(p, what=secrets.hide(p.what), hint=secrets.hide(p.hint)) if secrets else p


def learn(secrets: Secrets, text: str, folder: Path | None) -> None:
    """Adds the values of the references in a text, and the whole of it: it may be shown in a way that its parts are not."""
    if "$" not in text or not safeguard("redact"):
        return
    seen = _Seen(os.environ)
    try:
        value = expand(text, seen, folder=folder)
    except UsageError:
        return  # nothing is made of it
    found = {name: value for name, value in seen.found.items() if name not in PLAIN}
    for name, of_variable in found.items():
        secrets.learn(of_variable, f"${{{name}}}", name)
    files = _FILE.findall(text)
    for reference in files:
        try:
            secrets.learn(expand(reference, {}, folder=folder), reference)
        except UsageError:
            continue  # inside of `${literal:…}` it is text
    if found or files:
        secrets.learn(value, text)


class _Seen(Mapping[str, str]):
    """The environment, and which of it was looked at."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.found: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        self.found[name] = self._environ[name]
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
