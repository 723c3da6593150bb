"""What a run says in a pipe and at its end: from views and results that are made by hand, and by a face whose clock is given."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli import printer
from penstock.cli.ending import WIDTH, Ran, ending
from penstock.cli.events import said
from penstock.cli.face import Face, Json, shown
from penstock.cli.failure import failed
from penstock.cli.interrupts import Interrupts
from penstock.cli.lines import MOST, Lines
from penstock.cli.progress import Rates, lane_line, lasting, stamp, waiting
from penstock.config import ConfigErrors, Problem
from penstock.engine.stop import StopSignal
from penstock.engine.supervisor import LaneResult, PipelineResult
from penstock.engine.view import Doing, LaneView, PipelineView, Remaining, Status, View
from penstock.errors import PenstockError, Stop, UsageError
from penstock.ledger import Nack
from penstock.native import Behind
from penstock.secrets import Secrets
from penstock.summary import Summary


def lane(read: int = 0, *, what: str = "processing batch 4 (1.2 MB)", since: float = 0.0, **given: Any) -> LaneView:
    made = LaneView(
        "in", "running", Doing(what, since), read, read, {"out": read}, behind=Behind(files=12, bytes=3_100_000)
    )
    return replace(made, **given)


def view(*lanes: LaneView) -> View:
    return View(Doing("running", 0.0), tuple(PipelineView(f"p{i}", (each,)) for i, each in enumerate(lanes)))


class Engine:
    """Only what a face asks for."""

    def __init__(self, *shown: View) -> None:
        self.secrets = Secrets()
        self.stop = StopSignal()
        self.shown = list(shown) or [View(Doing("starting Spark", 0.0))]

    def view(self) -> View:
        return self.shown[0] if len(self.shown) == 1 else self.shown.pop(0)


# -- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds, text, before",
    [
        (0.04, "0.0 s", "[   0.0 s]"),
        (59.94, "59.9 s", "[  59.9 s]"),
        (185, "3 min 05 s", "[ 185.0 s]"),
        (7500, "2 h 05 min", "[ 2:05:00]"),
        (277500, "3 d 5 h", "[3d 05:05]"),
    ],
)
def test_a_time_is_short_and_in_front_of_a_line_always_as_wide(seconds: float, text: str, before: str) -> None:
    assert lasting(seconds) == text
    assert stamp(seconds) == before


@pytest.mark.parametrize(
    "behind, text",
    [
        (None, ""),
        (Behind(), ""),
        (Behind(files=0, bytes=0), ""),
        (Behind(files=1, bytes=3_100_000), "1 file (3.1 MB)"),
        (Behind(files=2), "2 files"),
        (Behind(records=1), "1 record"),
        (Behind(records=3000), "3,000 records"),
    ],
)
def test_what_waits_is_said_as_far_as_it_is_known(behind: Behind | None, text: str) -> None:
    assert waiting(behind) == text


def test_a_rate_is_that_of_the_last_seconds_and_falls_when_nothing_comes() -> None:
    rates = Rates()
    for second in range(61):
        rates.note(view(lane(second * 100)), float(second))
    key = ("p0", "in")
    assert rates.of(key, 60.0) == pytest.approx(100)
    assert 0 < rates.of(key, 300.0) < 3  # a batch that takes long
    assert rates.of(key, 300.0, idle=True) == 0
    assert rates.of(("unknown", "in"), 60.0) == 0


def test_batches_that_take_longer_than_the_window_have_a_rate_too() -> None:
    rates = Rates()
    for second in range(81):
        rates.note(view(lane(second // 20 * 1000)), float(second))
    assert rates.of(("p0", "in"), 80.0) == pytest.approx(50)
    assert rates.of(("p0", "in"), 79.0) > 20


def test_the_time_before_the_first_batch_does_not_make_it_slower() -> None:
    rates = Rates()
    for second in range(31):
        rates.note(
            view(lane(0, what="trying the plan" if second <= 20 else "processing batch 1 (2 MB)")), float(second)
        )
    rates.note(view(lane(1000)), 30.0)
    assert rates.of(("p0", "in"), 30.0) == pytest.approx(100)


# -- lines every few seconds ----------------------------------------------------------------------------------------


def test_a_line_says_how_far_a_source_is_and_what_it_does() -> None:
    shown = lane(12_000, delivered={"out": 11_200}, dead_lettered={"out": 3})
    assert lane_line("orders", shown, 3400.2, 4.0) == (
        "orders/in: 12,000 read, 11,200 delivered, 3 dead-lettered, 3,400 records/s;"
        " processing batch 4 (1.2 MB), 4 s; 12 files (3.1 MB) wait"
    )
    several = lane(5, delivered={"a": 2, "b": 1}, dead_lettered={"a": 0, "b": 2}, behind=None)
    assert lane_line("p", several, 0.2, 1.0) == (
        "p/in: 5 read, 2 → a, 1 → b (2 dead-lettered); processing batch 4 (1.2 MB), 1 s"
    )


def lines_of(face: Lines, engine: Engine, seconds: Iterator[float] | list[float], capsys: Any) -> list[str]:
    face.started(engine)  # type: ignore[arg-type]
    for second in seconds:
        face.tick(face.began + second)
    return [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def test_a_source_that_waits_for_input_says_so_once_for_days(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    engine = Engine(view(lane(100, what="waiting for input", behind=None)))
    days = [float(s) for s in range(0, 3 * 86_400, 10)]
    assert lines_of(face, engine, days, capsys) == ["p0/in: 100 read, 100 delivered; waiting for input"]


@pytest.mark.thorough
def test_a_busy_log_gets_sparser(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    engine = Engine(*(view(lane(n)) for n in range(1, 200_000)))
    first_minute = lines_of(face, engine, [float(s) for s in range(60)], capsys)
    assert len(first_minute) == 12
    later_minute = lines_of(face, engine, [86_400.0 + s for s in range(60)], capsys)
    assert len(later_minute) == 1


def test_a_long_batch_gives_a_sign_of_life_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    engine = Engine(view(lane(0, since=face.began)))
    said_lines = lines_of(face, engine, [s / 10 for s in range(1200)], capsys)
    assert 2 <= len(said_lines) <= 4
    assert said_lines[0].startswith("p0/in: nothing read yet; processing batch 4 (1.2 MB), 3")


def test_a_start_that_takes_long_is_seen_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    engine = Engine(View(Doing("starting Spark", face.began)))
    assert lines_of(face, engine, [s / 10 for s in range(350)], capsys) == ["starting Spark …, 30.0 s"]


def test_the_first_batch_is_said_at_once_and_later_ones_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    engine = Engine(view(lane(0)))
    assert lines_of(face, engine, [0.1, 0.2], capsys) == []
    engine.shown = [view(lane(10))]
    face.event("batch", "p0", "in", {"batch": 1, "records": 10})
    assert len(lines_of(face, engine, [0.3], capsys)) == 1
    engine.shown = [view(lane(20))]
    face.event("batch", "p0", "in", {"batch": 2, "records": 10})
    assert lines_of(face, engine, [0.4], capsys) == []


def test_many_sources_have_one_line_together(capsys: pytest.CaptureFixture[str]) -> None:
    many = [lane(1000) for _ in range(MOST)] + [lane(1, status="degraded")]
    [line] = lines_of(Lines(), Engine(view(*many)), [0.1], capsys)
    assert line == f"{MOST + 1} sources: 10,001 read, 10,001 delivered; {MOST} busy, 1 degraded"


# -- events ---------------------------------------------------------------------------------------------------------


def test_batches_are_not_said_one_by_one_and_what_matters_is() -> None:
    assert said("batch", "p", "in", {"batch": 1, "records": 2}) == ""
    assert said("snapshot", "p", "in", {"batch": 1}) == ""
    assert said("recovery", "p", "in", {"batch": 2, "state": "open", "action": "run-again"}) == (
        "p/in: recovery: batch 2 was begun and not delivered; it runs again"
    )
    assert said("recovery", "p", "in", {"batch": 2, "state": "taken", "action": "discard"}) == (
        "p/in: recovery: batch 2 was taken: discard"
    )
    assert said("recovered", "p", "in", {"batch": 41, "destination": "pg", "there": True}) == (
        "p/in: recovery: batch 41 was delivered to 'pg' before the crash; not sent again"
    )
    assert "'pg' before the crash; it is now" in said(
        "recovered", "p", "in", {"batch": 41, "destination": "pg", "there": False}
    )
    assert said("something new", "p", "in", {"a": 1}) == "p/in: something new"


def test_a_stop_says_what_it_waits_for_and_for_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    busy = [f"p{i}/in: processing batch {i} (1.2 MB)" for i in range(5)]
    details = {"deadline": 30.0, "waiting_for": ["q/in: waiting for input", *busy]}
    Lines().event("stopping", "", "", details)
    text = capsys.readouterr().err
    assert "waiting at most 30 s for p0/in: processing batch 0 (1.2 MB); p1" in text
    assert "and 2 more" in text
    assert text.endswith("Ctrl-C again stops at once; nothing is lost\n")
    assert said("stopping", "", "", {"deadline": 30.0, "waiting_for": ["q/in: waiting for input"]}) == "stopping"


def test_nothing_is_promised_where_a_pipeline_may_lose_records(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    face.lossy = True
    face.event("stopping", "", "", {"deadline": 30.0, "waiting_for": ["p/in: processing batch 1 (2 bytes)"]})
    assert "nothing is lost" not in capsys.readouterr().err


def test_the_error_of_the_only_pipeline_is_left_to_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    face.event("degraded", "p", "in", {"error": "[a.b] no"})
    assert capsys.readouterr().err == ""
    face.alone = False
    face.event("degraded", "p", "in", {"error": "[a.b] no"})
    assert "p/in: degraded: [a.b] no" in capsys.readouterr().err


def test_json_has_every_event_and_changes_no_character(capsys: pytest.CaptureFixture[str]) -> None:
    details = {"batch": 1, "why": "odd \u202e \x1b[31m \x00 ü\n"}
    Json().event("reread", "p\u2028", "in", details)
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
    assert json.loads(text) == {"event": "reread", "pipeline": "p\u2028", "source": "in", **details}


def test_what_connectors_log_is_shown_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(quiet=True) as face:
        face.secrets.learn("hunter2!", "${PASSWORD}")
        logging.getLogger("penstock.log").info("out: %s", "hunter2!\nnext")
    assert capsys.readouterr().err == "out: ${PASSWORD}\\nnext\n"
    assert not logging.getLogger("penstock").handlers


# -- signals --------------------------------------------------------------------------------------------------------


def come(interrupts: Interrupts, engine: Engine | None) -> bool:
    """True if it was an exception."""
    if engine is not None:
        interrupts.stops(engine)  # type: ignore[arg-type]
    try:
        interrupts._come()
    except KeyboardInterrupt:
        return True
    return False


def test_before_the_engine_is_there_a_signal_ends_the_command() -> None:
    assert come(Interrupts(), None)


def test_while_spark_starts_the_second_signal_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    interrupts, engine = Interrupts(), Engine()
    face = Lines(interrupts)
    face.started(engine)  # type: ignore[arg-type]
    assert not come(interrupts, engine)
    assert engine.stop.requested
    face.say_signals()
    face.say_signals()
    assert capsys.readouterr().err.count("nothing was read yet") == 1
    assert come(interrupts, engine)
    assert face.cut_off() == "stopped before anything was read"


def test_while_lanes_run_the_second_signal_is_forceful_and_the_third_ends_the_command() -> None:
    interrupts, engine = Interrupts(), Engine(view(lane(1)))
    assert not come(interrupts, engine)
    assert not engine.stop.forced
    assert not come(interrupts, engine)
    assert engine.stop.forced
    assert come(interrupts, engine)
    face = Face(interrupts)
    assert face.cut_off() == "stopped"
    face.started(engine)
    assert face.cut_off() == "stopped at once; nothing is lost"


def test_a_signal_while_spark_stops_neither_hides_the_summary_nor_says_that_nothing_was_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupts, engine = Interrupts(), Engine(view(lane(1)))
    face = Lines(interrupts)
    face.started(engine)  # type: ignore[arg-type]
    face.say_signals()
    engine.shown = [View(Doing("stopping Spark", 0.0))]
    assert not come(interrupts, engine)
    face.say_signals()
    assert not come(interrupts, engine)
    assert capsys.readouterr().err == ""


# -- the end --------------------------------------------------------------------------------------------------------


def result(*lanes: LaneResult, error: PenstockError | None = None, id: str = "orders") -> PipelineResult:
    return PipelineResult(id, Status.DEGRADED if error else Status.STOPPED, error, "", 20.5, lanes)


def lane_result(read: int = 5, **given: Any) -> LaneResult:
    made = LaneResult("in", read, read, {"all": 2, "europe": 1}, {"all": 1, "europe": 2}, {}, {}, {}, (), None)
    return replace(made, **given)


HERE = Ran(Path(".penstock").absolute(), "penstock run p.yaml --once", once=True, looked={("orders", "in"): "./orders"})


def test_the_summary_has_numbers_under_numbers_and_what_to_type_next() -> None:
    summary = Summary((result(lane_result(dead_lettered={"all": 2, "europe": 2})),))
    assert (
        ending(summary, HERE)
        == """
