"""Fields and methods: what `.x` means on any value, and on the record itself. Pure; runs in Spark's tasks.

Where the compiler knows that the dot is the record, it asks `root_field`, whose closures go straight to the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from penstock.plan.gotemplate.errors import Failure, unsupported
from penstock.plan.gotemplate.functions.times import formatted
from penstock.plan.gotemplate.jsontext import dumps
from penstock.plan.gotemplate.printing import stringer
from penstock.plan.gotemplate.values import (
    MISSING,
    NO_DATA,
    OPERATIONS,
    Int,
    Int64,
    Metadata,
    Named,
    Operation,
    Position,
    Raw,
    Struct,
    Structured,
    as_bytes,
    moment,
    type_of,
)
from penstock.plan.moment import Moment
from penstock_sdk.record import Record

Get = Callable[[Any], Any]
ALL = frozenset({"after", "before", "key", "metadata", "namespace", "operation", "position"})
_METADATA = frozenset({"metadata", "namespace"})
_CHANGE = frozenset({"before", "after"})
_NUMBERS = {name: Operation(i) for i, name in enumerate(OPERATIONS, 1)}
_UNUSUAL = frozenset({"Clone", "ToProto", "MarshalJSON", "MarshalText", "FromProto", "UnmarshalJSON", "SetSerializer"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def data(v: Any) -> Any:
    """A payload or key as a whole."""
    if v is None:
        return NO_DATA
    return Raw(v) if isinstance(v, bytes | bytearray) else Structured(v)


def operation(r: Record) -> Operation:
    found = _NUMBERS.get(r.operation)
    return Operation(0) if found is None else found


def change(r: Record) -> Struct:
    return Struct("opencdc.Change", {"Before": data(r.before), "After": data(r.after)})


def whole(r: Record) -> Struct:
    return Struct(
        "opencdc.Record",
        {
            "Position": Position(r.position),
            "Operation": operation(r),
            "Metadata": Metadata(r.metadata),
            "Key": data(r.key),
            "Payload": change(r),
            "serializer": None,
        },
    )


def mapped(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record's method Map."""
    payload = fields["Payload"].fields
    return {
        "position": bytes(fields["Position"]),
        "operation": fields["Operation"].name,
        "metadata": dict(fields["Metadata"].value),
        "key": _bare(fields["Key"]),
        "payload": {"before": _bare(payload["Before"]), "after": _bare(payload["After"])},
    }


def _bare(v: Any) -> Any:
    if isinstance(v, Named):
        return v.value
    return bytes(v) if isinstance(v, bytes) else None


def _bytes(v: Any) -> bytes:
    return bytes(v) if isinstance(v, Raw) else as_bytes(dumps(v))


# --- from the record

_PARTS: dict[str, tuple[Get, frozenset[str]]] = {
    "Position": (lambda r: Position(r.position), frozenset({"position"})),
    "Operation": (operation, frozenset({"operation"})),
    "Metadata": (lambda r: Metadata(r.metadata), _METADATA),
    "Key": (lambda r: data(r.key), frozenset({"key"})),
    "Payload": (change, _CHANGE),
    "Map": (lambda r: mapped(whole(r).fields), ALL),
    "Bytes": (lambda r: _bytes(whole(r)), ALL),
}
_DATA: dict[tuple[str, ...], str] = {("Key",): "key", ("Payload", "Before"): "before", ("Payload", "After"): "after"}


def root_field(names: tuple[str, ...]) -> tuple[Get, frozenset[str]]:
    """For `.a.b.c` of the record: a closure, and the columns that it looks at."""
    if names[0] in _UNUSUAL:
        raise unsupported(f"the method {names[0]} of a record", "use the fields of the record")
    for depth in (1, 2):
        column = _DATA.get(names[:depth])
        if column is not None:
            return _data_field(column, names[depth:]), frozenset({column})
    part = _PARTS.get(names[0])
    if part is None:
        return _absent(names[0], "opencdc.Record"), frozenset()
    get, columns = part
    if len(names) == 1:
        return get, columns
    if names[0] == "Metadata" and not names[1].startswith(("Get", "Set")) and len(names) == 2:
        key = names[1]
        return (lambda r: r.metadata.get(key, MISSING)), columns
    if names == ("Operation", "String"):
        return (lambda r: operation(r).name), columns
    rest = names[1:]
    return (lambda r: chain(get(r), rest)), columns


def _absent(name: str, owner: str) -> Get:
    def get(_: Any) -> Any:
        raise Failure(f"{owner} has no field {name}")

    return get


def _data_field(column: str, names: tuple[str, ...]) -> Get:
    read: Get = {"after": lambda r: r.after, "before": lambda r: r.before, "key": lambda r: r.key}[column]
    if not names:
        return lambda r: data(read(r))
    if names[0] in _UNUSUAL or names[0] == "Bytes":
        return lambda r: chain(data(read(r)), names)
    first, rest = names[0], names[1:]

    def get(r: Record) -> Any:
        found = read(r)
        if type(found) is not dict:
            found = _fields_of(found, first)
        value = found.get(first, MISSING)
        return chain(value, rest) if rest else value

    if column == "after" and not rest:  # the usual one: one call less

        def direct(r: Record) -> Any:
            after = r.after
            if type(after) is dict:
                return after.get(first, MISSING)
            return _fields_of(after, first).get(first, MISSING)

        return direct
    return get


