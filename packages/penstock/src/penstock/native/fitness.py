"""What a typed payload may hold that a text format can't: found per field, so that the nack can name it.

Used by destinations and by `json.encode` while a plan is built; what is returned is evaluated in Spark tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

CSV_TYPES = ("string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date")
TIMES = ("timestamp", "timestamp_ntz")
_OUTSIDE_JSON = (
    "what JSON can't: NaN, an infinity, text that is not UTF-8, an interval, or a map whose keys are not text"
)
JSON_TYPES = (*CSV_TYPES, *TIMES, "binary", "variant", "void", "char", "varchar")


def unfit_for_json(schema: StructType, value: Column, *, sound: bool = False) -> list[tuple[Column, str]]:
    """When a payload has no exact form as JSON, and why."""
    found = []
    for field in schema.fields:
        bad = _not_json(field.dataType, value.getField(field.name), sound)
        if bad is not None:
            kind = field.dataType.simpleString()[:60]
            found.append((bad, f"the field {field.name!r} ({kind}) holds {_OUTSIDE_JSON}"))
    return found


def unfit_for_csv(schema: StructType, value: Column, *, sound: bool = False) -> list[tuple[Column, str]]:
    """When a payload has no exact form as a line of CSV, and why."""
    from pyspark.sql import functions as F

    return [
        (
            value.getField(f.name).isNotNull(),
            f"the field {f.name!r} is {f.dataType.simpleString()[:60]}, which CSV can't hold; use json or parquet",
        )
        for f in schema.fields
        if f.dataType.typeName() not in (*CSV_TYPES, *TIMES)
    ] + [
        (~F.is_valid_utf8(value.getField(f.name)), f"the field {f.name!r} holds text that is not UTF-8")
        for f in schema.fields
        if f.dataType.typeName() == "string" and not sound
    ]


def _not_json(type_: DataType, value: Column, sound: bool) -> Column | None:
    """`sound`: texts are UTF-8, numbers finite."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StringType, StructType

    if isinstance(type_, DoubleType | FloatType):
        return None if sound else F.isnan(value) | (F.abs(value) == F.lit(float("inf")))
    if isinstance(type_, StringType):
        return None if sound else ~F.is_valid_utf8(value)
    if isinstance(type_, StructType):
        return _any(_not_json(f.dataType, value.getField(f.name), sound) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return _exists(type_.elementType, value, sound)
    if isinstance(type_, MapType):
        if not isinstance(type_.keyType, StringType):
            return value.isNotNull()
        parts = [_exists(type_.keyType, F.map_keys(value), sound), _exists(type_.valueType, F.map_values(value), sound)]
        return _any(iter(parts))
    return None if type_.typeName() in JSON_TYPES else value.isNotNull()


def _exists(type_: DataType, values: Column, sound: bool) -> Column | None:
    from pyspark.sql import functions as F

    if _not_json(type_, F.lit(None).cast(type_), sound) is None:
        return None

    def bad(value: Column) -> Column:
        found = _not_json(type_, value, sound)
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return F.exists(values, bad)


def _any(conditions: Iterator[Column | None]) -> Column | None:
    from pyspark.sql import functions as F

    found = [F.coalesce(c, F.lit(False)) for c in conditions if c is not None]
    return reduce(lambda a, b: a | b, found) if found else None
