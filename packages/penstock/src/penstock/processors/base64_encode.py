"""`base64.encode`: a text, raw data, a number or a boolean becomes base64 text.

The alphabet is the standard one, with padding. `field` is a payload or the key (raw stays raw), a field of one (which becomes
text), or a key of the metadata. A number is encoded as Go prints a double: 5, 1.5, 1e+06. Nothing stays nothing; objects,
lists and times are nacks. It runs in Python, also on typed payloads, which have no schema behind it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.gotext import printed
from penstock.plan.unwrap import reference


class Base64EncodeSettings(Settings):
    field: str = Field(description="What to encode: a payload, the key, a field of one, or a key of the metadata.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        reference(value, metadata=True)
        return value


class Base64Encode(Processor[Base64EncodeSettings]):
    example: ClassVar[Example] = Example(
        settings={"field": ".Payload.After.name"},
        given={"after": {"name": "hello"}},
        gives={"after": {"name": "aGVsbG8="}},
    )

    def __init__(self, settings: Base64EncodeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field, metadata=True)
        root = self.reference.root
        self.uses = frozenset({root, record.NAMESPACE} if root == record.METADATA else {root})  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if self.reference.root == record.AFTER and self.reference.path and shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        if self.reference.root == record.AFTER and not self.reference.path and shape is Shape.TYPED:
            raise Unsuitable("the payload is typed, and only what is raw is encoded", "name a field of it")
        return Where.PYTHON

    def apply(self, r: Record) -> Record:
        if self.reference.path:
            at, name = self.reference.holder(r), self.reference.path[-1]
            if (value := at.get(name)) is not None:
                at[name] = encode(value).decode()
        elif (payload := getattr(r, self.reference.root)) is not None:
            setattr(r, self.reference.root, encode(payload))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if self.reference.root != record.AFTER:
            return None
        name, inside = (self.reference.path or ("",))[-1], self.reference.inside
        if not self.reference.path:
            return lambda payload: encode(payload) if payload is not None else None

        def in_field(payload: Any) -> Any:
            payload = {} if payload is None else payload
            at = inside(payload)
            if (value := at.get(name)) is not None:
                at[name] = encode(value).decode()
            return payload

        return in_field


def encode(value: Any) -> bytes:
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    elif isinstance(value, int | float | Decimal):  # booleans too
        value = printed(value).encode()
    elif not isinstance(value, bytes):
        raise Rejected(f"it is {type(value).__name__}, which has no base64", code="base64.invalid")
    return base64.b64encode(value)
