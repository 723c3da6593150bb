"""What is wrong with a pipeline beyond its file's form: names, settings, and combinations that can't work. `validate` asks.

Starts nothing, imports no Spark, and says everything at once, each with its place.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.assembly import Assembly, Config, KeyPath
from penstock.config import ConnectorConfig, Loaded, PipelineConfig, Problem, ProcessorConfig, expand
from penstock.errors import PenstockError, UsageError
from penstock.native import ExactlyOnceDestination, NativeSource, Shape, Unsuitable
from penstock.plan.nodes import Node, stages
from penstock.plugins import builtin, registry
from penstock.plugins.dispensers import Dispenser
from penstock_protocol.interfaces import PluginError

RESERVED = ("dead-letter-queue", "dead-letters")
_INSTEAD = {
    Shape.TYPED: "put json.encode before it",
    Shape.OPEN: "give the payload a schema: `schema` in the settings of the destination, or in json.decode",
    Shape.RAW: "put json.decode before it, with a `schema` where its fields have to be known",
}


def problems(a: Assembly) -> Iterator[Problem]:
    """Without any value that came by reference."""
    return map(a.hidden, _problems(a))


def _problems(a: Assembly) -> Iterator[Problem]:
    for kind in ("source", "destination"):
        if not any(a.connectors(kind)):
            hint = f"add a connector with type: {kind}"
            yield a.problem(f"config.no-{kind}", f"pipeline {a.config.id!r} has no {kind}", a.path, hint)
        for path, c in a.connectors(kind):
            yield from _plugin(a, kind, c, path)
            yield from _log(a, kind, c, path)
            yield from _sending(a, kind, c, path)
            for i, p in enumerate(c.processors):
                yield from _plugin(a, "processor", p, (*path, "processors", i))
    for i, p in enumerate(a.config.processors):
        yield from _plugin(a, "processor", p, (*a.path, "processors", i))
    if a.config.dead_letter_queue.plugin is not None:
        yield from _plugin(a, "destination", a.queue, (*a.path, "dead-letter-queue"))
        yield from _queue_shape(a)
    yield from _same_ids(a)
    yield from _loops(a)
    yield from _guarantee(a)
    yield from _shapes(a)


def of_parts(loaded: Loaded) -> Iterator[Problem]:
    """For a file with other problems: names and settings of those connectors and processors that are sound in themselves."""
    a = Assembly(PipelineConfig(id="unknown"), loaded=loaded)
    data = loaded.document.data
    for path, pipeline in _items(data, (), "pipelines"):
        places: list[tuple[KeyPath, dict[str, Any], str]] = []
        for at, c in _items(pipeline, path, "connectors"):
            places.append((at, c, str(c.get("type"))))
            places += [(p_at, p, "processor") for p_at, p in _items(c, at, "processors")]
        places += [(at, p, "processor") for at, p in _items(pipeline, path, "processors")]
        for at, item, kind in places:
            settings = item.get("settings") or {}
            sound = isinstance(settings, dict) and all(isinstance(v, str) for v in settings.values())
            if kind not in builtin.KINDS or not isinstance(item.get("plugin"), str) or not sound:
                continue
            try:
                found = list(
                    _plugin(a, kind, ProcessorConfig(id="unknown", plugin=item["plugin"], settings=settings), at)
                )
            except UsageError:
                continue  # a reference without a value: said already
            yield from map(a.hidden, found)


def _items(parent: Any, path: KeyPath, key: str) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    items = parent.get(key) if isinstance(parent, dict) else None
    for i, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield (*path, key, i), item


def _plugin(a: Assembly, kind: str, c: Config, path: KeyPath) -> Iterator[Problem]:
    if (kind, c.id) in a.objects:
        return
    if (unknown := registry.problem(kind, c.plugin)) is not None:
        yield a.problem(unknown.code, unknown.what, (*path, "plugin"), unknown.hint)
    elif (hosted := registry.hosted(kind, c.plugin)) is not None:
        yield from _hosted(a, kind, hosted, c, path)
    else:
        yield from a.why_not(kind, c, path)


def _log(a: Assembly, kind: str, c: ConnectorConfig, path: KeyPath) -> Iterator[Problem]:
    """Only what a source in a process of its own gives goes through a log."""
    native = (kind, c.id) in a.objects or registry.problem(kind, c.plugin) is not None
    if c.log.model_dump(exclude_none=True) and (kind != "source" or native or registry.hosted(kind, c.plugin) is None):
        what = f"{c.id!r} has no log: it is no source in a process of its own"
        yield a.problem("config.no-log", what, (*path, "log"), "leave it out")


def _sending(a: Assembly, kind: str, c: ConnectorConfig, path: KeyPath) -> Iterator[Problem]:
    """How records are sent can be said of destinations in a process of their own alone."""
    hosted = (kind, c.id) not in a.objects and registry.problem(kind, c.plugin) is None
    hosted = hosted and kind == "destination" and registry.hosted(kind, c.plugin) is not None
    if c.ordering is not None and not hosted:
        what = f"{c.id!r} is no destination in a process of its own: records arrive in the order of their source"
        yield a.problem("config.no-ordering", what, (*path, "ordering"), "leave it out")
    allowed = {"max_records"} if hosted else set()
    for name in c.batch.model_dump(exclude_none=True).keys() - allowed if kind == "destination" else ():
        key = name.replace("_", "-")
        what = f"{c.id!r} is a destination: {key!r} is for sources"
        yield a.problem("config.no-ordering", what, (*path, "batch", key), "leave it out")


def _hosted(a: Assembly, kind: str, hosted: Dispenser, c: Config, path: KeyPath) -> Iterator[Problem]:
    """What its declaration says about the settings. Nothing is started."""
    settings, known = a.expanded(c), hosted.parameters(kind)
    for found in hosted.problems(kind, settings):
        if found.name and found.name not in settings:
            what, hint = f"the setting {found.name!r} is missing", f"add '{found.name}: …'"
            yield a.problem("config.missing-key", what, (*path, "settings"), hint)
        else:
            code = "config.bad-value" if found.name in known or not found.name else "config.unknown-key"
            what, _, hint = found.text.partition("; ")
            what = f"{found.name!r}: {what}" if found.name else what
            place = (*path, "settings", found.name) if found.name else (*path, "settings")
            yield a.problem(code, what, place, hint or "correct the value")


Part = tuple[str, ConnectorConfig, KeyPath]


def connected(a: Assembly) -> Iterator[Problem]:
    """What connectors say themselves: each that runs in a process of its own is started, given its settings, and ended; others look
    whether what they need is there."""
    for kind, c, path in _connectors(a):
        sound = registry.problem(kind, c.plugin) is None
        if sound and not list(_plugin(a, kind, c, path)):
            yield from map(a.hidden, _connected(a, kind, c, path))


def refused(assemblies: Sequence[Assembly]) -> list[Problem]:
    """What plugin programs say to their settings, asked side by side before anything runs. For pipelines without other problems: one that
    can't be started now may be when it is needed."""
    found = [(a, part) for a in assemblies for part in _connectors(a) if _is_program(part)]
    if not found:
        return []
    with ThreadPoolExecutor(len(found)) as pool:
        return [p for problems in pool.map(lambda each: list(_refused(*each)), found) for p in problems]


