"""Hosted sources under an engine: acks in order and at most once, a source that is held up, stops, and what one source's end means for
the others. In this process, on real Spark, with real hosts."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.log import Reader
from penstock.pipeline import Pipeline
from tests.support.harness import Case
from tests.support.hosted_pipelines import Bench, Telling, lane, remaining, until
from tests.support.states import penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


def _upto(n: int) -> list[int]:
    return list(range(1, n + 1))


def _acked(bench: Bench, more_than: int) -> bool:
    return len(bench.acks()) > more_than


def _opened(bench: Bench, times: int, acked: int) -> bool:
    return len(bench.opened()) == times and bench.acks()[-1:] > [acked]


# -- acks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.contract(
    "S8", reason="the acks that the source wrote down are compared with the order in which it gave its records"
)
def test_acks_come_in_the_order_of_the_records_whatever_the_destinations_do(bench: Bench) -> None:
    p = bench.chaos(Pipeline("p"), records=60, reorder=4, batch={"max-records": 9})
    p.destination("slow", Telling(bench, "slow", seconds=0.2))
    bench.to(p, "quick", format="json").processor("some", "filter", condition="after.n % 3 = 0", on="quick")
    bench.to(p, "none", format="json").processor("all", "filter", condition="true", on="none")
    bench.finish(p)
    given = [n for first in range(0, 60, 4) for n in range(first + 4, first, -1)]
    assert bench.acks() == given
    assert bench.numbers("slow") == given
    assert bench.numbers("quick") == [n for n in given if n % 3]
    assert bench.numbers("none") == []
    written = acked = 0
    for call in bench.calls(
        "in", "commit", "ack"
    ):  # what one destination filters, or has, is not acked before the other has it
        written += call.get("count", 0)
        acked += len(call.get("positions", ()))
        assert acked <= written


@pytest.mark.contract("S9", reason="the acks of the source over three starts: with the gate open they would go on")
def test_nothing_from_an_unhandled_nack_on_is_acked_in_this_run_or_the_next(bench: Bench) -> None:
    def pipeline() -> Pipeline:
        return bench.pipeline(records=100, batch={"max-records": 30})

    for _ in range(2):
        result = bench.run(pipeline().processor("bad", "error", condition="after.n = 47", message="forty-seven"))
        assert result.status == "degraded"
        assert "gate.closed" in str(result.error)
        assert "forty-seven" in str(result.error)
        assert remaining(result) == 54
        assert bench.acks() == _upto(46)
        assert bench.numbers() == _upto(46)
        assert bench.opened() == [None]  # not before everything in the log is settled
    bench.finish(pipeline())  # corrected: it goes on at the record that was held
    assert bench.numbers() == _upto(100)
    assert bench.opened() == [None, "100"]
    assert bench.acks() == _upto(46)  # the others were acked by the position that it was opened with


def test_a_held_record_is_known_by_its_position(bench: Bench) -> None:
    result = bench.run(bench.pipeline(records=10).processor("bad", "error", condition="after.n = 7"))
    assert [nack.position for nack in lane(result).held] == [b"7"]


def _acked_over(bench: Bench, restarts: int) -> None:
    """Stops under load. At each start the source goes on after what it has given, and hears of nothing twice."""
    for _ in range(restarts):
        before = len(bench.acks())
        run = bench.start(bench.pipeline(records=1_000_000, rate=300, resend=5))
        run.until(partial(_acked, bench, before + 20), "an ack")
        assert remaining(run.stop()) == 0
    acked, opened = bench.acks(), bench.opened()
    assert len(opened) == restarts
    assert bench.numbers() == _upto(bench.numbers()[-1])
    once = sorted(set(acked))
    assert once == bench.numbers()
    # What is sent again after a start is acked again, to the new connection: it was given again.
    again = {n for position in opened if position is not None for n in range(int(position) - 4, int(position) + 1)}
    assert sorted(n for n in acked if acked.count(n) > 1) == sorted([*again, *again])


@pytest.mark.contract("S9", reason="the ack list of the source itself is looked at, start by start")
def test_over_restarts_nothing_is_acked_that_was_not_given_in_the_same_life(bench: Bench) -> None:
    _acked_over(bench, 3)


@pytest.mark.long
@pytest.mark.contract("S9", reason="the ack list of the source itself is looked at, start by start")
def test_over_fifty_restarts_nothing_is_acked_that_was_not_given_in_the_same_life(bench: Bench) -> None:
    _acked_over(bench, 50)


# -- a destination that is slower ----------------------------------------------------------------------------------------------


MIB = 1 << 20


def _sizes(folder: Path) -> dict[str, int]:
    """The files of one moment: while one was looked at, none was deleted or took another's name, or a sum would count what was never
    there at once. Without segments that were merged into another one and are about to go."""

    def files() -> dict[str, os.stat_result]:
        return {name: (folder / name).stat() for name in sorted(os.listdir(folder))}

    while True:
        with suppress(FileNotFoundError):  # it was renamed or compacted away meanwhile
            then = files()
            with Reader(folder) as reader:
                counting = {info.path.name for info in reader.segments()}
            now = files()
            if all(name in now and now[name].st_ino == file.st_ino for name, file in then.items()):
                return {name: f.st_size for name, f in then.items() if name in counting or not name.endswith(".seg")}


@pytest.mark.contract(
    "S10", reason="what was read and the bytes of the log are looked at all the time, against the limit"
)
def test_a_slow_destination_slows_its_source_down_to_what_fits_into_the_log(bench: Bench) -> None:
    size, records = 1000, 4000
    slow = Telling(bench, seconds=0.3, format="text")
    slow.gate.clear()
    p = bench.chaos(Pipeline("p"), records=records, size=size, batch={"max-records": 400}, log={"max-size": "1MiB"})
    run = bench.start(p.destination("out", slow))

    def within() -> tuple[int, int]:
        files = _sizes(bench.log())
        segments = sum(n for name, n in files.items() if name.endswith(".seg"))
        assert segments <= MIB, files
        assert sum(files.values()) - segments <= MIB // 4, files
        calls = bench.calls("in", "read", "commit")
        read = sum(call["count"] for call in calls if call["method"] == "read")
        done = sum(call["count"] for call in calls if call["method"] == "commit")
        assert (read - done) * size <= MIB + 10 * size
        return segments, read

    run.until(lambda: any(bench.log().glob("*.seg")) and within()[0] > MIB - 20 * size, "a full log")
    pause, full = threading.Event(), within()[1]
    for _ in range(50):
        pause.wait(0.02)
        assert within()[1] <= full + 10  # the read that found no room
    slow.gate.set()
    run.until(lambda: within()[1] == records and len(bench.acks()) == records, "the rest")
    assert remaining(run.stop()) == 0
    assert bench.numbers() == bench.acks() == _upto(records)


# -- stops -----------------------------------------------------------------------------------------------------------------------


HOSTED = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: chaos, settings: {{records: 1000000, rate: 400, calls: {root}/in.calls}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: json}}}}
"""


