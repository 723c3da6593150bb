"""The protocol layer: a plugin in a process of its own, called as if it were in this one, in both dialects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_protocol import handshake
from penstock_protocol.handshake import Handshake
from penstock_protocol.interfaces import Ack, EndOfStream, PluginError
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import Record
from penstock_protocol.process import PluginProcess
from penstock_protocol.records import Records
from tests.support import plugin_program

PROGRAM = [sys.executable, plugin_program.__file__]
ROOT = Path(__file__).parents[2]
Start = Callable[..., PluginProcess]


@pytest.fixture(params=[2, 1])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts plugins that speak one of the dialects."""
    monkeypatch.setattr(handshake, "DIALECTS", (request.param,))
    started: list[PluginProcess] = []

    def make(*arguments: str, **options: Any) -> PluginProcess:
        environment = {"PYTHONPATH": str(ROOT), **options.pop("environment", {})}
        made = PluginProcess([*PROGRAM, *arguments], connector_id="p:c", environment=environment, **options)
        started.append(made)
        return made

    yield make
    for process in started:
        process.close()


def test_it_says_what_it_is(start: Start) -> None:
    process = start()
    assert process.handshake.dialect == handshake.DIALECTS[0]
    assert process.specify() == plugin_program.SPECIFICATION
    assert process.close() == 0


def test_records_go_to_the_host_and_acks_to_the_plugin(start: Start, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    source = start(environment={"COUNTER_CALLS": str(calls)}).source()
    source.configure({"count": "10"})
    source.on_created({"count": "10"})
    source.open(b"2")
    found: list[Record] = []
    while len(found) < 8:
        found += source.read(10)
    assert [r.position for r in found] == [b"%d" % n for n in range(3, 11)]
    assert [r.payload.after.raw_data for r in found] == [b"number %d" % n for n in range(3, 11)]
    assert dict(found[0].metadata) == {"a": "b"}
    assert len(source.read(0)) == 0
    assert source.stop() == b"10"
    source.ack([r.position for r in found[:3]])
    source.ack([r.position for r in found[3:]])
    with pytest.raises(EndOfStream):
        while True:
            source.read(10)
    source.teardown()
    assert calls.read_text().splitlines() == ["configure", "created {'count': '10'}", "open 2", "stop", "teardown"]


def test_records_go_to_the_plugin_and_acks_to_the_host(start: Start, tmp_path: Path) -> None:
    given = start().source()
    given.configure({"count": "20", "batch": "7"})
    given.open(b"")
    taken = start().destination()
    taken.configure({"path": str(tmp_path / "kept"), "refuse": "5"})
    taken.open()
    with pytest.raises(PluginError, match="read plugin error: thirteen"):
        while True:
            taken.write(given.read(10))  # passed on without being decoded
    acks: list[Ack] = []
    while len(acks) < 13:
        acks += taken.acks(10)
    assert acks == [Ack(b"%d" % n, "refused" if n == 5 else "") for n in range(1, 14)]
    taken.stop(b"13")
    with pytest.raises(EndOfStream):
        while True:
            taken.acks(10)
    taken.teardown()
    kept = (tmp_path / "kept").read_text().splitlines()
    assert kept == [f"number {n}" for n in range(1, 14) if n != 5]


def test_an_error_has_the_plugins_words(start: Start) -> None:
    process = start()
    with pytest.raises(PluginError, match="count: -1 is less than 0") as raised:
        process.source().configure({"count": "-1"})
    assert not raised.value.gone
    with pytest.raises(PluginError, match="path: is required"):
        process.destination().configure({})


def test_an_ack_that_the_plugin_refuses_ends_the_stream(start: Start) -> None:
    source = start().source()
    source.configure({})
    source.open(b"")
    source.read(10)
    source.ack([b"9"])
    with pytest.raises(PluginError, match="ack plugin error: b'9' is out of order"):
        while True:
            source.read(10)


def test_a_plugin_that_is_killed_is_gone(start: Start) -> None:
    process = start()
    source = process.source()
    source.configure({})
    source.open(b"")
    os.kill(process.process.pid, signal.SIGKILL)
    with pytest.raises(PluginError) as raised:
        while True:
            source.read(10)
    assert raised.value.gone
    with pytest.raises(PluginError):
        source.teardown(0.1)
    assert process.close() == -signal.SIGKILL


def test_what_it_logs_arrives_with_its_level(start: Start) -> None:
    said: list[tuple[str, str]] = []
    start(log=lambda level, text: said.append((level, text))).close()
    assert ("warn", "here I am why=test") in said


def test_it_gets_a_clean_environment_and_a_folder_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "canary")
    process = start()
    environment = Path(f"/proc/{process.process.pid}/environ").read_bytes()
    assert b"canary" not in environment
    folder = Path(process.handshake.address).parents[1]
    assert folder.stat().st_mode & 0o777 == 0o700
    process.close()
    assert not folder.exists()


