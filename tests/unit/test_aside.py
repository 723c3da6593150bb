"""Lines aside: dead letters and counts as JSON that the engine can read back, whatever user code has left in a record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Record
from penstock.engine import aside


@pytest.mark.parametrize(
    "value", [None, b"", b"text", "ü€😀\0\n".encode(), b"\xff\xfe", bytes(range(256)), {"a": [1, None]}]
)
def test_a_payload_comes_back_as_it_was(value: Any) -> None:
    packed = json.loads(json.dumps(aside.payload(value)))
    assert aside.unpack(packed) == value


@pytest.mark.parametrize(
    "value, packed", [(None, None), (b"a", {"text": "a"}), (b"\xff", {"base64": "/w=="}), ({}, {"value": {}})]
)
def test_a_payload_says_what_it_is(value: Any, packed: Any) -> None:
    assert aside.payload(value) == packed


def test_a_form_leaves_out_what_is_not_there() -> None:
    assert aside.form(Record(b"a")) == {"after": {"text": "a"}}
    r = Record({"x": 1}, before=b"\xff", key=b"k", operation="update", namespace="n", metadata={"m": "1"})
    assert aside.form(r) == {
        "after": {"value": {"x": 1}},
        "before": {"base64": "/w=="},
        "key": {"text": "k"},
        "operation": "update",
        "namespace": "n",
        "metadata": {"m": "1"},
    }


def test_a_form_looks_nothing_up() -> None:
    def locate(seq: int) -> Any:
        raise AssertionError(seq)

    assert aside.form(Record(b"a", locate=locate)) == {"after": {"text": "a"}}


def test_a_dead_letter_survives_its_line() -> None:
    r = Record({"n": 2**70}, seq=2**62, part=3, key=b"\xff")
    dead = aside.dead(r, "node", ValueError("ü\n"), "a.code", {"after": {"text": "given"}})
    line = aside.line(dead)
    assert b"\n" not in line
    assert aside.decode_dead(line) == dead
    assert (dead.seq, dead.part, dead.node, dead.code, dead.error) == (2**62, 3, "node", "a.code", "ValueError: ü\n")
    assert dead.at > 1_700_000_000_000


def test_counts_survive_their_line() -> None:
    count = aside.Count(1, 2, 3, 4, 5)
    assert aside.decode_count(aside.line(count)) == count


def test_a_long_error_is_cut() -> None:
    assert len(aside.dead(Record(), "n", "x" * 5000, "c", None).error) == aside.ERROR_CHARACTERS


def test_an_exception_says_its_kind() -> None:
    assert aside.describe(KeyError("a")) == "KeyError: 'a'"
    assert aside.describe(ValueError()) == "ValueError: "


def test_an_exception_that_can_not_say_what_it_is_has_a_kind_still() -> None:
    class Unsayable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert aside.describe(Unsayable()) == "Unsayable"


class Unrepresentable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def deep() -> Any:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    return value


ODD: dict[str, Any] = {
    "an object": object(),
    "an object inside": {"x": [object()]},
    "keys that are no text": {(1, 2): 3},
    "text that is no UTF-8": {"x": "\ud800"},
    "something deep": deep(),
    "something without a name": {"x": Unrepresentable()},
}


@pytest.mark.parametrize(
    "name", [pytest.param(n) if n in ("something deep", "something without a name") else n for n in ODD]
)
def test_whatever_is_in_a_record_its_dead_letter_can_be_written_and_read(name: str) -> None:
    dead = aside.dead(Record(ODD[name], seq=7), "n", "why", "c", {"after": {"text": "given"}})
    again = aside.decode_dead(aside.line(dead))
    assert (again.seq, again.error, again.given) == (7, "why", {"after": {"text": "given"}})


@pytest.mark.parametrize("error", ["\ud800", ValueError("\udcff")])
def test_an_error_that_is_no_utf_8_can_be_written_and_read(error: Any) -> None:
    again = aside.decode_dead(aside.line(aside.dead(Record(b"a", seq=7), "n", error, "c", None)))
    assert again.seq == 7
