"""What a batch writes besides its records: dead letters, and the counts of a Python stage. One JSON line each.

Made in Spark tasks (by `python/`, and by Spark SQL in `batch/process.py`), read by the engine in
`batch/deadletter.py`. Payloads keep their bytes: text where they are UTF-8, base64 where not, `value` where structured.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from penstock.plan.payload import odd
from penstock_sdk.record import COLLECTION, Record

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
    warned: dict[str, int] = {}  # by processor; msgspec copies it

    @property
    def balanced(self) -> bool:
        return self.read + self.produced == self.filtered + self.delivered + self.dead

    def __add__(self, other: Count) -> Count:
        return Count(
            self.read + other.read,
            self.produced + other.produced,
            self.filtered + other.filtered,
            self.delivered + other.delivered,
            self.dead + other.dead,
            added(self.warned, other.warned),
        )


def added(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in (*a, *(n for n in b if n not in a))}


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=odd).encode
decoded = msgspec.json.Decoder(float_hook=Decimal).decode  # a float would lose digits of a decimal
decode_dead = msgspec.json.Decoder(Dead, float_hook=Decimal).decode
decode_count = msgspec.json.Decoder(Count).decode


def line(value: Dead | Count) -> bytes:
    return _encode(value)


def encode(value: Any) -> bytes:
    """JSON of what a record holds: with all digits, and with the words that Spark has for what is no JSON."""
    text = _encode(value)
    odd = b"null" in text or b"NaN" in text or b"Infinity" in text
    return _encode(_in_words(value)) if odd else text


def copied(value: Any) -> Any:
    """As it is now, as JSON."""
    return decoded(encode(value))


def _in_words(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal) and not value.is_finite():
        return str(value)
    if isinstance(value, dict):
        return {k: _in_words(v) for k, v in value.items()}
    return [_in_words(v) for v in value] if isinstance(value, list | tuple) else value


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
    if packed.get("text") is not None:
        return packed["text"].encode()
    return base64.b64decode(packed["base64"]) if packed.get("base64") is not None else packed.get("value")


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
        found["metadata"] = {k: v for k, v in r._metadata.items() if k != COLLECTION}
    return found


def dead(r: Record, node: str, error: object, code: object, given: dict[str, Any] | None) -> Dead:
    """Never raises, whatever user code has left in the record, its error or its reason."""
    text = _utf8(error if isinstance(error, str) else describe(error))
    return Dead(r.seq, r.part, node, _utf8(str(code)), text[:ERROR_CHARACTERS], now(), given, _form_now(r))


def now() -> int:
    return time.time_ns() // 1_000_000


def _form_now(r: Record) -> dict[str, Any]:
    """A copy: what is shared with other parts of the record may be changed after this."""
    try:
        found = form(r)
    except Exception as e:  # user code has taken the record apart
        return {"repr": describe(e)}
    try:
        copy: dict[str, Any] = copied(found)
    except Exception:  # or has put something into it that is not data
        try:
            return {"repr": _utf8(repr(found)[: 100 * ERROR_CHARACTERS])}
        except Exception as e:
            return {"repr": describe(e)}
    return copy


def _utf8(text: str) -> str:
    return text.encode(errors="replace").decode()


def describe(error: object) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an exception that can't even say what it is
        return type(error).__name__
