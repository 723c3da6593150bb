"""One record at a time, and one record not at all: `pipelines step` and `pipelines skip`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from penstock import Pipeline, Record, Reject, pipeline
from penstock.cli.main import cli
from tests.support.harness import Case
from tests.support.oracle import rows
from tests.support.outcomes import Refusing, delivered, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.summary import Summary

pytestmark = pytest.mark.spark

MakeCase = Callable[..., Case]


def rejecting(folder: Path) -> Pipeline:
    """The gate closes at the first record whose number stands in `bad.json`."""

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        path = folder / "bad.json"
        bad = json.loads(path.read_text()) if path.exists() else []
        return Reject("not wanted") if r.after["n"] in bad else r

    p = Pipeline("p").source("in", "files", path=folder / "in").processor("decode", "json.decode")
    return p.processor("f", f).processor("encode", "json.encode").destination("out", "files", path=folder / "out")


def for_children(root: str) -> list[Pipeline]:
    return [rejecting(Path(root))]


class Bench:
    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark, self.state = root, spark, root / "state"

    def bad(self, *numbers: int) -> None:
        (self.root / "bad.json").write_text(json.dumps(numbers))

    def run(self, p: Pipeline | None = None, **options: Any) -> Summary:
        made = p or rejecting(self.root)
        return pipeline.run([made], spark=self.spark, once=True, state=self.state, **options)

    def numbers(self) -> list[int]:
        return [r["n"] for r in delivered(self.root / "out")]

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return rows(self.state, sql)

    def command(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--state", str(self.state)])

    def skip(self, *which: str) -> None:
        done = self.command("pipelines", "skip", "p", *which, "--reason", "it is a test")
        assert done.exit_code == 0, (done.output, done.exception)


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.mark.contract(
    "T14", "T16", reason="each step's batch is looked at in the ledger: there is nothing to switch off"
)
def test_step_sends_one_record_at_a_time_in_order(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 16)
    bench.bad(9)
    assert not bench.run().ok
    assert bench.numbers() == list(range(9))
    bench.bad()
    for n in range(9, 16):
        summary = bench.run(steps=("in", 1))
        assert summary.ok
        assert [lane.read for p in summary.pipelines for lane in p.lanes] == [1]
        assert bench.numbers() == list(range(n + 1))
    done = bench.rows("SELECT records FROM snapshot WHERE state = 'done' AND records > 0 ORDER BY batch")
    assert done == [(9,), *[(1,)] * 7]
    assert bench.run(steps=("in", 1)).pipelines[0].lanes[0].read == 0


def test_a_step_at_a_record_that_is_still_bad_stops_there_again(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 5)
    bench.bad(2)
    assert not bench.run(steps=("in", 5)).ok
    assert bench.numbers() == [0, 1]
    assert bench.rows("SELECT state, seq FROM nack") == [("held", 2)]


@pytest.mark.contract("T16", reason="what is not sent is counted where it would have arrived")
def test_a_record_that_is_held_is_skipped_and_what_follows_goes_on(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 16)
    bench.bad(14)
    assert not bench.run().ok
    [(id_,)] = bench.rows("SELECT id FROM nack")
    bench.bad()  # it would be fine now, and is not sent all the same
    bench.skip("--id", str(id_)[:12])
    assert bench.run().ok
    assert bench.numbers() == [n for n in range(16) if n != 14]
    assert bench.rows("SELECT delivered, discarded FROM total") == [(15, 1)]
    assert bench.rows("SELECT read, acked FROM lane") == [(16, 16)]
    assert bench.rows("SELECT state FROM nack") == [("dropped",)]
    [(what, detail)] = bench.rows("SELECT what, detail FROM audit")
    assert what == "skip"
    assert json.loads(str(detail))["reason"] == "it is a test"
    assert "it adds up" in bench.command("pipelines", "show", "p").output


@pytest.mark.contract("T16", reason="what is not sent is counted where it would have arrived")
def test_offset_14_of_a_queue_is_skipped_and_9_to_15_can_be_looked_at(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 16)
    queue = bench.root / "queue"
    first = Pipeline("first").source("in", "files", path=bench.root / "in").processor("decode", "json.decode")
    assert bench.run(first.destination("queue", "queue", path=queue)).ok

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("fourteen") if r.after["n"] == 14 else r

    def second() -> Pipeline:
        made = Pipeline("p").source("in", "queue", path=queue).processor("f", f).processor("encode", "json.encode")
        return made.destination("out", "files", path=bench.root / "out")

    assert not bench.run(second()).ok
    assert bench.numbers() == list(range(14))
    bench.skip("--offset", "14")
    assert bench.run(second()).ok
    assert bench.numbers() == [*range(14), 15]
    shown = CliRunner().invoke(cli, ["log", "show", str(queue), "--from", "9", "--to", "15", "--json"])
    assert [json.loads(line)["offset"] for line in shown.stdout.splitlines()] == list(range(9, 16)), shown.output


def test_a_record_that_was_not_read_yet_is_skipped_by_its_position(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 4)
    assert bench.run().ok
    later = bench.root / "in" / "f00001.txt"
    bench.skip("--position", f"{later}#2")
    write_json(bench.root / "in", 1, 4, first=1)
    assert bench.run().ok
    assert [r["id"] for r in delivered(bench.root / "out")][4:] == ["f00001:0", "f00001:1", "f00001:3"]
    assert bench.rows("SELECT state FROM skip") == [("done",)]


def test_a_record_that_a_destination_refused_late_is_skipped(bench: Bench) -> None:
    write_json(bench.root / "in", 1, 10)
    (bench.root / "two").mkdir()
    (bench.root / "two" / "refuse.txt").write_text("f00000:6")

    def made() -> Pipeline:
        p = Pipeline("p").source("in", "files", path=bench.root / "in").processor("decode", "json.decode")
        p.processor("encode", "json.encode").destination("out", "files", path=bench.root / "out")
        return p.destination("two", Refusing(bench.root / "two", "two"))

    assert not bench.run(made()).ok
    [(id_,)] = bench.rows("SELECT id FROM nack WHERE state = 'held'")
    bench.skip("--id", str(id_))
    assert bench.run(made()).ok
    assert bench.numbers() == list(range(10))
    assert Refusing(bench.root / "two", "two").ids() == [f"f00000:{n}" for n in range(10) if n != 6]
    assert bench.rows("SELECT state FROM nack") == [("dropped",)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--position", "{in}/f00000.txt#1"], "skip.settled"),
        (["--position", "nowhere"], "skip.unknown"),
        (["--offset", "3"], "trace.no-log"),
        ([], "skip.which"),
        (["--offset", "3", "--position", "x"], "skip.which"),
    ],
)
def test_what_can_not_be_skipped_is_said(bench: Bench, arguments: list[str], code: str) -> None:
    write_json(bench.root / "in", 1, 4)
    assert bench.run().ok
    given = [a.replace("{in}", str(bench.root / "in")) for a in arguments]
    done = bench.command("pipelines", "skip", "p", *given, "--reason", "x")
    assert getattr(done.exception, "code", None) == code, (done.output, done.exception)
    assert bench.rows("SELECT * FROM skip") == []


@pytest.mark.crash
@pytest.mark.contract("T16", "X1", safeguard="one-snapshot: see test_exactly_once; here each step of a skip is killed")
@pytest.mark.parametrize(
    "point", ["K4", "ledger:skip", "done", *(pytest.param(p, marks=pytest.mark.long) for p in ("K3", "skip"))]
)
def test_a_skip_that_is_killed_at_a_step_costs_one_record_and_no_other(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    (case.root / "bad.json").write_text("[6]")
    this = "tests.contract.test_single:for_children"
    assert case.run(pipeline=this).returncode == 1
    [(id_,)] = case.rows("SELECT id FROM nack")
    done = CliRunner().invoke(
        cli, ["pipelines", "skip", "p", "--id", str(id_), "--reason", "x", "--state", str(case.state)]
    )
    assert done.exit_code == 0, done.output
    killed = case.run(pipeline=this, kill_at=point).killed
    assert killed
    case.finish(pipeline=this)
    assert [r["id"] for r in delivered(case.out)] == [i for i in issued if i != "f00000:6"]
    assert case.rows("SELECT discarded FROM total") == [(1,)]
    assert case.rows("SELECT read, acked FROM lane") == [(10, 10)]
