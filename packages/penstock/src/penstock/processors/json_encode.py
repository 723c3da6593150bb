"""`json.encode`: an object becomes raw JSON text, keys sorted, integers exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.native.fitness import unfit_for_json
from penstock.plan.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        return encode if self.reference == Reference("after", ()) else None

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        fields: StructType = columns.schema[record.AFTER].dataType  # type: ignore[assignment]
        unfit = [F.when(bad, F.lit(why)) for bad, why in unfit_for_json(fields, columns.after)]
        text = F.to_json(columns.after, record.JSON_OPTIONS)
        return Step(set={record.AFTER: text}, reject=F.coalesce(*unfit) if unfit else None)


_dumps = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def encode(value: Any) -> Any:
    """What is raw already passes. JSON has no NaN: what msgspec would make null is an error, as in Conduit."""
    if value is None or isinstance(value, bytes):
        return value
    text = _dumps(value)
    if b"null" in text:
        _refuse_nan(value, ())
    return text


def _refuse_nan(value: Any, path: tuple[Any, ...]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the field {'.'.join(map(str, path))!r}: JSON has no {value}")
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in found:
        _refuse_nan(item, (*path, key))
