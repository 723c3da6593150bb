"""`Pipeline`: a pipeline as a Python object, from a file or built by hand, and the way to run it.

    Pipeline.from_file("orders.yaml").run()
    Pipeline("orders").source("in", "files", path="./in").destination("out", "files", path="./out").run()

Both make the same model as a YAML file does, and run it through the same engine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config import (
    BatchConfig,
    ConfigErrors,
    ConnectorConfig,
    DeadLetterQueueConfig,
    Loaded,
    PipelineConfig,
    Problem,
    ProcessorConfig,
    expand,
    expand_settings,
    load,
    parse_settings,
)
from penstock.config.model import Model
from penstock.config.validation import validate
from penstock.errors import UsageError
from penstock.native import ExactlyOnceDestination, Limits, NativeSource, Processor
from penstock.plugins import builtin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.batch.context import Target
    from penstock.engine.supervisor import Engine, PipelinePlan, PipelineResult
    from penstock.ledger import Prepared

STATE = ".penstock"
KeyPath = tuple[str | int, ...]
M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Summary:
    """How a run ended, pipeline by pipeline."""

    pipelines: tuple[PipelineResult, ...]

    @property
    def ok(self) -> bool:
        return all(p.error is None for p in self.pipelines)

    def to_json(self) -> dict[str, Any]:
        return {"event": "summary", "pipelines": [_result_json(p) for p in self.pipelines]}

    def raise_for_error(self) -> Summary:
        """Raises the first error of a pipeline that is degraded; else returns itself."""
        for p in self.pipelines:
            if p.error is not None:
                raise p.error
        return self


class Pipeline:
    """Sources, processors and destinations under one id. Not thread-safe while it is being built."""

    def __init__(self, id: str) -> None:
        self._config = _made(PipelineConfig, {"id": id})
        self._objects: dict[tuple[str, str], Any] = {}  # what was given as an object, by kind and id
        self._loaded: Loaded | None = None
        self._path: KeyPath = ()

    @property
    def id(self) -> str:
        return self._config.id

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """The one pipeline of a file."""
        pipelines = cls.from_files([path])
        if len(pipelines) != 1:
            raise UsageError(
                f"{path} holds {len(pipelines)} pipelines",
                code="config.several",
                hint="use Pipeline.from_files, or penstock run",
            )
        return pipelines[0]

    @classmethod
    def from_files(cls, paths: Sequence[str | Path]) -> list[Pipeline]:
        """All pipelines of files and folders. Raises `ConfigErrors` with every problem of all of them; starts nothing."""
        pipelines = []
        problems: list[Problem] = []
        for loaded in load(paths):
            for i, config in enumerate(loaded.pipelines):
                p = cls(config.id)
                p._config, p._loaded, p._path = config, loaded, ("pipelines", i)
                problems += p._problems()
                pipelines.append(p)
        if problems:
            raise ConfigErrors(problems)
        return pipelines

    # -- building ---------------------------------------------------------------------------------------------------

    def source(
        self, id: str, plugin: str | NativeSource[Any], *, batch: dict[str, Any] | None = None, **settings: object
    ) -> Pipeline:
        """Adds a source: a plugin's name with its settings, or an object."""
        return self._add("source", id, plugin, settings, _made(BatchConfig, batch or {}))

    def destination(self, id: str, plugin: str | ExactlyOnceDestination[Any], **settings: object) -> Pipeline:
        return self._add("destination", id, plugin, settings, BatchConfig())

    def processor(self, id: str, plugin: str | Processor[Any], *, condition: str = "", **settings: object) -> Pipeline:
        """Adds a processor that every record of the pipeline goes through."""
        name = self._name("processor", id, plugin)
        config = _made(
            ProcessorConfig, {"id": id, "plugin": name, "condition": condition, "settings": _texts(settings)}
        )
        self._config = self._config.model_copy(update={"processors": (*self._config.processors, config)})
        return self

    def _add(self, kind: Any, id: str, plugin: Any, settings: dict[str, object], batch: BatchConfig) -> Pipeline:
        name = self._name(kind, id, plugin)
        config = _made(
            ConnectorConfig, {"id": id, "type": kind, "plugin": name, "settings": _texts(settings)}
        ).model_copy(update={"batch": batch})
        self._config = self._config.model_copy(update={"connectors": (*self._config.connectors, config)})
        return self

    def _name(self, kind: str, id: str, plugin: Any) -> str:
        if isinstance(plugin, str):
            return plugin
        self._objects[kind, id] = plugin
        return f"python:{type(plugin).__module__}.{type(plugin).__qualname__}"

    # -- running ----------------------------------------------------------------------------------------------------

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        once: bool = True,
        state: str | Path | None = None,
        master: str | None = None,
        conf: dict[str, str] | None = None,
    ) -> Summary:
        """Runs until there is nothing left (`once`), or until it is stopped. Brings its own Spark unless given a session.

        Raises the error of a pipeline that ends degraded.
        """
        return run([self], spark=spark, once=once, state=state, master=master, conf=conf).raise_for_error()

    def rewind(self, *, state: str | Path | None = None) -> None:
        """Everything the sources still have will be read and delivered again, under a new epoch."""
        from penstock.engine.lock import StateFolder
        from penstock.ledger import Ledger

        folder = StateFolder(state_folder([self], state))
        folder.open()
        try:
            ledger = Ledger(folder.ledger)
            try:
                for _, source in self._connectors("source"):
                    ledger.rewind(self.id, source.id)
            finally:
                ledger.close()
        finally:
            folder.close()

    def plan(self) -> PipelinePlan:
        """What the engine runs. Makes every connector; none of them does any I/O yet."""
        from penstock.engine.supervisor import LanePlan, PipelinePlan

        if problems := list(self._problems()):
            raise ConfigErrors(problems)
        lanes = []
        for path, c in self._connectors("source"):
            batch = c.batch
            given = {"max_bytes": batch.max_bytes, "max_files": batch.max_files}
            limits = Limits(**{k: v for k, v in given.items() if v is not None})
            processors = [self._make("processor", p, self._processor_path(path, i)) for i, p in enumerate(c.processors)]
            processors += [
                self._make("processor", p, self._processor_path(self._path, i))
                for i, p in enumerate(self._config.processors)
            ]
            targets = {}
            for d_path, d in self._connectors("destination"):
                processors += [
                    self._make("processor", p, self._processor_path(d_path, i)) for i, p in enumerate(d.processors)
                ]
                targets[d.id] = self._target(d, d_path)
            lanes.append(LanePlan(self._make("source", c, (*path, "settings")), limits, tuple(processors), targets))
        return PipelinePlan(self.id, tuple(lanes), _rebuild)

    def _target(self, d: ConnectorConfig, path: KeyPath) -> Target:
        from penstock.engine.batch.context import Target

        return Target(self._make("destination", d, (*path, "settings")), d.plugin, d.settings)

    def _make(self, kind: str, config: ConnectorConfig | ProcessorConfig, path: KeyPath) -> Any:
        if (kind, config.id) in self._objects:
            return self._objects[kind, config.id]
        settings = expand_settings(config.settings, os.environ)
        if isinstance(config, ProcessorConfig) and config.condition:
            settings["condition"] = expand(config.condition, os.environ)
        parsed = parse_settings(builtin.settings_class(kind, config.plugin), settings, self._loaded, *path)
        return builtin.implementation(kind, config.plugin)(parsed, config.id)

    def _connectors(self, kind: str) -> Iterator[tuple[KeyPath, ConnectorConfig]]:
        for i, c in enumerate(self._config.connectors):
            if c.type == kind:
                yield (*self._path, "connectors", i), c

    def _processor_path(self, path: KeyPath, i: int) -> KeyPath:
        return (*path, "processors", i, "settings")

    # -- checks that need to know the plugins ----------------------------------------------------------------------

    def _problems(self) -> Iterator[Problem]:
        """What is wrong with names, settings and combinations. Starts nothing and imports no Spark."""
        for kind in ("source", "destination"):
            if not any(self._connectors(kind)):
                yield self._problem(f"config.no-{kind}", f"pipeline {self.id!r} has no {kind}", self._path)
            for path, c in self._connectors(kind):
                yield from self._plugin_problems(kind, c, path)
                for i, p in enumerate(c.processors):
                    yield from self._plugin_problems("processor", p, (*path, "processors", i))
        for i, p in enumerate(self._config.processors):
            yield from self._plugin_problems("processor", p, (*self._path, "processors", i))
        yield from self._same_ids()
        yield from self._loops()
        yield from self._not_yet()

    def _same_ids(self) -> Iterator[Problem]:
        """A file's ids are checked when it is loaded; this is for pipelines built in Python."""
        for items in (self._config.connectors, self._config.processors):
            for id_, n in Counter(item.id for item in items).items():
                if n > 1:
                    yield self._problem("config.duplicate-id", f"the id {id_!r} is used {n} times", self._path)

    def _loops(self) -> Iterator[Problem]:
        """A folder that is source and destination at once would be read for ever."""
        read = {_folder(c) for _, c in self._connectors("source")} - {None}
        for path, d in self._connectors("destination"):
            if _folder(d) in read:
                where = (*path, "settings", "path")
                what = "the destination writes into a folder that is read"
                yield self._problem("config.loop", what, where, "use another folder")

    def _plugin_problems(self, kind: str, c: ConnectorConfig | ProcessorConfig, path: KeyPath) -> Iterator[Problem]:
        if (kind, c.id) in self._objects:
            return
        if not builtin.known(kind, c.plugin):
            names = ", ".join(sorted(builtin.KINDS[kind]))
            yield self._problem(
                "config.unknown-plugin", f"no {kind} is called {c.plugin!r}", (*path, "plugin"), f"known are: {names}"
            )
            return
        try:
            self._make(kind, c, (*path, "settings"))
        except ConfigErrors as e:
            yield from e.problems

    def _not_yet(self) -> Iterator[Problem]:
        """What the file may say and this version does not do: refused, not half run."""
        destinations = list(self._connectors("destination"))
        if len(destinations) > 1:
            yield self._problem("config.unsupported", "several destinations are not supported yet", destinations[1][0])
        if self._config.guarantee != "exactly-once":
            yield self._problem(
                "config.unsupported", "only `guarantee: exactly-once` is supported yet", (*self._path, "guarantee")
            )
        if self._config.dead_letter_queue != DeadLetterQueueConfig():
            where = (*self._path, "dead-letter-queue")
            yield self._problem("config.unsupported", "a dead letter queue is not supported yet", where)
        for path, c in self._connectors("source"):
            for name in ("max_records", "max_delay"):
                if getattr(c.batch, name) is not None:
                    key = name.replace("_", "-")
                    yield self._problem(
                        "config.unsupported",
                        f"`{key}` is not supported yet",
                        (*path, "batch", key),
                        "use max-files or max-bytes",
                    )

    def _problem(self, code: str, what: str, path: KeyPath, hint: str = "") -> Problem:
        return (
            self._loaded.problem(code, what, *path, hint=hint) if self._loaded else Problem(code, what, "", hint=hint)
        )


