"""Fields of records and columns of a table: what fits, what is widened, what is new. Pure, but for Spark's types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WHOLE = ("byte", "short", "integer", "long")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_FORBIDDEN = " ,;{}()\n\t="  # in the names of columns, unless a table maps them


@dataclass(frozen=True)
class Comparison:
    """Records against a table."""

    new: tuple[str, ...]  # fields without a column, or whose own fields are not all there
    bad: tuple[str, ...]  # why fields can't be written at all


def compare(fields: StructType, there: StructType) -> Comparison:
    types = {f.name: f.dataType for f in there.fields}
    lower = {name.lower(): name for name in types}
    new, bad = [], []
    for f in fields.fields:
        known = types.get(f.name)
        if known is None and f.name.lower() in lower:
            bad.append(f"the table calls {f.name!r} {lower[f.name.lower()]!r}")
        elif known is None or (not _same(f.dataType, known) and _nested(f.dataType) and _nested(known)):
            new.append(f.name)
        elif not _same(f.dataType, known) and not widens(f.dataType, known):
            bad.append(f"{f.name!r} is {f.dataType.simpleString()}, and the column {known.simpleString()}")
    return Comparison(tuple(new), tuple(bad))


def odd_names(names: Sequence[str]) -> list[str]:
    return [name for name in names if any(c in _FORBIDDEN for c in name)]


def _same(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()  # which leaves out whether it may be NULL


def _nested(kind: DataType) -> bool:
    return kind.typeName() in ("struct", "array", "map")


def widens(given: DataType, column: DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    one, other = given.typeName(), column.typeName()
    if one in _WHOLE and other in _WHOLE:
        return _WHOLE.index(one) <= _WHOLE.index(other)
    if other == "decimal":
        whole = column.precision - column.scale  # type: ignore[attr-defined]
        if one in _WHOLE:
            return bool(_DIGITS[one] <= whole)
        if one == "decimal":
            left = given.precision - given.scale  # type: ignore[attr-defined]
            return bool(left <= whole and given.scale <= column.scale)  # type: ignore[attr-defined]
    return (one, other) == ("float", "double")
