"""JSON as Go's encoding/json writes and reads it. Pure; runs in Spark's tasks."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.printing import bounded, float_text, in_order, zone_text
from penstock.plan.gotemplate.values import Operation, Own, Struct, is_nil, map_of, moment
from penstock.plan.moment import point

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile('["\\\\\x00-\x1f\u2028\u2029\ud800-\udfff]')
_SPECIAL_HTML = re.compile('["\\\\\x00-\x1f\u2028\u2029\ud800-\udfff<>&]')
_DEPTH = 200


def dumps(v: Any, *, html: bool = True, indent: str = "") -> str:
    """Raises `Failure` for NaN and infinity."""
    return bounded(_Writer(html, indent).value(v, 0))


class _Writer:
    def __init__(self, html: bool, indent: str) -> None:
        self.special = _SPECIAL_HTML if html else _SPECIAL
        self.indent = indent

    def value(self, v: Any, depth: int) -> str:
        if depth > _DEPTH:
            raise Failure("a value is nested too deep for JSON")
        if isinstance(v, bool):
            return "true" if v else "false"
        if isinstance(v, str):
            return self.text(v)
        if isinstance(v, Operation):
            return self.text(v.name)
        if isinstance(v, int):
            return str(int(v))
        if isinstance(v, float | Decimal):
            return _number(float(v))
        if isinstance(v, date):
            return self.text(time_json(v))
        return self._composed(v, depth)

    def _composed(self, v: Any, depth: int) -> str:
        if is_nil(v):
            return "null"
        if isinstance(v, bytes | bytearray):
            return f'"{base64.b64encode(v).decode()}"'
        found = map_of(v)
        if found is not None:
            return self._object(in_order(found), depth)
        if isinstance(v, Struct):
            return self._object([(k.lower(), x) for k, x in v.fields.items() if k[0].isupper()], depth)
        if isinstance(v, list | tuple):
            return self._group("[", [self.value(x, depth + 1) for x in v], "]", depth)
        raise Failure(f"a value of the type {type(v).__name__} has no JSON")

    def _object(self, items: list[tuple[str, Any]], depth: int) -> str:
        colon = ": " if self.indent else ":"
        members = [f"{self.text(k)}{colon}{self.value(x, depth + 1)}" for k, x in items]
        return self._group("{", members, "}", depth)

    def _group(self, begin: str, members: list[str], end: str, depth: int) -> str:
        if not self.indent or not members:
            return begin + ",".join(members) + end
        line = "\n" + self.indent * (depth + 1)
        return begin + line + ("," + line).join(members) + "\n" + self.indent * depth + end

    def text(self, s: str) -> str:
        return '"' + self.special.sub(_escaped, s) + '"'


def _escaped(found: re.Match[str]) -> str:
    c = found[0]
    if "\ud800" <= c <= "\udfff":
        return "\\ufffd"
    return _SHORT.get(c) or f"\\u{ord(c):04x}"


def _number(x: float) -> str:
    if not math.isfinite(x):
        raise Failure("JSON has no NaN and no infinity")
    return float_text(x, high=21, low=-6, width=1)


def time_json(v: date) -> str:
    """RFC 3339, with as much of the second as there is."""
    at = moment(v)
    offset = at.utcoffset() or timedelta()
    fraction = point(at)
    zone = zone_text(offset, ":") if offset else "Z"
    return f"{at.year:04d}-{at:%m-%dT%H:%M:%S}{fraction}{zone}"


def loads(s: str) -> Any:
    """Raises `ValueError`. Whole numbers keep their digits."""
    if _SURROGATE.search(s):
        s = _SURROGATE.sub("\ufffd", s)
    value = _DECODER.decode(s)
    return _repaired(value) if "\\u" in s else value


_SURROGATE = re.compile("[\ud800-\udfff]")


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _real(s: str) -> float:
    value = float(s)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return value


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_real, object_hook=Own)


def _repaired(v: Any) -> Any:
    """Halves of characters, as escapes may leave them, become U+FFFD."""
    if isinstance(v, str):
        return _SURROGATE.sub("\ufffd", v)
    if isinstance(v, list):
        return [_repaired(x) for x in v]
    return Own((_repaired(k), _repaired(x)) for k, x in v.items()) if isinstance(v, dict) else v
