"""Processors in their places, and where each of them runs. Pure: decided from the file alone, before Spark is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.native import Processor, Shape, Unsuitable, Where
from penstock.plan.sql import ExpressionError, columns_of, compile_condition
from penstock.plan.sql.spark import looks_inside


@dataclass(frozen=True)
class Node:
    """A processor with what the file says around it."""

    processor: Processor[Any]
    condition: str = ""  # SQL; empty = every record

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


def stages(nodes: Sequence[Node], shape: Shape) -> tuple[Stage, ...]:
    """Raises `Unsuitable` for the first processor that can't run on what reaches it."""
    made: list[Stage] = []
    for node in nodes:
        where = node.processor.where(shape)
        behind = gives(node, where, shape)
        check_condition(node, where, shape)
        alone = node.processor.on_batch() is not None if where is Where.PYTHON else False
        last = made[-1] if made else None
        if last is not None and last.where is where and not alone and last.nodes[-1].processor.on_batch() is None:
            made[-1] = Stage(where, (*last.nodes, node), last.given, behind)
        else:
            made.append(Stage(where, (node,), shape, behind))
        shape = behind
    return tuple(made)


def check_condition(node: Node, where: Where, shape: Shape) -> None:
    if not node.condition:
        return
    if shape is Shape.RAW and looks_inside(node.condition, "after"):
        raise Unsuitable("the condition names a field of the payload, which is raw here", "put json.decode before it")
    if "{{" in node.condition:
        raise Unsuitable(
            "conditions in Go's template language are not supported yet", "write it as SQL, e.g. after.x = 1"
        )
    if where is Where.PYTHON and node.processor.on_batch() is not None:
        raise Unsuitable("a function of whole batches takes no condition", "test for it in the function")
    try:
        if where is Where.PYTHON:
            compile_condition(node.condition)
        else:
            columns_of(node.condition)
    except ExpressionError as e:
        raise Unsuitable(f"the condition can't be used: {e.what}", e.hint) from e


def gives(node: Node, where: Where, shape: Shape) -> Shape:
    """The shape behind a processor: what comes out of Python has no schema any more."""
    behind = node.processor.gives(shape)
    return Shape.OPEN if where is Where.PYTHON and behind is Shape.TYPED else behind
