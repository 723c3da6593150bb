"""Rows on their way to a plugin program: messages of the connector protocol. In the tasks that send, where nobody has to look into the
payloads, else in the program's host, which has the schemas. A value that has no form on the way costs its record, with the field's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.host.arrow_avro import NoForm, avro_of
from penstock.host.joining import BYTES, Piece, column, field, joined, optional, same, varint
from penstock.host.marks import Place
from penstock.host.outgoing import PAYLOADS, Chunk, Entries, Lane, Messages, Outgoing, Unfit, with_bad
from penstock.record import Shape
from penstock_protocol.schemas import Registry
from penstock_sdk import Record
from penstock_sdk.avro import AvroError, Codec, compiled
from penstock_sdk.destination_plugin import DELIVERY, ID, PART, SOURCE
from penstock_sdk.errors import Rejected
from penstock_sdk.record import COLLECTION, record_id
from penstock_sdk.schemas import SUBJECT, VERSION, Encoder
from penstock_sdk.wire import CREATED, NUMBERS, PHASE, SYNC, to_records

ITEM, ACK = "item", "ack"  # columns: records as messages, and what is said of those that were written
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def is_raw(batch: pa.RecordBatch, shape: Shape) -> bool:
    """Whether nobody has to look into the payloads of these rows to send them."""
    return shape is Shape.RAW and all(_is_plain(batch, name) for name in (record.KEY, record.BEFORE))


def _is_plain(batch: pa.RecordBatch, name: str) -> bool:
    column = batch.column(name)
    return bool(column.null_count == len(column) or pa.types.is_binary(column.type))


def encoded(batch: pa.RecordBatch, lane: Lane) -> pa.RecordBatch:
    """Raw rows as messages, in a task of Spark's: the host has enough to do."""
    chunk = Chunk(batch, lane)
    items = _raw(chunk, {name: chunk.bytes(name) for name in PAYLOADS}, _entries(chunk))
    names = (record.SEQ, record.PART, record.POSITION)
    columns = [*(batch.column(name) for name in names), items, acks_of(batch.column(record.POSITION))]
    return pa.RecordBatch.from_arrays(columns, names=[*names, ITEM, ACK])


def acks_of(positions: pa.Array) -> pa.Array:
    """What a program says of each record that it has written, as its messages have it."""
    own = _position(positions)
    return joined(field(b"\x0a", own), len(positions))


def _position(positions: pa.Array) -> Piece:
    """Nothing where it is empty, as protobuf has it."""
    known = pc.fill_null(positions, b"") if positions.null_count else positions
    own = field(b"\x0a", column(known))
    there = pc.greater(pc.binary_length(known), 0)
    return own if pc.all(there).as_py() else own.where(there)


def _entries(chunk: Chunk) -> Entries:
    """What a record has beside its fields on this wire, and what the host adds."""
    lane, entries = chunk.lane, chunk.metadata()
    entries.put(COLLECTION, chunk.namespaces())
    times = chunk.timestamps()
    entries.put(CREATED, [_nanoseconds(t) for t in times] if isinstance(times, list) else _nanoseconds(times))
    phases = chunk.texts(record.PHASE, SYNC)
    if phases != SYNC:
        entries.put(PHASE, phases)
    entries.put(DELIVERY, lane.delivery)
    entries.put(SOURCE, lane.source)
    if any(chunk.parts):
        entries.put(PART, [str(part) for part in chunk.parts])
    entries.put(ID, _ids(lane.source, chunk.positions, chunk.parts))
    return entries


def _raw(chunk: Chunk, payloads: Mapping[str, pa.Array], entries: Entries) -> pa.Array:
    """Records whose payloads are bytes."""
    operations = chunk.texts(record.OPERATION, "create")
    if isinstance(operations, list):
        operation = column([b"\x10%c" % NUMBERS.get(o, 0) for o in operations])
    else:
        operation = same(b"\x10%c" % NUMBERS.get(operations, 0))
    change = optional(b"\x0a", payloads[record.BEFORE], b"\x0a") + optional(b"\x12", payloads[record.AFTER], b"\x0a")
    own = _position(chunk.position) + operation + _wire(entries) + optional(b"\x22", payloads[record.KEY], b"\x0a")
    return joined(field(b"\x0a", own + field(b"\x2a", change)), chunk.rows)


def _wire(entries: Entries) -> Piece:
    """As the entries of a record's message."""
    if entries.rows is not None:
        return column([b"".join(_entry(k, v) for k, v in row.items()) for row in entries.rows])
    made = same(b"".join(_entry(k, v) for k, v in entries.common.items()))
    for name, values in entries.columns.items():
        named = field(b"\x0a", same(name.encode()))
        made += field(b"\x1a", named + field(b"\x12", column(pa.array(values, pa.string()).view(pa.binary()))))
    return made


