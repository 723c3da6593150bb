"""Looks for a record in the commit log of a source: by position, key, id or offset. The newest first; takes no lock and changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.ids import ids_of
from penstock.log import Reader, Rows

Match = Callable[[Rows], Iterable[int]]


@dataclass(frozen=True)
class Hit:
    """A record in a log."""

    offset: int
    appended: int  # milliseconds since 1970
    position: bytes
    namespace: str = ""


class SourceLog:
    """`trouble`: why it can't be read."""

    def __init__(self, name: str, folder: Path, *, numbered: bool) -> None:
        """`numbered`: positions are offsets, as in a queue."""
        self.name, self.folder, self.numbered = name, folder, numbered
        self.trouble: PenstockError | None = None
        self.gave_up = False
        self.first = self.end = 0
        self.log_id = ""
        try:
            with self._opened() as reader:
                self.first, self.end, self.log_id = reader.first, reader.end, reader.log_id
        except (PenstockError, OSError) as e:
            self.trouble = e if isinstance(e, PenstockError) else PenstockError(str(e), code="log.unreadable")

    def _opened(self) -> Reader:
        return Reader(self.folder, on_damage="skip")

    def at(self, offset: int) -> Hit | None:
        """None: it is not there, or no longer."""
        if self.trouble is not None or not self.first <= offset < self.end:
            return None
        with self._opened() as reader:
            for rows in reader.read(offset, offset + 1):
                if isinstance(rows, Rows):
                    return self._hit(rows, 0)
        return None

    def search(self, match: Match, limit: int, until: float) -> list[Hit]:
        """The newest first. `gave_up` afterwards says whether there was more to look at."""
        found: list[Hit] = []
        if self.trouble is not None:
            return found
        with self._opened() as reader:
            bases = [*reader.bases(), reader.end]
            for start, end in reversed(list(pairwise(bases))):
                here: list[Hit] = []
                for rows in reader.read(start, end):
                    if time.monotonic() > until:
                        self.gave_up = True
                        return [*found, *reversed(here)][:limit]
                    if isinstance(rows, Rows):
                        here += (self._hit(rows, i) for i in match(rows))
                found += reversed(here)
                if len(found) >= limit:
                    return found[:limit]
        return found

    def _hit(self, rows: Rows, i: int) -> Hit:
        column = _column(rows, "position")
        position = b"%d" % (rows.offset + i) if self.numbered else b"" if column is None else column[i].as_py() or b""
        return Hit(rows.offset + i, rows.timestamp // 1_000_000, position, rows.namespace)


def by_position(position: bytes) -> Match:
    def match(rows: Rows) -> Iterable[int]:
        column = _column(rows, "position")
        return () if column is None else _where(pc.equal(column, pa.scalar(position, pa.binary())))

    return match


def by_id(source: str, wanted: str, *, numbered: bool) -> Match:
    def match(rows: Rows) -> Iterable[int]:
        column = _column(rows, "position")
        if numbered:
            positions: Iterable[bytes] = (b"%d" % n for n in range(rows.offset, rows.end))
        else:
            positions = () if column is None else (p or b"" for p in column.to_pylist())
        return [i for i, found in enumerate(ids_of(source, positions)) if found == wanted]

    return match


def by_key(key: bytes) -> Match:
    """As it is where it is raw; where it is structured, by its value."""
    value = as_json(key)

    def match(rows: Rows) -> Iterable[int]:
        column = _column(rows, "key")
        if column is None or column.null_count == len(column):
            return ()
        if column.type == pa.binary():
            return _where(pc.equal(column, pa.scalar(key, pa.binary())))
        return [i for i, found in enumerate(column.to_pylist()) if found is not None and _same(found, value)]

    return match


def as_json(text: bytes) -> Any:
    """None where it is no JSON: no key is that."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _same(found: Any, value: Any) -> bool:
    if isinstance(found, str):
        found = as_json(found.encode())
    return value is not None and bool(found == value)


def _column(rows: Rows, name: str) -> pa.Array | None:
    at = rows.rows.schema.get_field_index(name)
    if at < 0:
        return None
    column = rows.rows.column(at)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    t = pa.types
    if t.is_large_binary(column.type) or t.is_fixed_size_binary(column.type) or t.is_binary_view(column.type):
        column = column.cast(pa.binary())
    return column


def _where(found: pa.Array) -> Iterator[int]:
    return iter(pc.indices_nonzero(found.fill_null(False)).to_pylist())
