"""`field.convert`: changes the type of a field, by way of its text. Nothing is rounded or cut off on the way: what can't be read is a nack.

- To `string`: a number in full (`1e21` is `1000000000000000000000`), `true` and `false`, bytes as the text they are, null and a field
  that is missing as `<nil>`, objects and lists as Go prints them (`map[a:1 b:2]`, `[1 2]`).
- To `int`: digits with or without a sign, in 64 bits. `1.5`, `1.0`, `1e3` and `0x10` as texts are nacks; the number 5.0 is 5. true is
  1, false is 0.
- To `float`: as Go reads it, with `inf`, `nan`, `1_000` and `0x1p4`; out of a double's range is a nack.
- To `bool`: `1 t T TRUE true True` and `0 f F FALSE false False`.
- To `time`: an integer is nanoseconds since 1970, a text is RFC 3339. Nanoseconds are kept on open payloads; a typed one holds
  microseconds, and what has more digits is a nack there.
- Only fields of the payloads and of the key can be converted. A whole payload can only become a `string`, which is raw.

It runs in Python on open payloads. On typed ones a field of `.Payload.After` is converted as a column in Spark, with the same
result; types whose text Spark writes otherwise (doubles to `string`, and objects and lists) stop the pipeline with a word on what
to use instead. Fields of the key or of `before` are converted in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Rejected, Shape, Step, Unsuitable, Where
from penstock.plan.gotext import CONVERT, printed, trim
from penstock.plan.reference import PAYLOAD, Reference


class FieldConvertSettings(Settings):
    field: Annotated[str, BeforeValidator(trim)] = Field(description="The field, e.g. `.Payload.After.amount`.")
    type: Annotated[Literal["string", "int", "float", "bool", "time"], BeforeValidator(trim)] = Field(
        description="The type it gets: `string`, `int`, `float`, `bool` or `time`."
    )

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        root = Reference.parse(value, whole=bool(value)).root
        if root not in (record.AFTER, record.BEFORE, record.KEY, PAYLOAD):
            raise ValueError("must be a field of .Payload or .Key: nothing else can be converted")
        if value[0] in ".$" and not value.startswith((".Payload", ".Key")):
            raise ValueError("must begin with .Payload or .Key, spelled like that")
        return value


class FieldConvert(Processor[FieldConvertSettings]):
    reshapes = True
    example: ClassVar[Example | None] = Example(
        settings={"field": ".Payload.After.amount", "type": "int"},
        given={"after": {"amount": "42"}},
        gives={"after": {"amount": 42}},
    )

    def __init__(self, settings: FieldConvertSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field, whole=True)
        root = self.reference.root
        self.uses = frozenset({record.AFTER, record.BEFORE} if root == PAYLOAD else {root})  # type: ignore[misc]
        self.convert = CONVERT[settings.type]

    def where(self, shape: Shape) -> Where:
        inside = self.reference.root == record.AFTER and self.reference.path
        if inside and shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if inside and shape is Shape.TYPED else Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        whole = self.reference == Reference("after", ())
        return Shape.RAW if whole and self.settings.type == "string" else shape

    def fields(self) -> frozenset[str] | None:
        if self.reference.root == PAYLOAD:
            return frozenset()
        if self.reference == Reference("after", ()):
            return None
        return frozenset(self.reference.path[:1] if self.reference.root == record.AFTER else ())

    def apply(self, r: Record) -> Record:
        if not self.reference.path:
            if self.reference.root == PAYLOAD or self.settings.type != "string":
                raise Rejected(f"{self.settings.field} can't be converted", hint="name a field of it")
            setattr(r, self.reference.root, _raw(getattr(r, self.reference.root)))
            return r
        fields, name = self.reference.holder(r), self.reference.path[-1]
        fields[name] = self.convert(fields.get(name))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER:
            return None
        if not self.reference.path:
            return _raw if self.settings.type == "string" else None
        convert, inside, name = self.convert, self.reference.inside, self.reference.path[-1]

        def change(p: Any) -> Any:
            if p is None:
                p = {}
            fields = inside(p)
            fields[name] = convert(fields.get(name))
            return p

        if len(self.reference.path) > 1:
            return change
        quick = "str(v) if type(v) is int else " if self.settings.type == "string" else ""
        source = (
            f"if type(p) is dict:\n    v = p.get($name)\n    p[$name] = {quick}$convert(v)\nelse:\n    p = $change(p)"
        )
        return Inline(change, source, name=name, convert=convert, change=change)

    def compile(self, columns: Columns) -> Step:
        from penstock.processors.columns.converted import converted
        from penstock.processors.columns.fields import Fields, nothing, on_payload

        def change(fields: Fields, name: str, bad: list[Any]) -> None:
            from pyspark.sql.types import NullType

            fields.put(name, converted(fields.get(name) or nothing(NullType()), self.settings.type, name, bad))

        return on_payload(columns, [(self.reference.path, change)])


def _raw(payload: Any) -> bytes:
    """A whole payload is printed as Go prints it: raw bytes are a list of numbers."""
    return printed(payload).encode(errors="surrogateescape")
