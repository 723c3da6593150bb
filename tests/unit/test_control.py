"""The control socket: whoever may use the state folder is answered, and nothing that a client does harms the engine. No Spark."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.engine import control
from penstock.engine.control import NAME, Control, ask
from penstock.errors import UsageError


def echo(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"heard": dict(request)}


@contextmanager
def raw(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(folder / NAME))
        yield client


def answer_to(folder: Path, data: bytes) -> dict[str, Any]:
    with raw(folder) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer: dict[str, Any] = json.loads(client.makefile().readline())
        return answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir(0o700)
    return made


def test_a_request_is_answered_and_the_socket_goes_with_the_engine(folder: Path) -> None:
    with Control(folder, echo):
        assert ask(folder, {"do": "status", "name": "ä"}) == {"ok": True, "heard": {"do": "status", "name": "ä"}}
        assert ask(folder, {"do": "again"})["heard"] == {"do": "again"}
    assert list(folder.iterdir()) == []
    with pytest.raises(UsageError) as caught:
        ask(folder, {"do": "status"})
    assert caught.value.code == "control.no-engine"


def test_a_state_folder_with_a_long_path_has_one_too(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 400:
        folder = folder / ("long " * 10)
    folder.mkdir(parents=True)
    failed: list[str] = []
    with Control(folder, echo, failed.append):
        assert ask(folder, {"do": "x"})["heard"] == {"do": "x"}
        assert stat.S_ISSOCK((folder / NAME).stat().st_mode)
    assert (failed, list(folder.iterdir())) == ([], [])


def test_nobody_else_may_connect_whatever_the_folder_allows(folder: Path) -> None:
    folder.chmod(0o755)
    before = os.umask(0)
    try:
        with Control(folder, echo):
            assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_socket_that_a_killed_engine_has_left_is_replaced(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / NAME))
    with pytest.raises(UsageError) as caught:
        ask(folder, {"do": "x"})
    assert caught.value.code == "control.no-engine"
    with Control(folder, echo):
        assert ask(folder, {"do": "x"})["ok"]


def test_the_socket_of_the_next_engine_is_not_removed(folder: Path) -> None:
    """A state folder whose lock was forced: the one that was replaced ends later."""
    with Control(folder, echo) as old, Control(folder, echo):
        old._close()
        assert ask(folder, {"do": "x"})["ok"]


def test_an_engine_that_can_not_listen_runs_all_the_same(folder: Path) -> None:
    (folder / NAME).mkdir()
    failed: list[str] = []
    with Control(folder, echo, failed.append):
        assert len(failed) == 1


def test_an_engine_that_ends_by_itself_does_not_listen(folder: Path) -> None:
    with Control(folder, echo, off=True):
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"nonsense\n",
        b"[1]\n",
        b'{"do": ',
        b"\xff\xfe\n",
        b"[" * 50_000 + b"\n",
        b'"' + b"x" * (1 << 17) + b'"\n',
    ],
    ids=["empty", "words", "list", "torn", "bytes", "deep", "large"],
)
def test_what_is_no_request_is_refused_and_the_next_one_is_served(folder: Path, data: bytes) -> None:
    with Control(folder, echo):
        try:
            assert answer_to(folder, data)["error"]["code"] == "control.request"
        except ConnectionError:
            assert len(data) > control.REQUEST  # it was not read to its end
        assert ask(folder, {"do": "x"})["ok"]


def test_clients_that_hang_keep_nobody_waiting_for_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.3)
    hanging = []
    with Control(folder, echo):
        for _ in range(control.CLIENTS + 4):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(folder / NAME))
            hanging.append(client)
        until = time.monotonic() + 10
        while True:
            try:
                assert ask(folder, {"do": "x"}, 5.0)["ok"]
                break
            except UsageError:
                assert time.monotonic() < until
                time.sleep(0.05)
        for client in hanging:
            client.close()


def test_a_client_that_goes_away_harms_nothing(folder: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["do"] == "slow":
            entered.set()
            assert go_on.wait(10)
        return {"big": "x" * 1_000_000}

    with Control(folder, slow):
        with raw(folder) as client:
            client.sendall(b'{"do": "slow"}\n')
            assert entered.wait(10)
        go_on.set()
        assert ask(folder, {"do": "quick"})["ok"]


def test_what_an_engine_says_against_a_request_is_raised_in_full(folder: Path) -> None:
    def refuse(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["do"] == "bug":
            raise KeyError("x")
        raise UsageError("No", code="a.b", where="there", why="because", hint="do this")

    with Control(folder, refuse):
        with pytest.raises(UsageError) as caught:
            ask(folder, {"do": "x"})
        e = caught.value
        assert (e.what, e.code, e.where, e.why, e.hint) == ("No", "a.b", "there", "because", "do this")
        with pytest.raises(UsageError) as caught:
            ask(folder, {"do": "bug"})
        assert caught.value.code == "control.failed"


def test_an_engine_that_does_not_answer_in_time_is_said_to_be_silent(folder: Path) -> None:
    gone = threading.Event()

    def slow(_: Mapping[str, Any]) -> Mapping[str, Any]:
        gone.wait(10)
        return {}

    with Control(folder, slow):
        with pytest.raises(UsageError) as caught:
            ask(folder, {"do": "x"}, 0.2)
        gone.set()
    assert caught.value.code == "control.silent"
