"""What people do to pipelines: stop and start one of several, let one go back. Beside a running engine through its socket, else with the
state folder locked."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.control import NAME, ask
from penstock.errors import UsageError
from penstock.log import Reader
from penstock.pipeline import Pipeline
from tests.support import oracle
from tests.support.harness import Case, Running, age
from tests.support.hosted_pipelines import PATIENCE, Bench, until
from tests.support.states import penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TWO = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in, settle: 0s}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
  - id: q
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in2, settle: 0s}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {out2}}}}}
"""


class Two:
    """Two pipelines in one engine that runs as a process of its own."""

    def __init__(self, case: Case, out2: Path | None = None) -> None:
        self.case, self.root = case, case.root
        self.out2 = out2 or case.root / "out2"
        (self.root / "in2").mkdir()
        (self.root / "p.yaml").write_text(TWO.format(root=self.root, out2=self.out2))
        self.running: Running | None = None

    def start(self) -> Running:
        self.running = self.case.start(arguments=())
        until(lambda: self._listens() or self._over(), "the engine listens")
        return self.running

    def _listens(self) -> bool:
        try:
            return bool(ask(self.case.state, {"do": "status"})["ok"])
        except UsageError:
            return False

    def _over(self) -> bool:
        assert self.running is not None
        assert self.running.process.poll() is None, self.running.wait().err
        return False

    def put(self, folder: str, name: str, *lines: str) -> None:
        (self.root / folder / name).write_text("".join(f"{line}\n" for line in lines))
        age(self.root / folder)

    def arrived(self, folder: str = "out") -> list[str]:
        path = self.out2 if folder == "out2" else self.root / folder
        return sorted(oracle.delivered(path)) if path.exists() else []

    def until(self, folder: str, *lines: str) -> None:
        until(lambda: self.arrived(folder) == sorted(lines) or self._over(), f"{lines} in {folder}")

    def say(self, *arguments: str, code: int = 0) -> str:
        said = penstock(self.root, "pipelines", *arguments, "--state", str(self.case.state))
        assert said.returncode == code, said.stdout + said.stderr
        return said.stdout + said.stderr

    def decisions(self, pipeline: str) -> list[tuple[str, Any]]:
        rows = self.case.rows(f"SELECT what, detail FROM audit WHERE pipeline = '{pipeline}' ORDER BY rowid")
        return [(what, json.loads(detail)) for what, detail in rows]


@pytest.fixture
def two(case: Case) -> Two:
    return Two(case)


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.mark.contract(
    "X3", reason="the epochs of the ledger are looked at; that they count is shown where hashes are made"
)
def test_one_pipeline_stops_goes_back_and_starts_while_the_other_goes_on(two: Two) -> None:
    running = two.start()
    two.put("in", "a", "a1", "a2")
    two.put("in2", "b", "b1")
    two.until("out", "a1", "a2")
    two.until("out2", "b1")
    assert two.case.state.joinpath(NAME).stat().st_mode & 0o777 == 0o600

    assert "p is stopped; nothing remains" in two.say("stop", "p")
    two.put("in", "c", "c1")
    two.put("in2", "d", "d1")
    two.until("out2", "b1", "d1")
    assert two.arrived() == ["a1", "a2"]
    assert "p is stopped by" in two.say("list")
    shown = json.loads(two.say("show", "p", "--json"))
    assert (shown["status"], bool(shown["stopped_by"])) == ("stopped", True)
    assert "p is already stopped" in two.say("stop", "p")
    assert "control.running" in two.say("rewind", "q", "--to", "beginning", "--reason", "x", code=2)
    assert "control.unknown-pipeline" in two.say("stop", "r", code=2)

    assert "all that it still has" in two.say("rewind", "p", "--to", "beginning", "--reason", "to see it twice")
    assert "p is running" in two.say("start", "p")
    two.until("out", "a1", "a1", "a2", "a2", "c1")
    assert "p is running already" in two.say("start", "p")

    two.say("stop", "p")
    two.say("stop", "q")
    time.sleep(0.5)
    two._over()  # it waits, with nothing to do
    two.say("start", "q")
    two.put("in2", "e", "e1")
    two.until("out2", "b1", "d1", "e1")
    who = two.decisions("p")[0][1]["by"]
    assert [what for what, _ in two.decisions("p")] == ["stop", "rewind", "start", "stop"]
    assert two.decisions("p")[1][1] == {"source": "in", "to": "beginning", "by": who, "reason": "to see it twice"}
    said = two.say("show", "p")
    assert f"rewound in to beginning, by {who}: to see it twice" in said
    assert f"stopped, by {who}" in said

    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.returncode == 0, ended.err
    assert ended.summary["sources"]["in"]["read"] == 5  # of both its lives in this engine
    assert not two.case.state.joinpath(NAME).exists()
    assert "No engine is running" in two.say("stop", "p", code=2)


