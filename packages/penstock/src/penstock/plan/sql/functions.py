"""The functions of the subset: for each, what Spark casts its arguments to and the Python that computes it."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

from penstock.plan.sql import values
from penstock.plan.sql.emit import Code, Emitter
from penstock.plan.sql.errors import Unmatched
from penstock.plan.sql.patterns import java_regex
from penstock.plan.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INT_MAX,
    INT_MIN,
    INTEGRAL,
    LONG_MAX,
    LONG_MIN,
    MAP,
    MIXED,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    array,
    decimal,
    is_decimal,
    is_nested,
    mismatch,
    tightest,
)

Make = Callable[[Emitter, str, list[Code]], Code]


def _text(to: Type, template: str | Callable[..., Any]) -> Make:
    """A function of strings only."""

    def make(e: Emitter, name: str, args: list[Code]) -> Code:
        strings = [e.string(a, name) for a in args]
        if isinstance(template, str):
            return e.strict(strings, to, lambda *s: template.format(*s))
        return e.strict(strings, to, lambda *s: e.call(template, *s))

    return make


def _length(e: Emitter, name: str, args: list[Code]) -> Code:
    a = args[0] if args[0].type == BINARY else e.string(args[0], name)
    return e.strict([a], INT, "len({})".format)


def _substring(e: Emitter, name: str, args: list[Code]) -> Code:
    numbers = [e.integer(a, name) for a in args[1:]]
    return e.strict([e.string(args[0], name), *numbers], STRING, lambda *s: e.call(values.substring, *s))


def _pad(e: Emitter, name: str, args: list[Code]) -> Code:
    fill = e.string(args[2], name) if len(args) == 3 else Code("' '", STRING, simple=True)
    parts = [e.string(args[0], name), e.integer(args[1], name), fill]
    return e.strict(parts, STRING, lambda *s: e.call(values.pad, *s, f"left={name == 'lpad'}"))


def _concat(e: Emitter, name: str, args: list[Code]) -> Code:
    parts = [e.string(a, name) for a in args]
    if any(p.null for p in parts):
        return Code(e.call(values.glue, f"[{', '.join(p.src for p in parts)}]"), STRING, null=True)
    return Code(f"({' + '.join(p.src for p in parts)})", STRING)


def _concat_ws(e: Emitter, name: str, args: list[Code]) -> Code:
    parts = []
    for a in args[1:]:
        if a.type.name == "array" and a.type.of not in (STRING, VOID):
            raise Unmatched(f"{name} of {a.type}", a.where)
        parts.append(a if a.type.name == "array" else e.string(a, name))
    separator = e.string(args[0], name)
    listed = f"[{', '.join(p.src for p in parts)}]"  # computed in any case, as Spark does
    return Code(e.call(values.join, separator.src, listed), STRING, null=separator.null)


def _replace(e: Emitter, name: str, args: list[Code]) -> Code:
    parts = [e.string(a, name) for a in args]
    if len(parts) == 2:
        parts.append(Code("''", STRING, simple=True))
    return e.strict(parts, STRING, lambda *s: e.call(values.replace, *s))


def _reverse(e: Emitter, name: str, args: list[Code]) -> Code:
    if is_nested(args[0].type):
        raise Unmatched(f"{name} of {args[0].type}", args[0].where)
    return e.strict([e.string(args[0], name)], STRING, "{}[::-1]".format)


def _rlike(e: Emitter, name: str, args: list[Code]) -> Code:
    search = e.bind(java_regex(literal_eval(args[1].src)).search, "f")
    return e.strict([e.string(args[0], name)], BOOLEAN, lambda s: f"({search}({s}) is not None)")


# --- numbers ---


def _abs(e: Emitter, name: str, args: list[Code]) -> Code:
    a = e._number(args[0], name)
    if a.type in INTEGRAL:
        return e.strict([a], a.type, lambda v: e._checked(f"abs({v})", a.type))
    if is_decimal(a.type):
        return e.strict([a], a.type, lambda v: e.call(values.decimal_abs, v))
    return e.strict([a], a.type, "abs({})".format)


def _whole(e: Emitter, name: str, args: list[Code]) -> Code:
    a = e._number(args[0], name)
    if is_decimal(a.type):
        p, s = a.type.precision, a.type.scale
        to = decimal(min(38, p - s + 1) if s else p, 0)
        rounding = repr(ROUND_FLOOR if name == "floor" else ROUND_CEILING)
        return e.strict([a], to, lambda v: e.call(values.decimal_whole, v, rounding, e.bind(to)))
    if a.type == DOUBLE:
        function = values.floor_double if name == "floor" else values.ceil_double
        return e.strict([a], BIGINT, lambda v: e.call(function, v))
    return e.cast(a, BIGINT)


def _round(e: Emitter, name: str, args: list[Code]) -> Code:
    a = e._number(args[0], name)
    digits = int(args[1].src) if len(args) == 2 else 0
    if a.type == DOUBLE:
        return e.strict([a], DOUBLE, lambda v: e.call(values.round_double, v, str(digits)))
    if is_decimal(a.type):
        whole = a.type.precision - a.type.scale + 1
        if digits < 0:
            to = decimal(min(38, max(whole, 1 - digits)), 0)
        else:
            scale = min(a.type.scale, digits)
            to = decimal(min(38, whole + scale), scale)
        used = str(min(digits, a.type.scale))
        return e.strict([a], to, lambda v: e.call(values.round_decimal, v, used, e.bind(to)))
    if digits >= 0:
        return a
    low, high = (INT_MIN, INT_MAX) if a.type == INT else (LONG_MIN, LONG_MAX)
    return e.strict([a], a.type, lambda v: e.call(values.round_whole, v, str(digits), str(low), str(high)))


def _extreme(e: Emitter, name: str, args: list[Code]) -> Code:
    parts = e._unified(args, name, strings=False)
    to = parts[0].type
    if is_nested(to):
        raise Unmatched(f"{name} of {to}")
    src = e.call(values.extreme, f"[{', '.join(p.src for p in parts)}]", f"greatest={name == 'greatest'}")
    return Code(src, to, null=all(p.null for p in parts))


# --- lists ---


def _size(e: Emitter, name: str, args: list[Code]) -> Code:
    if args[0].type.name not in ("array", "map", "void"):
        raise mismatch(name, args[0].type)
    return e.strict(args, INT, "len({})".format)


def _element(a: Code) -> Type:
    of: Type = a.type.of
    if of == MIXED:
        raise Unmatched(f"an element of {a.type}", a.where)
    return of


def _element_at(e: Emitter, name: str, args: list[Code]) -> Code:
    a, index = args
    if VOID in (a.type, index.type):
        return e.strict(args, VOID, lambda *_: "None", null=True)
    if a.type == MAP:
        return e.strict([a, e.string(index, name)], STRING, "{}.get({})".format, null=True)
    if a.type.name != "array" or index.type != INT:
        raise mismatch(name, a.type, index.type)
    return e.strict(args, _element(a), lambda *s: e.call(values.element_at, *s), null=True)


def _get_item(e: Emitter, name: str, args: list[Code]) -> Code:
    a, index = args
    if VOID in (a.type, index.type):
        return e.strict(args, VOID, lambda *_: "None", null=True)
    if a.type.name != "array" or index.type not in INTEGRAL:
        raise mismatch(name, a.type, index.type)
    return e.strict(args, _element(a), lambda *s: e.call(values.get_item, *s), null=True)


def _array_contains(e: Emitter, name: str, args: list[Code]) -> Code:
    a, value = args
    if VOID in (a.type, value.type):
        return e.strict(args, BOOLEAN, lambda *_: "None", null=True)
    if a.type.name != "array" or is_nested(value.type):
        raise mismatch(name, a.type, value.type)
    to = tightest(_element(a), value.type)
    if to is None:
        raise mismatch(name, a.type, value.type)
    element = e.cast(Code("v", a.type.of, simple=True), to)
    equal = e.bind(values.double_eq if to == DOUBLE else values.same, "f")
    return e.strict(
        [a, e.cast(value, to)],
        BOOLEAN,
        lambda x, y: e.call(values.array_contains, x, y, f"lambda v: {element.src}", equal),
        null=True,
    )


# --- dates and times ---


def _dated(to: Type) -> Callable[[Emitter, str, Code], Code]:
    def make(e: Emitter, name: str, a: Code) -> Code:
        if a.type not in (STRING, DATE, TIMESTAMP, VOID):
            raise mismatch(name, a.type)
        return e.cast(a, to)

    return make


_day, _time = _dated(DATE), _dated(TIMESTAMP)


def _part(template: str, how: Callable[[Emitter, str, Code], Code]) -> Make:
    return lambda e, name, args: e.strict([how(e, name, args[0])], INT, template.format)


def _to_date(e: Emitter, name: str, args: list[Code]) -> Code:
    if args[0].type not in (STRING, DATE, TIMESTAMP, VOID):
        raise Unmatched(f"{name} of {args[0].type}", args[0].where)
    return e.cast(args[0], DATE if name == "to_date" else TIMESTAMP)


def _date_add(e: Emitter, name: str, args: list[Code]) -> Code:
    if args[1].type not in (INT, STRING, VOID):
        raise mismatch(name, args[0].type, args[1].type)
    parts = [_day(e, name, args[0]), e.cast(args[1], INT)]
    return e.strict(parts, DATE, lambda *s: e.call(values.date_add, *s))


def _datediff(e: Emitter, name: str, args: list[Code]) -> Code:
    return e.strict([_day(e, name, a) for a in args], INT, "({} - {}).days".format)


FUNCTIONS: dict[str, Make] = {
    "lower": _text(STRING, values.lower),
    "upper": _text(STRING, values.upper),
    "trim": _text(STRING, "{}.strip(' ')"),
    "ltrim": _text(STRING, "{}.lstrip(' ')"),
    "rtrim": _text(STRING, "{}.rstrip(' ')"),
    "startswith": _text(BOOLEAN, "{}.startswith({})"),
    "endswith": _text(BOOLEAN, "{}.endswith({})"),
    "contains": _text(BOOLEAN, "({1} in {0})"),
    "split": _text(array(STRING), values.split),
    "regexp_replace": _text(STRING, values.regexp_replace),
    "like": _text(BOOLEAN, values.like),
    "rlike": _rlike,
    "length": _length,
    "substring": _substring,
    "lpad": _pad,
    "rpad": _pad,
    "concat": _concat,
    "concat_ws": _concat_ws,
    "replace": _replace,
    "reverse": _reverse,
    "abs": _abs,
    "floor": _whole,
    "ceil": _whole,
    "round": _round,
    "greatest": _extreme,
    "least": _extreme,
    "size": _size,
    "element_at": _element_at,
    "[]": _get_item,
    "array_contains": _array_contains,
    "to_date": _to_date,
    "to_timestamp": _to_date,
    "year": _part("{}.year", _day),
    "month": _part("{}.month", _day),
    "day": _part("{}.day", _day),
    "hour": _part("{}.hour", _time),
    "date_add": _date_add,
    "datediff": _datediff,
}
