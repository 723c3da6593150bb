"""Records as the data of a log's entries, and back: MessagePack for one, an Arrow IPC stream for many. Pure; no files.

The writer calls `groups`, and `packed` or `to_arrow` of each; readers call `to_records` and `unpack`.
What can't be kept is `Rejected` before anything is written; what can't be read is a ValueError. docs/formats/commit-log.md has
the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise, repeat
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.errors import Rejected
from penstock.log import values
from penstock.log.arrow import PAYLOADS, is_text, unfit
from penstock.log.format import MAX_DATA, Mode
from penstock_sdk.record import COLLECTION, Payload, Record

GROUP_BYTES: Final = 64 << 20  # an Arrow column holds 2 GiB, and a reader needs a whole entry at once
MAX_RECORD: Final = MAX_DATA // 4  # bytes or characters, of which each may be four bytes
EXTENDED: Final = {b"penstock.json": b"extended"}
EXTENDED_CODE: Final = 1  # MessagePack's extension type
DELIVERY: Final = b"penstock.delivery"  # in the metadata of a batch's schema

# What a column holds. Records without a value there go along with any.
ABSENT, RAW, PLAIN, TAGGED = range(4)  # payloads
AWARE, NAIVE = 1, 2  # timestamps
_TIMES: Final = {AWARE: pa.timestamp("us", "UTC"), NAIVE: pa.timestamp("us")}
_EPOCHS: Final = {AWARE: datetime(1970, 1, 1, tzinfo=UTC), NAIVE: datetime(1970, 1, 1)}
_PHASES: Final = {m.phase: m for m in Mode}


# -- records to columns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of some records, one list each, checked. `shapes` are those of `payloads`, then of the timestamps."""

    positions: list[bytes]
    operations: list[str]
    metadatas: list[dict[str, str]]
    timestamps: list[datetime | None]
    payloads: tuple[list[Any], ...]  # raw: bytes; open: the text
    shapes: tuple[list[int], ...]

    def slice(self, start: int, end: int) -> Columns:
        return Columns(
            self.positions[start:end],
            self.operations[start:end],
            self.metadatas[start:end],
            self.timestamps[start:end],
            tuple(p[start:end] for p in self.payloads),
            tuple(s[start:end] for s in self.shapes),
        )

    def lengths(self) -> list[list[int]]:
        """By column, roughly: of a text the characters, and nothing of the metadata."""
        payloads = ([len(v) if v else 0 for v in p] for p in self.payloads if any(p))
        return [list(map(len, self.positions)), *payloads]


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive records that fit into one batch."""

    namespace: str
    mode: Mode
    records: list[Record]
    columns: Columns

    def to_arrow(self) -> pa.RecordBatch:
        return _to_arrow(self.columns)

    def packed(self, delivery: str = "") -> list[bytes]:
        """Each of its records alone."""
        return _packed(self.columns, delivery)


def groups(records: Sequence[Record]) -> Iterator[Group]:
    """A new group where namespace, phase or the shape of a column changes. `Rejected` comes before the first group."""
    if not records:
        return
    records = list(records)
    namespaces = [r.namespace or "" for r in records]
    phases = [r.phase for r in records]
    _check_texts("namespace", namespaces)
    for i, phase in enumerate(phases) if not set(phases) <= _PHASES.keys() else ():
        if phase not in _PHASES:
            raise _rejected(i, "phase", f"it is {phase!r}", "there are copy, sync and complete")
    columns = _columns(records)
    cuts = [0, *_cuts(namespaces, phases, columns.shapes), len(records)]
    lengths = columns.lengths()
    spans = [s for start, end in pairwise(cuts) for s in _portions(lengths, start, end)]
    for start, end in spans:
        yield Group(namespaces[start], _PHASES[phases[start]], records[start:end], columns.slice(start, end))


def _columns(records: list[Record]) -> Columns:
    positions = [r.position for r in records]
    operations = [r.operation for r in records]
    metadatas = [r.metadata for r in records]
    timestamps = [r.timestamp for r in records]
    _check(bytes, "position", positions)
    _check_texts("operation", operations)
    _check_metadata(metadatas)
    keys = _payload("key", [r.key for r in records])
    befores = _payload("before", [r.before for r in records])
    afters = _payload("after", [r.after for r in records])
    payloads, shapes = zip(keys, befores, afters, strict=True)
    return Columns(positions, operations, metadatas, timestamps, payloads, (*shapes, _time_shapes(timestamps)))


def _payload(name: str, column: list[Any]) -> tuple[list[Any], list[int]]:
    kinds = set(map(type, column))
    if kinds == {bytes}:
        return column, [RAW] * len(column)
    if kinds == {type(None)}:
        return column, [ABSENT] * len(column)
    made: list[Any] = []
    shapes = []
    for i, value in enumerate(column):
        shape = ABSENT if value is None else RAW
        if isinstance(value, dict):
            try:
                value, extended = values.encode(value, name)
            except Rejected as e:
                e.where = f"record {i} of those given"
                raise
            shape = TAGGED if extended else PLAIN
        elif value is not None and type(value) is not bytes:
            raise _rejected(i, name, f"it is a {type(value).__name__}", "a payload is bytes, a dict or None")
        made.append(value)
        shapes.append(shape)
    return made, shapes


def _time_shapes(timestamps: list[datetime | None]) -> list[int]:
    if set(map(type, timestamps)) == {type(None)}:
        return [ABSENT] * len(timestamps)
    for i, at in enumerate(timestamps):
        # Of a subclass it is not known what else it holds: a pandas.Timestamp has nanoseconds.
        if at is not None and type(at) is not datetime:
            raise _rejected(i, "timestamp", f"it is a {type(at).__name__}", "a timestamp is a datetime or None")
        if at is not None and at.year in (1, 9999) and at.tzinfo is not None:
            try:
                at.astimezone(UTC)
            except OverflowError:
                raise _rejected(i, "timestamp", f"{at} is in no year from 1 to 9999 in UTC", "correct it") from None
    return [ABSENT if t is None else NAIVE if t.utcoffset() is None else AWARE for t in timestamps]


def _check(kind: type, name: str, column: list[Any]) -> None:
    if set(map(type, column)) == {kind}:
        return
    for i, value in enumerate(column):
        if not isinstance(value, kind):
            raise _rejected(i, name, f"it is a {type(value).__name__}", f"make it {kind.__name__}")


def _check_texts(name: str, column: list[str]) -> None:
    _check(str, name, column)
    for text in set(column):
        if not text.isascii() and not _is_utf8(text):
            raise _rejected(column.index(text), name, "it has half a surrogate pair, which has no UTF-8", "correct it")


def _check_metadata(metadatas: list[dict[str, str]]) -> None:
    if not any(metadatas):
        return
    flat = [t for m in metadatas if type(m) is dict for item in m.items() for t in item]
    if set(map(type, flat)) | set(map(type, metadatas)) == {str, dict} and _is_utf8("".join(flat)):
        return
    for i, metadata in enumerate(metadatas):
        if type(metadata) is not dict:
            raise _rejected(i, "metadata", f"it is a {type(metadata).__name__}", "make it a dict")
        for key, value in metadata.items():
            for text in (key, value):
                if not isinstance(text, str) or not _is_utf8(text):
                    raise _rejected(i, f"metadata {key!r}", f"{text!r} is not text", "metadata is text by text")


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _rejected(index: int, name: str, why: str, hint: str) -> Rejected:
    where = f"record {index} of those given"
    return Rejected(f"The log can't keep the {name} of a record", code="log.value", where=where, why=why, hint=hint)


def _cuts(namespaces: list[str], phases: list[str], shapes: tuple[list[int], ...]) -> Iterator[int]:
    if len(set(namespaces)) == len(set(phases)) == 1 and all(len(set(s) - {ABSENT}) <= 1 for s in shapes):
        return
    now = [ABSENT] * len(shapes)
    for i, row in enumerate(zip(*shapes, strict=True)):
        joins = i == 0 or (namespaces[i] == namespaces[i - 1] and phases[i] == phases[i - 1])
        if joins and all(a == b or not a or not b for a, b in zip(now, row, strict=True)):
            now = [a or b for a, b in zip(now, row, strict=True)]
        else:
            yield i
            now = list(row)


def _portions(all_lengths: list[list[int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut where a group would hold more than a batch should."""
    lengths = [column[start:end] for column in all_lengths]
    if sum(map(sum, lengths)) > GROUP_BYTES:
        total = 0
        for i, row in enumerate(zip(*lengths, strict=True), start):
            size = sum(row)
            if size > MAX_RECORD:
                raise _rejected(i, "payload", f"it has {size:,} bytes or characters", f"the most is {MAX_RECORD:,}")
            if total and total + size > GROUP_BYTES:
                yield start, i
                start, total = i, 0
            total += size
    yield start, end


