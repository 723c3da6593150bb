"""Rows on their way to a hosted destination: what Spark's tasks send, column by column, and as records of the SDK. Runs in the
destination's host; `messages.py` is for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.host import joining
from penstock.host.marks import Place
from penstock.plan.payload import loads
from penstock.record import Shape
from penstock_sdk import Record
from penstock_sdk.columns import NAMES
from penstock_sdk.record import shared_fields
from penstock_sdk.wire import SYNC

PAYLOADS = (record.KEY, record.BEFORE, record.AFTER)


@dataclass(frozen=True, slots=True)
class Unfit:
    """In the place of a record that can't be sent."""

    why: str


MESSAGE = 1 << 20  # bytes of a batch for a program, as far as a single record is not larger


class Outgoing:
    """Some records in their order."""

    def __init__(
        self,
        places: Sequence[Place],
        positions: Sequence[bytes],
        items: Sequence[Any],
        rows: pa.RecordBatch | None = None,
    ) -> None:
        self.places, self.positions, self._items = places, positions, items
        self._rows = rows  # the same, where the connector may have them as they came

    @property
    def columns(self) -> Callable[[], pa.RecordBatch] | None:
        """For `Batch.arrow`."""
        return None if self._rows is None else partial(_for_authors, self._rows)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def items(self) -> Sequence[Any]:
        """What the connector is given, and an `Unfit` in the place of what it can't be."""
        return self._items

    def part(self, start: int, end: int) -> Outgoing:
        rows = None if self._rows is None else self._rows.slice(start, end - start)
        return Outgoing(self.places[start:end], self.positions[start:end], self._items[start:end], rows)

    def only(self, chosen: Sequence[int]) -> Outgoing:
        places, positions = [self.places[i] for i in chosen], [self.positions[i] for i in chosen]
        rows = None if self._rows is None else self._rows.take(pa.array(chosen, pa.int64()))
        return Outgoing(places, positions, [self._items[i] for i in chosen], rows)

    def unfit(self, i: int) -> str | None:
        item = self._items[i]
        return item.why if type(item) is Unfit else None

    def end(self, start: int, most: int) -> int:
        """Behind so many records from one that can be sent: not past one that can't, and not too large."""
        most = min(len(self), start + most)
        return next((i for i in range(start + 1, most) if type(self._items[i]) is Unfit), most)


class Messages(Outgoing):
    """For a program: records as messages of the connector protocol, with their tags, and what is said of each that it has written."""

    def __init__(
        self,
        places: Sequence[Place],
        positions: Sequence[bytes],
        data: pa.Array,
        acks: pa.Array,
        bad: Mapping[int, str],
    ) -> None:
        super().__init__(places, positions, ())
        self._data, self._acks, self._bad = data, acks, bad

    @property
    def items(self) -> Sequence[Any]:
        return [Unfit(self._bad[i]) if i in self._bad else item for i, item in enumerate(self._data.to_pylist())]

    @property
    def data(self) -> bytes:
        return joining.span(self._data, 0, len(self))

    @property
    def acks(self) -> bytes:
        return joining.span(self._acks, 0, len(self))

    def part(self, start: int, end: int) -> Messages:
        bad = {i - start: why for i, why in self._bad.items() if start <= i < end} if self._bad else {}
        data, acks = (found.slice(start, end - start) for found in (self._data, self._acks))
        return Messages(self.places[start:end], self.positions[start:end], data, acks, bad)

    def only(self, chosen: Sequence[int]) -> Messages:
        places, positions = [self.places[i] for i in chosen], [self.positions[i] for i in chosen]
        data, acks = (found.take(pa.array(chosen, pa.int64())) for found in (self._data, self._acks))
        return Messages(
            places, positions, data, acks, {n: self._bad[i] for n, i in enumerate(chosen) if i in self._bad}
        )

    def unfit(self, i: int) -> str | None:
        return self._bad.get(i)

    def end(self, start: int, most: int) -> int:
        end = min(len(self), start + most)
        if self._bad:
            end = next((i for i in range(start + 1, end) if i in self._bad), end)
        ends = joining.ends(self._data.slice(start, end - start))
        return min(end, start + max(1, int(np.searchsorted(ends, MESSAGE, "right"))))


