"""Avro: bare values, without a file around them and without the header of registries. Connectors that are served write and read it for
payloads that plain structured data would change; a host uses the same code. Standard library only.

It is strict, where libraries are not: bytes that are cut off or left over, numbers that are too large for their type, places in unions and
enums that do not exist, decimals with too many digits and schemas with doubled names are errors, never other values. An error has the path
to the value. Logical types that are not known are what they are made of, as the standard has it; nanoseconds, too, because Python's times
have none.

| Avro | Python |
|---|---|
| int, long; float, double; string, enum; bytes, fixed | int; float; str; bytes |
| array; map, record | list; dict |
| decimal; date; time-millis, time-micros; uuid; duration | Decimal; date; time; UUID; Duration |
| timestamp-millis, timestamp-micros | datetime in UTC |
| local-timestamp-millis, local-timestamp-micros | datetime without a zone |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from penstock_sdk.avro_logical import AvroError, Duration
from penstock_sdk.avro_types import (
    CUT,
    PRIMITIVES,
    Type,
    array_of,
    enum_of,
    fields_of,
    fixed_of,
    logical_of,
    map_of,
    union_of,
)

__all__ = ["NAME", "AvroError", "Codec", "Duration", "check", "compiled"]

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Codec:
    """One schema. May be used from several threads."""

    def __init__(self, type_: Type) -> None:
        self._write, self._read = type_.write, type_.read

    def encode(self, value: Any) -> bytes:
        """AvroError with the path to what does not fit."""
        out = bytearray()
        try:
            self._write(value, out)
        except RecursionError:
            raise AvroError("it is nested too deep") from None
        return bytes(out)

    def decode(self, data: bytes) -> Any:
        """All of the bytes, or AvroError."""
        try:
            value, end = self._read(data, 0)
        except IndexError:
            raise AvroError(CUT) from None
        except RecursionError:
            raise AvroError("it is nested too deep") from None
        if end != len(data):
            raise AvroError(f"{len(data) - end} bytes are left over")
        return value


def compiled(schema: bytes) -> Codec:
    """ValueError, with what is wrong, for what is no Avro schema."""
    try:
        found = json.loads(schema)
    except ValueError:
        raise ValueError("the schema is no JSON") from None
    try:
        return Codec(_Compiler().type(found, ""))
    except RecursionError:
        raise ValueError("the schema is nested too deep") from None


def check(schema: bytes) -> None:
    """For a schema service: ValueError for what is no Avro schema."""
    compiled(schema)


# --- schemas


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def type(self, schema: Any, space: str) -> Type:
        if isinstance(schema, str):
            return PRIMITIVES[schema] if schema in PRIMITIVES else self._reference(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError("the schema has a part that is no type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.type(kind, space)
        match kind:
            case "record" | "error":
                return self._record(schema, space)
            case "enum":
                return self._enum(schema, space)
            case "fixed":
                return self._fixed(schema, space)
            case "array":
                return array_of(self.type(schema.get("items"), space))
            case "map":
                return map_of(self.type(schema.get("values"), space))
        made = self.type(kind, space)
        return logical_of(made, schema, kind)

    def _reference(self, name: str, space: str) -> Type:
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._named.get(full)
        if found is None:
            raise ValueError(f"the schema has a type {name[:80]!r} that is not defined")
        return found

    def _name(self, schema: Mapping[str, Any], made: Type) -> str:
        """Defines it, before what is in it: that may refer to it. The namespace of what is in it."""
        name, space = schema.get("name"), schema.get("namespace")
        if isinstance(name, str) and "." not in name and isinstance(space, str) and space:
            name = f"{space}.{name}"
        if not isinstance(name, str) or not all(NAME.fullmatch(part) for part in name.split(".")):
            raise ValueError(f"the schema has a name that is none: {str(name)[:80]!r}")
        if name in self._named or name in PRIMITIVES:
            raise ValueError(f"the schema defines {name[:80]!r} twice")
        self._named[name] = made
        return name.rpartition(".")[0]

    def _record(self, schema: Mapping[str, Any], space: str) -> Type:
        made = Type(_later_write, _later_read, (dict,))
        # What refers to it while it is being made finds what it will be.
        within = Type(lambda v, out: made.write(v, out), lambda data, at: made.read(data, at), (dict,))
        inner = self._name({"namespace": space, **schema}, within)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise ValueError("the schema has a record without fields")  # noqa: TRY004 (it is not the caller's)
        types: dict[str, Type] = {}
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise ValueError(f"the schema has a field whose name is none: {str(name)[:80]!r}")
            if name in types:
                raise ValueError(f"the schema has the field {name[:80]!r} twice")
            types[name] = self.type(field.get("type"), inner)
        made.write, made.read = fields_of(types)
        return made

    def _enum(self, schema: Mapping[str, Any], space: str) -> Type:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) and NAME.fullmatch(s) for s in symbols):
            raise ValueError("the schema has an enum without symbols")
        if len(set(symbols)) != len(symbols):
            raise ValueError("the schema has an enum with a doubled symbol")
        made = enum_of(symbols)
        self._name({"namespace": space, **schema}, made)
        return made

    def _fixed(self, schema: Mapping[str, Any], space: str) -> Type:
        size = schema.get("size")
        if type(size) is not int or size < 0:
            raise ValueError("the schema has a fixed without a size")
        made = logical_of(fixed_of(size), schema, "fixed")
        self._name({"namespace": space, **schema}, made)
        return made

    def _union(self, schema: list[Any], space: str) -> Type:
        kinds = []
        for branch in schema:
            while isinstance(branch, dict) and isinstance(branch.get("type"), dict):
                branch = branch["type"]
            kind = branch.get("type") if isinstance(branch, dict) else branch
            if not isinstance(kind, str):
                raise ValueError("the schema has a union in a union")  # noqa: TRY004
            kinds.append(branch["name"] if kind in ("record", "error", "enum", "fixed") and "name" in branch else kind)
        if not schema or len(set(kinds)) != len(kinds):
            raise ValueError("the schema has a union that is empty or has a type twice")
        return union_of([self.type(branch, space) for branch in schema])


def _later_write(_: Any, __: bytearray) -> None:
    raise AssertionError("the schema is not complete")


def _later_read(_: bytes, __: int) -> tuple[Any, int]:
    raise AssertionError("the schema is not complete")
