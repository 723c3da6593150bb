"""Tests of `delta` in a process whose Spark has Delta. `tests/contract/test_delta.py` runs them in a child; to run them alone, start
`python -m tests.support.delta FOLDER` and give what it says in PENSTOCK_DELTA."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.delta.destination import DeltaDestination
from penstock.connectors.delta.settings import DeltaDestinationSettings
from penstock.errors import Stop
from penstock.native import Receipt, Shape, Staged
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from penstock.testing.child import attach
from penstock.testing.exactly_once import ExactlyOnceTests
from tests.support import delta, oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.supervisor import PipelineResult


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    port, secret = json.loads(os.environ["PENSTOCK_DELTA"])
    return attach(port, secret)  # type: ignore[return-value]


class TestAppend(ExactlyOnceTests):
    shape = Shape.TYPED
    fences = True
    keeps_order = False
    more: dict[str, Any] = {}  # noqa: RUF012

    def destination(self) -> DeltaDestination:
        return DeltaDestination(DeltaDestinationSettings(path=str(self.folder / "out"), **self.more), "out")

    def rows(self, texts: Sequence[str]) -> DataFrame:
        given = [(n, 0, "create", None, (text,)) for n, text in enumerate(texts)]
        kind = "struct<text: string>"
        return self.spark.createDataFrame(given, f"seq long, part int, operation string, before {kind}, after {kind}")

    def visible(self) -> Sequence[str]:
        return delta.rows(self.folder / "out", "text")

    def left(self) -> Sequence[str]:
        return delta.staged(self.folder / "out")


class TestUpsert(TestAppend):
    more = {"mode": "upsert", "key": "text"}  # noqa: RUF012

    def test_a_merge_of_a_batch_that_the_table_has_does_nothing(self) -> None:
        """Delta's own word, without a look at the note."""
        d = self._delivery()
        first = self._stage(self._made(), d, ["a", "b"], attempt="one")
        self._commit(self._made(), d, first)
        again = self._stage(self._made(), d, ["c"], attempt="two")
        out = self._made()
        assert isinstance(out, DeltaDestination)
        looks = iter([None, Receipt(0)])  # what would have stopped it, and then the end
        out._there = lambda *_: next(looks)  # type: ignore[method-assign]
        out.commit(d, again, lambda _: True)
        self._shows(["a", "b"])

    def test_the_last_change_of_a_key_wins_and_deletes_delete(self) -> None:
        kind = "struct<text: string, n: int>"
        columns = f"seq long, part int, operation string, before {kind}, after {kind}"
        batches: list[list[tuple[Any, ...]]] = [
            [(1, 0, "create", None, ("a", 1)), (2, 0, "update", None, ("a", 2)), (3, 0, "create", None, ("b", 1))],
            [(4, 0, "delete", ("a", 2), None), (5, 0, "update", None, ("b", 5)), (5, 1, "update", None, ("b", 6))],
            [(6, 0, "create", None, ("c", 1)), (7, 0, "delete", None, ("c", None)), (8, 0, "delete", ("x", 0), None)],
        ]
        seen = []
        for number, given in enumerate(batches, 1):
            self.rows = lambda _, given=given: self.spark.createDataFrame(given, columns)  # type: ignore[method-assign,misc]
            d = self._delivery(number)
            assert self._commit(self._made(), d, self._stage(self._made(), d, [])).written == 3
            table = self.folder / "out"
            seen.append(sorted(zip(delta.rows(table, "text"), delta.rows(table, "n"), strict=True)))
        assert seen == [[("a", 2), ("b", 1)], [("b", 6)], [("b", 6)]]


# -- a table and a ledger that disagree --------------------------------------------------------------------------------------


def test_a_table_that_is_ahead_of_the_ledger_is_not_written(tmp_path: Path, spark: SparkSession) -> None:
    kit = TestAppend()
    kit.folder, kit.spark = tmp_path, spark
    later, known = kit._delivery(5), kit._delivery(4)
    kit._commit(kit._made(), later, kit._stage(kit._made(), later, ["a"]))
    staged = kit._stage(kit._made(), known, ["b"])
    with pytest.raises(Stop) as caught:
        kit._made().commit(known, staged, lambda _: True)
    assert caught.value.code == "delta.ahead"
    assert kit.visible() == ["a"]


def test_a_delivery_whose_note_has_expired_is_known_by_its_number(tmp_path: Path, spark: SparkSession) -> None:
    kit = TestAppend()
    kit.folder, kit.spark = tmp_path, spark
    d = kit._delivery(5)
    staged = kit._stage(kit._made(), d, ["a"])
    receipt = kit._commit(kit._made(), d, staged)
    where = str(tmp_path / "out")
    spark.sql(f"INSERT INTO delta.`{where}` VALUES ('other')")
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    log.forTable(spark._jsparkSession, where).checkpoint()
    for path in sorted((tmp_path / "out" / "_delta_log").glob("0*.json"))[:-1]:
        path.unlink()
    assert kit._made().find(d) is None
    assert kit._made().commit(d, Staged(staged.rows), lambda _: True) == receipt


