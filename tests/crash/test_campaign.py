"""The campaign: one run of many batches, killed again and again; every record arrives once, in order per input file.

Kills come from outside at random moments and at named points, since the short steps are hardly ever hit by chance. Half of
them take the whole process group with the JVM (a start of Spark each, on another number of cores every time), half only the
Python process, whose tasks then run on beside the next engine. A kill counts only after that run's first snapshot row.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import oracle
from tests.support.harness import Case, Ended, Gateway

pytestmark = [pytest.mark.spark, pytest.mark.crash]

NAMED = ["K6", "prepare", "ledger:prepare", "K7", "K6a", "K8", "ledger:done", "done", "ack", "acked", "stage"]
MUST_HIT = ("stage", "prepare", "commit", "ack")

# The step a process was in when it died, by the last point it had reached.
STEPS = {
    "K1": "snapshot",
    "ledger:snapshot": "snapshot",
    "K2": "read",
    "ledger:attempt": "read",
    "stage": "stage",
    "materialise": "materialise",
    "K9": "dead letters",
    "ledger:split": "split",
    "K3": "split",
    "K4": "split",
    "ledger:failed attempt": "account",
    "K6": "account",
    "prepare": "prepare",
    "ledger:prepare": "prepare",
    "K7": "commit",
    "commit": "commit",
    "K6a": "commit",
    "K8": "done",
    "ledger:done": "done",
    "done": "ack",
    "ack": "ack",
    "acked": "between batches",
    "K11": "recovery",
}


@dataclass
class Tally:
    counted: int = 0
    uncounted: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    ended: Ended | None = None

    def __str__(self) -> str:
        steps = ", ".join(f"{step} {n}" for step, n in self.steps.most_common())
        return f"{self.counted} kills counted, {self.uncounted} not ({dict(self.kinds)}); landed in: {steps}"


def campaign(
    root: Path, gateway: Gateway, *, kills: int, seed: int, off: tuple[str, ...] = (), files: int = 200
) -> tuple[Case, Tally]:
    """Plain lines from files to files."""
    case = Case(root, gateway, max_files=1)
    case.issue(files=files, lines=30)
    return case, harass(case, gateway, kills=kills, seed=seed, off=off, named=NAMED)


def harass(
    case: Case, gateway: Gateway, *, kills: int, seed: int, named: list[str], off: tuple[str, ...] = (), **spec: Any
) -> Tally:
    """Kills until `kills` counted, then runs to the end."""
    chance = random.Random(seed)
    tally = Tally()
    while tally.counted < kills and tally.counted + tally.uncounted < 3 * kills + 10:
        group = chance.random() < 0.5
        case.gateway = None if group else gateway
        point = chance.choice(named) if chance.random() < 0.7 else None
        cores = chance.choice([1, 2, 3, 4])
        running = case.start(
            cores=cores,
            kill_at=point,
            kill_nth=chance.choice([1, 2]),
            kill_after="K2" if chance.random() < 0.8 else None,  # else also in the recovery of an earlier batch
            kill_group=group,
            off=off,
            **spec,
        )
        if point is None and running.await_point("K2"):
            chance_delay = chance.random() * 0.4
            try:
                running.process.wait(chance_delay)
            except Exception:
                running.kill(group=group)
        ended = running.wait()
        if not ended.killed:
            tally.ended = ended
            break
        if ended.counts.get("K2", 0) == 0:
            tally.uncounted += 1
            continue
        tally.counted += 1
        tally.steps[STEPS.get(ended.last, ended.last)] += 1
        tally.kinds["process group" if group else "python alone"] += 1
    case.gateway = gateway
    tally.ended = case.run(off=off, **spec)
    return tally


def test_kills_all_over_a_run_cost_nothing(tmp_path: Path, gateway: Gateway) -> None:
    """The share of the campaign that runs in CI: a fixed seed, a few minutes."""
    case, tally = campaign(tmp_path / "kept", gateway, kills=10, seed=3, files=26)
    print(tally)
    assert tally.counted == 10, tally
    assert tally.ended is not None
    assert tally.ended.returncode == 0, tally.ended.out + tally.ended.err
    assert case.verdict().clean, case.verdict()


@pytest.mark.parametrize("off", [("one-snapshot", "receipt"), ("roll-forward",)])
def test_with_a_safeguard_off_the_same_kills_show_it(tmp_path: Path, gateway: Gateway, off: tuple[str, ...]) -> None:
    case, tally = campaign(tmp_path / "control", gateway, kills=5, seed=3, off=off, files=12)
    red = not case.verdict().clean or (tally.ended is not None and tally.ended.returncode != 0)
    assert red, f"{off}: {tally}: {case.verdict()}"


@pytest.mark.long
@pytest.mark.contract("S6", "C4", "C5", safeguard="one-snapshot and receipt; roll-forward: each has its control")
def test_a_hundred_kills_over_two_hundred_batches_cost_nothing(tmp_path: Path, gateway: Gateway) -> None:
    case, tally = campaign(tmp_path / "kept", gateway, kills=110, seed=11, files=200)
    print(f"\n{tally}")
    assert tally.counted >= 100, tally
    assert tally.ended is not None
    assert tally.ended.returncode == 0, tally.ended.out + tally.ended.err
    for step in MUST_HIT:
        assert tally.steps[step] >= 3, tally
    assert case.rows("SELECT max(batch) FROM snapshot")[0][0] >= 50
    assert len(oracle.outputs(case.out)) == 200
    assert case.verdict().clean, case.verdict()
    shutil.rmtree(case.root)
