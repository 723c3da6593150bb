"""Destinations that crash, hang or talk nonsense, as programs and as classes in their hosts: a named error or a recovery, everything
arrives in the end, and no process is left behind. In this process, on real Spark, with real hosts and programs; where the engine itself is
killed, it is a child.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import checks
from penstock.config.problem import ConfigErrors
from penstock.errors import Retry, Stop
from penstock.host import sink
from penstock.pipeline import Pipeline
from tests.support.bad_pipelines import Ward
from tests.support.harness import Case
from tests.support.hosted_pipelines import lane, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LINES = [str(n) for n in range(1, 251)]
SHORT = 3.0  # seconds of patience with what hangs


@pytest.fixture
def ward(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    made = Ward(tmp_path, spark, monkeypatch)
    made.write(LINES)
    yield made
    made.until_nothing_runs()


@pytest.fixture
def chaos(ward: Ward, request: pytest.FixtureRequest) -> str:
    """The connector `chaos`: as a class in the host, or as a program that the host starts."""
    return ward.chaos_program() if request.param == "program" else "chaos"


both = pytest.mark.parametrize("chaos", ["class", "program"], indirect=True)


def pairs(*found: tuple[str, str]) -> pytest.MarkDecorator:
    """Of class or program, and what it does: every one of either is there, and not each with each, which takes its time."""
    return pytest.mark.parametrize(("chaos", "how"), found, indirect=["chaos"])


# -- no handshake ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_program_that_gives_no_handshake_is_a_named_error_and_delivers_when_it_is_mended(ward: Ward) -> None:
    p = ward.into(ward.bad_program())
    expected = {
        "dies": "p:out, start: it ended with 3 before the handshake: no luck today",
        "garbage": "p:out, start: it printed 'hello, I am a plugin' where the handshake should be",
        "core": "p:out, start: it speaks version '2' of the plugin protocol",
        "dialect": "p:out, start: it speaks dialect '9' of the connector protocol",
        "silent child": "p:out, start: it printed no handshake within 3 seconds",
    }
    for how, words in expected.items():
        ward.behave(how)
        with ward.impatient(SHORT) if "silent" in how else nullcontext():
            error = ward.fails(p)
        assert (type(error), error.code) == (Retry, "host.plugin"), how
        assert words in error.what
    ward.behave("prints")  # bytes that are no text, on the stream that the handshake came on
    ward.recovers(p)
    assert ward.arrived() == Counter(LINES)


# -- crashes -----------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_connector_that_dies_at_its_first_of_some_call_is_a_named_error_and_loses_nothing(
    ward: Ward, chaos: str
) -> None:
    """Before the write, in it, and where it hurts most: written and not answered."""
    p = ward.chaotic(chaos)
    program = chaos != "chaos"
    for method in [*(["settings"] if program else []), "open", "write", "answer"]:
        ward.behave(**{method: "panic"})
        error = ward.fails(p)
        assert (type(error), error.code) == (Retry, "host.plugin" if program else "host.gone"), method
        call = {"settings": "configure", "answer": "write"}.get(method, method)
        known = f"p:out, {call}: it ended with 2" if program else "The host of p:out is gone (exit code 2)"
        assert known in error.what
        assert f"chaos: {method}" in f"{error.what} {error.why}"
    unanswered = ward.arrived()
    assert 0 < len(unanswered) < len(LINES)
    ward.behave()
    ward.recovers(p)
    assert ward.arrived() == Counter(LINES) + unanswered  # those may be there once more, and no others


@pairs(("class", "write=kill after 100 records"), ("program", "answer=panic after 100 records"))
@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_connector_that_dies_in_the_middle_is_started_again_and_goes_on_where_it_stood(
    ward: Ward, chaos: str, how: str
) -> None:
    method, _, rule = how.partition("=")
    ward.behave(**{method: rule})
    ward.recovers(ward.chaotic(chaos))
    assert not ward.heard("retry {")  # its host or its sink does that alone
    assert len(ward.calls("out", "open")) > 1
    arrived = ward.arrived()
    assert arrived["1"] == 1  # what was answered is not sent again
    assert (max(arrived.values()) > 1) == (method == "answer")  # but what was not, is


@pairs(("class", "flush"), ("program", "close"))
@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_connector_that_dies_at_its_end_has_delivered_everything_and_it_is_said(
    ward: Ward, chaos: str, how: str
) -> None:
    ward.behave(**{how: "kill"})
    result = ward.recovers(ward.chaotic(chaos))
    assert lane(result).acked == len(LINES)
    assert ward.arrived() == Counter(LINES)
    assert ward.heard("did not come to a good end" if chaos == "chaos" else "failed: p:out")


# -- hangs -------------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_connector_that_hangs_is_ended_with_a_named_error_and_loses_nothing(ward: Ward, chaos: str) -> None:
    p = ward.chaotic(chaos)
    for method, call in {"open": "open", "write": "write", "silent": "write"}.items():
        ward.behave(**{method: "1" if method == "silent" else "block"})
        with ward.impatient(SHORT):
            error = ward.fails(p)
        assert (type(error), error.code) == (Retry, "host.hangs"), method
        assert f"The connector p:out did not come back from '{call}' within 3 s" in error.what
    ward.behave()
    ward.recovers(p)


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_program_that_hangs_at_its_settings_is_ended_whoever_asks_it(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = ward.chaotic(ward.chaos_program())
    ward.behave(settings="block")
    with ward.impatient(SHORT):
        with pytest.raises(ConfigErrors, match="standalone:chaotic"):  # before anything runs
            ward.fails(p)
        with monkeypatch.context() as patch:
            patch.setattr(checks, "refused", lambda _: [])  # as if it had not hung then
            error = ward.fails(p)
    assert (type(error), error.code) == (Retry, "host.hangs")
    assert "The connector p:out did not come back from 'configure' within 3 s" in error.what
    ward.behave()
    ward.recovers(p)


@pairs(("class", "close"), ("program", "flush"))
@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_connector_that_hangs_at_its_end_is_ended_and_it_is_said(
    ward: Ward, chaos: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.behave(**{how: "block"})
    monkeypatch.setattr(sink, "CLOSE", 1.0)
    result = ward.recovers(ward.chaotic(chaos))
    assert lane(result).acked == len(LINES)
    assert ward.arrived() == Counter(LINES)
    assert ward.heard("did not come to a good end: The connector p:out did not answer 'close' within 1 s")


# -- answers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_answers_that_nobody_waits_for_stop_the_pipeline_and_nothing_is_lost(ward: Ward) -> None:
    p = ward.into(ward.bad_program())
    for how, answer in {"twice": "position", "strangers": "never sent"}.items():
        ward.behave(how)
        error = ward.fails(p)
        assert (type(error), error.code) == (Stop, "host.acks"), how
        assert "The connector p:out has answered" in error.what
        assert answer in str(error.why)
    ward.behave("raises")
    error = ward.fails(p)
    assert (type(error), error.code) == (Stop, "host.plugin")
    assert "p:out, write: it has had enough" in error.what
    ward.behave()
    ward.recovers(p)


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_answers_in_another_order_are_borne(ward: Ward) -> None:
    ward.behave("backwards")
    result = ward.recovers(ward.into(ward.bad_program()))
    assert lane(result).acked == len(LINES)
    assert ward.arrived() == Counter(LINES)


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_a_stream_that_ends_before_everything_is_answered_is_opened_again(ward: Ward) -> None:
    ward.behave("fewer once")
    result = ward.recovers(ward.into(ward.bad_program()))
    assert lane(result).acked == len(LINES)
    assert ward.heard("p:out, write: it has ended its stream")
    assert {1, 2} == set(ward.arrived().values())


# -- sizes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("P12", reason="the dead letter's reason and the destination's own file are read")
def test_a_record_over_the_limit_of_a_program_is_refused_with_its_size_and_its_neighbours_are_delivered(
    ward: Ward,
) -> None:
    ward.write(["first", "x" * 50_000_000, "last"])
    p = ward.into(ward.bad_program()).dead_letter_queue(window=0)
    result = ward.finish(p)
    assert ward.arrived() == Counter(["first", "last"])
    assert lane(result).dead_lettered == {"out": 1}
    (reason,) = [row[0] for row in ward.rows("SELECT error FROM nack")]
    assert "it has 50,0" in reason
    assert "bytes as a message, and the connector takes 4,193,280 at most" in reason


@pytest.mark.contract("P12", reason="the digest of what arrived is compared")
def test_a_class_in_the_host_takes_a_record_of_any_size(ward: Ward) -> None:
    large = "x" * 50_000_000
    ward.write(["first", large, "last"])
    ward.finish(ward.into("chaos"))
    said = json.dumps({"size": len(large), "sha256": hashlib.sha256(large.encode()).hexdigest()}, sort_keys=True)
    assert ward.arrived() == Counter(["first", said, "last"])


@pytest.mark.contract(
    "P12", reason="what arrived is counted in the file of the destination itself, after errors that are read one by one"
)
def test_records_that_exceed_the_limit_together_are_sent_in_several_messages(ward: Ward) -> None:
    ward.write([f"{n:02d}" + "x" * size for n, size in enumerate([300_000] * 15 + [1_500_000] * 4 + [4_000_000])])
    ward.recovers(ward.into(ward.bad_program()))
    assert ward.arrived() == Counter(ward.lines)


@pytest.mark.contract("P12", reason="the calls that the connector wrote down are read")
def test_a_batch_of_which_nothing_is_left_is_never_written(ward: Ward) -> None:
    p = ward.chaotic(ward.chaos_program()).processor("none", "filter", condition="true")
    result = ward.finish(p)
    assert lane(result).filtered == {"out": len(LINES)}
    assert lane(result).acked == len(LINES)
    assert ward.calls("out", "write") == []


# -- several sources ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("P12", reason="what arrived of each source, and the acks that each has heard, are counted")
def test_three_sources_with_the_same_positions_share_a_program_and_each_hears_of_its_own(ward: Ward) -> None:
    sources, numbers = ("a", "b", "c"), list(range(1, 61))
    p = Pipeline("p").guarantee("at-least-once")
    for source in sources:
        ward.chaos(p, source, records=len(numbers), size=6, batch={"max-records": 25})
    ward.finish(p.destination("out", ward.bad_program(), path=ward.root / "out"))
    lines = [json.loads(line) for line in (ward.root / "out").read_text().splitlines()]
    for source in sources:
        assert [int(line["after"]) for line in lines if line["source"].endswith(source)] == numbers
        assert ward.acks(source) == numbers
    assert len(lines) == len(sources) * len(numbers)


# -- what it has started -----------------------------------------------------------------------------------------------------


def _children(ward: Ward) -> list[int]:
    return [pid for pid, command in ward.processes().items() if "time.sleep" in command]


def _hosts(ward: Ward) -> list[int]:
    return [pid for pid, command in ward.processes().items() if "penstock.host" in command]


@pytest.mark.contract("P12", reason="/proc is looked through for everything that was started")
def test_what_a_program_has_started_ends_with_it(ward: Ward) -> None:
    """When it dies, when its host is killed, also while it is being started, and at its own end."""
    p = ward.into(ward.bad_program())
    ward.behave("child, panics")
    assert "p:out, write: it ended with 2" in ward.fails(p).what
    ward.behave("child, stuck")
    before = ward.arrived()
    run = ward.start(p, once=True)
    run.until(lambda: ward.arrived() != before, "a write that hangs")
    _killed(ward, "silent child")
    run.until(lambda: _children(ward), "a start that hangs")
    _killed(ward, "child")
    assert run.result().error is None
    assert set(ward.arrived()) == set(LINES)
    assert not ward.processes()


def _killed(ward: Ward, then: str) -> None:
    """The host is, and everything of it is gone. `then`: what the next program does."""
    child, (host,) = _children(ward), _hosts(ward)
    assert child
    ward.behave(then)
    os.kill(host, signal.SIGKILL)
    until(lambda: not {*child, host} & set(ward.processes()), "their end")


YAML = """\
version: "2.2"
pipelines:
  - id: p
    guarantee: at-least-once
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: "standalone:bad", settings: {{path: {root}/out}}}}
"""


@pytest.mark.contract("P12", reason="/proc is looked through for everything that was started")
def test_what_a_program_has_started_ends_when_the_engine_is_killed(ward: Ward, case: Case) -> None:
    ward.bad_program()
    (case.root / "p.yaml").write_text(YAML.format(root=ward.root))
    ward.behave("child, stuck")
    running = case.start()
    until(lambda: len(ward.arrived()) and _children(ward), "a write that hangs")
    assert _hosts(ward)
    assert running.kill(group=False).killed
    ward.until_nothing_runs()
    ward.behave("child")
    case.finish()
    assert set(ward.arrived()) == set(LINES)
    ward.until_nothing_runs()
