"""`omit`: leaves out the fields that are named, and keeps all others.

`fields` is a list such as ``password, customer.card, `odd.name` ``. What a path leads through stays, even where nothing is
left in it. A field that a record does not have is nothing to leave out, and so is one whose way leads through a text, a
number or a list. The keys of a map can be named like fields. A record without a payload stays without.

On open payloads it runs in Python with its neighbours, on typed ones in Spark, where a field that the schema has not stops
the pipeline before anything is read (`processor.unknown-field`): a name that is misspelled would let a secret pass.
A raw payload has no fields: put `json.decode` before it.
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


class OmitSettings(Settings):
    fields: str = Field(description="The fields to leave out, e.g. `password, customer.card`.")

    @field_validator("fields")
    @classmethod
    def _parses(cls, value: str) -> str:
        tree(parse_paths(value))
        return value


class Omit(Processor[OmitSettings]):
    reshapes = True
    example: ClassVar[Example | None] = Example(
        settings={"fields": "note, customer.card"},
        given={"after": {"id": 7, "note": "x", "customer": {"name": "Ada", "card": "4111"}}},
        gives={"after": {"id": 7, "customer": {"name": "Ada"}}},
    )

    def __init__(self, settings: OmitSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.tree = tree(parse_paths(settings.fields))
        self._change = partial(_without, self.tree)

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if shape is Shape.TYPED else Where.PYTHON

    def fields(self) -> frozenset[str]:
        return frozenset(self.tree)  # else a source could leave them out, and `compile` would not know them

    def apply(self, r: Record) -> Record:
        r.after = self._change(r.after)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return self._change

    def compile(self, columns: Columns) -> Step:
        type_ = columns.schema[record.AFTER].dataType
        refuse_unknown(self.tree, type_, self.processor_id)
        return Step(set={record.AFTER: _column(self.tree, columns.after, type_)})


def _without(names: Tree, payload: Any) -> Any:
    p = payload if type(payload) is dict else object_of(payload)
    return _inner(names, p) if p is not None else None


def _inner(names: Tree, p: dict[str, Any]) -> dict[str, Any]:
    made = p.copy()  # records may share a payload
    for name, below in names.items():
        if below is None:
            made.pop(name, None)
        elif isinstance(value := made.get(name), dict):
            made[name] = _inner(below, value)
    return made


def _column(names: Tree, value: Column, type_: DataType) -> Column:
    """The same on a struct, or on a map."""
    from pyspark.sql import functions as F

    fields = struct_fields(type_)
    if fields is None:
        return F.map_filter(value, lambda key, _: ~key.isin(*names))
    made = []
    for name, inner in fields.items():
        if name not in names:
            made.append(value.getField(name).alias(name))
        elif (below := names[name]) is not None:
            made.append(_column(below, value.getField(name), inner).alias(name))
    return F.when(value.isNotNull(), F.struct(*made))
