"""A connector host as a process: the whole life of a source in it, its rights, and its end with and without the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from penstock.errors import Retry, Stop
from penstock.host.remote import Host
from penstock.host.spec import SourceSpec, Status
from penstock.log import Reader, Rows

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
Start = Callable[..., Host]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the host of a `chaos` source; the log stays over starts."""
    started: list[Host] = []

    def made(log: Callable[[str, str], None] = lambda *_: None, plugin: str = "chaos", **settings: Any) -> Host:
        texts = {name: str(value) for name, value in settings.items()}
        host = Host(lambda tokens: SourceSpec("p:in", plugin, texts, str(tmp_path / "log"), tokens), log)
        started.append(host)
        return host

    yield made
    for host in started:
        host.kill()


def _until(host: Host, **wanted: int) -> Status:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = host.status()
        if all(getattr(found, name) >= n for name, n in wanted.items()):
            return found
        assert time.monotonic() < deadline, found
        host.wait(0.1, found)


def _unacked(host: Host, n: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := host.status()).unacked != n:
        assert time.monotonic() < deadline, found
        host.wait(0.1, found)


def _numbers(rows: Iterator[Rows]) -> list[int]:
    return [int(record.position) for each in rows for record in each.records()]


def _acks(calls: Path) -> str:
    return "\n".join(line for line in calls.read_text().splitlines() if '"ack"' in line)


def _running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_life_of_a_source(start: Start, tmp_path: Path) -> None:
    host = start(records=500, batch=70, calls=tmp_path / "calls")
    assert not host.status().open
    assert not (tmp_path / "calls").exists()  # nothing was called before the engine says so
    host.open()
    found = _until(host, end=500)
    assert (found.read, found.logged, found.resent, found.unacked) == (500, 500, 0, 500)
    assert _numbers(host.rows(0, 500)) == list(range(1, 501))
    assert _numbers(host.rows(130, 140)) == list(range(131, 141))
    host.ack(100)
    _unacked(host, 400)
    host.stop()
    _until(host, drained=1)
    host.ack(500)
    assert _until(host, ended=1).unacked == 0
    host.close()
    assert not _running(host.pid)
    assert '"close"' in (tmp_path / "calls").read_text().splitlines()[-1]


def test_it_goes_on_right_after_what_is_in_the_log(start: Start, tmp_path: Path) -> None:
    first = start(records=100)
    first.open()
    _until(first, end=100)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(Retry, match="is gone"):
        _until(first, end=101)
    second = start(records=150, resend=30, calls=tmp_path / "calls")
    assert second.ready.end == 100
    assert second.ready.log_id == first.ready.log_id
    second.ack(100)  # what was logged before is acked by the position it is opened with
    second.open()
    found = _until(second, end=150)
    assert (found.logged, found.resent) == (50, 30)
    assert _numbers(second.rows(0, 150)) == list(range(1, 151))
    second.close()


def test_what_the_connector_says_reaches_the_engine_with_its_class(start: Start) -> None:
    with pytest.raises(Stop, match="is no integer"):
        start(records="many").open()


@pytest.mark.parametrize(("read", "cls"), [("fail after 1", Stop), ("stop after 1", Stop)])
def test_a_source_that_fails_is_known_and_what_it_gave_stays(
    start: Start, tmp_path: Path, read: str, cls: type
) -> None:
    host = start(records=100, batch=10, read=read)
    host.open()
    _until(host, ended=1)
    assert isinstance(host.trouble(), cls)
    host.stop()
    _until(host, drained=1)
    host.close()
    with Reader(tmp_path / "log") as reader:
        assert reader.end == 10


def test_a_connector_that_ends_its_process_is_a_host_that_is_gone(start: Start) -> None:
    host = start(records=100, batch=10, read="panic after 1")
    host.open()
    with pytest.raises(Retry, match=r"The host of p:in is gone \(exit code 2\)"):
        _until(host, end=101)


def test_a_second_writer_of_the_log_is_refused_by_name(start: Start) -> None:
    start(records=1)
    with pytest.raises(Stop, match="is being written"):
        start(records=1)


def test_a_token_is_for_one_right(start: Start) -> None:
    host = start(records=1)
    client = flight.connect(f"grpc://127.0.0.1:{host.ready.port}")
    wrong = [None, b"Bearer nothing", f"Bearer {host._tokens['read']}".encode()]
    for token in wrong:
        headers = [] if token is None else [(b"authorization", token)]
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.do_action(("stop", b""), flight.FlightCallOptions(headers=headers)))
    control = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {host._tokens['control']}".encode())])
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(flight.Ticket(b'{"start": 0, "end": 0}'), control).read_all()


def test_secrets_are_on_no_command_line(start: Start) -> None:
    host = start(records=1, calls="hunter2")
    assert b"hunter2" not in Path(f"/proc/{host.pid}/cmdline").read_bytes()
    assert b"hunter2" not in Path(f"/proc/{host.pid}/environ").read_bytes()


ENGINE = """
import sys, time
from penstock.host.remote import Host
from penstock.host.spec import SourceSpec
host = Host(lambda tokens: SourceSpec("p:in", sys.argv[2], {"records": "10"}, sys.argv[1], tokens), lambda *_: None)
host.open()
print(host.pid, flush=True)
time.sleep(600)
"""


def test_a_host_ends_with_the_engine_that_is_killed(tmp_path: Path) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path / "log"), "chaos"], stdout=subprocess.PIPE, text=True
    )
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())
    assert _running(pid)
    engine.kill()
    engine.wait()
    deadline = time.monotonic() + PATIENCE
    while _running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
