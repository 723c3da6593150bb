"""Spark on its way up: beside other work, given up at any time, and with an error that says what to do. No Spark is started."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.engine import session
from penstock.engine.jvm import Jvm
from penstock.errors import UsageError

SPARK: Any = object()
Launched = Callable[[Jvm], None]


class FakeJvm:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.process = self

    def end(self) -> None:
        self.ended.set()

    def poll(self) -> int | None:
        return -9 if self.ended.is_set() else None


def _starting(start: Callable[[Launched], Any]) -> session.Starting:
    return session.Starting(start)


def test_the_session_is_waited_for() -> None:
    go = threading.Event()

    def start(_: Launched) -> Any:
        go.wait(10)
        return SPARK

    starting = _starting(start)
    go.set()
    assert starting.wait(lambda: False) is SPARK
    starting.abandon()  # one that is up is left alone


def test_a_session_that_nobody_took_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(session, "end", ended.append)
    starting = _starting(lambda _: SPARK)
    starting.abandon()
    assert ended == [SPARK]


def test_an_error_comes_out_where_it_is_waited_for() -> None:
    def start(_: Launched) -> Any:
        raise UsageError("no", code="spark.start")

    with pytest.raises(UsageError, match="no"):
        _starting(start).wait(lambda: False)


def test_who_gives_up_ends_the_jvm_and_does_not_wait_for_spark() -> None:
    jvm = FakeJvm()

    def start(launched: Launched) -> Any:
        launched(cast("Jvm", jvm))
        jvm.ended.wait(10)
        raise UsageError("it was ended", code="spark.start")

    assert _starting(start).wait(lambda: True) is None
    assert jvm.ended.is_set()


def test_a_jvm_that_comes_after_it_was_given_up_is_ended_too() -> None:
    jvm, go = FakeJvm(), threading.Event()

    def start(launched: Launched) -> Any:
        go.wait(10)
        launched(cast("Jvm", jvm))
        raise UsageError("it was ended", code="spark.start")

    starting = _starting(start)
    threading.Timer(0.2, go.set).start()
    starting.abandon()
    assert jvm.ended.is_set()


def test_one_that_was_given_up_leaves_the_jvm_that_is_in_use_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    used: list[str] = []

    class Gateway:
        proc: Any = object()

        def shutdown(self) -> None:
            used.append("shut down")

    gateway: Any = Gateway()
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", None)  # both are put back: other tests of this process may use one
    jvm = FakeJvm()

    def start(launched: Launched) -> Any:
        launched(cast("Jvm", jvm))
        jvm.ended.wait(10)
        raise UsageError("it was ended", code="spark.start")

    _starting(start).abandon()
    assert SparkContext._gateway is gateway
    Gateway.proc = jvm
    _starting(start).abandon()
    assert SparkContext._gateway is None
    assert used == ["shut down"]


# -- the process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Something in place of Spark's script; what it prints goes to the returned file."""
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))

    def make(text: str) -> Path:
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        return tmp_path / "spark.log"

    return make


def _jvm(log: Path, env: dict[str, str] | None = None) -> Jvm:
    with log.open("ab") as file:
        return Jvm({"spark.master": "local[2]"}, {**os.environ, **(env or {})}, file.fileno(), log)


def test_a_jvm_that_ends_says_where_to_look(submit: Callable[[str], Path]) -> None:
    log = submit("echo nothing works >&2; exit 3")
    with pytest.raises(UsageError) as raised:
        _jvm(log).connect()
    assert raised.value.code == "spark.start"
    assert "ended with 3" in raised.value.why
    assert str(log) in raised.value.hint
    assert log.read_text() == "nothing works\n"


def test_a_jvm_that_never_answers_can_be_ended(submit: Callable[[str], Path]) -> None:
    jvm = _jvm(submit("exec sleep 600"))
    jvm.end()
    assert jvm.process.poll() is not None


def test_it_ends_with_us_and_is_deaf_to_our_ctrl_c(submit: Callable[[str], Path]) -> None:
    """Its standard input is a pipe of ours. It is in our process group, so that what ends us as a whole ends it, too."""
    log = submit("echo ready; exec cat >/dev/null")
    jvm = _jvm(log)
    while log.read_text() != "ready\n":
        time.sleep(0.01)
    jvm.process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    assert jvm.process.poll() is None
    assert os.getpgid(jvm.process.pid) == os.getpgid(0)
    assert jvm.process.stdin is not None
    jvm.process.stdin.close()
    assert jvm.process.wait(10) == 0
    jvm.end()


def test_settings_are_given_to_spark(submit: Callable[[str], Path]) -> None:
    log = submit('echo "$@"; exit 1')
    jvm = _jvm(log)
    jvm.process.wait(10)
    jvm.end()
    assert log.read_text().split() == ["--conf", "spark.master=local[2]", "pyspark-shell"]


def test_what_is_done_aside_may_fail_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)

    def fails(_: object) -> None:
        raise ValueError("no")

    before = set(threading.enumerate())
    session._aside(fails, None)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert said == []


def test_the_daemon_loads_what_it_is_told_and_bears_what_it_can_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from penstock.engine.python import daemon

    monkeypatch.setenv(session.PRELOAD, "penstock.no_such_module,penstock.processors.sample")
    monkeypatch.delitem(sys.modules, "penstock.processors.sample", raising=False)
    daemon.load()
    assert "penstock.processors.sample" in sys.modules