@dataclass(frozen=True)
class Lane:
    """Where rows come from, and as what they are delivered."""

    source: str
    shape: Shape
    delivery: str


class Chunk:
    """A batch of rows as Spark's task sends it, column by column as Python values."""

    def __init__(self, batch: pa.RecordBatch, lane: Lane) -> None:
        self._batch, self.lane = batch, lane
        self.rows = batch.num_rows
        self.seqs: list[int] = batch.column(record.SEQ).to_pylist()
        self.parts: list[int] = batch.column(record.PART).to_pylist()
        self.places: list[Place] = list(zip(self.seqs, self.parts, strict=True))
        self.position: pa.Array = _as_bytes(batch.column(record.POSITION))
        self.positions: list[bytes] = [p or b"" for p in self.position.to_pylist()]
        self.bad: dict[int, str] = {}

    def texts(self, name: str, default: str) -> list[str] | str:
        """One for all, where all are the same."""
        column = self._batch.column(name)
        if len(pc.unique(column)) == 1:
            return column[0].as_py() or default
        return [value or default for value in column.to_pylist()]

    def namespaces(self) -> list[str | None] | str | None:
        column = self._batch.column(record.NAMESPACE)
        if len(pc.unique(column)) == 1:
            found: str | None = column[0].as_py()
            return found
        many: list[str | None] = column.to_pylist()
        return many

    def timestamps(self) -> list[datetime | None] | datetime | None:
        column = self._batch.column(record.TIMESTAMP)
        if len(pc.unique(column)) == 1:
            found: datetime | None = column[0].as_py()
            return found
        many: list[datetime | None] = column.to_pylist()
        return many

    def kind(self, name: str) -> pa.DataType:
        return self._batch.schema.field(name).type

    def bytes(self, name: str) -> pa.Array:
        """Payloads that nobody looks into."""
        column = self._batch.column(name)
        return pa.nulls(len(column), pa.binary()) if column.null_count == len(column) else _as_bytes(column)

    def payloads(self, name: str) -> list[Any]:
        """Bytes, dicts, and None. What Python has no value for is `bad`."""
        column = self._batch.column(name)
        if column.null_count == len(column):
            return [None] * len(column)
        if pa.types.is_struct(column.type):
            return self._structs(name, column)
        found: list[Any] = _as_bytes(column).to_pylist()
        raw = self.lane.shape is Shape.RAW if name == record.AFTER else not pa.types.is_string(column.type)
        return found if raw else [_opened(value) for value in found]

    def _structs(self, name: str, column: pa.Array) -> list[Any]:
        try:
            found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        except Exception:  # years that Python has not, a map with a key twice
            return [self._struct(name, column, i) for i in range(len(column))]
        return found

    def _struct(self, name: str, column: pa.Array, i: int) -> Any:
        try:
            return column.slice(i, 1).to_pylist(maps_as_pydicts="strict")[0]
        except Exception as e:
            self.bad[i] = f"{name} can't be sent: {e}"
            return None

    def metadata(self) -> Entries:
        return Entries.of(self._batch.column(record.METADATA))


def _as_bytes(column: pa.Array) -> pa.Array:
    """Text as its bytes, which nobody has checked."""
    return column.view(pa.binary()) if pa.types.is_string(column.type) else column


def _opened(text: bytes | None) -> Any:
    """What is no object was raw where it came from."""
    if text is None or text[:1] != b"{":
        return text
    try:
        return loads(text)
    except Exception:
        return text


