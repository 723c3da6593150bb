"""Acks: in order, at most once, and only for what is delivered."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support import oracle
from tests.support.harness import Case

RECORDING = "tests.support.recording:acks"


def _run_with_kills(case: Case, kills: int, off: tuple[str, ...] = ()) -> list[str]:
    """Kills around the ack, then a run to the end. Returns the acks the source has seen."""
    chance = random.Random(7)
    case.issue(files=kills + 4, lines=5)
    for _ in range(kills):
        ended = case.run(pipeline=RECORDING, kill_at=chance.choice(["K8", "done", "ack", "acked", "K7", "K2"]), off=off)
        assert ended.killed, ended.err
        acked = _acks(case)
        assert set(acked) <= {line.partition(":")[0] + ".txt" for line in oracle.delivered(case.out)}
    case.finish(pipeline=RECORDING, off=off)
    return _acks(case)


def _acks(case: Case) -> list[str]:
    path = case.root / "acks.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.contract("S9", safeguard="ack-once")
def test_no_file_is_acked_twice_and_acks_come_in_order(make_case: Callable[..., Case]) -> None:
    acked = _run_with_kills(make_case("kept"), kills=10)
    assert len(acked) == len(set(acked))
    assert acked == sorted(acked)
    control = _run_with_kills(make_case("control"), kills=4, off=("ack-once",))
    assert len(control) > len(set(control))


@pytest.mark.long
@pytest.mark.contract("S9", safeguard="ack-once")
def test_no_file_is_acked_twice_over_fifty_restarts(make_case: Callable[..., Case]) -> None:
    acked = _run_with_kills(make_case("kept"), kills=50)
    assert len(acked) == len(set(acked))
    assert acked == sorted(acked)
