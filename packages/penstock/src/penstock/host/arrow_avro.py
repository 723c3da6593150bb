"""The Avro schema of typed columns, for programs: every type with the one of Avro's that holds all of its values. Every field may be null,
as in Spark."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}


class NoForm(Exception):
    """A column that Avro has no type for; the text names it."""


def avro_of(kind: pa.StructType) -> bytes:
    return json.dumps(_record(kind, "record", []), separators=(",", ":")).encode()


def _record(kind: pa.StructType, name: str, path: list[str]) -> dict[str, Any]:
    fields = []
    for i in range(kind.num_fields):
        found = kind.field(i)
        here = [*path, found.name]
        if not _NAME.fullmatch(found.name):
            raise NoForm(f"{'.'.join(here)} can't be sent: names have letters, digits and _ there; rename it")
        fields.append({"name": found.name, "type": ["null", _type(found.type, f"{name}_{found.name}", here)]})
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: pa.DataType, name: str, path: list[str]) -> Any:
    t = pa.types
    if kind in _PLAIN:
        return _PLAIN[kind]
    if t.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if t.is_timestamp(kind) and kind.unit == "us":
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if t.is_struct(kind):
        return _record(kind, name, path)
    if t.is_list(kind) or t.is_large_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, f"{name}_item", [*path, "[]"])]}
    if t.is_map(kind) and t.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_type, f"{name}_value", [*path, "{}"])]}
    raise NoForm(f"{'.'.join(path)} can't be sent: it is {kind}, which Avro has no type for; cast it")
