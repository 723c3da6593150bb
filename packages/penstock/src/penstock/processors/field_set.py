"""`field.set`: sets a field to a text. What is missing on the way to it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, field_validator, model_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.plan.reference import Reference

OPERATIONS = ("create", "update", "delete", "snapshot")


class FieldSetSettings(Settings):
    field: str = Field(description="The field, e.g. `.Payload.After.region`.")
    value: str = Field(min_length=1, description="The text to set.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        reference = Reference.parse(value)
        if reference.root == "position":
            raise ValueError("must not be the position: it is the source's own")
        if reference.root == "metadata" and len(reference.path) != 1:
            raise ValueError("must name one key of the metadata")
        if reference.root == "operation" and reference.path:
            raise ValueError("must be `.Operation`: it has no fields")
        return value

    @field_validator("value")
    @classmethod
    def _plain(cls, value: str) -> str:
        if "{{" in value:
            raise ValueError("must be plain text: templates are not supported yet, use `sql` to compute a value")
        return value

    @model_validator(mode="after")
    def _an_operation(self) -> FieldSetSettings:
        if Reference.parse(self.field).root == "operation" and self.value not in OPERATIONS:
            raise ValueError(f"must set the operation to one of {', '.join(OPERATIONS)}")
        return self


class FieldSet(Processor[FieldSetSettings]):
    def __init__(self, settings: FieldSetSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field)
        self.uses = frozenset({self.reference.root})  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        root, path = self.reference.root, self.reference.path
        if root != record.AFTER:
            return Where.PYTHON
        if shape is Shape.RAW and path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if shape is Shape.TYPED and path else Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.RAW if self.reference == Reference("after", ()) else shape

    def fields(self) -> frozenset[str]:
        return frozenset()

    def apply(self, r: Record) -> Record:
        raw = self.reference.root in (record.AFTER, record.BEFORE, record.KEY) and not self.reference.path
        self.reference.set(r, self.settings.value.encode() if raw else self.settings.value)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER:
            return None
        value, put = self.settings.value, self.reference.put
        if not self.reference.path:
            raw = value.encode()
            return lambda _: raw
        if len(self.reference.path) > 1:
            return lambda p: put(p, value)
        [name] = self.reference.path

        def plain(p: Any) -> Any:
            if type(p) is dict:
                p[name] = value
                return p
            return put(p, value)

        return plain

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        name = ".".join(f"`{part}`" for part in self.reference.path)
        return Step(set={record.AFTER: columns.after.withField(name, F.lit(self.settings.value))})
