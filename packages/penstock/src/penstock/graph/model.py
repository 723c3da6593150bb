"""What a pipeline's picture shows: its lanes, with the stages that run together and the shape of payloads on every edge.

Made of an `Assembly` without problems. Pure and without Spark: where a processor runs is decided by the same functions that the
engine asks. A lane is a source and all that is downstream of it; lanes share nothing but destinations and dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.assembly import Assembly, KeyPath
from penstock.config import DeadLetterQueueConfig, ProcessorConfig
from penstock.native import NativeDestination, NativeSource, Processor, Where
from penstock.plan.nodes import Node, Stage, gives, shape_behind, stages
from penstock.plugins.builtin import bare
from penstock.record import Shape

STATE_FOLDER = "state folder"


@dataclass(frozen=True)
class Vertex:
    """A connector, a processor, or where records are kept. `key` is unique in its graph and is letters, digits and '_'."""

    key: str
    kind: str  # source | processor | kept | destination | letters
    id: str
    plugin: str = ""
    owner: str = ""  # "of in", "part of in": the connector it belongs to
    notes: tuple[str, ...] = ()  # its condition and its namespaces

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(t for t in (self.id, self.plugin, self.owner, *self.notes) if t)


@dataclass(frozen=True)
class Group:
    """A stage: processors that run together, fused in one Python function or as one Spark plan."""

    key: str
    where: str
    vertices: tuple[Vertex, ...]
    shapes: tuple[str, ...]  # of the payload in front of the first, and behind each

    def edges(self) -> Iterator[Edge]:
        pairs = zip(self.vertices, self.vertices[1:], self.shapes[1:-1], strict=False)
        return (Edge(a.key, b.key, shape) for a, b, shape in pairs)


@dataclass(frozen=True)
class Branch:
    """From where a lane's records are known to one destination."""

    groups: tuple[Group, ...]
    destination: Vertex
    gives: str  # the shape that reaches the destination


@dataclass(frozen=True)
class Lane:
    source: Vertex
    given: str  # the shape of what the source gives
    groups: tuple[Group, ...]
    gives: str  # the shape behind them
    kept: Vertex | None  # where the processed batch is materialised for what follows
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class DeadLetters:
    folder: Vertex
    queue: Vertex | None  # the configured destination besides
    window: str


@dataclass(frozen=True)
class Edge:
    tail: str
    head: str
    label: str
    dashed: bool = False


@dataclass(frozen=True)
class PipelineGraph:
    key: str
    id: str
    title: str
    lanes: tuple[Lane, ...]
    destinations: tuple[Vertex, ...]
    letters: DeadLetters

    def edges(self) -> Iterator[Edge]:
        """All of them, each once."""
        for lane in self.lanes:
            at, shape = lane.source.key, lane.given
            for group in lane.groups:
                yield from _through(at, group)
                at, shape = group.vertices[-1].key, group.shapes[-1]
            if lane.kept is not None:
                yield Edge(at, lane.kept.key, shape)
                at = lane.kept.key
            for branch in lane.branches:
                end = at
                for group in branch.groups:
                    yield from _through(end, group)
                    end = group.vertices[-1].key
                yield Edge(end, branch.destination.key, branch.gives)
        if self.letters.queue is not None:
            yield Edge(self.letters.folder.key, self.letters.queue.key, Shape.OPEN.value, dashed=True)


@dataclass(frozen=True)
class Graph:
    pipelines: tuple[PipelineGraph, ...]


def graph_of(assemblies: Sequence[Assembly]) -> Graph:
    """For pipelines without problems."""
    return Graph(tuple(_Maker(a, f"p{i}").pipeline() for i, a in enumerate(assemblies)))


