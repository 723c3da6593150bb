"""From JSON text, or an open payload, to the typed values of a declared schema, and from those to an Arrow column. Strict.

Runs in Spark tasks, one `TypedDecoder` per task. There are two ways, and one meaning. The slow way (`_Filler`) is the meaning:
it looks at every value and names the field that does not fit. The fast way (`_Quick`) has msgspec decode into a struct made from
the schema, and is believed only where it can't differ; what it refuses, or is not sure of, the slow way decides.

Decisions:
- A number written as an integer is kept exactly or refused, in FLOAT and DOUBLE as well; one with a point or an exponent is
  rounded to the nearest, which is what these types mean. So 1e-400 is 0, and 1e400, which has no nearest, is refused.
- DECIMAL takes numbers, and strings spelled like JSON numbers. Of a Python float (an open payload has them) it takes up to 15
  digits: with more, the digits that were sent are not known any more.
- A key that is twice in one object is refused. The fast way finds it by counting quotation marks.
- Base64 has its padding; unused bits of its last character do not count, as RFC 4648 (3.5) allows.
- NaN and infinities are no JSON; from an open payload, FLOAT and DOUBLE take them.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from penstock.plan.schema import DIGITS, Schema, Type
from penstock_sdk.errors import Rejected

if TYPE_CHECKING:
    import pyarrow as pa

Path = tuple[Any, Any] | None  # (the way to the parent, a field's name, an index, or a map's key as a tuple of one)
Fill = Callable[[Any, Path], Any]
Scan = Callable[[Any], tuple[Any, int]]  # the value as it is kept, and how many quotation marks it took

INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
EXACT = {"FLOAT": 2**24, "DOUBLE": 2**53}  # integers below it, in size, are held exactly
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


class TypedDecoder:
    """Values are kept as objects that only this class looks into: `column` and `to_dict` take them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        root = schema.type
        self._made: dict[Type, type] = {}
        self._filler = _Filler(self._class)
        self._fill = self._filler.of(root)
        self._quick = _Quick(self._class).root(root)
        self._build = _builder(root)
        self._plain = _plain(root)
        self._parse = json.JSONDecoder(
            object_pairs_hook=_object, parse_float=_number, parse_int=_integer, parse_constant=_no_constant
        ).decode

    def from_json(self, text: bytes) -> Any:
        """None when there is no payload: nothing, or `null`. Raises `Rejected`."""
        if self._quick is not None and (found := self._quick(text)) is not None:
            return found
        if not text:
            return None
        try:
            value = self._parse(str(text, "utf-8"))
        except UnicodeDecodeError as e:
            raise Rejected(f"the payload is not UTF-8: {e.reason} at byte {e.start}", code="json.invalid") from None
        except RecursionError:
            raise Rejected("the payload is nested too deep", code="json.invalid") from None
        except ValueError as e:
            raise Rejected(f"the payload is not JSON: {e}", code="json.invalid") from None
        return self.from_value(value)

    def from_value(self, value: Any) -> Any:
        """The same from an open payload. What came as text in JSON may be text here as well."""
        if value is None:
            return None
        if not isinstance(value, dict):
            kind = _KINDS.get(type(value), type(value).__name__)
            raise Rejected(f"the payload is {kind}, not an object", code="json.not-an-object")
        return self._fill(value, None)

    def column(self, objects: Sequence[Any]) -> pa.StructArray:
        return self._build(objects)

    def to_dict(self, obj: Any) -> dict[str, Any]:
        """Every field of the schema, with the values that the column holds; a MAP is a dict."""
        found: dict[str, Any] = self._plain(obj)
        return found

    def _class(self, type_: Type) -> type:
        """What holds the values of a STRUCT: attributes f0, f1, … in the order of the schema."""
        if type_ not in self._made:
            self._made[type_] = _struct_class(type_, self._class)
        return self._made[type_]


# --- what holds the values ---


class _Missing:
    """In place of a field that was not sent, until it is counted: `null` has a key in the text, and this has not."""


MISSING = _Missing()
_UNFIT = re.compile(r'["\\\x00-\x1f]')  # msgspec can't decode fields with such names


