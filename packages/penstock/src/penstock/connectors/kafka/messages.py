"""Staged records as what is given to a producer. Runs in Spark's tasks, and in the engine where records are few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.connectors.kafka.tail import HASH, ID
from penstock.connectors.kafka.topics import TOPIC_KEY

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, BYTES = 10_000, 8 << 20  # of what is read at once
TOPIC = "topic"  # the column of it in staged files
_PAYLOADS = (record.KEY, record.BEFORE, record.AFTER)
HEADER, GATHERED = "kafka.header.", "kafka.headers"  # where `kafka` as a source puts headers
Id = tuple[int, int]  # seq and part
Header = tuple[str, bytes]


@dataclass(frozen=True)
class Form:
    """How files of records are read."""

    topic: str | None  # that of all records
    by: str | None  # else the column that says it: text, or metadata with it
    opencdc: bool  # values are whole records; else payloads
    headers: bool  # metadata becomes headers
    raw: tuple[str, ...]  # payloads that are bytes, and not JSON
    columns: tuple[str, ...]  # that are needed

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "raw": list(self.raw), "columns": list(self.columns)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Form:
        return cls(**{**found, "raw": tuple(found["raw"]), "columns": tuple(found["columns"])})


@dataclass(frozen=True)
class Messages:
    """Some records in their order. `values` may hold a `ValueError`: that record has no form."""

    seqs: Sequence[int]
    parts: Sequence[int]
    ids: Sequence[bytes]  # as they stand in the header
    topics: str | Sequence[str]
    keys: Sequence[bytes | None] | None  # None: no record has one
    values: Sequence[Any]
    headers: Sequence[Sequence[Header]] | None

    def __len__(self) -> int:
        return len(self.seqs)

    def topic(self, i: int) -> str:
        return self.topics if isinstance(self.topics, str) else self.topics[i]

    def only(self, chosen: Sequence[int]) -> Messages:
        def of(found: Any) -> Any:
            return found if found is None or isinstance(found, str) else [found[i] for i in chosen]

        return Messages(
            *(of(x) for x in (self.seqs, self.parts, self.ids, self.topics, self.keys, self.values, self.headers))
        )


def read(folder: Path, files: Sequence[str], form: Form) -> Iterator[Messages]:
    import pyarrow.parquet as pq

    for name in files:
        with pq.ParquetFile(folder / name) as file:
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            wide = size // max(1, file.metadata.num_rows) + 1
            for batch in file.iter_batches(max(1, min(ROWS, BYTES // wide)), columns=list(form.columns)):
                yield _messages(batch, form)


def _messages(batch: pa.RecordBatch, form: Form) -> Messages:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    seq, part = columns[record.SEQ], columns[record.PART]
    ids = seq.cast(pa.string()).cast(pa.binary()).to_pylist()
    parts = part.to_pylist()
    if pc.any(pc.not_equal(part, 0)).as_py():
        ids = [b"%s.%d" % (id_, n) if n else id_ for id_, n in zip(ids, parts, strict=True)]
    topics: str | list[str] = form.topic if form.by is None and form.topic else topics_of(columns[form.by or TOPIC])
    key = _bytes(columns[record.KEY])
    keys = None if key.null_count == len(key) else key.to_pylist()
    headers = None
    if form.headers:
        headers = [
            [(k.removeprefix(HEADER), v.encode(errors="surrogateescape")) for k, v in found or () if _is_header(k, v)]
            for found in columns[record.METADATA].to_pylist()
        ]
    values = _opencdc(columns, form) if form.opencdc else _payloads(columns)
    return Messages(seq.to_pylist(), parts, ids, topics, keys, values, headers)


def topics_of(column: pa.Array) -> list[str]:
    """Of texts, or of metadata."""
    import pyarrow as pa

    if not pa.types.is_map(column.type):
        return list(column.to_pylist())
    return [dict(found)[TOPIC_KEY] for found in column.to_pylist()]


def _payloads(columns: dict[str, pa.Array]) -> list[bytes | None]:
    """Of a delete there is nothing."""
    import pyarrow.compute as pc

    found: list[bytes | None] = _bytes(columns[record.AFTER]).to_pylist()
    deletes = pc.equal(columns[record.OPERATION], "delete")
    if pc.any(deletes).as_py():
        return [None if gone else value for gone, value in zip(deletes.to_pylist(), found, strict=True)]
    return found


def _bytes(column: pa.Array) -> pa.Array:
    """Text as its bytes, which nobody has checked."""
    import pyarrow as pa

    return column.view(pa.binary()) if pa.types.is_string(column.type) else column


def _is_header(key: str, value: str | None) -> bool:
    """Not what `kafka` as a source has gathered, nor our own of an earlier delivery."""
    return value is not None and key.removeprefix(HEADER) not in (GATHERED, HASH, ID, TOPIC_KEY)


def _opencdc(columns: dict[str, pa.Array], form: Form) -> list[Any]:
    """Whole records as JSON, as Conduit writes them."""
    from penstock.connectors.file.opencdc import line
    from penstock_sdk import Record

    names = [
        name for name in record.COLUMNS if name in columns and name not in (record.SEQ, record.PART, record.SOURCE)
    ]
    lists = []
    for name in names:
        found = _bytes(columns[name]).to_pylist() if name in _PAYLOADS else columns[name].to_pylist()
        if name in _PAYLOADS and name not in form.raw:
            found = [_opened(value) for value in found]
        elif name == record.METADATA:
            found = [{k: v for k, v in entries or () if v is not None and k != TOPIC_KEY} for entries in found]
        lists.append(found)
    made: list[Any] = []
    for row in zip(*lists, strict=True):
        values = dict(zip(names, row, strict=True))
        space = values.pop(record.NAMESPACE, None)
        metadata = values.pop(record.METADATA, None) or {}
        try:
            made.append(line(Record(**values, metadata=metadata, **({"namespace": space} if space else {}))))
        except ValueError as e:
            made.append(e)
    return made


def _opened(text: bytes | None) -> Any:
    """What is no object was raw where it came from."""
    from penstock.plan.payload import loads

    if text is None or text[:1] != b"{":
        return text
    try:
        return loads(text)
    except Exception:
        return text
