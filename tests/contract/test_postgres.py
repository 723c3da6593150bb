"""`postgres` in pipelines on real Spark and a real Postgres: values, keys, bad rows, tasks that run twice, kills."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from penstock.connectors.postgres.book import Book
from penstock.connectors.postgres.database import connected
from penstock.connectors.postgres.destination import Copy
from penstock.errors import Retry
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from tests.support import postgres
from tests.support.harness import Case, Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import PipelineResult

pytestmark = pytest.mark.spark

_numbers = iter(range(1_000_000))


@pytest.fixture
def table() -> str:
    return f"p{os.getpid()}_{next(_numbers)}"


def lines(folder: Path, records: list[dict[str, Any]], name: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(path, (time.time() - 60,) * 2)
    return folder


def pipeline(folder: Path, table: str, schema: str, **settings: Any) -> Pipeline:
    p = Pipeline("p").source("in", "files", path=folder, format="json", schema=schema)
    given = {"url": postgres.url(), "table": table, "bookkeeping": f"b{table}", "create": True, **settings}
    return p.destination("out", "postgres", **given)


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def test_every_type_arrives_as_it_was(tmp_path: Path, spark: SparkSession, table: str) -> None:
    kinds = {
        "b": "BOOLEAN",
        "i8": "TINYINT",
        "i32": "INT",
        "i64": "BIGINT",
        "f32": "FLOAT",
        "f64": "DOUBLE",
        "d": "DECIMAL(38,10)",
        "t": "STRING",
        "raw": "BINARY",
        "day": "DATE",
        "at": "TIMESTAMP",
        "local": "TIMESTAMP_NTZ",
        "list": "ARRAY<INT>",
        "map": "MAP<STRING,INT>",
        "inner": "STRUCT<x: INT, y: STRING>",
        "Odd name": "STRING",
    }
    at = datetime(2026, 11, 17, 23, 59, 59, 123456, tzinfo=UTC)
    local = datetime(1, 1, 1, 0, 0, 0, 1)
    rows: list[tuple[Any, ...]] = [
        (True, -128, 2**31 - 1, -(2**63), 1.5, 1e300, Decimal("1234567890123456789012345678.0123456789"), "a\tb\nc\\d\r\\N",
         b"\x00\xff\\", date(9999, 12, 31), at, local, [1, None], {"k": 1}, (1, 'q"\\'), "x"),
        (False, 127, 0, 2**63 - 1, float("nan"), float("-inf"), Decimal("-0.0000000001"), "", b"", date(1, 1, 1), at, local, [], {},
         (None, "\n"), "\\."),
        (None,) * 15 + ("äöü 😀",),
    ]  # fmt: skip
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    spark.createDataFrame(rows, ddl).coalesce(1).write.option(
        "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
    ).parquet(str(tmp_path / "in"))
    for path in (tmp_path / "in").iterdir():
        os.utime(path, (time.time() - 60,) * 2)
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", format="parquet")
    p.destination("out", "postgres", url=postgres.url(), table=table, bookkeeping=f"b{table}", create=True)
    finish(p, tmp_path, spark)
    found = postgres.rows(f"SELECT * FROM {table} ORDER BY ctid")
    assert len(found) == 3
    first, second, third = found
    assert first[:4] == rows[0][:4]
    assert first[4:14] == (*rows[0][4:14],)
    assert first[14] == {"x": 1, "y": 'q"\\'}
    assert first[15] == "x"
    assert str(second[4:6]) == "(nan, -inf)"
    assert second[6:14] == rows[1][6:14]
    assert second[14:] == ({"y": "\n"}, "\\.") or second[14:] == ({"x": None, "y": "\n"}, "\\.")
    assert third == rows[2]
    types = dict(
        postgres.rows(
            "SELECT column_name::text, data_type::text FROM information_schema.columns WHERE table_name = %s", table
        )
    )
    assert types["d"] == "numeric"
    assert types["at"] == "timestamp with time zone"
    assert types["inner"] == "jsonb"


@pytest.mark.contract("T10", reason="the table and the dead letters are compared")
def test_a_row_that_the_table_refuses_is_a_dead_letter_and_all_others_are_there(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    postgres.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, t text)")
    postgres.run(f"INSERT INTO {table} VALUES (999, 'was there')")
    given = lines(tmp_path / "in", [{"id": n, "t": f"{n}"} for n in range(1000)])
    result = finish(pipeline(given, table, "id BIGINT, t STRING").dead_letter_queue(window=0), tmp_path, spark)
    lane = result.lanes[0]
    assert lane.delivered == {"out": 999}
    assert lane.dead_lettered == {"out": 1}
    assert postgres.rows(f"SELECT count(*), min(id), max(id) FROM {table}") == [(1000, 0, 999)]
    assert postgres.rows(f"SELECT t FROM {table} WHERE id = 999") == [("was there",)]


@pytest.mark.contract("T10", reason="the dead letter is compared with the one of a batch that was kept")
def test_what_was_staged_says_as_much_about_a_refused_row_as_what_was_kept(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    """Without a processor nothing is kept beside the database."""
    import pyarrow.parquet as pq

    made = {
        "id": pa.array(range(50)),
        "d": pa.array([Decimal("1.50"), None] * 25, pa.decimal128(12, 2)),
        "f": pa.array([0.1, float("nan")] * 25),
        "at": pa.array([datetime(2024, 2, 29, 12, 30, tzinfo=UTC)] * 50, pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 2, 29)] * 50),
        "t": pa.array(['tab\t "x" \\ é'] * 50),
        "l": pa.array([[1, 2]] * 50),
    }
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(made), tmp_path / "in" / "a.parquet")
    os.utime(tmp_path / "in" / "a.parquet", (time.time() - 60,) * 2)

    def letters(name: str, kept: bool) -> list[Any]:
        postgres.run(
            f"CREATE TABLE {name} (id bigint CHECK (id NOT IN (7, 48)), d numeric, f float8, at timestamptz, day date,"
            " t text, l jsonb)"
        )
        p = Pipeline(name).source("in", "files", path=tmp_path / "in", format="parquet")
        if kept:
            p.processor("same", "sql", expression="after.t", field=".Payload.After.t")
        p.destination("out", "postgres", url=postgres.url(), table=name, bookkeeping=f"b{table}").dead_letter_queue(
            window=0
        )
        result = run([p], once=True, state=tmp_path / name, spark=spark).raise_for_error().pipelines[0]
        assert result.lanes[0].dead_lettered == {"out": 2}
        assert bool(list((tmp_path / name / "work").rglob("*.parquet"))) is False
        found = pq.read_table(tmp_path / name / "dead-letters").to_pylist()
        return [
            (row["id"], row["position"], row["error"][:20], json.loads(row["given"].replace(".000000Z", "Z"))["after"])
            for row in found
        ]

    bare, kept = letters(f"{table}a", False), letters(f"{table}b", True)
    assert [after["value"]["id"] for *_, after in bare] == [7, 48]
    assert bare == kept


@pytest.mark.contract("T10", reason="the table is compared before and after the cause was corrected")
def test_by_default_the_first_bad_row_stops_the_pipeline_and_it_goes_on_there(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    postgres.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
    postgres.run(f"INSERT INTO {table} VALUES (70)")
    p = pipeline(lines(tmp_path / "in", [{"id": n} for n in range(100)]), table, "id BIGINT")
    result = run([p], once=True, state=tmp_path / "state", spark=spark).pipelines[0]
    assert result.status == "degraded"
    assert "duplicate key" in str(result.error)
    assert postgres.rows(f"SELECT count(*), max(id) FROM {table}") == [(71, 70)]
    postgres.run(f"DELETE FROM {table} WHERE id = 70")
    finish(p, tmp_path, spark)
    assert postgres.rows(f"SELECT count(*), max(id) FROM {table}") == [(100, 99)]


def test_what_has_no_place_in_postgres_is_a_nack_that_names_the_field(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    given = lines(tmp_path / "in", [{"t": "good"}, {"t": "zero \0 byte"}, {"t": "also good"}])
    result = finish(pipeline(given, table, "t STRING").dead_letter_queue(window=0), tmp_path, spark)
    assert result.lanes[0].dead_lettered == {"out": 1}
    assert postgres.rows(f"SELECT t FROM {table} ORDER BY ctid") == [("good",), ("also good",)]


def test_updates_by_key_and_open_payloads_with_a_schema(tmp_path: Path, spark: SparkSession, table: str) -> None:
    given = lines(tmp_path / "in", [{"id": n % 10, "n": n} for n in range(100)])
    p = Pipeline("p").source("in", "files", path=given, format="json")
    settings = {"url": postgres.url(), "table": table, "bookkeeping": f"b{table}", "create": True}
    p.destination("out", "postgres", **settings, mode="upsert", key="id", schema="id INT, n BIGINT")
    result = finish(p, tmp_path, spark)
    assert result.lanes[0].delivered == {"out": 100}
    assert postgres.rows(f"SELECT id, n FROM {table} ORDER BY id") == [(n, 90 + n) for n in range(10)]


def test_a_task_that_runs_twice_copies_once(table: str) -> None:
    book = Book(f"b{table}")
    with connected(postgres.url()) as c:
        book.make(c)
        book.make_staging(c, "s_x", "n bigint")
    copy = Copy(postgres.url(), book, "s_x", ("n",))
    batch = pa.RecordBatch.from_pydict({"line": pa.array(["0\t0\tu\t1\n", "1\t0\tu\t2\n"])})
    assert [copy.copy(0, iter([batch])) for _ in range(3)] == [2, 2, 2]
    assert copy.copy(1, iter([batch.slice(1, 1), batch.slice(0, 0)])) == 1
    assert copy.copy(2, iter([])) == 0
    assert postgres.rows(f"SELECT n FROM b{table}.s_x ORDER BY 1") == [(1,), (2,), (2,)]


# -- kills -------------------------------------------------------------------------------------------------------------------

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: files
        settings: {{path: {root}/in, format: csv, header: false, schema: line STRING}}
        batch: {{max-files: 2}}
      - id: out
        type: destination
        plugin: postgres
        settings: {{url: "{url}", table: {table}, bookkeeping: b{table}, create: true}}
"""