@pytest.mark.contract(
    "S12", "T13", reason="what the source gave, what arrived and the attempts in the ledger are counted over two starts"
)
def test_a_stop_under_load_leaves_nothing_in_the_log_and_a_restart_redelivers_nothing(
    case: Case, spark: SparkSession
) -> None:
    bench = Bench(case.root, spark)
    (case.root / "p.yaml").write_text(HOSTED.format(root=case.root))
    given = 0
    for start in range(2):
        running = case.start(arguments=())
        until(partial(_acked, bench, given + 100), "an ack")
        running.signal(signal.SIGTERM)
        ended = running.wait()
        assert ended.returncode == 0, ended.err
        assert "remaining" not in ended.summary["sources"]["in"], start
        assert bench.opened() == ([None] if start == 0 else [None, str(given)])
        assert [call["method"] for call in bench.calls()][-1] == "close"
        before, given = given, bench.read()
        assert ended.summary["destinations"]["out"]["delivered"] == given - before
    assert bench.numbers() == bench.acks() == _upto(given)
    assert case.rows("SELECT max(number) FROM attempt") == [(1,)]


@pytest.mark.contract("S12", "T13", reason="the number said is compared with the number delivered later")
def test_what_a_deadline_has_left_in_the_log_is_the_number_delivered_later(bench: Bench) -> None:
    slow = Telling(bench, seconds=2.0)
    p = bench.chaos(Pipeline("p"), records=500, batch={"max-records": 60}).destination("out", slow)
    run = bench.start(p, deadline=1.0)
    run.until(lambda: bench.read() == 500 and slow.waiting.is_set(), "a commit")
    result = run.stop()
    assert result.error is None
    said, arrived = remaining(result), len(bench.numbers())
    assert 0 < arrived < 500
    assert said == 500 - arrived
    later = bench.finish(p)
    assert lane(later).delivered == {"out": said}
    assert bench.numbers() == _upto(500)
    assert bench.opened() == [None, "500"]


@pytest.mark.contract("S12", reason="the number said is compared with the number delivered later")
def test_what_was_logged_while_everything_stopped_at_once_is_in_the_number(bench: Bench) -> None:
    """The source is read up to the end of its host: nobody had the time to tell it."""
    p = bench.chaos(Pipeline("p"), "in", records=1_000_000, rate=500)
    bench.to(bench.chaos(p, "bad", records=30, read="fail after 3"), format="json")
    result = bench.run(p, once=False)
    assert result.status == "degraded"
    said, before = remaining(result), lane(result).delivered["out"]
    again = bench.to(bench.chaos(Pipeline("p"), "in", records=1), format="json")
    assert lane(bench.finish(again)).delivered == {"out": said}  # it has no more than what is in the log
    assert bench.opened()[-1] == str(before + (said or 0))


