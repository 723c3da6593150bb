"""`Pipeline`: a pipeline as a Python object, from a file or built by hand, and the way to run it.

    Pipeline.from_file("orders.yaml").run()
    Pipeline("orders").source("in", "files", path="./in").destination("out", "files", path="./out").run()

Both make the same model as a YAML file does, and run it through the same engine.
"""

from __future__ import annotations

import os
import re
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
from penstock.native import (
    ExactlyOnceDestination,
    Limits,
    NativeDestination,
    NativeSource,
    Processor,
    Shape,
    Unsuitable,
)
from penstock.plan.nodes import Node, stages
from penstock.plugins import builtin
from penstock.processors.python import FunctionProcessor, Marked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.batch.context import Outcomes, Target
    from penstock.engine.supervisor import Engine, PipelinePlan, PipelineResult
    from penstock.ledger import Prepared, TargetRef

STATE = ".penstock"
RESERVED = ("dead-letter-queue", "dead-letters")
DLQ = "dead-letter-queue"  # the id of the configured queue; also its delivery name in the ledger
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

    def destination(self, id: str, plugin: str | NativeDestination[Any], **settings: object) -> Pipeline:
        return self._add("destination", id, plugin, settings, BatchConfig())

    def processor(
        self,
        id: str,
        plugin: str | Processor[Any] | Callable[[Any], Any],
        *,
        condition: str = "",
        on: str | None = None,
        **settings: object,
    ) -> Pipeline:
        """Adds a processor: a plugin's name with its settings, an object, or a function (see `penstock.processor`).

        Every record of the pipeline goes through it; with `on` only those of that source, or for that destination.
        """
        made = self._function(id, plugin)
        config = _made(
            ProcessorConfig,
            {
                "id": id,
                "plugin": self._name("processor", id, made),
                "condition": condition,
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
                for _, source in self._connectors("source"):
                    ledger.rewind(self.id, source.id)
            finally:
                ledger.close()
        finally:
            folder.close()

    def plan(self) -> PipelinePlan:
        """What the engine runs. Makes every connector; none of them does any I/O yet."""
        from penstock.engine.batch.context import Guarantee
        from penstock.engine.gate import Window
        from penstock.engine.supervisor import LanePlan, PipelinePlan

        if problems := list(self._problems()):
            raise ConfigErrors(problems)
        lanes = []
        for path, c in self._connectors("source"):
            limits = Limits(**c.batch.model_dump(exclude_none=True))
            source = self._make("source", c, (*path, "settings"))
            nodes = self._lane_nodes(path, c, source)
            shape = _shape_behind(nodes, source.shape)
            targets = {d.id: self._target(d, d_path, shape) for d_path, d in self._connectors("destination")}
            lanes.append(LanePlan(source, limits, nodes, targets, self._dlq()))
        queue = self._config.dead_letter_queue
        return PipelinePlan(
            self.id,
            tuple(lanes),
            _rebuild,
            Window(queue.window_size, queue.window_nack_threshold),
            Guarantee(self._config.guarantee),
            self._handlers,
        )

    def _lane_nodes(self, path: KeyPath, c: ConnectorConfig, source: NativeSource[Any]) -> tuple[Node, ...]:
        """What the source itself needs, then its own processors, then the pipeline's."""
        own = tuple(Node(p) for p in source.processors)
        return (*own, *self._nodes(path, c.processors), *self._nodes(self._path, self._config.processors))

    def _nodes(self, path: KeyPath, processors: Sequence[ProcessorConfig]) -> tuple[Node, ...]:
        return tuple(
            Node(
                self._make("processor", p, (*path, "processors", i, "settings")),
                expand(p.condition, os.environ) if p.condition.strip() else "",
            )
            for i, p in enumerate(processors)
        )

    def _target(self, d: ConnectorConfig, path: KeyPath, shape: Shape) -> Target:
        from penstock.engine.batch.context import Target

        destination = self._make("destination", d, (*path, "settings"))
        nodes = self._nodes(path, d.processors)
        last = destination.processors_for(_shape_behind(nodes, shape))
        return Target(destination, d.plugin, d.settings, (*nodes, *(Node(p) for p in last)))

    def _dlq(self) -> Target | None:
        from penstock.engine.batch.context import Target

        queue = self._config.dead_letter_queue
        if queue.plugin is None:
            return None
        destination = self._make("destination", self._queue_config(), (*self._path, "dead-letter-queue", "settings"))
        return Target(destination, queue.plugin, queue.settings)

    def _queue_config(self) -> ConnectorConfig:
        """The dead letter queue as the destination it is."""
        queue = self._config.dead_letter_queue
        return ConnectorConfig(id=DLQ, type="destination", plugin=queue.plugin or "none", settings=queue.settings)

    def _make(self, kind: str, config: ConnectorConfig | ProcessorConfig, path: KeyPath) -> Any:
        if (kind, config.id) in self._objects:
            return self._objects[kind, config.id]
        settings = expand_settings(config.settings, os.environ)
        if builtin.bare(config.plugin) == "python" and self._loaded is not None:
            settings.setdefault("path", str(self._loaded.file.absolute().parent))
        parsed = parse_settings(builtin.settings_class(kind, config.plugin), settings, self._loaded, *path)
        return builtin.implementation(kind, config.plugin)(parsed, config.id)

    def _connectors(self, kind: str) -> Iterator[tuple[KeyPath, ConnectorConfig]]:
        for i, c in enumerate(self._config.connectors):
            if c.type == kind:
                yield (*self._path, "connectors", i), c

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
        if self._config.dead_letter_queue.plugin is not None:
            yield from self._plugin_problems("destination", self._queue_config(), (*self._path, "dead-letter-queue"))
            yield from self._queue_shape()
        yield from self._same_ids()
        yield from self._loops()
        yield from self._guarantee_problems()
        yield from self._shape_problems()

    def _same_ids(self) -> Iterator[Problem]:
        """A file's ids are checked when it is loaded; this is for pipelines built in Python."""
        own = [p for c in self._config.connectors for p in c.processors]
        for items in (self._config.connectors, [*self._config.processors, *own]):
            for id_, n in Counter(item.id for item in items).items():
                if n > 1:
                    yield self._problem("config.duplicate-id", f"the id {id_!r} is used {n} times", self._path)

    def _loops(self) -> Iterator[Problem]:
        """A folder that is source and destination at once would be read for ever."""
        read = [(folder, _deep(c)) for _, c in self._connectors("source") if (folder := _folder(c)) is not None]
        taken: dict[Path, str] = {}
        written = [*self._connectors("destination"), ((*self._path, "dead-letter-queue"), self._queue_config())]
        for path, d in written:
            folder, where = _folder(d), (*path, "settings", "path")
            if folder is not None and any(folder == r or (deep and folder.is_relative_to(r)) for r, deep in read):
                what = "the destination writes into a folder that is read"
                yield self._problem("config.loop", what, where, "use another folder")
            elif folder is not None and taken.setdefault(folder, d.id) != d.id:
                what = f"{taken[folder]!r} writes into the same folder"
                yield self._problem("config.same-folder", what, where, "give each destination a folder of its own")
            if d.id in RESERVED and d.type == "destination" and path[-1:] != ("dead-letter-queue",):
                yield self._problem(
                    "config.reserved-id", f"the id {d.id!r} is Penstock's own", (*path, "id"), "use another"
                )

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

    def _guarantee_problems(self) -> Iterator[Problem]:
        """What a destination, or a setting, can't promise."""
        guarantee = self._config.guarantee
        for path, d in self._connectors("destination"):
            made = self._try_make("destination", d)
            if guarantee == "exactly-once" and made is not None and not isinstance(made, ExactlyOnceDestination):
                yield self._problem(
                    "config.guarantee",
                    f"{d.plugin!r} can't deliver exactly once: it may write a record again after a crash",
                    (*path, "plugin"),
                    "set `guarantee: at-least-once` on the pipeline, or use another destination",
                )
        for path, c in self._connectors("source"):
            made = self._try_make("source", c)
            if guarantee == "at-most-once" and getattr(made and made.settings, "after_ack", "keep") != "keep":
                yield self._problem(
                    "config.guarantee",
                    "at most once acks a file before it is read: it must stay where it is",
                    (*path, "settings", "after-ack"),
                    "use `after-ack: keep`",
                )

    def _shape_problems(self) -> Iterator[Problem]:
        """What a processor or a destination can't do with what reaches it."""
        for path, c in self._connectors("source"):
            source = self._try_make("source", c)
            if source is None:
                continue
            own, shared = self._placed(path, c.processors), self._placed(self._path, self._config.processors)
            if own is None or shared is None:
                return
            first = [(path, Node(p)) for p in source.processors]
            shape, bad = _walk([*first, *own, *shared], source.shape)
            if bad is not None:
                yield self._unsuitable(*bad)
                continue
            for d_path, d in self._connectors("destination"):
                destination, nodes = self._try_make("destination", d), self._placed(d_path, d.processors)
                if destination is None or nodes is None:
                    continue
                given, bad = _walk(nodes, shape)
                if bad is None:
                    given, bad = _walk([(d_path, Node(p)) for p in destination.processors_for(given)], given)
                if bad is not None:
                    yield self._unsuitable(*bad)
                elif given not in destination.shapes:
                    yield self._problem(
                        "config.shape",
                        f"{d.id!r} can't take {given.value} payloads",
                        (*d_path, "plugin"),
                        _INSTEAD[given],
                    )

    def _queue_shape(self) -> Iterator[Problem]:
        """Dead letters are objects that differ."""
        queue = self._try_make("destination", self._queue_config())
        if queue is not None and Shape.OPEN not in queue.shapes:
            what = "the dead letter queue can't take dead letters: each is an object of its own"
            yield self._problem(
                "config.shape", what, (*self._path, "dead-letter-queue", "plugin"), "use `format: json` or `text`"
            )

    def _placed(self, path: KeyPath, processors: Sequence[ProcessorConfig]) -> list[tuple[KeyPath, Node]] | None:
        try:
            nodes = self._nodes(path, processors)
        except (ConfigErrors, KeyError):
            return None  # said already
        return [((*path, "processors", i), node) for i, node in enumerate(nodes)]

    def _unsuitable(self, path: KeyPath, node: Node, e: Unsuitable) -> Problem:
        where = (*path, "condition") if "condition" in str(e) else (*path, "plugin")
        return self._problem("config.shape", f"processor {node.id!r}: {e}", where, e.hint)

    def _try_make(self, kind: str, c: ConnectorConfig) -> Any:
        try:
            return self._make(kind, c, ())
        except (ConfigErrors, KeyError):
            return None

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


def _walk(
    placed: Sequence[tuple[KeyPath, Node]], shape: Shape
) -> tuple[Shape, tuple[KeyPath, Node, Unsuitable] | None]:
    """The shape behind a chain of processors, or the first of them that can't run."""
    for path, node in placed:
        try:
            shape = stages([node], shape)[-1].gives
        except Unsuitable as e:
            return shape, (path, node, e)
    return shape, None


_INSTEAD = {
    Shape.TYPED: "put json.encode before it",
    Shape.OPEN: "give the payload a schema: `schema` in the settings of the destination, or in json.decode",
    Shape.RAW: "put json.decode before it, with a `schema` where its fields have to be known",
}


def _shape_behind(nodes: Sequence[Node], shape: Shape) -> Shape:
    made = stages(nodes, shape)
    return made[-1].gives if made else shape


def _folder(c: ConnectorConfig) -> Path | None:
    """The folder that a connector's `path` is in, or is: what comes before the first value or wildcard in it."""
    if "path" not in c.settings:
        return None
    path = expand(c.settings["path"], os.environ)
    literal = re.split(r"[{]" if c.type == "destination" else r"[*?\[]", path, maxsplit=1)[0]
    whole = literal == path or literal.endswith("/")
    return (Path(literal) if whole else Path(literal).parent).resolve()


def _deep(c: ConnectorConfig) -> bool:
    """True where sub-folders of a source are read too."""
    return c.settings.get("recursive", "").lower() in ("true", "yes", "1", "on") or "**" in c.settings.get("path", "")


def _rebuild(p: Prepared | TargetRef) -> NativeDestination[Any]:
    """A destination as it was at prepare, for work that outlived a change of the file."""
    if not builtin.known("destination", p.plugin):
        raise UsageError(
            f"The destination {p.destination!r} ({p.plugin}) can't be made again: it was an object of a program",
            code="state.destination-gone",
            hint=f"put it back until its work is finished, or give that up with --abandon {p.destination}",
        )
    cls = builtin.settings_class("destination", p.plugin)
    settings = parse_settings(cls, expand_settings(p.settings, os.environ))
    made: NativeDestination[Any] = builtin.implementation("destination", p.plugin)(settings, p.destination)
    return made


def _texts(settings: dict[str, object]) -> dict[str, str]:
    """Keyword arguments as settings: `after_ack=…` is `after-ack`, and every value is text."""
    as_text = {True: "true", False: "false"}
    return {k.replace("_", "-"): as_text[v] if isinstance(v, bool) else str(v) for k, v in settings.items()}


_COUNTS = ("delivered", "filtered", "dead_lettered", "discarded", "produced")


def _result_json(p: PipelineResult) -> dict[str, Any]:
    destinations: dict[str, dict[str, int]] = {}
    for lane in p.lanes:
        for name in lane.delivered:
            d = destinations.setdefault(name, dict.fromkeys(_COUNTS, 0))
            for count in _COUNTS:
                d[count] += getattr(lane, count).get(name, 0)
    sources: dict[str, Any] = {lane.source: {"read": lane.read, "acked": lane.acked} for lane in p.lanes}
    for lane in p.lanes:
        if lane.remaining is not None:
            sources[lane.source]["remaining"] = asdict(lane.remaining)
        if lane.held:
            sources[lane.source]["held"] = [
                {"id": n.id, "seq": n.seq, "node": n.node, "destination": n.destination, "error": n.error}
                for n in lane.held
            ]
    return {
        "id": p.id,
        "status": p.status.value,
        "error": str(p.error) if p.error else None,
        "seconds": round(p.seconds, 3),
        "sources": sources,
        "destinations": destinations,
    }
