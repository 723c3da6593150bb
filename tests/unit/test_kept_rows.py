"""Rows that the engine keeps, read without Spark: in order, or not at all; and where their records are, all at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import record
from penstock.connectors.files.source import Places
from penstock.host import kept_rows
from penstock.host.kept_rows import KeptRows
from penstock.host.send_rows import _located

TIME = datetime(2026, 11, 17, 10, 0, 0, 123456, tzinfo=UTC)
COLUMNS = (record.SEQ, record.PART, record.OPERATION, record.TIMESTAMP, record.KEY, record.METADATA, record.AFTER)
DEFAULTS = {record.PART: 0, record.OPERATION: "create", record.TIMESTAMP: TIME}


def write(folder: Path, number: int, seqs: Sequence[int], **more: Any) -> None:
    columns = {record.SEQ: pa.array(seqs, pa.int64()), record.AFTER: pa.array([b"%d" % n for n in seqs], pa.binary())}
    pq.write_table(pa.table({**columns, **more}), folder / f"part-{number:05}-x.c000.parquet", row_group_size=7)


def kept(folder: Path) -> KeptRows:
    found = KeptRows.of(folder, COLUMNS, DEFAULTS)
    assert found is not None
    return found


def seqs_of(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch.column(record.SEQ).to_pylist()]


def test_files_are_read_in_the_order_of_their_records_not_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, 0, range(50, 90))
    write(tmp_path, 1, range(20))
    write(tmp_path, 2, range(20, 50))
    write(tmp_path, 3, [])
    found = kept(tmp_path)
    files = found.in_order()
    assert files is not None
    assert seqs_of(found.batches(files, None)) == list(range(90))
    assert seqs_of(found) == list(range(90))


def test_what_is_settled_need_not_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "ROWS", 10)
    write(tmp_path, 0, range(100))
    found = kept(tmp_path)
    rest = seqs_of(found.batches(found.in_order() or [], (55, 0)))
    assert rest[0] <= 56, "the host leaves out what is settled of a batch"
    assert rest[0] > 0
    assert rest[-1] == 99


@pytest.mark.parametrize(
    "parts", [[[1, 3, 2]], [[1, 2], [2, 3]], [[1, 9], [4, 5]], [[1, 1]], [[*range(30), 3]]], ids=str
)
def test_rows_that_are_not_in_order_are_left_to_spark_unless_they_are_few(
    tmp_path: Path, parts: list[list[int]]
) -> None:
    for number, seqs in enumerate(parts):
        write(tmp_path, number, seqs)
    found = kept(tmp_path)
    assert found.in_order() is None
    assert found.few
    assert seqs_of(found) == sorted(n for seqs in parts for n in seqs)


def test_parts_of_a_record_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, 0, [4, 4, 4, 5], part=pa.array([0, 1, 2, 0], pa.int32()))
    assert kept(tmp_path).in_order() is not None
    write(tmp_path, 0, [4, 4, 4, 5], part=pa.array([0, 2, 1, 0], pa.int32()))
    assert kept(tmp_path).in_order() is None
    (batch,) = kept(tmp_path)
    assert batch.column(record.PART).to_pylist() == [0, 1, 2, 0]


def test_what_the_files_do_not_have_is_the_same_for_all(tmp_path: Path) -> None:
    write(tmp_path, 0, [1, 2])
    (batch,) = kept(tmp_path)
    assert batch.schema.names == list(COLUMNS)
    assert batch.column(record.OPERATION).to_pylist() == ["create"] * 2
    assert batch.column(record.TIMESTAMP).to_pylist() == [TIME] * 2
    assert batch.column(record.KEY).to_pylist() == [None] * 2
    assert batch.column(record.METADATA).type == pa.map_(pa.string(), pa.string())


def test_times_are_as_spark_gives_them(tmp_path: Path) -> None:
    """Spark writes them in an old form, without a zone."""
    times = pa.array([TIME.replace(tzinfo=None)], pa.timestamp("us"))
    table = pa.table({record.SEQ: [1], record.TIMESTAMP: times, record.AFTER: pa.array([b"1"], pa.binary())})
    pq.write_table(table, tmp_path / "part-00000-x.parquet", use_deprecated_int96_timestamps=True)
    (batch,) = kept(tmp_path)
    assert batch.column(record.TIMESTAMP).type == pa.timestamp("us", "UTC")
    assert batch.column(record.TIMESTAMP).to_pylist() == [TIME]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"a": 1}]),
        pa.array([[1]]),
        pa.array([Decimal("1.5")]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda v: str(v.type),
)
def test_types_that_spark_would_give_in_another_way_are_left_to_it(tmp_path: Path, values: pa.Array) -> None:
    write(tmp_path, 0, [1], key=values)
    assert KeptRows.of(tmp_path, COLUMNS, DEFAULTS) is None


def test_many_files_are_left_to_spark_and_none_are_no_rows(tmp_path: Path) -> None:
    assert list(kept(tmp_path)) == []
    assert list(kept(tmp_path / "not there")) == []
    for number in range(kept_rows.PARTS + 1):
        write(tmp_path, number, [number])
    assert KeptRows.of(tmp_path, COLUMNS, DEFAULTS) is None


def test_many_rows_or_large_ones_are_not_few(tmp_path: Path) -> None:
    write(tmp_path, 0, range(kept_rows.FEW + 1))
    assert not kept(tmp_path).few
    large = pa.array([b"x" * (kept_rows.SMALL + 1)], pa.binary())
    pq.write_table(pa.table({record.SEQ: [1], record.AFTER: large}), tmp_path / "part-00000-x.c000.parquet")
    assert not kept(tmp_path).few


def test_large_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    large = pa.array([b"x" * (1 << 20)] * 20, pa.binary())
    pq.write_table(pa.table({record.SEQ: range(20), record.AFTER: large}), tmp_path / "part-00000-x.c000.parquet")
    found = kept(tmp_path)
    sizes = [batch.num_rows for batch in found.batches(found.in_order() or [], None)]
    assert sum(sizes) == 20
    assert max(sizes) <= 8


# -- where they are ----------------------------------------------------------------------------------------------------------

PLACES = Places((0, 100, 250), ("a.txt", "day=1/b.txt", "c d#.txt"), "/given")


@pytest.mark.parametrize("seqs", [[], [0], [99, 100], [5, 6, 120, 249, 250, 251], [300, 1, 260]], ids=str)
def test_where_many_records_are_is_where_each_of_them_is(seqs: list[int]) -> None:
    positions, told = PLACES.many(np.array(seqs, np.int64))
    metadata = [found for n, found in told for _ in range(n)]
    assert list(zip(positions.to_pylist(), metadata, strict=True)) == [PLACES(n) for n in seqs]


def test_a_batch_gets_positions_and_metadata_whoever_tells_them() -> None:
    chance = random.Random(1)
    seqs = [chance.randrange(400) for _ in range(200)]
    batch = pa.RecordBatch.from_pydict({record.SEQ: pa.array(seqs, pa.int64())})
    quick, slow = _located(batch, PLACES), _located(batch, lambda n: PLACES(n))
    assert quick.equals(slow)
    found = quick.column(record.METADATA).to_pylist(maps_as_pydicts="strict")
    assert found == [PLACES(n)[1] for n in seqs]
    nothing = _located(batch, lambda n: (b"%d" % n, {}))
    assert nothing.column(record.METADATA).to_pylist() == [[]] * 200
