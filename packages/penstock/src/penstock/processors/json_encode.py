"""`json.encode`: an object becomes raw JSON text, keys sorted, integers exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Shape, Step, Where
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
    """What is raw already passes."""
    return value if value is None or type(value) is bytes else _dumps(value)
