"""Columns of Spark as columns of Postgres: their types, their values as COPY reads them, and what has no place there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Stop

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

_TYPES = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "string": "text",
    "char": "text",
    "varchar": "text",
    "binary": "bytea",
    "array": "jsonb",
    "map": "jsonb",
    "struct": "jsonb",
    "variant": "jsonb",
}
_TEXTS = ("string", "char", "varchar")
_NESTED = ("array", "map", "struct", "variant")
NULL = "\\N"


def type_of(field: StructField) -> str:
    kind = field.dataType
    if kind.typeName() == "decimal":
        return f"numeric({kind.precision},{kind.scale})"  # type: ignore[attr-defined]
    found = _TYPES.get(kind.typeName())
    if found is None:
        raise Stop(
            f"The field {field.name!r} has a type that Postgres has not: {kind.simpleString()}",
            code="postgres.type",
            hint="leave it out with field.exclude, or make something else of it with sql",
        )
    return found


def value(kind: DataType, found: Column) -> Column:
    """As a field of COPY's text format."""
    from pyspark.sql import functions as F

    name = kind.typeName()
    if name in _TEXTS:
        text = _escaped(found)
    elif name in _NESTED:
        text = _escaped(F.to_json(found))
    elif name == "binary":
        text = F.concat(F.lit("\\\\x"), F.hex(found))
    elif name == "timestamp":
        text = F.concat(found.cast("string"), F.lit("+00"))  # lanes are in UTC
    else:
        text = found.cast("string")
    return F.coalesce(text, F.lit(NULL))


def _escaped(text: Column) -> Column:
    from pyspark.sql import functions as F

    for plain, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = F.replace(text, F.lit(plain), F.lit(escaped))
    return text


def unfit(fields: StructType, payload: Column, *, sound: bool) -> list[tuple[Column, str]]:
    """When a value has no place in any column of Postgres, and why."""
    from pyspark.sql import functions as F

    found: list[tuple[Column, str]] = []
    for f in fields.fields:
        here, name = payload.getField(f.name), f.dataType.typeName()
        if name in _TEXTS:
            if not sound:
                found.append((~F.is_valid_utf8(here), f"the field {f.name!r} holds text that is not UTF-8"))
            found.append(
                (
                    F.contains(here, F.lit("\0")),
                    f"the field {f.name!r} holds a zero byte, which Postgres does not take in text",
                )
            )
        elif name in _NESTED:
            text = F.to_json(here)
            found.append(
                (
                    F.contains(text, F.lit("\\u0000")),
                    f"the field {f.name!r} holds a zero byte, which Postgres does not take in jsonb",
                )
            )
        elif name in ("date", "timestamp", "timestamp_ntz"):
            year = F.year(here)
            found.append(((year < 1) | (year > 9999), f"the field {f.name!r} holds a year outside of 1 to 9999"))
    return found
