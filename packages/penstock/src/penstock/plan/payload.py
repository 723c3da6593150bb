"""JSON text to payloads and back, exactly. Used by whatever decodes or encodes JSON, in Spark's tasks. Pure.

Integers keep all their digits. A number with a fraction is a double where a double is what was written, else a decimal:
0.1 is a double, 0.1234567890123456789 is not. One that no double comes near (1e400) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import Rejected
from penstock.plan.moment import Moment, rfc3339

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.plan.typed import TypedDecoder

_FRACTION = r"[0-9](?:\.[0-9]|[eE])"
_LONG = "[0-9.]{17}|[0-9][eE]-[0-9]{3}"  # up to 15 digits a double holds them all, unless it is one of the smallest


def number(text: str) -> float | Decimal:
    """A number that has a fraction or an exponent. Raises `ValueError`."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("Number out of range")
    if len(text) < 17 and abs(value) > 1e-300:
        return value
    try:
        exact = Decimal(text)
    except ArithmeticError as e:
        raise ValueError("Number out of range") from e
    return value if Decimal(repr(value)) == exact else exact


class _Loads:
    """Decodes one text. `expect` is told of the texts to come: the hook costs 0.4 µs for every number with a fraction, a look at
    a whole column 0.3 µs a line. So the column is looked at only where its first lines have such numbers; either way the values
    are the same. One per process; tasks have one thread."""

    plain = staticmethod(msgspec.json.Decoder().decode)
    exact = staticmethod(msgspec.json.Decoder(float_hook=number).decode)

    def __init__(self) -> None:
        self.now = self.exact

    def expect(self, texts: pa.Array) -> None:
        import pyarrow.compute as pc

        few = pc.any(pc.match_substring_regex(texts.slice(0, 64), _FRACTION)).as_py() is not True
        long = None if few else pc.any(pc.match_substring_regex(texts, _LONG)).as_py()
        self.now = self.plain if long is False else self.exact


state = _Loads()
expect = state.expect


def loads(text: bytes | str) -> Any:
    """Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`."""
    return state.now(text)


def odd(value: Any) -> Any:
    """What msgspec has no form for."""
    if isinstance(value, Moment):
        return rfc3339(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


# Makes `null` of NaN, and text of keys that are none: what may have them is looked at with `refuse_inexact`.
to_json = msgspec.json.Encoder(order="sorted", decimal_format="number", enc_hook=odd).encode


def refuse_inexact(value: Any, path: tuple[Any, ...] = (), *, odd_keys: bool = False) -> None:
    """Raises `Rejected` where `to_json` would write something else: for NaN and infinities, and with `odd_keys` for keys
    that are not text."""
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise Rejected(f"the field {'.'.join(map(str, path))!r} is {value}, and JSON has no such number")
    elif isinstance(value, dict):
        for key, inner in value.items():
            if odd_keys and not isinstance(key, str):
                raise Rejected(
                    f"the field {'.'.join(map(str, path))!r} is a map whose keys are not text: JSON has none"
                )
            refuse_inexact(inner, (*path, key), odd_keys=odd_keys)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            refuse_inexact(inner, (*path, i), odd_keys=odd_keys)


class TypedPayload:
    """A declared schema, and what fills it in. Sent to Spark's tasks as its text; equal texts are equal."""

    def __init__(self, declared: str) -> None:
        self.declared = declared

    @property
    def ddl(self) -> str:
        from penstock.plan.schema import Schema

        return f"STRUCT<{Schema.parse(self.declared).ddl}>"

    @cached_property
    def decoder(self) -> TypedDecoder:
        from penstock.plan.schema import Schema
        from penstock.plan.typed import TypedDecoder

        return TypedDecoder(Schema.parse(self.declared))

    def column(self, values: Sequence[Any]) -> pa.StructArray:
        return self.decoder.column(values)

    def __reduce__(self) -> tuple[type[TypedPayload], tuple[str]]:
        return TypedPayload, (self.declared,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedPayload) and other.declared == self.declared

    def __hash__(self) -> int:
        return hash(self.declared)