@dataclass
class Rows(Case):
    table: str = ""

    def configure(self) -> None:
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root, url=postgres.url(), table=self.table))

    def found(self) -> list[str]:
        if not postgres.rows("SELECT to_regclass(%s) IS NOT NULL", self.table)[0][0]:
            return []
        return [line.rpartition(":")[0] for (line,) in postgres.rows(f"SELECT line FROM {self.table} ORDER BY ctid")]

    def left(self) -> list[str]:
        found = postgres.rows("SELECT tablename FROM pg_tables WHERE schemaname = %s", f"b{self.table}")
        return [name for (name,) in found if name.startswith("s_")]


@pytest.fixture
def case(tmp_path: Path, gateway: Gateway, table: str) -> Rows:
    made = Rows(tmp_path / "case", gateway, table=table)
    made.issue(files=4)
    return made


@pytest.mark.crash
@pytest.mark.contract("C11", "C12", "C16", "C19", "X1", safeguard="receipt")
@pytest.mark.parametrize(
    ("point", "nth"),
    [("K6a", 1), ("K6", 1), ("K7", 1), ("K6a", 2), ("K6a", 3), ("K8", 1), ("ledger:done", 1), ("done", 1)],
)
def test_who_is_killed_at_a_step_of_a_delivery_is_gone_on_for(case: Rows, point: str, nth: int) -> None:
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    assert len(case.found()) == len(set(case.found()))
    case.finish()
    assert sorted(case.found()) == sorted(case.issued)
    assert case.left() == []


