"""The plan as it is run: tried on no record first, conditions of both kinds, namespaces, `expect`, and one pass where none fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Pipeline, Record
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine.batch import stage as staging
from penstock.errors import PenstockError
from penstock.native import Known, Limits, Ranges
from penstock.pipeline import run
from tests.support.outcomes import delivered, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Untouchable(FilesSource):
    """Fails the test when it is looked at."""

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        raise AssertionError("the source was touched")


def _run(p: Pipeline, spark: SparkSession, root: Path, events: list[Any] | None = None) -> dict[str, Any]:
    found = events if events is not None else []

    def report(event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        del pipeline, source
        found.append((event, details))

    summary = run([p], spark=spark, state=root / "state", report=report).raise_for_error()
    result: dict[str, Any] = summary.to_json()["pipelines"][0]
    return result


@pytest.mark.parametrize(
    ("processor", "settings", "says"),
    [
        ("sql", {"expression": "no_such_function(after)", "field": ".Payload.After"}, "no_such_function"),
        ("python", {"function": "no_such_module_of_ours:f"}, "no_such_module_of_ours"),
    ],
)
def test_a_plan_that_can_not_work_is_refused_before_its_source_is_touched(
    tmp_path: Path, spark: SparkSession, processor: str, settings: dict[str, str], says: str
) -> None:
    source = Untouchable(FilesSourceSettings(path=str(tmp_path)), "in")
    p = Pipeline("p").source("in", source).processor("bad", processor, **settings)
    p.destination("out", "files", path=tmp_path / "out")
    with pytest.raises(PenstockError) as e:
        _run(p, spark, tmp_path)
    assert says in str(e.value)
    assert "bad" in str(e.value)


def test_a_go_template_and_the_namespace_say_which_records_a_processor_is_for(
    tmp_path: Path, spark: SparkSession
) -> None:
    write_json(tmp_path / "in", 1, 6)

    def name(r: Record) -> Record:
        assert isinstance(r.after, dict)
        r.namespace = "even.table" if r.after["n"] % 2 == 0 else None
        return r

    p = Pipeline("p").source("in", "files", path=tmp_path / "in").processor("decode", "json.decode")
    p.processor("name", name)
    p.processor("go", "field.set", condition="{{ eq .Payload.After.n 3 }}", field=".Payload.After.go", value="yes")
    p.processor("ns", "field.set", namespaces="^even", field=".Payload.After.ns", value="yes")
    p.processor(
        "both",
        "field.set",
        namespaces="table$",
        condition="{{ gt .Payload.After.n 2 }}",
        field="after.both",
        value="yes",
    )
    p.processor(
        "key", "field.set", condition='{{ eq (index .Metadata "opencdc.collection") "even.table" }}',
        field="after.key", value="yes",
    )  # fmt: skip
    p.processor("encode", "json.encode").destination("out", "files", path=tmp_path / "out")
    _run(p, spark, tmp_path)
    rows = delivered(tmp_path / "out")
    assert {r["n"] for r in rows if "go" in r} == {3}
    assert {r["n"] for r in rows if "ns" in r} == {0, 2, 4}
    assert {r["n"] for r in rows if "both" in r} == {4}
    assert {r["n"] for r in rows if "key" in r} == {0, 2, 4}


@pytest.mark.parametrize("shape", ["raw", "open", "typed"])
def test_expect_warns_and_the_record_goes_on(tmp_path: Path, spark: SparkSession, shape: str) -> None:
    write_json(tmp_path / "in", 1, 6)
    events: list[Any] = []
    p = Pipeline("p").source("in", "files", path=tmp_path / "in")
    if shape == "typed":
        p.processor("decode", "json.decode", schema="id STRING, n INT")
    elif shape == "open":
        p.processor("decode", "json.decode")
    rule = "after like '%4}'" if shape == "raw" else "after.n < 2"
    p.processor("small", "expect", rule=rule, on_fail="warn")
    if shape != "raw":
        p.processor("encode", "json.encode")
    result = _run(p.destination("out", "files", path=tmp_path / "out"), spark, tmp_path, events)
    assert result["destinations"]["out"]["delivered"] == 6
    [warning] = [details for event, details in events if event == "warning"]
    assert (warning["processor"], warning["records"]) == ("small", 5 if shape == "raw" else 4)


@pytest.mark.parametrize("typed", [True, False])
def test_expect_stops_at_the_record_whatever_the_window(tmp_path: Path, spark: SparkSession, typed: bool) -> None:
    write_json(tmp_path / "in", 1, 6)
    p = Pipeline("p").source("in", "files", path=tmp_path / "in").dead_letter_queue(window=0)
    p.processor("decode", "json.decode", **({"schema": "id STRING, n INT"} if typed else {}))
    p.processor("other", "error", condition="after.n = 1", message="one")
    p.processor("small", "expect", rule="after.n < 3", on_fail="stop").processor("encode", "json.encode")
    p.destination("out", "files", path=tmp_path / "out")
    with pytest.raises(PenstockError, match="stops the pipeline"):
        _run(p, spark, tmp_path)
    assert [r["n"] for r in delivered(tmp_path / "out")] == [0, 2]


def _parquet(folder: Path, n: int, values: list[int | None]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"f{n}.parquet"
    pq.write_table(pa.table({"n": pa.array(values, pa.int32())}), path)
    os.utime(path, (1_700_000_000 + n,) * 2)


def test_a_batch_is_written_in_one_pass_until_a_record_fails(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, values in enumerate([[1, 2], [3, 0], [4, 5], [6, 7]]):
        _parquet(tmp_path / "in", i, list(values))
    ways: list[bool] = []
    real = staging._stage

    def watched(*given: Any, hopeful: bool) -> Any:
        ways.append(hopeful)
        return real(*given, hopeful=hopeful)

    monkeypatch.setattr(staging, "_stage", watched)
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", format="parquet", batch={"max-files": 1})
    p.processor("ten", "sql", expression="10 / after.n", field=".Payload.After.ten").dead_letter_queue(window=0)
    p.destination("out", "files", path=tmp_path / "out", format="parquet")
    result = _run(p, spark, tmp_path)
    counts = result["destinations"]["out"]
    assert (counts["delivered"], counts["dead_lettered"]) == (7, 1)
    found = sorted(v for f in (tmp_path / "out").glob("*.parquet") for v in pq.read_table(f)["n"].to_pylist())
    assert found == [1, 2, 3, 4, 5, 6, 7]
    # hoped for none; one failed: once more; then with care; and hopeful again
    assert ways == [True, True, False, False, True]
    assert not list((tmp_path / "out").glob("_penstock/*/*/*"))


def test_a_pipeline_says_what_it_would_deliver(tmp_path: Path, spark: SparkSession) -> None:
    from penstock import trial

    write_json(tmp_path / "in", 2, 50)
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", after_ack="delete").processor("decode", "json.decode")
    p.processor("drop", "filter", condition="after.n = 1").processor("no", "error", condition="after.n = 2")
    p.processor("encode", "json.encode").destination("out", "files", path=tmp_path / "out")
    [outcome] = trial.run([trial.peeking(p.plan(), 5)], spark=spark)
    assert outcome.result.error is None
    assert [json.loads(r["after"])["n"] for r in outcome.delivered["out"]] == [0, 3, 4]
    assert [(n.node, n.code) for n in outcome.nacks] == [("no", "processor.rejected")]
    assert len(list((tmp_path / "in").iterdir())) == 2
    assert not (tmp_path / "out").exists()