def _struct_class(type_: Type, class_of: Callable[[Type], type]) -> type:
    import msgspec

    names = {f"f{i}": f.name for i, f in enumerate(type_.fields)}
    rename = {} if _UNFIT.search("".join(names.values())) else names
    fields = [
        (f"f{i}", _hint(f.type, class_of, f.nullable), msgspec.field(default=MISSING))
        for i, f in enumerate(type_.fields)
    ]
    # nothing in it can refer back to it, so the garbage collector need not look
    return msgspec.defstruct("Typed", fields, rename=rename, forbid_unknown_fields=True, gc=False)


def _hint(type_: Type, class_of: Callable[[Type], type], nullable: bool) -> Any:
    """What msgspec decodes. It is told to refuse all that it would change; text of times and decimals we read ourselves:
    it rounds more than 6 digits of a second, and takes `"1_0"` and `"NaN"` as decimals."""
    import msgspec

    made: Any
    if type_.name in INTEGERS:
        limit = 2 ** INTEGERS[type_.name]
        made = Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    elif type_.name in EXACT:
        exact = float(EXACT[type_.name])
        made = Annotated[float, msgspec.Meta(gt=-exact, lt=exact)]
    elif type_.name == "DECIMAL":
        return msgspec.Raw
    elif type_.name == "STRUCT":
        made = class_of(type_)
    elif type_.of is not None:
        of: Any = _hint(type_.of, class_of, True)
        made = list[of] if type_.name == "ARRAY" else dict[str, of]
    else:
        made = {"BOOLEAN": bool, "DATE": date, "BINARY": bytes}.get(type_.name, str)
    return made | None if nullable else made


# --- the fast way ---


class _Unsure(Exception):
    pass


class _Quick:
    """Makes functions that look over what msgspec has decoded: they read times and decimals, and count quotation marks.

    If the text has more of them than its fields and strings account for, a key was there twice. Escaped ones are counted
    apart, so the sum is exact.
    """

    def __init__(self, class_of: Callable[[Type], type]) -> None:
        self.class_of = class_of

    def root(self, type_: Type) -> Callable[[bytes], Any] | None:
        if _has_unfit_name(type_):
            return None
        import msgspec

        decode: Callable[[bytes], Any] = msgspec.json.Decoder(self.class_of(type_)).decode
        look = self.struct(type_)

        def quick(text: bytes) -> Any:
            try:
                made = decode(text)
                expected = look(made)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, _Unsure):
                return None
            surplus = text.count(b'"') - expected
            if surplus and surplus != text.replace(b"\\\\", b"").count(b'\\"'):
                return None
            return made

        return quick

    def struct(self, type_: Type) -> Callable[[Any], int]:
        """One function as source text: 6 fields cost 0.10 µs like that, 0.34 µs in a loop."""
        names: dict[str, Any] = {"M": MISSING, "Unsure": _Unsure}
        lines = ["def look(o):", f"    q = {2 * len(type_.fields) + 2 * sum(_is_text(f.type) for f in type_.fields)}"]
        for i, f in enumerate(type_.fields):
            scan = None if f.type.name == "STRING" else self.scan(f.type)
            marks = 2 if _is_text(f.type) else 0
            keep = f.type.name in ("TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL")  # what is kept differs from what came
            branches = []
            if not f.nullable:
                branches.append(("v is M", "raise Unsure"))
            else:
                branches.append(("v is M", f"o.f{i} = None; q -= {2 + marks}"))
                if marks or (scan and f.type.name != "DECIMAL"):
                    branches.append(("v is None", f"q -= {marks}"))
            if scan is not None:
                names[f"s{i}"] = scan
                made = f"o.f{i}" if keep else "v"
                more = [f"{made}, n = s{i}(v)", f"q += n - {marks}"]
                if f.type.name == "DECIMAL" and not f.nullable:
                    more.append(f"if o.f{i} is None: raise Unsure")
                branches.append(("", "; ".join(more[:2]) + ("\n        " + more[2] if len(more) > 2 else "")))
            lines.append(f"    v = o.f{i}")
            for n, (test, act) in enumerate(branches):
                lines.append(f"    {'else' if not test else ('elif ' if n else 'if ') + test}:\n        {act}")
        lines.append("    return q")
        exec("\n".join(lines), names)
        made_look: Callable[[Any], int] = names["look"]
        return made_look

    def scan(self, type_: Type) -> Scan | None:
        """None where msgspec has done all, and there are no quotation marks to count but those of a text itself."""
        if type_.name == "DECIMAL":
            return _decimal_scan(type_)
        if type_.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
            return _instant_scan if type_.name == "TIMESTAMP" else _local_scan
        if type_.name == "STRUCT":
            look = self.struct(type_)
            return lambda v: (v, look(v))
        if type_.of is None:
            return None
        text, inner = _is_text(type_.of), self.scan(type_.of)
        if type_.name == "MAP":
            return _map_scan(text, inner)
        return _list_scan(text, inner) if text or inner else None


