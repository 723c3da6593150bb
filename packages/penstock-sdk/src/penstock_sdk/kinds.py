"""What the value of a setting can be: how it is read, checked and written. `read` and `vet` raise ValueError with words that go behind the
value: "is no integer"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from penstock_protocol.interfaces import ParameterType


@dataclass(frozen=True, slots=True)
class Kind:
    label: str
    wire: ParameterType
    read: Callable[[str], Any]
    vet: Callable[[Any], Any]  # gives the value as it is kept
    write: Callable[[Any], str]
    ordered: type | None = None  # what its limits are


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"[+-]?(?:{_PART})+")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_BOOLEANS = {"1": True, "t": True, "T": True, "true": True, "True": True, "TRUE": True}
_BOOLEANS |= {"0": False, "f": False, "F": False, "false": False, "False": False, "FALSE": False}
_LONGEST = timedelta(microseconds=2**63 // 1000)  # Go counts nanoseconds in 64 bits


def read_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text := text.strip()):
        raise ValueError("is no integer")
    return int(text)


def vet_integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("is no integer")
    if not -(2**63) <= value < 2**63:
        raise ValueError("does not fit into 64 bits")
    return value


def _read_number(text: str) -> float:
    if not _NUMBER.fullmatch(text := text.strip()):
        raise ValueError("is no number")
    return float(text)


def _vet_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("is no number")
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if not math.isfinite(made):
        raise ValueError("is not finite")
    return made + 0.0  # there is one zero


def read_boolean(text: str) -> bool:
    if text.strip() not in _BOOLEANS:
        raise ValueError("is neither true nor false")
    return _BOOLEANS[text.strip()]


def nanoseconds(text: str) -> Fraction:
    """What Go's time.ParseDuration takes, but exact."""
    text = text.strip()
    if text.lstrip("+-") == "0" and len(text) <= 2:
        return Fraction(0)
    if len(text) > 100 or not _DURATION.fullmatch(text):
        raise ValueError("is no duration, such as 300ms, 1.5s or 2h45m")
    total = sum((Fraction(number) * _UNITS[unit] for number, unit in re.findall(_PART, text)), Fraction(0))
    if total >= 2**63:
        raise ValueError("is too long, the most is 292 years")
    return -total if text.startswith("-") else total


def _read_duration(text: str) -> timedelta:
    microseconds = nanoseconds(text) / 1000
    if microseconds.denominator != 1:
        raise ValueError("is finer than a microsecond")
    return timedelta(microseconds=microseconds.numerator)


def _vet_duration(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise ValueError("is no duration")  # noqa: TRY004 - a problem like any other
    if abs(value) > _LONGEST:
        raise ValueError("is too long, the most is 292 years")
    return value


def _write_duration(value: timedelta) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    sign = "-" if value < timedelta(0) else ""
    if 0 < micros < 10**6:
        return f"{sign}{micros}us" if micros % 1000 else f"{sign}{micros // 1000}ms"
    minutes, micros = divmod(micros, 60 * 10**6)
    seconds = f"{micros // 10**6}.{micros % 10**6:06}".rstrip("0").rstrip(".") + "s"
    parts = [f"{minutes // 60}h"] * (minutes >= 60) + [f"{minutes % 60}m"] * (minutes % 60 > 0)
    return sign + "".join(parts + [seconds] * (micros > 0 or not minutes))


def _only(kind: type, why: str) -> Callable[[Any], Any]:
    def vet(value: Any) -> Any:
        if not isinstance(value, kind) or (kind is Path and "\0" in str(value)):
            raise ValueError(why)
        return value

    return vet


TEXT = Kind("text", ParameterType.STRING, str, _only(str, "is no text"), str)
KINDS: Mapping[Any, Kind] = {
    str: TEXT,
    int: Kind("integer", ParameterType.INT, read_integer, vet_integer, str, int),
    float: Kind("number", ParameterType.FLOAT, _read_number, _vet_number, repr, float),
    bool: Kind("boolean", ParameterType.BOOL, read_boolean, _only(bool, "is no boolean"), lambda v: str(v).lower()),
    # not FILE: public connectors declare their paths as strings
    Path: Kind("path", ParameterType.STRING, Path, _only(Path, "is no path"), str),
    timedelta: Kind("duration", ParameterType.DURATION, _read_duration, _vet_duration, _write_duration, timedelta),
}