def _connectors(a: Assembly) -> list[Part]:
    parts: list[Part] = [(kind, c, path) for kind in ("source", "destination") for path, c in a.connectors(kind)]
    if a.config.dead_letter_queue.plugin is not None:
        parts.append(("destination", a.queue, (*a.path, "dead-letter-queue")))
    return [(kind, c, path) for kind, c, path in parts if (kind, c.id) not in a.objects]


def _is_program(part: Part) -> bool:
    hosted = registry.hosted(part[0], part[1].plugin)
    return hosted is not None and hosted.registry == "standalone"


def _refused(a: Assembly, part: Part) -> Iterator[Problem]:
    kind, c, path = part
    hosted = registry.hosted(kind, c.plugin)
    assert hosted is not None
    try:
        hosted.check(kind, f"{a.config.id}:{c.id}", a.expanded(c))
    except PluginError as e:
        if not e.gone:
            yield from map(a.hidden, _said(a, c, path, str(e)))
    except PenstockError:
        return  # said when it is started


def _connected(a: Assembly, kind: str, c: Config, path: KeyPath) -> Iterator[Problem]:
    hosted = registry.hosted(kind, c.plugin)
    try:
        if hosted is not None:
            hosted.check(kind, f"{a.config.id}:{c.id}", a.expanded(c))
        elif (made := a.made(kind, c, path)) is not None:
            made.check()
    except PluginError as e:
        yield from _said(a, c, path, str(e))
    except PenstockError as e:
        yield a.problem("config.connect", f"{c.id!r}: {e.what}", (*path, "plugin"), e.hint or e.why)


