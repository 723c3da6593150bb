"""`Pipeline` around a run: planning starts nothing, prepared work is rebuilt, a rewind keeps to its pipeline, sums add up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Pipeline, Summary
from penstock.assembly import rebuild as _rebuild
from penstock.config import ConfigErrors
from penstock.connectors.files.destination import FilesDestination
from penstock.engine.frontier import frontier
from penstock.engine.supervisor import LaneResult, PipelineResult
from penstock.engine.view import Remaining, Status
from penstock.errors import Stop, UsageError
from penstock.ledger import Ledger, Nack, Prepared, TargetRef
from penstock.pipeline import run
from penstock.ranges import Range, Ranges


def built(root: Path) -> Pipeline:
    return Pipeline("p").source("in", "files", path=root / "in").destination("out", "files", path=root / "out")


def test_planning_touches_no_file_and_loads_no_spark(tmp_path: Path) -> None:
    script = (
        "import sys; from penstock import Pipeline\n"
        "p = Pipeline('p').source('in', 'files', path='in').destination('out', 'files', path='out')\n"
        "p.processor('f', 'filter').plan()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert child.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


def test_every_problem_is_gathered_before_it_refuses() -> None:
    pipeline = Pipeline("p").source("in", "flies", path="a").source("in2", "files", pth="b", settle="1")
    pipeline.destination("out", "files", path="c", format="avro").processor("f", "no.such")
    with pytest.raises(ConfigErrors) as caught:
        pipeline.plan()
    assert sorted(p.code for p in caught.value.problems) == [
        "config.bad-value",
        "config.bad-value",
        "config.missing-key",
        "config.unknown-key",
        "config.unknown-plugin",
        "config.unknown-plugin",
    ]


def test_two_processors_of_one_id_are_refused_as_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        built(tmp_path).processor("f", "filter").processor("f", "filter").plan()
    assert [p.code for p in caught.value.problems] == ["config.duplicate-id"]


def test_a_secret_does_not_show_in_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret-value")
    (tmp_path / "p.yaml").write_text(
        "version: '2.2'\n"
        "pipelines:\n"
        "  - id: p\n"
        "    connectors:\n"
        "      - {id: in, type: source, plugin: files, settings: {path: in, settle: $SECRET, after-ack: $SECRET}}\n"
        "      - {id: out, type: destination, plugin: files, settings: {path: out}}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        Pipeline.from_file(tmp_path / "p.yaml")
    assert len(caught.value.problems) == 2
    assert "s3cret-value" not in str(caught.value)


# -- running --------------------------------------------------------------------------------------------------------


def test_a_pipeline_that_can_never_run_is_degraded_without_spark(tmp_path: Path) -> None:
    summary = run([built(tmp_path)], state=tmp_path / "state")
    [result] = summary.pipelines
    assert (result.id, result.status, summary.ok) == ("p", Status.DEGRADED, False)
    with pytest.raises(Stop) as caught:
        built(tmp_path).run(state=tmp_path / "state")
    assert caught.value.code == "files.missing"
    assert not (tmp_path / "state" / "spark.log").exists()


def test_a_refused_setting_of_spark_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UsageError):
        built(tmp_path).run(state=tmp_path / "state", conf={"spark.speculation": "true"})
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_a_rewind_reaches_every_source_of_its_pipeline_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    ledger = Ledger(tmp_path / "state" / "ledger.db")
    before = {}
    for name in ("p/in", "p/in2", "q/in"):
        lane = ledger.lane(*name.split("/"))
        before[name] = lane.epoch
        s, _ = ledger.take(lane, Ranges((Range("a", {"size": 1}),), 1))
        ledger.prepare(s, 1, [Prepared("out", "h", "files", {}, {}, 0)])
        ledger.done(s, "out", {}, 1, frontier)
    ledger.close()
    built(tmp_path).source("in2", "files", path="in2").rewind(state=tmp_path / "state")
    ledger = Ledger(tmp_path / "state" / "ledger.db")
    lanes = {name: ledger.lane(*name.split("/")) for name in before}
    ledger.close()
    assert {n: lane.epoch - before[n] for n, lane in lanes.items()} == {"p/in": 1, "p/in2": 1, "q/in": 0}
    assert {n: list(lane.known.strands) for n, lane in lanes.items()} == {"p/in": [], "p/in2": [], "q/in": ["a"]}


# -- prepared work that outlived a change ---------------------------------------------------------------------------


def test_a_destination_is_made_again_from_what_was_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/somewhere")
    made = _rebuild(Prepared("old-out", "h", "builtin:files", {"path": "${PLACE}/out"}, {}, 0))
    assert isinstance(made, FilesDestination)
    assert (made.destination_id, made.settings.path) == ("old-out", "/somewhere/out")


def test_a_destination_that_was_only_attempted_is_made_again_too() -> None:
    made = _rebuild(TargetRef("out", "files", {"path": "/x"}))
    assert isinstance(made, FilesDestination)
    assert made.destination_id == "out"


def test_a_destination_whose_plugin_is_gone_is_said_by_name() -> None:
    with pytest.raises(UsageError) as caught:
        _rebuild(Prepared("old-out", "h", "python:gone.Destination", {}, {}, 0))
    assert caught.value.code == "state.destination-gone"
    assert "old-out" in caught.value.what


# -- the summary ----------------------------------------------------------------------------------------------------


def test_a_summary_adds_up_lanes_and_says_what_remains() -> None:
    remaining = Remaining(1, 2, 30, None)
    held = Nack(7, 0, "", "id7", b"f#7", "check", "processor.rejected", "bad", 1)
    lanes = (
        LaneResult("a", 10, 8, {"out": 6}, {"out": 4}, {"out": 1}, {"out": 2}, {"out": 3}, (held,), None),
        LaneResult("b", 5, 5, {"out": 5}, {}, {}, {}, {}, (), remaining),
    )
    [p] = Summary((PipelineResult("p", Status.STOPPED, None, "", 1.23456, lanes),)).to_json()["pipelines"]
    assert (p["id"], p["status"], p["error"], p["seconds"]) == ("p", "stopped", None, 1.235)
    assert p["sources"] == {
        "a": {
            "read": 10,
            "acked": 8,
            "held": [{"id": "id7", "seq": 7, "node": "check", "destination": "", "error": "bad"}],
        },
        "b": {"read": 5, "acked": 5, "remaining": {"batches": 1, "files": 2, "bytes": 30, "records": None}},
    }
    assert p["destinations"] == {
        "out": {"delivered": 11, "filtered": 4, "dead_lettered": 1, "discarded": 2, "produced": 3}
    }
