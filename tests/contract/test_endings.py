"""Endings of a batch that hold no output, or only dead letters, or were cut: recovery ends each of them the same way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.harness import Case
from tests.support.outcomes import dead, delivered, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
PIPELINES = "tests.support.outcomes"


@pytest.mark.contract("C16", "C13", safeguard="one-snapshot: see test_exactly_once")
@pytest.mark.parametrize(
    ("kind", "point"),
    [("rejecting", "K10a"), ("rejecting", "K8"), ("rejecting", "ledger:done"), ("dropping", "K10"), ("dropping", "K7")],
)
def test_a_batch_without_output_is_ended_once_also_when_recovery_is_killed(
    make_case: MakeCase, kind: str, point: str
) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 2, 10)
    pipeline = f"{PIPELINES}:{kind}"
    assert case.run(pipeline=pipeline, kill_at=point).killed
    case.run(pipeline=pipeline, kill_at="K11")
    case.finish(pipeline=pipeline)
    assert delivered(case.root / "out") == []
    assert [x["record"] for x in dead(case.state)] == (ids if kind == "rejecting" else [])
    assert case.rows("SELECT read, acked FROM lane") == [(20, 20)]
    assert case.finish(pipeline=pipeline).counts.get("stage", 0) == 0


@pytest.mark.contract("C16", safeguard="split")
@pytest.mark.parametrize("point", ["K3", "ledger:split", "K4"])
def test_a_split_is_recorded_once_also_when_recovery_is_killed(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 1, 10)
    (case.root / "gate.json").write_text(f'{{"window": 1, "threshold": 0, "bad": ["{ids[6]}"]}}')
    pipeline = f"{PIPELINES}:gated"
    assert case.run(pipeline=pipeline, kill_at=point).killed
    case.run(pipeline=pipeline, kill_at="K11")
    ended = case.run(pipeline=pipeline)
    assert ended.returncode == 1
    assert [r["id"] for r in delivered(case.root / "out")] == ids[:6]
    assert case.rows("SELECT batch, state, parent FROM snapshot ORDER BY batch") == [
        (1, "split", None),
        (2, "done", 1),
        (3, "open", 1),
    ]


@pytest.mark.contract("C14", safeguard="roll-forward: see the campaign")
@pytest.mark.parametrize("point", ["K9", "K6a", "K8"])
def test_a_configured_queue_gets_every_dead_letter_once_whenever_it_dies(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 3, 10)
    pipeline = f"{PIPELINES}:queued"
    for _ in range(2):
        assert case.run(pipeline=pipeline, kill_at=point).killed
    case.finish(pipeline=pipeline)
    bad = [i for i in ids if i.endswith((":2", ":7"))]
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i not in bad]
    letters = delivered(case.root / "queue")
    assert [x["given"]["after"]["text"] for x in letters] == [f'{{"id": "{i}", "n": {i[-1]}}}' for i in bad]
    assert [x["record"] for x in dead(case.state)] == bad
