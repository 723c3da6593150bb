"""The shape of a message: operation, time, namespace and data come back from log and restart with their types."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

from penstock.log import Mode, Reader, Rows, Writer
from penstock.log.format import Kind
from penstock.log.reader import Entry
from penstock.log.values import ObjectId
from penstock_sdk.record import Record
from tests.unit.test_log_values import same

pytestmark = pytest.mark.thorough  # left out of the fast loop

ROOT = Path(__file__).parents[2]
OPERATIONS = ("create", "update", "delete", "snapshot")
NOON = datetime(2024, 2, 29, 12, 0, 0, 7, timezone(timedelta(hours=2)))
PLAIN: dict[str, Any] = {
    "text": "ü\0🎈",
    "whole": 2**70,
    "float": 1.0,
    "yes": True,
    "none": None,
    "$date": "text",
    "l": [{}],
}
TYPES: dict[str, Any] = {
    "date": date(2024, 2, 29),
    "time": time(23, 59, 59, 999999),
    "aware": NOON,
    "naive": datetime(1, 1, 1),
    "duration": timedelta(-1, 2, 3),
    "binary": b"\x00\xff",
    "empty": b"",
    "object id": ObjectId(bytes(range(12))),
    "decimal": Decimal("-12345678901234567890.1234567890"),
    "exponent": Decimal("1.50E-30"),
    "uuid": UUID(int=7),
    "infinite": float("inf"),
    "tag-like": {"$oid": "no id"},
    "text": "not UTF-8: \ud800",
}
PAYLOADS: dict[str, Any] = {
    "raw": b"\x00raw\xff",
    "plain": PLAIN,
    **{f"{n}, nested": {"a": {"b": [v, {"c": v}]}} for n, v in TYPES.items()},
    **{n: {"v": v, "x": b""} for n, v in TYPES.items()},
}
KEPT = ("key", "before", "after", "position", "operation", "phase")

Way = Literal["alone", "together"]


def records() -> list[Record]:
    """Every operation with every payload where that operation has one."""
    made = []
    for phase in ("copy", "sync", "complete"):
        for operation in OPERATIONS:
            for i, payload in enumerate(PAYLOADS.values()):
                record = Record(
                    None if operation == "delete" else payload,
                    before=payload if operation in ("update", "delete") else None,
                    key={"id": ObjectId(bytes(12)), "n": i} if i % 2 else b"%d" % i,
                    position=b"%s:%d" % (operation.encode(), i),
                    operation=operation,
                    namespace=f"{operation} ü",
                    phase=phase,
                    metadata={"of": operation} if i % 3 else {},
                    timestamp=(NOON, datetime(2024, 2, 29), None)[i % 3],
                )
                made.append(record)
    return made


def alike(records: list[Record]) -> list[Record]:
    """Each of them ten times in a row, which is enough for a batch."""
    return [record for record in records for _ in range(10)]


TYPED = pa.struct(
    [
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("aware", pa.timestamp("us", "UTC")),
        ("naive", pa.timestamp("us")),
        ("duration", pa.duration("us")),
        ("binary", pa.binary()),
        ("id", pa.binary(12)),
        ("decimal", pa.decimal128(38, 10)),
        ("wide", pa.decimal256(76, 0)),
        ("nested", pa.list_(pa.struct([("day", pa.date32())]))),
    ]
)
ROW: dict[str, Any] = {
    "date": date(2024, 2, 29),
    "time": time(23, 59, 59, 999999),
    "aware": datetime(2024, 2, 29, 10, 0, 0, 7, UTC),
    "naive": datetime(1, 1, 1),
    "duration": timedelta(-1, 2, 3),
    "binary": b"\x00\xff",
    "id": bytes(range(12)),
    "decimal": Decimal("-12345678901234567890.1234567890"),
    "wide": Decimal("9" * 70),
    "nested": [{"day": date(9999, 12, 31)}, {"day": None}],
}


def typed() -> pa.RecordBatch:
    nothing = dict.fromkeys(ROW)
    return pa.record_batch(
        {
            "operation": pa.array(OPERATIONS),
            "timestamp": pa.array([NOON, None, NOON, NOON], pa.timestamp("us", "UTC")),
            "metadata": pa.array([[("a", "b")], [], None, [("c", "")]], pa.map_(pa.string(), pa.string())),
            "position": pa.array([b"1", b"2", b"3", b"4"]),
            "key": pa.array([{"id": bytes(12)}] * 4, pa.struct([("id", pa.binary(12))])),
            "before": pa.array([None, ROW, ROW, None], TYPED),
            "after": pa.array([ROW, nothing, None, ROW], TYPED),
        }
    )


def write(folder: str, what: str, compression: str) -> None:
    """In a process of its own, which dies of it: nothing is closed."""
    writer = Writer(Path(folder), compression="zstd" if compression == "zstd" else None)
    if what == "typed":
        writer.append_batch(typed(), "typed ü", Mode.COPY)
    elif what == "alone":
        for record in records():
            writer.append([record])
    else:
        writer.append(alike(records()))
    writer.commit()
    os.kill(os.getpid(), signal.SIGKILL)


def written_twice(folder: Path, what: str, compression: str | None) -> None:
    """The second process opens what the first one left behind."""
    for _ in range(2):
        command = [sys.executable, "-m", "tests.contract.test_log_shape", str(folder), what, str(compression)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr


def fits(found: Record, given: Record) -> bool:
    """A batch keeps the instant of a timestamp in UTC, which is equal; with or without a time zone it stays."""
    times = found.timestamp, given.timestamp
    if times[0] != times[1] or (times[0] and times[0].tzinfo is None) != (times[1] and times[1].tzinfo is None):
        return False
    rest = [[getattr(r, name) for name in KEPT] for r in (found, given)]
    return same(rest[0], rest[1]) and (found.namespace, found.metadata) == (given.namespace, given.metadata)


def rows_of(reader: Reader) -> list[Rows]:
    found = list(reader.read(0))
    assert all(isinstance(rows, Rows) for rows in found)
    return [rows for rows in found if isinstance(rows, Rows)]


@pytest.mark.contract(
    "T1", reason="no safeguard keeps types, the format does; plain JSON, which loses them, is the control"
)
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("way", ["alone", "together"])
def test_every_operation_and_type_comes_back_after_a_restart(tmp_path: Path, way: Way, compression: str | None) -> None:
    written_twice(tmp_path / "log", way, compression)
    given = records() if way == "alone" else alike(records())
    with Reader(tmp_path / "log") as reader:
        kinds = {e.head.kind for e in reader.entries(0) if isinstance(e, Entry)}
        assert kinds == {Kind.RECORD if way == "alone" else Kind.BATCH}
        rows = rows_of(reader)
        found = [record for r in rows for record in r.records()]
        assert [r.offset + i for r in rows for i in range(r.count)] == list(range(2 * len(given)))
        assert [r.namespace for r in rows] == [record.namespace for r in rows for record in r.records()[:1]]
    assert len(found) == 2 * len(given)
    assert [(f, g) for f, g in zip(found, given * 2, strict=True) if not fits(f, g)] == []


@pytest.mark.contract(
    "T1", reason="no safeguard keeps types, the format does; plain JSON, which loses them, is the control"
)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_typed_batches_come_back_after_a_restart(tmp_path: Path, compression: str | None) -> None:
    written_twice(tmp_path / "log", "typed", compression)
    with Reader(tmp_path / "log") as reader:
        found = rows_of(reader)
        assert [(r.offset, r.count, r.namespace, r.mode) for r in found] == [
            (i, 4, "typed ü", Mode.COPY) for i in (0, 4)
        ]
        for rows in found:
            assert rows.rows.equals(typed(), check_metadata=True)
            made = rows.records()
            assert [r.operation for r in made] == list(OPERATIONS)
            assert [r.timestamp for r in made] == [NOON, None, NOON, NOON]
            assert [r.position for r in made] == [b"1", b"2", b"3", b"4"]
            assert {r.phase for r in made} == {"copy"}
            assert {r.namespace for r in made} == {"typed ü"}
            assert all(same(r.key, {"id": bytes(12)}) for r in made)
            assert same([r.after for r in made], [ROW, dict.fromkeys(ROW), None, ROW])
            assert same([r.before for r in made], [None, ROW, ROW, None])


@pytest.mark.contract("T1", reason="this is the control: what the log's text would be without tags")
def test_plain_json_would_have_lost_these_types() -> None:
    kept = [n for n, v in TYPES.items() if same(json.loads(json.dumps({"v": v}, default=str)), {"v": v})]
    assert set(kept) == {
        "infinite",
        "tag-like",
        "text",
    }  # Python's own JSON has these; the standard has no Infinity and no half pairs


def test_the_records_of_this_file_are_what_they_claim() -> None:
    made = records()
    assert {r.operation for r in made} == set(OPERATIONS)
    assert {r.phase for r in made} == {m.phase for m in Mode}
    runs = [len(list(run)) for _, run in groupby(alike(made), key=id)]
    assert set(runs) == {10}


if __name__ == "__main__":
    write(*sys.argv[1:])
