"""sprig's functions for numbers: whole ones are int64 and overflow as those do. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

from penstock.plan.gotemplate.convert import to_float, to_int, wrapped
from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.printing import text
from penstock.plan.gotemplate.values import Float, Int, Int64, Ints

MOST = 1_000_000  # elements of a list that is made
_DECIMAL = re.compile("[+-]?[0-9]+")


@function("int", "any")
def int_(v: Any) -> Int:
    return Int(to_int(v))


@function("int64", "any")
def int64(v: Any) -> Int64:
    return Int64(to_int(v))


@function("float64", "any")
def float64(v: Any) -> Float:
    return Float(to_float(v))


@function("atoi", "string")
def atoi(s: str) -> Int:
    if not _DECIMAL.fullmatch(s):
        return Int(0)
    return Int(max(-(2**63), min(2**63 - 1, int(s[:40]))))


@function("toDecimal", "any")
def to_decimal(v: Any) -> Int64:
    shown = text(v)
    fits = re.fullmatch("[+-]?[0-7]{1,30}", shown) and -(2**63) <= int(shown, 8) < 2**63
    return Int64(int(shown, 8) if fits else 0)


@function("add1", "any")
def add1(v: Any) -> Int64:
    return Int64(wrapped(to_int(v) + 1))


@function("add", more="any")
def add(*values: Any) -> Int64:
    return Int64(wrapped(sum(map(to_int, values))))


@function("sub", "any", "any")
def sub(a: Any, b: Any) -> Int64:
    return Int64(wrapped(to_int(a) - to_int(b)))


@function("mul", "any", more="any")
def mul(a: Any, *values: Any) -> Int64:
    product = to_int(a)
    for v in values:
        product = wrapped(product * to_int(v))
    return Int64(product)


@function("div", "any", "any")
def div(a: Any, b: Any) -> Int64:
    x, y = to_int(a), to_int(b)
    if not y:
        raise Failure("div by zero")
    return Int64(wrapped(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)))


@function("mod", "any", "any")
def mod(a: Any, b: Any) -> Int64:
    x, y = to_int(a), to_int(b)
    if not y:
        raise Failure("mod by zero")
    return Int64(abs(x) % abs(y) * (1 if x >= 0 else -1))


@function("max biggest", "any", more="any")
def max_(*values: Any) -> Int64:
    return Int64(max(map(to_int, values)))


@function("min", "any", more="any")
def min_(*values: Any) -> Int64:
    return Int64(min(map(to_int, values)))


@function("maxf", "any", more="any")
def maxf(*values: Any) -> Float:
    found = [to_float(v) for v in values]
    return Float(math.nan if any(map(math.isnan, found)) else max(found))


@function("minf", "any", more="any")
def minf(*values: Any) -> Float:
    found = [to_float(v) for v in values]
    return Float(math.nan if any(map(math.isnan, found)) else min(found))


def _whole(x: float, how: Any) -> Float:
    return Float(math.copysign(float(how(x)), x)) if math.isfinite(x) else Float(x)


@function("floor", "any")
def floor(v: Any) -> Float:
    return _whole(to_float(v), math.floor)


@function("ceil", "any")
def ceil(v: Any) -> Float:
    return _whole(to_float(v), math.ceil)


@function("round", "any", "int", more="float64")
def round_(v: Any, places: int, *on: float) -> Float:
    if abs(places) > 300:
        raise Failure("round to more than 300 places")
    power = 10.0 ** int(places)
    scaled = power * to_float(v)
    if not math.isfinite(scaled):
        return Float(scaled / power)
    up = math.modf(scaled)[0] >= (on[0] if on else 0.5)
    return Float(_whole(scaled, math.ceil if up else math.floor) / power)


def _steps(start: int, stop: int, step: int) -> Ints:
    if (stop < start and step >= 0) or (stop >= start and step <= 0):
        return Ints()
    found = range(start, stop, step)
    if len(found) > MOST:
        raise Failure(f"a list of more than {MOST} numbers")
    return Ints(map(Int, found))


@function("until", "int")
def until(count: int) -> Ints:
    return _steps(0, count, -1 if count < 0 else 1)


@function("untilStep", "int", "int", "int")
def until_step(start: int, stop: int, step: int) -> Ints:
    return _steps(start, stop, step)


@function("seq", more="int")
def seq(*given: int) -> str:
    if len(given) == 1:
        step = -1 if given[0] < 1 else 1
        found = _steps(1, given[0] + step, step)
    elif len(given) == 2:
        step = -1 if given[1] < given[0] else 1
        found = _steps(given[0], given[1] + step, step)
    elif len(given) == 3:
        start, step, end = given
        if end < start and step > 0:
            return ""
        found = _steps(start, end + (-1 if end < start else 1), step)
    else:
        return ""
    return " ".join(map(str, found))


def _exact(v: Any) -> Decimal:
    x = to_float(v)
    if not math.isfinite(x):
        raise Failure("decimal arithmetic has no NaN and no infinity")
    return Decimal(repr(x))


def _decimal(names: str, start: Any, how: Callable[[Decimal, Decimal], Decimal]) -> None:
    """sprig calculates these in decimals, and gives a double."""

    def calculate(*values: Any) -> Float:
        with localcontext(_EXACT):
            result = _exact(values[0]) if values else Decimal(0)
            for v in values[1:]:
                result = how(result, _exact(v))
            return Float(result or 0)  # decimals have no negative zero there

    takes = () if start is None else ("any",)
    function(names, *takes, more="any")(calculate)


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise Failure("divf by zero")
    return (a / b).quantize(_PLACES, ROUND_HALF_UP)


_EXACT = Context(prec=1500, Emax=99999, Emin=-99999)
_PLACES = Decimal("1e-16")
_decimal("addf", None, lambda a, b: a + b)
_decimal("subf", 0, lambda a, b: a - b)
_decimal("mulf", 0, lambda a, b: a * b)
_decimal("divf", 0, _quotient)


@function("add1f", "any")
def add1f(v: Any) -> Float:
    with localcontext(_EXACT):
        return Float(_exact(v) + 1)
