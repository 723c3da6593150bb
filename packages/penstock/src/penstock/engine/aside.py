"""What a batch writes besides its records: dead letters, and the counts of a Python stage. One JSON line each.

Made in Spark tasks (by `python_stage.py`, and by Spark SQL in `batch/process.py`), read by the engine in
`batch/deadletter.py`. Payloads keep their bytes: text where they are UTF-8, base64 where not, `value` where structured.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec

from penstock_sdk.record import Record

DEAD = "dead"  # values of the outcome column
COUNT = "count"
DELIVERED = "delivered"

ERROR_CHARACTERS = 1000


class Dead(msgspec.Struct, omit_defaults=True):
    """A nack as a task sees it."""

    seq: int
    part: int
    node: str  # the processor, or the destination
    code: str
    error: str
    at: int  # milliseconds since 1970
    given: dict[str, Any] | None = None  # the record as its source gave it
    form: dict[str, Any] | None = None  # the record as it was when it failed


class Count(msgspec.Struct):
    """What one Arrow batch of a Python stage came to: read + produced = delivered + filtered + dead."""

    read: int
    produced: int
    filtered: int
    delivered: int
    dead: int


_encode = msgspec.json.Encoder().encode
decode_dead = msgspec.json.Decoder(Dead).decode
decode_count = msgspec.json.Decoder(Count).decode


def line(value: Dead | Count) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # user code has put something into the record that is not data
        assert isinstance(value, Dead)
        return _encode(msgspec.structs.replace(value, form={"repr": repr(value.form)[: 100 * ERROR_CHARACTERS]}))


def payload(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return {"value": value}


def unpack(packed: Any) -> Any:
    """The inverse of `payload`."""
    if packed is None:
        return None
    if "text" in packed:
        return packed["text"].encode()
    return base64.b64decode(packed["base64"]) if "base64" in packed else packed.get("value")


def form(r: Record) -> dict[str, Any]:
    """A record as JSON. Position and metadata are left out unless they are there already: the engine can find them."""
    found: dict[str, Any] = {"after": payload(r.after)}
    for name in ("before", "key"):
        if (value := getattr(r, name)) is not None:
            found[name] = payload(value)
    if r.operation != "create":
        found["operation"] = r.operation
    if r.namespace is not None:
        found["namespace"] = r.namespace
    if r._metadata:
        found["metadata"] = r._metadata
    return found


def dead(r: Record, node: str, error: BaseException | str, code: str, given: dict[str, Any] | None) -> Dead:
    text = error if isinstance(error, str) else describe(error)
    now = time.time_ns() // 1_000_000
    return Dead(r.seq, r.part, node, code, text[:ERROR_CHARACTERS], now, given, form(r))


def describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an exception that can't even say what it is
        return type(error).__name__
