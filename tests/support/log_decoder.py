"""Reads a segment of a commit log with `struct` alone, from what docs/formats/commit-log.md says. Shares no code with Penstock.

Tests hold it against the library: where both agree, the page, the library and a stranger's decoder mean the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Entry = tuple[int, int, int, int, int, bytes, bytes]  # offset, count, kind, timestamp, mode, key, data
_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in _TABLE]


def crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def decode(file: bytes) -> Iterator[Entry]:
    """Raises ValueError or struct.error at the first byte that is wrong."""
    magic, version, _, _, _, _, _, log_id, _, crc = struct.unpack_from(">8sHHIQQQ16sII", file)
    if magic != b"PENSTLOG" or crc != crc32c(file[:60]) or version not in (1, 2):
        raise ValueError("header")
    salt, at, wrapper = crc32c(log_id), 64, ">4sIIBBHI" if version == 1 else ">4sIIBBHIQ"
    while at < len(file):
        magic, head_crc, data_crc, kind, _, padding, count, *_ = struct.unpack_from(wrapper, file, at)
        seed = at + struct.calcsize(wrapper) + padding
        offset, message, timestamp, mode, key_length = struct.unpack_from(">QIQBI", file, seed)
        (data_length,) = struct.unpack_from(">I", file, seed + 25 + key_length)
        data, end = seed + 29 + key_length, seed + 29 + key_length + data_length
        if magic != b"\x8cPLE" or head_crc != crc32c(file[at + 8 : data], salt) or message != end - seed - 21:
            raise ValueError(f"the head at {at}")
        if end > len(file) or data_crc != crc32c(file[data:end], salt):
            raise ValueError(f"the data of {offset}")
        yield offset, count, kind, timestamp, mode, file[data - 4 - key_length : data - 4], file[data:end]
        at = end
