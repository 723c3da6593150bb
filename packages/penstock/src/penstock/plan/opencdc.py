"""JSON as Conduit reads and writes it, where that is not what a strict decoder and a plain encoder do. Pure.

`read` takes what strict JSON is not and Conduit takes all the same: processors come here after the strict decoder has
failed, so good lines never pay for it. `dumps` writes the bytes that Conduit writes: keys sorted, `<`, `>`, `&` and the
two line separators escaped, numbers as Go writes them. Both run in Spark's tasks, neither is recursive where depth matters.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from penstock.plan.gotext import in_full, short
from penstock.plan.moment import rfc3339
from penstock.plan.payload import number, refuse_inexact, to_json

DEPTH = 10_000  # of objects and lists, as in Conduit

_TOKEN = re.compile(
    rb"[ \n\t\r]*+(?:"
    rb"(?P<mark>[{}\[\],:])"
    rb'|"(?P<text>(?:[^"\\\0]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+)"'
    rb"|(?P<number>[-0-9][-+.0-9eE]*+)(?=[\0 \n\t\r,:}\]]|\Z)"
    rb"|(?P<word>true|false|null))"
)
_END = re.compile(rb"[ \n\t\r\0]*+\Z")  # to Conduit a NUL ends the text; what is behind it is not thrown away here
_ESCAPE = re.compile(rb"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|u(....)|(.))", re.DOTALL)
_WORDS = {b"true": True, b"false": False, b"null": None}
_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_WHOLE = re.compile(rb"-?[0-9]+")


class NotJson(ValueError):
    """The text is not JSON, even to Conduit."""


def read(data: bytes | str) -> Any:
    """Besides strict JSON: numbers such as `01`, `1.` and `-.5`, control characters and bytes that are not UTF-8 inside
    texts (kept, as Python's `surrogateescape` does), halves of surrogate pairs (U+FFFD), `null` as a key (the empty key),
    NULs at the end, and 10,000 levels. Raises `ValueError`."""
    if isinstance(data, str):
        data = data.encode(errors="surrogateescape")
    value, at = _value(data)
    if _END.match(data, at) is None:
        raise NotJson(f"there is something behind the value, at byte {at}")
    return value


def _value(data: bytes) -> tuple[Any, int]:
    """One value and where it ends. `open_` is the way down to the object or list that is being filled."""
    open_: list[dict[str, Any] | list[Any]] = []
    keys: list[str] = []  # one for every object on the way
    at = 0
    while True:
        value, at, mark = _scalar(data, at)
        if mark in (b"{", b"["):
            if len(open_) == DEPTH:
                raise NotJson(f"it is deeper than {DEPTH} levels")
            made: dict[str, Any] | list[Any] = {} if mark == b"{" else []
            inside = _mark(data, at)
            if inside[0] != (b"}" if mark == b"{" else b"]"):
                open_.append(made)
                if mark == b"{":
                    key, at = _key(data, at)
                    keys.append(key)
                continue
            value, at = made, inside[1]
        elif mark:
            raise NotJson(f"there is no value at byte {at - 1}")
        while True:  # the value is whole: put it where it belongs, and close what ends behind it
            if not open_:
                return value, at
            parent = open_[-1]
            mark, at = _mark(data, at)
            if isinstance(parent, dict):
                parent[keys[-1]] = value
                if mark == b",":
                    keys[-1], at = _key(data, at)
                    break
                if mark != b"}":
                    raise NotJson(f"an object goes on with neither , nor }} at byte {at}")
                keys.pop()
            else:
                parent.append(value)
                if mark == b",":
                    break
                if mark != b"]":
                    raise NotJson(f"a list goes on with neither , nor ] at byte {at}")
            value = open_.pop()


def _scalar(data: bytes, at: int) -> tuple[Any, int, bytes]:
    found = _TOKEN.match(data, at)
    if found is None:
        raise NotJson(f"there is no value at byte {at}")
    kind, end = found.lastgroup, found.end()
    if kind == "text":
        return _text(found["text"]), end, b""
    if kind == "number":
        return _number(found["number"]), end, b""
    if kind == "word":
        return _WORDS[found["word"]], end, b""
    return None, end, found["mark"]


def _key(data: bytes, at: int) -> tuple[str, int]:
    key, at, mark = _scalar(data, at)
    if mark or not (key is None or isinstance(key, str)):
        raise NotJson(f"a key is missing at byte {at}")
    mark, at = _mark(data, at)
    if mark != b":":
        raise NotJson(f"a colon is missing at byte {at}")
    return key or "", at


def _mark(data: bytes, at: int) -> tuple[bytes, int]:
    """The bracket, comma or colon that comes next and where it ends; nothing where it is something else."""
    found = _TOKEN.match(data, at)
    return (found["mark"], found.end()) if found is not None and found.lastgroup == "mark" else (b"", at)


def _number(text: bytes) -> Any:
    return int(text) if _WHOLE.fullmatch(text) else number(text.decode())


def _text(found: bytes) -> str:
    return (_ESCAPE.sub(_unescaped, found) if b"\\" in found else found).decode(errors="surrogateescape")


def _unescaped(found: re.Match[bytes]) -> bytes:
    high, low, code, letter = found.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    if code is None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00).encode()
    point = int(code, 16)
    return b"\xef\xbf\xbd" if 0xD800 <= point < 0xE000 else chr(point).encode()


# -- writing -------------------------------------------------------------------------------------------------------------

# `translate` gives the same object where nothing was found: 0.1 µs for 120 bytes, as much as one search for one of these.
_ODD = bytes(1 if c in b"<>&\\\xe2" else c for c in range(256))
_ODD_KEY = re.compile(rb'\\.(?:[^"\\]++|\\.)*+":').search  # Conduit sorts keys as they are written, escapes included
_SHORT = re.compile(rb"\\(.)", re.DOTALL)
_EASY = frozenset({str, int, bool, type(None), bytes})  # what the encoder writes as Go does, but for escapes
_easy = _EASY.issuperset
_EXACT = 2.0**53


def dumps(value: Any) -> Any:
    """The bytes that Conduit writes, but integers with all their digits; nothing stays nothing. Raises `Rejected` for NaN
    and infinities, and `TypeError` for what has no form in JSON."""
    if value is None:
        return None
    try:
        text = to_json(value)
    except (UnicodeEncodeError, RecursionError):
        return b"".join(_pieces(value))
    # Values are looked at, not the text: 0.15 µs for an object without numbers that have fractions, however long its texts.
    if type(value) is not dict or not _easy(map(type, value.values())):
        odd = _oddity(value.values() if type(value) is dict else (value,))
        if odd == 2:
            refuse_inexact(value)  # names the field
            return b"".join(_pieces(value))
        if odd:
            text = to_json(_whole(value))
    if text.translate(_ODD) is not text:
        text = _escaped(text)
        if _ODD_KEY(text):
            return b"".join(_pieces(value))
    return text


# What most objects come to, as statements: `dumps` (there `encode`) is for the others.
INLINE = """\
t = None
if type(p) is dict and $easy(map(type, p.values())):
    try:
        t = $to_json(p)
    except Exception:
        pass
p = t if t is not None and t.translate($odd) is t else $encode(p)"""
INLINE_NAMES = {"easy": _easy, "to_json": to_json, "odd": _ODD}


def _oddity(values: Collection[Any]) -> int:
    """Whether Go writes something in them in another way than the encoder: 0 = nothing, 1 = doubles that are whole numbers,
    2 = something else."""
    found = 0
    levels = [values]
    for level in levels:  # grows
        for item in level:
            kind = type(item)
            if kind in _EASY:
                continue
            if kind is float:
                if item.is_integer():
                    if not -_EXACT < item < _EXACT or (item == 0 and str(item) == "-0.0"):
                        return 2
                    found = 1
                elif not (1e-5 <= item < 1e16 or -1e16 < item <= -1e-5):  # NaN too
                    return 2
            elif kind is dict or kind is list:
                inner = item.values() if kind is dict else item
                if not _easy(map(type, inner)):
                    levels.append(inner)
            else:
                return 2
    return found


def _whole(value: Any) -> Any:
    """With integers for doubles that are whole numbers."""
    kind = type(value)
    if kind is dict:
        return {k: v if type(v) in _EASY else _whole(v) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in _EASY else _whole(v) for v in value]
    return int(value) if kind is float and value.is_integer() else value


def _escaped(text: bytes) -> bytes:
    """All of these stand inside texts: nothing else in JSON has them."""
    if text.find(b"\\b") >= 0 or text.find(b"\\f") >= 0:
        text = _SHORT.sub(lambda m: {b"b": b"\\u0008", b"f": b"\\u000c"}.get(m[1], m[0]), text)
    text = text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if text.find(b"\xe2\x80") >= 0:
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


def float_text(value: float) -> str:
    """A double as Go's JSON has it: 1, 0.000001, 1e-07, 1e+21."""
    return in_full(value) if not value or 1e-6 <= abs(value) < 1e21 else short(value)


def _pieces(value: Any) -> Iterator[bytes]:
    """The same, slowly: for doubles that Go writes in another way, times, texts that are not UTF-8, keys that are escaped,
    and what is deeper than the encoder goes."""
    open_: list[Iterator[tuple[bytes, Any]]] = [iter([(b"", value)])]
    ends: list[bytes] = [b""]
    while open_:
        for before, item in open_[-1]:
            yield before
            if isinstance(item, dict):
                open_.append(_members(item))
                ends.append(b"}")
                yield b"{"
            elif isinstance(item, list | tuple):
                open_.append((b"," if n else b"", v) for n, v in enumerate(item))
                ends.append(b"]")
                yield b"["
            else:
                yield _plain(item)
                continue
            break
        else:
            open_.pop()
            yield ends.pop()


def _members(value: dict[str, Any]) -> Iterator[tuple[bytes, Any]]:
    for n, (key, item) in enumerate(sorted(((_quoted(k), v) for k, v in value.items()), key=_first)):
        yield (b"," if n else b"") + key + b":", item


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


def _plain(value: Any) -> bytes:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        refuse_inexact(value)
        return float_text(value).encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return b'"' + base64.b64encode(value) + b'"'
    if isinstance(value, datetime):
        return b'"' + time_text(value).encode() + b'"'
    if value is None or isinstance(value, bool | int | Decimal | date | time):
        refuse_inexact(value)
        return to_json(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def time_text(value: datetime) -> str:
    """RFC 3339 without zeros at the end of the fraction."""
    return rfc3339(value)


def _quoted(text: Any) -> bytes:
    if not isinstance(text, str):  # a key of a typed map
        return b'"' + to_json(text).strip(b'"') + b'"'
    try:
        return _escaped(msgspec.json.encode(text))
    except UnicodeEncodeError:  # each byte that is none of a character, as six plain ones
        parts = re.split("[\ud800-\udfff]", text)
        return b'"' + b"\\ufffd".join(_escaped(msgspec.json.encode(part))[1:-1] for part in parts) + b'"'