@pytest.mark.contract("S12", reason="what arrived is compared with what the source gave")
def test_a_stop_does_not_wait_for_a_batch_to_become_full(bench: Bench) -> None:
    run = bench.start(bench.pipeline(records=50, batch={"max-delay": "60s"}))
    run.until(lambda: bench.calls("in", "read")[-1:] and bench.calls("in", "read")[-1]["count"] == 0, "all of it")
    assert remaining(run.stop()) == 0
    assert bench.numbers() == bench.acks() == _upto(50)


# -- the end of one source -------------------------------------------------------------------------------------------------------


def _of(bench: Bench, source: str) -> list[int]:
    return [n for name, n in bench.files() if name.startswith(f"p.{source}-")]


@pytest.mark.contract(
    "S13", reason="the calls of both sources are looked at: the other one was opened once, in one process"
)
def test_a_source_that_dies_again_and_again_is_restarted_alone(bench: Bench) -> None:
    p = bench.chaos(Pipeline("p"), "good", records=300, rate=60)
    bench.to(bench.chaos(p, "bad", records=100, read="panic after 30 records"), format="json")
    retried: list[str] = []

    def report(event: str, pipeline: str, source: str, details: dict[str, object]) -> None:
        if event == "retry":
            retried.append(source)

    bench.finish(p, report=report, idle=15)  # a machine that is busy may stand still for a while
    assert _of(bench, "good") == bench.acks("good") == _upto(300)
    assert _of(bench, "bad") == _upto(100)
    assert bench.opened("good") == [None]
    assert bench.opened("bad") == [None, "30", "60", "90"]
    assert set(retried) == {"bad"}
    acked = bench.acks("bad")
    assert acked == sorted(set(acked))


@pytest.mark.contract("S13", reason="the calls of both sources, what arrived, and what the command shows are looked at")
def test_a_fatal_error_of_a_source_stops_the_pipeline_after_what_it_gave_is_delivered(bench: Bench) -> None:
    p = bench.chaos(Pipeline("p"), "good", records=1_000_000, rate=100)
    bench.to(bench.chaos(p, "bad", records=100, read="fail after 2"), format="json")
    result = bench.run(p, once=False)
    assert result.status == "degraded"
    assert "chaos: read was told to fail" in str(result.error)
    assert _of(bench, "bad") == bench.acks("bad") == _upto(20)
    assert [bench.calls(source)[-1]["method"] for source in ("good", "bad")] == ["close", "close"]
    good = bench.read("good")
    again = bench.chaos(Pipeline("p"), "good", records=good)
    bench.finish(bench.to(bench.chaos(again, "bad", records=100), format="json"))
    assert _of(bench, "good") == _upto(good)
    assert _of(bench, "bad") == _upto(100)


@pytest.mark.contract("S13", reason="what the command says")
def test_pipelines_show_names_the_error_of_a_source(bench: Bench) -> None:
    bench.run(bench.pipeline(records=100, read="fail after 2"))
    shown = penstock(bench.root, "pipelines", "show", "p", "--state", str(bench.state))
    assert shown.returncode == 0
    assert "chaos: read was told to fail" in shown.stdout


@pytest.mark.contract("S13", reason="what arrived is compared with what the source has")
def test_a_host_that_is_killed_is_replaced_and_everything_arrives_once(bench: Bench) -> None:
    run = bench.start(bench.pipeline(records=600, rate=300, resend=20))
    for killed in range(2):
        run.until(partial(_opened, bench, killed + 1, killed * 150), "acks")
        os.kill(bench.calls("in", "open")[-1]["pid"], signal.SIGKILL)
    run.until(lambda: bench.acks()[-1:] == [600], "the last ack")
    assert remaining(run.stop()) == 0
    assert bench.numbers() == _upto(600)
    assert len(bench.opened()) == 3
    assert json.loads((bench.log() / "connector.json").read_text())["resent"] > 0


@pytest.mark.contract("S13", reason="the error of each setting is read from the summary, and nothing was read")
@pytest.mark.parametrize(
    ("setting", "said"), [("open", "chaos: open was told to fail"), ("created", "chaos: created was told to fail")]
)
def test_a_source_that_can_not_be_opened_stops_the_pipeline_with_its_words(
    bench: Bench, setting: str, said: str
) -> None:
    result = bench.run(bench.pipeline(**{setting: "fail"}))
    assert result.status == "degraded"
    assert said in str(result.error)
    bench.finish(bench.pipeline())
    assert bench.numbers() == _upto(10)
