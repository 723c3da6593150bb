"""`json.encode`: an object becomes raw JSON text, keys sorted, integers exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.plan.reference import Reference


class JsonEncodeSettings(Settings):
    field: str = Field(".Payload.After", description="What to encode: a payload, the key, or a field of an object.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        if Reference.parse(value).root in ("metadata", "operation", "position"):
            raise ValueError("must be a payload, the key, or a field of one")
        return value


class JsonEncode(Processor[JsonEncodeSettings]):
    def __init__(self, settings: JsonEncodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = Reference.parse(settings.field)
        self.uses = frozenset({self.reference.root})  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if shape is Shape.TYPED and self.reference == Reference("after", ()) else Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.RAW if self.reference == Reference("after", ()) else shape

    def apply(self, r: Record) -> Record:
        value = encode(self.reference.get(r))
        self.reference.set(r, value.decode() if self.reference.path and value is not None else value)
        return r

    def on_payload(self) -> Callable[[Any], Any] | None:
        return encode if self.reference == Reference("after", ()) else None

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        return Step(set={record.AFTER: F.to_json(columns.after, {"ignoreNullFields": "false"})})


_dumps = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def encode(value: Any) -> Any:
    """What is raw already passes. JSON has no NaN: what msgspec would make null is an error, as in Conduit."""
    if value is None or isinstance(value, bytes):
        return value
    text = _dumps(value)
    if b"null" in text:
        _refuse_nan(value)
    return text


def _refuse_nan(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _refuse_nan(item)