class _Maker:
    """Makes the graph of one pipeline; keys are made of places, never of what a file says."""

    def __init__(self, assembly: Assembly, key: str) -> None:
        self._a = assembly
        self._key = key
        self._destinations = {
            c.id: Vertex(f"{key}_d{i}", "destination", c.id, bare(c.plugin))
            for i, (_, c) in enumerate(assembly.connectors("destination"))
        }

    def pipeline(self) -> PipelineGraph:
        config = self._a.config
        name = f"{config.id}: {config.name}" if config.name.strip() else config.id
        said = [config.guarantee, *(["stopped"] if config.status == "stopped" else [])]
        lanes = tuple(self._lane(i) for i in range(len(list(self._a.connectors("source")))))
        destinations = tuple(self._destinations.values())
        return PipelineGraph(
            self._key, config.id, f"{name} ({', '.join(said)})", lanes, destinations, self._dead_letters()
        )

    def _lane(self, i: int) -> Lane:
        path, c = list(self._a.connectors("source"))[i]
        key = f"{self._key}_l{i}"
        source: NativeSource[Any] = _there(self._a.made("source", c, path))
        placed = [
            *_part_of(c.id, source.processors),
            *self._placed(path, c.processors, c.id),
            *self._placed(self._a.path, self._a.config.processors, ""),
        ]
        nodes = [p.node for p in placed]
        shape = shape_behind(nodes, source.shape)
        kept = Vertex(f"{key}_kept", "kept", "materialised", "once per batch") if self._materialised() else None
        return Lane(
            Vertex(f"{key}_s", "source", c.id, bare(c.plugin)),
            source.shape.value,
            _groups(key, placed, source.shape),
            shape.value,
            kept,
            tuple(self._branch(f"{key}_b{n}", n, shape) for n in range(len(self._destinations))),
        )

    def _branch(self, key: str, n: int, shape: Shape) -> Branch:
        path, d = list(self._a.connectors("destination"))[n]
        destination: NativeDestination[Any] = _there(self._a.made("destination", d, path))
        placed = list(self._placed(path, d.processors, d.id))
        last = destination.processors_for(shape_behind([p.node for p in placed], shape))
        placed += _part_of(d.id, last)
        behind = shape_behind([p.node for p in placed], shape)
        return Branch(_groups(key, placed, shape), self._destinations[d.id], behind.value)

    def _materialised(self) -> bool:
        """As the engine does: where several read what was processed, or one may refuse single records of it later."""
        made = [self._a.made("destination", d, path) for path, d in self._a.connectors("destination")]
        return len(made) > 1 or any(d is not None and d.may_refuse for d in made)

    def _placed(self, path: KeyPath, processors: Sequence[ProcessorConfig], owner: str) -> Iterator[_Placed]:
        placed = _there(self._a.placed(path, processors))
        for p, (_, node) in zip(processors, placed, strict=True):
            notes = []
            if node.condition.written.strip():
                notes.append(f"if {node.condition.written.strip()}")
            if node.condition.namespaces:
                notes.append(f"namespaces {node.condition.namespaces}")
            yield _Placed(node, p.id, bare(p.plugin), f"of {owner}" if owner else "", tuple(notes))

    def _dead_letters(self) -> DeadLetters:
        queue = self._a.config.dead_letter_queue
        key, window = f"{self._key}_letters", _window(queue)
        folder = Vertex(key, "letters", "dead letters", STATE_FOLDER, notes=(window,))
        if queue.plugin is None:
            return DeadLetters(folder, None, window)
        plugin = bare(queue.plugin)
        return DeadLetters(folder, Vertex(f"{key}_queue", "destination", self._a.queue.id, plugin), window)


@dataclass(frozen=True)
class _Placed:
    node: Node
    id: str
    plugin: str
    owner: str
    notes: tuple[str, ...] = ()


def _part_of(owner: str, processors: Sequence[Processor[Any]]) -> list[_Placed]:
    """What a connector needs itself, e.g. to make a payload of a line. It has no name that a user knows: its class says it."""
    words = [" ".join(re.findall("[A-Z][^A-Z]*", type(p).__name__)).lower() for p in processors]
    return [_Placed(Node(p), owner, w, f"part of {owner}") for p, w in zip(processors, words, strict=True)]


def _groups(key: str, placed: Sequence[_Placed], shape: Shape) -> tuple[Group, ...]:
    made, at = [], 0
    for i, stage in enumerate(stages([p.node for p in placed], shape)):
        group = f"{key}_g{i}"
        own = placed[at : at + len(stage.nodes)]
        vertices = [Vertex(f"{group}_{n}", "processor", p.id, p.plugin, p.owner, p.notes) for n, p in enumerate(own)]
        made.append(Group(group, _WHERE[stage.where], tuple(vertices), _shapes(stage)))
        at += len(stage.nodes)
    return tuple(made)


def _shapes(stage: Stage) -> tuple[str, ...]:
    shapes = [stage.given]
    for node in stage.nodes:
        shapes.append(gives(node, stage.where, shapes[-1]))
    return tuple(s.value for s in shapes)


_WHERE = {Where.PYTHON: "Python", Where.SPARK: "Spark"}


def _window(queue: DeadLetterQueueConfig) -> str:
    size, threshold = queue.window_size, queue.window_nack_threshold
    if size == 0:
        return "window 0: no limit"
    if threshold == 0:
        return f"window {size}: the first stops the pipeline"
    return f"window {size}: more than {threshold} stop the pipeline"


def _through(tail: str, group: Group) -> Iterator[Edge]:
    """Into a stage, and through it."""
    yield Edge(tail, group.vertices[0].key, group.shapes[0])
    yield from group.edges()


def _there(made: Any) -> Any:
    if made is None:
        raise ValueError("a pipeline with problems has no graph: ask for its problems first")
    return made
