"""A batch of records as bytes and back: an Arrow IPC stream with exactly one batch. Runs in writers, readers, compaction and tools.

Nothing is written that could not be read again, and nothing that was read is believed before Arrow has checked it whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from penstock.errors import Rejected

PAYLOADS: Final = ("key", "before", "after")
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


def is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)) or (
        bool(t.is_dictionary(kind)) and is_text(kind.value_type)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind) or t.is_binary_view(kind)
    ) or (bool(t.is_dictionary(kind)) and _is_bytes(kind.value_type))


def _is_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and is_text(kind.key_type) and is_text(kind.item_type)


def _is_payload(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) or is_text(kind) or _is_bytes(kind)


_TYPES: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "position": (_is_bytes, "binary"),
    "operation": (is_text, "text"),
    "timestamp": (pa.types.is_timestamp, "a timestamp"),
    "metadata": (_is_texts, "a map of text by text"),
    **dict.fromkeys(PAYLOADS, (_is_payload, "binary (raw), text (JSON) or a struct")),
}


@lru_cache(100)
def unfit(schema: pa.Schema) -> str:
    """Why a batch of this schema holds no records, or nothing."""
    names = schema.names
    for name, (fits, expected) in _TYPES.items():
        if name in names:
            if names.count(name) > 1:
                return f"the batch has the column {name!r} more than once"
            kind = schema.field(name).type
            if not fits(kind) and not pa.types.is_null(kind):
                return f"the column {name!r} of the batch is {kind}; it must be {expected}"
    return ""


@cache
def _options(compression: str | None) -> ipc.IpcWriteOptions:
    return ipc.IpcWriteOptions(compression=compression)


def write(batch: pa.RecordBatch, compression: str | None) -> pa.Buffer:
    """A stream of this batch alone. `Rejected` for one that could not be read again."""
    try:
        why = unfit(batch.schema)
        batch.validate(full=True)
    except pa.ArrowException as e:
        why = str(e)
    if why:
        hint = "correct it; docs/formats/commit-log.md names the columns and their types"
        raise Rejected("The log can't keep a batch", code="log.batch", why=why, hint=hint)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=_options(compression)) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def read(buffer: pa.Buffer) -> pa.RecordBatch:
    """The batch, its columns being parts of the buffer where they are not packed. ValueError for anything but one good batch."""
    try:
        batch = _only_batch(buffer)
        # 2 µs for 1,000 rows of bytes, 20 with text; without it, offsets that lead elsewhere would be followed.
        batch.validate(full=True)
    except Exception as e:  # of Arrow's readers: whatever they raise, these bytes are no batch
        raise ValueError(f"a batch in the log can't be read: {str(e) or type(e).__name__}") from None
    return batch


def _only_batch(buffer: pa.Buffer) -> pa.RecordBatch:
    # With its checks 10 µs for 1,000 rows of 150 bytes; to keep schemas by their bytes would save 5 of them.
    source = pa.BufferReader(buffer)
    try:
        batch = ipc.open_stream(source).read_next_batch()
    except StopIteration:
        raise ValueError("it holds no batch") from None
    if buffer.slice(source.tell()).to_pybytes() not in (END_OF_STREAM, b""):
        raise ValueError("something follows its batch, and there must be exactly one")
    return batch
