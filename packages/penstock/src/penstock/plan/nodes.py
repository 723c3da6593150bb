"""Processors in their places, and where each of them runs. Pure: decided from the file alone, before Spark is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import record
from penstock.native import Processor, Shape, Typed, Unsuitable, Where
from penstock.plan.condition import EVERY, Condition


@dataclass(frozen=True)
class Node:
    """A processor with what the file says around it."""

    processor: Processor[Any]
    condition: Condition = EVERY
    written: Mapping[str, str] = field(default_factory=dict)  # its settings as the file has them: what errors show

    @property
    def id(self) -> str:
        return self.processor.processor_id


@dataclass(frozen=True)
class Stage:
    """Neighbours that run together: as columns in one plan, or fused in one Python function."""

    where: Where
    nodes: tuple[Node, ...]
    given: Shape  # of `after` in front of it
    gives: Shape  # and behind it

    @property
    def schema(self) -> Typed | None:
        """What types the payload behind it, where that happens in Python."""
        return self.nodes[-1].processor.typed if self.where is Where.PYTHON else None


def stages(nodes: Sequence[Node], shape: Shape) -> tuple[Stage, ...]:
    """Raises `Unsuitable` for the first processor that can't run on what reaches it."""
    made: list[Stage] = []
    for node in nodes:
        where = place(node, shape)
        behind = gives(node, where, shape)
        alone = node.processor.on_batch() is not None if where is Where.PYTHON else False
        last = made[-1] if made else None
        closed = last is not None and (last.schema is not None or last.nodes[-1].processor.on_batch() is not None)
        if last is not None and last.where is where and not alone and not closed:
            made[-1] = Stage(where, (*last.nodes, node), last.given, behind)
        else:
            made.append(Stage(where, (node,), shape, behind))
        shape = behind
    return tuple(made)


def shape_behind(nodes: Sequence[Node], shape: Shape) -> Shape:
    made = stages(nodes, shape)
    return made[-1].gives if made else shape


def fields(nodes: Sequence[Node]) -> frozenset[str] | None:
    """The fields of a typed `after` that a chain of processors looks at, where it leaves nothing else of it; else None."""
    found: set[str] = set()
    for node in nodes:
        condition = node.condition.fields
        own = node.processor.fields()
        if condition is None or own is None:
            return None
        found |= condition | own
        if node.processor.replaces() and not node.condition:
            return frozenset(found)
    return None


def place(node: Node, shape: Shape) -> Where:
    """Where it runs, its condition included: a Go template needs Python. Raises `Unsuitable`."""
    where = node.processor.where(shape)
    if not node.condition:
        return where
    node.condition.check(where, shape)
    # a column has one type: records that such a processor is not for would have to lose fields, too
    reshapes = shape is Shape.TYPED and node.processor.reshapes
    if where is Where.SPARK and (node.condition.template is not None or reshapes):
        if type(node.processor).apply is Processor.apply:
            what = "its condition is a Go template, which runs in Python, and it runs in Spark only"
            raise Unsuitable(what, "write the condition as SQL")
        if shape is Shape.RAW and record.AFTER in node.processor.uses:
            what = "its condition is a Go template, which runs in Python, where SQL has no raw payloads"
            raise Unsuitable(what, "write the condition as SQL, or put json.decode before it")
        if shape is Shape.TYPED:
            node.processor.where(Shape.OPEN)  # what it can't do with objects it can't do with these
        where = Where.PYTHON
        node.condition.check(where, shape)
    if node.processor.typed is not None:
        raise Unsuitable("what gives payloads a schema takes no condition", "every record needs the schema behind it")
    if where is Where.PYTHON and node.processor.on_batch() is not None:
        raise Unsuitable("a function of whole batches takes no condition", "test for it in the function")
    return where


def gives(node: Node, where: Where, shape: Shape) -> Shape:
    """The shape behind a processor: what comes out of Python has no schema any more, unless the processor gives one."""
    behind = node.processor.gives(shape)
    lost = where is Where.PYTHON and behind is Shape.TYPED and node.processor.typed is None
    return Shape.OPEN if lost else behind
