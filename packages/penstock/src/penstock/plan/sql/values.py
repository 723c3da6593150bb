"""What generated code calls: field access, arithmetic and functions over values whose types are already settled.

Nothing here is called with None, unless it says so; generated code has answered NULL before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from penstock.plan.sql.casts import EXACT, fit, shown
from penstock.plan.sql.errors import EvaluationError, Unmatched, fail
from penstock.plan.sql.patterns import java_regex, like_regex
from penstock.plan.sql.types import INT_MAX, LONG_MAX, LONG_MIN, VOID, Hole, Type

# --- fields ---


def field(value: Any, name: str, where: str) -> Any:
    """`value.name` for a value that may be no dict: a field of nothing is nothing, a field of a scalar raises."""
    if value is None:
        return None
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, bytes):
        raise EvaluationError(f"{where} is raw: it has no field {name!r} before a json.decode", where)
    if isinstance(value, list):
        raise Unmatched(f"the field {name!r} of every element of a list", where)
    if isinstance(value, Hole):
        raise EvaluationError(value.what, where)
    raise EvaluationError(f"{where} is a {type(value).__name__}: it has no field {name!r}", where)


def item(value: Any, index: int, where: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        if 0 <= index < len(value):
            return value[index]
        return Hole(f"{where} has {len(value)} elements, there is no [{index}]", value)
    raise EvaluationError(f"{where} is a {type(value).__name__}: it has no element [{index}]", where)


def reach(hole: Hole, where: str) -> Any:
    if hole.type == VOID:  # of an empty list: Spark raises, or takes any value of no type for NULL
        raise Unmatched(hole.what, where)
    raise EvaluationError(hole.what, where)


# --- arithmetic ---


def overflow(kind: str) -> Any:
    return fail(f"the result does not fit {kind}")


def long_mod(a: int, b: int) -> int:
    if b == 0:
        fail("remainder by zero")
    return int(math.copysign(1, a)) * (abs(a) % abs(b))


def double_div(a: float, b: float) -> float:
    return a / b if b else fail("division by zero")


def double_mod(a: float, b: float) -> float:
    if b == 0:
        fail("remainder by zero")
    return math.nan if math.isinf(a) else math.fmod(a, b)


_JAVA = Context(prec=39, rounding=ROUND_HALF_UP, Emax=999999, Emin=-999999)


def decimal_add(a: Decimal, b: Decimal, to: Type) -> Decimal:
    return fit(EXACT.add(a, b), to, "")


def decimal_sub(a: Decimal, b: Decimal, to: Type) -> Decimal:
    return fit(EXACT.subtract(a, b), to, "")


def decimal_mul(a: Decimal, b: Decimal, to: Type) -> Decimal:
    return fit(_JAVA.multiply(a, b), to, "")


def decimal_div(a: Decimal, b: Decimal, to: Type) -> Decimal:
    return fit(_JAVA.divide(a, b), to, "") if b else fail("division by zero")


def decimal_mod(a: Decimal, b: Decimal, to: Type) -> Decimal:
    return fit(EXACT.remainder(a, b), to, "") if b else fail("remainder by zero")


def decimal_negative(value: Decimal) -> Decimal:
    """Spark keeps 34 digits here, so longer ones are left to it. Java's decimals have no -0."""
    if len(value.as_tuple().digits) > 34:
        raise Unmatched("the negative of a decimal of more than 34 digits")
    return value.copy_negate() if value else value


def decimal_abs(value: Decimal) -> Decimal:
    return decimal_negative(value) if value < 0 else value


# --- order: NaN is equal to itself and greater than anything ---