def test_it_ends_when_we_are_killed(start: Start, tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from penstock_protocol.process import PluginProcess\n"
        f"p = PluginProcess({PROGRAM!r}, connector_id='x', environment={{'PYTHONPATH': {str(ROOT)!r}}})\n"
        "print(p.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    plugin = int(host.stdout.readline())
    host.kill()
    host.communicate()
    while Path(f"/proc/{plugin}/stat").exists() and " Z " not in Path(f"/proc/{plugin}/stat").read_text():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("garbage", "it printed 'hello' where the handshake should be"),
        ("dies", "it ended with 3 before the handshake: no luck today"),
        ("newer", "it speaks dialect '9'"),
        ("silent", "it printed no handshake within 0.5 seconds"),
    ],
)
def test_what_is_no_plugin_is_told_and_ended(how: str, what: str) -> None:
    before = threading.active_count()
    with pytest.raises(PluginError, match=what):
        PluginProcess(
            [*PROGRAM, how],
            connector_id="x",
            environment={"PYTHONPATH": str(ROOT)},
            patience=0.5 if how == "silent" else 30,
        )
    assert threading.active_count() <= before + 2


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(PluginError, match="can't be started: No such file"):
        PluginProcess(["/no/such/program"], connector_id="x")


def test_started_by_hand_it_says_what_it_is_for() -> None:
    ended = subprocess.run(PROGRAM, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "penstock connector test plugin_program.py" in ended.stderr


# -- without a process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1|2|unix",
        "2|2|unix|/x|grpc|",
        "1|x|unix|/x|grpc|",
        "1|2|udp|x|grpc|",
        "1|2|unix||grpc|",
        "1|2|unix|/x|netrpc|",
        "1|2|unix|/x|grpc|CERT",
    ],
)
def test_a_bad_handshake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it (printed|speaks|listens|wants)"):
        Handshake.parse(text)


def test_a_handshake_comes_back() -> None:
    for made in (Handshake(2, "unix", "/tmp/x"), Handshake(1, "tcp", "127.0.0.1:99")):
        assert Handshake.parse(made.line() + "\n") == made
    assert Handshake.parse("1|2|unix|/x").target == "unix:///x"


@pytest.mark.parametrize(
    ("offered", "spoken"), [("1,2", 2), ("2,1", 2), ("2", 2), ("1", 1), ("", 1), ("3", 1), ("x, 2", 2), ("two", 1)]
)
def test_the_best_dialect_that_both_know_is_spoken(offered: str, spoken: int) -> None:
    assert handshake.dialect({handshake.VERSIONS: offered}) == spoken


def test_records_are_joined_cut_and_counted_without_being_decoded() -> None:
    records = [Record(position=b"%d" % n, metadata={"n": "x" * n}) for n in range(300)]
    joined = Records.joined([Records.of(records[:100]), Records.of([]), Records.of(records[100:])])
    assert len(joined) == 300
    assert list(joined) == records
    for most in (1, 100, 1000, 1 << 30):
        parts = list(Records(joined.data).parts(most))
        assert all(len(part.data) <= most or len(part) == 1 for part in parts)
        assert [record for part in parts for record in part] == records
    assert [next(iter(one)) for one in Records(joined.data).single()] == records
    for bad in (b"\x12\x00", b"\x0a\x05ab", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match=r"records|cut off"):
            len(Records(bad))
