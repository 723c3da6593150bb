"""`json.decode`: a raw payload becomes an object, exactly: integers of any size, no rounding. With `schema` it becomes typed.

What is no JSON object is a nack. Without a schema it runs in Python with its neighbours; with one, in Spark, where what does
not fit the schema is a nack too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from pydantic import Field, field_validator, model_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.payload import TypedPayload, loads
from penstock.plan.reference import Reference


class JsonDecodeSettings(Settings):
    field: str = Field(".Payload.After", description="What to decode: a payload, the key, or a field of an object.")
    schema_: str | None = Field(
        None,
        alias="schema",
        description="The fields as Spark writes them, e.g. `id STRING, n BIGINT`; the payload is typed then.",
    )

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        if Reference.parse(value).root in ("metadata", "operation", "position"):
            raise ValueError("must be a payload, the key, or a field of one")
        return value

    @field_validator("schema_")
    @classmethod
    def _parses(cls, value: str | None) -> str | None:
        if value is not None:
            from penstock.plan.schema import Schema

            Schema.parse(value)
        return value

    @model_validator(mode="after")
    def _schema_of_the_payload(self) -> JsonDecodeSettings:
        if self.schema_ is not None and Reference.parse(self.field) != Reference("after", ()):
            raise ValueError("must decode `.Payload.After` when a `schema` is given")
        return self


class JsonDecode(Processor[JsonDecodeSettings]):
    uses = frozenset({record.AFTER, record.BEFORE, record.KEY})

    def __init__(self, settings: JsonDecodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field)
        self.uses = frozenset({self.reference.root})  # type: ignore[misc]
        self.typed: TypedPayload | None = TypedPayload(settings.schema_) if settings.schema_ is not None else None

    def where(self, shape: Shape) -> Where:
        if self.typed is not None:
            if shape is Shape.TYPED:
                raise Unsuitable("the payload is typed already", "decode it once, with the schema")
            return Where.PYTHON
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "decode the whole payload first")
        if shape is Shape.TYPED and self.reference.root == record.AFTER:
            raise Unsuitable("the payload is typed already", "leave this processor out")
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        if self.reference != Reference("after", ()):
            return shape
        return Shape.TYPED if self.typed is not None else Shape.OPEN

    def apply(self, r: Record) -> Record:
        if self.typed is not None:
            r.after = _decode_typed(self.typed, r.after)
        else:
            self.reference.set(r, decode(self.reference.get(r)))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.typed is not None:
            return partial(_decode_typed, self.typed)
        return decode if self.reference == Reference("after", ()) else None


def _decode_typed(typed: TypedPayload, value: Any) -> Any:
    if value is None:
        return None
    return typed.decoder.from_value(value) if isinstance(value, dict) else typed.decoder.from_json(value)


def decode(value: Any) -> Any:
    """Input that is structured already passes; nothing and `null` are no payload; text stays raw, as in Conduit."""
    if value is None or isinstance(value, dict):
        return value
    if not value and isinstance(value, bytes | str):
        return None
    try:
        found = loads(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise Rejected(f"the payload is not JSON: {e}", code="json.invalid") from e
    if type(found) is dict or found is None:
        return found
    if isinstance(found, str):
        return found.encode()
    raise Rejected(f"the payload is a JSON {type(found).__name__}, not an object", code="json.not-an-object")
