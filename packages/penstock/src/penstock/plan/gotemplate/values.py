"""The values of a template: Python's, and the few kinds that only Go tells apart. Pure; runs in Spark's tasks.

A number of a payload is a plain `int`, `float` or `Decimal`: Go has a float64 there, and it compares with every number.
What the template makes itself has a Go type (`Int`, `Float`), and Go's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from penstock.plan.gotemplate.errors import Failure

OPERATIONS: Final = ("create", "update", "delete", "snapshot")  # from 1


class _Missing:
    """What Go calls the invalid value: a key that is not there, and whatever nil becomes at the end of a pipeline."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


class _NoData(_Missing):
    """A payload or key that is absent: nil, but of a type, so it prints as <nil>."""


MISSING: Final = _Missing()
NO_DATA: Final = _NoData()


class Int(int):
    go: ClassVar[str] = "int"
    kind: ClassVar[str] = "int"


class Int64(Int):
    go = kind = "int64"


class Uint8(Int):
    go = kind = "uint8"


class Operation(Int):
    go = "opencdc.Operation"

    @property
    def name(self) -> str:
        return OPERATIONS[self - 1] if 1 <= self <= len(OPERATIONS) else f"Operation({int(self)})"


class Float(float):
    pass


class Position(bytes):
    pass


class Raw(bytes):
    pass


class Strings(list[Any]):
    pass


class NoList(list[Any]):
    """A list that is nil: empty, but null in JSON."""


class NoStrings(Strings):
    """The same, of texts."""


class Ints(list[Any]):
    pass


class Lists(list[Any]):
    pass


class Own(dict[str, Any]):
    """A map that the template made, and may change."""


class Texts(dict[str, Any]):
    """map[string]string"""


class Named:
    """A map of the record with a type of its own. Only where it is used as a whole."""

    __slots__ = ("value",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)


class Structured(Named):
    __slots__ = ()


class Metadata(Named):
    __slots__ = ()


class Struct:
    """A record or its payload, looked at as a whole."""

    __slots__ = ("fields", "go")

    def __init__(self, go: str, fields: dict[str, Any]) -> None:
        self.go = go
        self.fields = fields


_ANY_MAP = "map[string]interface {}"
# type → kind, Go's name of the type, class of comparison (i, f: of the template; n: of a payload)
_TYPES: Final[dict[type, tuple[str, str, str]]] = {
    str: ("string", "string", "s"),
    bool: ("bool", "bool", "b"),
    int: ("float64", "float64", "n"),
    float: ("float64", "float64", "n"),
    Decimal: ("float64", "float64", "n"),
    Float: ("float64", "float64", "f"),
    Int: ("int", "int", "i"),
    Int64: ("int64", "int64", "i"),
    Uint8: ("uint8", "uint8", "i"),
    Operation: ("int", Operation.go, "i"),
    bytes: ("slice", "[]uint8", ""),
    bytearray: ("slice", "[]uint8", ""),
    Position: ("slice", "opencdc.Position", ""),
    Raw: ("slice", "opencdc.RawData", ""),
    list: ("slice", "[]interface {}", ""),
    tuple: ("slice", "[]interface {}", ""),
    Strings: ("slice", "[]string", ""),
    NoList: ("slice", "[]interface {}", ""),
    NoStrings: ("slice", "[]string", ""),
    Ints: ("slice", "[]int", ""),
    Lists: ("slice", "[][]interface {}", ""),
    dict: ("map", _ANY_MAP, ""),
    Own: ("map", _ANY_MAP, ""),
    Texts: ("map", "map[string]string", ""),
    Structured: ("map", "opencdc.StructuredData", ""),
    Metadata: ("map", "opencdc.Metadata", ""),
    datetime: ("struct", "time.Time", ""),
    date: ("struct", "time.Time", ""),
    Struct: ("struct", "struct", ""),
    type(None): ("invalid", "<nil>", ""),
    _Missing: ("invalid", "<nil>", ""),
    _NoData: ("invalid", "<nil>", ""),
}
_CLASSES: Final = {t: c for t, (_, _, c) in _TYPES.items()}
_PAIRS: Final = frozenset({"ii", "ff", "nn", "in", "ni", "fn", "nf"})


