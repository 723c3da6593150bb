"""JSON text to payloads, exactly. Used by whatever decodes JSON, in Spark's tasks. Pure.

Integers keep all their digits. A number with a fraction is a double where a double is what was written, else a decimal:
0.1 is a double, 0.1234567890123456789 is not. One that no double comes near (1e400) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.plan.typed import TypedDecoder

_LONG = "[0-9.]{17}|[0-9][eE]-[0-9]{3}"  # up to 15 digits a double holds them all, unless it is one of the smallest


def _number(text: str) -> float | Decimal:
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
    """Decodes one text. `expect` is told of the texts to come: a hook for every number would cost 0.4 µs each, a look at a
    whole column costs 0.1 µs a line. Without it every number is looked at. One per process; tasks have one thread."""

    plain = staticmethod(msgspec.json.Decoder().decode)
    exact = staticmethod(msgspec.json.Decoder(float_hook=_number).decode)

    def __init__(self) -> None:
        self.now = self.exact

    def expect(self, texts: pa.Array) -> None:
        import pyarrow.compute as pc

        long = pc.any(pc.match_substring_regex(texts, _LONG)).as_py()
        self.now = self.plain if long is False else self.exact


_loads = _Loads()
expect = _loads.expect


def loads(text: bytes | str) -> Any:
    """Raises `msgspec.DecodeError`, `ValueError` or `RecursionError`."""
    return _loads.now(text)


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
