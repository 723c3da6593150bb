"""A range of a commit log as rows of Spark. `LogRows` runs in Spark's Python tasks, and maps the log's segments. `kinds` says what a
stretch of a log holds, which decides where a batch ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.errors import Stop
from penstock.log import Lost, Reader, Rows
from penstock_sdk.schemas import SUBJECT, VERSION

RAW, OPEN = "raw", "open"
EXTENDED = "extended"  # JSON that has to be decoded: it holds what plain JSON has not
LOST = "lost"
STRUCT = "struct<"  # typed: Spark's name of the type
PAYLOADS: Final = (record.AFTER, record.BEFORE, record.KEY)
_TYPES: Final = {
    record.SEQ: pa.int64(),
    record.POSITION: pa.binary(),
    record.OPERATION: pa.string(),
    record.NAMESPACE: pa.string(),
    record.PHASE: pa.string(),
    record.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    record.METADATA: pa.map_(pa.string(), pa.string()),
}
_DDL: Final = {
    record.SEQ: "long",
    record.POSITION: "binary",
    record.OPERATION: "string",
    record.NAMESPACE: "string",
    record.PHASE: "string",
    record.TIMESTAMP: "timestamp",
    record.METADATA: "map<string,string>",
}
COLUMNS: Final = (*_TYPES, *PAYLOADS)


# -- what a stretch of a log holds -------------------------------------------------------------------------------------------


Schema = tuple[str, str]  # subject and version


@dataclass(frozen=True, slots=True)
class Kind:
    """What records have in common that are read together. A part that is None: no record has it."""

    after: str | None = None  # RAW, OPEN, EXTENDED, LOST or the name of a struct
    before: str | None = None
    key: str | None = None
    payload_schema: Schema | None = None  # raw payloads are Avro
    key_schema: Schema | None = None

    def joined(self, other: Kind) -> Kind | None:
        """What both together are; None: they can't be read together."""
        if self == other:
            return self
        parts = [(getattr(self, name), getattr(other, name)) for name in PAYLOADS]
        if any(a is not None and b is not None and a != b for a, b in parts):
            return None
        schemas = []
        for names, mine, theirs in (
            ((record.AFTER, record.BEFORE), self.payload_schema, other.payload_schema),
            ((record.KEY,), self.key_schema, other.key_schema),
        ):
            here = any(getattr(self, name) is not None for name in names)
            there = any(getattr(other, name) is not None for name in names)
            if here and there and mine != theirs:
                return None
            schemas.append(mine if here else theirs)
        return _made([a if a is not None else b for a, b in parts], *schemas)

    def to_json(self) -> dict[str, Any]:
        found = {name: value for name in PAYLOADS if (value := getattr(self, name)) is not None}
        for name in ("payload_schema", "key_schema"):
            if (schema := getattr(self, name)) is not None:
                found[name.replace("_", "-")] = list(schema)
        return found

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Kind:
        schemas = (tuple(found[name]) if name in found else None for name in ("payload-schema", "key-schema"))
        return _made([found.get(name) for name in PAYLOADS], *schemas)


def _made(parts: Sequence[str | None], payload: Schema | None, key: Schema | None) -> Kind:
    after, before, own = parts
    return Kind(after, before, own, payload, key)


def kinds(rows: Rows, *, avro: bool = True) -> Iterator[tuple[int, Kind]]:
    """The kinds of records in this batch of the log, in order: up to which row, and what. Most batches have one. `avro`: raw payloads
    whose metadata name a schema are of it."""
    parts = [_kind(rows.rows, name) for name in PAYLOADS]
    payloads = _schemas(rows.rows, "payload") if avro and RAW in parts[:2] else None
    keys = _schemas(rows.rows, "key") if avro and parts[2] == RAW else None
    if not isinstance(payloads, list) and not isinstance(keys, list):
        yield rows.count, _made(parts, payloads, keys)
        return
    every = [found if isinstance(found, list) else [found] * rows.count for found in (payloads, keys)]
    now = (every[0][0], every[1][0])
    for at, here in enumerate(zip(*every, strict=True)):
        if here != now:
            yield at, _made(parts, *now)
            now = here
    yield rows.count, _made(parts, *now)


def _kind(batch: pa.RecordBatch, name: str) -> str | None:
    at = batch.schema.get_field_index(name)
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return None
    field = batch.schema.field(at)
    if _binary(field.type):
        return RAW
    if pa.types.is_struct(field.type):
        return _named(field.type)
    return EXTENDED if (field.metadata or {}).get(b"penstock.json") == b"extended" else OPEN


