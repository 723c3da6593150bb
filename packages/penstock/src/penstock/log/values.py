"""Open payloads as text: plain JSON where that gives the very value back, else extended JSON, which keeps types. Pure.

Called for every open payload that goes into a log or comes out of one. In extended JSON an object whose only key begins with `$` is a
tag: `{"$date": "2024-02-29"}`. Which of both a text is stands beside it, so a plain object is never taken for a tag.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from penstock.errors import Rejected

MAX_DEPTH: Final = 200  # a reader needs as much of the stack as the writer had, and does not know how much that was
_LONG: Final = 2048  # bits; Python refuses to read integers of many more digits
_SAME: Final = frozenset({str, int, float, bool, type(None)})
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, eq=False)
class ObjectId:
    """Twelve bytes that name a document of MongoDB. Equal to any other class's ObjectId with the same bytes."""

    binary: bytes

    def __post_init__(self) -> None:
        if type(self.binary) is not bytes or len(self.binary) != 12:
            raise ValueError("an object id has 12 bytes")

    def __str__(self) -> str:
        return self.binary.hex()

    def __eq__(self, other: object) -> bool:
        return type(other).__name__ == "ObjectId" and getattr(other, "binary", None) == self.binary

    def __hash__(self) -> int:
        return hash(self.binary)


def encode(value: dict[str, Any], name: str = "") -> tuple[str, bool]:
    """The text, and whether it is extended JSON. `Rejected` for what can't be kept; `name` begins the path it is named by."""
    try:
        # Writing, reading back and comparing: 1.8 µs for 150 bytes. A look at every value first would add 2 µs.
        made = _to_json(value)
        if _from_json(made) == value and made.count(b"{") + made.count(b"[") <= MAX_DEPTH:
            return made.decode(), False
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        pass  # a text, a number or a type that plain JSON does not have
    return _extended(value, name)


def decode(text: str, extended: bool) -> dict[str, Any]:
    """The payload again. ValueError where the text is none."""
    try:
        value = _from_json(text)
        if extended:
            value = _untagged(value)
    except RecursionError:
        raise ValueError("an open payload in the log is nested too deeply") from None
    except (ValueError, TypeError, ArithmeticError, AttributeError) as e:
        raise ValueError(f"an open payload in the log is not {'extended ' * extended}JSON: {e}") from None
    if type(value) is not dict:
        raise ValueError(f"an open payload in the log is a JSON object; this is {type(value).__name__}")
    return value


# -- to extended JSON --------------------------------------------------------------------------------------------------------