def _described(v: Any) -> tuple[str, str, str]:
    found = _TYPES.get(type(v))
    if found is None:
        found = next((_TYPES[t] for t in type(v).__mro__ if t in _TYPES), None)
        if found is None:
            raise Failure(f"a value of the type {type(v).__name__} has no meaning in a template")
    return found


def kind_of(v: Any) -> str:
    return _described(v)[0]


def type_of(v: Any) -> str:
    return v.go if isinstance(v, Struct) else _described(v)[1]


def is_nil(v: Any) -> bool:
    if v is None or isinstance(v, _Missing):
        return True
    return isinstance(v, Metadata | Position | NoList | NoStrings) and not v  # or a record without them


def items_of(v: Any) -> Any:
    """The elements of a slice. None where it is no slice."""
    if isinstance(v, list | tuple):
        return v
    return [Uint8(b) for b in v] if isinstance(v, bytes | bytearray) else None


def map_of(v: Any) -> Mapping[str, Any] | None:
    if isinstance(v, Named):
        return v.value
    return v if isinstance(v, dict) else None


def moment(v: date) -> datetime:
    """A date is its midnight; a time without a zone is UTC."""
    if not isinstance(v, datetime):
        return datetime(v.year, v.month, v.day, tzinfo=UTC)
    return v if v.tzinfo is not None else v.replace(tzinfo=UTC)


def as_bytes(s: str) -> bytes:
    return s.encode("utf-8", "surrogateescape")


def as_text(b: bytes) -> str:
    return b.decode("utf-8", "surrogateescape")


def equal(a: Any, b: Any) -> bool:
    """Go's `eq` of two. Raises `Failure` where they can't be compared."""
    left, right = _CLASSES.get(type(a), ""), _CLASSES.get(type(b), "")
    if left and right:
        if left == right and left in "sb":
            return bool(a == b)
        if left + right in _PAIRS:
            return bool(_double(a) == _double(b))
    elif left or right:
        if kind_of(a) == "invalid" or kind_of(b) == "invalid":
            return False
    elif (is_nil(a) or is_nil(b)) and (kind_of(a) == kind_of(b) or "invalid" in (kind_of(a), kind_of(b))):
        return is_nil(a) and is_nil(b)
    elif not left and not right and isinstance(a, date) and isinstance(b, date):
        return moment(a) == moment(b)
    elif isinstance(a, Struct) and isinstance(b, Struct) and all(map(is_nil, (*a.fields.values(), *b.fields.values()))):
        return True
    if not left and not right and kind_of(a) == kind_of(b):
        raise Failure(f"{type_of(b)} can't be compared")
    raise Failure(f"{type_of(a)} can't be compared with {type_of(b)}")


def less(a: Any, b: Any) -> bool:
    left, right = _CLASSES.get(type(a), ""), _CLASSES.get(type(b), "")
    if left == right == "s":
        return bool(a < b) if a.isascii() and b.isascii() else as_bytes(a) < as_bytes(b)
    if left + right in _PAIRS:
        return bool(_double(a) < _double(b))
    raise Failure(f"{type_of(a)} and {type_of(b)} have no order")


def _double(v: Any) -> Any:
    return float(v) if type(v) is Decimal else v


def deep_equal(a: Any, b: Any) -> bool:
    """reflect.DeepEqual: types count, and a payload's number is a float64."""
    if type_of(a) != type_of(b):
        return False
    left, right = map_of(a), map_of(b)
    if left is not None and right is not None:
        return left.keys() == right.keys() and all(deep_equal(v, right[k]) for k, v in left.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(deep_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, date):
        return moment(a) == moment(b)
    if isinstance(a, Struct):
        return all(deep_equal(v, b.fields[k]) for k, v in a.fields.items())
    if kind_of(a) == "invalid":
        return True
    return bool(_double(a) == _double(b))