def _has_unfit_name(type_: Type) -> bool:
    if type_.of is not None:
        return _has_unfit_name(type_.of)
    return any(_UNFIT.search(f.name) or _has_unfit_name(f.type) for f in type_.fields)


def _is_text(type_: Type) -> bool:
    return type_.name in ("STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY")


def _list_scan(text: bool, inner: Scan | None) -> Scan:
    def texts(values: list[Any]) -> tuple[Any, int]:
        return values, 2 * (len(values) - values.count(None))

    def scan(values: list[Any]) -> tuple[Any, int]:
        q = 0
        for i, v in enumerate(values):
            if v is not None:
                values[i], n = inner(v)  # type: ignore[misc]
                q += n
        return values, q

    return texts if inner is None and text else scan


def _map_scan(text: bool, inner: Scan | None) -> Scan:
    def scan(values: dict[str, Any]) -> tuple[Any, int]:
        q = 2 * len(values)
        if inner is not None:
            for k, v in values.items():
                if v is not None:
                    values[k], n = inner(v)
                    q += n
        elif text:
            q += 2 * sum(v is not None for v in values.values())
        return values, q

    return scan


_CLOCK = r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6}+)?+"
_in_utc = re.compile(_CLOCK + "Z", re.ASCII).fullmatch
_in_no_zone = re.compile(_CLOCK, re.ASCII).fullmatch
_iso = datetime.fromisoformat  # takes much more than is ISO 8601, so the pattern comes first


def _instant_scan(text: str) -> tuple[Any, int]:
    if _in_utc(text) is None:
        return _timestamp(text, None, _unsure), 2
    try:
        return _iso(text[:-1]), 2
    except ValueError:
        raise _Unsure from None


def _local_scan(text: str) -> tuple[Any, int]:
    if _in_no_zone(text) is None:
        raise _Unsure
    try:
        return _iso(text), 2
    except ValueError:
        raise _Unsure from None


def _unsure(*_: Any) -> NoReturn:
    raise _Unsure


def _decimal_scan(type_: Type) -> Scan:
    """A decimal is kept as its digits: Arrow reads 10 million of those in the time it takes for one million `Decimal`s."""
    before, spare = (
        type_.precision - type_.scale,
        DIGITS - type_.precision,
    )  # zeros that Arrow's own limit leaves room for
    whole = f"(?:0|[1-9][0-9]{{0,{before - 1}}}+)" if before else "0"
    digits = f"[0-9]{{1,{type_.scale}}}+0{{0,{spare}}}+" if type_.scale else f"0{{1,{spare}}}+"
    fraction = f"(?:\\.{digits})?+" if type_.scale or spare else ""
    match = re.compile(f'("?)(-?{whole}{fraction})\\1'.encode()).fullmatch

    def scan(raw: Any) -> tuple[Any, int]:
        found = match(raw)
        if found is not None:
            return found[2], 2 if found[1] else 0
        if bytes(raw) == b"null":
            return None, 0
        raise _Unsure

    return scan


# --- the slow way ---