# -- a batch of records ------------------------------------------------------------------------------------------------------


def to_arrow(records: Sequence[Record]) -> pa.RecordBatch:
    """Records of one group."""
    made = list(groups(records))
    if len(made) != 1:
        raise ValueError(f"records of one namespace, phase and shape make a batch; these are {len(made)} groups")
    return made[0].to_arrow()


def _to_arrow(columns: Columns) -> pa.RecordBatch:
    fields: list[tuple[pa.Field, pa.Array]] = []

    def add(name: str, column: pa.Array, metadata: dict[bytes, bytes] | None = None) -> None:
        fields.append((pa.field(name, column.type, metadata=metadata), column))

    if any(columns.positions):
        add("position", pa.array(columns.positions, pa.binary()))
    *shapes, time_shape = (max(s) for s in columns.shapes)
    if time_shape:
        add("timestamp", _times(columns.timestamps, time_shape))
    metadata = _metadata(columns.metadatas)
    if metadata is not None:
        add("metadata", metadata)
    for name, column, shape in zip(PAYLOADS, columns.payloads, shapes, strict=True):
        if shape:
            add(
                name,
                pa.array(column, pa.binary() if shape == RAW else pa.string()),
                EXTENDED if shape == TAGGED else None,
            )
    if not fields or set(columns.operations) != {"create"}:  # a batch without columns has no rows
        add("operation", pa.array(columns.operations, pa.string()))
    return pa.RecordBatch.from_arrays([a for _, a in fields], schema=pa.schema([f for f, _ in fields]))


