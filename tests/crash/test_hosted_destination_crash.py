"""Hosted destinations whose engine, host or program is killed: every record arrives, in order, and only what was under way comes twice.

What the source hears is settled has arrived. The number of records that were sent again is bounded by what is sent at once, and is said.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import go
from tests.support.harness import Gateway
from tests.support.hosted import Armed, Campaign, Hosted, until
from tests.support.through import Through, numbers

pytestmark = [pytest.mark.spark, pytest.mark.crash]

# Everything is at the destination, and its host has written that down: nothing of it is sent again.
POINTS = ["K7", "send", "sent", "written", "K8", "ledger:done", "done", "ack"]


@pytest.mark.contract("S6", "S9", "X4", safeguard="high-water")
@pytest.mark.parametrize("point", POINTS)
def test_an_engine_that_is_killed_at_a_step_sends_nothing_twice(tmp_path: Path, gateway: Gateway, point: str) -> None:
    case = Through(tmp_path / "case", gateway, records=500, most=200)
    ended = case.run(arguments=("--once", "--idle", "1"), kill_at=point)
    assert ended.killed, f"{ended.out}{ended.err}"
    assert not case.audit()
    case.finish(arguments=("--once", "--idle", "1"))
    assert not case.faults(), case.faults()
    assert case.duplicates() == 0


def test_without_what_was_answered_everything_is_sent_again(tmp_path: Path, gateway: Gateway) -> None:
    """The control."""
    off = ("high-water",)
    case = Through(tmp_path / "case", gateway, records=500, most=200, armed=Armed(off=off))
    assert case.run(arguments=("--once", "--idle", "1"), kill_at="sent", off=off).killed
    case.finish(arguments=("--once", "--idle", "1"), off=off)
    assert not case.faults(), case.faults()
    assert case.duplicates() > 0


@pytest.mark.contract(
    "S6", "P12", reason="the file of the destination is read: what is missing and what is there twice"
)
@pytest.mark.parametrize("program", [False, True])
def test_kills_at_any_moment_lose_nothing_and_repeat_what_was_under_way(
    tmp_path: Path, gateway: Gateway, program: bool
) -> None:
    """The share of the campaigns that runs in CI."""
    _campaign(tmp_path, gateway, program, kills=3, seed=11)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("program", [False, True])
def test_twenty_kills_at_any_moment_lose_nothing(tmp_path: Path, gateway: Gateway, program: bool, seed: int) -> None:
    _campaign(tmp_path, gateway, program, kills=20, seed=seed)


def _campaign(tmp_path: Path, gateway: Gateway, program: bool, kills: int, seed: int) -> None:
    targets = ("engine", "host", "program", "all") if program else ("engine", "host", "all")
    case = Through(tmp_path / "case", gateway, records=60_000, rate=400, program=program)
    tally = Campaign(case, kills, seed, targets=targets, named=("K7", "send", "sent", "K8", "done")).run()
    print(f"\n{tally}")
    assert tally.ended is None, tally
    assert not tally.faults, tally
    until(lambda: not case.of_kind("host"), "hosts to end", lambda: str(case.processes()))
    case.records = max([*case.arrived(), *case.logged()])  # it need not go on to the end
    case.finish(arguments=("--once", "--idle", "1"))
    # A host that was killed had written more than it could say was durable: that is in the log as well, once it is opened again.
    case.records = max(case.logged())
    assert not case.faults(), case.faults()
    assert case.duplicates() <= tally.counted * case.at_once, (case.duplicates(), tally)


@pytest.mark.contract("P12", reason="what arrived, what came twice, and the number that is said are compared")
def test_a_program_that_dies_again_and_again_gets_everything_through(tmp_path: Path, gateway: Gateway) -> None:
    """After every 100 records it is killed with what it has written and not answered."""
    case = Through(tmp_path / "case", gateway, records=1_000, most=100_000, program=True, at_once=20)
    case.rules = "kill every 100 records"
    case.finish(arguments=("--once", "--idle", "1"))
    assert not case.faults(), case.faults()
    assert 0 < case.duplicates() <= 20 * 20
    kept = json.loads((case.state / "sinks" / "p.out" / "connector.json").read_text())
    assert kept["resent"] == case.duplicates()


# -- two languages -----------------------------------------------------------------------------------------------------------

BOTH = """\
version: "2.2"
pipelines:
  - id: p
    guarantee: at-least-once
    connectors:
      - {{id: in, type: source, plugin: "standalone:chaos", settings: {given}}}
      - {{id: lines, type: source, plugin: "standalone:go-connector", settings: {{path: "{root}/given"}}}}
      - {{id: out, type: destination, plugin: "standalone:chaos", settings: {{path: "{root}/out.jsonl"}}}}
      - {{id: go, type: destination, plugin: "standalone:go-connector", settings: {{path: "{root}/go.jsonl"}}}}
    processors:
      - {{id: some, plugin: filter, condition: "after like '%7'"}}
"""


@dataclass
class Both(Hosted):
    """A source and a destination in Go, and the same in Python, in one pipeline."""

    def configure(self) -> None:
        given = {"records": str(self.records), "size": "12", "batch": "50", "rate": str(self.rate)}
        texts = json.dumps({**given, "calls": str(self.root / "calls")})
        (self.root / "p.yaml").write_text(BOTH.format(given=texts, root=self.root))
        lines = [
            {"operation": "OPERATION_CREATE", "payload": {"after": {"rawData": _base64(f"{n:012}")}}}
            for n in range(1_000_001, 1_000_001 + self.records)
        ]
        (self.root / "given").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _install(self) -> None:
        super()._install()
        with self.environment():
            import subprocess

            command = [sys.executable, "-m", "penstock.cli.main", "plugins", "install", str(go.built())]
            subprocess.run(command, check=True, capture_output=True)

    def at(self, name: str) -> list[int]:
        path = self.root / f"{name}.jsonl"
        if name == "out":
            return numbers(path)
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(_plain(json.loads(line)["payload"]["after"]["rawData"])) for line in lines]


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


def _plain(text: str) -> str:
    import base64

    return base64.b64decode(text).decode()


@go.needs_go
@pytest.mark.contract("P11", reason="both files are read, whatever was killed")
def test_programs_in_two_languages_at_both_ends_are_killed_and_go_on(tmp_path: Path, gateway: Gateway) -> None:
    case = Both(tmp_path / "case", gateway, records=2_000, program=True)
    options: dict[str, Any] = {"arguments": ("--once", "--idle", "1")}
    assert case.run(**options, kill_at="sent").killed
    until(lambda: not case.processes(), "everything to end", lambda: str(case.processes()))
    running = case.start(**options)
    running.await_point("send")
    for pid in case.of_kind("host")[:1]:
        os.kill(pid, signal.SIGKILL)
    ended = running.wait()
    assert ended.returncode == 0, f"{ended.out}{ended.err[-3000:]}"
    case.finish(**options)
    wanted = [n for first in (1, 1_000_001) for n in range(first, first + 2_000) if n % 10 != 7]
    for name in ("out", "go"):
        found = case.at(name)
        assert sorted(set(found)) == wanted, name
        assert len(found) - len(wanted) <= 1_000, name
        for low in (0, 1_000_000):
            first = list(dict.fromkeys(n for n in found if low < n <= low + 2_000))
            assert first == sorted(first), name
