"""Messages of the protobuf wire, for all records of a chunk at once: Arrow puts the bytes together. A record takes 1 µs this way, where
Python takes 4 and protobuf's own messages 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BYTES = pa.large_binary()


@dataclass(frozen=True)
class Piece:
    """Some bytes of each record: parts that follow each other, the same for all (bytes) or one for each (a column)."""

    parts: tuple[Any, ...]
    size: Any  # bytes of it, of all parts: a number, or one for each record

    def __add__(self, other: Piece) -> Piece:
        return Piece((*self.parts, *other.parts), self.size + other.size)

    def where(self, there: pa.Array) -> Piece:
        """Nothing for the other records."""
        nothing = pa.scalar(b"", BYTES)
        parts = (
            pc.if_else(there, pa.scalar(part, BYTES) if type(part) is bytes else part, nothing) for part in self.parts
        )
        return Piece(tuple(parts), self.size * there.to_numpy(zero_copy_only=False))


NOTHING = Piece((), 0)


def same(data: bytes) -> Piece:
    return Piece((data,), len(data)) if data else NOTHING


def column(found: pa.Array | Sequence[bytes]) -> Piece:
    """Without nulls."""
    made = pa.array(found, BYTES) if not isinstance(found, pa.Array) else found.cast(BYTES)
    return Piece((made,), pc.binary_length(made).to_numpy())


def field(tag: bytes, value: Piece) -> Piece:
    """What is inside a field of known length."""
    return Piece((tag, _varints(value.size), *value.parts), len(tag) + _varint_size(value.size) + value.size)


def optional(tag: bytes, found: pa.Array, inner: bytes) -> Piece:
    """`found` in a field of a message in a field; nothing where it is null."""
    if found.null_count == len(found):
        return NOTHING
    there = found.is_valid()
    value = field(tag, field(inner, column(pc.fill_null(found, b"") if found.null_count else found)))
    return value.where(there) if found.null_count else value


def joined(piece: Piece, rows: int) -> pa.Array:
    """A column with the bytes of each record."""
    parts: list[Any] = []
    for part in piece.parts:
        if type(part) is bytes and parts and type(parts[-1]) is bytes:
            parts[-1] += part
        else:
            parts.append(part)
    if not parts:
        return pa.repeat(pa.scalar(b"", BYTES), rows)
    if all(type(part) is bytes for part in parts):
        return pa.repeat(pa.scalar(b"".join(parts), BYTES), rows)
    given = [pa.scalar(part, BYTES) if type(part) is bytes else part for part in parts]
    return pc.binary_join_element_wise(*given, pa.scalar(b"", BYTES))


def span(found: pa.Array, start: int, end: int) -> bytes:
    """The bytes of some records, which follow each other in the column's memory."""
    if end <= start:
        return b""
    offsets, data = _memory(found)
    return bytes(data[offsets[start] : offsets[end]])


def ends(found: pa.Array) -> np.ndarray[Any, Any]:
    """Where each record ends, in bytes from the first one."""
    offsets, _ = _memory(found)
    found_ends: np.ndarray[Any, Any] = offsets[1:] - offsets[0]
    return found_ends


def _memory(found: pa.Array) -> tuple[Any, memoryview]:
    _, places, data = found.buffers()
    offsets = np.frombuffer(places, np.int64)[found.offset : found.offset + len(found) + 1]
    return offsets, memoryview(data) if data is not None else memoryview(b"")


# -- lengths -----------------------------------------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    found = bytearray()
    while n > 0x7F:
        found.append(n & 0x7F | 0x80)
        n >>= 7
    found.append(n)
    return bytes(found)


_KNOWN = 1 << 14
_SHORT = [varint(n) for n in range(_KNOWN)]
_TABLE = pa.array(_SHORT, BYTES)


def _varints(size: Any) -> Any:
    if isinstance(size, int | np.integer):
        return varint(int(size))
    if not len(size):
        return pa.array([], BYTES)
    first = int(size[0])
    if (size == first).all():
        return varint(first)
    if size.max() < _KNOWN:
        return _TABLE.take(pa.array(size, pa.int64()))
    return pa.array([_SHORT[n] if n < _KNOWN else varint(n) for n in size.tolist()], BYTES)


def _varint_size(size: Any) -> Any:
    if isinstance(size, int | np.integer):
        return len(varint(int(size)))
    return 1 + sum((size >= (1 << bits)).astype(np.int64) for bits in (7, 14, 21, 28))
