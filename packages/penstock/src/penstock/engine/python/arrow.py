"""Values on their way between Arrow columns and Python, in the tasks of a Python stage."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock.plan.payload import loads, refuse_inexact, to_json
from penstock_sdk.record import COLLECTION, Record

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


def text_of(value: Any) -> bytes | None:
    """A payload as it travels between stages: raw as it is, structured as JSON."""
    if type(value) is bytes or value is None:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else _exact_json(value)


def _exact_json(value: Any) -> bytes:
    """msgspec writes `null` for NaN and infinities, and keys of any kind as text: both would be a silent change."""
    text = to_json(value)
    if b"null" in text or b"NaN" in text or b"Infinity" in text or _keys.odd:
        refuse_inexact(value, odd_keys=_keys.odd)
    return text


class _Keys:
    """Whether typed payloads have maps with other keys than text. Told per batch; tasks have one thread."""

    odd = False

    def expect(self, type_: pa.DataType) -> None:
        self.odd = _has_odd_keys(type_)


def _has_odd_keys(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return not pa.types.is_string(type_.key_type) or _has_odd_keys(type_.item_type)
    return any(_has_odd_keys(type_.field(i).type) for i in range(type_.num_fields))


_keys = _Keys()
expect_keys = _keys.expect


def opened(text: bytes | None) -> Any:
    """A payload that an earlier stage sent as text: what is no object has been raw there."""
    if text is None or text[:1] != b"{":
        return text
    try:
        return loads(text)
    except Exception:
        return text


def values(column: pa.Array) -> list[Any]:
    """Python values; text is given as its bytes, which nobody has checked. A MAP is a dict."""
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    if not pa.types.is_nested(column.type):  # asked for maps, even bytes take six times as long: 0.46 µs each
        plain: list[Any] = column.to_pylist()
        return plain
    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    except Exception as e:  # years that Python has not, text that is not UTF-8, a map with a key twice
        raise NotPythonError from e
    return found


class NotPythonError(Exception):
    """A typed payload holds what Python has no value for. `sifted` finds out where."""


def sifted(batch: pa.RecordBatch, node: str) -> tuple[pa.RecordBatch, list[aside.Dead]]:
    """Apart from the others: records that can't be Python values, each with the field that can't."""
    after = batch.column(record.AFTER)
    good, deads = [], []
    for i in range(batch.num_rows):
        try:
            values(after.slice(i, 1))
        except NotPythonError as e:
            deads.append(not_python(batch, i, node, e))
        else:
            good.append(i)
    return batch.take(pa.array(good, pa.int64())), deads


def _shown(column: pa.Array) -> Any:
    """What a dead letter has of a value that Python has not: bytes, a number of days or microseconds."""
    if pa.types.is_string(column.type):
        return {"base64": base64.b64encode(column.view(pa.binary())[0].as_py()).decode()}
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())[0].as_py()
    try:
        return str(column[0])
    except Exception:
        return "a value that can't be shown"


def not_python(batch: pa.RecordBatch, i: int, node: str, e: NotPythonError) -> aside.Dead:
    after = batch.column(record.AFTER).slice(i, 1)
    shown, bad = {}, ""
    for n, column in enumerate(after.flatten()):
        name = after.type.field(n).name
        try:
            [shown[name]] = column.to_pylist(maps_as_pydicts="strict")
        except Exception:
            bad, shown[name] = bad or name, _shown(column)
    part = batch.column(record.PART)[i].as_py() if record.PART in batch.schema.names else 0
    text = f"the field {bad!r} has no form in Python: {aside.describe(e.__cause__)}"
    given = aside.copied({"after": {"value": shown}})
    if record.GIVEN in batch.schema.names and (kept := batch.column(record.GIVEN)[i].as_py()):
        given = aside.decoded(kept)
    return aside.Dead(batch.column(record.SEQ)[i].as_py(), part, node, "processor.value", text, aside.now(), given)


def as_type(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    if pa.types.is_string(type_) and pa.types.is_binary(column.type):
        return column.view(pa.string())
    if pa.types.is_string(type_) and pa.types.is_nested(column.type):
        return pa.array([text_of(v) for v in values(column)], pa.binary()).view(pa.string())
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
        return [item for item in value.items() if item[0] != COLLECTION]  # that one is the namespace
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
        kept: dict[str, Any] = aside.decoded(batch.column(record.GIVEN)[i].as_py() or "{}")
        return kept
    if record.LINE in batch.schema.names:
        return {"after": aside.payload(values(batch.column(record.LINE).slice(i, 1))[0])}
    found = {"after": aside.payload(after)}
    for name in (record.KEY, record.BEFORE):
        if name in batch.schema.names:
            found[name] = aside.payload(values(batch.column(name).slice(i, 1))[0])
    if record.METADATA in batch.schema.names:
        found["metadata"] = dict(batch.column(record.METADATA)[i].as_py() or ())
    if record.NAMESPACE in batch.schema.names and (name := batch.column(record.NAMESPACE)[i].as_py()) is not None:
        found["namespace"] = name
    if record.OPERATION in batch.schema.names and (operation := batch.column(record.OPERATION)[i].as_py()) != "create":
        found["operation"] = operation
    if record.POSITION in batch.schema.names:
        found["position"] = aside.payload(batch.column(record.POSITION)[i].as_py())
    if type(after) is bytes:
        return found
    try:
        copy: dict[str, Any] = aside.copied(found)
    except RecursionError:  # nested too deep to be copied: as the text it came as
        copy = {**found, "after": aside.payload(values(batch.column(record.AFTER).slice(i, 1))[0])}
    return copy


def given_text(batch: pa.RecordBatch, i: int, after: Any, given: dict[str, Any] | None = None) -> str:
    return aside.encode(given or given_at(batch, i, after)).decode()


def line_column(rows: pa.RecordBatch) -> pa.Array:
    """The raw payloads that the source gave."""
    line = rows.column(record.LINE if record.LINE in rows.schema.names else record.AFTER)
    return line.view(pa.string()) if pa.types.is_binary(line.type) else line


def given_column(rows: pa.RecordBatch) -> pa.Array:
    if record.GIVEN in rows.schema.names:
        return rows.column(record.GIVEN)
    return pa.array([given_text(rows, i, v) for i, v in enumerate(values(rows.column(record.AFTER)))], pa.string())
