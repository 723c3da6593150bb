"""Values as Go's text, and Go's text as values: what `fmt` prints with %v, and what `strconv` and `time` read. Pure.

Used by `field.convert` and by settings, in the engine and in Spark's tasks. A number of JSON is a double in Conduit; here a whole
one may be an `int`, and is printed as that double would be as long as a double holds it (below 2^53), else with all its digits.
Errors never show the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from penstock.plan.moment import Moment, point

EXACT = 2**53  # whole numbers below it, in size, are the same as doubles
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def trim(text: Any) -> Any:
    """`strings.TrimSpace`: Conduit does it to every setting."""
    return text.strip(_SPACE) if isinstance(text, str) else text


# --- to text ---


def text(value: Any) -> str:
    """How `field.convert` writes a field: numbers in full, bytes as the text they are, anything else as %v."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="surrogateescape")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return in_full(value)
    return printed(value)


def in_full(value: float) -> str:
    """`strconv.FormatFloat(value, 'f', -1, 64)`: the fewest digits that say which double it is, without an exponent."""
    if not math.isfinite(value):
        return _NAMES.get(value, "NaN")
    shown = repr(value)
    if "e" in shown:
        shown = format(Decimal(shown), "f")
    return shown.removesuffix(".0")


_NAMES = {math.inf: "+Inf", -math.inf: "-Inf"}


def printed(value: Any) -> str:
    """`fmt.Sprintf("%v", value)`."""
    if value is None:
        return "<nil>"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return short(float(value)) if -EXACT < value < EXACT else str(value)
    if isinstance(value, float):
        return short(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{printed(k)}:{printed(value[k])}' for k in sorted(value, key=str))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(printed, value))}]"
    if isinstance(value, bytes | bytearray):
        return f"[{' '.join(map(str, value))}]"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


def short(value: float) -> str:
    """%v of a double: the fewest digits, with an exponent below 1e-4 and from 1e+06 on."""
    if not math.isfinite(value):
        return _NAMES.get(value, "NaN")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1
    return in_full(value) if not value or -4 <= power < 6 else _scientific(sign, digits, power)


def _scientific(sign: int, digits: tuple[int, ...], power: int) -> str:
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' if sign else ''}{first}{'.' if rest else ''}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"


def moment(value: datetime) -> str:
    """`time.Time.String()`. One without an offset, which Go has not, is written without."""
    shown = f"{value:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
    shown += point(value)
    offset = value.utcoffset()
    if offset is None:
        return shown
    if not offset:
        return f"{shown} +0000 UTC"
    minutes = round(abs(offset.total_seconds()) / 60)
    zone = f"{'-' if offset < timedelta(0) else '+'}{minutes // 60:02d}{minutes % 60:02d}"
    return f"{shown} {zone} {zone}"


# --- from text ---

INT = r"[+-]?[0-9]+"
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_HEX = r"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
FLOAT = rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
HEX_FLOAT = rf"[+-]?0[xX](?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})[pP][+-]?{_DIGITS}"
INFINITE = r"[+-]?[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
TIME = (
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_int = re.compile(INT).fullmatch
_float = re.compile(FLOAT).fullmatch
_hex_float = re.compile(HEX_FLOAT).fullmatch
_infinite = re.compile(INFINITE).fullmatch
_time = re.compile(TIME).fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def atoi(text: str) -> int:
    """`strconv.Atoi`: 64 bits, decimal digits only."""
    if not _int(text):
        raise ValueError("it can't be read as an integer: digits only, with or without a sign")
    value = int(text) if len(text) < 40 else int(text[:1].strip("0123456789") + (text.lstrip("+-0") or "0")[:40])
    return in_range(value)


def in_range(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("the integer is out of range: it has to fit into 64 bits")
    return value


def parse_float(text: str) -> float:
    """`strconv.ParseFloat`: also hexadecimal, `inf`, `nan`, and `_` between digits. Out of range is an error."""
    if _float(text):
        value = float(text)
    elif _infinite(text) or text.lower() == "nan":
        return float(text)
    elif _hex_float(text):
        try:
            value = float.fromhex(text.replace("_", ""))
        except OverflowError:
            value = math.inf
    else:
        raise ValueError("it can't be read as a number")
    if math.isinf(value):
        raise ValueError("the number is out of range of a double")
    return value


def parse_bool(text: str) -> bool:
    """`strconv.ParseBool`."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError("it can't be read as a boolean: true, false, t, f, 1 or 0")


def parse_time(text: str) -> datetime:
    """An integer is nanoseconds since 1970; else RFC 3339, as `time.Parse` takes it."""
    if _int(text):
        try:
            number = atoi(text)
        except ValueError:
            pass  # not 64 bits: no RFC 3339 either
        else:
            return nanoseconds(number)
    found = _time(text)
    if not found:
        raise ValueError("it can't be read as a time: RFC 3339 (2024-12-31T23:59:59Z), or nanoseconds since 1970")
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = found.groups()
    digits = f"{fraction or '':0<9}"[:9]
    micros, nanos = int(digits[:6]), int(digits[6:])
    made = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, UTC)
    if not sign:
        return Moment.of(made, nanos)
    if int(hours) > 24 or int(minutes) > 60:
        raise ValueError("it can't be read as a time: its offset is out of range")
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    if not offset or abs(offset) >= timedelta(days=1):  # Python has no such zone
        return Moment.of(made - offset, nanos)
    return Moment.of(made.replace(tzinfo=timezone(offset)), nanos)


def nanoseconds(value: int) -> datetime:
    return Moment.of(_EPOCH + timedelta(microseconds=value // 1000), value % 1000)


# --- field.convert: by way of the text, where that is not known to come to the same ---


def as_int(value: Any) -> int:
    if type(value) is str:
        return atoi(value)
    if isinstance(value, int):
        return in_range(int(value))
    if isinstance(value, float) and -EXACT < value < EXACT and value.is_integer():
        return int(value)
    return atoi(text(value))


def as_float(value: Any) -> float:
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number is out of range of a double") from None
    return parse_float(text(value))


def as_bool(value: Any) -> bool:
    return value if isinstance(value, bool) else parse_bool(text(value))


def as_time(value: Any) -> datetime:
    return parse_time(text(value))


CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "string": text,
    "int": as_int,
    "float": as_float,
    "bool": as_bool,
    "time": as_time,
}
