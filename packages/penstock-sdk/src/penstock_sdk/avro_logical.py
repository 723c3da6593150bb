"""The logical types of Avro: dates, times, decimals and the like, as what they are in Python, and as the plain values that carry them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = datetime(1970, 1, 1)
_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_DAY: Final = 86_400_000_000  # microseconds
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_DURATION: Final = struct.Struct("<III")


class AvroError(ValueError):
    """`steps` lead to the value, the last one first: they are collected on the way up. `value` is what could not be written."""

    def __init__(self, why: str, value: Any = None) -> None:
        super().__init__(why)
        self.why, self.value = why, value
        self.steps: list[Any] = []

    def __str__(self) -> str:
        path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in reversed(self.steps))
        return f"{path.removeprefix('.')}: {self.why}" if path else self.why


class Duration(NamedTuple):
    """Avro's own: months and days have no fixed length. Python's timedelta is something else."""

    months: int
    days: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Logical:
    """`takes`: what it is in Python. `out_of` makes a plain value of it, `into` the reverse; AvroError where that can't be."""

    takes: type
    out_of: Callable[[Any], Any]
    into: Callable[[Any], Any]


def plain(value: Any, kind: type) -> Any:
    """What a value of a subclass, an enum say, is equal to and comes back as."""
    if not isinstance(value, kind) or type(value) is bool:
        raise AvroError(f"it is no {kind.__name__}", value)
    return str.__str__(value) if kind is str else kind(value)


def decimals(precision: Any, scale: Any, size: int | None) -> Logical | None:
    """`size`: in bytes, where it is fixed. None: these are no decimals."""
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return None
    limit = 10**precision

    def out_of(value: Any) -> bytes:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise AvroError("it is no finite decimal", value)
        if value and value.adjusted() + scale >= precision:
            raise AvroError(f"it has more than {precision} digits, {scale} of them after the point", value)
        scaled = value.scaleb(scale, _EXACT) if value else Decimal(0)
        number = int(scaled)
        if number != scaled:
            raise AvroError(f"it has more than {scale} digits after the point", value)
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        if size is not None and length > size:
            raise AvroError(f"it needs more than {size} bytes", value)
        return number.to_bytes(length if size is None else size, "big", signed=True)

    def into(value: bytes) -> Decimal:
        number = int.from_bytes(value, "big", signed=True)
        if not -limit < number < limit:
            raise AvroError(f"a decimal has more than {precision} digits")
        return Decimal(number).scaleb(-scale, _EXACT)

    return Logical(Decimal, out_of, into)


def _days(value: Any) -> int:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise AvroError("it is no date", value)
    return value.toordinal() - _DAY_ONE


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + _DAY_ONE)
    except (ValueError, OverflowError):
        raise AvroError("a date is in no year from 1 to 9999") from None


def _micros_of_day(value: Any) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise AvroError("it is no time of day without a zone", value)
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _time(micros: int) -> time:
    if not 0 <= micros < _DAY:
        raise AvroError("a time of day is not within a day (Go's connectors send durations as such)")
    seconds, micros = divmod(micros, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)


def _micros(value: Any) -> int:
    since = _since(value, _EPOCH)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _local_micros(value: Any) -> int:
    since = _since(value, _LOCAL)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _since(value: Any, epoch: datetime) -> timedelta:
    if not isinstance(value, datetime):
        raise AvroError("it is no datetime", value)
    if getattr(value, "nanosecond", None):  # pandas' subclass has them
        raise AvroError("it has nanoseconds", value)
    try:
        return datetime.__sub__(value, epoch)
    except TypeError:
        raise AvroError("it has a time zone where others have none, or none where others have one", value) from None


def _datetime(micros: int) -> datetime:
    try:
        return _EPOCH + timedelta(0, 0, micros)
    except OverflowError:
        raise AvroError("a time is in no year from 1 to 9999") from None


def _local_datetime(micros: int) -> datetime:
    try:
        return _LOCAL + timedelta(0, 0, micros)
    except OverflowError:
        raise AvroError("a time is in no year from 1 to 9999") from None


def _millis(micros: Callable[[Any], int]) -> Callable[[Any], int]:
    def out_of(value: Any) -> int:
        whole, rest = divmod(micros(value), 1000)
        if rest:
            raise AvroError("it has microseconds", value)
        return whole

    return out_of


def _from_millis(made: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda millis: made(millis * 1000)


def _uuid(text: str) -> UUID:
    try:
        found = UUID(text)
    except ValueError:
        raise AvroError("a UUID is none") from None
    if str(found) != text.lower():  # Python takes more than the standard
        raise AvroError("a UUID is none")
    return found


def _uuid_text(value: Any) -> str:
    if not isinstance(value, UUID):
        raise AvroError("it is no UUID", value)
    return str(value)


def _uuid_bytes(value: Any) -> bytes:
    return UUID(_uuid_text(value)).bytes


def _duration(value: Any) -> bytes:
    try:
        return _DURATION.pack(*value) if isinstance(value, Duration) else _no_duration(value)
    except struct.error:
        return _no_duration(value)


def _no_duration(value: Any) -> bytes:
    raise AvroError("it is no duration of months, days and milliseconds, none of them negative", value)


LOGICAL: Final = {
    ("date", "int"): Logical(date, _days, _date),
    ("time-millis", "int"): Logical(time, _millis(_micros_of_day), _from_millis(_time)),
    ("time-micros", "long"): Logical(time, _micros_of_day, _time),
    ("timestamp-millis", "long"): Logical(datetime, _millis(_micros), _from_millis(_datetime)),
    ("timestamp-micros", "long"): Logical(datetime, _micros, _datetime),
    ("local-timestamp-millis", "long"): Logical(datetime, _millis(_local_micros), _from_millis(_local_datetime)),
    ("local-timestamp-micros", "long"): Logical(datetime, _local_micros, _local_datetime),
    ("uuid", "string"): Logical(UUID, _uuid_text, _uuid),
    ("uuid", "fixed 16"): Logical(UUID, _uuid_bytes, lambda data: UUID(bytes=data)),
    ("duration", "fixed 12"): Logical(Duration, _duration, lambda data: Duration(*_DURATION.unpack(data))),
}
