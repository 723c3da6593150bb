"""At most once, at least once, exactly once; equal values everywhere; receipts that outlive an attempt."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import Case
from tests.support.outcomes import dead, delivered, judge, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
PIPELINES = "tests.support.outcomes"


def _lines(path: Path) -> Counter[str]:
    return Counter(json.loads(line)["id"] for line in path.read_text().splitlines()) if path.exists() else Counter()


@pytest.mark.contract("C20", safeguard="settle-first")
def test_at_most_once_loses_at_most_the_batch_in_flight_and_repeats_nothing(make_case: MakeCase) -> None:
    case = make_case("user-code")
    ids = write_json(case.inp, 4, 10)
    assert case.run(pipeline=f"{PIPELINES}:at_most_once").killed  # by its own processor, in the first batch
    ended = case.finish(pipeline=f"{PIPELINES}:at_most_once")
    found = _lines(case.root / "out.txt")
    assert found == Counter(ids[10:])
    assert ended.summary["destinations"]["out"]["discarded"] == 10
    assert case.rows("SELECT read, acked FROM lane") == [(40, 40)]

    (case.root / "killed").touch()
    for name, off, most in (("kept", (), 1), ("control", ("settle-first",), 2)):
        case = make_case(name)
        (case.root / "killed").touch()
        ids = write_json(case.inp, 3, 10)
        assert case.run(pipeline=f"{PIPELINES}:at_most_once", kill_at="written", off=off).killed
        case.finish(pipeline=f"{PIPELINES}:at_most_once", off=off)
        found = _lines(case.root / "out.txt")
        assert max(found.values()) == most, name
        assert set(found) == set(ids)


@pytest.mark.contract("C20", reason="the repetition is what is shown; exactly once is the control")
def test_at_least_once_repeats_and_loses_none(make_case: MakeCase) -> None:
    case = make_case("user-code")
    ids = write_json(case.inp, 4, 10)
    assert case.run(pipeline=f"{PIPELINES}:at_least_once").killed
    case.finish(pipeline=f"{PIPELINES}:at_least_once")
    assert set(_lines(case.root / "out.txt")) == set(ids)

    case = make_case("written")
    (case.root / "killed").touch()
    ids = write_json(case.inp, 4, 10)
    assert case.run(pipeline=f"{PIPELINES}:at_least_once", kill_at="written").killed
    case.finish(pipeline=f"{PIPELINES}:at_least_once")
    found = _lines(case.root / "out.txt")
    assert set(found) == set(ids)
    assert [i for i, n in found.items() if n == 2] == ids[:10]


@pytest.mark.contract("C20", safeguard="receipt, roll-forward: see the campaign")
def test_exactly_once_neither_loses_nor_repeats(make_case: MakeCase) -> None:
    case = make_case("user-code")
    ids = write_json(case.inp, 4, 10)
    assert case.run(pipeline=f"{PIPELINES}:exactly_once").killed
    case.finish(pipeline=f"{PIPELINES}:exactly_once")
    assert [r["id"] for r in delivered(case.root / "out")] == ids


@pytest.mark.contract("S14", safeguard="roll-forward")
@pytest.mark.parametrize("point", ["materialise", "K6", "K6a", "ledger:done"])
def test_values_are_equal_at_all_destinations_when_it_dies_between_them(make_case: MakeCase, point: str) -> None:
    case = make_case("kept")
    ids = write_json(case.inp, 6, 10)
    for _ in range(2):
        assert case.run(pipeline=f"{PIPELINES}:three_destinations", kill_at=point).killed
    case.finish(pipeline=f"{PIPELINES}:three_destinations")
    assert judge(ids, [], [], {n: case.root / n for n in ("one", "two", "three")}) == []


@pytest.mark.contract("S14", "X4", safeguard="roll-forward")
def test_recomputing_prepared_work_would_show(make_case: MakeCase) -> None:
    """The control: without rolling forward the destinations differ, or hold records twice."""
    case = make_case("control")
    ids = write_json(case.inp, 2, 10)
    off = ("roll-forward", "receipt", "attempt-names")
    assert case.run(pipeline=f"{PIPELINES}:three_destinations", kill_at="K6a", kill_nth=1).killed
    ended = case.run(pipeline=f"{PIPELINES}:three_destinations", off=off)
    wrong = judge(ids, [], [], {n: case.root / n for n in ("one", "two", "three")})
    assert wrong or ended.returncode != 0


@pytest.mark.contract("X4", safeguard="nacks-with-prepare")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_delivery_keeps_the_nacks_of_the_attempt_that_was_prepared(make_case: MakeCase, reverse: bool) -> None:
    for name, off in (("kept", ()), ("control", ("nacks-with-prepare",))):
        case = make_case(name)
        ids = write_json(case.inp, 1, 10)
        marker = case.root / "fails"
        if reverse:
            (case.root / "reverse").touch()
        marker.touch()
        assert case.run(pipeline=f"{PIPELINES}:fickle", kill_at="K8", off=off).killed
        marker.unlink()
        case.finish(pipeline=f"{PIPELINES}:fickle", off=off)
        there = [r["id"] for r in delivered(case.root / "out")]
        letters = [x["record"] for x in dead(case.state)]
        assert there == (ids if reverse else [i for i in ids if i != ids[5]])
        assert letters == ([] if reverse else [ids[5]])
        nacks = case.rows("SELECT count(*) FROM nack")
        assert nacks == [(0 if reverse or name == "control" else 1,)]
