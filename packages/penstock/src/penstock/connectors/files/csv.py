"""CSV: a line becomes a typed payload, field by field, and back. The columns' names come from the header of the files.

Built on Spark's own CSV parser, on lines that were read as text: so every line is accounted for, and one that does not fit is
one nack. What a value can't be without a change (a fraction that a DECIMAL would round off, a time without its zone) is a
nack that names the field. `""` is an empty text and nothing at all is NULL, both ways.
"""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock import record
from penstock.native import Columns, Processor, Shape, Step, Where
from penstock.native.fitness import CSV_TYPES, TIMES

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

PARTITION = "penstock.partition."  # the metadata key of a value that stands in a folder's name
_NULL = f"\ue000{secrets.token_hex(16)}"  # what the parser gives for nothing at all: no text that anybody could send
_SCALARS = (
    "string",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "date",
    *("timestamp", "timestamp_ntz"),
)
_BREAKS = "with `multi-line: true` values may hold line breaks"
_UNCLOSED = f"a quote is not closed; {_BREAKS}"
_ZONE = r"(Z|UTC|[+-][0-9]{1,2}(:?[0-9]{2}){0,2})\s*$"


def read_options(delimiter: str) -> dict[str, str]:
    return {
        "sep": delimiter,
        "quote": '"',
        "escape": '"',
        "nullValue": _NULL,
        "emptyValue": "",
    }


def write_options(delimiter: str) -> dict[str, str]:
    return {
        "sep": delimiter,
        "quote": '"',
        "escape": '"',
        "nullValue": "",
        "emptyValue": '""',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "timestampFormat": record.JSON_OPTIONS["timestampFormat"],
        "timestampNTZFormat": record.JSON_OPTIONS["timestampNTZFormat"],
    }


def line_of(names: Sequence[str], delimiter: str) -> bytes:
    """The names of columns as a line, with its end."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(names)
    return text.getvalue().encode()


def split_line(line: str, delimiter: str) -> list[str]:
    """Raises `ValueError`."""
    csv.field_size_limit(max(csv.field_size_limit(), len(line)))
    try:
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error as e:
        raise ValueError(f"its first line can't be split into values: {e}") from e


def strings(names: Sequence[str]) -> str:
    """A schema of texts."""
    return ", ".join(f"{quoted(n)} STRING" for n in names)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def refuse_types(ddl: str) -> None:
    """Raises `ValueError` for what a line of CSV can't hold."""
    from penstock.plan.schema import Schema

    for field in Schema.parse(ddl).fields:
        name = str(field.type).lower().partition("(")[0].partition("<")[0]
        if name not in _SCALARS:
            raise ValueError(
                f"must have no {name.upper()} in a CSV file's schema: the field {field.name!r} can't be one"
            )


class Layout(Protocol):
    """What a source knows of the files of its current batch."""

    @property
    def names(self) -> Sequence[str]:
        """Of the columns, in order."""

    @property
    def partitions(self) -> Sequence[str]:
        """That stand in names of folders, and not in the files."""


@dataclass(frozen=True)
class CsvSettings:
    delimiter: str
    schema: str | None  # types by name; without it everything is text


class SplitLine(Processor[CsvSettings]):
    """A line becomes a struct of texts."""

    sound = True
    code = "csv.invalid"
    raises = f"the line does not have as many values as there are columns; {_BREAKS}"

    def __init__(self, settings: CsvSettings, source_id: str, layout: Layout) -> None:
        super().__init__(settings, source_id)
        self._layout = layout

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.SPARK

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.TYPED

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        text = columns.after.cast("string")
        line = F.when(F.endswith(text, F.lit("\r")), F.left(text, F.length(text) - 1)).otherwise(text)
        options = {**read_options(self.settings.delimiter), "mode": "FAILFAST"}
        value = F.from_csv(line, strings(self._layout.names), options)
        quotes = F.length(text) - F.length(F.replace(text, F.lit('"')))
        odd = F.contains(text, F.lit('"')) & (quotes % 2 == 1)
        why = F.when(~F.is_valid_utf8(text), F.lit("the line is not UTF-8")).when(odd, F.lit(_UNCLOSED))
        empty = (text == "") | (text == "\r")
        return Step(set={record.AFTER: F.when(~empty, value)}, drop=empty, reject=why)


