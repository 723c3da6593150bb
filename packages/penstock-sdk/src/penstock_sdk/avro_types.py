"""The types of Avro, each as a pair of functions: one that writes a value, one that reads it. `avro` puts them together as a schema
says."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock_sdk.avro_logical import LOGICAL, AvroError, Logical, decimals, plain

LONG: Final = 2**63
INT: Final = 2**31
EMPTY_ITEMS: Final = 65536  # items of an array that may take no byte at all, as nulls do: more would be an attack
CUT: Final = "the bytes end before it does"

Write = Callable[[Any, bytearray], None]
Read = Callable[[bytes, int], tuple[Any, int]]


@dataclass(slots=True)
class Type:
    """`takes`: the Python types that it writes; how a union finds its branch."""

    write: Write
    read: Read
    takes: tuple[type, ...]


# --- primitive types


def _write_null(value: Any, _: bytearray) -> None:
    if value is not None:
        raise AvroError("it is not null", value)


def _write_boolean(value: Any, out: bytearray) -> None:
    if type(value) is not bool:
        raise AvroError("it is no boolean", value)
    out.append(value)


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise AvroError("a boolean is 0 or 1")
    return data[at] == 1, at + 1


def _put(number: int, out: bytearray) -> None:
    rest = (number << 1) ^ (number >> 63)
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def _get(data: bytes, at: int) -> tuple[int, int]:
    rest = data[at]
    at += 1
    if rest > 127:
        rest &= 127
        shift = 7
        while (byte := data[at]) > 127:
            rest |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise AvroError("a number has more than 64 bits")
        rest |= byte << shift
        at += 1
        if rest >> 64:
            raise AvroError("a number has more than 64 bits")
    return (rest >> 1) ^ -(rest & 1), at


def _write_long(value: Any, out: bytearray) -> None:
    if type(value) is not int:
        value = plain(value, int)
    if not -LONG <= value < LONG:
        raise AvroError("integers have at most 64 bits", value)
    _put(value, out)


def _write_int(value: Any, out: bytearray) -> None:
    if type(value) is not int:
        value = plain(value, int)
    if not -INT <= value < INT:
        raise AvroError("this integer has at most 32 bits", value)
    _put(value, out)


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _get(data, at)
    if not -INT <= value < INT:
        raise AvroError("a number has more than 32 bits")
    return value, at


def _floating(form: str) -> Type:
    packer = struct.Struct(form)

    def write(value: Any, out: bytearray) -> None:
        if type(value) is not float:
            value = plain(value, float)
        try:
            data = packer.pack(value)
        except OverflowError:
            raise AvroError("it is too large for 32 bits", value) from None
        if packer.size == 4 and value == value and packer.unpack(data)[0] != value:
            raise AvroError("it loses digits with 32 bits", value)
        out += data

    def read(data: bytes, at: int) -> tuple[float, int]:
        if at + packer.size > len(data):
            raise AvroError(CUT)
        return packer.unpack_from(data, at)[0], at + packer.size

    return Type(write, read, (float,))


def _write_bytes(value: Any, out: bytearray) -> None:
    if type(value) is not bytes:
        value = plain(value, bytes)
    _put(len(value), out)
    out += value


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _get(data, at)
    end = at + size
    if size < 0:
        raise AvroError("a length is negative")
    if end > len(data):
        raise AvroError(CUT)
    return data[at:end], end


def _write_string(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        value = plain(value, str)
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise AvroError("it is no UTF-8: half of a surrogate pair is in it", value) from None
    _put(len(data), out)
    out += data


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    found, at = _read_bytes(data, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        raise AvroError("a text is no UTF-8") from None


PRIMITIVES: Final = {
    "null": Type(_write_null, lambda _, at: (None, at), (type(None),)),
    "boolean": Type(_write_boolean, _read_boolean, (bool,)),
    "int": Type(_write_int, _read_int, (int,)),
    "long": Type(_write_long, _get, (int,)),
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": Type(_write_bytes, _read_bytes, (bytes,)),
    "string": Type(_write_string, _read_string, (str,)),
}


# --- types that are made


def fixed_of(size: int) -> Type:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not bytes or len(value) != size:
            raise AvroError(f"it has not {size} bytes", value)
        out += value

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise AvroError(CUT)
        return data[at : at + size], at + size

    return Type(write, read, (bytes,))


def enum_of(symbols: Sequence[str]) -> Type:
    places = {symbol: place for place, symbol in enumerate(symbols)}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str) or value not in places:
            raise AvroError("it is no symbol of the enum", value)
        _put(places[value], out)

    def read(data: bytes, at: int) -> tuple[str, int]:
        place, at = _get(data, at)
        if not 0 <= place < len(symbols):
            raise AvroError("an enum has no such symbol")
        return symbols[place], at

    return Type(write, read, (str,))


def fields_of(types: Mapping[str, Type]) -> tuple[Write, Read]:
    writes = [(name, type_.write) for name, type_ in types.items()]
    reads = [(name, type_.read) for name, type_ in types.items()]

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise AvroError("it is no dict", value)
        if len(value) != len(writes):
            raise AvroError("its names are not those of the schema", value)
        name = ""
        try:
            for name, put in writes:
                put(value[name], out)
        except KeyError:
            raise AvroError("its names are not those of the schema", value) from None
        except AvroError as error:
            error.steps.append(name)
            raise

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        name = ""
        try:
            for name, get in reads:
                made[name], at = get(data, at)
        except IndexError:
            raise _at(AvroError(CUT), name) from None
        except AvroError as error:
            error.steps.append(name)
            raise
        return made, at

    return write, read


def _at(error: AvroError, step: Any) -> AvroError:
    error.steps.append(step)
    return error


def _blocks(data: bytes, at: int, item: Callable[[bytes, int], int]) -> int:
    """The blocks of an array or a map. A block may say its size in bytes; then it is that."""
    while True:
        count, at = _get(data, at)
        if not count:
            return at
        end = None
        if count < 0:
            count = -count
            size, at = _get(data, at)
            end = at + size
        if count > len(data) - at + EMPTY_ITEMS:
            raise AvroError(CUT)
        for _ in range(count):
            at = item(data, at)
        if end is not None and at != end:
            raise AvroError("a block has another size than it says")


def array_of(items: Type) -> Type:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, list):
            raise AvroError("it is no list", value)
        put = items.write
        if value:
            _put(len(value), out)
            place = 0
            try:
                for place, one in enumerate(value):  # noqa: B007 (also in the handler)
                    put(one, out)
            except AvroError as error:
                error.steps.append(place)
                raise
        out.append(0)

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        made: list[Any] = []

        def item(data: bytes, at: int) -> int:
            one, at = items.read(data, at)
            made.append(one)
            return at

        try:
            return made, _blocks(data, at, item)
        except AvroError as error:
            error.steps.append(len(made))
            raise

    return Type(write, read, (list,))


def map_of(values: Type) -> Type:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, dict):
            raise AvroError("it is no dict", value)
        name: Any = ""
        try:
            if value:
                _put(len(value), out)
            for name, one in value.items():
                _write_string(name, out)
                values.write(one, out)
        except AvroError as error:
            error.steps.append(name)
            raise
        out.append(0)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}

        def item(data: bytes, at: int) -> int:
            name, at = _read_string(data, at)
            if name in made:
                raise AvroError("a map has a name twice")
            try:
                made[name], at = values.read(data, at)
            except AvroError as error:
                error.steps.append(name)
                raise
            return at

        return made, _blocks(data, at, item)

    return Type(write, read, (dict,))


def union_of(branches: Sequence[Type]) -> Type:
    known: dict[type, list[tuple[int, Write]]] = {}
    for place, branch in enumerate(branches):
        for kind in branch.takes:
            known.setdefault(kind, []).append((place, branch.write))
    reads = [branch.read for branch in branches]

    def write(value: Any, out: bytearray) -> None:
        found = known.get(type(value))
        if found is None:
            found = [place for kind, places in known.items() if isinstance(value, kind) for place in places]
        start = len(out)
        failed: AvroError | None = None
        for place, put in found:
            try:
                _put(place, out)
                put(value, out)
            except AvroError as error:  # the next one, two records say, may fit
                del out[start:]
                failed = error
            else:
                return
        raise failed or AvroError("it is of no type of the union", value)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        place, at = _get(data, at)
        if not 0 <= place < len(reads):
            raise AvroError("a union has no such branch")
        return reads[place](data, at)

    return Type(write, read, tuple(known))


def logical_of(base: Type, schema: Mapping[str, Any], kind: str) -> Type:
    """What a logical type makes of its base. One that is not known, or not right, is its base."""
    name, size = schema.get("logicalType"), schema.get("size", 0)
    logical: Logical | None
    if name == "decimal" and kind in ("bytes", "fixed"):
        logical = decimals(schema.get("precision"), schema.get("scale", 0), size if kind == "fixed" else None)
    else:
        logical = LOGICAL.get((name, f"fixed {size}" if kind == "fixed" else kind)) if isinstance(name, str) else None
    if logical is None:
        return base
    out_of, into, takes = logical.out_of, logical.into, logical.takes
    put, get = base.write, base.read

    def write(value: Any, out: bytearray) -> None:
        put(out_of(value), out)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = get(data, at)
        return into(value), at

    return Type(write, read, (takes,))
