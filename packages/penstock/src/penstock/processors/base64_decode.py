"""`base64.decode`: base64 becomes what was encoded: raw data in a payload or the key, text in a field.

The alphabet is the standard one, with padding; line ends inside are skipped, anything else is a nack. `field` is a payload,
the key, a field of one, or a key of the metadata. Nothing stays nothing; what is neither text nor raw is a nack. Bytes that are
not UTF-8 stay as they are in a payload; in a field they are kept as Python's `surrogateescape` does. It runs in Python, also
on typed payloads, which have no schema behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.unwrap import from_base64, reference


class Base64DecodeSettings(Settings):
    field: str = Field(description="What to decode: a payload, the key, a field of one, or a key of the metadata.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        reference(value, metadata=True)
        return value


class Base64Decode(Processor[Base64DecodeSettings]):
    example: ClassVar[Example] = Example(
        settings={"field": ".Payload.After.name"},
        given={"after": {"name": "aGVsbG8="}},
        gives={"after": {"name": "hello"}},
    )

    def __init__(self, settings: Base64DecodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field, metadata=True)
        root = self.reference.root
        self.uses = frozenset({root, record.NAMESPACE} if root == record.METADATA else {root})  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if self.reference.root == record.AFTER and self.reference.path and shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        if self.reference.root == record.AFTER and not self.reference.path and shape is Shape.TYPED:
            raise Unsuitable("the payload is typed, and only what is raw is decoded", "name a field of it")
        return Where.PYTHON

    def apply(self, r: Record) -> Record:
        if self.reference.path:
            at, name = self.reference.holder(r), self.reference.path[-1]
            if (value := at.get(name)) is not None:
                at[name] = decode(value).decode(errors="surrogateescape")
        elif (payload := getattr(r, self.reference.root)) is not None:
            setattr(r, self.reference.root, decode(payload))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER:
            return None
        name, inside = (self.reference.path or ("",))[-1], self.reference.inside
        if not self.reference.path:
            return lambda payload: decode(payload) if payload is not None else None

        def in_field(payload: Any) -> Any:
            payload = {} if payload is None else payload
            at = inside(payload)
            if (value := at.get(name)) is not None:
                at[name] = decode(value).decode(errors="surrogateescape")
            return payload

        return in_field


def decode(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    elif not isinstance(value, bytes):
        raise Rejected(f"it is {type(value).__name__}, and only text is decoded", code="base64.invalid")
    return from_base64(value)