# -- pipelines ---------------------------------------------------------------------------------------------------------------


def lines(folder: Path, records: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(path, (time.time() - 60,) * 2)
    return folder


def pipeline(folder: Path, fields: str | None, **settings: Any) -> Pipeline:
    typed = {} if fields is None else {"schema": fields}
    return (
        Pipeline("p").source("in", "files", path=folder, format="json", **typed).destination("out", "delta", **settings)
    )


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def refused(p: Pipeline, tmp_path: Path, spark: SparkSession) -> Any:
    return run([p], once=True, state=tmp_path / "state", spark=spark).pipelines[0].error


def _ledger(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    return oracle.rows(tmp_path / "state", sql)


def test_every_type_arrives_as_it_was(tmp_path: Path, spark: SparkSession) -> None:
    ddl = (
        "b BOOLEAN, i8 TINYINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE, d DECIMAL(38,10), t STRING, raw BINARY, day DATE,"
        " at TIMESTAMP, local TIMESTAMP_NTZ, list ARRAY<INT>, map MAP<STRING,INT>, inner STRUCT<x: INT, y: ARRAY<STRUCT<z: DATE>>>"
    )
    at, local = datetime(2026, 11, 17, 23, 59, 59, 123456, tzinfo=UTC), datetime(1, 1, 1, 0, 0, 0, 1)
    nested = (1, [(date(1582, 10, 4),), None])
    given: list[tuple[Any, ...]] = [
        (True, -128, 2**31 - 1, -(2**63), 1.5, 1e300, Decimal("1234567890123456789012345678.0123456789"), "a\tb\n\0 😀", b"\x00\xff",
         date(9999, 12, 31), at, local, [1, None], {"k": 1}, nested),
        (False, 127, 0, 2**63 - 1, 0.0, float("-inf"), Decimal("-0.0000000001"), "", b"", date(1, 1, 1), at, local, [], {}, (None, [])),
        (None,) * 15,
    ]  # fmt: skip
    source = spark.createDataFrame(given, ddl)
    source.coalesce(1).write.option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS").parquet(
        str(tmp_path / "in")
    )
    for path in (tmp_path / "in").iterdir():
        os.utime(path, (time.time() - 60,) * 2)
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", format="parquet")
    finish(p.destination("out", "delta", path=tmp_path / "out"), tmp_path, spark)
    found = spark.read.format("delta").load(str(tmp_path / "out"))
    assert found.schema.simpleString() == source.schema.simpleString()
    assert sorted(map(str, found.collect())) == sorted(map(str, source.collect()))


def test_partitions_new_columns_and_wider_ones(tmp_path: Path, spark: SparkSession) -> None:
    table, place = tmp_path / "out [1]", {"path": tmp_path / "out [1]", "partition_by": "day"}
    given = lines(tmp_path / "in", [{"id": 1, "day": "a b"}, {"id": 2, "day": None}])
    finish(pipeline(given, "id BIGINT, day STRING", **place), tmp_path, spark)
    assert list(table.glob("day=*"))
    lines(given, [{"id": 3, "day": "c", "more": 1.5}])
    wider = "id INT, day STRING, more DOUBLE"
    error = refused(pipeline(given, wider, **place), tmp_path, spark)
    assert (error.code, "no column for 'more'" in error.why) == ("delta.schema", True)
    finish(pipeline(given, wider, **place, merge_schema=True), tmp_path, spark)
    assert sorted(map(str, zip(delta.rows(table, "id"), delta.rows(table, "id"), strict=True))) == [
        "(1, 1)",
        "(2, 2)",
        "(3, 3)",
    ]
    found = spark.read.format("delta").load(str(table)).where("id = 3").collect()
    assert [tuple(row) for row in found] == [(3, "c", 1.5)]
    lines(given, [{"id": "x", "day": "c"}])
    error = refused(pipeline(given, "id STRING, day STRING", **place), tmp_path, spark)
    assert (error.code, "'id' is string, and the column bigint" in error.why) == ("delta.schema", True)


def test_by_name_by_key_and_what_has_none(tmp_path: Path, spark: SparkSession) -> None:
    """A table of the catalog, open payloads with a schema, and records without a key."""
    name = f"orders_{os.getpid()}"
    spark.sql(f"CREATE TABLE {name} (id INT, n BIGINT) USING delta LOCATION '{tmp_path / 'out'}'")
    given = lines(tmp_path / "in", [{"id": n % 10 if n < 99 else None, "n": n} for n in range(100)])
    settings = {"table": name, "mode": "upsert", "key": "id", "schema": "id INT, n BIGINT"}
    p = pipeline(given, None, **settings).dead_letter_queue(window=0)
    lane = finish(p, tmp_path, spark).lanes[0]
    assert (lane.delivered, lane.dead_lettered) == ({"out": 99}, {"out": 1})
    table = tmp_path / "out"
    found = sorted(zip(delta.rows(table, "id"), delta.rows(table, "n"), strict=True))
    assert found == [(n, 90 + n) for n in range(9)] + [(9, 89)]
    lines(given, [{"id": 1, "n": 1}])
    assert refused(pipeline(given, None, **{**settings, "table": "nothing"}), tmp_path, spark).code == "delta.table"


RULES = """\
CREATE TABLE delta.`{where}` (id BIGINT NOT NULL, `odd-name` STRING, short VARCHAR(3), more INT DEFAULT 7) USING delta
TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"""


def test_who_breaks_a_rule_of_the_table_is_a_dead_letter_and_the_others_arrive(
    tmp_path: Path, spark: SparkSession
) -> None:
    where = str(tmp_path / "out")
    spark.sql(RULES.format(where=where))
    for name, rule in {
        "small": "ID < 10",
        "odd": "`odd-name` != 'no' OR lower(id) = 'id'",
        "beside": "more > 0",
    }.items():
        spark.sql(f"ALTER TABLE delta.`{where}` ADD CONSTRAINT {name} CHECK ({rule})")
    given: list[dict[str, Any]] = [
        {"id": 1, "odd-name": "a", "short": "abc"},
        {"id": 11, "odd-name": "a"},
        {"id": None, "odd-name": "a"},
        {"id": 2, "odd-name": "no"},
        {"id": 3, "odd-name": None},
        {"id": 4, "odd-name": "a", "short": "abcd"},
        {"id": 5, "odd-name": "a", "short": None},
    ]
    p = pipeline(
        lines(tmp_path / "in", given), "id BIGINT, `odd-name` STRING, short STRING", path=where
    ).dead_letter_queue(window=0)
    faults.install(off=["delta-rules"])
    (tmp_path / "control").mkdir()
    assert refused(p, tmp_path / "control", spark).code == "delta.constraint"
    faults.install()
    lane = finish(p, tmp_path, spark).lanes[0]
    assert (lane.delivered, lane.dead_lettered) == ({"out": 2}, {"out": 5})
    assert sorted(delta.rows(tmp_path / "out", "id")) == [1, 5]
    errors = [row[0] for row in _ledger(tmp_path, "SELECT error FROM nack ORDER BY seq")]
    assert errors == [
        "it breaks the rule 'small' of the table: ID < 10",
        "'id' must not be null in the table",
        "it breaks the rule 'odd' of the table: `odd-name` != 'no' OR lower ( id ) = 'id'",
        "it breaks the rule 'odd' of the table: `odd-name` != 'no' OR lower ( id ) = 'id'",
        "'short' is longer than varchar(3) of the table",
    ]


def test_who_breaks_a_rule_without_room_in_the_gate_is_held_and_nothing_behind_it_arrives(
    tmp_path: Path, spark: SparkSession
) -> None:
    where = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE delta.`{where}` (id BIGINT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{where}` ADD CONSTRAINT small CHECK (id < 50)")
    p = pipeline(lines(tmp_path / "in", [{"id": n} for n in range(100)]), "id BIGINT", path=where)
    assert refused(p, tmp_path, spark).code == "gate.closed"
    assert sorted(delta.rows(tmp_path / "out", "id")) == list(range(50))
    [(state, text)] = _ledger(tmp_path, "SELECT state, record FROM nack")
    assert state == "held"
    assert json.loads(text)["form"] is not None
    spark.sql(f"ALTER TABLE delta.`{where}` DROP CONSTRAINT small")
    finish(p, tmp_path, spark)
    assert sorted(delta.rows(tmp_path / "out", "id")) == list(range(100))


def test_a_rule_that_only_delta_knows_stops_and_what_is_prepared_goes_on_when_it_is_gone(
    tmp_path: Path, spark: SparkSession
) -> None:
    where = str(tmp_path / "out")
    spark.sql(f"CREATE TABLE delta.`{where}` (id BIGINT NOT NULL, more INT) USING delta")
    spark.sql(f"ALTER TABLE delta.`{where}` ADD CONSTRAINT small CHECK (id < 10 OR more IS NOT NULL)")
    p = pipeline(lines(tmp_path / "in", [{"id": 1}, {"id": 11}]), "id BIGINT", path=where)
    error = refused(p, tmp_path, spark)
    assert error.code == "delta.constraint", error
    assert delta.rows(tmp_path / "out", "id") == []
    spark.sql(f"ALTER TABLE delta.`{where}` DROP CONSTRAINT small")
    finish(p, tmp_path, spark)
    assert sorted(delta.rows(tmp_path / "out", "id")) == [1, 11]


def test_another_commit_between_ours_is_no_harm(tmp_path: Path, spark: SparkSession) -> None:
    """Somebody appends between our look at the table and the MERGE."""
    where = str(tmp_path / "out")
    given = lines(tmp_path / "in", [{"id": n} for n in range(5)])
    p = pipeline(given, "id BIGINT", path=where, mode="upsert", key="id")

    def interfere(point: str, detail: str) -> None:
        if (point, detail) == ("K6a", "read"):
            faults.install()
            spark.sql(f"INSERT INTO delta.`{where}` VALUES (100)")

    faults.install(interfere)
    finish(p, tmp_path, spark)
    assert sorted(delta.rows(tmp_path / "out", "id")) == [0, 1, 2, 3, 4, 100]