def _named(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    made = from_arrow_type(kind)
    assert isinstance(made, StructType)
    return f"{STRUCT}{made.toDDL()}>"


def types_of(kind: Kind) -> dict[str, pa.DataType]:
    """Of payloads that are structs, as tasks give them to Spark."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    named = {name: found for name in PAYLOADS if (found := getattr(kind, name) or "").startswith(STRUCT)}
    return {
        name: to_arrow_type(StructType.fromDDL(found.removeprefix(STRUCT).removesuffix(">")), timezone="UTC")
        for name, found in named.items()
    }


def _binary(kind: pa.DataType) -> bool:
    t = pa.types
    if t.is_dictionary(kind):
        return _binary(kind.value_type)
    return bool(t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind))


def _schemas(batch: pa.RecordBatch, part: str) -> Schema | list[Schema | None] | None:
    """The schema that the metadata name; a list where not all records have the same."""
    at = batch.schema.get_field_index(record.METADATA)
    if at < 0 or not pa.types.is_map(batch.column(at).type):
        return None
    metadata = batch.column(at)
    subjects, versions = (pc.map_lookup(metadata, pa.scalar(k.format(part)), "first") for k in (SUBJECT, VERSION))
    if subjects.null_count == len(subjects):
        return None
    if not subjects.null_count and len(pc.unique(subjects)) == len(pc.unique(versions)) == 1 and versions[0].is_valid:
        return subjects[0].as_py(), versions[0].as_py()
    pairs = zip(subjects.to_pylist(), versions.to_pylist(), strict=True)
    return [(s, v) if s is not None and v is not None else None for s, v in pairs]


# -- rows --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Offsets of the log, and what has to be added to them for a seq."""

    start: int
    end: int
    shift: int


@dataclass(frozen=True)
class LogRows:
    """Sent to Spark's tasks. Input rows are numbers of stretches; output the records of each, in order."""

    folder: str
    log_id: str
    stretches: Sequence[Stretch]
    columns: tuple[str, ...]
    kind: Kind
    numbered: bool = False  # positions are offsets: records have none of their own
    typed: Mapping[str, pa.DataType] = field(default_factory=dict)  # the types of payloads that are structs

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {_DDL.get(name) or self._payload_ddl(name)}" for name in self.columns)

    def _payload_ddl(self, name: str) -> str:
        """`after` is text in any case where it is not typed: what is in it nobody looks at before a processor does."""
        kind = getattr(self.kind, name)
        if kind is not None and kind.startswith(STRUCT):
            return str(kind)
        return "string" if name == record.AFTER or kind == OPEN else "binary"

    def _payload_type(self, name: str) -> pa.DataType:
        if name in self.typed:
            return self.typed[name]
        return pa.string() if self._payload_ddl(name) == "string" else pa.binary()

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in given:
            for number in numbers.column(0).to_pylist():
                yield from self.batches(self.stretches[number])

    def batches(self, s: Stretch) -> Iterator[pa.RecordBatch]:
        for rows in self._read(s.start, s.end):
            yield self._lost(rows, s) if isinstance(rows, Lost) else self._batch(rows, s)

    def _read(self, start: int, end: int) -> Iterator[Rows | Lost]:
        with Reader(Path(self.folder)) as reader:
            if reader.log_id != self.log_id:
                raise Stop(f"The log in {self.folder} is another one than was read from", code="log.other")
            yield from reader.read(start, end)

    def _batch(self, rows: Rows, s: Stretch) -> pa.RecordBatch:
        made = [self._column(name, rows, s) for name in self.columns]
        return pa.RecordBatch.from_arrays(made, names=list(self.columns))

    def _column(self, name: str, rows: Rows, s: Stretch) -> pa.Array:
        n, batch = rows.count, rows.rows
        if name == record.SEQ:
            return pa.array(range(rows.offset + s.shift, rows.end + s.shift), pa.int64())
        if name == record.NAMESPACE:
            return pa.repeat(rows.namespace, n) if rows.namespace else pa.nulls(n, pa.string())
        if name == record.PHASE:
            return pa.repeat(rows.mode.phase, n)
        if name == record.POSITION and self.numbered:
            return pa.array([b"%d" % offset for offset in range(rows.offset, rows.end)], pa.binary())
        at = batch.schema.get_field_index(name)
        if name in PAYLOADS:
            return self._payload(name, batch, at)
        if name == record.TIMESTAMP:
            logged = pa.scalar(rows.timestamp // 1000, pa.int64()).cast(_TYPES[name])
            return _times(batch.column(at), logged) if at >= 0 else pa.repeat(logged, n)
        if name == record.METADATA:
            return _texts(batch.column(at)) if at >= 0 else _no_texts(n)
        column = batch.column(at).cast(_TYPES[name]) if at >= 0 else pa.nulls(n, _TYPES[name])
        return column.fill_null("create") if name == record.OPERATION else column

    def _payload(self, name: str, batch: pa.RecordBatch, at: int) -> pa.Array:
        kind = self._payload_type(name)
        if at < 0:
            return pa.nulls(batch.num_rows, kind)
        column = batch.column(at)
        if column.null_count == len(column):
            return pa.nulls(len(column), kind)
        if column.type == kind:
            return column
        return column.cast(pa.binary()).view(kind) if _binary(column.type) else column.cast(kind)

    def _lost(self, lost: Lost, s: Stretch) -> pa.RecordBatch:
        """A row for each record that can't be read any more, so that somebody accounts for it."""
        first, end = max(lost.offset, s.start), min(lost.end, s.end)
        seqs = pa.array(range(first + s.shift, end + s.shift), pa.int64())
        made = [
            seqs if name == record.SEQ else pa.nulls(len(seqs), _TYPES.get(name, self._payload_type(name)))
            for name in self.columns
        ]
        return pa.RecordBatch.from_arrays(made, names=list(self.columns))


def _times(column: pa.Array, default: pa.Scalar) -> pa.Array:
    """What has no time of its own has the time at which it was logged."""
    if pa.types.is_null(column.type):
        return pa.repeat(default, len(column))
    if column.type.tz is None:
        column = column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return column.cast(_TYPES[record.TIMESTAMP]).fill_null(default)


def _texts(column: pa.Array) -> pa.Array:
    kind = _TYPES[record.METADATA]
    return column if column.type == kind else column.cast(kind)


def _no_texts(n: int) -> pa.Array:
    none = pa.nulls(0, pa.string())
    return pa.MapArray.from_arrays(pa.array([0] * (n + 1), pa.int32()), none, none)