@dataclass
class Entries:
    """The metadata of some records: what all of them have in common, and columns of what differs. Or, where the names differ, all of it."""

    common: dict[str, str] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: list[dict[str, str]] | None = None

    @classmethod
    def of(cls, column: pa.MapArray) -> Entries:
        """Decoding each map takes 5 µs; nearly always all of them have the same names, and most of the same values."""
        n, sizes = len(column), np.diff(column.offsets.to_numpy())
        if not sizes.any():
            return cls()
        width = int(sizes[0])
        if column.null_count or (sizes != width).any():
            return cls._single(column)
        start = column.offsets[0].as_py()
        keys, values = (part.slice(start, n * width) for part in (column.keys, column.items))
        made = cls()
        for j in range(width):
            places = pa.array(range(j, n * width, width), pa.int64())
            names, found = keys.take(places), values.take(places)
            if len(pc.unique(names)) != 1 or found.null_count:
                return cls._single(column)
            name = names[0].as_py()
            if len(pc.unique(found)) == 1:
                made.common[name] = found[0].as_py()
            else:
                made.columns[name] = found.to_pylist()
        return made

    @classmethod
    def _single(cls, column: pa.MapArray) -> Entries:
        rows = column.to_pylist()
        return cls(rows=[{k: v for k, v in row or () if v is not None} for row in rows])

    def put(self, name: str, values: Sequence[str | None] | str | None) -> None:
        """Of all records, or of each; None: it has none of its own, and what is there under this name stays."""
        if values is None:
            return
        if isinstance(values, str) and self.rows is None:
            self.columns.pop(name, None)
            self.common[name] = values
        elif isinstance(values, str):
            for row in self.rows or ():
                row[name] = values
        elif None in values or self.rows is not None:
            for row, value in zip(self._by_row(len(values)), values, strict=True):
                if value is not None:
                    row[name] = value
        else:
            self.common.pop(name, None)
            self.columns[name] = list(values)  # type: ignore[arg-type]

    def _by_row(self, n: int) -> list[dict[str, str]]:
        if self.rows is None:
            self.rows = [self.row(i) for i in range(n)]
        return self.rows

    def row(self, i: int) -> dict[str, str]:
        if self.rows is not None:
            return self.rows[i]
        if not self.columns:
            return dict(self.common)
        return {**self.common, **{name: column[i] for name, column in self.columns.items()}}


# -- as records of the SDK ---------------------------------------------------------------------------------------------------


def records_of(batch: pa.RecordBatch, lane: Lane) -> Outgoing:
    """For a connector in this process. Position and metadata are made when somebody looks."""
    chunk = Chunk(batch, lane)
    entries: list[Entries] = []
    times = chunk.timestamps()
    spaces, operations, phases = (
        chunk.namespaces(),
        chunk.texts(record.OPERATION, "create"),
        chunk.texts(record.PHASE, SYNC),
    )
    row_of = {seq: i for i, seq in enumerate(chunk.seqs)}

    def locate(seq: int) -> tuple[bytes, dict[str, str]]:
        if not entries:
            entries.append(chunk.metadata())
        return chunk.positions[row_of[seq]], entries[0].row(row_of[seq])

    shared = shared_fields(chunk.lane.source, times if not isinstance(times, list) else None, locate)
    keys, befores, afters = (chunk.payloads(name) for name in PAYLOADS)
    new, made = Record.__new__, []
    for i, after in enumerate(afters):
        r = new(Record)
        r.after, r.seq, r._shared = after, chunk.seqs[i], shared
        if chunk.parts[i]:
            r.part = chunk.parts[i]
        if keys[i] is not None:
            r.key = keys[i]
        if befores[i] is not None:
            r.before = befores[i]
        made.append(r)
    for name, values in (("operation", operations), ("phase", phases), ("timestamp", times), ("_namespace", spaces)):
        if isinstance(values, list):
            for r, value in zip(made, values, strict=True):
                setattr(r, name, value)
        else:
            shared[name] = values
    rows = batch if lane.shape is not Shape.OPEN else None  # which is text in a column, and an object to its author
    return Outgoing(chunk.places, chunk.positions, with_bad(made, chunk.bad), rows)


def _for_authors(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With the columns that `Batch.arrow` names. What Spark calls text is bytes that nobody has looked at."""
    made = {name: rows.column(name) for name in NAMES}
    return pa.RecordBatch.from_pydict({name: _as_bytes(c) if name in PAYLOADS else c for name, c in made.items()})


def with_bad(made: list[Any], bad: Mapping[int, str]) -> list[Any]:
    for i, why in bad.items():
        made[i] = Unfit(why)
    return made
