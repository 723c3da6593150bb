"""The oracle of the laboratory sees every kind of fault, and nothing where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.lab.oracle import PAD, Account, Tally, Verdict, judge

FATES = ["go", "drop", "bad", "go", "go"]
LINES = [f"f0:0:go:{PAD}", f"f0:3:go:{PAD}", f"f0:4:go:{PAD}"]
LETTERS = {"f0:2": 1}
WHOLE = Account(read=5, acked=5, totals={"out": (3, 1, 1, 0)})


def look(
    lines: Sequence[str] = LINES,
    letters: dict[str, int] = LETTERS,
    account: Account = WHOLE,
    more: Sequence[Sequence[str]] = (),
    **options: Any,
) -> Verdict:
    tally = Tally()
    tally.issue("f0", FATES)
    options = {"ended": True, **options}
    return judge(tally, [list(lines), *map(list, more)], Counter(letters), account, "out", **options)


def kinds(verdict: Verdict) -> set[str]:
    return {kind for kind, n in verdict.counts().items() if n}


def test_what_was_issued_is_there_once_and_the_account_says_so() -> None:
    assert look().clean


def test_each_kind_of_fault_is_seen_and_named() -> None:
    short = Account(read=5, acked=5, totals={"out": (2, 1, 1, 0)})
    longer = Account(read=5, acked=5, totals={"out": (4, 1, 1, 0)})
    assert kinds(look(LINES[:2], account=short)) == {"missing", "wrongly acked"}
    assert kinds(look([*LINES, LINES[2]], account=longer)) == {"duplicated"}
    assert kinds(look([*LINES, f"f0:9:go:{PAD}"])) == {"invented"}
    assert kinds(look([*LINES, "half a li"])) == {"invented"}
    assert kinds(look([LINES[1], LINES[0], LINES[2]])) == {"reordered"}
    assert kinds(look([LINES[0], LINES[1], f"f0:4:go:{PAD[1:]}y"])) == {"corrupted"}
    assert kinds(look(account=short)) == {"account"}
    assert kinds(look(account=Account(5, 5, WHOLE.totals, pending=1))) == {"account"}
    assert kinds(look(account=Account(5, 4, WHOLE.totals))) == {"account"}
    assert kinds(look(account=Account(5, 5, WHOLE.totals, letters={"": 1, "other": 7}))) == set()
    assert kinds(look(account=Account(5, 5, WHOLE.totals, letters={"other": 1}))) == {"account"}


def test_a_record_that_a_filter_drops_or_a_processor_refuses_must_not_arrive() -> None:
    assert "invented" in kinds(look([LINES[0], f"f0:1:drop:{PAD}", *LINES[1:]]))
    assert {"invented", "duplicated"} <= kinds(look([LINES[0], f"f0:2:bad:{PAD}", *LINES[1:]]))


def test_a_dead_letter_is_of_a_bad_record_once() -> None:
    assert "missing" in kinds(look(letters={}))
    assert "duplicated" in kinds(look(letters={"f0:2": 2}))
    assert {"invented", "duplicated"} <= kinds(look(letters={"f0:2": 1, "f0:3": 1}))


@pytest.mark.parametrize(("acked", "wrong"), [(0, False), (3, False), (4, True), (5, True)])
def test_while_it_goes_on_only_what_was_acked_must_be_there(acked: int, wrong: bool) -> None:
    found = look(LINES[:1], account=Account(read=5, acked=acked), ended=False)
    assert kinds(found) == ({"wrongly acked"} if wrong else set())


def test_what_the_source_has_put_away_was_acked() -> None:
    assert kinds(look(LINES[:1], account=Account(), ended=False, gone={"f0"})) == {"wrongly acked"}
    assert look(LINES[:1], account=Account(), ended=False, gone={"f1"}).clean


def test_what_a_place_between_has_was_not_acked_too_early() -> None:
    waiting = {"f0:3", "f0:4"}
    assert look(LINES[:1], account=Account(5, 5), ended=False, between=waiting).clean
    assert kinds(look(LINES[:1], account=Account(5, 5), ended=False, between={"f0:3"})) == {"wrongly acked"}


def test_partitions_keep_an_order_each_and_tables_none() -> None:
    assert look([LINES[1]], more=[[LINES[0], LINES[2]]]).clean
    assert look([LINES[1], LINES[0], LINES[2]], ordered=False).clean
