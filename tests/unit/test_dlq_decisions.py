"""`penstock dlq export` and `drop`: the real command on real state folders, beside an engine and without one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import LedgerError
from penstock.ledger import decisions
from penstock.ledger.look import Wanted
from penstock.testing import faults
from tests.support.states import State, letter, penstock


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """An engine has it open all the time."""
    made = State(tmp_path / ".penstock")
    yield made
    made.close()


def _nacks(state: State) -> list[tuple[int, str, str]]:
    with sqlite3.connect(state.folder.ledger) as db:
        return list(db.execute("SELECT seq, destination, state FROM nack ORDER BY 1, 2"))


def _audit(state: State) -> list[tuple[str, str, dict[str, object]]]:
    with sqlite3.connect(state.folder.ledger) as db:
        return [(p, what, json.loads(d)) for p, what, d in db.execute("SELECT pipeline, what, detail FROM audit")]


# -- export ---------------------------------------------------------------------------------------------------------


def test_an_export_has_every_dead_letter_with_its_record(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1), letter(2, "out", code="x.y")])
    state.batch(10, [letter(101)])
    state.hold(letter(205))
    ended = penstock(tmp_path, "dlq", "export")
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(x["seq"], x["destination"], x["status"]) for x in found] == [
        (1, "", "open"),
        (2, "out", "open"),
        (101, "", "open"),
        (205, "", "held"),
    ]
    assert [x["given"]["after"]["text"] for x in found] == [f"line {n}" for n in (1, 2, 101, 205)]
    assert "4 dead letters" in ended.stderr
    only = penstock(tmp_path, "dlq", "export", "--code", "x.y", "--status", "open").stdout
    assert [json.loads(line)["seq"] for line in only.splitlines()] == [2]


def test_an_export_into_a_file_is_there_when_it_is_whole(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(n) for n in range(200)])
    ended = penstock(tmp_path, "dlq", "export", "--to", "bad.jsonl")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "200 dead letters in bad.jsonl" in ended.stderr
    assert [json.loads(line)["seq"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()] == list(range(200))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".bad")] == []
    refused = penstock(tmp_path, "dlq", "export", "--to", "nowhere/bad.jsonl")
    assert refused.returncode == 2
    assert "[dlq.export]" in refused.stderr


def test_a_record_that_is_gone_is_said_to_be(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1)])
    for file in (state.path / "dead-letters").rglob("*.parquet"):
        file.unlink()
    ended = penstock(tmp_path, "dlq", "export")
    [found] = map(json.loads, ended.stdout.splitlines())
    assert (found["given"], found["seq"]) == (None, 1)
    assert "removed or moved" in found["missing"]
    assert "1 dead letter, 1 of them without their record" in ended.stderr


# -- drop -----------------------------------------------------------------------------------------------------------


def test_what_is_dropped_is_marked_counted_and_remembered_beside_a_running_engine(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1), letter(2), letter(3, code="x.y")])
    fence = state.ledger.fence
    ended = penstock(tmp_path, "dlq", "drop", letter(1).id[:10], "--reason", "a test order")
    assert ended.returncode == 0, ended.stderr
    assert "orders: 1 dead letter dropped" in ended.stderr
    assert _nacks(state) == [(1, "", "dropped"), (2, "", "open"), (3, "", "open")]
    [(pipeline, what, detail)] = _audit(state)
    assert (pipeline, what, detail["dead_letters"], detail["reason"]) == ("orders", "drop", 1, "a test order")
    assert detail["by"]
    assert penstock(tmp_path, "dlq", "drop", "--all", "--code", "x.y", "--reason", "no").returncode == 0
    assert _nacks(state) == [(1, "", "dropped"), (2, "", "open"), (3, "", "dropped")]
    state.batch(10, [letter(101)])  # the engine goes on, with its fence
    assert state.ledger.fence == fence
    shown = penstock(tmp_path, "pipelines", "show", "orders").stdout
    assert "1 dead letter dropped, by " in shown
    assert ": a test order" in shown
    listed = penstock(tmp_path, "dlq", "list", "--status", "dropped", "--json").stdout
    assert [json.loads(line)["seq"] for line in listed.splitlines()] == [1, 3]


def test_all_without_a_filter_is_all_that_are_open(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1), letter(2)])
    state.hold(letter(105))
    assert "2 dead letters dropped" in penstock(tmp_path, "dlq", "drop", "--all", "--reason", "old").stderr
    assert [state for _, _, state in _nacks(state)] == ["dropped", "dropped", "held"]
    again = penstock(tmp_path, "dlq", "drop", "--all", "--reason", "old")
    assert (again.returncode, "Nothing was dropped" in again.stderr) == (0, True)
    assert len(_audit(state)) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--code", "x.y"),
        ("ID", "--all"),
        ("ID", "--code", "x.y"),
        ("ID", "--reason", " "),
    ],
)
def test_who_does_not_say_which_or_why_is_asked(state: State, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    state.batch(10, [letter(1)])
    given = [letter(1).id if a == "ID" else a for a in arguments]
    ended = penstock(tmp_path, "dlq", "drop", *given, *(() if "--reason" in given else ("--reason", "no")))
    assert ended.returncode == 2
    assert "[dlq.which]" in ended.stderr
    assert _nacks(state) == [(1, "", "open")]


def test_a_held_record_is_not_dropped(state: State, tmp_path: Path) -> None:
    state.hold(letter(5))
    ended = penstock(tmp_path, "dlq", "drop", letter(5).id, "--reason", "no")
    assert ended.returncode == 2
    assert "[dlq.held]" in ended.stderr
    assert [state for _, _, state in _nacks(state)] == ["held"]
    assert "[dlq.unknown]" in penstock(tmp_path, "dlq", "drop", "beef", "--reason", "no").stderr


def test_a_decision_is_there_as_a_whole_or_not_at_all(state: State) -> None:
    state.batch(10, [letter(1)])

    def fail(point: str, detail: str) -> None:
        if (point, detail) == ("ledger", "decision"):
            raise sqlite3.OperationalError("disk is full")

    faults.install(fail)
    with pytest.raises(LedgerError, match="could not write the decision"):
        decisions.drop(state.folder.ledger, [Wanted()], {"reason": "no"})
    faults.install()
    assert _nacks(state) == [(1, "", "open")]
    assert _audit(state) == []
