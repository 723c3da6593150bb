"""`sql`: sets a field to the value of a SQL expression over the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Rejected, Shape, Step, Unsuitable, Where
from penstock.plan.reference import Reference
from penstock.plan.sql import ExpressionError, columns_of, compile_expression, fields_of
from penstock.plan.sql.spark import looks_inside, spark_text


class SqlSettings(Settings):
    expression: str = Field(min_length=1, description="SQL over the record, e.g. `after.price * after.amount`.")
    field: str = Field(description="The field that gets its value, e.g. `.Payload.After.total`.")

    @field_validator("expression")
    @classmethod
    def _parses(cls, value: str) -> str:
        try:
            columns_of(value)
        except ExpressionError as e:
            raise ValueError(f"must be a SQL expression: {e.what}") from e
        return value

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        if Reference.parse(value).root not in ("after", "metadata"):
            raise ValueError("must be `.Payload.After`, a field of it, or a key of the metadata")
        if Reference.parse(value).root == "metadata" and len(Reference.parse(value).path) != 1:
            raise ValueError("must name one key of the metadata")
        return value


class Sql(Processor[SqlSettings]):
    def __init__(self, settings: SqlSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field)
        self.uses = columns_of(settings.expression) | {self.reference.root}  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        if shape is Shape.RAW and looks_inside(self.settings.expression, "after"):
            raise Unsuitable(
                "the expression names a field of the payload, which is raw here", "put json.decode before it"
            )
        if shape is not Shape.OPEN and self.reference.root == record.AFTER:
            return Where.SPARK
        if self.reference == Reference("after", ()):
            raise Unsuitable("the whole payload can't be set to one value", "name a field, e.g. .Payload.After.total")
        try:
            compile_expression(self.settings.expression)
        except ExpressionError as e:
            raise Unsuitable(f"the expression can't be used: {e.what}", e.hint) from e
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.RAW if self.replaces() else shape

    def fields(self) -> frozenset[str] | None:
        return fields_of(self.settings.expression, record.AFTER)

    def replaces(self) -> bool:
        return self.reference == Reference("after", ())

    def apply(self, r: Record) -> Record:
        value = self._compiled()(r)
        self.reference.set(r, _text(value) if self.reference.root == record.METADATA else value)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER or columns_of(self.settings.expression) - {record.AFTER}:
            return None
        evaluate, put = compile_expression(self.settings.expression).on_after, self.reference.put
        assert evaluate is not None
        return lambda p: put(p, evaluate(p))

    def _compiled(self) -> Callable[[Record], Any]:
        return compile_expression(self.settings.expression).on_record

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        value = F.expr(spark_text(self.settings.expression))
        if not self.reference.path:
            return Step(set={record.AFTER: value.cast("string")})
        name = ".".join(f"`{part}`" for part in self.reference.path)
        return Step(set={record.AFTER: columns.after.withField(name, value)})


def _text(value: Any) -> str:
    if value is None:
        raise Rejected("the value is NULL, and metadata holds only text", code="sql.null")
    return value if isinstance(value, str) else str(value)
