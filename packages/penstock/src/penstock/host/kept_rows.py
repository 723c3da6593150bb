"""The rows of a delivery, read from where the engine keeps them, in their order and without Spark's plans: in one of its tasks, or in the
engine where they are few.

Spark writes a part for each of its tasks, and nearly always the records of each are in order, and the parts behind each other. That is
looked at before a row is sent: what is not so Spark has to sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import record
from penstock.host.marks import Place

ROWS, BYTES = 10_000, 8 << 20  # of what is read at once
FEW, SMALL = 10_000, 4 << 20  # rows and bytes that the engine sends itself
SAMPLE = 16  # rows
PARTS = 64  # files of as many tasks: more are left to Spark
_TIME = pa.timestamp("us", "UTC")
_TYPES: Mapping[str, pa.DataType] = {
    record.SOURCE: pa.string(),
    record.SEQ: pa.int64(),
    record.PART: pa.int32(),
    record.POSITION: pa.binary(),
    record.OPERATION: pa.string(),
    record.NAMESPACE: pa.string(),
    record.PHASE: pa.string(),
    record.TIMESTAMP: _TIME,
    record.METADATA: pa.map_(pa.string(), pa.string()),
    record.KEY: pa.binary(),
    record.BEFORE: pa.binary(),
    record.AFTER: pa.binary(),
}


@dataclass(frozen=True)
class KeptRows:
    """Sent to a task."""

    files: tuple[str, ...]
    columns: tuple[str, ...]  # that are wanted
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that the files do not have
    few: bool = False  # the engine can have all of them in memory

    @classmethod
    def of(cls, folder: Path, columns: Sequence[str], defaults: Mapping[str, Any]) -> KeptRows | None:
        """None: Spark has to read them, because of their types, or because they are in many files."""
        files = sorted(str(path) for path in folder.glob("part-*"))
        if len(files) > PARTS:
            return None
        rows = size = 0
        for path in files:
            with _opened(path) as found:
                if not all(_plain(f.type) for f in found.schema_arrow if f.name in columns):
                    return None
                rows += found.metadata.num_rows
                size += _size(found)
        return cls(tuple(files), tuple(columns), dict(defaults), rows <= FEW and size <= SMALL)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All of them, if they are few."""
        found = []
        for path in self.files:
            with _opened(path) as file:
                found.append(self._complete(file.read(columns=self._read(file))))
        if found:
            table = pa.concat_tables(found).sort_by([(record.SEQ, "ascending"), (record.PART, "ascending")])
            yield from table.combine_chunks().to_batches()

    def in_order(self) -> Sequence[str] | None:
        """The files, if they hold their rows in order when they are read one behind the other."""
        spans = []
        for path in self.files:
            with _opened(path) as file:
                last: Place | None = None
                first: Place | None = None
                names = [c for c in (record.SEQ, record.PART) if c in file.schema_arrow.names]
                for batch in file.iter_batches(1 << 20, columns=names):
                    seqs = batch.column(record.SEQ).to_numpy()
                    parts = (
                        batch.column(record.PART).to_numpy() if record.PART in names else np.zeros(len(seqs), np.int32)
                    )
                    begin, end = (int(seqs[0]), int(parts[0])), (int(seqs[-1]), int(parts[-1]))
                    rising = (seqs[1:] > seqs[:-1]) | ((seqs[1:] == seqs[:-1]) & (parts[1:] > parts[:-1]))
                    if not rising.all() or (last is not None and begin <= last):
                        return None
                    first, last = first or begin, end
                if first is not None and last is not None:
                    spans.append((first, last, path))
        spans.sort()
        if any(following[0] <= before[1] for before, following in pairwise(spans)):
            return None
        return [path for _, _, path in spans]

    def batches(self, files: Sequence[str], after: Place | None) -> Iterator[pa.RecordBatch]:
        """What is behind a place of these files, as `in_order` gives them."""
        for path in files:
            with _opened(path) as file:
                wide = _size(file) // max(1, file.metadata.num_rows) + 1
                for batch in file.iter_batches(max(1, min(ROWS, BYTES // wide)), columns=self._read(file)):
                    table = self._complete(pa.Table.from_batches([batch]))
                    last = (table.column(record.SEQ)[-1].as_py(), table.column(record.PART)[-1].as_py())
                    if after is None or last > after:
                        yield from table.combine_chunks().to_batches()

    def _read(self, file: pq.ParquetFile) -> list[str]:
        return [f.name for f in file.schema_arrow if f.name in self.columns]

    def _complete(self, table: pa.Table) -> pa.Table:
        made = {}
        for name in self.columns:
            if name in table.column_names:
                found = table.column(name)
                made[name] = found.cast(_TIME) if pa.types.is_timestamp(found.type) else found
            else:
                made[name] = pa.repeat(pa.scalar(self.defaults.get(name), _TYPES[name]), table.num_rows)
        return pa.table(made)


def _opened(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")  # as Spark writes them


def _size(file: pq.ParquetFile) -> int:
    """Bytes in memory, about: equal values lie in the file once, so its first rows are looked at as well."""
    found = file.metadata
    if not found.num_rows:
        return 0
    stored = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
    first: pa.RecordBatch = next(file.iter_batches(SAMPLE))
    return int(max(stored, first.get_total_buffer_size() * found.num_rows // first.num_rows))


def _plain(kind: pa.DataType) -> bool:
    """Whether Spark would give it to a task in the same type."""
    types = pa.types
    if types.is_map(kind):
        return bool(types.is_string(kind.key_type) and types.is_string(kind.item_type))
    plain = (types.is_string, types.is_binary, types.is_integer, types.is_timestamp)
    return any(is_one(kind) for is_one in plain)
