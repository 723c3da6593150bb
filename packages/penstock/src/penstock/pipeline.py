"""`Pipeline`: a pipeline as a Python object, from a file or built by hand, and the way to run it.

    Pipeline.from_file("orders.yaml").run()
    Pipeline("orders").source("in", "files", path="./in").destination("out", "files", path="./out").run()

Both make the same model as a YAML file does, and run it through the same engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock import checks
from penstock.assembly import DLQ, Assembly, KeyPath
from penstock.config import (
    BatchConfig,
    ConfigErrors,
    ConnectorConfig,
    DeadLetterQueueConfig,
    Loaded,
    LogConfig,
    PipelineConfig,
    Problem,
    ProcessorConfig,
    RetentionConfig,
    load,
)
from penstock.config.model import Model
from penstock.config.validation import validate
from penstock.errors import UsageError
from penstock.native import NativeDestination, NativeSource, Processor
from penstock.processors.python import FunctionProcessor, Marked
from penstock.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.batch.context import Outcomes
    from penstock.engine.supervisor import Engine, PipelinePlan

STATE = ".penstock"
M = TypeVar("M", bound=Model)


class Pipeline:
    """Sources, processors and destinations under one id. Not thread-safe while it is being built."""

    def __init__(self, id: str) -> None:
        self._config = _made(PipelineConfig, {"id": id})
        self._objects: dict[tuple[str, str], Any] = {}  # what was given as an object, by kind and id
        self._handlers: tuple[Callable[[Outcomes], None], ...] = ()
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
    def from_files(
        cls, paths: Sequence[str | Path], warnings: list[Problem] | None = None, *, connect: bool = False
    ) -> list[Pipeline]:
        """All pipelines of files and folders. Raises `ConfigErrors` with every problem of all of them; starts nothing, but with `connect`
        each connector is asked. What is only odd goes into `warnings`."""
        pipelines = []
        problems: list[Problem] = []
        try:
            found = load(paths)
        except ConfigErrors as e:
            problems, found = e.problems, list(e.read)
        for loaded in found:
            if warnings is not None:
                warnings += loaded.warnings
            if not loaded.whole:
                problems += checks.of_parts(loaded)
            for i, config in enumerate(loaded.pipelines):
                p = cls(config.id)
                p._config, p._loaded, p._path = config, loaded, ("pipelines", i)
                problems += p.problems()
                if connect:
                    problems += checks.connected(p.assembly())
                pipelines.append(p)
        if problems:
            raise ConfigErrors(problems)
        return pipelines

    # -- building ---------------------------------------------------------------------------------------------------

    def source(
        self,
        id: str,
        plugin: str | NativeSource[Any],
        *,
        batch: object = None,
        log: object = None,
        **settings: object,
    ) -> Pipeline:
        """Adds a source: a plugin's name with its settings, or an object. `batch` and `log` are the connector's own where they are a
        dict, and settings of the plugin where they are something else."""
        more: dict[str, Any] = {}
        models: dict[str, tuple[type[Model], object]] = {"batch": (BatchConfig, batch), "log": (LogConfig, log)}
        for name, (model, given) in models.items():
            if given is None or isinstance(given, dict):
                more[name] = _made(model, given or {})
            else:
                settings[name] = given
        return self._add("source", id, plugin, settings, more)

    def destination(
        self, id: str, plugin: str | NativeDestination[Any], *, ordering: object = None, **settings: object
    ) -> Pipeline:
        """`ordering`, and `batch={"max-records": …}`, are for destinations in a process of their own."""
        more: dict[str, Any] = {} if ordering is None else {"ordering": str(ordering)}
        if isinstance(settings.get("batch"), Mapping):
            more["batch"] = settings.pop("batch")
        return self._add("destination", id, plugin, settings, more)

    def processor(
        self,
        id: str,
        plugin: str | Processor[Any] | Callable[[Any], Any],
        *,
        condition: str = "",
        namespaces: str = "",
        on: str | None = None,
        **settings: object,
    ) -> Pipeline:
        """Adds a processor: a plugin's name with its settings, an object, or a function (see `penstock.processor`).

        Every record of the pipeline goes through it; with `on` only those of that source, or for that destination. It is
        for those that `condition` matches and whose namespace `namespaces` finds something in; others pass by.
        """
        made = self._function(id, plugin)
        config = _made(
            ProcessorConfig,
            {
                "id": id,
                "plugin": self._name("processor", id, made),
                "condition": condition,
                "namespaces": namespaces,
                "settings": _texts(settings),
            },
        )
        if on is None:
            self._config = self._config.model_copy(update={"processors": (*self._config.processors, config)})
            return self
        connectors = list(self._config.connectors)
        for i, c in enumerate(connectors):
            if c.id == on:
                connectors[i] = c.model_copy(update={"processors": (*c.processors, config)})
                self._config = self._config.model_copy(update={"connectors": tuple(connectors)})
                return self
        raise UsageError(f"there is no connector {on!r} yet", code="config.unknown-connector", hint="add it first")

    def dead_letter_queue(
        self,
        plugin: str | NativeDestination[Any] | None = None,
        *,
        window: int = 1,
        threshold: int = 0,
        **settings: object,
    ) -> Pipeline:
        """How many nacks are borne (more than `threshold` in the last `window` records stop the pipeline; window 0 is no
        limit), and where dead letters go besides the state folder."""
        given: dict[str, Any] = {
            "window-size": window,
            "window-nack-threshold": threshold,
            "settings": _texts(settings),
        }
        if plugin is not None:
            given["plugin"] = self._name("destination", DLQ, plugin)
        config = _made(DeadLetterQueueConfig, given)
        self._config = self._config.model_copy(update={"dead_letter_queue": config})
        return self

    def guarantee(self, guarantee: str) -> Pipeline:
        """`exactly-once` (the default), `at-least-once` or `at-most-once`."""
        config = _made(PipelineConfig, {"id": self.id, "guarantee": guarantee})
        self._config = self._config.model_copy(update={"guarantee": config.guarantee})
        return self

    def retention(self, *, batches: int) -> Pipeline:
        """How many settled batches of each source the ledger keeps: what `penstock trace` can tell of."""
        config = _made(RetentionConfig, {"batches": batches})
        self._config = self._config.model_copy(update={"retention": config})
        return self

    def on_outcome(self, handler: Callable[[Outcomes], None]) -> Pipeline:
        """Calls `handler` for every batch of every source, after the ledger has its outcome and before the source is acked.

        In the lane's thread, in order; again for the same batch after a crash in between. Raising stops the pipeline with
        nothing of that batch acked.
        """
        self._handlers = (*self._handlers, handler)
        return self

    def _function(self, id: str, plugin: Any) -> Any:
        if isinstance(plugin, Marked):
            return FunctionProcessor(plugin.function, id, batch=plugin.batch)
        return FunctionProcessor(plugin, id) if callable(plugin) and not isinstance(plugin, Processor) else plugin

    def _add(self, kind: Any, id: str, plugin: Any, settings: dict[str, object], more: dict[str, Any]) -> Pipeline:
        name = self._name(kind, id, plugin)
        config = _made(
            ConnectorConfig, {"id": id, "type": kind, "plugin": name, "settings": _texts(settings)}
        ).model_copy(update=more)
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
        finish: bool = False,
        abandon: Sequence[str] = (),
    ) -> Summary:
        """Runs until there is nothing left (`once`), or until it is stopped. Brings its own Spark unless given a session.

        Raises the error of a pipeline that ends degraded.
        """
        options: dict[str, Any] = {"finish": finish, "abandon": abandon}
        return run([self], spark=spark, once=once, state=state, master=master, conf=conf, **options).raise_for_error()

    def rewind(self, *, state: str | Path | None = None) -> None:
        """Everything the sources still have will be read and delivered again, under a new epoch."""
        from penstock.engine.lock import StateFolder
        from penstock.ledger import Ledger

        folder = StateFolder(state_folder([self], state))
        folder.open()
        try:
            ledger = Ledger(folder.ledger)
            try:
                for _, source in self.assembly().connectors("source"):
                    ledger.rewind(self.id, source.id)
            finally:
                ledger.close()
        finally:
            folder.close()

    def plan(self) -> PipelinePlan:
        """What the engine runs. Makes every connector; none of them does any I/O yet."""
        if found := self.problems():
            raise ConfigErrors(found)
        return self.assembly().plan(self._handlers)

    def problems(self) -> list[Problem]:
        """What is wrong with names, settings and combinations. Starts nothing and imports no Spark."""
        return list(checks.problems(self.assembly()))

    def assembly(self) -> Assembly:
        return Assembly(self._config, self._objects, self._loaded, self._path)


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
    steps: tuple[str, int] | None = None,
    **options: Any,
) -> Summary:
    """Runs several pipelines in one engine. `started` is given the engine before it runs, e.g. to stop it from a signal; with `steps` only
    this source is read, and only so many records of it, one at a time; `options` go to the engine as they are."""
    for name, n in Counter(p.id for p in pipelines).items():
        if n > 1:
            raise UsageError(
                f"{n} pipelines have the id {name!r}", code="config.duplicate-id", hint="an id is identity: change one"
            )
    running = [p for p in pipelines if p._config.status == "running"]
    plans = [replace(p.plan(), steps=steps) for p in running]
    if refused := checks.refused([p.assembly() for p in running]):
        raise ConfigErrors(refused)
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


def _texts(settings: dict[str, object]) -> dict[str, str]:
    """Keyword arguments as settings: `after_ack=…` is `after-ack`, and every value is text."""
    as_text = {True: "true", False: "false"}
    return {_dashed(k): as_text[v] if isinstance(v, bool) else str(v) for k, v in settings.items()}


def _dashed(name: str) -> str:
    """Only a plain name: `format.options.user_id` names a field of the user's."""
    return name.replace("_", "-") if name.isidentifier() else name