def run(
    pipelines: Sequence[Pipeline],
    *,
    spark: SparkSession | None = None,
    once: bool = True,
    state: str | Path | None = None,
    master: str | None = None,
    conf: dict[str, str] | None = None,
    report: Callable[[str, str, str, dict[str, Any]], None] | None = None,
    started: Callable[[Engine], None] | None = None,
    **options: Any,
) -> Summary:
    """Runs several pipelines in one engine. `started` is given the engine before it runs, e.g. to stop it from a signal;
    `options` go to the engine as they are."""
    for name, n in Counter(p.id for p in pipelines).items():
        if n > 1:
            raise UsageError(
                f"{n} pipelines have the id {name!r}", code="config.duplicate-id", hint="an id is identity: change one"
            )
    plans = [p.plan() for p in pipelines if p._config.status == "running"]
    from penstock.engine.supervisor import Engine

    engine = Engine(
        state_folder(pipelines, state),
        spark=spark,
        master=master or "local[*,4]",
        conf=conf,
        report=report or (lambda *_: None),
        **options,
    )
    if started is not None:
        started(engine)
    return Summary(tuple(engine.run(plans, once=once)))


def state_folder(pipelines: Sequence[Pipeline], state: str | Path | None) -> Path:
    """`.penstock` beside the first pipeline's file, or in the working folder, unless told otherwise."""
    if state is not None:
        return Path(state).absolute()
    loaded = pipelines[0]._loaded if pipelines else None
    return (loaded.file.parent if loaded else Path()).absolute() / STATE