class _Twice(dict[str, Any]):
    """A JSON object with a key that was there twice."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    twice, seen = _Twice(made), set()
    for key, _ in pairs:
        if key in seen:
            twice.key = key
            break
        seen.add(key)
    return twice


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits and more: as far out as we can say
        return Decimal(("-" if text[0] == "-" else "") + ("1e-999999" if "-" in text[1:] else "1e999999"))


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < 4000 else Decimal(text)  # Python itself refuses to read longer ones


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_KINDS = {
    str: "a string", bool: "a boolean", int: "a number", float: "a number", Decimal: "a number", list: "an array",
    dict: "an object", _Twice: "an object", bytes: "bytes", datetime: "a datetime", date: "a date",
}  # fmt: skip


def _shown(value: Any) -> str:
    import msgspec

    try:
        finite = not isinstance(value, float) or value - value == 0
        text = msgspec.json.Encoder(decimal_format="number").encode(value) if finite else repr(value).encode()
        shown = text[:500].decode(errors="ignore")
    except Exception:
        try:
            shown = repr(value)[:500]
        except Exception:
            shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 100 else shown[:97] + "..."


_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


def _written(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, key = path
        if isinstance(key, str) and _PLAIN_NAME.fullmatch(key):
            parts.append(f".{key if len(key) <= 100 else key[:97] + '...'}")
        else:
            parts.append(f"[{_shown(key[0] if isinstance(key, tuple) else key)}]")
    return "".join(reversed(parts)).removeprefix(".")


def _mismatch(what: str, path: Path, hint: str = "") -> NoReturn:
    raise Rejected(f"field {_written(path)}: {what}" if path else what, code="schema.mismatch", hint=hint)


def _bad(value: Any, type_: Any, path: Path, why: str = "", hint: str = "") -> NoReturn:
    kind = _KINDS.get(type(value), f"a {type(value).__name__}")
    _mismatch(f"expected {type_}, got {kind}: {_shown(value)}" + (f" ({why})" if why else ""), path, hint)


class _Filler:
    """Makes functions from any value to what is kept of it, by type."""

    def __init__(self, class_of: Callable[[Type], type]) -> None:
        self.class_of = class_of

    def of(self, type_: Type) -> Fill:
        name = type_.name
        if name in INTEGERS:
            return _integers(type_)
        if name in EXACT:
            return _floats(type_)
        if name == "DECIMAL":
            return _decimals(type_)
        if name == "STRUCT":
            return self._struct(type_)
        if type_.of is not None:
            return self._list(type_) if name == "ARRAY" else self._map(type_)
        return {
            "STRING": _string,
            "BOOLEAN": _boolean,
            "DATE": _date,
            "TIMESTAMP": _timestamp,
            "TIMESTAMP_NTZ": _local,
            "BINARY": _binary,
        }[name]

    def _struct(self, type_: Type) -> Fill:
        made = self.class_of(type_)
        fields = [(f.name, self.of(f.type), f.nullable, f.type) for f in type_.fields]
        known = frozenset(f.name for f in type_.fields)

        def fill(value: Any, path: Path) -> Any:
            if not isinstance(value, dict):
                _bad(value, "an object" if len(fields) > 10 else type_, path)
            if type(value) is _Twice:
                _mismatch("the key is there twice in one object", (path, value.key), "send it once")
            if not value.keys() <= known:
                key = next(k for k in value if k not in known)
                _mismatch(
                    f"is not in the schema, got {_shown(value[key])}",
                    (path, key),
                    "add it to the schema, or take it out before",
                )
            kept = []
            for name, inner, nullable, of in fields:
                v = value.get(name)
                if v is not None:
                    kept.append(inner(v, (path, name)))
                elif nullable:
                    kept.append(None)
                else:
                    _mismatch(f"expected {of} NOT NULL, got {'null' if name in value else 'nothing'}", (path, name))
            return made(*kept)

        return fill

    def _list(self, type_: Type) -> Fill:
        assert type_.of is not None
        inner = self.of(type_.of)

        def fill(value: Any, path: Path) -> Any:
            if not isinstance(value, list | tuple):
                _bad(value, type_, path)
            return [None if v is None else inner(v, (path, i)) for i, v in enumerate(value)]

        return fill

    def _map(self, type_: Type) -> Fill:
        assert type_.of is not None
        inner = self.of(type_.of)

        def fill(value: Any, path: Path) -> Any:
            if not isinstance(value, dict):
                _bad(value, type_, path)
            if type(value) is _Twice:
                _mismatch("the key is there twice in one object", (path, (value.key,)), "send it once")
            made = {}
            for k, v in value.items():
                at = (path, (k,))
                made[_string(k, at)] = None if v is None else inner(v, at)
            return made

        return fill


def _string(value: Any, path: Path) -> str:
    if not isinstance(value, str):
        _bad(value, "STRING", path)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _bad(value, "STRING", path, "half of a surrogate pair, which UTF-8 can't hold")
    return value


def _boolean(value: Any, path: Path) -> bool:
    return value if isinstance(value, bool) else _bad(value, "BOOLEAN", path)


def _integers(type_: Type) -> Fill:
    limit = 2 ** INTEGERS[type_.name]

    def fill(value: Any, path: Path) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            number = isinstance(value, float | Decimal)
            _bad(value, type_, path, "not written as an integer" if number else "")
        return value if -limit <= value < limit else _bad(value, type_, path, "out of range")

    return fill


def float32(value: float) -> float:
    """The nearest float. OverflowError where there is none."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _floats(type_: Type) -> Fill:
    narrow = float32 if type_.name == "FLOAT" else float

    def fill(value: Any, path: Path) -> float:
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
            _bad(value, type_, path)
        whole = isinstance(value, int)
        if isinstance(value, Decimal):
            if not value.is_finite():
                _bad(value, type_, path, "not a finite number")
            whole = value.as_tuple().exponent == 0
        try:
            made = narrow(float(value))
        except OverflowError:
            _bad(value, type_, path, "out of range")
        if not isinstance(value, float) and made in (float("inf"), float("-inf")):
            _bad(value, type_, path, "out of range")
        if whole and made != value:
            _bad(
                value, type_, path, f"an integer that a {type_.name} can't hold exactly", "use BIGINT or DECIMAL(38,0)"
            )
        return made

    return fill


