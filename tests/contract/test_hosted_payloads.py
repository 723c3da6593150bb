"""Payloads of hosted sources on their way to Spark: Avro becomes typed, a schema that changes starts a new batch, what does not fit is
one dead letter; and outcomes on their way back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline import Pipeline
from penstock.plugins import registry
from tests.support import payloads_program
from tests.support.hosted_pipelines import ROOT, Bench, installed, lane

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "tests.support.payloads_program:connector"


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    return installed(tmp_path, "payloads", PROGRAM)


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A connector of an installed package, which hosts find as well."""
    info = tmp_path / "site" / "answering-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: answering\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(
        "[penstock.connectors]\nanswering = tests.support.payloads_program:answering\n"
    )
    monkeypatch.syspath_prepend(str(info.parent))
    paths = [str(info.parent), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    registry._offered.cache_clear()
    return "answering"


@pytest.fixture(autouse=True)
def _forget_offers() -> Any:
    yield
    registry._offered.cache_clear()


def _parquet(bench: Bench) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted((bench.root / "out").glob("*.parquet"))]


@pytest.mark.spark
@pytest.mark.contract("P15", reason="what a program sends as Avro is read back from Parquet with its types and values")
def test_what_a_program_sends_as_avro_is_typed_on_spark(bench: Bench, plugin: str) -> None:
    p = Pipeline("p").source("in", plugin, mode="typed")
    bench.finish(bench.to(p, format="parquet"))
    table = pa.concat_tables(_parquet(bench))
    assert table.to_pylist() == [payloads_program.typed(n) for n in range(6)]
    kinds = {f.name: f.type for f in table.schema}
    assert kinds["n"] == pa.int64()
    assert pa.types.is_decimal(kinds["price"])
    assert kinds["day"] == pa.date32()
    assert kinds["raw"] == pa.binary()


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_schema_that_changes_starts_a_new_batch(bench: Bench, plugin: str, form: str) -> None:
    p = Pipeline("p").source("in", plugin, mode="changing")
    result = bench.finish(bench.to(p, format=form))
    assert lane(result).read == lane(result).acked == 6
    kinds = bench.rows("SELECT ranges FROM snapshot ORDER BY batch")
    versions = [json.loads(ranges)["ranges"][0][1]["payload-schema"][1] for (ranges,) in kinds]
    assert versions == sorted(versions)
    assert len(set(versions)) == 2
    if form == "parquet":
        found = [row for table in _parquet(bench) for row in table.to_pylist()]
        assert [row["n"] - 2**53 - 1 for row in found] == list(range(6))
        assert [row.get("extra") for row in found] == [None] * 3 + ["x3", "x4", "x5"]


@pytest.mark.spark
def test_bytes_that_do_not_fit_their_schema_are_a_dead_letter_each(bench: Bench, plugin: str) -> None:
    p = Pipeline("p").source("in", plugin, mode="cut").dead_letter_queue(window=0)
    result = bench.finish(bench.to(p, format="parquet"))
    assert [row["n"] for table in _parquet(bench) for row in table.to_pylist()] == [0, 2, 4, 5]
    assert lane(result).dead_lettered == {"out": 2}
    letters = bench.rows("SELECT position, code FROM nack ORDER BY seq")
    assert letters == [(b"1", "wire.schema"), (b"3", "wire.schema")]


@pytest.mark.spark
def test_a_schema_that_nobody_knows_costs_its_records_and_says_so(bench: Bench, plugin: str) -> None:
    p = Pipeline("p").source("in", plugin, mode="unknown", count=2).dead_letter_queue(window=0)
    result = bench.finish(bench.to(p, format="json"))
    assert lane(result).dead_lettered == {"out": 2}
    assert [error for (error,) in bench.rows("SELECT error FROM nack WHERE error LIKE '%nothing version 7%'")]


@pytest.mark.spark
@pytest.mark.contract("V1", reason="a source that answers somebody has written down what it was told of each record")
def test_a_source_that_answers_hears_of_what_was_refused(bench: Bench, offered: str) -> None:
    told = bench.root / "told"
    p = Pipeline("p").source("in", offered, mode="lines", told=told).processor("decode", "json.decode")
    bench.finish(bench.to(p.dead_letter_queue(window=0), format="json"))
    found = [json.loads(line) for line in told.read_text().splitlines()]
    assert [position for position, _ in found] == list(range(6))
    assert [bool(error) for _, error in found] == [True, False, False, True, False, False]
    assert "JSON" in found[0][1]


@pytest.mark.spark
def test_a_source_that_was_taken_out_hears_of_it_once_and_its_log_goes(bench: Bench) -> None:
    p = bench.to(bench.chaos(bench.chaos(Pipeline("p"), records=10), "other", records=10), format="json")
    bench.finish(p)
    alone = bench.to(bench.chaos(Pipeline("p"), records=10), format="json")
    for _ in range(2):
        bench.finish(alone)
    assert [call["method"] for call in bench.calls("other", "created", "deleted")] == ["created", "deleted"]
    assert not bench.log("other").exists()
    assert bench.log().exists()
