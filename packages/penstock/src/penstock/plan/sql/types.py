"""Spark's types as far as JSON values and the subset need them, and ANSI Spark's rules for bringing two types together.

Pure. The rules are those of Spark's `AnsiTypeCoercion` and `DecimalPrecision`; the property test holds them to it.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from penstock.plan.sql.errors import EvaluationError, Unmatched

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
DIGITS = 38  # of Spark's widest decimal


class Type(NamedTuple):
    name: str
    precision: int = 0  # decimals
    scale: int = 0
    of: Any = None  # arrays: the Type of an element

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return f"array<{self.of}>" if self.name == "array" else self.name


VOID = Type("void")  # NULL, of no type yet
BOOLEAN = Type("boolean")
INT = Type("int")
BIGINT = Type("bigint")
DOUBLE = Type("double")
STRING = Type("string")
BINARY = Type("binary")
DATE = Type("date")
TIMESTAMP = Type("timestamp")
STRUCT = Type("struct")
MAP = Type("map")  # of strings: `metadata`
MIXED = Type("mixed")  # elements of a list that no Spark array could hold, or that we do not look into

INTEGRAL = frozenset({INT, BIGINT})


def decimal(precision: int, scale: int) -> Type:
    return Type("decimal", precision, scale)


def array(of: Type) -> Type:
    return Type("array", of=of)


def is_decimal(t: Type) -> bool:
    return t.name == "decimal"


def is_numeric(t: Type) -> bool:
    return t in INTEGRAL or t == DOUBLE or t.name == "decimal"


def is_nested(t: Type) -> bool:
    return t.name in ("array", "struct", "map", "mixed")


# --- what a value is ---


class Hole:
    """An element behind the end of a list: Spark raises only if the expression gets to it."""

    __slots__ = ("type", "what")

    def __init__(self, what: str, of: list[Any]) -> None:
        self.what = what
        self.type = type_of_list(of).of


_PLAIN = {type(None): VOID, bool: BOOLEAN, float: DOUBLE, str: STRING, bytes: BINARY, dict: STRUCT}


def type_of(value: Any, where: str = "") -> Type:
    """The Spark type that a column of such values would have."""
    kind = type(value)
    known = _PLAIN.get(kind)
    if known is not None:
        return known
    if kind is int:
        if LONG_MIN <= value <= LONG_MAX:
            return BIGINT
        if abs(value) < 10**DIGITS:
            return decimal(DIGITS, 0)
        raise EvaluationError(f"an integer of more than {DIGITS} digits has no type in Spark", where)
    if kind is list:
        return type_of_list(value)
    if kind is Hole:
        found: Type = value.type
        return found
    if kind is Decimal and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        precision = max(len(digits) + max(0, int(exponent)), scale)
        if precision <= DIGITS:
            return decimal(precision, scale)
    if kind is datetime:
        return TIMESTAMP
    if kind is date:
        return DATE
    raise Unmatched(f"a {kind.__name__} is not a value of JSON", where)


def type_of_list(values: list[Any]) -> Type:
    kinds = {type(v) for v in values if v is not None}
    if not kinds:
        return array(VOID)
    if len(kinds) == 1 and (kind := next(iter(kinds))) in (bool, int, float, str):
        if kind is int and not all(LONG_MIN <= v <= LONG_MAX for v in values if v is not None):
            return array(MIXED)
        return array(BIGINT if kind is int else _PLAIN[kind])
    return array(MIXED)


# --- bringing types together ---


def as_decimal(t: Type, literal: int | None = None) -> Type:
    """The decimal that an integer becomes beside a decimal; a literal takes no more digits than it has."""
    if literal is not None:
        return decimal(len(str(abs(literal))), 0)
    return {INT: decimal(10, 0), BIGINT: decimal(20, 0)}.get(t, t)


def wider_decimal(a: Type, b: Type) -> Type:
    scale = max(a.scale, b.scale)
    integral = max(a.precision - a.scale, b.precision - b.scale)
    if integral + scale <= DIGITS:
        return decimal(integral + scale, scale)
    return decimal(DIGITS, max(0, min(scale, DIGITS - integral)))  # digits before the point come first


def adjusted(precision: int, scale: int) -> Type:
    """The type of a result that may need more than 38 digits: digits before the point win, six behind it are kept."""
    if precision <= DIGITS:
        return decimal(precision, scale)
    return decimal(DIGITS, max(DIGITS - (precision - scale), min(scale, 6)))


def tightest(a: Type, b: Type) -> Type | None:
    """The type both fit without loss, strings left alone."""
    if a == b:
        return a
    if a == VOID or b == VOID:
        return b if a == VOID else a
    if is_numeric(a) and is_numeric(b):
        if is_decimal(a) or is_decimal(b):
            return DOUBLE if DOUBLE in (a, b) else wider_decimal(as_decimal(a), as_decimal(b))
        return DOUBLE if DOUBLE in (a, b) else BIGINT
    if {a, b} == {DATE, TIMESTAMP}:
        return TIMESTAMP
    return None


def promoted(a: Type, b: Type) -> Type | None:
    """What a string and something else are compared as; None when not exactly one of them is a string."""
    if (a == STRING) == (b == STRING):
        return None
    other = b if a == STRING else a
    if other in INTEGRAL:
        return BIGINT
    if other == DOUBLE or is_decimal(other):
        return DOUBLE
    if other in (BOOLEAN, DATE, TIMESTAMP):
        return other
    return STRING if other == VOID else None


def mismatch(what: str, *types: Type) -> EvaluationError:
    return EvaluationError(f"{what} does not take {' and '.join(str(t) for t in types)}")
