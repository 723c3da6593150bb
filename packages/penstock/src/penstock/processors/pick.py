"""`pick`: keeps only the fields that are named, and leaves out all others.

`fields` is a list such as ``id, customer.name, `odd.name` ``. A path keeps the way to its field: `customer.name` leaves
`{"customer": {"name": …}}`, and what else was in `customer` is gone. The fields stand in the order of the list.

A field that a record does not have is simply absent behind it, and so is one whose way leads through a text, a number or a
list; NULL on the way stays NULL. The keys of a map can be named like fields. A record without a payload stays without.

On open payloads it runs in Python with its neighbours, on typed ones in Spark, where a field that the schema has not stops
the pipeline before anything is read (`processor.unknown-field`). A raw payload has no fields: put `json.decode` before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.plan.fields import Tree, object_of, parse_paths, refuse_unknown, struct_fields, tree

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


class PickSettings(Settings):
    fields: str = Field(description="The fields to keep, e.g. `id, customer.name`.")

    @field_validator("fields")
    @classmethod
    def _parses(cls, value: str) -> str:
        tree(parse_paths(value))
        return value


class Pick(Processor[PickSettings]):
    reshapes = True
    example: ClassVar[Example | None] = Example(
        settings={"fields": "id, customer.name"},
        given={"after": {"id": 7, "note": "x", "customer": {"name": "Ada", "card": "4111"}}},
        gives={"after": {"id": 7, "customer": {"name": "Ada"}}},
    )

    def __init__(self, settings: PickSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.tree = tree(parse_paths(settings.fields))
        nested = any(below is not None for below in self.tree.values())
        self._change = partial(_nested, self.tree) if nested else partial(_plain, tuple(self.tree))

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if shape is Shape.TYPED else Where.PYTHON

    def fields(self) -> frozenset[str]:
        return frozenset(self.tree)

    def replaces(self) -> bool:
        return True  # but for the fields that it looks at, nothing is left

    def apply(self, r: Record) -> Record:
        r.after = self._change(r.after)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return self._change

    def compile(self, columns: Columns) -> Step:
        type_ = columns.schema[record.AFTER].dataType
        refuse_unknown(self.tree, type_, self.processor_id)
        return Step(set={record.AFTER: _column(self.tree, columns.after, type_)})


def _plain(names: tuple[str, ...], payload: Any) -> Any:
    p = payload if type(payload) is dict else object_of(payload)
    return {name: p[name] for name in names if name in p} if p is not None else None


def _nested(names: Tree, payload: Any) -> Any:
    p = payload if type(payload) is dict else object_of(payload)
    return _inner(names, p) if p is not None else None


def _inner(names: Tree, p: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, below in names.items():
        if name in p:
            value = p[name]
            if below is None or value is None:
                made[name] = value
            elif isinstance(value, dict):
                made[name] = _inner(below, value)
    return made


def _column(names: Tree, value: Column, type_: DataType) -> Column:
    """The same on a struct, or on a map."""
    from pyspark.sql import functions as F

    fields = struct_fields(type_)
    if fields is None:
        return F.map_filter(value, lambda key, _: key.isin(*names))
    made = [
        (value.getField(name) if below is None else _column(below, value.getField(name), fields[name])).alias(name)
        for name, below in names.items()
    ]
    return F.when(value.isNotNull(), F.struct(*made))
