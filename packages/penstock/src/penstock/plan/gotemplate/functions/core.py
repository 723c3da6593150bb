"""The functions that Go's templates have of their own, but for `and` and `or`, which `compiler` does. Pure."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.printf import sprintf
from penstock.plan.gotemplate.printing import bounded, sprint, text
from penstock.plan.gotemplate.values import (
    Int,
    Metadata,
    Texts,
    Uint8,
    as_bytes,
    equal,
    is_nil,
    items_of,
    less,
    map_of,
    type_of,
)

_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JS_SPECIAL = re.compile("[\\\\'\"<>&=\x00-\x1f]|[^\x00-\x7f]")
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"'}


@function("eq", "any", more="any")
def eq(first: Any, *others: Any) -> bool:
    if not others:
        raise Failure("eq compares with nothing: an argument is missing")
    return any(equal(first, other) for other in others)


@function("ne", "any", "any")
def ne(a: Any, b: Any) -> bool:
    return not equal(a, b)


@function("lt", "any", "any")
def lt(a: Any, b: Any) -> bool:
    return less(a, b)


@function("le", "any", "any")
def le(a: Any, b: Any) -> bool:
    return less(a, b) or equal(a, b)


@function("gt", "any", "any")
def gt(a: Any, b: Any) -> bool:
    return not le(a, b)


@function("ge", "any", "any")
def ge(a: Any, b: Any) -> bool:
    return not less(a, b)


@function("not", "any")
def negated(v: Any) -> bool:
    return not v


@function("len", "any")
def length(v: Any) -> Int:
    if isinstance(v, str):
        return Int(len(v) if v.isascii() else len(as_bytes(v)))
    if isinstance(v, list | tuple | bytes | bytearray | dict):
        return Int(len(v))
    found = map_of(v)
    if found is None:
        raise Failure(f"len of {type_of(v)}")
    return Int(len(found))


@function("index", "any", more="any")
def index(v: Any, *keys: Any) -> Any:
    if is_nil(v) and not isinstance(v, Metadata | bytes):
        raise Failure("index of nil")
    for key in keys:
        v = _at(v, key)
    return v


def _at(v: Any, key: Any) -> Any:
    found = map_of(v)
    if found is not None:
        if not isinstance(key, str):
            raise Failure(f"index of a map with {type_of(key)}; it has to be a text")
        return found.get(key, "" if isinstance(v, Metadata | Texts) else None)
    if v is None:
        raise Failure("index of nil")
    items: Any = as_bytes(v) if isinstance(v, str) else v
    if not isinstance(items, list | tuple | bytes | bytearray):
        raise Failure(f"index of {type_of(v)}")
    if not isinstance(key, Int):
        raise Failure(f"index of a list with {type_of(key)}; it has to be an int")
    if not 0 <= key < len(items):
        raise Failure("index out of range")
    element = items[key]
    return Uint8(element) if isinstance(items, bytes | bytearray) else element


@function("call", "any", more="any")
def call(v: Any, *_: Any) -> Any:
    raise Failure(f"call of {type_of(v)}, which is no function")


@function("print", more="any")
def print_(*values: Any) -> str:
    return sprint(values)


@function("println", more="any")
def println(*values: Any) -> str:
    return bounded(" ".join(map(text, values)) + "\n")


@function("printf", "string", more="any")
def printf(fmt: str, *values: Any) -> str:
    return sprintf(fmt, values)


def _written(values: tuple[Any, ...]) -> str:
    return sprint(["<no value>" if v is None else v for v in values])


@function("html", more="any")
def html(*values: Any) -> str:
    return bounded(_written(values).translate(_HTML))


@function("js", more="any")
def js(*values: Any) -> str:
    return bounded(_JS_SPECIAL.sub(_js_escape, _written(values)))


def _js_escape(found: re.Match[str]) -> str:
    c = found[0]
    if c >= "\x80":
        return c if c.isprintable() or "\udc80" <= c <= "\udcff" else f"\\u{ord(c):04X}"
    return _JS.get(c) or f"\\u{ord(c):04X}"


@function("urlquery", more="any")
def urlquery(*values: Any) -> str:
    return bounded(urllib.parse.quote_plus(as_bytes(_written(values)), safe="~"))


def elements(v: Any, what: str) -> Any:
    """Of a slice, or it fails as sprig's functions for lists do."""
    found = items_of(v)
    if found is None:
        raise Failure(f"{what} of {type_of(v)}; it has to be a list")
    return found
