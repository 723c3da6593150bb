"""The forms in which `files` writes: what each can't hold, how a record becomes a line, and how staged files are weighed.

The weight of staged files is compared with what went into them: bytes of lines where they can be known, rows of Parquet.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import record
from penstock.connectors.files import csv
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.native import Shape
from penstock.native.fitness import unfit_for_csv, unfit_for_json

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

NO_PAYLOAD = "it has no payload, and a file can't say so"
LINE_BREAK = "its payload has a line break: it would become two lines of text"
NOT_AN_OBJECT = "its payload is not a JSON object"
MODULUS = 1 << 32  # a gzip file says how much it holds in 32 bits

Reasons = list[tuple["Column", str]]


def form(settings: FilesDestinationSettings) -> Form:
    made: type[Form] = {"text": Text, "json": Json, "csv": Csv, "parquet": Parquet}[settings.format]
    return made(settings)


class Form:
    """One instance per destination. `unfit` and `line` build plans; the others look at files that were staged."""

    shapes: frozenset[Shape]
    suffix = ".txt"

    def __init__(self, settings: FilesDestinationSettings) -> None:
        self.settings = settings
        self.packed = settings.compression == "gzip"

    @property
    def extension(self) -> str:
        return self.suffix + (".gz" if self.packed else "")

    @staticmethod
    def unfit_payload(value: Any) -> str | None:  # noqa: ARG004
        return None

    def unfit(self, value: Column, shape: Shape, schema: StructType, sound: bool) -> Reasons:
        raise NotImplementedError

    def line(self, value: Column, shape: Shape, schema: StructType | None) -> Column | None:
        raise NotImplementedError

    def head(self, schema: StructType | None) -> bytes:  # noqa: ARG002
        """What every file begins with."""
        return b""

    def weigh(self, path: Path) -> int:
        """How much a file holds; 0 = nothing."""
        size = path.stat().st_size
        if not self.packed or not size:
            return size
        with path.open("rb") as f:
            f.seek(-4, 2)
            held = int.from_bytes(f.read(4), "little")
        return held or (MODULUS if size > 1024 else 0)

    def adds_up(self, held: int, rows: int, size: int) -> bool:  # noqa: ARG002
        return (held - size) % MODULUS == 0 if self.packed else held == size

    def difference(self, files: Sequence[Path], rows: int, size: int, held: int) -> str:
        where = (
            f"{_newlines(files)} lines of {held} bytes are staged" if not self.packed else f"{held} bytes are staged"
        )
        return f"{rows} lines of {size} bytes went in; {where}"


class Text(Form):
    shapes = frozenset({Shape.RAW, Shape.OPEN})

    @staticmethod
    def unfit_payload(value: Any) -> str | None:
        if type(value) is bytes:
            return LINE_BREAK if b"\n" in value else None
        return NO_PAYLOAD if value is None else LINE_BREAK if isinstance(value, str) and "\n" in value else None

    def unfit(self, value: Column, shape: Shape, schema: StructType, sound: bool) -> Reasons:
        from pyspark.sql import functions as F

        del shape, schema, sound
        return [(value.isNull(), NO_PAYLOAD), (F.contains(value, F.lit("\n")), LINE_BREAK)]

    def line(self, value: Column, shape: Shape, schema: StructType | None) -> Column | None:
        del shape, schema
        return value


class Json(Form):
    shapes = frozenset({Shape.OPEN, Shape.TYPED})
    suffix = ".jsonl"

    @staticmethod
    def unfit_payload(value: Any) -> str | None:
        if type(value) is dict:
            return None
        if value is None:
            return NO_PAYLOAD
        if isinstance(value, str):
            value = value.encode(errors="replace")
        if not isinstance(value, bytes) or value[:1] != b"{":
            return NOT_AN_OBJECT
        if b"\n" in value:
            return LINE_BREAK
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return NOT_AN_OBJECT
        return None

    def unfit(self, value: Column, shape: Shape, schema: StructType, sound: bool) -> Reasons:
        from pyspark.sql import functions as F

        if shape is Shape.TYPED:
            return _missing(value, schema, sound) + unfit_for_json(_fields(schema), value, sound=sound)
        text = value.cast("string")
        broken = ~F.startswith(text, F.lit("{")) | ~F.is_valid_utf8(text) | F.get_json_object(text, "$").isNull()
        return [(value.isNull(), NO_PAYLOAD), (broken, NOT_AN_OBJECT), (F.contains(text, F.lit("\n")), LINE_BREAK)]

    def line(self, value: Column, shape: Shape, schema: StructType | None) -> Column | None:
        from pyspark.sql import functions as F

        del schema
        return F.to_json(value, record.JSON_OPTIONS) if shape is Shape.TYPED else value


class Csv(Form):
    shapes = frozenset({Shape.TYPED})
    suffix = ".csv"

    def unfit(self, value: Column, shape: Shape, schema: StructType, sound: bool) -> Reasons:
        del shape
        fields = _fields(schema)
        return _missing(value, schema, sound) + unfit_for_csv(fields, value, sound=sound) + csv.unfit(fields, value)

    def line(self, value: Column, shape: Shape, schema: StructType | None) -> Column | None:
        from pyspark.sql import functions as F

        del shape
        assert schema is not None
        held = F.struct(*(csv.held(f, value).alias(f.name) for f in _fields(schema).fields))
        return F.to_csv(held, csv.write_options(self.settings.delimiter))

    def head(self, schema: StructType | None) -> bytes:
        if not self.settings.header or schema is None:
            return b""
        text = csv.line_of(_fields(schema).names, self.settings.delimiter)
        return gzip.compress(text) if self.packed else text


class Parquet(Form):
    shapes = frozenset({Shape.TYPED})
    suffix = ".parquet"

    @property
    def extension(self) -> str:
        codec = self.settings.compression or "snappy"
        return self.suffix if codec == "none" else f".{codec}{self.suffix}"

    def unfit(self, value: Column, shape: Shape, schema: StructType, sound: bool) -> Reasons:
        del shape
        return _missing(value, schema, sound)

    def line(self, value: Column, shape: Shape, schema: StructType | None) -> Column | None:
        del value, shape, schema
        return None

    def weigh(self, path: Path) -> int:
        import pyarrow.parquet as pq

        rows: int = pq.read_metadata(path).num_rows
        return rows

    def adds_up(self, held: int, rows: int, size: int) -> bool:
        del size
        return held == rows

    def difference(self, files: Sequence[Path], rows: int, size: int, held: int) -> str:
        del size
        return f"{rows} rows went in; {held} rows are staged in {len(files)} files"


def _fields(schema: StructType) -> StructType:
    """The fields of the payload."""
    fields: StructType = schema[record.AFTER].dataType  # type: ignore[assignment]
    return fields


def _missing(value: Column, schema: StructType, sound: bool) -> Reasons:
    return [(value.isNull(), NO_PAYLOAD)] if schema[record.AFTER].nullable and not sound else []


def put_in_front(path: Path, head: bytes) -> None:
    """Spark writes lines without a header: the file is copied behind it, by the kernel where it can."""
    beside = path.with_name(f".{path.name}.head")
    with beside.open("wb") as out, path.open("rb") as lines:
        out.write(head)
        shutil.copyfileobj(lines, out, 1 << 20)
    beside.replace(path)


def _newlines(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb") as f:
            while chunk := f.read(1 << 20):
                total += chunk.count(b"\n")
    return total
