"""`unwrap.opencdc`: an OpenCDC record inside a record takes its place, all but the position.

Key and payloads of the inner record are objects, or texts with base64 of what is raw; its metadata replaces the metadata
that was there, and values that are no text are written as Go prints them: 5, 1e+06, true. Its operation is `create`,
`update`, `delete` or `snapshot`, or their number as text. The inner record is found in `field`: as a whole payload or key,
as raw JSON, or as JSON in a text; one without operation, metadata and payload is a nack. It runs in Python.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.gotext import printed, trim
from penstock.plan.unwrap import reference, structured, wrapped

OPERATIONS = ("create", "update", "delete", "snapshot")
_NUMBERED = re.compile(r"(?:Operation\()?\+?0*([1-4])\)?")


class UnwrapOpencdcSettings(Settings):
    field: str = Field(
        ".Payload.After",
        description="Where the OpenCDC record is: a payload, the key, a text in a field of one, or a key of the metadata.",
    )

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        value = trim(value) or ".Payload.After"
        reference(value, metadata=True)
        return value


class UnwrapOpencdc(Processor[UnwrapOpencdcSettings]):
    uses = frozenset(
        {record.AFTER, record.BEFORE, record.KEY, record.OPERATION, record.METADATA, record.NAMESPACE},
    )
    code = "unwrap.invalid"
    example: ClassVar[Example] = Example(
        settings={},
        given={
            "after": {
                "operation": "update",
                "metadata": {"opencdc.collection": "orders"},
                "key": "aWQtNw==",
                "payload": {"before": None, "after": {"id": 7}},
            }
        },
        gives={
            "operation": "update",
            "key": b"id-7",
            "after": {"id": 7},
            "metadata": {"opencdc.collection": "orders"},
        },
    )

    def __init__(self, settings: UnwrapOpencdcSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field, metadata=True)

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN

    def apply(self, r: Record) -> Record:
        inner = wrapped(self.reference, r, nested=False)
        operation = _operation(inner.get("operation"))
        metadata = _object(inner, "metadata")
        payload = _object(inner, "payload")
        key, before, after = structured(inner, "key"), structured(payload, "before"), structured(payload, "after")
        r.operation, r.key, r.before, r.after = operation, key, before, after
        r.metadata = {name: printed(value) for name, value in metadata.items()}
        return r


def _operation(value: Any) -> str:
    if isinstance(value, str):
        if value in OPERATIONS:
            return value
        if found := _NUMBERED.fullmatch(value):
            return OPERATIONS[int(found[1]) - 1]
    raise Rejected(f"its operation is none of {', '.join(OPERATIONS)}", code="unwrap.invalid")


def _object(inner: dict[str, Any], name: str) -> dict[str, Any]:
    value = inner.get(name)
    if not isinstance(value, dict):
        raise Rejected(f"it has no object {name!r}", code="unwrap.invalid")
    return value