_spelled = re.compile(NUMBER).fullmatch


def _decimals(type_: Type) -> Fill:
    context = Context(prec=type_.precision, traps=[InvalidOperation, Inexact])
    unit = Decimal((0, (1,), -type_.scale))
    raw_hint = "decode it with the schema from the raw payload, or send it as a string"

    def fill(value: Any, path: Path) -> bytes:
        number: Decimal
        if isinstance(value, Decimal):
            number = value
        elif isinstance(value, int) and not isinstance(value, bool):
            number = Decimal(value)
        elif isinstance(value, str) and _spelled(value):
            number = _number(value)
        elif isinstance(value, float):
            number = Decimal(repr(value))
            if number.is_finite() and len(number.normalize().as_tuple().digits) > 15:
                _bad(value, type_, path, "a double of more than 15 digits is not exact", raw_hint)
        else:
            _bad(value, type_, path)
        if not number.is_finite():
            _bad(value, type_, path, "not a finite number")
        try:
            return f"{number.quantize(unit, None, context):f}".encode()
        except Inexact:
            _bad(value, type_, path, f"more than {type_.scale} digits behind the point")
        except InvalidOperation:
            _bad(value, type_, path, f"more than {type_.precision - type_.scale} digits before the point")

    return fill


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]+))?"
    r"(?:([Zz])|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
).fullmatch


def _date(value: Any, path: Path) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DAY(value):
        _bad(value, "DATE", path, "a date is written 2024-12-31")
    try:
        return date.fromisoformat(value)
    except ValueError:
        _bad(value, "DATE", path, "there is no such day")


def _time(value: str, type_: str, path: Path, bad: Callable[..., NoReturn]) -> tuple[datetime, timedelta | None]:
    found = _TIME(value)
    if found is None or (found[4] and not found[3]):
        bad(value, type_, path, "a time is written 2024-12-31T23:59:59.123456" + ("Z" if type_ == "TIMESTAMP" else ""))
    day, minute, second, fraction, zulu, sign, hours, minutes = found.groups()
    if fraction and fraction[6:].strip("0"):
        bad(value, type_, path, "more than 6 digits of a second")
    offset = timedelta(0) if zulu else None
    if sign:
        if int(hours) > 23 or int(minutes or 0) > 59:
            bad(value, type_, path, "there is no such offset")
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        made = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{(fraction or '')[:6]:0<6}")
    except ValueError:
        bad(value, type_, path, "there is no such time")
    return made, offset


def _timestamp(value: Any, path: Path, bad: Callable[..., NoReturn] = _bad) -> datetime:
    """As UTC, but without saying so: Arrow reads such values in half the time."""
    zone = "use TIMESTAMP_NTZ for times without an offset"
    try:
        if isinstance(value, datetime):
            if value.utcoffset() is None:
                bad(value, "TIMESTAMP", path, "it has no offset", zone)
            return value.astimezone(UTC).replace(tzinfo=None)
        if not isinstance(value, str):
            bad(value, "TIMESTAMP", path)
        made, offset = _time(value, "TIMESTAMP", path, bad)
        if offset is None:
            bad(value, "TIMESTAMP", path, "it has no offset", zone)
        return made - offset
    except OverflowError:
        bad(value, "TIMESTAMP", path, "the years are 0001 to 9999, in UTC")