class TypeFields(Processor[CsvSettings]):
    """A struct of texts becomes one of the declared types, with what stands in names of folders."""

    code = "schema.mismatch"

    def __init__(self, settings: CsvSettings, source_id: str, layout: Layout) -> None:
        super().__init__(settings, source_id)
        self._layout = layout

    @property
    def sound(self) -> bool:  # type: ignore[override]
        """A DOUBLE may be NaN."""
        schema = (self.settings.schema or "").upper()
        return "DOUBLE" not in schema and "FLOAT" not in schema

    @property
    def uses(self) -> frozenset[str]:  # type: ignore[override]
        """The metadata only where names of folders hold values: it would be made for every record."""
        return frozenset({record.AFTER, record.METADATA} if self._layout.partitions else {record.AFTER})

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.SPARK

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.TYPED

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField

        if self.settings.schema is None and not self._layout.partitions:
            return Step()
        declared = _declared(self.settings.schema)
        values = {name: columns.after.getField(name) for name in self._layout.names}
        metadata = columns.by_name.get(record.METADATA)
        if metadata is not None:
            values |= {name: metadata[PARTITION + name] for name in self._layout.partitions}
        made, problems = [], []
        for name, text in values.items():
            field = declared.get(name, StructField(name, StringType()))
            value, bad = _typed(text, field)
            made.append(value.alias(name))
            problems += [F.when(bad, _why(field, text))] if bad is not None else []
        reject = F.coalesce(*problems) if problems else None
        return Step(set={record.AFTER: F.struct(*made)}, reject=reject)


def _declared(schema: str | None) -> dict[str, StructField]:
    from pyspark.sql.types import StructType

    if schema is None:
        return {}
    parsed: StructType = StructType.fromDDL(schema)  # type: ignore[assignment]
    return {f.name: f for f in parsed.fields}


def _why(field: StructField, text: Column) -> Column:
    from pyspark.sql import functions as F

    kind = field.dataType.simpleString().upper()
    shown = F.coalesce(F.concat(F.lit("'"), F.left(text, F.lit(100)), F.lit("'")), F.lit("nothing"))
    return F.concat(F.lit(f"the field {field.name!r} can't be {kind} without a change: "), shown)


def _typed(text: Column, field: StructField) -> tuple[Column, Column | None]:
    """A text as a value of its type, and when it can't be that exactly."""
    from pyspark.sql import functions as F

    missing = None if field.nullable else text.isNull()
    if field.dataType.typeName() == "string":
        return text, missing
    value = text.try_cast(field.dataType)
    inexact = _inexact(text, value, field.dataType)
    bad = text.isNotNull() & (value.isNull() | F.coalesce(inexact, F.lit(False)))
    return value, bad if missing is None else bad | missing


def _inexact(text: Column, value: Column, type_: DataType) -> Column:
    """True where a cast that succeeds has left something out."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, DecimalType, DoubleType, FloatType, TimestampNTZType, TimestampType

    if isinstance(type_, DecimalType):
        number = F.regexp_like(text, F.lit(r"^\s*[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]{1,4})?\s*$"))
        rest = F.length(F.regexp_extract(text, r"\.([0-9]*?)0*([eE].*)?\s*$", 1))
        exponent = F.coalesce(F.regexp_extract(text, "[eE]([+-]?[0-9]+)", 1).try_cast("int"), F.lit(0))
        return ~number | (rest - exponent > type_.scale)
    if isinstance(type_, DoubleType | FloatType):
        pattern = r"(?i)^\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)\s*$"
        whole = F.regexp_like(text, F.lit(r"^\s*[+-]?[0-9]+\s*$"))
        same = F.coalesce(text.try_cast("decimal(38,0)") == value.try_cast("decimal(38,0)"), F.lit(False))
        far = (F.abs(value) == F.lit(float("inf"))) & ~F.regexp_like(text, F.lit("(?i)inf"))
        return far | ~F.regexp_like(text, F.lit(pattern)) | (whole & ~same)
    if isinstance(type_, DateType):
        return ~F.regexp_like(text, F.lit(r"^\s*[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}\s*$"))
    if isinstance(type_, TimestampType | TimestampNTZType):
        fine = F.regexp_like(text, F.lit(r"[.][0-9]{6}[0-9]*[1-9]"))
        zone = F.regexp_like(text, F.lit(r"[0-9]:[0-9].*" + _ZONE))
        dated = F.regexp_like(text, F.lit(r"^\s*[+-]?[0-9]{4,}-[0-9]"))  # of a time alone Spark makes a time of today
        return fine | ~dated | (~zone if isinstance(type_, TimestampType) else zone)
    return F.lit(False)


def held(field: StructField, value: Column) -> Column:
    """A field as it is written: Spark refuses to plan some types, even where no record has a value of them."""
    from pyspark.sql import functions as F

    known = field.dataType.typeName() in (*CSV_TYPES, *TIMES)
    return value.getField(field.name) if known else F.lit(None).cast("string")


def unfit(schema: StructType, value: Column) -> list[tuple[Column, str]]:
    """What a line of CSV can't hold."""
    if len(schema.fields) != 1:
        return []
    only = schema.fields[0].name
    return [(value.getField(only).isNull(), f"the field {only!r} is NULL and the only one: its line would be blank")]
