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


def unfit_for_json(schema: StructType, value: Column) -> list[tuple[Column, str]]:
    """When a payload has no exact form as JSON, and why."""
    found = []
    for field in schema.fields:
        bad = _not_json(field.dataType, value.getField(field.name))
        if bad is not None:
            kind = field.dataType.simpleString()[:60]
            found.append((bad, f"the field {field.name!r} ({kind}) holds {_OUTSIDE_JSON}"))
    return found


def unfit_for_csv(schema: StructType, value: Column) -> list[tuple[Column, str]]:
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
        if f.dataType.typeName() == "string"
    ]


def _not_json(type_: DataType, value: Column) -> Column | None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StringType, StructType

    if isinstance(type_, DoubleType | FloatType):
        return F.isnan(value) | (F.abs(value) == F.lit(float("inf")))
    if isinstance(type_, StringType):
        return ~F.is_valid_utf8(value)
    if isinstance(type_, StructType):
        return _any(_not_json(f.dataType, value.getField(f.name)) for f in type_.fields)
    if isinstance(type_, ArrayType):
        element = type_.elementType
        inner = _not_json(element, F.lit(None).cast(element))
        return None if inner is None else F.exists(value, lambda v: F.coalesce(_not_json(element, v), F.lit(False)))  # type: ignore[arg-type]
    if isinstance(type_, MapType):
        if not isinstance(type_.keyType, StringType):
            return value.isNotNull()
        keys = F.exists(F.map_keys(value), lambda v: ~F.is_valid_utf8(v))
        held = type_.valueType
        inner = _not_json(held, F.lit(None).cast(held))
        if inner is None:
            return keys
        return keys | F.exists(F.map_values(value), lambda v: F.coalesce(_not_json(held, v), F.lit(False)))  # type: ignore[arg-type]
    return None if type_.typeName() in JSON_TYPES else value.isNotNull()


def _any(conditions: Iterator[Column | None]) -> Column | None:
    from pyspark.sql import functions as F

    found = [F.coalesce(c, F.lit(False)) for c in conditions if c is not None]
    return reduce(lambda a, b: a | b, found) if found else None
