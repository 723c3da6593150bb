"""The `chaos` connector does what it is told: in this process, and as a program in both dialects."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.chaos import connector as module
from penstock.connectors.chaos.destination import ChaosDestination
from penstock.connectors.chaos.modes import MODES, Method, parse_rule
from penstock.connectors.chaos.source import ChaosSource
from penstock_protocol import handshake
from penstock_protocol.interfaces import Ack, DestinationPlugin, EndOfStream, PluginError, SourcePlugin
from penstock_protocol.process import PluginProcess
from penstock_sdk import Record, Retry, Stop
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records, to_records

Start = Callable[[], PluginProcess]


@pytest.fixture(params=[2, 1])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(handshake, "DIALECTS", (request.param,))
    started: list[PluginProcess] = []

    def make() -> PluginProcess:
        started.append(PluginProcess([sys.executable, str(module.__file__)], connector_id="p:c"))
        return started[-1]

    yield make
    for process in started:
        process.close(0.5)


def opened(position: bytes = b"", **settings: str) -> SourceAdapter:
    source = SourceAdapter(ChaosSource)
    source.configure(settings)
    source.open(position)
    return source


def destined(**settings: str) -> DestinationAdapter:
    destination = DestinationAdapter(ChaosDestination)
    destination.configure(settings)
    destination.open()
    return destination


def numbers(source: SourcePlugin, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(r.key or b"") for r in from_records(source.read(10))]  # type: ignore[arg-type]
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def methods(path: Path) -> list[str]:
    """Reads that gave nothing are left out: how many there are is a matter of time."""
    return [line["method"] for line in lines(path) if line.get("count") != 0]


def given(count: int, first: int = 1) -> list[Record]:
    return [Record({"n": n}, position=b"%d" % n) for n in range(first, first + count)]


# -- the table of modes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "acts"),
    [
        ("fail", [1, 2, 3, 4, 5, 6]),
        ("fail after 4", [5, 6]),
        ("fail at 3", [3]),
        ("fail every 2", [2, 4, 6]),
        ("fail after 10 records", [3, 4, 5, 6]),
        ("fail at 10 records", [3]),
        ("fail every 10 records", [3, 5]),
    ],
)
def test_when_a_rule_acts(rule: str, acts: list[int]) -> None:
    """Six calls with five records each."""
    method, failed = Method("m", [rule]), []
    for call in range(1, 7):
        try:
            method(5)
        except RuntimeError:
            failed.append(call)
    assert failed == acts


@pytest.mark.parametrize(
    "rule", ["explode", "slow", "fail:3s", "fail after", "fail every 0", "slow:x", "fail sometimes"]
)
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"no rule|slow|duration|counts"):
        parse_rule(rule)
    with pytest.raises(PluginError, match="read: "):
        SourceAdapter(ChaosSource).configure({"read": rule})


@pytest.mark.parametrize(("mode", "error"), [("fail", RuntimeError), ("stop", Stop)])
def test_open_can_fail_and_close_still_comes(mode: str, error: type[Exception], tmp_path: Path) -> None:
    source = SourceAdapter(ChaosSource)
    source.configure({"open": mode, "calls": str(tmp_path / "calls")})
    with pytest.raises(error, match="open was told"):
        source.open(b"")
    source.teardown()
    assert methods(tmp_path / "calls") == ["settings", "open", "close"]


def test_a_call_that_is_to_be_tried_again_is(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    source = opened(open="retry at 1", read="retry at 2", batch="2", records="4", calls=str(calls))
    assert numbers(source, 4) == [1, 2, 3, 4]
    source.teardown()
    assert methods(calls) == ["settings", "open", "open", "read", "read", "read", "close"]
    destination = destined(write="retry at 1", calls=str(tmp_path / "written"))
    destination.write(to_records(given(2)))
    assert [ack.error for ack in destination.acks(10)] == ["", ""]
    assert methods(tmp_path / "written").count("write") == 2
    destination.teardown()


def test_a_call_blocks_until_it_is_stopped(tmp_path: Path) -> None:
    source = opened(read="block-until-stopped", records="1")
    thread = threading.Thread(target=source.read, args=(0,))
    thread.start()
    assert thread.is_alive()
    source._context.stopping.set()
    thread.join(30)
    assert not thread.is_alive()


def test_settings_can_be_refused() -> None:
    with pytest.raises(PluginError, match="settings was told to fail"):
        DestinationAdapter(ChaosDestination).configure({"settings": "fail"})


# -- the source -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "position", "expected"),
    [
        ({}, b"", [1, 2, 3, 4, 5, 6, 7]),
        ({}, b"5", [6, 7]),
        ({"resend": "2"}, b"5", [4, 5, 6, 7]),
        ({"resend": "9"}, b"5", [1, 2, 3, 4, 5, 6, 7]),
        ({"duplicate": "3"}, b"", [1, 2, 3, 3, 4, 5, 6, 6, 7]),
        ({"reorder": "3"}, b"", [3, 2, 1, 6, 5, 4, 7]),
        ({"reorder": "3"}, b"5", [4, 7]),
        ({"positions": "scrambled"}, b"%d" % (5 ^ 7), [6, 7]),
    ],
)
def test_which_numbers_come(settings: dict[str, str], position: bytes, expected: list[int]) -> None:
    source = opened(position, records="7", batch="2", **settings)
    assert numbers(source, len(expected)) == expected
    assert len(source.read(0)) == 0
    source.teardown()


def test_positions_out_of_order_and_none() -> None:
    source = opened(records="4", positions="scrambled")
    assert [r.position for r in from_records(source.read(10))] == [b"6", b"5", b"4", b"3"]
    with pytest.raises(PluginError, match="no position"):
        opened(positions="empty").read(10)


def test_records_of_50_mb_arrive_as_they_are(tmp_path: Path) -> None:
    source = opened(records="1", size=str(50 << 20))
    destination = destined(path=str(tmp_path / "kept"))
    destination.write(source.read(10))
    assert lines(tmp_path / "kept")[0]["after"]["size"] == 50 << 20


def test_a_rate_is_kept_at_least() -> None:
    source = opened(records="5", rate="200", batch="5")
    assert numbers(source, 5) == [1, 2, 3, 4, 5]


# -- the destination ------------------------------------------------------------------------------------------------------------


def test_records_are_refused_and_only_the_others_kept(tmp_path: Path) -> None:
    destination = destined(reject="3", answers="reversed", path=str(tmp_path / "kept"))
    destination.write(to_records(given(4)))
    destination.write(to_records(given(3, 5)))
    acks = list(destination.acks(10))
    assert [ack.position for ack in acks if ack.error] == [b"3", b"6"]
    assert len(acks) == 7
    assert [line["after"]["n"] for line in lines(tmp_path / "kept")] == [1, 2, 4, 5, 7]


def test_an_answer_that_never_comes_is_noticed() -> None:
    destination = destined(silent="2")
    destination.write(to_records(given(3)))
    assert [ack.position for ack in destination.acks(0)] == [b"1"]
    with pytest.raises(PluginError, match="1 records were taken and never answered"):
        destination.stop(b"3")


def test_a_second_answer_is_refused_by_the_sdk() -> None:
    with pytest.raises(RuntimeError, match="answered before"):
        destined(answers="twice").write(to_records(given(1)))


def test_a_batch_that_is_refused_as_a_whole() -> None:
    destination = destined(write="reject")
    destination.write(to_records(given(2)))
    assert ["told to refuse" in ack.error for ack in destination.acks(10)] == [True, True]


def test_trouble_that_does_not_end_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_sdk.retry.Backoff.pause", lambda *_: 0.0)
    with pytest.raises(Retry):
        destined(write="retry").write(to_records(given(1)))


# -- as a program ---------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("P1", reason="the record of the calls is what is shown; nothing could be switched off")
def test_the_calls_of_a_source_come_in_order(start: Start, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    config = {"calls": str(calls), "records": "4", "batch": "2"}
    process = start()
    source = process.source()
    source.configure(config)
    source.on_created(config)
    source.open(b"")
    assert numbers(source, 4) == [1, 2, 3, 4]
    source.ack([b"1", b"2", b"3", b"4"])
    source.stop()
    with pytest.raises(EndOfStream):
        while True:
            source.read(10)
    source.teardown()
    told = methods(calls)
    assert told[:4] == ["settings", "settings", "created", "open"]
    assert [m for m in told[4:] if m != "ack"] == ["read", "read", "drain", "close"]
    assert [p for line in lines(calls) for p in line.get("positions", ())] == ["1", "2", "3", "4"]
    assert {line["pid"] for line in lines(calls)} == {process.process.pid}


@pytest.mark.contract("P1", reason="the record of the calls is what is shown; nothing could be switched off")
def test_the_calls_of_a_destination_come_in_order(start: Start, tmp_path: Path) -> None:
    calls, kept = tmp_path / "calls", tmp_path / "kept"
    config = {"calls": str(calls), "path": str(kept)}
    destination: DestinationPlugin = start().destination()
    destination.configure(config)
    destination.on_updated({**config, "reject": "2"}, config)
    destination.open()
    destination.write(to_records(given(3)))
    destination.stop(b"3")
    acks: list[Ack] = []
    with pytest.raises(EndOfStream):
        while True:
            acks += destination.acks(10)
    destination.teardown()
    assert [ack.position for ack in acks] == [b"1", b"2", b"3"]
    assert [line["after"]["n"] for line in lines(kept)] == [1, 2, 3]
    told = methods(calls)
    assert told[:5] == ["settings", "settings", "settings", "updated", "open"]
    assert set(told[5:-2]) == {"write"}
    assert told[-2:] == ["flush", "close"]


def test_a_removed_connector_is_told_without_being_configured(start: Start, tmp_path: Path) -> None:
    source = start().source()
    source.on_deleted({"calls": str(tmp_path / "calls")})
    source.teardown()
    assert methods(tmp_path / "calls") == ["settings", "deleted"]


@pytest.mark.parametrize(("mode", "code"), [("panic", 2), ("kill", -signal.SIGKILL)])
def test_a_destination_dies_after_it_has_written_and_before_it_answers(
    start: Start, tmp_path: Path, mode: str, code: int
) -> None:
    process = start()
    destination = process.destination()
    destination.configure({"answer": mode, "path": str(tmp_path / "kept")})
    destination.open()
    destination.write(to_records(given(1)))
    with pytest.raises(PluginError) as raised:
        while True:
            assert destination.acks(10) == []
    assert raised.value.gone
    assert len(lines(tmp_path / "kept")) == 1
    assert process.process.wait(30) == code


def test_an_error_has_its_words_and_a_panic_is_logged(start: Start) -> None:
    source = start().source()
    source.configure({"read": "fail after 2", "batch": "1"})
    source.open(b"")
    with pytest.raises(PluginError, match="read plugin error: chaos: read was told to fail"):
        while True:
            source.read(10)
    process = start()
    with pytest.raises(PluginError):
        process.source().configure({"settings": "panic"})
    assert process.process.wait(30) == 2


def test_a_program_that_blocks_is_ended_from_outside(start: Start) -> None:
    process = start()
    source = process.source(timeout=0.5)
    source.configure({"open": "block"})
    with pytest.raises(PluginError, match=r"(?i)deadline"):
        source.open(b"")
    process.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(process.process.pid, 0)


def test_every_mode_is_known_by_its_name() -> None:
    wanted = {"succeed", "fail", "block", "block-until-stopped", "panic", "kill", "slow", "retry", "stop", "reject"}
    assert set(MODES) == wanted
    assert parse_rule("slow:1.5s every 3 records").seconds == 1.5
