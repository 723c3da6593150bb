"""What an error may and may not do: stop errors, retries, and a ledger that can't be written. In this process, on real Spark."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.engine.backoff import Backoff
from penstock.native import Delivery, Retry, Staged
from penstock.pipeline import Pipeline, run
from penstock.summary import Summary
from penstock.testing import faults
from tests.support import oracle
from tests.support.harness import age

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUICK = Backoff(first=0.01, tries=10)


class FlakyDestination(FilesDestination):
    """Fails to stage the first few times."""

    def __init__(self, path: Path, failures: int) -> None:
        super().__init__(FilesDestinationSettings(path=str(path)), "out")
        self.failures = failures

    def stage(self, d: Delivery) -> Staged:
        if self.failures > 0:
            self.failures -= 1
            raise Retry("the destination is away")
        return super().stage(d)


class Pipe:
    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.issued = oracle.write_inputs(root / "in", 2, 10)
        age(root / "in")

    def run(self, destination: Any = "files", condition: str = "", **options: Any) -> Summary:
        settings = {"path": self.root / "out"} if destination == "files" else {}
        pipeline = (
            Pipeline("p").source("in", "files", path=self.root / "in").destination("out", destination, **settings)
        )
        if condition:
            pipeline.processor("x", "filter", condition=condition)
        return run([pipeline], spark=self.spark, state=self.root / "state", backoff=QUICK, **options)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return oracle.rows(self.root / "state", sql)


@pytest.fixture
def pipe(tmp_path: Path, spark: SparkSession) -> Pipe:
    return Pipe(tmp_path, spark)


@pytest.mark.contract("C3", reason="nothing is prepared because nothing reaches prepare; the ledger is looked at")
def test_a_fatal_error_in_a_step_stops_the_pipeline_and_prepares_nothing(pipe: Pipe) -> None:
    [result] = pipe.run(condition="raise_error('boom')").pipelines
    assert result.status == "degraded"
    assert result.error is not None
    assert "boom" in str(result.error)
    assert "p/in, batch 1" in str(result.error)
    assert pipe.rows("SELECT state FROM snapshot") == [("open",)]
    assert pipe.rows("SELECT count(*) FROM delivery") == [(0,)]
    assert oracle.outputs(pipe.root / "out") == []
    pipe.run().raise_for_error()
    assert oracle.judge(pipe.issued, pipe.root / "out").clean


@pytest.mark.contract("C7", safeguard="one-snapshot")
def test_five_failures_write_one_snapshot_and_six_attempts(
    pipe: Pipe, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pipe.run(FlakyDestination(pipe.root / "out", failures=5)).raise_for_error()
    assert pipe.rows("SELECT count(*) FROM snapshot") == [(1,)]
    assert pipe.rows("SELECT number, error IS NULL FROM attempt") == [(n, int(n == 6)) for n in range(1, 7)]
    assert oracle.judge(pipe.issued, pipe.root / "out").clean

    control = Pipe(tmp_path_factory.mktemp("control"), pipe.spark)
    faults.install(off=["one-snapshot"])
    control.run(FlakyDestination(control.root / "out", failures=5)).raise_for_error()
    assert control.rows("SELECT count(*) FROM snapshot") == [(6,)]


def test_a_once_run_gives_up_on_a_destination_that_stays_away(pipe: Pipe) -> None:
    [result] = pipe.run(FlakyDestination(pipe.root / "out", failures=99)).pipelines
    assert result.status == "degraded"
    assert result.lanes[0].remaining is not None
    assert result.lanes[0].remaining.records == 20


@pytest.mark.contract("C18", reason="the safeguard is the exception itself: swallowing it would be another program")
@pytest.mark.parametrize("write", ["snapshot", "prepare", "done"])
def test_a_ledger_write_that_fails_ends_the_lane_and_the_next_start_recovers_first(pipe: Pipe, write: str) -> None:
    after: list[str] = []

    def fail(point: str, detail: str) -> None:
        if point == "ledger" and detail == write:
            after.clear()
            raise sqlite3.OperationalError("disk I/O error")
        after.append(point)

    faults.install(fail)
    [result] = pipe.run().pipelines
    assert result.status == "degraded"
    assert "ledger.write" in str(result.error)
    assert after == []  # not one step further in place
    seen: list[str] = []
    faults.install(lambda point, detail: seen.append(point))
    pipe.run().raise_for_error()
    if write != "snapshot":
        assert "K1" not in seen
        assert seen.index("K11") < seen.index("ledger")
    assert oracle.judge(pipe.issued, pipe.root / "out").clean


@pytest.mark.contract("X2", safeguard="account")
def test_a_batch_that_loses_a_row_on_the_way_is_not_prepared(
    pipe: Pipe, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class Loses(FilesDestination):
        def stage(self, d: Delivery) -> Staged:
            assert d.rows is not None
            fewer = d.rows.where("after not like '%:7:%'")
            return super().stage(Delivery(**{**vars(d), "rows": fewer}))

    [result] = pipe.run(Loses(FilesDestinationSettings(path=str(pipe.root / "out")), "out")).pipelines
    assert "20 records were read; 18 were staged" in str(result.error)
    assert oracle.outputs(pipe.root / "out") == []

    control = Pipe(tmp_path_factory.mktemp("control"), pipe.spark)
    faults.install(off=["account"])
    control.run(Loses(FilesDestinationSettings(path=str(control.root / "out")), "out")).raise_for_error()
    assert len(oracle.judge(control.issued, control.root / "out").missing) == 2


def test_everything_a_prepare_names_was_fsynced_before_it(pipe: Pipe) -> None:
    synced: list[str] = []
    at_prepare: list[str] = []

    def hook(point: str, detail: str) -> None:
        if point == "fsync":
            synced.append(Path(detail).name)
        elif point == "prepare":
            at_prepare.extend(synced)

    faults.install(hook)
    pipe.run().raise_for_error()
    [(made,)] = pipe.rows("SELECT json_array_length(json_extract(staged, '$.manifest')) FROM delivery")
    assert len([name for name in at_prepare if name.startswith("part-")]) == made == 2
