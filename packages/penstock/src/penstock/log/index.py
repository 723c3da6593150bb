"""The index beside a segment: how far it is durable, and sparse points to start reading from. Derived, can be made anew at any time.

The writer of the log writes it and never fsyncs it while the segment grows: a point only ever names what was fsynced before. Readers in
any process learn from it where the durable part ends. What is torn or from another life of the segment is not believed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import google_crc32c
import msgspec

from penstock import fs
from penstock.log.format import HEADER_BYTES, Header

SUFFIX = ".index"
EVERY = 64 * 1024  # bytes of a segment between two points, at least
MAGIC = b"PENSTIDX"
VERSION = 1

_HEAD = Struct(">8sHHIQ16s20xI")  # magic, version, zero, the segment's generation, base and log id, checksum
_SLOT = Struct(">QQQ4xI")  # position, offset, serial, checksum
_SLOTS_AT = _HEAD.size
_FRAMES_AT = _HEAD.size + 2 * _SLOT.size
_FRAME = Struct(">II")  # length, checksum
_LONGEST = 1 << 26


class Place(NamedTuple):
    """Of the last record of a namespace: the entry's position, and the record's offset."""

    position: int
    offset: int


class Mark(NamedTuple):
    """Everything before `position` holds offsets below `offset`."""

    position: int
    offset: int


class _Point(msgspec.Struct, array_like=True):
    position: int
    offset: int
    names: dict[str, tuple[int, int]]  # namespaces with entries since the last point


_decode = msgspec.msgpack.Decoder(_Point).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Index:
    """What an index file says, or what reading its segment has shown."""

    positions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    names: dict[str, Place] = field(default_factory=dict)  # up to the last point
    durable: Mark | None = None
    length: int = _FRAMES_AT  # of the file, as far as it can be believed

    def before(self, offset: int, base: int) -> Mark:
        """The last point at or before `offset`."""
        at = bisect_right(self.offsets, offset)
        return Mark(self.positions[at - 1], self.offsets[at - 1]) if at else Mark(HEADER_BYTES, base)

    def last(self, base: int) -> Mark:
        return Mark(self.positions[-1], self.offsets[-1]) if self.positions else Mark(HEADER_BYTES, base)

    def add(self, position: int, offset: int, names: dict[str, Place]) -> None:
        self.positions.append(position)
        self.offsets.append(offset)
        self.names.update(names)


def path_of(segment: Path) -> Path:
    return segment.with_suffix(SUFFIX)


def _head(header: Header) -> bytes:
    head = _HEAD.pack(MAGIC, VERSION, 0, header.generation, header.base, header.log_id, 0)[:-4]
    return head + int(google_crc32c.value(head)).to_bytes(4, "big")


def _slot(mark: Mark, serial: int, seed: int) -> bytes:
    fields = _SLOT.pack(*mark, serial, 0)[:-4]
    return fields + int(google_crc32c.extend(seed, fields)).to_bytes(4, "big")


def _newest(slots: bytes, seed: int) -> tuple[Mark | None, int]:
    """And its serial. A slot that is being written is passed over: the other one is whole."""
    best, newest = None, 0
    for at in (0, _SLOT.size):
        slot = slots[at : at + _SLOT.size]
        if len(slot) == _SLOT.size:
            position, offset, serial, crc = _SLOT.unpack(slot)
            if serial > newest and crc == google_crc32c.extend(seed, slot[:-4]):
                best, newest = Mark(position, offset), serial
    return best, newest


def orphan(folder: Path) -> tuple[Path, int] | None:
    """An index above all segments, and how far it says that its segment was durable: somebody has removed that. One that says nothing
    of the kind belongs to a segment that was never born."""
    found = max((entry.name for entry in folder.iterdir() if entry.name.endswith((SUFFIX, ".seg"))), default="")
    path = folder / found
    if not found.endswith(SUFFIX) or path.with_suffix(".seg").exists():
        return None
    data = path.read_bytes()
    header = Header(log_id(data), int(path.stem), generation=_fields(data)[3])
    durable = _newest(data[_SLOTS_AT:_FRAMES_AT], seed_of(header))[0]
    return (path, durable.offset) if durable is not None and durable.offset > header.base else None


def torn_slots(path: Path, header: Header) -> bool:
    """True if a slot was written and is not whole. It may be being written just now."""
    with path.open("rb") as file:
        slots = file.read(_FRAMES_AT)[_SLOTS_AT:]
    for slot in (slots[: _SLOT.size], slots[_SLOT.size :]):
        if any(slot) and slot[-4:] != int(google_crc32c.extend(seed_of(header), slot[:-4])).to_bytes(4, "big"):
            return True
    return False


def _fields(data: bytes) -> tuple[Any, ...]:
    return _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))


def log_id(data: bytes) -> bytes:
    """Of the log that an index file is for; unchecked."""
    return bytes(_fields(data)[5])


def seed_of(header: Header) -> int:
    """Where the checksums of a segment's index begin: nothing that belongs to another writing of it passes for its own."""
    return int(google_crc32c.extend(header.seed, header.base.to_bytes(8, "big") + header.generation.to_bytes(4, "big")))