def _said(a: Assembly, c: Config, path: KeyPath, text: str) -> Iterator[Problem]:
    """A plugin's words, a problem for each line, at the setting that the line names."""
    for line in text.splitlines() or [text]:
        named = [name for name in c.settings if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", line)]
        place = (*path, "settings", max(named, key=len)) if named else (*path, "plugin")
        yield a.problem("config.connect", f"{c.plugin} says: {line.strip()}", place, "see what the connector says")


def _same_ids(a: Assembly) -> Iterator[Problem]:
    """A file's ids are checked when it is loaded; this is for pipelines built in Python."""
    own = [p for c in a.config.connectors for p in c.processors]
    for items in (a.config.connectors, [*a.config.processors, *own]):
        for id_, n in Counter(item.id for item in items).items():
            if n > 1:
                yield a.problem(
                    "config.duplicate-id", f"the id {id_!r} is used {n} times", a.path, "change one of them"
                )


def _loops(a: Assembly) -> Iterator[Problem]:
    """A folder that is source and destination at once would be read for ever."""
    read = [(folder, _deep(c)) for _, c in a.connectors("source") if (folder := _folder(c)) is not None]
    taken: dict[Path, str] = {}
    written = [*a.connectors("destination"), ((*a.path, "dead-letter-queue"), a.queue)]
    for path, d in written:
        folder, where = _folder(d), (*path, "settings", "path")
        if folder is not None and any(folder == r or (deep and folder.is_relative_to(r)) for r, deep in read):
            what = "the destination writes into a folder that is read"
            yield a.problem("config.loop", what, where, "use another folder")
        elif folder is not None and taken.setdefault(folder, d.id) != d.id:
            what = f"{taken[folder]!r} writes into the same folder"
            yield a.problem("config.same-folder", what, where, "give each destination a folder of its own")
        if d.id in RESERVED and d.type == "destination" and path[-1:] != ("dead-letter-queue",):
            yield a.problem("config.reserved-id", f"the id {d.id!r} is Penstock's own", (*path, "id"), "use another")


def _guarantee(a: Assembly) -> Iterator[Problem]:
    """What a destination, or a setting, can't promise."""
    guarantee = a.config.guarantee
    for path, d in a.connectors("destination"):
        made = a.made("destination", d, path)
        if guarantee == "exactly-once" and made is not None and not isinstance(made, ExactlyOnceDestination):
            yield a.problem(
                "config.guarantee",
                f"{d.plugin!r} can't deliver exactly once: it may write a record again after a crash",
                (*path, "plugin"),
                "set `guarantee: at-least-once` on the pipeline, or use another destination",
            )
    for path, c in a.connectors("source"):
        made = a.made("source", c, path)
        if guarantee == "at-most-once" and getattr(made and made.settings, "after_ack", "keep") != "keep":
            yield a.problem(
                "config.guarantee",
                "at most once acks a file before it is read: it must stay where it is",
                (*path, "settings", "after-ack"),
                "use `after-ack: keep`",
            )


def _shapes(a: Assembly) -> Iterator[Problem]:
    """What a processor or a destination can't do with what reaches it."""
    said: set[Problem] = set()
    for path, c in a.connectors("source"):
        source: NativeSource[object] | None = a.made("source", c, path)
        own, shared = a.placed(path, c.processors), a.placed(a.path, a.config.processors)
        if source is None or own is None or shared is None:
            continue
        first = [(path, Node(p)) for p in source.processors]
        found: list[Problem] = []
        for given in source.shapes():
            shape, bad = _walk([*first, *own, *shared], given)
            wrong = [_unsuitable(a, *bad)] if bad is not None else list(_destinations(a, shape))
            if not wrong:
                found = []
                break  # where the shape is known with the first record alone, one that can work is enough
            found = found or wrong
        yield from (p for p in found if p not in said)  # lanes share what is downstream
        said.update(found)


def _destinations(a: Assembly, shape: Shape) -> Iterator[Problem]:
    for path, d in a.connectors("destination"):
        destination, nodes = a.made("destination", d, path), a.placed(path, d.processors)
        if destination is None or nodes is None:
            continue
        given, bad = _walk(nodes, shape)
        if bad is None:
            given, bad = _walk([(path, Node(p)) for p in destination.processors_for(given)], given)
        if bad is not None:
            yield _unsuitable(a, *bad)
        elif given not in destination.shapes:
            what = f"{d.id!r} can't take {given.value} payloads"
            yield a.problem("config.shape", what, (*path, "plugin"), _INSTEAD[given])


def _queue_shape(a: Assembly) -> Iterator[Problem]:
    """Dead letters are objects that differ."""
    path = (*a.path, "dead-letter-queue")
    queue = a.made("destination", a.queue, path)
    if queue is not None and Shape.OPEN not in queue.shapes:
        what = "the dead letter queue can't take dead letters: each is an object of its own"
        yield a.problem("config.shape", what, (*path, "plugin"), "use `format: json` or `text`")


def _unsuitable(a: Assembly, path: KeyPath, node: Node, e: Unsuitable) -> Problem:
    where = "condition" if "condition" in str(e) else "namespaces" if "namespaces" in str(e) else "plugin"
    return a.problem(e.code, f"processor {node.id!r}: {e}", (*path, where), e.hint)


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


def _folder(c: ConnectorConfig) -> Path | None:
    """The folder that a connector's `path` is in, or is: what comes before the first value or wildcard in it."""
    if "path" not in c.settings:
        return None
    path = expand(c.settings["path"], os.environ)
    literal = re.split(r"[{]" if c.type == "destination" else r"[*?\[]", path, maxsplit=1)[0]
    whole = literal == path or literal.endswith("/")
    return Path(os.path.realpath(literal if whole else os.path.dirname(literal)))  # noqa: PTH120 - Path takes four times as long


def _deep(c: ConnectorConfig) -> bool:
    """True where sub-folders of a source are read too."""
    return c.settings.get("recursive", "").lower() in ("true", "yes", "1", "on") or "**" in c.settings.get("path", "")