@pytest.mark.crash
@pytest.mark.contract("C16", reason="the table is read after a kill in the recovery of a kill")
def test_a_kill_in_the_recovery_of_a_recovery(case: Rows) -> None:
    assert case.run(kill_at="K7").killed
    for point, nth in (("K11", 1), ("K6a", 1), ("K8", 1)):
        ended = case.run(kill_at=point, kill_nth=nth)
        assert ended.killed or ended.returncode == 0
    case.finish()
    assert sorted(case.found()) == sorted(case.issued)
    assert case.left() == []


@pytest.mark.crash
def test_without_a_look_at_what_is_there_rows_come_twice(case: Rows) -> None:
    """The control."""
    off = ("receipt", "postgres-note")
    assert case.run(kill_at="K6a", kill_nth=3, off=off).killed
    case.finish(off=off)
    assert len(case.found()) > len(case.issued)


@pytest.mark.crash
@pytest.mark.parametrize(("point", "there"), [("K7", False), ("K8", True)])
def test_recovery_says_whether_a_destination_had_the_batch_already(case: Rows, point: str, there: bool) -> None:
    assert case.run(kill_at=point).killed
    case.gateway = None  # the command line, with its events
    events = [json.loads(line) for line in case.finish().out.splitlines()]
    found = [e for e in events if e["event"] in ("recovery", "recovered")]
    assert [e["event"] for e in found] == ["recovery", "recovered"]
    assert (found[0]["action"], found[1]["destination"], found[1]["there"]) == ("finish", "out", there)
    assert sorted(case.found()) == sorted(case.issued)


@pytest.mark.crash
@pytest.mark.contract("C16", "C18", reason="the table is read after its server was killed between COPY and merge")
@pytest.mark.parametrize("step", ["K6", "K7"])
def test_the_database_is_killed_between_copy_and_merge(
    tmp_path: Path, spark: SparkSession, table: str, step: str
) -> None:
    """What tasks have copied is there when it is back, and the engine, which has waited, goes on with it."""
    server = postgres.Server()
    killed: list[threading.Timer] = []

    def hook(point: str, detail: str) -> None:
        del detail
        if point == step and not killed:
            server.kill()
            killed.append(threading.Timer(1.5, server.start))
            killed[0].start()

    given = lines(tmp_path / "in", [{"id": n} for n in range(2000)])
    p = pipeline(given, table, "id BIGINT", url=server.url)
    faults.install(hook)
    try:
        finish(p, tmp_path, spark)
    except Retry:  # it was away for longer than a run with an end waits
        killed[0].join()
        finish(p, tmp_path, spark)
    assert killed
    with psycopg.connect(server.url) as c:
        assert c.execute(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchone() == (2000, 2000)
        left = c.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename LIKE 's\\_%%'", [f"b{table}"]
        )
        assert left.fetchone() == (0,)


@pytest.mark.crash
@pytest.mark.contract("C16", reason="the staging tables are looked at after an attempt has died")
def test_a_staging_table_of_a_dead_attempt_is_taken_away_and_never_merged(case: Rows) -> None:
    assert case.run(kill_at="K6").killed  # its rows are copied, and the ledger knows nothing of it
    assert case.left()
    assert case.found() == []
    case.finish()
    assert sorted(case.found()) == sorted(case.issued)
    assert case.left() == []
