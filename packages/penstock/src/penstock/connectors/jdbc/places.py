"""Where a row of `jdbc` is: its position is the values of the columns by which rows are read, and a batch is a stretch of these. Which seq
it has inside of its task nobody has written down; so what can be said is between which seqs it lies.

Values are compared as the database orders them where that follows from how they look: numbers, times and UUIDs. The order of other texts is
the database's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

from penstock.ranges import Range

EXAMPLE = '["1042"]'
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Place = tuple[str, ...]


def place(position: bytes) -> Place | None:
    """The values of a position; None where it is none."""
    try:
        found = json.loads(position)
    except ValueError:
        return None
    if not isinstance(found, list) or not found or not all(isinstance(v, str) for v in found):
        return None
    return tuple(found)


def written(place: Place) -> bytes:
    """As the source writes it."""
    return json.dumps(list(place), ensure_ascii=False, separators=(",", ":")).encode()


def is_ours(r: Range) -> bool:
    return {"parts", "high", "digest"} <= r.position.keys()


def seqs(r: Range, wanted: Place) -> tuple[int, int] | None:
    """The seqs between which it is, from the first to before the second; None where this range does not hold it, or nobody can tell."""
    after, parts = r.position["from"], r.position["parts"]
    if after is not None and (order := compared(wanted, after)) != 1:
        return None
    start = r.base
    for count, bound in parts:
        order = compared(wanted, bound)
        if order is None:
            return None
        if order == 0:
            return start + count - 1, start + count
        if order < 0:
            return start, start + count
        start += count
    return None


def before(r: Range, wanted: Place) -> bool | None:
    """Whether it was read before this range; None where nobody can tell."""
    after = r.position["from"]
    order = 1 if after is None else compared(wanted, after)
    return None if order is None else order <= 0


def behind(r: Range, wanted: Place) -> bool | None:
    """Whether it comes after this range."""
    order = compared(wanted, r.position["to"])
    return None if order is None else order > 0


def compared(a: Sequence[str], b: Sequence[str]) -> int | None:
    """-1, 0 or 1, by the first value that differs; None where their order does not follow from how they look."""
    for left, right in zip(a, b, strict=False):
        if left == right:
            continue
        order = _order(left, right)
        if order != 0:
            return order
    return 0 if len(a) == len(b) else None


def _order(left: str, right: str) -> int | None:
    for kind in (_number, _uuid, _time):
        one, other = kind(left), kind(right)
        if one is not None and other is not None:
            return (one > other) - (one < other)  # type: ignore[operator]
    return None


def _number(text: str) -> Decimal | None:
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _uuid(text: str) -> str | None:
    return text.lower() if _UUID.fullmatch(text.lower()) else None


def _time(text: str) -> datetime | None:
    """A lane's session is in UTC: what has no zone is meant so."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
