"""The gate through the real system: windows, thresholds and patterns of nacks, with a death at each step in between.

A model of a few lines says at which record the pipeline stops; a batch that is retried counts once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

import pytest

from tests.support.harness import Case
from tests.support.outcomes import dead, delivered, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
LINES = 10


def closes_at(nacked: set[int], records: int, window: int, threshold: int) -> int | None:
    """The record that is one too many, in a ring over the whole stream."""
    ring: deque[bool] = deque(maxlen=window or 1)
    for k in range(records):
        ring.append(k in nacked)
        if window and sum(ring) > threshold:
            return k
    return None


TABLE = [
    # window, threshold, nacked records of 40 in batches of 10, the step at which it dies first
    (0, 0, {0, 1, 2, 15, 16, 17, 39}, "K7"),
    (1, 0, {17}, "K6"),
    (1, 0, {0}, "K4"),
    (5, 1, {3, 9, 14, 19, 24}, "K8"),  # always five apart
    (5, 1, {8, 11}, "prepare"),  # over the edge of two batches
    (5, 2, {8, 9, 11}, "ledger:prepare"),
    (10, 2, {1, 12, 21, 30, 31, 32}, "ledger:done"),
    (40, 3, {0, 11, 22, 33}, "K3"),
    (3, 2, {18, 19, 20, 21}, "ack"),
]


@pytest.mark.contract("S11", safeguard="gate")
@pytest.mark.parametrize(("window", "threshold", "nacked", "point"), TABLE)
def test_the_pipeline_stops_where_the_model_says_whenever_it_died(
    make_case: MakeCase, window: int, threshold: int, nacked: set[int], point: str
) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 4, LINES)
    bad = [ids[k] for k in nacked]
    (case.root / "gate.json").write_text(json.dumps({"window": window, "threshold": threshold, "bad": bad}))
    pipeline = "tests.support.outcomes:gated"
    case.run(pipeline=pipeline, kill_at=point)
    ended = case.run(pipeline=pipeline)
    stops = closes_at(nacked, len(ids), window, threshold)
    assert (ended.returncode, stops is None) in ((0, True), (1, False)), ended.out
    before = ids if stops is None else ids[:stops]
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in before if i not in bad]
    assert [x["record"] for x in dead(case.state)] == [i for i in before if i in bad]
    held = case.rows("SELECT json_extract(record, '$.given.after.text') FROM nack WHERE state = 'held'")
    assert [json.loads(str(text))["id"] for (text,) in held] == ([] if stops is None else [ids[stops]])
    assert case.rows("SELECT read, acked FROM lane") == [(len(before), len(before))]
    (case.root / "gate.json").write_text(json.dumps({"window": 0, "threshold": 0, "bad": bad}))
    case.finish(pipeline=pipeline)
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i not in bad]
    assert sorted(str(x["record"]) for x in dead(case.state)) == sorted(bad)
