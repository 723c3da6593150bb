"""A destination that refuses records while it commits: nothing is recomputed, nothing lost, nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import Case
from tests.support.outcomes import Refusing, dead, delivered, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
ROOM = "tests.support.outcomes:refusing_with_room"
NO_ROOM = "tests.support.outcomes:refusing_without_room"
SOME_ROOM = "tests.support.outcomes:refusing_with_some_room"


def _issue(case: Case, refuse: list[str], files: int = 2, lines: int = 10) -> list[str]:
    ids = write_json(case.inp, files, lines)
    _refuse(case, refuse)
    return ids


def _refuse(case: Case, ids: list[str]) -> None:
    (case.root / "two").mkdir(exist_ok=True)
    (case.root / "two" / "refuse.txt").write_text("\n".join(ids))


def _two(case: Case) -> list[str]:
    return Refusing(case.root / "two", "two").ids()


def _one(case: Case) -> list[str]:
    return [r["id"] for r in delivered(case.root / "one")]


@pytest.mark.contract("C14", "S2", safeguard="receipt")
@pytest.mark.parametrize("point", [None, "K7", "K8", "K9", "ledger:done", "done", "ack"])
def test_with_room_a_refused_record_is_one_dead_letter_of_that_destination(
    make_case: MakeCase, point: str | None
) -> None:
    case = make_case("case")
    bad = ["f00000:3", "f00001:7"]
    ids = _issue(case, bad)
    if point is not None:
        assert case.run(pipeline=ROOM, kill_at=point).killed
    case.finish(pipeline=ROOM)
    assert _one(case) == ids
    assert _two(case) == [i for i in ids if i not in bad]
    letters = dead(case.state)
    assert [(x["record"], x["destination"], x["node"]) for x in letters] == [(i, "two", "two") for i in bad]
    assert "violates a constraint" in letters[0]["error"]
    assert json.loads(letters[0]["form"])["after"] == {"text": '{"id":"f00000:3","n":3}'}
    assert case.rows("SELECT seq, destination, state FROM nack ORDER BY seq") == [
        (x["seq"], "two", "open") for x in letters
    ]
    assert case.rows("SELECT delivered, dead_lettered FROM total ORDER BY destination") == [(20, 0), (18, 2)]
    assert case.rows("SELECT read, acked FROM lane") == [(20, 20)]
    assert not list((case.state / "work").glob("*/*"))


@pytest.mark.contract("C14", safeguard="gate")
@pytest.mark.parametrize("point", [None, "K8", "hold", "ledger:held delivery"])
def test_without_room_the_delivery_stops_there_and_goes_on_there(make_case: MakeCase, point: str | None) -> None:
    case = make_case("case")
    ids = _issue(case, ["f00001:4"])
    if point is not None:
        assert case.run(pipeline=NO_ROOM, kill_at=point).killed
    for _ in range(2):  # the second start stops at the same record
        ended = case.run(pipeline=NO_ROOM)
        assert ended.returncode == 1
        assert "gate.closed" in ended.summary["error"]
        assert _one(case) == ids
        assert _two(case) == ids[:14]
        assert case.rows("SELECT state, acked_to IS NOT NULL FROM snapshot") == [("prepared", 1)]
        [(seq, state, text)] = case.rows("SELECT seq, state, record FROM nack")
        assert (seq, state) == (case.rows("SELECT acked_to FROM snapshot")[0][0], "held")
        assert json.loads(json.loads(str(text))["given"]["after"]["text"])["id"] == "f00001:4"
        assert dead(case.state) == []
    _refuse(case, [])
    case.finish(pipeline=NO_ROOM)
    assert _one(case) == _two(case) == ids
    assert case.rows("SELECT count(*) FROM nack") == [(0,)]
    assert case.rows("SELECT read, acked FROM lane") == [(20, 20)]


def test_a_stopped_delivery_may_go_on_with_a_wider_gate(make_case: MakeCase) -> None:
    case = make_case("case")
    ids = _issue(case, ["f00000:5"])
    assert case.run(pipeline=NO_ROOM).returncode == 1
    case.finish(pipeline=ROOM)
    assert _two(case) == [i for i in ids if i != "f00000:5"]
    assert [x["record"] for x in dead(case.state)] == ["f00000:5"]
    assert case.rows("SELECT state FROM nack") == [("open",)]


def test_the_ring_counts_late_nacks_by_their_place_among_all_records(make_case: MakeCase) -> None:
    """Two nacks in five records are one too many; five apart they are not."""
    case = make_case("case")
    ids = _issue(case, ["f00000:1", "f00000:6", "f00001:3", "f00001:6"])
    ended = case.run(pipeline=SOME_ROOM)
    assert ended.returncode == 1
    assert _two(case) == [i for i in ids[:16] if i not in ("f00000:1", "f00000:6", "f00001:3")]
    assert case.rows("SELECT state, id FROM nack WHERE state = 'held'") != []
    _refuse(case, ["f00000:1", "f00000:6", "f00001:3"])
    case.finish(pipeline=SOME_ROOM)
    assert _two(case) == [i for i in ids if i not in ("f00000:1", "f00000:6", "f00001:3")]
    assert [x["record"] for x in dead(case.state)] == ["f00000:1", "f00000:6", "f00001:3"]


def test_acks_before_a_stopped_record_reach_the_source_once(make_case: MakeCase, tmp_path: Path) -> None:
    case = make_case("case")
    _issue(case, ["f00001:4"], files=3)
    pipeline = "tests.support.outcomes:refusing_and_recording"
    assert case.run(pipeline=pipeline).returncode == 1
    path = case.root / "acks.txt"
    first = path.read_text().splitlines()
    assert first == ["f00000.txt None None", "f00001.txt None cut"]
    assert case.run(pipeline=pipeline).returncode == 1
    assert path.read_text().splitlines() == first
    _refuse(case, [])
    case.finish(pipeline=pipeline)
    assert path.read_text().splitlines() == [*first, "f00001.txt cut None", "f00002.txt None None"]
