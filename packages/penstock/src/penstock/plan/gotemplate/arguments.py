"""What a function gets: literals and values, checked against the Go type that it takes. Closures; they run in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.tree import Bool, Nil, Number, Text
from penstock.plan.gotemplate.values import MISSING, NO_DATA, Float, Int, Own, Structured, moment, type_of

if TYPE_CHECKING:
    from penstock.plan.gotemplate.state import State

Value = Callable[["State"], Any]
Literal = Number | Text | Bool | Nil


class Constant:
    """A closure that always gives the same, so that callers can look at it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _: State) -> Any:
        return self.value


def fails(what: str) -> Value:
    """Go finds this only when it gets there."""

    def fail(_: State) -> Any:
        raise Failure(what)

    return fail


def ideal(n: Number) -> Value:
    """A number where no type is wanted."""
    if n.is_real and n.real is not None:
        return Constant(Float(n.real))
    return fails(f"{n.text} overflows int") if n.whole is None else Constant(Int(n.whole))


def literal(node: Literal, wanted: str) -> Value:
    if isinstance(node, Nil):
        if wanted in ("any", "map"):
            return Constant(None if wanted == "any" else {})
    elif isinstance(node, Text):
        if wanted in ("any", "string"):
            return Constant(node.value)
    elif isinstance(node, Bool):
        if wanted in ("any", "bool"):
            return Constant(node.value)
    elif wanted == "any":
        return ideal(node)
    elif wanted == "int" and node.whole is not None:
        return Constant(Int(node.whole))
    elif wanted == "float64" and node.real is not None:
        return Constant(Float(node.real))
    return fails(f"{_shown(node)} is no {wanted}")


def _shown(node: Literal) -> str:
    return {Nil: "nil", Text: "a text", Bool: "a boolean"}.get(type(node), "a number")


def converted(get: Value, wanted: str) -> Value:
    convert = _CONVERT[wanted]
    if wanted == "string":  # the usual one: one call less

        def text(s: State) -> Any:
            v = get(s)
            return v if type(v) is str else convert(v)

        return text
    return lambda s: convert(get(s))


def _any(v: Any) -> Any:
    return None if v is MISSING or v is NO_DATA else v


def _string(v: Any) -> Any:
    if isinstance(v, str):
        return v
    raise _wrong(v, "string")


def _int(v: Any) -> Any:
    if type(v) is Int:
        return v
    raise _wrong(v, "int")


def _float(v: Any) -> Any:
    if isinstance(v, float | Decimal) or type(v) is int:
        return Float(v)
    raise _wrong(v, "float64")


def _bool(v: Any) -> Any:
    if isinstance(v, bool):
        return v
    raise _wrong(v, "bool")


def _map(v: Any) -> Any:
    if type(v) in (dict, Own):
        return v
    if isinstance(v, Structured):
        return v.value
    if v is MISSING:
        return {}
    raise _wrong(v, "map")


def _time(v: Any) -> Any:
    if isinstance(v, date):
        return moment(v)
    raise _wrong(v, "time")


def _wrong(v: Any, wanted: str) -> Failure:
    return Failure(f"a {wanted} is expected, and the value is {type_of(v)}")


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "any": _any,
    "string": _string,
    "int": _int,
    "float64": _float,
    "bool": _bool,
    "map": _map,
    "time": _time,
}
