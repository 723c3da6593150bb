"""Row Y1, processors: every case that the real Conduit's built-in processors were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.config import ConfigErrors, parse_settings
from penstock.native import Unsuitable
from penstock.plan.condition import Condition
from penstock.plugins import builtin
from penstock_sdk.record import Drop, Record, Reject
from tests.support.conduit import DIFFERENT, EQUAL, REFUSED, Verdict, cases, judge, record_of, same_records, ways

CASES = cases("processors")


@pytest.mark.contract("Y1", reason="every case has the real Conduit's own result beside it")
@pytest.mark.parametrize("case", CASES, ids=[f"{c['id']}-{c['plugin']}" for c in CASES])
def test_a_processor_does_what_conduit_did(case: dict[str, Any]) -> None:
    verdicts = [judged(case, whole=whole) for whole in ways(case)]
    judge(case, next((v for v in verdicts if v.kind != EQUAL), verdicts[0]))


def judged(case: Mapping[str, Any], *, whole: bool) -> Verdict:
    result = case["result"]
    try:
        apply = made(case)
    except ConfigErrors as e:
        same = result["stage"] in ("create", "make", "open")
        return Verdict(EQUAL) if same else Verdict(REFUSED, e.problems[0].code, str(e))
    except Unsuitable as e:
        same = result["stage"] in ("create", "make", "open")
        return Verdict(EQUAL) if same else Verdict(REFUSED, e.code, str(e))
    if result["stage"] != "done":
        return Verdict(DIFFERENT, detail=f"Conduit refuses it: {result.get('error') or result.get('panic')}")
    for given, expected in zip(case["inputs"], result["outputs"], strict=False):
        why = compared(apply(record_of(given, whole=whole)), expected)
        if why:
            return Verdict(DIFFERENT, detail=why)
    return Verdict(EQUAL)


def made(case: Mapping[str, Any]) -> Any:
    """The processor as a file would make it, with its condition."""
    problem = builtin.problem("processor", case["plugin"])
    if problem is not None:
        raise ConfigErrors([problem])
    settings = parse_settings(builtin.settings_class("processor", case["plugin"]), case["settings"])
    processor = builtin.implementation("processor", case["plugin"])(settings, "p")
    condition = Condition(case["condition"])
    matches = condition.on_record() if condition else None

    def apply(r: Record) -> Any:
        try:
            return processor.apply(r) if matches is None or matches(r) else r
        except Exception as e:
            return Reject(f"{type(e).__name__}: {e}")

    return apply


def compared(ours: Any, expected: Mapping[str, Any]) -> str:
    kind, theirs = shown(ours), expected["kind"]
    records: Sequence[Mapping[str, Any]] = expected.get("records") or [expected.get("record") or {}]
    if theirs == "multi" and not expected.get("records"):
        return "" if kind in ("filter", "multi") and not isinstance(ours, Record) else f"{ours!r} instead of nothing"
    if kind != theirs:
        return f"{kind} ({getattr(ours, 'reason', ours)!r}) instead of {theirs} ({expected.get('error', '')})"
    if kind in ("filter", "error"):
        return ""
    return same_records([ours] if kind == "single" else ours, records)


def shown(ours: Any) -> str:
    if isinstance(ours, Reject):
        return "error"
    if isinstance(ours, Drop):
        return "filter"
    return "single" if isinstance(ours, Record) else "multi"
