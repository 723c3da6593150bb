"""`sql`: computes with SQL over the record: one field (`expression` and `field`), or the whole payload anew (`select`).

`expression` is one SQL expression, e.g. `after.price * after.amount`, and `field` the field of the payload or the key of the
metadata that gets its value. What is missing on the way to it is made. A key of the metadata gets text, and NULL there is a
nack, `sql.null`.

`select` is a select list, e.g. `after.id AS id, upper(after.name) AS name`, and what it gives is the new payload, also
where there was none. Every item needs a name: AS, or a plain reference, whose last part it is. No name stands twice.
With `after.*` as the first item all fields that are there go on, an item with the name of one replaces it, and a record
without a payload stays without. All items see the record as it was before.

Neither is a query: FROM, WHERE, subqueries, aggregates, window functions and generators are refused, and so is what would
give another result when a batch is run again, such as `now()` or `rand()`: `timestamp` is the time of the record.
`metadata['opencdc.collection']` is `namespace`.

On open payloads it runs in Python with its neighbours and takes a subset of Spark's SQL, with the same results; on typed ones in
Spark, with all of it. On raw payloads an expression that looks at no field can set the whole payload, and a select list
like `split(after, ',')[0] AS a` makes it typed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Rejected, Shape, Step, Stop, Unsuitable, Where
from penstock.plan.fields import object_of, struct_fields
from penstock.plan.reference import Reference
from penstock.plan.sql import Expression, ExpressionError, columns_of, compile_expression, fields_of
from penstock.plan.sql.refused import NotOneRecord
from penstock.plan.sql.select import SelectList, parse_select
from penstock.plan.sql.spark import looks_inside, spark_text
from penstock_sdk.record import COLLECTION

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


class SqlSettings(Settings):
    expression: str | None = Field(
        None, min_length=1, description="SQL over the record, e.g. `after.price * after.amount`; needs `field`."
    )
    field: str | None = Field(None, description="The field that gets its value, e.g. `.Payload.After.total`.")
    select: str | None = Field(
        None,
        min_length=1,
        description="Instead of both: a select list that makes the payload, e.g. `after.id AS id, after.*`.",
    )

    @field_validator("expression")
    @classmethod
    def _parses(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                columns_of(value)
        except NotOneRecord as e:
            raise ValueError(f"must be an expression or a select list, not a query: {_said(e)}") from e
        except ExpressionError as e:
            raise ValueError(f"must be a SQL expression: {_said(e)}") from e
        return value

    @field_validator("select")
    @classmethod
    def _is_list(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                parse_select(value)
        except NotOneRecord as e:
            raise ValueError(f"must be an expression or a select list, not a query: {_said(e)}") from e
        except ExpressionError as e:
            raise ValueError(f"must be a select list: {_said(e)}") from e
        return value

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if Reference.parse(value).root not in ("after", "metadata"):
            raise ValueError("must be `.Payload.After`, a field of it, or a key of the metadata")
        if Reference.parse(value).root == "metadata" and len(Reference.parse(value).path) != 1:
            raise ValueError("must name one key of the metadata")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> SqlSettings:
        one = self.expression is not None and self.field is not None and self.select is None
        if not one and not (self.select is not None and self.expression is None and self.field is None):
            raise ValueError("must have either `expression` and `field`, or `select`")
        return self


class Sql(Processor[SqlSettings]):
    raises = "the select list raised an error"
    example: ClassVar[Example | None] = Example(
        settings={"select": "after.id AS id, upper(after.name) AS name, after.price * after.amount AS total"},
        given={"after": {"id": 7, "name": "pen", "price": 3, "amount": 10, "note": "x"}},
        gives={"after": {"id": 7, "name": "PEN", "total": 30}},
    )

    def __init__(self, settings: SqlSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.list: SelectList | None = parse_select(settings.select) if settings.select is not None else None
        self.reference = Reference.parse(settings.field) if settings.field is not None else Reference(record.AFTER, ())
        self.texts = tuple(item.text for item in self.list.items) if self.list else (settings.expression or "",)
        changes = {self.reference.root}
        if self.reference == Reference(record.METADATA, (COLLECTION,)):
            changes.add(record.NAMESPACE)
        self.uses = frozenset().union(changes, *map(columns_of, self.texts))  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW:
            self._refuse_raw()
        if shape is not Shape.OPEN and self.reference.root == record.AFTER:
            return Where.SPARK
        if self.list is None and self.reference == Reference("after", ()):
            raise Unsuitable("the whole payload can't be set to one value", "name a field, e.g. .Payload.After.total")
        for text in self.texts:
            try:
                compile_expression(text)
            except ExpressionError as e:
                raise Unsuitable(f"the expression can't be used: {e.what}", e.hint) from e
        return Where.PYTHON

    def _refuse_raw(self) -> None:
        star = self.list is not None and self.list.star
        if star or (self.reference.root == record.AFTER and self.reference.path):
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        if any(looks_inside(text, record.AFTER) for text in self.texts):
            raise Unsuitable(
                "the expression names a field of the payload, which is raw here", "put json.decode before it"
            )

    def gives(self, shape: Shape) -> Shape:
        if self.list is not None:
            return Shape.OPEN if shape is Shape.OPEN else Shape.TYPED
        return Shape.RAW if self.replaces() else shape

    def fields(self) -> frozenset[str] | None:
        found = [fields_of(text, record.AFTER) for text in self.texts]
        return None if None in found else frozenset().union(*(f for f in found if f is not None))

    def replaces(self) -> bool:
        return self.reference == Reference("after", ()) and not (self.list is not None and self.list.star)

    @cached_property
    def _compiled(self) -> tuple[Expression, ...]:
        return tuple(map(compile_expression, self.texts))

    @cached_property
    def _named(self) -> tuple[tuple[str, Expression], ...]:
        assert self.list is not None
        return tuple((item.name, e) for item, e in zip(self.list.items, self._compiled, strict=True))

    def apply(self, r: Record) -> Record:
        if self.list is None:
            value = self._compiled[0].on_record(r)
            self.reference.set(r, _text(value) if self.reference.root == record.METADATA else value)
            return r
        made: dict[str, Any] = {}
        if self.list.star:
            p = object_of(r.after)
            if p is None:
                return r
            made.update(p)
        for name, e in self._named:
            made[name] = e.on_record(r)
        r.after = made
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER or any(e.columns - {record.AFTER} for e in self._compiled):
            return None
        if self.list is None:
            evaluate, put = self._compiled[0].on_after, self.reference.put
            assert evaluate is not None
            if len(self.reference.path) != 1:
                return lambda p: put(p, evaluate(p))
            source = "v = $evaluate(p)\nif type(p) is dict:\n    p[$name] = v\nelse:\n    p = $put(p, v)"
            names = {"evaluate": evaluate, "put": put, "name": self.reference.path[0]}
            return Inline(lambda p: put(p, evaluate(p)), source, **names)
        named = [(name, e.on_after) for name, e in self._named if e.on_after is not None]
        if not self.list.star:
            return lambda p: {name: of(p) for name, of in named}

        def extended(payload: Any) -> Any:
            p = payload if type(payload) is dict else object_of(payload)
            return {**p, **{name: of(p) for name, of in named}} if p is not None else None

        return extended

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        values = [F.expr(spark_text(text)) for text in self.texts]
        if self.list is not None:
            return Step(set={record.AFTER: self._struct(columns, values)})
        if not self.reference.path:
            fine = F.is_valid_utf8(columns.after.cast("string"))
            reject = F.when(~fine, F.lit(_NOT_TEXT)) if record.AFTER in columns_of(self.texts[0]) else None
            return Step(set={record.AFTER: values[0].cast("string")}, reject=reject)
        type_ = columns.schema[record.AFTER].dataType
        return Step(set={record.AFTER: _put(columns.after, type_, self.reference.path, values[0])})

    def _struct(self, columns: Columns, values: list[Column]) -> Column:
        from pyspark.sql import functions as F

        assert self.list is not None
        made = {item.name: value for item, value in zip(self.list.items, values, strict=True)}
        if self.list.star:
            there = struct_fields(columns.schema[record.AFTER].dataType) or {}
            made = {**{name: columns.after.getField(name) for name in there}, **made}
        struct = F.struct(*(value.alias(name) for name, value in made.items()))
        return F.when(columns.after.isNotNull(), struct) if self.list.star else struct


_NOT_TEXT = "the payload is not UTF-8: an expression would change its bytes"


def _put(value: Column, type_: DataType, path: tuple[str, ...], new: Column) -> Column:
    """The object with the field set. What is NULL on the way becomes an object, as with payloads that have no schema."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    first, *rest = path
    if not isinstance(type_, StructType):
        raise Stop(
            f"A field of {type_.simpleString()[:100]} can't be set",
            code="processor.unsupported",
            hint="name a field of an object, or use payloads without a schema",
        )
    parts = {f.name: value.getField(f.name) for f in type_.fields}
    if not rest:
        parts[first] = new
    elif first in parts:
        parts[first] = _put(parts[first], type_[first].dataType, tuple(rest), new)
    else:
        parts[first] = _put(F.lit(None), StructType(), tuple(rest), new)
    return F.struct(*(v.alias(name) for name, v in parts.items()))


def _said(e: ExpressionError) -> str:
    return f"{e.what}; {e.hint}" if e.hint else e.what


def _text(value: Any) -> str:
    if value is None:
        raise Rejected("the value is NULL, and metadata holds only text", code="sql.null")
    return value if isinstance(value, str) else str(value)
