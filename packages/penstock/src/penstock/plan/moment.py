"""A time with nanoseconds, as Go has it: what a field becomes where a `datetime` would lose digits. Pure; used in Spark's tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Any


class Moment(datetime):
    """Made only where there are digits behind the microsecond; everything that writes a time asks `fraction`."""

    nanosecond = 0  # behind the microsecond: 1 to 999

    @classmethod
    def of(cls, at: datetime, nanosecond: int) -> datetime:
        if not nanosecond:
            return at
        made = cls(
            at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, at.tzinfo, fold=at.fold
        )  # fmt: skip
        made.nanosecond = nanosecond
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and other.nanosecond == self.nanosecond and datetime.__eq__(self, other)

    def __hash__(self) -> int:
        return hash((datetime.__hash__(self), self.nanosecond))

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain = datetime(
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.microsecond, self.tzinfo
        )  # fmt: skip
        return Moment.of, (plain, self.nanosecond)


def fraction(at: datetime) -> str:
    """Of the second: nine digits."""
    return f"{at.microsecond:06d}{getattr(at, 'nanosecond', 0):03d}"


def point(at: datetime) -> str:
    """`.5`, or nothing: without zeros at the end."""
    digits = fraction(at).rstrip("0")
    return f".{digits}" if digits else ""


def rfc3339(at: datetime) -> str:
    """As Go writes it."""
    text = f"{at.isoformat()[:19]}{point(at)}"
    zone = at.isoformat(timespec="seconds")[19:]
    return text + ("Z" if zone == "+00:00" else zone)
