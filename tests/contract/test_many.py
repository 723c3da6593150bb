"""Many at once: several pipelines in one engine, several lanes into one folder. One that fails never stops the others, a
stop reaches every lane and nobody else's, and a large batch does not keep a small one waiting."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Pipeline, Record, Summary
from penstock.config import ConfigErrors
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings, FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine.backoff import Backoff
from penstock.native import Delivery, Processor, Retry, Staged
from penstock.pipeline import run
from penstock.testing import faults
from tests.support import oracle
from tests.support.harness import Case, age
from tests.support.outcomes import Appender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import Engine, PipelineResult

pytestmark = pytest.mark.spark

SLEEP = 60.0  # what a task takes that is not cancelled; nothing here waits for it
PATIENCE = 120.0  # how long a test waits for what has to come


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Many:
    """Pipelines in a folder of their own: `<name>/in` is read, `<name>/out` is written."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.issued: dict[str, list[str]] = {}
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.engine: Engine | None = None

    def issue(self, name: str, files: int = 1, lines: int = 10, source: str = "in") -> None:
        folder = self.root / name / source
        folder.mkdir(parents=True, exist_ok=True)
        first = sum(len(list(f.iterdir())) for f in folder.parent.iterdir() if f.name != "out")
        self.issued.setdefault(name, []).extend(oracle.write_inputs(folder, files, lines, first=first))
        age(folder)

    def pipeline(self, name: str, *sources: str, max_files: int = 10) -> Pipeline:
        p = Pipeline(name)
        for source in sources or ("in",):
            p.source(source, "files", path=self.root / name / source, batch={"max-files": max_files})
        return p.destination("out", "files", path=self.root / name / "out")

    def run(self, *pipelines: Pipeline, **options: Any) -> dict[str, PipelineResult]:
        summary: Summary = run(
            pipelines,
            spark=self.spark,
            **{"state": self.root / "state", "report": self._note, "started": self._started, **options},
        )
        return {p.id: p for p in summary.pipelines}

    def _note(self, event: str, pipeline: str, _source: str, details: dict[str, Any]) -> None:
        self.events.append((event, pipeline, details))

    def _started(self, engine: Engine) -> None:
        self.engine = engine

    def begin(self, *pipelines: Pipeline, **options: Any) -> Going:
        return Going(self, pipelines, options)

    def happened(self, event: str, pipeline: str) -> int:
        return sum(1 for e, p, _ in self.events if (e, p) == (event, pipeline))

    def delivered(self, name: str) -> bool:
        """Everything that was issued is there, once and in order."""
        return oracle.judge(self.issued[name], self.root / name / "out").clean

    def outputs(self, name: str) -> list[Path]:
        return oracle.outputs(self.root / name / "out")


