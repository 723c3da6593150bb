"""Values as text, as Go's fmt prints them with %v; and quoting (%q). Pure; runs in Spark's tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.values import (
    MISSING,
    Int,
    Operation,
    Position,
    Struct,
    as_bytes,
    as_text,
    items_of,
    map_of,
    moment,
)
from penstock.plan.moment import point

LONGEST = 16 * 1024 * 1024  # of any text that a template makes

_ESCAPES = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\"}


def bounded(text: str) -> str:
    if len(text) > LONGEST:
        raise Failure(f"the template makes more than {LONGEST} characters")
    return text


def digits_of(x: float) -> tuple[str, str, int]:
    """Sign, shortest digits, and the power of ten of the first one. `x` is finite."""
    sign = "-" if math.copysign(1, x) < 0 else ""
    mantissa, _, exponent = f"{abs(x)!r}".partition("e")
    before, _, after = mantissa.partition(".")
    power = int(exponent or 0) + len(before) - 1
    digits = before + after
    stripped = digits.lstrip("0")
    if not stripped:
        return sign, "0", 0
    power -= len(digits) - len(stripped)
    return sign, stripped.rstrip("0"), power


def float_text(x: float, *, high: int = 6, low: int = -4, width: int = 2) -> str:
    """With an exponent from 10^high and below 10^low, of at least `width` digits."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "+Inf" if x > 0 else "-Inf"
    sign, digits, power = digits_of(x)
    if low <= power < high:
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        whole, fraction = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
        return f"{sign}{whole}.{fraction}" if fraction else sign + whole
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):0{width}d}"


def time_text(v: date) -> str:
    at = moment(v)
    offset = zone_text(at.utcoffset() or timedelta())
    name = "UTC" if offset == "+0000" else offset
    fraction = point(at)
    return f"{at.year:04d}-{at:%m-%d %H:%M:%S}{fraction} {offset} {name}"


def zone_text(offset: timedelta, colon: str = "") -> str:
    minutes = int(offset.total_seconds() // 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}{colon}{abs(minutes) % 60:02d}"


def stringer(v: Any) -> str | None:
    """What its String method says, where it has one."""
    if isinstance(v, Operation):
        return v.name
    if isinstance(v, Position):
        return as_text(v) if v else "<nil>"
    return time_text(v) if isinstance(v, date) else None


def text(v: Any) -> str:
    """%v"""
    kind = type(v)
    if kind is str:
        return str(v)
    if kind is bool:
        return "true" if v else "false"
    if kind is int:
        return str(v)
    if kind is float:
        return float_text(v)
    return _other(v)


def _other(v: Any) -> str:
    own = stringer(v)
    if own is not None:
        return own
    if isinstance(v, str):
        return str(v)
    if isinstance(v, Int | int):
        return str(int(v))
    if isinstance(v, float | Decimal):
        return float_text(float(v))
    found = map_of(v)
    if found is not None:
        return bounded("map[" + " ".join(f"{k}:{text(x)}" for k, x in in_order(found)) + "]")
    if isinstance(v, Struct):
        return bounded("{" + " ".join(text(x) for x in v.fields.values()) + "}")
    items = items_of(v)
    if items is not None:
        return bounded("[" + " ".join(map(text, items)) + "]")
    if not v:
        return "<nil>"
    raise Failure(f"a value of the type {type(v).__name__} can't be printed")


def in_order(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """By the bytes of its keys."""
    return sorted(found.items(), key=lambda item: as_bytes(item[0]))


def output(v: Any) -> str:
    """What an action writes."""
    return "<no value>" if v is MISSING or v is None else text(v)


def sprint(values: Sequence[Any]) -> str:
    """With a space between two that are both no text."""
    parts: list[str] = []
    after_text = True
    for v in values:
        is_text = isinstance(v, str)
        if not is_text and not after_text:
            parts.append(" ")
        parts.append(text(v))
        after_text = is_text
    return bounded("".join(parts))


def quoted(s: str, quote: str = '"') -> str:
    """%q, and strconv.Quote."""
    out = [quote]
    for c in s:
        code = ord(c)
        if c == quote:
            out.append("\\" + c)
        elif code in _ESCAPES:
            out.append(_ESCAPES[code])
        elif 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif c == " " or (c.isprintable() and not c.isspace()):
            out.append(c)
        else:
            out.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    out.append(quote)
    return "".join(out)
