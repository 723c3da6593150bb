"""Values on their way between Arrow columns and Python, in the tasks of a Python stage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock_sdk.record import Record

TYPES = {
    record.SOURCE: pa.string(),
    record.SEQ: pa.int64(),
    record.PART: pa.int32(),
    record.POSITION: pa.binary(),
    record.OPERATION: pa.string(),
    record.NAMESPACE: pa.string(),
    record.PHASE: pa.string(),
    record.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    record.METADATA: pa.map_(pa.string(), pa.string()),
    record.KEY: pa.string(),
    record.BEFORE: pa.string(),
    record.AFTER: pa.string(),
}
DDL = {
    record.SOURCE: "string",
    record.SEQ: "long",
    record.PART: "int",
    record.POSITION: "binary",
    record.OPERATION: "string",
    record.NAMESPACE: "string",
    record.PHASE: "string",
    record.TIMESTAMP: "timestamp",
    record.METADATA: "map<string,string>",
    record.KEY: "string",
    record.BEFORE: "string",
    record.AFTER: "string",
}
PAYLOADS = (record.AFTER, record.BEFORE, record.KEY)
TEXTS = (record.OPERATION, record.NAMESPACE, record.PHASE)
IDENTITY = (record.SOURCE, record.SEQ, record.PART, record.POSITION)  # the source's own: user code does not change it

to_json = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


def text_of(value: Any) -> bytes | None:
    """A payload as it travels between stages: raw as it is, structured as JSON."""
    if type(value) is bytes or value is None:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else to_json(value)


def opened(text: bytes | None) -> Any:
    """A payload that an earlier stage sent as text: what is no object has been raw there."""
    if text is None or text[:1] != b"{":
        return text
    try:
        return msgspec.json.decode(text)
    except Exception:
        return text


def values(column: pa.Array) -> list[Any]:
    """Python values; text is given as its bytes, which nobody has checked."""
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def as_type(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    if pa.types.is_string(type_) and pa.types.is_binary(column.type):
        return column.view(pa.string())
    if pa.types.is_string(type_) and pa.types.is_nested(column.type):
        return pa.array([text_of(v) for v in column.to_pylist()], pa.binary()).view(pa.string())
    return column.cast(type_)


def cell(r: Record, name: str) -> Any:
    """A field as its column holds it. Raises where it can't: that is a nack of this record."""
    value = getattr(r, name)
    if value is None or (type(value) is str and name in TEXTS and value.isascii()):
        if name == record.METADATA:
            raise TypeError(f"metadata is {type(value).__name__}, not a dict")
        return value
    if name in PAYLOADS:
        return text_of(value)
    if name == record.METADATA:
        if not isinstance(value, dict):
            raise TypeError(f"metadata is {type(value).__name__}, not a dict")
        for key, item in value.items():
            _text(key, name)
            _text(item, name)
        return list(value.items())
    if name == record.TIMESTAMP:
        if not isinstance(value, datetime):
            raise TypeError(f"timestamp is {type(value).__name__}, not a datetime")
    else:
        _text(value, name)
    return value


def _text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} holds {type(value).__name__}, not text")
    if not value.isascii():
        value.encode()


def given_at(batch: pa.RecordBatch, i: int, after: Any) -> dict[str, Any]:
    """The record as its source gave it: as an earlier stage has kept it, or as it came in here."""
    if record.GIVEN in batch.schema.names:
        kept: dict[str, Any] = msgspec.json.decode(batch.column(record.GIVEN)[i].as_py() or "{}")
        return kept
    found = {"after": aside.payload(after)}
    for name in (record.KEY, record.BEFORE):
        if name in batch.schema.names:
            found[name] = aside.payload(values(batch.column(name).slice(i, 1))[0])
    if record.METADATA in batch.schema.names:
        found["metadata"] = dict(batch.column(record.METADATA)[i].as_py() or ())
    if record.POSITION in batch.schema.names:
        found["position"] = aside.payload(batch.column(record.POSITION)[i].as_py())
    return (
        msgspec.json.decode(msgspec.json.encode(found)) if type(after) is not bytes else found
    )  # a copy, as it is now


def given_text(batch: pa.RecordBatch, i: int, after: Any, given: dict[str, Any] | None = None) -> str:
    return msgspec.json.encode(given or given_at(batch, i, after)).decode()


def given_column(rows: pa.RecordBatch) -> pa.Array:
    if record.GIVEN in rows.schema.names:
        return rows.column(record.GIVEN)
    return pa.array([given_text(rows, i, v) for i, v in enumerate(values(rows.column(record.AFTER)))], pa.string())
