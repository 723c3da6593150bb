"""The bytes of a log: segment header and entry, packed and checked. Pure; docs/formats/commit-log.md says the same in words.

An entry is the seed's fields, in its order and widths, with a wrapper before them. Two checksums: one over everything but the data, so
that the way to the next entry, offsets and namespace can be trusted without reading the data; one over the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Protocol

import google_crc32c

from penstock.testing import faults

VERSION = 2  # written; all below it are read
SEGMENT_MAGIC = b"PENSTLOG"
ENTRY_MAGIC = b"\x8cPLE"
HEADER_BYTES = 64
ALIGN = 64  # the data of a batch begins at a multiple of it in the file, as Arrow likes its buffers
LENGTHS = 1 << 32
MAX_DATA = (1 << 31) - 1

_HEADER = Struct(">8sHHIQQQ16sII")
_CHECKED_HEADER = HEADER_BYTES - 4
# magic, checksum of the head, checksum of the data, kind, zero, padding, count; since version 2: durable
_WRAPPERS = {1: Struct(">4sIIBBHI"), 2: Struct(">4sIIBBHIQ")}
_SEED = Struct(">QIQBI")  # offset, message length, timestamp, mode, key length
_CHECKED = 8  # the first byte that the head's checksum covers
_LENGTH = Struct(">I")


class Kind(IntEnum):
    RECORD = 0  # one record
    BATCH = 1  # an Arrow IPC stream with one batch of consecutive records
    LOST = 2  # what `repair` writes in place of records that can't be read any more


class Mode(IntEnum):
    """Where the source is with this namespace: copying what is there, following changes, or done with the copy."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2

    @property
    def phase(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, phase: str) -> Mode:
        try:
            return cls[phase.upper()]
        except KeyError:
            raise ValueError(f"no such phase: {phase!r}; there are copy, sync and complete") from None


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive records of one namespace; or, `lost`, the place of records that can't be read any more."""

    offset: int
    count: int
    namespace: str
    lost: bool = False

    @property
    def end(self) -> int:
        return self.offset + self.count


class Bad(Exception):
    """These bytes are not what was written; the text says how that shows. Never leaves `penstock.log`."""


class Bytes(Protocol):
    """What entries are read from: a mapped file, or bytes."""

    def __getitem__(self, key: slice, /) -> bytes: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Header:
    """The first bytes of a segment."""

    log_id: bytes
    base: int  # every offset in it is at or above this
    version: int = VERSION
    generation: int = (
        0  # 0: as it was appended; else a random number for each time it was written anew, and its index has the same
    )
    covers: int = 0  # the offset where the next segment begins; 0: not known when it was written
    holes: int = 0  # compaction took records away below this offset; above it none is missing
    length: int = 0  # in bytes, modulo LENGTHS, of one that was written anew; 0: it may still grow

    def pack(self) -> bytes:
        fields = (self.version, 0, self.generation, self.base, self.covers, self.holes, self.log_id, self.length)
        head = _HEADER.pack(SEGMENT_MAGIC, *fields, 0)[:_CHECKED_HEADER]
        return head + _LENGTH.pack(google_crc32c.value(head))

    @staticmethod
    def unpack(data: bytes) -> Header:
        if len(data) < HEADER_BYTES:
            raise Bad(f"a segment begins with {HEADER_BYTES} bytes, there are {len(data)}")
        if not data.startswith(SEGMENT_MAGIC):
            raise Bad("it does not begin like a segment")
        if data[_CHECKED_HEADER:HEADER_BYTES] != _LENGTH.pack(google_crc32c.value(data[:_CHECKED_HEADER])):
            raise Bad("the checksum of its header is wrong")
        return Header.read(data)

    @staticmethod
    def read(data: bytes) -> Header:
        """Unchecked."""
        _, version, _, generation, base, covers, holes, log_id, length, _ = _HEADER.unpack(data[:HEADER_BYTES])
        return Header(log_id, base, version, generation, covers, holes, length)

    @property
    def seed(self) -> int:
        """Where every checksum of this log begins: entries of another log, or of one inside a payload, never pass as good."""
        return int(google_crc32c.value(self.log_id))