orders: done in 20.5 s
  in          5 read       5 acked
    → all     2 delivered  1 filtered  2 dead-lettered
    → europe  1 delivered  2 filtered  2 dead-lettered

to see the dead letters:  penstock dlq list"""
    )


def test_what_is_zero_everywhere_is_not_said() -> None:
    text = ending(Summary((result(lane_result(filtered={"all": 0, "europe": 0})),)), HERE)
    assert "filtered" not in text
    assert "dlq" not in text


def test_the_summary_fits_eighty_columns() -> None:
    n = dict.fromkeys(("all", "a-destination-with-a-name-that-is-longer-than-others"), 123_456_789)
    counts: dict[str, Any] = dict.fromkeys(("delivered", "filtered", "dead_lettered", "discarded", "produced"), n)
    text = ending(Summary((result(lane_result(10**9, **counts)),)), HERE)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.count("123,456,789") == 10


def test_another_state_folder_is_part_of_what_to_type() -> None:
    summary = Summary((result(lane_result(dead_lettered={"all": 1})),))
    text = ending(summary, replace(HERE, state=Path("/data/my state")))
    assert text.endswith("penstock dlq list --state '/data/my state'")
    text = ending(summary, replace(HERE, state=Path("a/b").absolute()))
    assert text.endswith("penstock dlq list --state a/b")


def test_a_dead_letter_that_is_alone_can_be_shown_at_once() -> None:
    summary = Summary((result(lane_result(dead_lettered={"all": 1})),))
    assert ending(summary, replace(HERE, letter="850a00ee5992c505")).endswith(
        "to see the dead letter:  penstock dlq show 850a00ee5992"
    )
    none = Summary((result(lane_result()),))
    assert "dlq" not in ending(none, replace(HERE, letter="850a"))  # it is of an earlier run


def test_a_second_run_says_that_there_was_nothing_new_and_where_it_looked() -> None:
    text = ending(Summary((result(lane_result(0)),)), HERE)
    assert "in: nothing new in ./orders; what was read before is not read again" in text
    assert "delivered" not in text
    assert "nothing new" not in ending(Summary((result(lane_result(0)),)), replace(HERE, once=False))


def test_a_pipeline_that_failed_before_it_read_is_not_called_up_to_date() -> None:
    text = ending(Summary((result(lane_result(0), error=Stop("no", code="a.b")),)), HERE)
    assert "nothing new" not in text
    assert "orders: degraded after 20.5 s\n  in" in text
    assert text.endswith("[a.b] no")


def test_what_remains_is_said_with_the_command_that_goes_on() -> None:
    summary = Summary((result(lane_result(remaining=Remaining(1, 2, 10, 7))),))
    text = ending(summary, replace(HERE, forced=True))
    assert "orders: stopped after 20.5 s" in text
    assert "in: 7 records (2 files) remain for the next start" in text
    assert "Stopped at once. Nothing is lost: the next start does again what was cut off." in text
    assert text.endswith("to go on:  penstock run p.yaml --once")
    lossy = ending(summary, replace(HERE, forced=True, at_most_once=frozenset({"orders"})))
    assert "Nothing is lost" not in lossy


def test_what_remains_in_a_log_is_no_file() -> None:
    ran = replace(HERE, no_files=frozenset({("orders", "in")}))
    for left, text in (
        (Remaining(0, 0, 0, 1234), "  in: 1,234 records remain for the next start\n"),
        (Remaining(1, 1, 90, 1), "  in: 1 record remains for the next start\n"),
        (Remaining(2, 2, 90, None), "  in: an unknown number of records remain for the next start\n"),
    ):
        assert text in ending(Summary((result(lane_result(remaining=left)),)), ran)
    assert "5 records remain" in ending(Summary((result(lane_result(remaining=Remaining(0, 0, 0, 5))),)), HERE)


def test_what_is_held_can_be_looked_at() -> None:
    held = Nack(1, 0, "", "a b", b"", "decode", "json.invalid", "not JSON", 0)
    error = Stop("The gate is closed", code="gate.closed", hint="look")
    text = ending(Summary((result(lane_result(held=(held,), remaining=Remaining(1, 1, 9, 3)), error=error),)), HERE)
    assert "in: held at a b (decode: not JSON)" in text
    assert "in: 3 records (1 file) wait for the one that is held" in text
    assert "[gate.closed] The gate is closed\n  do: look" in text
    assert text.endswith("to see what is held:  penstock dlq show 'a b'")


def test_a_pipeline_that_never_ran_has_its_error_alone() -> None:
    text = ending(Summary((result(error=Stop("no folder", code="files.missing")),)), HERE)
    assert text == "\norders: degraded, nothing was run\n[files.missing] no folder"
    assert ending(Summary((result(),)), HERE) == "\norders: stopped before anything was read"
    assert "status: stopped" in ending(Summary(()), HERE)


# -- a command that fails -------------------------------------------------------------------------------------------


def test_what_nobody_expected_is_one_block_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RuntimeError("An error occurred\n\tat org.apache.spark.Something(Some.scala:1)")

    with pytest.raises(RuntimeError) as caught:
        fails()
    assert failed(caught.value, ["run", "p.yaml"]) == 1
    said_text = capsys.readouterr().err
    assert said_text.startswith("[internal.error]")
    assert "why: RuntimeError: An error occurred\n" in said_text
    assert "org.apache" not in said_text
    assert "Traceback" not in said_text
    assert failed(caught.value, ["run", "p.yaml", "--debug"]) == 1
    assert "in fails" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error, code, codes",
    [
        (UsageError("no", code="usage.conf", why="w", hint="h"), 2, ["usage.conf"]),
        (Stop("no", code="a.b"), 1, ["a.b"]),
        (ConfigErrors([Problem("c.d", "x", "p.yaml:1:2"), Problem("c.e", "y", "")]), 2, ["c.d", "c.e"]),
        (click.UsageError("no such option"), 2, ["usage.arguments"]),
        (ValueError("odd"), 1, ["internal.error"]),
    ],
)
def test_with_json_every_problem_is_a_line_on_stdout_besides_the_text(
    error: Exception, code: int, codes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(error, ["run", "--json"]) == code
    shown_text = capsys.readouterr()
    lines = [json.loads(line) for line in shown_text.out.splitlines()]
    assert [line["code"] for line in lines] == codes
    assert all(set(line) == {"event", "code", "what", "where", "why", "do"} for line in lines)
    assert {line["event"] for line in lines} == {"error"}
    assert shown_text.err != ""
    assert failed(error, ["run", "--", "--json"]) == code
    assert capsys.readouterr().out == ""


def test_an_interruption_has_its_own_exit_code_and_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(KeyboardInterrupt(), ["run", "--json", "--debug"]) == 130
    assert failed(click.Abort(), []) == 130
    assert capsys.readouterr() == ("", "")


# -- writing --------------------------------------------------------------------------------------------------------


def test_a_stream_without_our_signs_gets_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, expected in (("ascii", b"a ... -> - ?\n"), ("iso8859-1", b"a ... -> - \xfc\n")):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding))
        printer.err("a … → – ü")
        assert raw.getvalue() == expected


def test_json_for_a_stream_without_a_character_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    printer.out_json({"a": "ü…"})
    assert json.loads(raw.getvalue()) == {"a": "ü…"}
