"""A kill at every named point of a batch: after the restart every record is there once, in order."""

from __future__ import annotations

import pytest

from tests.support.harness import Case

pytestmark = [pytest.mark.spark, pytest.mark.crash]

POINTS = [
    "K1",
    "K2",
    "stage",
    "K6",
    "prepare",
    "ledger:prepare",
    "K7",
    "K6a",
    "K8",
    "ledger:done",
    "done",
    "ack",
    "acked",
]


@pytest.mark.contract("C4", "S6", safeguard="one-snapshot")
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_costs_nothing(case: Case, point: str) -> None:
    case.issue(files=4)
    ended = case.run(kill_at=point, kill_nth=2)
    assert ended.killed, ended.err
    assert ended.last == point
    case.finish()
    assert case.verdict().clean, case.verdict()