def outlived(path: Path, header: Header) -> bool:
    """True if it is whole and of an earlier writing of this segment: a compaction that did not finish leaves it so."""
    data = path.read_bytes()[: _HEAD.size]
    generation = _fields(data)[3]
    return generation != header.generation and data == _head(replace(header, generation=generation))


def open_slots(path: Path, header: Header) -> int | None:
    """For `durable`; None if there is no index that belongs to this segment."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    if os.pread(fd, _HEAD.size, 0) == _head(header):
        return fd
    os.close(fd)
    return None


def durable(fd: int, seed: int) -> Mark | None:
    """How far the segment of an open index is durable now."""
    return _newest(os.pread(fd, 2 * _SLOT.size, _SLOTS_AT), seed)[0]


def load(path: Path, header: Header, size: int) -> Index | None:
    """None if there is none that belongs to this segment of `size` bytes."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if data[: _HEAD.size] != _head(header):
        return None
    seed = seed_of(header)
    made = Index(durable=_newest(data[_SLOTS_AT:_FRAMES_AT], seed)[0])
    at, position, offset = _FRAMES_AT, HEADER_BYTES, header.base
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        frame = data[at + _FRAME.size : at + _FRAME.size + length]
        if length > _LONGEST or len(frame) < length or crc != google_crc32c.extend(seed, frame):
            break
        try:
            point = _decode(frame)
        except msgspec.DecodeError:
            break
        if not position <= point.position <= size or point.offset < offset:
            break
        position, offset = point.position, point.offset
        made.add(position, offset, {name: Place(*place) for name, place in point.names.items()})
        at += _FRAME.size + length
    made.length = at
    return made


class IndexFile:
    """The one that is being written, beside the active segment."""

    def __init__(self, path: Path, header: Header, found: Index | None = None) -> None:
        """`found`: what `load` gave for a file that is to be continued."""
        self.path = path
        self._seed = seed_of(header)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if found is None else 0), 0o666)
        try:
            if found is None:
                fs.write(self._fd, _head(header) + bytes(2 * _SLOT.size))
                self._length, self._serial = _FRAMES_AT, 0
            else:
                os.ftruncate(self._fd, found.length)
                self._length = found.length
                self._serial = _newest(os.pread(self._fd, 2 * _SLOT.size, _SLOTS_AT), self._seed)[1]
        except BaseException:
            self.close()
            raise

    def durable(self, mark: Mark) -> None:
        self._serial += 1
        os.pwrite(self._fd, _slot(mark, self._serial, self._seed), _SLOTS_AT + self._serial % 2 * _SLOT.size)

    def point(self, mark: Mark, names: dict[str, Place]) -> bool:
        """False: it could not be written. A disk that is full costs a point, nothing else."""
        frame = _encode(_Point(*mark, names))  # type: ignore[arg-type]
        data = _FRAME.pack(len(frame), google_crc32c.extend(self._seed, frame)) + frame
        try:
            written = os.pwrite(self._fd, data, self._length)
        except OSError:
            return False
        if written == len(data):
            self._length += len(data)
        return written == len(data)

    def sync(self) -> None:
        fs.fsync(self._fd, self.path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