def _made(cls: type[M], given: Mapping[str, Any]) -> M:
    """What Python gives is checked as a file is, with the same words."""
    model, problems = validate(cls, {k.replace("_", "-"): v for k, v in given.items()}, None)
    if model is None:
        raise ConfigErrors(problems)
    return model


def _folder(c: ConnectorConfig) -> Path | None:
    return Path(expand(c.settings["path"], os.environ)).resolve() if "path" in c.settings else None


def _rebuild(p: Prepared) -> ExactlyOnceDestination[Any]:
    """A destination as it was at prepare, for work that outlived a change of the file."""
    if not builtin.known("destination", p.plugin):
        raise UsageError(
            f"Batch work is prepared for {p.destination!r} ({p.plugin}), which is not in the pipeline any more",
            code="state.destination-gone",
            hint="put that destination back until its work is finished",
        )
    cls = builtin.settings_class("destination", p.plugin)
    settings = parse_settings(cls, expand_settings(p.settings, os.environ))
    made: ExactlyOnceDestination[Any] = builtin.implementation("destination", p.plugin)(settings, p.destination)
    return made


def _texts(settings: dict[str, object]) -> dict[str, str]:
    """Keyword arguments as settings: `after_ack=…` is `after-ack`, and every value is text."""
    as_text = {True: "true", False: "false"}
    return {k.replace("_", "-"): as_text[v] if isinstance(v, bool) else str(v) for k, v in settings.items()}


def _result_json(p: PipelineResult) -> dict[str, Any]:
    destinations: dict[str, dict[str, int]] = {}
    for lane in p.lanes:
        for name, n in lane.delivered.items():
            d = destinations.setdefault(name, {"delivered": 0, "filtered": 0, "dead_lettered": 0})
            d["delivered"] += n
            d["filtered"] += lane.filtered.get(name, 0)
    sources: dict[str, Any] = {lane.source: {"read": lane.read, "acked": lane.acked} for lane in p.lanes}
    for lane in p.lanes:
        if lane.remaining is not None:
            sources[lane.source]["remaining"] = asdict(lane.remaining)
    return {
        "id": p.id,
        "status": p.status.value,
        "error": str(p.error) if p.error else None,
        "seconds": round(p.seconds, 3),
        "sources": sources,
        "destinations": destinations,
    }
