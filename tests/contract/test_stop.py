"""Stops: graceful finishes the batch in flight and says what remains; forceful drops unprepared work; nothing is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.support import oracle
from tests.support.harness import SLOW, Case

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]


@pytest.mark.contract("S12", safeguard="drain")
def test_a_graceful_stop_finishes_the_batch_in_flight_and_redelivers_nothing(make_case: MakeCase) -> None:
    remaining = {}
    for name, off in (("kept", ()), ("control", ("drain",))):
        case = make_case(name, max_files=20, processors=SLOW)
        case.issue(files=60, lines=50)
        running = case.start(arguments=(), off=off)
        assert running.await_point("stage", times=2)
        running.signal(signal.SIGTERM)
        ended = running.wait()
        assert ended.returncode == 0, ended.err
        remaining[name] = "remaining" in ended.summary["sources"]["in"]
        done = case.rows("SELECT count(*) FROM snapshot WHERE state = 'done'")[0][0]
        assert 1 <= done < 3
        case.finish()
        assert case.verdict().clean, case.verdict()
        if name == "kept":
            assert case.rows("SELECT max(number) FROM attempt") == [(1,)]
    assert remaining == {"kept": False, "control": True}


@pytest.mark.contract("S12", reason="the number said is compared with the number delivered later")
def test_what_a_stop_could_not_finish_is_the_number_delivered_later(make_case: MakeCase) -> None:
    case = make_case("case", max_files=20, processors=SLOW)
    case.issue(files=20, lines=100)
    running = case.start(arguments=(), deadline=0.0)
    assert running.await_point("stage")
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.returncode == 0, ended.err
    said = ended.summary["sources"]["in"]["remaining"]
    assert said["records"] == len(case.issued)
    assert oracle.outputs(case.out) == []
    later = case.finish()
    assert later.summary["destinations"]["out"]["delivered"] == said["records"]
    assert case.verdict().clean


def test_two_signals_stop_at_once_with_130_and_a_restart_goes_on(make_case: MakeCase) -> None:
    case = make_case("case", max_files=20, processors=SLOW)
    case.gateway = None  # the real command line
    case.issue(files=20, lines=300)
    running = case.start(arguments=())
    assert running.await_point("stage")
    running.signal(signal.SIGINT)
    time.sleep(0.5)  # two of a kind that are pending at once are one
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.returncode == 130, ended.err
    assert oracle.outputs(case.out) == []
    case.processors = ""
    case.configure()
    case.finish()
    assert case.verdict().clean, case.verdict()


def test_a_waiting_engine_stops_at_once(case: Case) -> None:
    case.issue(files=1)
    running = case.start(arguments=())
    assert running.await_point("acked")
    running.signal(signal.SIGTERM)
    assert running.wait(timeout=20).returncode == 0
    assert case.verdict().clean