class Wire:
    """For a program. Typed payloads go as Avro with a schema of their columns; open ones as structured data where that loses nothing,
    else as Avro, too."""

    def __init__(self, registry: Registry, connector_id: str, most: int) -> None:
        """`most`: bytes of a message that the program takes."""
        self._registry, self._id, self._most = registry, connector_id, most
        self._encoder = Encoder(registry, connector_id)
        self._codecs: dict[tuple[str, str | None, pa.DataType], tuple[Codec, str, str]] = {}

    def __call__(self, batch: pa.RecordBatch, lane: Lane) -> Outgoing:
        if batch.schema.get_field_index(ITEM) >= 0:
            seqs, parts, positions = (batch.column(i).to_pylist() for i in range(3))
            places = list(zip(seqs, parts, strict=True))
            return self._messages(places, [p or b"" for p in positions], batch.column(3), batch.column(4), {})
        chunk = Chunk(batch, lane)
        payloads = {name: chunk.payloads(name) for name in PAYLOADS}
        entries = _entries(chunk)
        for part, names in (("key", (record.KEY,)), ("payload", (record.BEFORE, record.AFTER))):
            self._typed(chunk, part, names, payloads, entries)
        raw = all(value is None or type(value) is bytes for found in payloads.values() for value in found)
        if raw:
            items = _raw(chunk, {name: pa.array(found, BYTES) for name, found in payloads.items()}, entries)
            bad = dict(chunk.bad)
        else:
            made = with_bad(self._structured(chunk, payloads, entries), chunk.bad)
            bad = {i: item.why for i, item in enumerate(made) if isinstance(item, Unfit)}
            items = pa.array([b"" if i in bad else item for i, item in enumerate(made)], BYTES)
        return self._messages(chunk.places, chunk.positions, items, acks_of(chunk.position), bad)

    def _messages(
        self, places: Sequence[Place], positions: Sequence[bytes], items: pa.Array, acks: pa.Array, bad: dict[int, str]
    ) -> Messages:
        lengths = pc.binary_length(items).to_numpy()
        for i in np.flatnonzero(lengths > self._most).tolist():
            bad[i] = f"it has {lengths[i]:,} bytes as a message, and the connector takes {self._most:,} at most"
        return Messages(places, positions, items, acks, bad)

    def _typed(
        self, chunk: Chunk, part: str, names: Sequence[str], payloads: dict[str, list[Any]], entries: Entries
    ) -> None:
        """Structs become Avro, in place."""
        typed = [name for name in names if pa.types.is_struct(chunk.kind(name))]
        if not typed:
            return
        spaces = chunk.namespaces()
        versions: list[tuple[str, str] | None] = [None] * chunk.rows
        for name in typed:
            for i, value in enumerate(payloads[name]):
                if value is None or i in chunk.bad:
                    continue
                space = spaces[i] if isinstance(spaces, list) else spaces
                try:
                    codec, subject, version = self._codec(part, space, chunk.kind(name))
                    versions[i] = subject, version
                    payloads[name][i] = codec.encode(value)
                except NoForm as e:
                    chunk.bad[i], payloads[name][i] = f"{name}.{e}", None
                except AvroError as e:
                    path = ".".join(map(str, [name, *reversed(e.steps)]))
                    chunk.bad[i], payloads[name][i] = f"{path} can't be sent: {e.why}", None
        entries.put(SUBJECT.format(part), [v[0] if v else None for v in versions])
        entries.put(VERSION.format(part), [v[1] if v else None for v in versions])

    def _codec(self, part: str, space: str | None, kind: pa.DataType) -> tuple[Codec, str, str]:
        known = self._codecs.get((part, space, kind))
        if known is None:
            text = avro_of(kind)
            subject = f"{self._id}:{space + '.' if space else ''}{part}"
            known = (compiled(text), subject, str(self._registry.create(subject, text).version))
            self._codecs[part, space, kind] = known
        return known

    def _structured(self, chunk: Chunk, payloads: Mapping[str, list[Any]], entries: Entries) -> list[Any]:
        operations = chunk.texts(record.OPERATION, "create")
        made = [
            Record(
                payloads[record.AFTER][i],
                before=payloads[record.BEFORE][i],
                key=payloads[record.KEY][i],
                position=chunk.positions[i],
                operation=operations[i] if isinstance(operations, list) else operations,
                metadata=entries.row(i),
            )
            for i in range(chunk.rows)
        ]
        for r in made:
            r.phase = r.metadata.get(PHASE, SYNC)
        try:
            return [part.data for part in to_records(made, self._encoder).single()]
        except Rejected as e:
            refused = e.records
        good = [r for i, r in enumerate(made) if i not in refused]
        sent = iter([part.data for part in to_records(good, self._encoder).single()] if good else [])
        return [Unfit(refused[i]) if i in refused else next(sent) for i in range(chunk.rows)]


def _ids(source: str, positions: Sequence[bytes], parts: Sequence[int]) -> list[str]:
    """As `record_id`, at half the time."""
    first = hashlib.blake2b(len(source.encode()).to_bytes(8, "big") + source.encode(), digest_size=16)
    copy, long, made = first.copy, _long, []
    for position, part in zip(positions, parts, strict=True):
        digest = copy()
        digest.update(long(len(position)) + position + long(part))
        made.append(digest.hexdigest())
    assert not made or made[0] == record_id(source, positions[0], parts[0])
    return made


@lru_cache(1024)
def _long(n: int) -> bytes:
    return n.to_bytes(8, "big")


def _nanoseconds(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    since = moment - _EPOCH
    return str(((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000)


def _entry(name: str, value: str) -> bytes:
    return _field(b"\x1a", _field(b"\x0a", name.encode()) + _field(b"\x12", value.encode()))


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + varint(len(value)) + value