def _fields_of(found: Any, name: str) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        return found
    what = "absent" if found is None else "raw; put json.decode before it"
    raise Failure(f"there is no field {name}: the data are {what}")


# --- from any value


def chain(v: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        v = field(v, name)
    return v


def field(v: Any, name: str, args: tuple[Any, ...] = ()) -> Any:
    """`.name` of a value; with arguments it has to be a method."""
    if v is MISSING:
        return MISSING
    if type(v) is dict:
        found: Any = v
    else:
        method = _method(v, name)
        if method is not None:
            return method(*args)
        found = v.fields if isinstance(v, Struct) else v.value if isinstance(v, Named) else v
    if not isinstance(found, Mapping):
        if v is None or v is NO_DATA:
            raise Failure(f"field {name} of nil")
        raise Failure(f"{type_of(v)} has no field {name}")
    if args:
        raise Failure(f"{name} is no method, and has arguments")
    if isinstance(v, Struct):
        if name not in found or not name[0].isupper():
            raise Failure(f"{v.go} has no field {name}")
        return found[name]
    return found.get(name, MISSING)


_GETTERS: dict[str, tuple[str, str]] = {
    "GetOpenCDCVersion": ("opencdc.version", "string"),
    "GetCreatedAt": ("opencdc.createdAt", "time"),
    "GetReadAt": ("opencdc.readAt", "time"),
    "GetCollection": ("opencdc.collection", "string"),
    "GetConduitSourcePluginName": ("conduit.source.plugin.name", "string"),
    "GetConduitSourcePluginVersion": ("conduit.source.plugin.version", "string"),
    "GetConduitDestinationPluginName": ("conduit.destination.plugin.name", "string"),
    "GetConduitDestinationPluginVersion": ("conduit.destination.plugin.version", "string"),
    "GetConduitSourceConnectorID": ("conduit.source.connector.id", "string"),
    "GetConduitDLQNackError": ("conduit.dlq.nack.error", "string"),
    "GetConduitDLQNackNodeID": ("conduit.dlq.nack.node.id", "string"),
    "GetKeySchemaSubject": ("opencdc.key.schema.subject", "string"),
    "GetKeySchemaVersion": ("opencdc.key.schema.version", "int"),
    "GetPayloadSchemaSubject": ("opencdc.payload.schema.subject", "string"),
    "GetPayloadSchemaVersion": ("opencdc.payload.schema.version", "int"),
    "GetFileName": ("opencdc.file.name", "string"),
    "GetFileSize": ("opencdc.file.size", "int64"),
    "GetFileHash": ("opencdc.file.hash", "string"),
    "GetFileChunkIndex": ("opencdc.file.chunk.index", "int"),
    "GetFileChunkCount": ("opencdc.file.chunk.count", "int"),
}


def _method(v: Any, name: str) -> Callable[..., Any] | None:
    if isinstance(v, Named | Struct | Raw | Operation | Position) and name in _UNUSUAL:
        raise Failure(f"the method {name} is not offered")
    if isinstance(v, Structured | Raw) and name == "Bytes":
        return lambda: _bytes(v)
    if isinstance(v, Metadata):
        return _metadata_method(v, name)
    if isinstance(v, Struct) and v.go == "opencdc.Record":
        return {"Bytes": lambda: _bytes(v), "Map": lambda: mapped(v.fields)}.get(name)
    if isinstance(v, date):
        return _time_method(moment(v), name)
    if isinstance(v, Operation | Position) and name == "String":
        return lambda: stringer(v)
    return None


def _metadata_method(v: Metadata, name: str) -> Callable[..., Any] | None:
    found = _GETTERS.get(name)
    if found is None:
        if name.startswith("Set") and "Get" + name[3:] in _GETTERS:
            raise Failure(f"{name} gives nothing")
        return None
    key, kind = found

    def get() -> Any:
        value = v.value.get(key)
        if value is None:
            raise Failure(f"the metadata have no {key}")
        if kind == "string":
            return value
        try:
            number = int(value)
        except ValueError as e:
            raise Failure(f"{key} in the metadata is no number") from e
        if kind != "time":
            return Int(number) if kind == "int" else Int64(number)
        return Moment.of(_EPOCH + timedelta(microseconds=number // 1000), number % 1000)

    return get


def _time_method(at: datetime, name: str) -> Callable[..., Any] | None:
    simple: dict[str, Callable[..., Any]] = {
        "Year": lambda: Int(at.year),
        "Day": lambda: Int(at.day),
        "Hour": lambda: Int(at.hour),
        "Minute": lambda: Int(at.minute),
        "Second": lambda: Int(at.second),
        "YearDay": lambda: Int(at.timetuple().tm_yday),
        "Unix": lambda: Int64((at - _EPOCH) // timedelta(seconds=1)),
        "UnixMilli": lambda: Int64((at - _EPOCH) // timedelta(milliseconds=1)),
        "UnixMicro": lambda: Int64((at - _EPOCH) // timedelta(microseconds=1)),
        "UnixNano": lambda: Int64((at - _EPOCH) // timedelta(microseconds=1) * 1000 + getattr(at, "nanosecond", 0)),
        "IsZero": lambda: at == datetime(1, 1, 1, tzinfo=UTC),
        "UTC": lambda: at.astimezone(UTC),
        "String": lambda: stringer(at),
        "Format": lambda layout: formatted(layout, at),
    }
    if name not in simple:
        raise Failure(f"the method {name} of a time is not offered")
    return simple[name]
