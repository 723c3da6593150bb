"""Records that the kit writes, and how it knows them again. A destination may keep them in any form, so each carries a text that occurs
nowhere else: what holds the text, or its base64, is the record."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from typing import Any

from penstock_sdk.record import Payload, Record

Expected = Record | bytes | str | dict[str, Any]  # a record, a payload, or a text that is in it
COLLECTION = "conformance"


def token() -> str:
    return f"kit{secrets.token_hex(8)}"


def position(n: int) -> bytes:
    return b"kit-%06d" % n


def structured(text: str) -> dict[str, Any]:
    return {"text": text, "number": 7, "half": 0.5, "yes": True, "none": None, "list": [1, "ä€"], "inner": {"x": "y"}}


def creates(count: int) -> tuple[list[Record], list[str]]:
    """Records, and the text that each is known by."""
    texts = [token() for _ in range(count)]
    return [made(n, "create", text, structured(text)) for n, text in enumerate(texts)], texts


def made(n: int, operation: str, key: str, after: Payload, before: Payload = None) -> Record:
    return Record(
        after,
        before=before,
        key={"id": key},
        position=position(n),
        operation=operation,
        namespace=COLLECTION,
        metadata={"kit": "conformance"},
    )


def text_of(item: Expected) -> str:
    """Everything that is in it, as text."""
    if isinstance(item, Record):
        parts: Sequence[Any] = (item.operation, item.key, item.before, item.after, item.metadata)
    else:
        parts = (item,)
    return "\n".join(map(_text, parts))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=lambda v: _text(v) if isinstance(v, bytes) else str(v))


def holds(text: str, looked_for: str) -> bool:
    return looked_for in text or base64.b64encode(looked_for.encode()).decode() in text


def matches(record: Record, expected: Expected) -> bool:
    if isinstance(expected, Record):
        return content(record) == content(expected)
    if isinstance(expected, str):
        return holds(text_of(record), expected)
    return bool(record.after == expected)


def content(record: Record) -> tuple[Any, ...]:
    return record.operation, record.key, record.before, record.after


def payload(record: Record) -> tuple[Any, ...]:
    """What stays the same after a resume: some connectors count keys from each start."""
    return record.position, record.before, record.after