def _local(value: Any, path: Path) -> datetime:
    zone = "use TIMESTAMP for times with an offset"
    if isinstance(value, datetime):
        return value if value.tzinfo is None else _bad(value, "TIMESTAMP_NTZ", path, "it has an offset", zone)
    if not isinstance(value, str):
        _bad(value, "TIMESTAMP_NTZ", path)
    made, offset = _time(value, "TIMESTAMP_NTZ", path, _bad)
    return made if offset is None else _bad(value, "TIMESTAMP_NTZ", path, "it has an offset", zone)


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch


def _binary(value: Any, path: Path) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str) or not _BASE64(value):
        _bad(value, "BINARY", path, "bytes are written in base64")
    return base64.b64decode(value)


# --- from what is kept ---


def _builder(type_: Type) -> Callable[[Sequence[Any]], Any]:
    """Arrow's array of a type from a list of what is kept."""
    import pyarrow as pa

    arrow = type_.arrow()
    if type_.name == "DECIMAL":
        return lambda values: pa.array(values, pa.binary()).view(pa.string()).cast(arrow)
    if type_.name == "STRUCT":
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        parts = [(attrgetter(f"f{i}"), _builder(f.type)) for i, f in enumerate(type_.fields)]

        def structs(values: Sequence[Any]) -> Any:
            mask = None
            if any(v is None for v in values):
                mask = pa.array([v is None for v in values], pa.bool_())
                arrays = [build([None if v is None else get(v) for v in values]) for get, build in parts]
            else:
                arrays = [build(list(map(get, values))) for get, build in parts]
            return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

        return structs
    if type_.of is None or (
        type_.name == "ARRAY" and type_.of.of is None and type_.of.name not in ("DECIMAL", "STRUCT")
    ):
        return lambda values: pa.array(values, arrow)
    inner = _builder(type_.of)

    def nested(values: Sequence[Any]) -> Any:
        at, offsets = 0, []
        for v in values:
            offsets.append(None if v is None else at)
            at += 0 if v is None else len(v)
        starts = pa.array([*offsets, at], pa.int32())
        there = [v for v in values if v is not None]
        if type_.name == "ARRAY":
            return pa.ListArray.from_arrays(starts, inner(list(chain.from_iterable(there))), type=arrow)
        keys = pa.array(list(chain.from_iterable(there)), pa.string())
        return pa.MapArray.from_arrays(starts, keys, inner([x for v in there for x in v.values()]))

    return nested


def _plain(type_: Type) -> Callable[[Any], Any]:
    """From what is kept to plain Python values, the same that the column gives."""
    if type_.name == "DECIMAL":
        unit, context = Decimal((0, (1,), -type_.scale)), Context(prec=DIGITS)

        def decimal(value: bytes) -> Decimal:
            made = Decimal(value.decode()).quantize(unit, None, context)
            return made if made else abs(made)  # Arrow's decimals have no -0

        return decimal
    if type_.name == "STRUCT":
        parts = [(f.name, attrgetter(f"f{i}"), _plain_or_none(f.type)) for i, f in enumerate(type_.fields)]

        def fields(value: Any) -> dict[str, Any]:
            return {name: v if to is None or v is None else to(v) for name, get, to in parts for v in (get(value),)}

        return fields
    if type_.of is not None:
        to = _plain_or_none(type_.of)
        if type_.name == "ARRAY":
            return lambda values: [v if to is None or v is None else to(v) for v in values]
        return lambda values: {k: v if to is None or v is None else to(v) for k, v in values.items()}
    if type_.name == "TIMESTAMP":
        return lambda value: value.replace(tzinfo=UTC)
    return float32 if type_.name == "FLOAT" else lambda value: value


def _plain_or_none(type_: Type) -> Callable[[Any], Any] | None:
    """None where what is kept is what is given."""
    same = type_.of is None and type_.name not in ("DECIMAL", "STRUCT", "TIMESTAMP", "FLOAT")
    return None if same else _plain(type_)