def _times(timestamps: list[datetime | None], shape: int) -> pa.Array:
    # By hand: Arrow passes over fractions of a second in the offset of a time zone.
    epoch = _EPOCHS[shape]
    since = [None if t is None else t.replace(tzinfo=None) - epoch if shape == NAIVE else t - epoch for t in timestamps]
    micros = [None if d is None else (d.days * 86400 + d.seconds) * 1_000_000 + d.microseconds for d in since]
    return pa.array(micros, pa.int64()).view(_TIMES[shape])


def _metadata(metadatas: list[dict[str, str]]) -> pa.Array | None:
    sizes = [len(m) - (COLLECTION in m) for m in metadatas]
    if not any(sizes):
        return None
    items = [item for m in metadatas for item in m.items() if item[0] != COLLECTION]
    keys, texts = (pa.array(column, pa.string()) for column in zip(*items, strict=True))
    return pa.MapArray.from_arrays(pa.array([0, *accumulate(sizes)], pa.int32()), keys, texts)


def to_records(batch: pa.RecordBatch, namespace: str, mode: Mode) -> list[Record]:
    """Also of batches that others made: unknown columns are ignored, missing ones have their defaults. ValueError if unreadable."""
    reason = unfit(batch.schema)
    if reason:
        raise ValueError(reason)
    rows = batch.num_rows
    columns = {name: _read(batch, name, read, rows) for name, read in _READERS.items()}
    name, phase = namespace or None, mode.phase
    return [
        Record(
            after,
            before=before,
            key=key,
            position=position or b"",
            operation="create" if operation is None else operation,
            namespace=name,
            phase=phase,
            metadata=metadata,
            timestamp=timestamp,
        )
        for after, before, key, position, operation, metadata, timestamp in zip(
            *(columns[c] for c in ("after", "before", "key", "position", "operation", "metadata", "timestamp")),
            strict=True,
        )
    ]


def _read(batch: pa.RecordBatch, name: str, read: Callable[[pa.Field, pa.Array], list[Any]], rows: int) -> list[Any]:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return [{} for _ in range(rows)] if name == "metadata" else [None] * rows
    column = batch.column(at)
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return read(batch.schema.field(at), column)
    except (pa.ArrowException, ValueError, TypeError, LookupError, ArithmeticError) as e:
        raise ValueError(f"the column {name!r} of a batch in the log can't be read: {e}") from None


def _read_plain(_: pa.Field, column: pa.Array) -> list[Any]:
    made: list[Any] = column.to_pylist()
    return made


def _read_times(_: pa.Field, column: pa.Array) -> list[Any]:
    if pa.types.is_null(column.type):
        return [None] * len(column)
    shape = NAIVE if column.type.tz is None else AWARE
    epoch = _EPOCHS[shape]
    # Nanoseconds that are no whole microseconds are refused, not cut off: datetime has none.
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if v is None else epoch + timedelta(0, 0, v) for v in micros]


