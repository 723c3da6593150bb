"""`json.encode`: a value becomes JSON text, keys sorted, integers exact; a whole payload becomes raw.

The text is Conduit's, byte for byte: `<`, `>`, `&` and the line separators U+2028 and U+2029 are escaped, bytes are base64
text, times are RFC 3339, and a double that is a whole number has no fraction. So a payload that is raw already becomes the
JSON text of its base64. Nothing stays nothing. NaN and infinities are nacks: JSON has none.

It runs in Python with its neighbours; on typed payloads in Spark, whose JSON has the same values but not the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.native.fitness import unfit_for_json
from penstock.plan.opencdc import INLINE, INLINE_NAMES
from penstock.plan.opencdc import dumps as encode
from penstock.plan.reference import Reference
from penstock.plan.unwrap import reference

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JsonEncodeSettings(Settings):
    field: str = Field(".Payload.After", description="What to encode: a payload, the key, or a field of an object.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        reference(value)
        return value


class JsonEncode(Processor[JsonEncodeSettings]):
    example: ClassVar[Example] = Example(
        settings={"field": ".Payload.After"},
        given={"after": {"id": 7, "a": ["<b>", 1.0]}},
        gives={"after": b'{"a":["\\u003cb\\u003e",1],"id":7}'},
    )

    def __init__(self, settings: JsonEncodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field)
        self.uses = frozenset({self.reference.root})  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.SPARK if shape is Shape.TYPED and self.reference == Reference("after", ()) else Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.RAW if self.reference == Reference("after", ()) else shape

    def apply(self, r: Record) -> Record:
        if self.reference.path:
            at, name = self.reference.holder(r), self.reference.path[-1]
            if (value := at.get(name)) is not None:
                at[name] = encode(value).decode()
        else:
            setattr(r, self.reference.root, encode(getattr(r, self.reference.root)))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        return (
            Inline(encode, INLINE, **INLINE_NAMES, encode=encode) if self.reference == Reference("after", ()) else None
        )

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        fields: StructType = columns.schema[record.AFTER].dataType  # type: ignore[assignment]
        unfit = [F.when(bad, F.lit(why)) for bad, why in unfit_for_json(fields, columns.after)]
        text = F.to_json(columns.after, record.JSON_OPTIONS)
        return Step(set={record.AFTER: text}, reject=F.coalesce(*unfit) if unfit else None)
