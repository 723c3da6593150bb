"""`field.set`: sets a field to a text. What is missing on the way to it is made.

- The value is plain text or a Go template (`{{ .Payload.After.first }} {{ .Payload.After.last }}`), evaluated for each record.
- The field becomes a text, whatever it was. Below a field that is missing or null an object is made; below a number, a text or a
  list the record is nacked.
- `.Payload.After`, `.Payload.Before` and `.Key` become raw payloads of the text.
- `.Operation` takes `create`, `update`, `delete`, `snapshot`, or their numbers 1 to 4; anything else is a nack.
- `.Metadata` takes one key; `.Payload` and `.Metadata` as a whole can't be set to a text, which is a nack. The position is the
  source's own and can't be set.

It runs in Python on open payloads. On typed ones a plain text is set as a column in Spark, and the schema is kept; a template, a
whole payload, and fields of the key or of `before` run in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Rejected, Shape, Step, Unsuitable, Where
from penstock.plan.gotext import atoi, trim
from penstock.plan.reference import PAYLOAD, RECORD, Reference
from penstock.plan.templated import checked, template

OPERATIONS = ("create", "update", "delete", "snapshot")  # number 1 to 4


class FieldSetSettings(Settings):
    field: Annotated[str, BeforeValidator(trim)] = Field(description="The field, e.g. `.Payload.After.region`.")
    value: Annotated[str, BeforeValidator(trim)] = Field(
        min_length=1, description="The text to set: plain, or a Go template."
    )

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        if not value:
            raise ValueError("must not be empty")
        Reference.parse(value, whole=True)
        if value == ".Position" or value.lower() == "position":
            raise ValueError("must not be the position: it is the source's own")
        return value

    @field_validator("value")
    @classmethod
    def _is_template(cls, value: str) -> str:
        return checked(value)


class FieldSet(Processor[FieldSetSettings]):
    example: ClassVar[Example | None] = Example(
        settings={"field": ".Payload.After.region", "value": "eu"},
        given={"after": {"id": 7}},
        gives={"after": {"id": 7, "region": "eu"}},
    )

    def __init__(self, settings: FieldSetSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field, whole=True)
        self.template = template(settings.value)
        root = self.reference.root
        own = {PAYLOAD: {record.AFTER, record.BEFORE}, RECORD: set()}.get(root, {root})
        self.uses = frozenset(own) | (self.template.columns if self.template else frozenset())  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.settings, self.processor_id)

    def where(self, shape: Shape) -> Where:
        root, path = self.reference.root, self.reference.path
        if root == record.AFTER and path and shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        columns = root == record.OPERATION or (root in (record.AFTER, record.METADATA) and path)
        return Where.SPARK if shape is Shape.TYPED and columns and not self.template else Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.RAW if self.reference == Reference("after", ()) else shape

    def fields(self) -> frozenset[str] | None:
        if self.template and record.AFTER in self.template.columns:
            return None
        below = self.reference.root == record.AFTER and len(self.reference.path) > 1
        return frozenset(self.reference.path[:1] if below else ())

    def apply(self, r: Record) -> Record:
        value = self.template.text(r) if self.template else self.settings.value
        root, path = self.reference.root, self.reference.path
        if path:
            self.reference.holder(r)[path[-1]] = value
        elif root in (record.AFTER, record.BEFORE, record.KEY):
            setattr(r, root, value.encode(errors="surrogateescape"))
        elif root == record.OPERATION:
            r.operation = operation(value)
        else:
            raise Rejected(f"{self.settings.field} can't be set to a text", hint="name one field, or one key of it")
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER or self.template:
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

        source = "if type(p) is dict:\n    p[$name] = $value\nelse:\n    p = $put(p, $value)"
        return Inline(plain, source, name=name, value=value, put=put)

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        from penstock.processors.columns.fields import Fields, Value, on_metadata, on_payload

        if self.reference.root == record.OPERATION:
            try:
                return Step(set={record.OPERATION: F.lit(operation(self.settings.value))})
            except Rejected as e:
                return Step(reject=F.lit(str(e)))

        def put(fields: Fields, name: str, _: list[Any]) -> None:
            fields.put(name, Value(F.lit(self.settings.value), StringType()))

        path = self.reference.path
        if self.reference.root == record.METADATA:
            return on_metadata(columns, [(path, put)], set(path))
        return on_payload(columns, [(path, put)])


def operation(text: str) -> str:
    """Its name, as Conduit reads it: `update`, `2` and `Operation(2)` are the same."""
    if text in OPERATIONS:
        return text
    try:
        return OPERATIONS[range(1, 5).index(atoi(text.removeprefix("Operation(").removesuffix(")")))]
    except ValueError:
        raise Rejected(f"the operation is none of {', '.join(OPERATIONS)}") from None
