"""What has to be known of a file before Spark reads it: the columns of a CSV file, the schema and rows of a Parquet file, what
stands in the names of its folders. Plain Python. Files of one batch share a layout, so that a column is one column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.files.csv import split_line
from penstock.connectors.files.listing import partitions
from penstock.connectors.files.records import joined, lines_of
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.errors import UnreadableFile
from penstock.plan.schema import DIGITS

if TYPE_CHECKING:
    from penstock.plan.schema import Schema

SEARCH = 1000  # blank lines in front of the first record of a file without a header
HEADER = 16 * 1024 * 1024  # bytes in which the first line of a CSV file has to end


@dataclass(frozen=True)
class Layout:
    """Equal keys can be read together. `wrong` says why a file can't be read at all."""

    names: tuple[str, ...] = ()  # of the columns of a CSV file
    partitions: tuple[str, ...] = ()
    schema: str = ""  # of a Parquet file
    rows: int | None = field(default=None, compare=False)
    path: str = field(default="", compare=False)
    wrong: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        return self.names, self.partitions, self.schema, self.wrong and self.path

    @property
    def known(self) -> bool:
        return not self.wrong

    def refuse_unknown(self) -> None:
        if self.wrong:
            raise UnreadableFile(self.path, self.wrong)


def layout_of(path: str, root: Path, settings: FilesSourceSettings) -> Layout:
    folders = tuple(partitions(root, path))
    try:
        if settings.format == "parquet":
            return _parquet(path, folders)
        if settings.format == "csv":
            return _csv(path, folders, settings)
    except FileNotFoundError:
        return Layout(partitions=folders, path=path)  # whoever reads it says so
    except (OSError, EOFError, ValueError) as e:  # pyarrow's errors are among these
        return Layout(path=path, wrong=str(e).splitlines()[0] if str(e) else type(e).__name__)
    return Layout(partitions=folders, path=path)


def _parquet(path: str, folders: tuple[str, ...]) -> Layout:
    import pyarrow.parquet as pq

    if Path(path).stat().st_size == 0:
        raise ValueError("it is empty: a Parquet file has at least a footer")
    footer = pq.read_metadata(path)
    names = [footer.schema.column(i).path for i in range(len(footer.schema))]
    twice = (
        next((name for i, name in enumerate(names) if names.index(name) != i), None)
        if len(set(names)) < len(names)
        else None
    )
    if twice is not None:
        raise ValueError(f"it has the column {twice!r} twice")
    _refuse_columns(footer)
    schema = str(footer.schema).partition("\n")[2]  # its first line has the object's address
    return Layout((), folders, schema, footer.num_rows, path)


def _refuse_columns(footer: Any) -> None:
    """Raises `ValueError` for what Spark has no type for: it would say so without a name."""
    for i in range(footer.num_columns):
        column = footer.schema.column(i)
        kind = json.loads(column.logical_type.to_json())
        nanos = kind["Type"] == "Timestamp" and kind.get("timeUnit") == "nanoseconds"
        wide = kind["Type"] == "Decimal" and kind.get("precision", 0) > DIGITS
        if nanos or wide or kind["Type"] in ("Time", "Float16", "UUID", "Interval"):
            hint = "; write timestamps in microseconds" if nanos else ""
            raise ValueError(f"its column {column.path!r} is {column.logical_type}, which can't be read{hint}")


def _csv(path: str, folders: tuple[str, ...], settings: FilesSourceSettings) -> Layout:
    from penstock.plan.schema import Schema

    schema = Schema.parse(settings.schema_) if settings.schema_ is not None else None
    if schema is not None and not settings.header:
        return Layout(tuple(f.name for f in schema.fields if f.name not in folders), folders, path=path)
    line = _first(path, settings)
    if line is None:
        return Layout(("_",), folders, path=path)  # nothing is read from it, whatever its columns are called
    if not line and settings.header:
        raise ValueError("its first line, which should name the columns, is blank")
    values = split_line(line, settings.delimiter)
    names = values if settings.header else [f"_c{i}" for i in range(len(values))]
    _refuse_names(names, schema, folders)
    return Layout(tuple(names), folders, path=path)


def _refuse_names(names: Sequence[str], schema: Schema | None, folders: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"its header has no name for column {i + 1}")
        if names.index(name) != i:
            raise ValueError(f"its header names the column {name!r} twice")
    if schema is not None:
        declared = [f.name for f in schema.fields]
        for name in names:
            if name not in declared:
                raise ValueError(f"it has a column {name!r}, which the `schema` does not name")
        for name in declared:
            if name not in names and name not in folders:
                raise ValueError(f"it has no column {name!r}, which the `schema` names")


def _first(path: str, settings: FilesSourceSettings) -> str | None:
    """The first line, without its end; without a header the first that is not blank. None for a file without any."""
    for found in islice(first_lines(path, settings.delimiter, whole=settings.multi_line), SEARCH):
        line = found.removesuffix(b"\r")
        if line or settings.header:
            return line.decode()
    return None


def first_lines(path: str, delimiter: str, *, whole: bool) -> Iterator[bytes]:
    """Lines, or records where values may hold line breaks. Raises `ValueError` where one is too long to be a header."""

    def bounded(lines: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for line in lines:
            size += len(line)
            if size > HEADER:
                raise ValueError(f"its first lines are longer than {HEADER} bytes")
            yield line

    lines = bounded(lines_of(path, HEADER))
    return joined(lines, delimiter.encode()) if whole else lines
