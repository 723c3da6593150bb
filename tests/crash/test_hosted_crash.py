"""Hosted sources whose engine, host or plugin program is killed: every record arrives once and in order, and is in the log before.

The source is told of each record once, in order, and only of what is at every destination: singly, or by the position that it is opened
at. What it sends again is not delivered again. No process stays behind.
"""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from penstock.host.remote import Host, rows_of
from penstock.host.spec import SourceSpec
from tests.support.harness import Gateway
from tests.support.hosted import Armed, Hosted, Tally, harass, until

pytestmark = [pytest.mark.spark, pytest.mark.crash]

EVERYTHING = ("engine", "host", "program", "all")
AROUND_THE_ACK = ["K2", "K7", "K8", "ledger:done", "done", "ack", "acked"]


def _clean(case: Hosted, tally: Tally, kills: int) -> None:
    print(f"\n{tally}")
    assert tally.ended is None, tally
    assert tally.counted >= kills, tally
    assert not tally.faults, tally
    assert not case.faults(), case.faults()
    shutil.rmtree(case.root)


# -- kills at any moment ------------------------------------------------------------------------------------------------------


def test_kills_of_everything_cost_nothing(tmp_path: Path, gateway: Gateway) -> None:
    """The share of the campaigns that runs in CI."""
    options: dict[str, Any] = {"program": True, "destinations": ("out", "two"), "targets": EVERYTHING}
    case, tally = harass(tmp_path / "kept", gateway, kills=4, seed=5, records=10_000, rate=300, **options)
    _clean(case, tally, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("target", ["engine", "host", "all"])
@pytest.mark.contract(
    "S8",
    "S9",
    "T7",
    reason="20 kills of each kind; after each of them what the source heard is at the destinations, and what is there is in the log",
)
def test_twenty_kills_of_a_kind_cost_nothing(tmp_path: Path, gateway: Gateway, target: str, seed: int) -> None:
    two = ("out", "two") if seed == 2 else ("out",)
    options: dict[str, Any] = {"destinations": two, "targets": (target,)}
    case, tally = harass(tmp_path / "kept", gateway, kills=20, seed=seed, records=60_000, rate=400, **options)
    _clean(case, tally, 20)


@pytest.mark.long
@pytest.mark.parametrize("targets", [("program",), EVERYTHING])
@pytest.mark.contract(
    "S8",
    "S9",
    "T7",
    reason="20 kills of a plugin program, its host and the engine, with two destinations; the same is looked at after each",
)
def test_twenty_kills_around_a_plugin_program_cost_nothing(
    tmp_path: Path, gateway: Gateway, targets: tuple[str, ...]
) -> None:
    options: dict[str, Any] = {"program": True, "destinations": ("out", "two"), "targets": targets}
    case, tally = harass(tmp_path / "kept", gateway, kills=20, seed=3, records=60_000, rate=400, **options)
    _clean(case, tally, 20)


@pytest.mark.long
@pytest.mark.parametrize("program", [False, True])
def test_twenty_kills_of_an_engine_with_its_own_spark_cost_nothing(tmp_path: Path, program: bool) -> None:
    """`penstock run` as a user starts it; of the Python process alone, whose JVM lives a moment longer, and of all."""
    options: dict[str, Any] = {"program": program, "targets": ("engine", "host", "all")}
    case, tally = harass(tmp_path / "kept", None, kills=20, seed=4, records=60_000, rate=400, **options)
    _clean(case, tally, 20)


# -- acks ---------------------------------------------------------------------------------------------------------------------


def _restarted(case: Hosted, restarts: int) -> None:
    """Kills around the ack. The source is opened and acked in most of the lives."""
    chance = random.Random(7)
    for n in range(restarts):
        point = chance.choice(AROUND_THE_ACK)
        ended = case.run(arguments=(), kill_at=point, kill_nth=chance.choice([2, 3]))
        assert ended.killed, f"{n}, at {point}: {ended.out}{ended.err}"
        assert not case.audit(), f"{n}, at {point}: {case.audit()}"
    case.finish()
    assert not case.faults(), case.faults()
    heard = case.heard()
    assert len(heard.lives) > restarts / 2
    assert len([life for life in heard.lives if life.acks]) > restarts / 4


@pytest.mark.contract(
    "S8",
    "S9",
    reason="the acks that a source has recorded over 10 restarts rise by one; what is missing between them it was opened behind",
)
def test_no_position_is_acked_twice_and_acks_come_in_order(tmp_path: Path, gateway: Gateway) -> None:
    _restarted(Hosted(tmp_path / "kept", gateway, records=8000, rate=300), 10)


@pytest.mark.long
@pytest.mark.parametrize("program", [False, True])
@pytest.mark.contract("S8", "S9", reason="the same over 50 restarts, of a class in the host and of a plugin program")
def test_no_position_is_acked_twice_over_fifty_restarts(tmp_path: Path, gateway: Gateway, program: bool) -> None:
    _restarted(Hosted(tmp_path / "kept", gateway, records=60_000, rate=400, program=program), 50)


# -- what comes again ---------------------------------------------------------------------------------------------------------


def _resending(root: Path, gateway: Gateway, kills: int, **options: Any) -> tuple[Hosted, Tally]:
    """1,000 records come again at each opening."""
    return harass(
        root, gateway, kills=kills, seed=6, records=10_000 + 5000 * kills, rate=2000, resend=1000, most=5000, **options
    )


def _resends_counted(case: Hosted) -> None:
    """Each life with a position sends what came before once more; `resent` is written down once a second, and at the end."""
    lives = case.heard().lives
    again = [min(life.given, life.position, 1000) for life in lives]
    assert again[-1] <= case.resent <= sum(again)
    assert sum(life.given for life in lives) - sum(again) >= case.records


@pytest.mark.contract("P13", reason="what arrived is compared with what the source gave, over two kills")
def test_what_a_source_sends_again_arrives_once(tmp_path: Path, gateway: Gateway) -> None:
    case, tally = _resending(tmp_path / "kept", gateway, 2)
    _resends_counted(case)
    _clean(case, tally, 2)


@pytest.mark.long
@pytest.mark.parametrize("program", [False, True])
@pytest.mark.contract("P13", safeguard="resend")
def test_what_a_source_sends_again_after_twenty_kills_arrives_once(
    tmp_path: Path, gateway: Gateway, program: bool
) -> None:
    targets = EVERYTHING if program else ("engine", "host", "all")
    case, tally = _resending(tmp_path / "kept", gateway, 20, program=program, targets=targets)
    _resends_counted(case)
    _clean(case, tally, 20)


# -- the life of a program ----------------------------------------------------------------------------------------------------


def test_a_program_does_not_end_with_the_call_that_has_opened_it(tmp_path: Path) -> None:
    """A thread of the host's server ends when others are there; the kernel ends what was started in it."""
    case = Hosted(tmp_path / "case", program=True)
    settings = {"records": "5", "open": "slow:1s", "calls": str(case.calls)}
    with case.environment():
        host = Host(
            lambda tokens: SourceSpec("p:in", "standalone:chaos", settings, str(case.log), tokens), lambda *_: None
        )
    try:
        opening = threading.Thread(target=host.open)
        opening.start()
        until(lambda: case.heard().lives, "the opening")
        assert not list(rows_of(flight.connect(host.address), host.token("read"), 0, 0))
        opening.join()
        until(lambda: host.status().end == 5, "records", lambda: str(host.status()))
        host.ack(5)
        host.stop()
        until(lambda: host.status().ended, "its end", lambda: str(host.status()))
        assert not host.status().error
    finally:
        host.close()
    assert case.heard().acks == [1, 2, 3, 4, 5]
    assert not case.processes()


# -- named points in the host -------------------------------------------------------------------------------------------------

TORN = Armed("K12", kill_nth=20, torn=True)
PENDING = Armed("K13", kill_nth=20)
POWER = Armed("K13", kill_nth=20, power=True, stall=1.0)


@pytest.mark.parametrize(
    "armed",
    [
        pytest.param(TORN, id="append torn"),
        pytest.param(POWER, id="power lost before the fsync"),
        pytest.param(PENDING, id="fsync pending", marks=pytest.mark.long),
        pytest.param(replace(TORN, times=20), id="20 appends torn", marks=pytest.mark.long),
        pytest.param(replace(PENDING, times=20), id="20 fsyncs pending", marks=pytest.mark.long),
        pytest.param(replace(POWER, times=10), id="power lost 10 times", marks=pytest.mark.long),
    ],
)
@pytest.mark.contract("T7", safeguard="log-durable")
def test_a_host_that_dies_while_it_logs_costs_nothing(tmp_path: Path, gateway: Gateway, armed: Armed) -> None:
    case = Hosted(tmp_path / "kept", gateway, records=5000 + 5000 * armed.times, rate=400, armed=armed)
    _dying(case)
    case.finish()
    assert not case.faults(), case.faults()


def _dying(case: Hosted, **options: Any) -> None:
    """Until all hosts have died that were told to, and one more batch was taken; then the engine is killed, too."""
    assert case.armed is not None
    running = case.start(arguments=(), **options)
    for n in range(1, case.armed.times + 1):
        until(lambda n=n: case.deaths >= n or running.process.poll() is not None, f"death {n}")  # type: ignore[misc]
        assert case.deaths >= n, running.wait()
        assert not case.audit(), case.audit()
    running.await_point("K2", times=running.reached("K2") + 1)
    assert running.kill(group=False).killed
    assert not case.audit(), case.audit()


# -- controls -----------------------------------------------------------------------------------------------------------------


def test_without_its_safeguard_what_comes_again_arrives_again(tmp_path: Path, gateway: Gateway) -> None:
    """The control of `resend`."""
    case, tally = _resending(tmp_path / "control", gateway, 1, armed=Armed(off=("resend",)))
    assert any("duplicated" in fault for fault in case.faults()), tally


def test_a_source_that_is_acked_when_logged_hears_of_what_nobody_has(tmp_path: Path, gateway: Gateway) -> None:
    """The control of `ack-after-commit`."""
    case = Hosted(tmp_path / "control", gateway, records=20_000, rate=400, armed=Armed(off=("ack-after-commit",)))
    assert case.run(arguments=(), kill_at="K7", kill_nth=2).killed
    assert any("the source was told" in fault for fault in case.audit()), case.audit()


def test_a_source_that_is_opened_too_early_hears_of_what_nobody_has(tmp_path: Path, gateway: Gateway) -> None:
    """The control of `open-when-settled`."""
    case = Hosted(tmp_path / "control", gateway, records=20_000, rate=400)
    assert case.run(arguments=(), kill_at="K7", kill_nth=2).killed
    assert not case.audit(), case.audit()
    assert case.run(arguments=(), kill_at="K2", off=("open-when-settled",)).killed
    assert any("the source was told" in fault for fault in case.audit()), case.audit()


@pytest.mark.long
def test_an_engine_that_takes_what_is_not_durable_delivers_what_is_gone_later(tmp_path: Path) -> None:
    """The control of `log-durable`: engine, host and tasks all read what was not fsynced. With a Spark of its own, whose tasks are told."""
    off = ("log-durable",)
    armed = Armed("K13", kill_nth=20, power=True, stall=6.0, off=off)
    case = Hosted(tmp_path / "control", records=20_000, rate=400, armed=armed)
    running = case.start(arguments=(), off=off)
    until(lambda: case.deaths or running.process.poll() is not None, "the death")
    running.kill(group=True)
    assert any("not in the log" in fault for fault in case.audit()), case.audit()


@pytest.mark.long
def test_a_delivery_that_is_not_looked_for_is_made_again(tmp_path: Path, gateway: Gateway) -> None:
    """The control of `one-snapshot` and `receipt`."""
    off = ("one-snapshot", "receipt")
    case = Hosted(tmp_path / "control", gateway, records=20_000, rate=400)
    assert case.run(arguments=(), kill_at="K8", kill_nth=2).killed
    ended = case.run(arguments=(), kill_at="K8", off=off)
    assert any("duplicated" in fault for fault in case.faults()), (ended, case.faults())
