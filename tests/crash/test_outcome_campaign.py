"""The campaign with outcomes: a decode, a filter, a function that fails for chosen records and at random, two destinations.

Whatever is killed, per destination every record is delivered, filtered or dead-lettered, exactly one of them, and both
destinations hold equal values (a random stamp among them).
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash.test_campaign import Tally, harass
from tests.support.harness import Case, Gateway
from tests.support.outcomes import CHOSEN, dead, judge, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

PIPELINE = "tests.support.outcomes:campaign"
NAMED = [
    "materialise",
    "K6",
    "K9",
    "prepare",
    "ledger:prepare",
    "K7",
    "K6a",
    "K8",
    "ledger:done",
    "done",
    "ack",
    "stage",
]
MUST_HIT = ("materialise", "dead letters", "prepare", "commit", "done", "ack")


def campaign(
    root: Path, gateway: Gateway, *, kills: int, seed: int, files: int, lines: int, off: tuple[str, ...] = ()
) -> tuple[Case, Tally, list[str]]:
    case = Case(root, gateway)
    ids = write_json(case.inp, files, lines)
    tally = harass(case, gateway, kills=kills, seed=seed, named=NAMED, off=off, pipeline=PIPELINE)
    filtered = [i for i in ids if int(i.partition(":")[2]) % 10 == 3]
    wrong = judge(ids, filtered, dead(case.state), {name: case.root / name for name in ("one", "two")})
    return case, tally, wrong


def _check(case: Case, tally: Tally, wrong: list[str], *, kills: int, files: int, lines: int) -> None:
    assert tally.counted == kills, tally
    assert tally.ended is not None
    assert tally.ended.returncode == 0, tally.ended.out + tally.ended.err
    assert wrong == []
    letters = {str(x["record"]) for x in dead(case.state)}
    assert {i for i in CHOSEN if int(i[1:6]) < files and int(i.partition(":")[2]) % 10 != 3} <= letters
    n = files * lines
    assert case.rows("SELECT read, acked FROM lane") == [(n, n)]
    for row in case.rows("SELECT delivered + filtered + dead_lettered + discarded FROM total"):
        assert row == (n,)
    assert case.rows("SELECT count(*) FROM nack") == [(len(letters),)]


def test_kills_with_outcomes_cost_nothing(tmp_path: Path, gateway: Gateway) -> None:
    """The share that runs in CI."""
    case, tally, wrong = campaign(tmp_path / "kept", gateway, kills=8, seed=5, files=20, lines=40)
    print(tally)
    _check(case, tally, wrong, kills=8, files=20, lines=40)


@pytest.mark.contract("C14", "S6", "S14", safeguard="roll-forward")
def test_with_a_safeguard_off_the_same_kills_show_in_the_outcomes(tmp_path: Path, gateway: Gateway) -> None:
    off = ("roll-forward", "receipt")
    _, tally, wrong = campaign(tmp_path / "control", gateway, kills=6, seed=5, files=10, lines=40, off=off)
    assert wrong or (tally.ended is not None and tally.ended.returncode != 0), tally


@pytest.mark.long
@pytest.mark.contract("C14", "S6", "S14", safeguard="roll-forward: the control runs in CI")
def test_a_hundred_kills_with_outcomes_cost_nothing(tmp_path: Path, gateway: Gateway) -> None:
    case, tally, wrong = campaign(tmp_path / "kept", gateway, kills=105, seed=17, files=180, lines=200)
    print(f"\n{tally}")
    _check(case, tally, wrong, kills=105, files=180, lines=200)
    for step in MUST_HIT:
        assert tally.steps[step] >= 3, tally
    shutil.rmtree(case.root)


@pytest.mark.contract("C14", safeguard="roll-forward: the control is above")
@pytest.mark.parametrize("point", ["K7", "K8", "K9"])
def test_random_nacks_are_one_outcome_each_when_it_dies_around_the_commit(
    tmp_path: Path, gateway: Gateway, point: str
) -> None:
    """10,000 records, one in ten fails at random."""
    case = Case(tmp_path / "case", gateway)
    ids = write_json(case.inp, 10, 1000)
    chance = random.Random(3)
    for _ in range(3):
        case.run(
            pipeline="tests.support.outcomes:random_nacks",
            kill_at=point,
            kill_nth=chance.choice([1, 2]),
            kill_after="K2",
        )
    case.finish(pipeline="tests.support.outcomes:random_nacks")
    letters = dead(case.state)
    assert judge(ids, [], letters, {name: case.root / name for name in ("one", "two")}) == []
    assert 800 < len(letters) < 1200