@dataclass(slots=True)  # not frozen: that would treble what it costs to make one
class Head:
    """Everything of an entry but its data."""

    kind: int
    offset: int
    count: int
    durable: int  # every offset below it was on disk when this was written
    timestamp: int  # ns since 1970, when it was appended
    mode: int
    key: bytes
    data_crc: int
    position: int  # of the entry in its file
    data: int  # where the data begins
    length: int  # of the data

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.offset + self.count

    @property
    def next(self) -> int:
        """Where the next entry begins."""
        return self.data + self.length

    @property
    def namespace(self) -> str:
        return self.key.decode()


def pack_head(
    seed: int,
    position: int,
    kind: int,
    offset: int,
    count: int,
    durable: int,
    timestamp: int,
    mode: int,
    key: bytes,
    length: int,
    data_crc: int,
) -> bytes:
    """The bytes before the data, for an entry at `position` of its file."""
    wrapper = _WRAPPERS[VERSION]
    fixed = wrapper.size + _SEED.size + len(key) + _LENGTH.size
    pad = -(position + fixed) % ALIGN if kind == Kind.BATCH else 0
    checked = b"".join(
        (
            wrapper.pack(ENTRY_MAGIC, 0, data_crc, kind, 0, pad, count, durable)[_CHECKED:],
            bytes(pad),
            _SEED.pack(offset, 8 + len(key) + length, timestamp, mode, len(key)),
            key,
            _LENGTH.pack(length),
        )
    )
    return ENTRY_MAGIC + _LENGTH.pack(google_crc32c.extend(seed, checked)) + checked


def data_crc(seed: int, data: Any) -> int:
    """`data`: bytes or a buffer of Arrow's."""
    return int(google_crc32c.extend(seed, data))


def read_head(data: Bytes, position: int, limit: int, header: Header, seed: int) -> Head:
    """The head at `position`, checked; the entry ends at or before `limit`. `Bad` if there is none."""
    wrapper = _WRAPPERS[header.version]
    start = data[position : min(position + wrapper.size, limit)]
    if len(start) < wrapper.size:
        raise Bad(f"{len(start)} bytes are no whole entry")
    magic, crc, body, kind, _, pad, count, *durable = wrapper.unpack(start)
    if magic != ENTRY_MAGIC:
        raise Bad("no entry begins here")
    at = position + wrapper.size + pad
    fixed = data[at : min(at + _SEED.size, limit)]
    if len(fixed) < _SEED.size:
        raise Bad("an entry is cut off in its head")
    offset, message, timestamp, mode, key_length = _SEED.unpack(fixed)
    after_key = at + _SEED.size + key_length
    if after_key + _LENGTH.size > limit or message < key_length + 8:
        raise Bad("an entry is cut off in its head, or its lengths are wrong")
    end = after_key + _LENGTH.size
    checked = data[position + _CHECKED : end]
    if crc != google_crc32c.extend(seed, checked) and faults.safeguard("log-crc"):
        raise Bad("the checksum of an entry's head is wrong")
    length = message - key_length - 8
    if end + length > limit:
        raise Bad("an entry is cut off in its data")
    key = data[after_key - key_length : after_key]
    if kind > Kind.LOST or mode > Mode.COMPLETE or not count or not (key.isascii() or _is_utf8(key)):
        raise Bad("an entry has a kind, mode, count or namespace that none can have")
    return Head(kind, offset, count, durable[0] if durable else 0, timestamp, mode, key, body, position, end, length)


def _is_utf8(key: bytes) -> bool:
    try:
        return bool(key.decode())
    except UnicodeDecodeError:
        return False