class _Unkept(Exception):
    """Gathers the path on its way up."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint
        self.path: list[str] = []


def _extended(value: dict[str, Any], name: str) -> tuple[str, bool]:
    try:
        tagged = _tagged(value, 1)
        made = _to_json(tagged).decode()
    except _Unkept as e:
        steps = e.path[::-1] if len(e.path) < 20 else [*e.path[:-10:-1], "…"]
        path = (name + "".join(steps)).lstrip(".") or "the payload"
        raise Rejected(f"The log can't keep {path}", code="log.value", why=e.why, hint=e.hint) from None
    # Deep, or text of another class, but nothing that needs a tag: it is plain all the same.
    return made, not _is_plain(made, value)


def _is_plain(made: str, value: dict[str, Any]) -> bool:
    try:
        return bool(_from_json(made) == value)
    except (ValueError, ArithmeticError):
        return False


def _tagged(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if value.bit_length() <= _LONG else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is dict:
        return _object(value, depth)
    if kind is list:
        return _array(value, depth)
    to_tag = _TO_TAGS.get(kind)
    if to_tag is not None:
        tag, function = to_tag
        return {tag: function(value)}
    return _other(value, depth)


def _object(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    _check_depth(depth)
    made: dict[str, Any] = {}
    odd = False
    for key, item in value.items():
        if not isinstance(key, str):
            hint = "make the keys of the object strings"
            raise _Unkept(f"it has the key {key!r} of type {type(key).__name__}, and keys are strings", hint)
        try:
            made[key] = _tagged(item, depth + 1)
        except _Unkept as e:
            e.path.append(f".{key}")
            raise
        odd = odd or not (key.isascii() or _text(key) is key)
    if odd or (len(made) == 1 and next(iter(made)).startswith("$")):
        return {"$map": [[_text(key), item] for key, item in made.items()]}
    return made


def _array(value: list[Any], depth: int) -> list[Any]:
    _check_depth(depth)
    made = []
    for i, item in enumerate(value):
        try:
            made.append(_tagged(item, depth + 1))
        except _Unkept as e:
            e.path.append(f"[{i}]")
            raise
    return made


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Unkept(f"it is nested more than {MAX_DEPTH} levels deep", "keep it as text or bytes, or flatten it")


def _text(value: str) -> Any:
    """Half of a surrogate pair is allowed in Python and has no UTF-8."""
    value = str.__str__(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$text": _base64(value.encode("utf-8", "surrogatepass"))}
    return value


def _other(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind.__name__ == "ObjectId":
        binary = getattr(value, "binary", None)
        if type(binary) is bytes and len(binary) == 12:
            return {"$oid": binary.hex()}
    for base, plain in _BASES:
        if isinstance(value, base):
            # An enum of strings, a number of NumPy's: kept as what it is derived from, if that is equal to it. A pandas.Timestamp
            # with nanoseconds is not.
            made = _as_base(value, plain)
            if made is not None:
                return _tagged(made, depth)
            why = f"it is a {kind.__module__}.{kind.__qualname__} with more in it than a {base.__name__} has"
            raise _Unkept(why, f"make it a {base.__name__}, or text")
    raise _Unkept(
        f"it is a {kind.__module__}.{kind.__qualname__}", _HINTS.get(kind, "make it text, a number or an object")
    )


def _as_base(value: Any, plain: Callable[[Any], Any]) -> Any:
    try:
        made = plain(value)
        equal = made == value or made != made
    except (ValueError, TypeError, ArithmeticError):
        return None  # pandas.NaT is a datetime without a year
    return made if equal else None


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _duration(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


_TO_TAGS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    time: ("$time", time.isoformat),
    timedelta: ("$duration", _duration),
    bytes: ("$binary", _base64),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    ObjectId: ("$oid", str),
}
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, dict),
    (list, list),
    (bytes, bytes.__bytes__),
    (datetime, lambda v: datetime.combine(date(v.year, v.month, v.day), v.timetz())),
    (date, lambda v: date(v.year, v.month, v.day)),
    (time, lambda v: time(v.hour, v.minute, v.second, v.microsecond, v.tzinfo)),
    (timedelta, lambda v: timedelta(v.days, v.seconds, v.microseconds)),
    (Decimal, Decimal),
    (UUID, lambda v: UUID(int=v.int)),
)
_HINTS: dict[type, str] = {
    tuple: "make it a list",
    set: "make it a list",
    frozenset: "make it a list",
    bytearray: "make it bytes",
    memoryview: "make it bytes",
}


# -- and back ----------------------------------------------------------------------------------------------------------------


def _untagged(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        if len(value) == 1:
            ((key, item),) = value.items()
            if key[:1] == "$":
                return _untag(key, item)
        return {k: v if type(v) in _SAME else _untagged(v) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in _SAME else _untagged(v) for v in value]
    return value


def _untag(tag: str, value: Any) -> Any:
    if tag not in _FROM_TAGS:
        raise ValueError(f"the tag {tag} is not known; a newer Penstock may have written it")
    expected, function = _FROM_TAGS[tag]
    if type(value) is not expected:
        raise ValueError(f"the tag {tag} has a {expected.__name__}, not {value!r:.40}")
    return function(value)


T = TypeVar("T", datetime, time)


def from_iso(kind: type[T], text: str) -> T:
    """Python's own takes an offset below one second, which some generated data has, for none."""
    if text[-16:-15] in ("+", "-"):
        part = time.fromisoformat(text[-15:])
        offset = timedelta(0, part.second, part.microsecond, 0, part.minute, part.hour)
        zone = timezone(offset if text[-16] == "+" else -offset)
        return kind.fromisoformat(text[:-16]).replace(tzinfo=zone)
    return kind.fromisoformat(text)


def _map(pairs: list[Any]) -> dict[str, Any]:
    made = {}
    for key, item in pairs:
        name = _untagged(key)
        if type(name) is not str:
            raise ValueError(f"a key is a string, not {name!r:.40}")
        made[name] = _untagged(item)
    return made


def _from_base64(value: str) -> bytes:
    return b64decode(value, validate=True)


_FROM_TAGS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "$datetime": (str, partial(from_iso, datetime)),
    "$date": (str, date.fromisoformat),
    "$time": (str, partial(from_iso, time)),
    "$duration": (list, lambda v: timedelta(*v)),
    "$binary": (str, _from_base64),
    "$decimal": (str, Decimal),
    "$uuid": (str, UUID),
    "$oid": (str, lambda v: ObjectId(bytes.fromhex(v))),
    "$int": (str, lambda v: int(v, 16)),
    "$float": (str, float),
    "$text": (str, lambda v: _from_base64(v).decode("utf-8", "surrogatepass")),
    "$map": (list, _map),
}