def double_eq(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def double_lt(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


def extreme(values: list[Any], *, greatest: bool) -> Any:
    """Takes None, and leaves it out."""
    best = None
    for v in values:
        if v is None:
            continue
        if best is None or (double_lt(best, v) if greatest else double_lt(v, best)):
            best = v
    return best


def one_of(value: Any, values: list[Callable[[], Any]], equal: Callable[[Any, Any], bool]) -> bool | None:
    """`value IN (...)`; the elements are computed until one is equal."""
    unknown = False
    for make in values:
        v = make()
        if v is None:
            unknown = True
        elif equal(value, v):
            return True
    return None if unknown else False


def same(a: Any, b: Any) -> bool:
    return bool(a == b)


def array_contains(
    elements: list[Any], value: Any, convert: Callable[[Any], Any], equal: Callable[[Any, Any], bool]
) -> bool | None:
    """Elements may be None."""
    if any(e is not None and equal(convert(e), value) for e in elements):
        return True
    return None if None in elements else False


def element_at(elements: list[Any], index: int) -> Any:
    if index == 0:
        fail("element_at counts from 1")
    return elements[index - 1 if index > 0 else index] if abs(index) <= len(elements) else _missing(elements, index)


def get_item(elements: list[Any], index: int) -> Any:
    return elements[index] if 0 <= index < len(elements) else _missing(elements, index)


def _missing(elements: list[Any], index: int) -> Any:
    return reach(Hole(f"there is no element {index} in a list of {len(elements)}", elements), "")


# --- numbers ---


def floor_double(value: float) -> int:
    return _saturated(value, math.floor)


def ceil_double(value: float) -> int:
    return _saturated(value, math.ceil)


def _saturated(value: float, how: Callable[[float], int]) -> int:
    if value != value:
        return 0
    if math.isinf(value):
        return LONG_MAX if value > 0 else LONG_MIN
    return max(LONG_MIN, min(LONG_MAX, how(value)))


def decimal_whole(value: Decimal, rounding: str, to: Type) -> Decimal:
    return fit(value.quantize(Decimal(1), rounding=rounding, context=EXACT), to, "")


def round_double(value: float, digits: int) -> float:
    if value != value or math.isinf(value):
        return value
    return float(Decimal(shown(value, "")).quantize(Decimal(1).scaleb(-digits), context=EXACT)) + 0.0


def round_whole(value: int, digits: int, low: int, high: int) -> int:
    rounded = int(Decimal(value).quantize(Decimal(1).scaleb(-digits), context=EXACT))
    return rounded if low <= rounded <= high else fail("the rounded number does not fit")


def round_decimal(value: Decimal, digits: int, to: Type) -> Decimal:
    return fit(value.quantize(Decimal(1).scaleb(-digits), context=EXACT), to, "")


# --- strings ---


# Letters that got their other case in a later Unicode than Python 3.11 has; all others up to U+1FFFF were compared.
_NEW_LETTERS = re.compile("[\u019b\u0264\u1c89\u1c8a\ua7cb-\ua7dc\U00010d50-\U00010d85\U00016ea0-\U00016ed3]")


def lower(text: str) -> str:
    return text.lower() if text.isascii() else _old_letters(text).lower()


def upper(text: str) -> str:
    return text.upper() if text.isascii() else _old_letters(text).upper()


def _old_letters(text: str) -> str:
    if _NEW_LETTERS.search(text):
        raise Unmatched("the case of a letter that is new in Unicode")
    return text


def substring(text: str, start: int, length: int = INT_MAX) -> str:
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(0, begin) : max(0, begin + length)]


def pad(text: str, length: int, fill: str, *, left: bool) -> str:
    if length <= len(text) or not fill:
        return text[: max(0, length)]
    if length > 10_000_000:
        raise Unmatched(f"a string of {length} characters")
    missing = length - len(text)
    filled = (fill * (missing // len(fill) + 1))[:missing]
    return filled + text if left else text + filled


def join(separator: str | None, parts: list[Any]) -> str | None:
    """concat_ws. Takes None, and leaves it out; a list adds its elements."""
    if separator is None:
        return None
    kept: list[str] = []
    for part in parts:
        if isinstance(part, list):
            kept.extend(p for p in part if p is not None)
        elif part is not None:
            kept.append(part)
    return separator.join(kept)


def glue(parts: list[Any]) -> str | None:
    """concat: None if any is."""
    return None if None in parts else "".join(parts)


def replace(text: str, old: str, new: str) -> str:
    return text.replace(old, new) if old else text


def like(text: str, pattern: str) -> bool:
    return like_regex(pattern).fullmatch(text) is not None


def split(text: str, pattern: str) -> list[str]:
    parts, at = [], 0
    for match in java_regex(pattern).finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
    return [*parts, text[at:]]


def regexp_replace(text: str, pattern: str, new: str) -> str:
    return java_regex(pattern).sub(lambda _: new, text)


# --- times ---


def date_add(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise Unmatched("a year outside 1 to 9999") from None


def try_cast(cast: Callable[[Any, str], Any], value: Any, where: str) -> Any:
    """NULL where the cast raises, but not where we only cannot say what Spark would answer."""
    try:
        return cast(value, where)
    except Unmatched:
        raise
    except EvaluationError:
        return None


def want_boolean(kind: str) -> Any:
    return fail(f"a condition has to be a boolean, this one is a {kind}")