@pytest.mark.contract(
    "T14", "T16", reason="what has arrived is looked at after every step; there is nothing to switch off"
)
def test_a_stopped_pipeline_takes_steps_in_its_engine_and_a_running_one_skips(two: Two) -> None:
    running = two.start()
    two.put("in", "a", "a1")
    two.until("out", "a1")
    assert "control.running" in two.say("step", "p", code=2)
    two.say("stop", "p")
    two.put("in", "b", "b1", "b2", "b3")
    assert "1 record processed" in two.say("step", "p")
    assert two.arrived() == ["a1", "b1"]
    assert "1 record processed" in two.say("step", "p")
    assert two.arrived() == ["a1", "b1", "b2"]
    assert "p is stopped by" in two.say("list")
    two.say("start", "p")
    two.until("out", "a1", "b1", "b2", "b3")

    two.say("skip", "p", "--position", f"{two.root}/in/c#1", "--reason", "not wanted")
    two.put("in", "c", "c1", "c2", "c3")
    two.until("out", "a1", "b1", "b2", "b3", "c1", "c3")
    said = two.say("show", "p")
    assert "skipped in" in said
    assert "1 discarded" in said
    assert "it adds up" in said
    running.signal(signal.SIGTERM)
    assert running.wait().returncode == 0


def test_a_pipeline_that_failed_is_started_when_its_cause_is_gone(case: Case) -> None:
    """A destination's folder that can't be made, then a file that changed: the engine goes on with the other one, and nothing is delivered
    twice afterwards."""
    blocked = case.root / "blocked"
    blocked.write_text("a file where a folder should be")
    two = Two(case, blocked / "out2")
    running = two.start()
    two.put("in", "a", "a1")
    two.put("in2", "b", "b1")
    two.until("out", "a1")
    until(lambda: "q is degraded" in two.say("list") or two._over(), "q failed")
    assert "blocked" in two.say("start", "q", code=2)
    blocked.unlink()
    assert "q is running" in two.say("start", "q")
    two.until("out2", "b1")

    read = two.root / "in2" / "b"  # and once more, for one that fails at work
    before = read.stat()
    read.write_text("b1 and more\n")
    until(lambda: "q is degraded" in two.say("list") or two._over(), "q failed again")
    read.write_text("b1\n")
    os.utime(read, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "q is running" in two.say("start", "q")
    two.put("in2", "c", "c1")
    two.until("out2", "b1", "c1")
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.returncode == 0, ended.err
    two.case.finish()
    assert (two.arrived(), two.arrived("out2")) == (["a1"], ["b1", "c1"])


def test_an_engine_that_was_killed_leaves_a_socket_that_harms_nobody(two: Two) -> None:
    two.put("in", "a", "a1")
    running = two.start()
    two.until("out", "a1")
    running.kill(group=False)
    assert two.case.state.joinpath(NAME).exists()
    assert "No engine is running" in two.say("start", "p", code=2)
    running = two.start()
    assert "p is running already" in two.say("start", "p")
    running.signal(signal.SIGTERM)
    assert running.wait().returncode == 0


@pytest.mark.contract("S9", reason="the acks of the source over its lives in one engine: each once, in order")
def test_connectors_in_processes_of_their_own_stop_and_start_in_one_engine(bench: Bench) -> None:
    p = bench.chaos(Pipeline("p"), records=100_000, rate=100, batch=5)
    p.destination("out", "chaos", calls=bench.root / "out.calls").guarantee("at-least-once")
    running = bench.start(p)

    def told(do: str, **more: Any) -> dict[str, Any]:
        return ask(bench.state, {"do": do, "pipeline": "p", "by": "me", **more}, PATIENCE)

    def written() -> int:
        return sum(call["count"] for call in bench.calls("out", "write"))

    running.until(lambda: len(bench.acks()) > 50)
    assert told("stop", timeout=0)["status"] in ("stopping", "stopped")
    stopped = told("stop")
    assert (stopped["status"], stopped["remaining"], stopped["already"]) == ("stopped", {}, True)
    acks = bench.acks()
    with Reader(bench.log()) as reader:
        end = reader.end
    assert acks == list(range(1, end + 1))  # what was on its way was taken, delivered and acked
    assert len(bench.calls("in", "close")) == len(bench.calls("out", "close")) == 1

    assert told("rewind", to=str(end - 10), reason="x")["sources"][0]["again"] == 1
    assert told("start")["status"] == "running"
    running.until(lambda: len(bench.acks()) > end + 50)
    assert len(bench.calls("in", "open")) == len(bench.calls("out", "open")) == 2
    assert bench.opened() == [None, str(end)]
    running.stop()
    assert bench.acks() == list(range(1, len(bench.acks()) + 1))
    assert written() == len(bench.acks()) + 10


# -- without an engine -----------------------------------------------------------------------------------------------------------------


def _back(bench: Bench, to: str, *more: str) -> None:
    said = penstock(
        bench.root, "pipelines", "rewind", "p", "--to", to, "--reason", "x", "--state", str(bench.state), *more
    )
    assert said.returncode == 0, said.stdout + said.stderr


HOSTED = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: chaos, settings: {{calls: "{root}/in.calls", records: "{records}"}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: "{root}/out", format: json}}}}
"""


@pytest.mark.contract("X3", "S9", reason="what the source was acked, and opened with, is looked at start by start")
def test_a_hosted_source_goes_back_in_its_log_and_nothing_is_acked_twice(bench: Bench) -> None:
    def run(records: int) -> None:
        bench.root.joinpath("p.yaml").write_text(HOSTED.format(root=bench.root, records=records))
        bench.finish(Pipeline.from_file(bench.root / "p.yaml"))

    run(10)
    assert (bench.numbers(), bench.acks()) == (list(range(1, 11)), list(range(1, 11)))
    moment = datetime.now(UTC).isoformat()
    run(15)
    with Reader(bench.log()) as reader:
        assert (reader.first, reader.end) == (0, 15)
    opened = bench.opened()

    _back(bench, "12")
    run(15)
    assert sorted(bench.numbers()) == sorted([*range(1, 16), 13, 14, 15])
    _back(bench, moment)
    run(18)
    assert sorted(bench.numbers()) == sorted([*range(1, 16), 13, 14, 15, *range(11, 16), 16, 17, 18])
    assert bench.acks() == list(range(1, 19))  # each once, in order
    assert bench.opened() == [*opened, "15", "15"]  # after the last record of its log, as without a rewind
    assert bench.rows("SELECT read, acked FROM lane") == [(15 + 3 + 5 + 3,) * 2]
    epochs = [epoch for (epoch,) in bench.rows("SELECT DISTINCT epoch FROM snapshot ORDER BY 1")]
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


@pytest.mark.contract(
    "X3", reason="what is delivered twice is named; that the epoch counts is shown where hashes are made"
)
def test_files_go_back_to_a_time_and_a_reset_begins_anew(case: Case) -> None:
    for name in ("old", "new"):
        (case.inp / name).write_text(f"{name}\n")
    age(case.inp)
    then = time.time() - 1000
    os.utime(case.inp / "old", (then, then))
    case.finish()
    moment = datetime.fromtimestamp(then + 1, UTC).isoformat()
    arguments = ("--reason", "x", "--state", str(case.state))
    said = penstock(case.root, "pipelines", "rewind", "p", "--to", moment, *arguments)
    assert said.returncode == 0, said.stderr
    case.finish()
    assert sorted(oracle.delivered(case.out)) == ["new", "new", "old"]
    killed = _killed_at_work(case)
    refused = penstock(case.root, "pipelines", "rewind", "p", "--to", "beginning", *arguments)
    assert (refused.returncode, "state.unfinished" in refused.stderr) == (2, True)
    said = penstock(case.root, "pipelines", "reset", "p", *arguments)
    assert "1 batch given up" in said.stderr, said.stderr
    assert not any((case.out / "_penstock" / "p.in").glob(f"{killed}*"))
    case.finish()
    assert sorted(oracle.delivered(case.out)) == ["last", "new", "new", "new", "old", "old"]
    case.finish()
    assert len(oracle.delivered(case.out)) == 6


def _killed_at_work(case: Case) -> str:
    """An engine that dies with a batch that is staged and not prepared. Returns the start of what it staged."""
    (case.inp / "last").write_text("last\n")
    age(case.inp)
    assert case.run(kill_at="K6").killed
    assert case.rows("SELECT count(*) FROM snapshot WHERE state = 'open'") == [(1,)]
    [staged] = [p.name for p in (case.out / "_penstock" / "p.in").iterdir() if p.is_dir()]
    return staged
