"""`jdbc` in pipelines on real Spark and a real Postgres: types, ranges, what is new, rows that change under a batch, kills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

from penstock import record
from penstock.connectors.jdbc import source as jdbc_source
from penstock.connectors.jdbc.settings import JdbcSourceSettings
from penstock.connectors.jdbc.source import JdbcSource
from penstock.errors import Retry, Stop
from penstock.native import Known, Limits, Ranges
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from tests.support import jdbc, postgres
from tests.support.harness import Case, Gateway

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.engine.supervisor import PipelineResult

pytestmark = pytest.mark.spark

_numbers = iter(range(1_000_000))


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    jdbc.add_driver(spark)
    return spark


@pytest.fixture
def table() -> str:
    return f"j{os.getpid()}_{next(_numbers)}"


def made(table: str, columns: str = "id bigint PRIMARY KEY, v text", rows: int = 0) -> str:
    postgres.run(f"CREATE TABLE {table} ({columns})")
    if rows:
        add(table, 1, rows)
    return table


def add(table: str, first: int, last: int) -> None:
    postgres.run(f"INSERT INTO {table} SELECT n, 'v' || n FROM generate_series({first}, {last}) n")


def given(table: str, **settings: Any) -> dict[str, Any]:
    what = {} if "query" in settings else {"table": table}
    return {"url": jdbc.url(), "user": jdbc.USER, "key": "id", "lag": "0s", **what, **settings}


def source(table: str, **settings: Any) -> JdbcSource:
    return JdbcSource(JdbcSourceSettings.model_validate(given(table, **settings)), "in")


def pipeline(
    tmp_path: Path, table: str, batch: dict[str, Any] | None = None, form: str = "json", **settings: Any
) -> Pipeline:
    p = Pipeline("p").source("in", "jdbc", batch=batch, **given(table, **settings))
    return p.destination("out", "files", path=tmp_path / "out", format=form)


def ran(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).pipelines[0]


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def delivered(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted((tmp_path / "out").glob("*.json*"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def ids(tmp_path: Path) -> list[int]:
    return [row["id"] for row in delivered(tmp_path)]


def none() -> Known:
    return Known({}, 0, set())


def rows_of(spark: SparkSession, s: JdbcSource, ranges: Ranges | None) -> list[Row]:
    """As another process would read them, from what the ledger keeps."""
    from penstock.engine import session

    assert ranges is not None
    return s.frame(session.for_lane(spark), Ranges.from_json(ranges.to_json()), record.COLUMNS).collect()


# -- what is read ------------------------------------------------------------------------------------------------------------


def test_every_type_arrives_as_the_table_has_it_and_a_second_run_reads_nothing(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    made(
        table,
        'id bigint PRIMARY KEY, b boolean, i2 smallint, f8 float8, n numeric(30,10), t text, raw bytea, "Odd name" varchar(5),'
        " day date, at timestamptz, local timestamp, u uuid, j jsonb, list int[]",
    )
    at, local = datetime(2026, 11, 17, 23, 59, 59, 123456, tzinfo=UTC), datetime(1999, 3, 28, 2, 30, 0, 1)
    uuid = "00000000-0000-4000-8000-00000000000a"
    row = (1, True, -2, 1e300, Decimal("12345678901234567890.0123456789"), "ä\t'\"", b"\x00\xff", "x", date(1, 1, 1))
    postgres.run(
        f"INSERT INTO {table} VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s), (2{', NULL' * 13})",
        *(*row, at, local, uuid, '{"a": 1}', [1, None]),
    )
    p = pipeline(tmp_path, table, form="parquet")
    assert finish(p, tmp_path, spark).lanes[0].delivered == {"out": 2}
    [path] = (tmp_path / "out").glob("*.parquet")
    first, second = pq.read_table(path).to_pylist()
    assert tuple(first.values()) == (*row, at, local, uuid, '{"a": 1}', [1, None])
    assert second == {**dict.fromkeys(first), "id": 2}
    postgres.run(f"INSERT INTO {table} (id) VALUES (3)")  # later than the one read there is
    assert finish(p, tmp_path, spark).lanes[0].read == 0


@pytest.mark.contract("S5", reason="rows of one range are compared over different numbers of tasks, and with the table")
def test_rows_seqs_and_positions_are_equal_whatever_the_number_of_tasks(spark: SparkSession, table: str) -> None:
    """Keys of text and number, with what a collation and a literal trip over; very uneven."""
    made(table, "name text, n int, v int, PRIMARY KEY (name, n)")
    names = ["a", "B", "ä", "o'hara", "back\\slash", "Zz", "z", "_"]
    postgres.run(f"INSERT INTO {table} SELECT x, n, n FROM unnest(%s::text[]) x, generate_series(1, 3) n", names)
    postgres.run(f"INSERT INTO {table} SELECT 'many', n, n FROM generate_series(1, 100) n")
    found = []
    for step in (1000, 31, 7):
        s = source(table, key="name, n", partition_rows=step)
        ranges = s.available(none(), Limits())
        rows = rows_of(spark, s, ranges)
        assert ranges is not None
        assert s.promised(ranges) == len(rows) == 124
        assert len(ranges[0].position["parts"]) == -(-124 // step)
        found.append([(r.seq, bytes(r.position), r.key, r.after.asDict()) for r in rows])
    assert found[0] == found[1] == found[2]
    expected = postgres.rows(f'SELECT name, n FROM {table} ORDER BY name COLLATE "C", n')
    assert [(r[3]["name"], r[3]["n"]) for r in found[0]] == expected
    assert [r[0] for r in found[0]] == list(range(124))
    assert json.loads(found[0][0][1]) == ["B", "1"]
    assert json.loads(found[0][0][2]) == {"name": "B", "n": 1}


def test_a_query_is_read_like_a_table_and_batches_follow_each_other(
    tmp_path: Path, spark: SparkSession, table: str
) -> None:
    made(table, rows=100)
    query = f"SELECT id * 2 AS id, v FROM {table} WHERE id <> 50;"
    p = pipeline(tmp_path, table, {"max-records": 33}, query=query)
    result = finish(p, tmp_path, spark)
    assert result.lanes[0].delivered == {"out": 99}
    assert ids(tmp_path) == [2 * n for n in range(1, 101) if n != 50]


def test_what_is_new_is_read_run_by_run_in_order(tmp_path: Path, spark: SparkSession, table: str) -> None:
    """Many rows have the same time; batches end in the middle of them."""
    made(table, "id bigint PRIMARY KEY, at timestamptz")
    p = pipeline(tmp_path, table, {"max-records": 20}, incremental="at")
    expected = []
    for run_ in range(3):
        first = run_ * 50
        postgres.run(f"INSERT INTO {table} SELECT n, now() FROM generate_series({first}, {first + 49}) n")
        expected += list(range(first, first + 50))
        assert finish(p, tmp_path, spark).lanes[0].read == 50
        assert ids(tmp_path) == expected
    assert finish(p, tmp_path, spark).lanes[0].read == 0
    postgres.run(f"UPDATE {table} SET at = clock_timestamp() WHERE id = 7")
    postgres.run(f"DELETE FROM {table} WHERE id = 8")
    assert finish(p, tmp_path, spark).lanes[0].read == 1  # the delete is not seen
    assert ids(tmp_path) == [*expected, 7]


def test_the_first_read_is_a_snapshot_and_what_follows_is_not(spark: SparkSession, table: str) -> None:
    made(table, rows=10)
    s, known = source(table, incremental="id"), none()
    seen = []
    for limit in (6, 6, None):
        ranges = s.available(known, Limits(max_records=limit))
        assert ranges is not None
        known.took(ranges)
        rows = rows_of(spark, source(table, incremental="id"), ranges)
        seen += [(r.operation, r.phase, r.namespace, r.metadata, r.after.id, r.seq) for r in rows]
        if len(seen) == 10:
            add(table, 11, 12)
    assert [r[0] for r in seen] == ["snapshot"] * 10 + ["create"] * 2
    assert [r[1] for r in seen] == ["copy"] * 10 + ["sync"] * 2
    assert {(r[2], r[3]["opencdc.collection"]) for r in seen} == {(table, table)}
    assert [(r[4], r[5]) for r in seen] == [(n + 1, n) for n in range(12)]
    assert len(known.strands) == 2  # the one before is kept, others are forgotten


def test_a_row_that_is_committed_late_is_seen_within_the_lag_and_not_beyond(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    made(table, rows=4)
    now = [0.0]
    monkeypatch.setattr(jdbc_source, "clock", lambda: now[0])
    for lag, rows in (("5s", 6), ("0s", 1)):
        s, known = source(table, incremental="id", lag=lag), none()
        with psycopg.connect(postgres.url()) as late:
            start = postgres.rows(f"SELECT max(id) FROM {table}")[0][0]
            late.execute(f"INSERT INTO {table} VALUES ({start} + 1, 'late')")
            add(table, start + 2, start + 2)
            ranges = s.available(known, Limits())
            assert (ranges is None) == (lag == "5s")
            if ranges is not None:
                known.took(ranges)
        if ranges is None:
            assert not s.idle()  # `--once` waits for it
            now[0] += 4.9
            assert s.available(known, Limits()) is None
        now[0] += 5.1
        ranges = s.available(known, Limits())
        if lag == "5s":
            assert ranges is not None
            assert s.promised(ranges) == rows
        else:
            assert ranges is None  # the page says so


# -- rows that change under a batch ------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[str], None]] = {
    "a row is gone": lambda t: postgres.run(f"DELETE FROM {t} WHERE id = 20"),
    "a row is committed late": lambda t: postgres.run(f"INSERT INTO {t} VALUES (25, 'late')"),
    "one for another": lambda t: postgres.run(f"UPDATE {t} SET id = 25 WHERE id = 20"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_rows_that_change_between_planning_and_reading_stop_the_batch_and_nothing_is_lost(
    tmp_path: Path, spark: SparkSession, table: str, change: str
) -> None:
    made(table)
    postgres.run(f"INSERT INTO {table} SELECT n * 10, 'v' FROM generate_series(1, 10) n")
    settings: dict[str, Any] = {"incremental": "id", "partition_rows": 4}

    def hook(point: str, detail: str) -> None:
        if point == "K2" and not changed:
            changed.append(CHANGES[change](table))

    changed: list[None] = []
    faults.install(hook)
    result = ran(pipeline(tmp_path, table, **settings), tmp_path, spark)
    assert result.status == "degraded"
    assert result.error is not None
    assert result.error.code == "jdbc.changed"
    assert "on-change: reread" in result.error.hint
    assert "10 rows were counted" in result.error.why
    assert delivered(tmp_path) == []
    if change == "one for another":  # the same batch again: it does not heal by itself
        again = ran(pipeline(tmp_path, table, **settings), tmp_path, spark)
        assert again.error is not None
        assert again.error.code == "jdbc.changed"
    settings["on_change"] = "reread"
    finish(pipeline(tmp_path, table, **settings), tmp_path, spark)
    assert ids(tmp_path) == [id_ for (id_,) in postgres.rows(f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.contract("S6", safeguard="unchanged")
@pytest.mark.parametrize("off", [(), ("unchanged",)])
def test_the_rest_of_a_batch_is_not_delivered_when_its_seqs_have_shifted(
    tmp_path: Path, spark: SparkSession, table: str, off: tuple[str, ...]
) -> None:
    """A bad record cuts the batch: what is before it is delivered. Then a row that was delivered goes, and another comes behind."""
    made(table)
    postgres.run(f"INSERT INTO {table} SELECT n * 10, 'v' FROM generate_series(1, 10) n")
    bad = pipeline(tmp_path, table).processor("bad", "error", condition="after.id = 60")
    assert ran(bad, tmp_path, spark).status == "degraded"
    assert ids(tmp_path) == [10, 20, 30, 40, 50]
    postgres.run(f"UPDATE {table} SET id = 75 WHERE id = 20")
    faults.install(off=off)
    result = ran(pipeline(tmp_path, table, on_change="reread"), tmp_path, spark)
    if off:
        assert 60 not in ids(tmp_path)  # the control: it is lost without a word
        return
    assert result.error is not None
    assert result.error.code == "jdbc.changed"
    assert ids(tmp_path) == [10, 20, 30, 40, 50]
    postgres.run(f"UPDATE {table} SET id = 20 WHERE id = 75")
    faults.install()
    finish(pipeline(tmp_path, table), tmp_path, spark)
    assert ids(tmp_path) == [n * 10 for n in range(1, 11)]


# -- what can't be read ------------------------------------------------------------------------------------------------------


def refused(s: JdbcSource) -> tuple[str, str]:
    with pytest.raises((Stop, Retry)) as caught:
        s.available(none(), Limits())
    assert "very-secret" not in str(caught.value)
    return caught.value.code, f"{caught.value.what} {caught.value.why} {caught.value.hint}"


def test_what_can_not_be_read_is_said_with_what_to_do(spark: SparkSession, table: str) -> None:
    del spark
    made(table, "id bigint, n int, f float8, at timestamptz, d date", 0)
    postgres.run(
        f"INSERT INTO {table} VALUES (1, 1, 1, 'infinity', now()), (2, 1, 2, now(), now()), (2, NULL, 2, now(), now())"
    )
    code, said = refused(source("nothing_here"))
    assert (code, "nothing_here" in said) == ("jdbc.unknown", True)
    assert refused(source(table, key="nope"))[0] == "jdbc.unknown"
    code, said = refused(source(table, key="n"))
    assert (code, "NULL" in said) == ("jdbc.key", True)
    code, said = refused(source(table, key="id"))
    assert (code, "same id: 2" in said) == ("jdbc.key", True)
    assert refused(source(table, key="f"))[0] == "jdbc.key"
    assert refused(source(table, incremental="d"))[0] == "jdbc.key"
    assert refused(source(table, incremental="at"))[0] == "jdbc.key"
    assert refused(source(table, key="d", query="SELECT id, nope FROM x"))[0] == "jdbc.unknown"
    dead = source(table, url="jdbc:postgresql://127.0.0.1:1/x", password="very-secret")
    with pytest.raises(Retry) as unreachable:
        dead.available(none(), Limits())
    assert unreachable.value.code == "jdbc.connection"
    code, said = refused(source(table, url="jdbc:mysql://127.0.0.1:1/x"))
    assert (code, "spark.jars.packages" in said) == ("jdbc.driver", True)
    nowhere = jdbc.url().replace("/postgres", "/nowhere")
    assert refused(source(table, url=nowhere, password="very-secret"))[0] == "jdbc.access"


def test_another_table_under_the_same_id_is_refused(tmp_path: Path, spark: SparkSession, table: str) -> None:
    made(table, rows=3)
    other = made(f"{table}_other", rows=3)
    finish(pipeline(tmp_path, table, incremental="id"), tmp_path, spark)
    result = ran(pipeline(tmp_path, other, incremental="id"), tmp_path, spark)
    assert result.error is not None
    assert result.error.code == "jdbc.other"
    assert ids(tmp_path) == [1, 2, 3]


# -- kills -------------------------------------------------------------------------------------------------------------------

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: jdbc
        settings: {{url: "{url}", user: postgres, password: "${{JDBC_CANARY}}", table: {table}, key: id, incremental: id, lag: 0s,
          partition-rows: 7}}
        batch: {{max-records: 40}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: json}}}}
"""


@dataclass
class Rows(Case):
    table: str = ""

    def configure(self) -> None:
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root, url=jdbc.url(), table=self.table))


@pytest.mark.crash
@pytest.mark.contract("C4", "C5", "S6", reason="the table and what was delivered are compared after every kill")
@pytest.mark.parametrize(("point", "nth"), [("K6", 2), ("K8", 1)])
def test_who_is_killed_is_gone_on_for_with_the_same_rows(
    tmp_path: Path,
    spark: SparkSession,
    gateway: Gateway,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    nth: int,
) -> None:
    monkeypatch.setenv("JDBC_CANARY", "very-secret-canary")
    made(table, rows=100)
    case = Rows(tmp_path / "case", gateway, table=table)
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    add(table, 101, 120)
    ended = case.finish()
    assert ids(case.root) == list(range(1, 121))
    for path in [p for p in case.root.rglob("*") if p.is_file()]:
        assert b"very-secret-canary" not in path.read_bytes()
    assert "very-secret-canary" not in ended.out + ended.err