class Going(threading.Thread):
    """A run beside the test, stopped at its end whatever happens."""

    def __init__(self, many: Many, pipelines: tuple[Pipeline, ...], options: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.many, self.pipelines, self.options = many, pipelines, options
        self.results: dict[str, PipelineResult] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results = self.many.run(*self.pipelines, **{"once": False, **self.options})
        except BaseException as e:
            self.error = e

    def __enter__(self) -> Going:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.many.engine is not None:
            self.many.engine.stop.force()
        self.join(PATIENCE)

    def ended(self) -> dict[str, PipelineResult]:
        """Waits for the end of the run."""
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.error is None
        return self.results


@pytest.fixture
def many(tmp_path: Path, spark: SparkSession) -> Many:
    return Many(tmp_path, spark)


def errors(results: dict[str, PipelineResult]) -> dict[str, str]:
    return {name: r.error.code for name, r in results.items() if r.error is not None}


# -- processors, sources and destinations ------------------------------------------------------------------------------------


def waits(begun: Path, go: Path, seconds: float = SLEEP) -> Callable[[Record], Record]:
    """Says in a folder, for every record, that its turn has come, and sleeps until it may go on."""
    begun.mkdir(parents=True, exist_ok=True)

    def f(r: Record) -> Record:
        import os
        import time

        (begun / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        end = time.monotonic() + seconds
        while not go.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return r

    return f


class DoesNotOpen(Processor[None]):
    def open(self) -> None:
        raise RuntimeError("no licence for this machine")

    def apply(self, r: Record) -> Record:
        return r


class DoesNotCheck(FilesSource):
    def check(self) -> None:
        raise PermissionError(13, "Permission denied")


class DoesNotClose(FilesSource):
    def close(self) -> None:
        raise RuntimeError("can't hang up")


class Flaky(FilesDestination):
    def stage(self, d: Delivery) -> Staged:
        raise Retry("the destination is away")


# -- the shape of a pipeline ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("S1", reason="a refusal")
@pytest.mark.parametrize("missing", ["source", "destination"])
def test_a_file_without_a_source_or_a_destination_is_refused_with_its_line(tmp_path: Path, missing: str) -> None:
    other = {"source": "destination", "destination": "source"}[missing]
    text = f"""\
version: "2.2"
pipelines:
  - id: good
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: a}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: b}}}}
  - id: bad
    connectors:
      - {{id: x, type: {other}, plugin: files, settings: {{path: c}}}}
"""
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(ConfigErrors) as e:
        Pipeline.from_file(tmp_path / "p.yaml")
    [problem] = e.value.problems
    assert problem.code == f"config.no-{missing}"
    assert problem.where.endswith("p.yaml:7:5")


# -- one fails, the others do not ---------------------------------------------------------------------------------------------


def test_each_bad_pipeline_ends_with_its_own_error_and_all_others_deliver_everything(many: Many) -> None:
    names = ("good-1", "gate", "folder", "open", "good-2", "missing", "check", "close", "good-3")
    for name in names:
        many.issue(name, files=2)
    pipelines = {name: many.pipeline(name, max_files=1) for name in names}
    pipelines["gate"].processor("no", "error", condition="after like 'f00001:4:%'", message="four is not wanted")
    (many.root / "folder" / "out").write_text("a file where a folder should be")
    pipelines["open"].processor("open", DoesNotOpen(None, "open"))
    (many.root / "missing" / "in").rename(many.root / "missing" / "elsewhere")
    for name, kind in (("check", DoesNotCheck), ("close", DoesNotClose)):
        source = kind(FilesSourceSettings(path=str(many.root / name / "in")), "in")
        out = many.root / name / "out"
        pipelines[name] = Pipeline(name).source("in", source).destination("out", "files", path=out)
    results = many.run(*pipelines.values())
    assert list(results) == list(names)
    assert errors(results) == {
        "gate": "gate.closed",
        "folder": "files.not-writable",
        "open": "spark.job",
        "missing": "files.missing",
        "check": "engine.unexpected",
        "close": "engine.unexpected",
    }
    said = {name: str(results[name].error) for name in errors(results)}
    assert "four is not wanted" in said["gate"]
    assert "no licence for this machine" in said["open"]
    assert "Permission denied" in said["check"]
    assert "can't hang up" in said["close"]
    assert {p: d["error"] for e, p, d in many.events if e == "degraded"} == said
    for name in ("good-1", "good-2", "good-3", "close"):
        assert many.delivered(name)
    assert results["gate"].lanes[0].delivered == {"out": 14}
    assert many.outputs("open") == []


@pytest.mark.crash
def test_the_command_line_runs_all_the_good_ones_and_exits_with_1(tmp_path: Path) -> None:
    """The real thing, JVM included."""
    case = Case(tmp_path / "good")
    case.issue(files=3)
    others = {}
    for name, processors in {
        "gate": "    processors: [{id: no, plugin: error, condition: \"after like 'f00001:4:%'\"}]",
        "import": '    processors: [{id: f, plugin: python, settings: {function: "broken:f"}}]',
        "folder": "",
        "missing": "",
    }.items():
        others[name] = Case(tmp_path / name, processors=processors)
        others[name].issue(files=3)
        yaml = others[name].root / "p.yaml"
        yaml.write_text(yaml.read_text().replace("id: p\n", f"id: {name}\n"))
    (others["import"].root / "broken.py").write_text("raise RuntimeError('no licence for this machine')\n")
    others["folder"].out.write_text("a file where a folder should be")
    others["missing"].inp.rename(others["missing"].root / "elsewhere")
    ended = case.run(arguments=(*(str(c.root / "p.yaml") for c in others.values()), "--once"))
    assert ended.returncode == 1, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    summary = {p["id"]: p for p in lines[-1]["pipelines"]}
    assert {name: p["status"] for name, p in summary.items()} == {"p": "stopped", **dict.fromkeys(others, "degraded")}
    codes = {"gate": "gate.closed", "import": "spark.job", "folder": "files.not-writable", "missing": "files.missing"}
    for name, code in codes.items():
        assert summary[name]["error"].startswith(f"[{code}]")
    assert {line["pipeline"] for line in lines if line["event"] == "degraded"} == set(others)
    assert case.verdict().clean
    assert len(oracle.delivered(others["gate"].out)) == 24


def test_one_pipeline_fails_in_the_middle_and_the_others_go_on_until_they_are_stopped(many: Many) -> None:
    for name in ("a", "bad", "b"):
        many.issue(name)
    pipelines = [many.pipeline(name) for name in ("a", "bad", "b")]
    pipelines[1].processor("no", "error", condition="after like 'f00001:%'", message="the second file is not wanted")
    with many.begin(*pipelines) as going:
        until(lambda: all(many.happened("batch", name) for name in ("a", "bad", "b")))
        many.issue("bad")
        until(lambda: many.happened("degraded", "bad"))
        for _ in range(2):
            done = many.happened("batch", "a"), many.happened("batch", "b")
            many.issue("a")
            many.issue("b")
            until(lambda d=done: many.happened("batch", "a") > d[0] and many.happened("batch", "b") > d[1])  # type: ignore[misc]
        assert many.delivered("a")
        assert many.delivered("b")
        assert many.engine is not None
        many.engine.stop.request()
        results = going.ended()
    assert errors(results) == {"bad": "gate.closed"}
    assert not Summary(tuple(results.values())).ok  # exit 1
    assert [r.lanes[0].remaining is None for r in results.values()] == [True, False, True]
    assert results["bad"].lanes[0].delivered == {"out": 10}


def test_a_lane_whose_thread_dies_is_not_a_success(many: Many) -> None:
    many.issue("p")
    many.issue("good")
    flaky = Flaky(FilesDestinationSettings(path=str(many.root / "p" / "out")), "out")

    def report(event: str, *_: Any) -> None:
        if event == "retry":
            raise OSError("nobody listens")

    p = Pipeline("p").source("in", "files", path=many.root / "p" / "in").destination("out", flaky)
    results = many.run(p, many.pipeline("good"), report=report, backoff=Backoff(first=0.01, tries=2))
    assert errors(results) == {"p": "engine.unexpected"}
    assert "nobody listens" in str(results["p"].error)
    assert many.delivered("good")


def test_a_ledger_that_can_not_be_written_ends_the_lanes_that_wait_for_input_too(many: Many) -> None:
    many.issue("idle")

    def fail(point: str, detail: str) -> None:
        if point == "ledger" and detail == "prepare" and many.happened("batch", "idle"):
            raise OSError("disk I/O error")

    faults.install(fail)
    (many.root / "p" / "in").mkdir(parents=True)
    with many.begin(many.pipeline("p"), many.pipeline("idle")) as going:
        until(lambda: many.happened("batch", "idle"))
        many.issue("p")
        results = going.ended()
    assert errors(results) == {"p": "ledger.write", "idle": "ledger.write"}
    faults.install()
    assert errors(many.run(many.pipeline("p"), many.pipeline("idle"))) == {}
    assert many.delivered("p")
    assert many.delivered("idle")


@pytest.mark.crash
def test_a_jvm_that_dies_is_the_error_of_every_pipeline_that_was_running(tmp_path: Path) -> None:
    case, idle = Case(tmp_path / "p"), Case(tmp_path / "idle")
    (idle.root / "p.yaml").write_text((idle.root / "p.yaml").read_text().replace("id: p\n", "id: idle\n"))
    case.issue(files=1)
    running = case.start(arguments=(str(idle.root / "p.yaml"),))
    assert running.await_point("acked")
    [jvm] = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    case.issue(files=1)
    ended = running.wait()
    assert ended.returncode == 1, ended.err
    summary = json.loads(ended.out.splitlines()[-1])["pipelines"]
    assert [(p["id"], p["status"], p["error"].split()[0]) for p in summary] == [
        ("p", "degraded", "[spark.died]"),
        ("idle", "degraded", "[spark.died]"),
    ]
    assert "Traceback" not in ended.err


# -- a stop reaches every lane, and nobody else's -----------------------------------------------------------------------------


def test_a_forceful_stop_cancels_the_jobs_of_all_lanes_and_the_next_run_delivers_once(many: Many) -> None:
    begun, go = many.root / "begun", many.root / "go"
    for name, source in (("p", "a"), ("p", "b"), ("q", "in")):
        many.issue(name, source=source)

    def pipelines() -> list[Pipeline]:
        return [p.processor("wait", waits(begun, go)) for p in (many.pipeline("p", "a", "b"), many.pipeline("q"))]

    tracker = many.spark.sparkContext.statusTracker()
    with many.begin(*pipelines()) as going:
        until(lambda: len(list(begun.iterdir())) == 2 and len(tracker.getActiveJobsIds()) == 3)
        assert many.engine is not None
        asked = time.monotonic()
        many.engine.stop.force()
        results = going.ended()
        assert time.monotonic() - asked < SLEEP / 2
    assert errors(results) == {}
    assert [lane.remaining and lane.remaining.records for r in results.values() for lane in r.lanes] == [10, 10, 10]
    assert tracker.getActiveJobsIds() == []
    assert many.outputs("p") == many.outputs("q") == []
    go.touch()
    again = time.monotonic()
    assert errors(many.run(*pipelines())) == {}
    assert time.monotonic() - again < SLEEP / 2  # no task of the first run holds a core
    assert many.delivered("p")
    assert many.delivered("q")


def test_a_pipeline_that_fails_cancels_no_job_of_one_with_a_similar_name(many: Many) -> None:
    begun, go, fail = many.root / "begun", many.root / "go", many.root / "fail"
    many.issue("a", source="b-c")
    for source in ("bad", "c"):
        (many.root / "a-b" / source).mkdir(parents=True)
    other = many.pipeline("a", "b-c").processor("wait", waits(begun / "other", go))
    bad = many.pipeline("a-b", "bad", "c").processor("wait", waits(begun / "bad", fail), on="bad")
    bad.processor("no", "error", on="bad", message="no")
    with many.begin(other, bad) as going:
        until(lambda: list((begun / "other").iterdir()))
        many.issue("a-b", source="bad")
        until(lambda: list((begun / "bad").iterdir()))
        many.issue("a-b", source="c")  # it waits for a core, and is cancelled when the other lane fails
        until(lambda: len(many.spark.sparkContext.statusTracker().getActiveJobsIds()) == 3)
        fail.touch()
        until(lambda: many.happened("degraded", "a-b"))
        go.touch()
        until(lambda: many.happened("batch", "a") or many.happened("degraded", "a"))
        assert many.engine is not None
        many.engine.stop.request()
        results = going.ended()
    assert errors(results) == {"a-b": "gate.closed"}
    assert many.delivered("a")


def test_a_forceful_stop_leaves_an_engine_with_the_same_pipeline_on_the_same_spark_alone(many: Many) -> None:
    begun, go = many.root / "begun", many.root / "go"
    other = Many(many.root / "other", many.spark)
    for one in (many, other):
        one.issue("p")
    mine, theirs = (
        one.pipeline("p").processor("wait", waits(begun / name, go)) for one, name in ((many, "1"), (other, "2"))
    )
    with many.begin(mine) as going, other.begin(theirs, once=True) as others:
        until(lambda: all(list((begun / name).iterdir()) for name in "12"))
        assert many.engine is not None
        many.engine.stop.force()
        going.ended()
        go.touch()
        results = others.ended()
    assert errors(results) == {}
    assert other.delivered("p")
    assert many.outputs("p") == []


# -- fair ------------------------------------------------------------------------------------------------------------------


def test_a_small_batch_does_not_wait_for_a_large_one(many: Many) -> None:
    files = 30  # a task each, on two cores
    many.issue("large", files=files, lines=1)
    (many.root / "small" / "in").mkdir(parents=True)
    begun, go = many.root / "begun", many.root / "go"
    large = many.pipeline("large", max_files=files).processor("slow", waits(begun, go, 1.0))
    with many.begin(large, many.pipeline("small")) as going:
        until(lambda: list(begun.iterdir()))
        many.issue("small")
        until(lambda: many.happened("batch", "small"))
        assert len(list(begun.iterdir())) < files
        go.touch()
        until(lambda: many.happened("batch", "large"))
        assert many.engine is not None
        many.engine.stop.request()
        going.ended()
    assert [p for e, p, _ in many.events if e == "batch"] == ["small", "large"]
    assert many.delivered("large")


def test_every_lane_has_a_pool_and_a_tag_of_its_own_in_spark(many: Many) -> None:
    seen: dict[str, tuple[str | None, set[str]]] = {}

    class Looks(FilesSource):
        def recheck(self, ranges: Any) -> None:
            context = many.spark.sparkContext
            seen[self.source_id] = context.getLocalProperty("spark.scheduler.pool"), set(context.getJobTags())
            super().recheck(ranges)

    p = Pipeline("p").destination("out", "files", path=many.root / "p" / "out")
    for name in ("a", "b"):
        many.issue("p", source=name)
        p.source(name, Looks(FilesSourceSettings(path=str(many.root / "p" / name)), name))
    assert errors(many.run(p)) == {}
    scala = many.spark.sparkContext._jsc.sc()
    assert scala.getSchedulingMode().toString() == "FAIR"
    assert len({pool for pool, _ in seen.values()}) == 2
    for name, (pool, tags) in seen.items():
        assert pool is not None
        assert pool.endswith(f"p/{name}")
        assert tags == {pool}
        assert scala.getPoolForName(pool).isDefined()  # Spark makes a pool when a job comes in it
    assert many.spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


def test_what_destinations_run_side_by_side_belongs_to_the_lane(many: Many) -> None:
    many.issue("p")
    seen: list[tuple[str | None, set[str]]] = []

    class Looks(Appender):
        def write(self, d: Delivery, refuse: Any) -> Any:
            context = many.spark.sparkContext
            seen.append((context.getLocalProperty("spark.scheduler.pool"), set(context.getJobTags())))
            return super().write(d, refuse)

    p = Pipeline("p").guarantee("at-least-once").source("in", "files", path=many.root / "p" / "in")
    for name in ("x", "y"):
        p.destination(name, Looks(many.root / name, name))
    assert errors(many.run(p)) == {}
    assert len(seen) == 2
    assert all(pool is not None and tags == {pool} for pool, tags in seen)


# -- into one folder -------------------------------------------------------------------------------------------------------------


def test_pipelines_and_lanes_that_write_into_one_folder_at_one_moment_deliver_everything(many: Many) -> None:
    together = threading.Barrier(4)

    def meet(point: str, _detail: str) -> None:
        if point == "commit":
            together.wait(PATIENCE)

    made = []
    for name in ("p", "q"):
        p = Pipeline(name).destination("out", "files", path=many.root / "all" / "out")
        for source in ("a", "b"):
            p.source(source, "files", path=many.root / "all" / f"{name}-{source}", batch={"max-files": 1})
            many.issue("all", files=3, source=f"{name}-{source}")
        made.append(p)
    faults.install(meet)
    assert errors(many.run(*made)) == {}
    assert many.delivered("all")
    prefixes = {path.name.split("-")[0] for path in many.outputs("all")}
    assert prefixes == {"p.a", "p.b", "q.a", "q.b"}


def test_what_one_pipeline_cleans_up_is_never_the_work_of_another(many: Many) -> None:
    def into_all(name: str) -> Pipeline:
        source = Pipeline(name).source("in", "files", path=many.root / "all" / name, batch={"max-files": 1})
        return source.destination("out", "files", path=many.root / "all" / "out")

    def fail(point: str, _detail: str) -> None:
        if point == "prepare":
            raise RuntimeError("staged, and no further")

    for name in ("p", "p2"):
        many.issue("all", files=3, source=name)
    faults.install(fail)
    assert set(errors(many.run(into_all("p")))) == {"p"}
    faults.install()
    staging = many.root / "all" / "out" / "_penstock"
    staged = {path: path.read_bytes() for path in (staging / "p.in").rglob("part-*")}
    assert staged
    assert errors(many.run(into_all("p2"))) == {}
    assert {path: path.read_bytes() for path in (staging / "p.in").rglob("part-*")} == staged
    theirs = {path: path.read_bytes() for path in many.outputs("all")}
    assert len(theirs) == 3
    assert errors(many.run(into_all("p"))) == {}
    assert theirs.items() <= {path: path.read_bytes() for path in many.outputs("all")}.items()
    assert many.delivered("all")
    assert sorted(str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_file()) == [
        "p.in/receipt.json",
        "p2.in/receipt.json",
    ]


# -- a hundred --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pipelines", "batches"), [(20, 2), pytest.param(100, 3, marks=pytest.mark.long)])
def test_many_pipelines_run_in_one_process_and_all_of_them_stop(many: Many, pipelines: int, batches: int) -> None:
    names = [f"p{i:03d}" for i in range(pipelines)]
    for name in names:
        many.issue(name, files=batches)
    before = threading.active_count()
    with many.begin(*(many.pipeline(name, max_files=1) for name in names)) as going:
        until(lambda: all(many.happened("batch", name) == batches for name in names))
        assert threading.active_count() - before < 2 * pipelines + 10  # not one more for every batch
        assert many.engine is not None
        many.engine.stop.request()
        results = going.ended()
    assert errors(results) == {}
    assert all(many.delivered(name) for name in names)
    assert all(r.lanes[0].acked == 10 * batches for r in results.values())
    until(lambda: threading.active_count() <= before + 1)
