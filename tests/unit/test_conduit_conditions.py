"""Row Y1, conditions: every condition that the real Conduit was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.native import Unsuitable, Where
from penstock.plan.condition import Condition
from penstock.record import Shape
from penstock_sdk.record import Record
from tests.support.conduit import DIFFERENT, EQUAL, REFUSED, Verdict, cases, judge, record_of, ways

CASES = cases("conditions")


@pytest.mark.contract("Y1", reason="every case has the real Conduit's own result beside it")
@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_a_condition_decides_as_in_conduit(case: dict[str, Any]) -> None:
    verdicts = [judged(case, whole=whole) for whole in ways(case)]
    judge(case, next((v for v in verdicts if v.kind != EQUAL), verdicts[0]))


def judged(case: Mapping[str, Any], *, whole: bool) -> Verdict:
    condition = Condition(case["condition"])
    try:
        condition.check(Where.PYTHON, Shape.OPEN)
        matches = condition.on_record() if condition else lambda _: True
    except Unsuitable as e:
        return Verdict(EQUAL) if "invalid" in case else Verdict(REFUSED, e.code, str(e))
    if "invalid" in case:
        return Verdict(DIFFERENT, detail=f"Conduit refuses it: {case['invalid']}")
    ours, theirs = outcome(matches, record_of(case["record"], whole=whole)), case.get("matches", "error")
    kind = "error" if isinstance(ours, str) else ours
    return Verdict(EQUAL) if kind == theirs else Verdict(DIFFERENT, detail=f"{ours} instead of {theirs}")


def outcome(matches: Callable[[Record], bool], r: Record) -> bool | str:
    try:
        return matches(r)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
