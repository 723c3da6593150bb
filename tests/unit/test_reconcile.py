"""The ledger against itself and against the ranges of its source: what is found in rows that are right, and in rows that are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import reconcile
from penstock.engine import making
from penstock.ledger import Kind, State
from penstock.ledger.kept import KeptBatch, KeptDelivery, KeptLane
from penstock.ledger.look import LaneView, Share
from penstock.native import Answer, Finding
from penstock.ranges import Range, Ranges
from penstock.reconcile import groups, of_ledger


def delivery(written: int, destination: str = "out", **changes: Any) -> KeptDelivery:
    given: dict[str, Any] = {
        "plugin": "files",
        "settings": {"path": "out"},
        "staged": {"rows": written, "bytes": 0, "manifest": []},
        "filtered": 0,
        "nacked": 0,
        "produced": 0,
        "kind": Kind.DESTINATION,
        "receipt": {"written": written, "filtered": 0, "nacks": {}, "made": []},
        **changes,
    }
    return KeptDelivery(destination, "h", **given)


def batch(number: int, *ranges: Range, state: State = State.DONE, records: int | None = 5, **more: Any) -> KeptBatch:
    deliveries = more.pop("deliveries", (delivery(5),))
    return KeptBatch(number, more.pop("epoch", 1), state, Ranges(ranges), records, deliveries)


def log(start: int, end: int, **more: Any) -> Range:
    return Range("log", {"from": start, "to": end}, start, **more)


def file(start: int, end: int, size: int = 100, mtime: int = 1, **more: Any) -> Range:
    return Range("/in/a", {"size": size, "mtime": mtime, "from": start, "to": end}, **more)


def lane(*batches: KeptBatch, shares: Sequence[Share] = (), strands: dict[str, Range] | None = None) -> KeptLane:
    view = LaneView(1, "p", "in", 10, 10, shares, {}, 0, None)
    return KeptLane(view, 3, 1, batches, {name: (r, batches[-1].batch) for name, r in (strands or {}).items()}, ())


def wrong(findings: Sequence[Finding]) -> list[tuple[int | None, str]]:
    return [(f.batch, f.text) for f in findings if f.answer.wrong]


def ranges(*batches: KeptBatch, **more: Any) -> Sequence[Finding]:
    return of_ledger(lane(*batches, **more)).ranges


# -- ranges -----------------------------------------------------------------------------------------------------------------------


def test_ranges_that_follow_each_other_agree() -> None:
    [found] = ranges(batch(1, log(0, 5)), batch(2, log(5, 9)), batch(3, log(9, 10)))
    assert found == Finding(Answer.AGREES, "3 ranges of 1 strand: no gap, no overlap")


def test_a_gap_is_found() -> None:
    [(at, text)] = wrong(ranges(batch(1, log(0, 5)), batch(2, log(6, 9))))
    assert (at, text) == (2, "log: gap: batch 1 ends before position 5, and this one begins at 6")


def test_an_overlap_is_found() -> None:
    [(at, text)] = wrong(ranges(batch(1, log(0, 5)), batch(2, log(4, 9))))
    assert at == 2
    assert "overlap" in text


def test_a_range_that_two_batches_have_is_found() -> None:
    assert wrong(ranges(batch(1, log(0, 5)), batch(2, log(0, 5)))) == [(2, "log: batch 1 has this range, too")]


def test_a_batch_that_was_split_stands_for_nothing() -> None:
    whole = log(0, 10)
    first, second = Ranges((whole,)).split(4)
    found = ranges(
        batch(1, whole, state=State.SPLIT), batch(2, *first), batch(3, *second), batch(4, log(10, 12), records=2)
    )
    assert wrong(found) == []


@pytest.mark.parametrize(("low", "word"), [(5, "gap"), (3, "overlap"), (None, "overlap")])
def test_parts_of_a_range_that_was_cut_follow_each_other(low: int | None, word: str) -> None:
    [(_, text)] = wrong(ranges(batch(2, log(0, 10, high=4)), batch(3, log(0, 10, low=low))))
    assert word in text


def test_a_part_that_is_in_no_batch_is_found() -> None:
    assert wrong(ranges(batch(2, log(0, 10, high=4)))) == [(2, "log: the records from 4 on are in no batch")]
    [(at, _)] = wrong(ranges(batch(2, log(0, 10, high=4)), batch(3, log(10, 12))))
    assert at == 3


def test_a_file_that_has_changed_is_another_one() -> None:
    assert wrong(ranges(batch(1, file(0, 100)), batch(2, file(0, 120, 120, 2)))) == []
    assert wrong(ranges(batch(1, file(0, 60)), batch(2, file(60, 100)))) == []
    assert wrong(ranges(batch(1, file(0, 60)), batch(2, file(61, 100)))) != []


def test_a_file_that_was_put_back_is_told_and_not_called_wrong() -> None:
    found = ranges(batch(1, file(0, 100)), batch(2, file(0, 100)))
    assert wrong(found) == []
    assert [f.answer for f in found] == [Answer.UNKNOWN, Answer.AGREES]


def test_behind_a_batch_that_was_given_up_the_source_may_begin_anywhere() -> None:
    found = ranges(batch(1, log(0, 5)), batch(2, log(5, 9), state=State.DROPPED, records=None), batch(3, log(7, 9)))
    assert wrong(found) == []


def test_a_rewind_begins_anew() -> None:
    assert wrong(ranges(batch(1, log(0, 5)), batch(2, log(0, 5), epoch=2))) == []


def test_ranges_without_positions_are_not_compared() -> None:
    rows = [Range(f"t@{n}", {"bounds": [n]}, n) for n in range(2)]
    assert wrong(ranges(batch(1, rows[0]), batch(2, rows[1]))) == []


def test_the_source_goes_on_behind_the_last_batch() -> None:
    assert wrong(ranges(batch(1, log(0, 5)), strands={"log": log(0, 5)})) == []
    [(at, text)] = wrong(ranges(batch(1, log(0, 5)), strands={"log": log(0, 7)}))
    assert at == 1
    assert "goes on behind another range" in text


# -- numbers ----------------------------------------------------------------------------------------------------------------------


def numbers(*batches: KeptBatch) -> Sequence[Finding]:
    return of_ledger(lane(*batches)).numbers


def test_every_outcome_counts() -> None:
    refused = {"written": 3, "filtered": 2, "nacks": {}, "made": [], "refused": [[8, 0, "no", "c"], [8, 0, "no", "c"]]}
    d = delivery(3, filtered=2, nacked=1, produced=2, receipt=refused)
    [found] = numbers(batch(1, log(0, 5), deliveries=(d,)))
    assert found == Finding(Answer.AGREES, "1 delivery with an outcome for every record")


def test_a_delivery_that_was_given_up_is_accounted_for() -> None:
    d = delivery(5, receipt={"written": 0, "discarded": 5})
    assert wrong(numbers(batch(1, log(0, 5), deliveries=(d,)))) == []


def test_a_receipt_that_does_not_add_up_is_found() -> None:
    found = numbers(batch(1, log(0, 5)), batch(2, log(5, 10), deliveries=(delivery(4),)))
    assert wrong(found) == [(2, "out: 5 records came, and 4 have an outcome")]
    assert found[-1].answer is Answer.AGREES


def test_a_batch_can_t_be_done_before_its_deliveries_are() -> None:
    prepared = delivery(5, receipt=None)
    assert [at for at, _ in wrong(numbers(batch(1, log(0, 5), deliveries=(prepared,))))] == [1]
    assert wrong(numbers(batch(1, log(0, 5), state=State.PREPARED, deliveries=(prepared,)))) == []


def test_where_nothing_is_kept_nothing_can_be_said() -> None:
    assert [f.answer for f in numbers()] == [Answer.UNKNOWN]
    assert ranges() == ()


# -- the account ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "answer", "words"),
    [
        (Share("out", 7, 2, 1, read=10), Answer.AGREES, "10 read = 7 delivered + 2 filtered + 1 dead-lettered"),
        (Share("out", 9, read=8, produced=1), Answer.AGREES, "8 read + 1 produced = 9 delivered"),
        (Share("out", 7, read=10, apart=3), Answer.AGREES, "7 read = 7 delivered"),
        (Share("out", 7, read=10), Answer.DIFFERS, "10 read ≠ 7 delivered"),
        (Share("out", 7, read=10, kept_all=False), Answer.UNKNOWN, "no longer kept"),
    ],
)
def test_each_destination_has_its_account(share: Share, answer: Answer, words: str) -> None:
    [found] = of_ledger(lane(batch(1, log(0, 5)), shares=(share,))).account
    assert found.answer is answer
    assert words in found.text


# -- who is asked -----------------------------------------------------------------------------------------------------------------


def test_a_destination_is_asked_with_the_settings_of_each_delivery() -> None:
    old, new = delivery(5), delivery(5, settings={"path": "elsewhere"})
    found = groups(lane(batch(1, log(0, 5), deliveries=(old,)), batch(2, log(5, 10), deliveries=(new,))))
    assert [[w.id.batch for w in g.deliveries] for g in found] == [[1], [2]]
    assert [[d.batch for d in g.known] for g in found] == [[1, 2], [1, 2]]


def test_a_destination_has_its_place_where_the_engine_gives_it_one() -> None:
    assert reconcile.PLACES == making.PLACES


def test_nobody_is_asked_for_what_he_never_heard_of() -> None:
    letters = delivery(1, "dead-letters", kind=Kind.DEAD_LETTERS)
    given_up = delivery(5, receipt={"written": 0, "discarded": 5})
    nothing = delivery(0, staged={"rows": 0, "bytes": 0, "manifest": None})
    found = groups(
        lane(*(batch(n, log(n, n + 1), deliveries=(d,)) for n, d in enumerate((letters, given_up, nothing))))
    )
    assert [g.deliveries for g in found] == [[]]