def _read_texts(_: pa.Field, column: pa.Array) -> list[Any]:
    made = [dict(m or ()) for m in column.to_pylist()]
    for metadata in made:
        metadata.pop(COLLECTION, None)  # the namespace of the entry is the one that counts
        if None in metadata.values():
            raise ValueError("a text is missing")
    return made


def _read_payload(field: pa.Field, column: pa.Array) -> list[Any]:
    if pa.types.is_struct(column.type):
        made: list[Any] = column.cast(_microseconds(column.type)).to_pylist(maps_as_pydicts="strict")
        return made
    found = _read_plain(field, column)
    if not is_text(column.type):
        return found
    extended = (field.metadata or {}).get(b"penstock.json") == b"extended"
    return [None if v is None else values.decode(v, extended) for v in found]


def _microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with microseconds for nanoseconds, at any depth; the cast to it fails where that would lose something."""
    t = pa.types
    if t.is_struct(kind):
        return pa.struct([f.with_type(_microseconds(f.type)) for f in kind])
    if t.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_microseconds(kind.item_type)))
    if t.is_list(kind):
        return pa.list_(kind.value_field.with_type(_microseconds(kind.value_type)))
    if t.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_microseconds(kind.value_type)))
    if t.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_microseconds(kind.value_type)), kind.list_size)
    if t.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if t.is_time64(kind):
        return pa.time64("us")
    if t.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    return kind


_READERS: Final = {
    "position": _read_plain,
    "operation": _read_plain,
    "timestamp": _read_times,
    "metadata": _read_texts,
    **dict.fromkeys(PAYLOADS, _read_payload),
}


# -- one record --------------------------------------------------------------------------------------------------------------


class _Record(msgspec.Struct, omit_defaults=True):
    """One record as a map; a field with its default is left out, one that is not known is passed over."""

    p: bytes = b""  # position
    o: str = "create"  # operation
    t: str | None = None  # timestamp, ISO 8601
    m: dict[str, str] = {}  # metadata
    k: Any = None  # key: bin = raw, str = JSON, ext 1 = extended JSON
    b: Any = None  # before
    a: Any = None  # after
    d: str = ""  # the delivery it came with


_pack_map = msgspec.msgpack.Encoder().encode
_unpack_map = msgspec.msgpack.Decoder(_Record).decode


def pack(record: Record) -> bytes:
    (data,) = next(groups([record])).packed()
    return data


def _packed(columns: Columns, delivery: str) -> list[bytes]:
    keys, befores, afters = (
        [
            msgspec.msgpack.Ext(EXTENDED_CODE, v.encode()) if s == TAGGED else v
            for v, s in zip(column, shapes, strict=True)
        ]
        for column, shapes in zip(columns.payloads, columns.shapes[:-1], strict=True)
    )
    times = [None if t is None else t.isoformat() for t in columns.timestamps]
    texts = [{str(k): str(v) for k, v in m.items() if k != COLLECTION} for m in columns.metadatas]
    operations, deliveries = map(str, columns.operations), repeat(delivery, len(times))
    rows = zip(columns.positions, operations, times, texts, keys, befores, afters, deliveries, strict=True)
    return [_pack_map(_Record(*row)) for row in rows]


def delivery_of(data: bytes | pa.Buffer) -> str:
    """Of one record: the delivery it came with, if it says so."""
    try:
        return _unpack_map(data).d
    except (ValueError, TypeError, RecursionError) as e:
        raise ValueError(f"a record in the log can't be read: {e}") from None


def unpack(data: bytes | pa.Buffer, namespace: str, mode: Mode) -> Record:
    try:
        found = _unpack_map(data)
        key, before, after = (_unpacked(p) for p in (found.k, found.b, found.a))
        at = None if found.t is None else values.from_iso(datetime, found.t)
    except (ValueError, TypeError, RecursionError) as e:
        raise ValueError(f"a record in the log can't be read: {e}") from None
    return Record(
        after,
        before=before,
        key=key,
        position=found.p,
        operation=found.o,
        namespace=namespace or None,
        phase=mode.phase,
        metadata=found.m,
        timestamp=at,
    )


def _unpacked(payload: Any) -> Payload:
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return values.decode(payload, extended=False)
    if isinstance(payload, msgspec.msgpack.Ext) and payload.code == EXTENDED_CODE:
        return values.decode(bytes(payload.data).decode(), extended=True)
    raise ValueError(f"a payload is binary, text or of the extension type {EXTENDED_CODE}, not {payload!r:.40}")
