"""`json.decode`: a raw payload becomes an object, exactly: integers of any size, no rounding. With `schema` it becomes typed.

`field` may also be the key, the other payload, or a field of an object that holds JSON as text. What is structured already
passes, nothing and `null` become nothing; a whole payload that is a JSON text becomes raw, one that is a list, a number or
a boolean is a nack. What is no JSON is a nack. A few things that strict JSON forbids are taken, as in Conduit: numbers such
as `01`, control characters and bytes that are not UTF-8 inside texts, halves of surrogate pairs. The last of two equal
keys wins.

Without a schema it runs in Python with its neighbours. With one it is strict, and what does not fit the schema is a nack too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import msgspec
from pydantic import Field, field_validator, model_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Inline, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.opencdc import read
from penstock.plan.payload import TypedPayload, loads, state
from penstock.plan.reference import Reference
from penstock.plan.unwrap import reference


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
        reference(value)
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
        if self.schema_ is not None and reference(self.field) != Reference("after", ()):
            raise ValueError("must decode `.Payload.After` when a `schema` is given")
        return self


class JsonDecode(Processor[JsonDecodeSettings]):
    uses = frozenset({record.AFTER, record.BEFORE, record.KEY})
    example: ClassVar[Example] = Example(
        settings={"field": ".Payload.After"},
        given={"after": b'{"id": 9007199254740993, "tags": ["a"]}'},
        gives={"after": {"id": 9007199254740993, "tags": ["a"]}},
    )

    def __init__(self, settings: JsonDecodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field)
        self.uses = frozenset({self.reference.root})  # type: ignore[misc]
        self.typed: TypedPayload | None = TypedPayload(settings.schema_) if settings.schema_ is not None else None

    def where(self, shape: Shape) -> Where:
        if self.typed is not None:
            if shape is Shape.TYPED:
                raise Unsuitable("the payload is typed already", "decode it once, with the schema")
            return Where.PYTHON
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "decode the whole payload first")
        if shape is Shape.TYPED and self.reference == Reference("after", ()):
            raise Unsuitable("the payload is typed already", "leave this processor out")
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        if self.reference != Reference("after", ()):
            return shape
        return Shape.TYPED if self.typed is not None else Shape.OPEN

    def apply(self, r: Record) -> Record:
        if self.typed is not None:
            r.after = _decode_typed(self.typed, r.after)
        elif self.reference.path:
            at, name = self.reference.holder(r), self.reference.path[-1]
            if (value := at.get(name)) is not None:
                at[name] = decode_field(value)
        else:
            setattr(r, self.reference.root, decode(getattr(r, self.reference.root)))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.typed is not None:
            return partial(_decode_typed, self.typed)
        return Inline(decode, _INLINE, decode=decode, state=state) if self.reference == Reference("after", ()) else None


def _decode_typed(typed: TypedPayload, value: Any) -> Any:
    if value is None:
        return None
    return typed.decoder.from_value(value) if isinstance(value, dict) else typed.decoder.from_json(value)


_INLINE = """\
if type(p) is bytes:
    try:
        x = $state.now(p)
    except Exception:
        x = None
    p = x if type(x) is dict else $decode(p)
else:
    p = $decode(p)"""


def decode(value: Any) -> Any:
    """A whole payload. Input that is structured already passes; nothing and `null` are no payload; text stays raw."""
    if type(value) is bytes and value:
        try:
            found = loads(value)
        except (msgspec.DecodeError, ValueError, RecursionError) as e:
            found = _as_conduit(value, e)
        if type(found) is dict:
            return found
    elif value is None or isinstance(value, dict):
        return value
    else:
        found = decode_field(value)
    if found is None or type(found) is dict:
        return found
    if isinstance(found, str):
        return found.encode(errors="surrogateescape")
    raise Rejected(f"the payload is a JSON {type(found).__name__}, not an object", code="json.not-an-object")


def decode_field(value: Any) -> Any:
    """JSON of any kind. An object passes, nothing is `null`."""
    if not isinstance(value, bytes | str):
        if isinstance(value, dict):
            return value
        raise Rejected(f"it is {type(value).__name__}, and only text is decoded", code="json.invalid")
    if not value:
        return None
    try:
        return loads(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        return _as_conduit(value, e)


def _as_conduit(value: bytes | str, strict: Exception) -> Any:
    """What is no strict JSON, but JSON to Conduit."""
    try:
        return read(value)
    except ValueError:
        raise Rejected(f"the payload is not JSON: {strict}", code="json.invalid") from strict
