"""Outcomes in the ledger: dead letters and gates are saved with the step that decides them, and every record counts once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError
from penstock.ledger import Attempt, Kind, Late, Ledger, Nack, NackState, Prepared, Snapshot, State, TargetRef, Totals
from penstock.ledger.replays import KEEP_ERROR
from penstock.ranges import Range, Ranges

OUT = TargetRef("out", "files", {"path": "${OUT}"})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()


def reopened(ledger: Ledger) -> Ledger:
    ledger.close()
    return Ledger(ledger.path)


def dump(ledger: Ledger) -> list[str]:
    """Every row that is committed, read with SQLite alone."""
    db = sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True)
    try:
        return list(db.iterdump())
    finally:
        db.close()


def audit(ledger: Ledger) -> list[tuple[object, ...]]:
    db = sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True)
    try:
        return db.execute("SELECT pipeline, what, detail FROM audit").fetchall()
    finally:
        db.close()


def ranges(base: int = 0, *strands: str) -> Ranges:
    """Strands of ten records each: base, base + 1, …"""
    items = tuple(Range(name, {"to": 9}, base + 10 * n, 9) for n, name in enumerate(strands or ["a"]))
    return Ranges(items, base + 10 * len(items))


def take(ledger: Ledger, base: int = 0, *strands: str) -> Snapshot:
    return ledger.take(ledger.lane("p", "in"), ranges(base, *strands))[0]


def delivery(name: str = "out", kind: Kind = Kind.DESTINATION, **counts: int) -> Prepared:
    return Prepared(name, f"hash {name}", "files", {}, {"rows": 1}, **{"filtered": 0, **counts}, kind=kind)


def nack(seq: int, destination: str = "", state: NackState = NackState.OPEN, part: int = 0) -> Nack:
    record = '{"after":"ü"}' if state is NackState.HELD else None
    return Nack(seq, part, destination, f"id {seq}", b"\x00\xff", "node", "code", "error ü", 5, state, record)


def in_batch(s: Snapshot, *nacks: Nack) -> list[Nack]:
    return [replace(n, batch=s.batch) for n in nacks]


def seqs(ranges: Ranges) -> list[int]:
    return [
        seq
        for r in ranges
        for seq in range(r.base, r.base + 10)
        if (r.low is None or r.low <= seq) and (r.high is None or seq < r.high)
    ]


def totals(ledger: Ledger, destination: str = "out") -> dict[str, int]:
    """What is not 0 of one destination."""
    found = ledger.totals(1)
    columns: dict[str, Mapping[str, int]] = {
        "delivered": found.delivered,
        "filtered": found.filtered,
        "dead_lettered": found.dead_lettered,
        "discarded": found.discarded,
        "produced": found.produced,
    }
    return {name: column[destination] for name, column in columns.items() if column.get(destination)}


# -- attempts -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C7", reason="the ledger's half of the row; the engine's tests fail it five times")
def test_five_failed_attempts_leave_one_snapshot_and_no_death(ledger: Ledger) -> None:
    s, attempt = ledger.take(ledger.lane("p", "in"), ranges())
    for n in range(5):
        ledger.failed(s, attempt, f"failure {n}")
        ledger = reopened(ledger)
        assert ledger.unfinished(s.lane) == [s]
        assert ledger.deaths(s) == 0
        attempt = ledger.retry(s)
        assert attempt.number == n + 2
    ledger.close()


def test_an_attempt_that_ended_without_a_word_was_a_death(ledger: Ledger) -> None:
    s, attempt = ledger.take(ledger.lane("p", "in"), ranges())
    deaths = [ledger.deaths(s)]
    for failed in (False, True, False):
        if failed:
            ledger.failed(s, attempt, "error")
        ledger = reopened(ledger)
        deaths.append(ledger.deaths(s))
        attempt = ledger.retry(s)
    assert deaths == [1, 1, 1, 2]
    ledger.close()


def test_deaths_of_one_batch_are_not_anothers(ledger: Ledger) -> None:
    s, other = take(ledger), take(ledger, 10, "b")
    ledger.retry(s)
    ledger.failed(other, Attempt(1, ""), "error")
    assert (ledger.deaths(s), ledger.deaths(other)) == (2, 0)


def test_an_attempt_says_who_may_have_staged_something_as_it_was_then(ledger: Ledger) -> None:
    moved = replace(OUT, settings={"path": "elsewhere"})
    two = TargetRef("two", "lines", {})
    s, _ = ledger.take(ledger.lane("p", "in"), ranges(), [OUT])
    ledger.retry(s, [OUT])
    ledger.retry(s, [moved, two])
    other = take(ledger, 10, "b")
    again = reopened(ledger)
    assert sorted(again.attempted(s), key=str) == sorted([OUT, moved, two], key=str)
    assert again.attempted(other) == []
    again.close()


# -- prepare --------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S11", reason="one transaction of the ledger; its failing in the middle is tried below")
def test_nacks_and_rings_are_saved_with_the_prepare(ledger: Ledger) -> None:
    s = take(ledger)
    given = [nack(3), nack(1, "out"), nack(3, part=1), nack(1, "dlq")]
    deliveries = [
        delivery(filtered=1, nacked=2, produced=3),
        replace(delivery("dead-letters", Kind.DEAD_LETTERS), gate={"ring": [1], "nacks": [3]}),
        delivery("dlq", Kind.DLQ),
    ]
    ledger.prepare(s, 9, deliveries, iter(given), {"out": "[1,2]", "two": "[]"})
    again = reopened(ledger)
    found = again.nacks(s.lane)
    assert found == in_batch(s, nack(1, "dlq"), nack(1, "out"), nack(3), nack(3, part=1))  # in record order
    assert again.rings(s.lane) == {"out": "[1,2]", "two": "[]"}
    assert sorted(again.prepared(s), key=lambda d: d.destination) == sorted(deliveries, key=lambda d: d.destination)
    assert again.snapshot(s.lane, s.batch).state is State.PREPARED
    again.close()


def test_the_ring_of_the_last_outcome_counts(ledger: Ledger) -> None:
    for n, ring in enumerate(["[1]", "[2,5]"]):
        s = take(ledger, 10 * n, f"f{n}")
        ledger.prepare(s, 1, [delivery()], rings={"out": ring})
        ledger.done(s, "out", {}, 1, frontier)
    ledger.prepare(take(ledger, 50, "x"), 1, [delivery()])
    assert ledger.rings(1) == {"out": "[2,5]"}


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (ZeroDivisionError("in the middle"), False),
        (OSError("the dead letters can't be read"), True),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_prepare_whose_nacks_fail_in_the_middle_is_not_there(
    ledger: Ledger, error: BaseException, broken: bool
) -> None:
    s = take(ledger)
    ledger.hold(s, nack(0, state=NackState.HELD))
    before = dump(ledger)

    def nacks() -> Iterator[Nack]:
        yield nack(1)
        yield nack(2)
        raise error

    with pytest.raises(LedgerError if broken else type(error)):
        ledger.prepare(s, 9, [delivery()], nacks(), {"out": "[1]"})
    assert dump(ledger) == before
    if broken:
        with pytest.raises(LedgerError):
            ledger.retry(s)
        ledger = reopened(ledger)
    assert ledger.unfinished(s.lane) == [s]
    ledger.prepare(s, 9, [delivery()], [nack(1)], {"out": "[9]"})
    assert ledger.nacks(s.lane) == in_batch(s, nack(1))
    assert ledger.rings(s.lane) == {"out": "[9]"}
    ledger.close()


def test_a_prepare_that_names_a_destination_twice_is_not_there(ledger: Ledger) -> None:
    s = take(ledger)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.prepare(s, 9, [delivery(), delivery()], [nack(1)], {"out": "[1]"})
    assert dump(ledger) == before


def test_a_dead_letter_keeps_so_much_of_its_error(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 1, [delivery()], [replace(nack(1), error="ü" * 5000)])
    assert [n.error for n in ledger.nacks(s.lane)] == ["ü" * KEEP_ERROR]


def test_dead_letters_of_lanes_are_kept_apart(ledger: Ledger) -> None:
    s = take(ledger)
    other, _ = ledger.take(ledger.lane("p", "other"), ranges())
    ledger.prepare(s, 1, [delivery()], [nack(1)], {"out": "[1]"})
    ledger.prepare(other, 1, [delivery()], [nack(2)], {"out": "[2]"})
    assert [n.seq for n in ledger.nacks(s.lane)] == [1]
    assert [n.seq for n in ledger.nacks(other.lane)] == [2]
    assert (ledger.rings(s.lane), ledger.rings(other.lane)) == ({"out": "[1]"}, {"out": "[2]"})


# -- done -----------------------------------------------------------------------------------------------------------


def test_all_outcomes_of_a_destination_add_up(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery(filtered=2, nacked=3, produced=4)], [nack(1), nack(2), nack(3)])
    ledger.done(s, "out", {"written": 7}, 7, frontier, discarded=1)
    counts = {"delivered": 7, "filtered": 2, "dead_lettered": 3, "discarded": 1, "produced": 4}
    again = reopened(ledger)
    assert totals(again) == counts
    s = take(again, 10, "b")
    again.prepare(s, 9, [delivery(filtered=2, nacked=3, produced=4)])
    again.done(s, "out", {}, 7, frontier, discarded=1)
    assert totals(again) == {name: 2 * n for name, n in counts.items()}
    again.close()


def test_what_carries_dead_letters_is_no_destination_of_records(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery(nacked=2), delivery("dead-letters", Kind.DEAD_LETTERS), delivery("dlq", Kind.DLQ)])
    for name, written in (("dead-letters", 2), ("out", 7)):
        assert ledger.done(s, name, {}, written, frontier) == []
    assert ledger.done(s, "dlq", {}, 2, frontier) == [s.ranges]
    none = {"out": 0}
    assert ledger.totals(s.lane) == Totals(9, 9, {"out": 7}, none, {"out": 2}, none, none)


@pytest.mark.contract("S11", reason="one transaction of the ledger; its failing in the middle is tried below")
def test_late_nacks_are_saved_with_the_done_and_their_deliveries_hold_up_the_ack(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery(nacked=1)], [nack(1)], {"out": "[8]"})
    late = Late([nack(5, "out"), nack(5, "out", part=1)], [delivery("late.out", Kind.DEAD_LETTERS)], "[4,8]")
    assert ledger.done(s, "out", {}, 6, frontier, late=late) == []
    again = reopened(ledger)
    assert again.nacks(s.lane) == in_batch(s, nack(1), nack(5, "out"), nack(5, "out", part=1))
    assert again.rings(s.lane) == {"out": "[4,8]"}
    assert totals(again) == {"delivered": 6, "dead_lettered": 3}
    assert [(d.destination, d.kind, d.receipt) for d in again.prepared(s)] == [
        ("late.out", Kind.DEAD_LETTERS, None),
        ("out", Kind.DESTINATION, {}),
    ]
    assert again.unfinished(s.lane) == [again.snapshot(s.lane, s.batch)]
    assert again.done(s, "late.out", {}, 2, frontier) == [s.ranges]
    assert totals(again) == {"delivered": 6, "dead_lettered": 3}
    again.close()


def test_late_nacks_that_are_told_twice_count_once(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery(), delivery("two")])
    ledger.done(s, "out", {}, 8, frontier, late=Late([nack(5, "out")], [delivery("late.out", Kind.DLQ)], "[4]"))
    before = dump(ledger)
    again = Late([nack(6, "out")], [delivery("late.again", Kind.DLQ)], "[3]")
    assert ledger.done(s, "out", {}, 8, frontier, late=again, discarded=1) == []
    assert dump(ledger) == before


def test_the_last_delivery_with_late_nacks_is_not_the_last(ledger: Ledger) -> None:
    """A batch is never done between its last destination and the dead letters that this one brought."""
    s = take(ledger)
    ledger.prepare(s, 9, [delivery()])
    assert ledger.done(s, "out", {}, 8, frontier, late=Late([nack(5, "out")], [delivery("dlq", Kind.DLQ)])) == []
    assert ledger.snapshot(s.lane, s.batch).state is State.PREPARED
    assert ledger.done(s, "dlq", {}, 1, frontier) == [s.ranges]


def test_a_done_that_fails_leaves_no_late_nack(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery(), delivery("two")])
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.done(s, "out", {}, 8, frontier, late=Late([nack(5, "out")], [delivery("two")], "[4]"))
    ledger = reopened(ledger)
    assert [line for line in dump(ledger) if "meta" not in line] == [line for line in before if "meta" not in line]
    ledger.close()


def test_an_open_batch_is_not_done(ledger: Ledger) -> None:
    s = take(ledger)
    before = dump(ledger)
    with pytest.raises(LedgerError) as caught:
        ledger.done(s, "out", {}, 8, frontier, late=Late([nack(1)]))
    assert caught.value.code == "ledger.prepared"
    assert dump(ledger) == before
    ledger.prepare(s, 1, [delivery()])  # the ledger itself is not broken by it


def test_a_batch_done_without_settling_is_acked_by_the_advance_that_follows_once(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 9, [delivery()])
    assert ledger.done(s, "out", {}, 9, frontier, settle=False) == []
    again = reopened(ledger)
    assert again.snapshot(s.lane, s.batch).state is State.DONE
    assert (again.totals(s.lane).read, again.totals(s.lane).acked) == (9, 0)
    assert again.lane("p", "in").known.acked == set()
    assert again.advance(s.lane, frontier) == [s.ranges]
    assert again.advance(s.lane, frontier) == []
    assert again.totals(s.lane).acked == 9
    assert again.lane("p", "in").known.acked == {"a"}
    again.close()


def test_a_batch_is_unacked_from_its_last_done_until_the_frontier_has_passed_it(ledger: Ledger) -> None:
    first, second = take(ledger), take(ledger, 10, "b")
    for s in (second, first):
        assert ledger.unacked(s.lane) == []  # the second waits for the first, whoever raises the frontier
        ledger.prepare(s, 9, [delivery()])
        ledger.done(s, "out", {}, 9, frontier, settle=False)
    again = reopened(ledger)
    assert [s.batch for s in again.unacked(first.lane)] == [first.batch, second.batch]
    assert again.advance(first.lane, frontier) == [first.ranges, second.ranges]
    assert again.unacked(first.lane) == []
    again.close()


def test_the_number_of_records_is_known_from_prepare_on(ledger: Ledger) -> None:
    s = take(ledger)
    assert ledger.records(s) == 0
    ledger.prepare(s, 9, [delivery()])
    again = reopened(ledger)
    assert again.records(s) == 9
    again.close()


def test_an_advance_never_passes_a_batch_that_is_not_done(ledger: Ledger) -> None:
    first, second = take(ledger), take(ledger, 10, "b")
    ledger.prepare(second, 1, [delivery()])
    ledger.done(second, "out", {}, 1, frontier, settle=False)
    assert ledger.advance(first.lane, frontier) == []
    ledger.prepare(first, 1, [delivery()])
    assert ledger.done(first, "out", {}, 1, frontier) == [first.ranges, second.ranges]


# -- at most once ---------------------------------------------------------------------------------------------------


def test_at_most_once_a_batch_is_settled_before_it_is_read(ledger: Ledger) -> None:
    s, attempt, settled = ledger.take_and_settle(ledger.lane("p", "in"), ranges(), [OUT], frontier)
    assert (s.state, attempt.number, settled) == (State.TAKEN, 1, [s.ranges])
    again = reopened(ledger)
    lane = again.lane("p", "in")
    assert (lane.next_batch, lane.acked_batch, lane.known.acked) == (2, 1, {"a"})
    assert again.unfinished(s.lane) == [s]
    assert again.attempted(s) == [OUT]
    assert again.advance(s.lane, frontier) == []
    assert (again.totals(s.lane).read, again.totals(s.lane).acked) == (0, 0)
    again.close()


def test_at_most_once_a_batch_is_acked_only_if_it_is_written_down(ledger: Ledger) -> None:
    lane = ledger.lane("p", "in")
    before = dump(ledger)

    def broken(acked: int, batches: object) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.take_and_settle(lane, ranges(), [OUT], broken)
    assert dump(ledger) == before


def test_at_most_once_what_became_of_a_batch_is_counted(ledger: Ledger) -> None:
    s, _, _ = ledger.take_and_settle(ledger.lane("p", "in"), ranges(), [OUT], frontier)
    deliveries = [delivery(filtered=1, nacked=2, produced=3), delivery("dlq", Kind.DLQ)]
    ledger.processed(s, 9, deliveries, iter([nack(1), nack(2)]), {"out": {"written": 9}, "dlq": {"written": 2}})
    again = reopened(ledger)
    assert again.unfinished(s.lane) == []
    assert again.snapshot(s.lane, s.batch).state is State.DONE
    assert again.nacks(s.lane) == in_batch(s, nack(1), nack(2))
    assert {d.destination: d.receipt for d in again.prepared(s)} == {"out": {"written": 9}, "dlq": {"written": 2}}
    assert totals(again) == {"delivered": 9, "filtered": 1, "dead_lettered": 2, "produced": 3}
    assert (again.totals(s.lane).read, again.totals(s.lane).acked) == (9, 9)
    assert again.advance(s.lane, frontier) == []
    again.close()


@pytest.mark.parametrize(("records", "counted"), [(9, 9), (None, 0)])
def test_at_most_once_a_batch_in_flight_at_a_death_is_discarded(
    ledger: Ledger, records: int | None, counted: int
) -> None:
    s, _, _ = ledger.take_and_settle(ledger.lane("p", "in"), ranges(), [OUT], frontier)
    again = reopened(ledger)
    again.lost(s, records, ["out", "two"])
    assert again.unfinished(s.lane) == []
    assert again.advance(s.lane, frontier) == []
    found = again.totals(s.lane)
    assert (found.read, found.acked) == (counted, counted)
    assert found.discarded == {"out": counted, "two": counted}
    assert found.delivered == {"out": 0, "two": 0}
    again.close()


def test_at_most_once_batches_follow_one_another(ledger: Ledger) -> None:
    acked: list[int] = []
    for n in range(4):
        s, _, settled = ledger.take_and_settle(ledger.lane("p", "in"), ranges(10 * n, f"f{n}"), [OUT], frontier)
        acked += [seq for one in settled for seq in seqs(one)]
        ledger = reopened(ledger)
        if n % 2:
            ledger.lost(s, 10, ["out"])
        else:
            ledger.processed(s, 10, [delivery()], (), {"out": {"written": 10}})
    assert acked == list(range(40))
    assert totals(ledger) == {"delivered": 20, "discarded": 20}
    assert (ledger.totals(1).read, ledger.totals(1).acked) == (40, 40)
    ledger.close()


def test_the_frontier_passes_split_taken_and_dropped_batches_and_tells_only_of_records_that_count(
    ledger: Ledger,
) -> None:
    whole, dropped = take(ledger), take(ledger, 10, "b")
    ledger.drop(dropped)
    first, second = ledger.split(whole, *whole.ranges.split(4), "gate")
    for half in (first, second):
        ledger.prepare(half, 5, [delivery()])
        ledger.done(half, "out", {}, 5, frontier, settle=False)
    taken, _, settled = ledger.take_and_settle(ledger.lane("p", "in"), ranges(20, "c"), [OUT], frontier)
    assert settled == [first.ranges, second.ranges, taken.ranges]
    assert ledger.lane("p", "in").acked_batch == taken.batch
    assert ledger.totals(1).acked == 10
    ledger.processed(taken, 7, [], (), {})
    assert (ledger.totals(1).read, ledger.totals(1).acked) == (17, 17)


# -- a delivery that stops ------------------------------------------------------------------------------------------


def hold(ledger: Ledger, s: Snapshot, seq: int, destination: str = "out") -> list[int] | None:
    """Stops a delivery at a record; returns the seqs that may be acked."""
    stopped = nack(seq, destination, NackState.HELD)
    may = ledger.hold_delivery(s, destination, stopped, seq, {"seq": seq})
    return None if may is None else seqs(may)


def test_a_delivery_that_stops_lets_the_records_before_it_be_acked_once(ledger: Ledger) -> None:
    s = take(ledger, 0, "a", "b")
    ledger.prepare(s, 20, [delivery(), delivery("two")])
    ledger.done(s, "two", {}, 20, frontier)
    assert hold(ledger, s, 14) == list(range(14))
    ledger = reopened(ledger)
    [found] = ledger.unfinished(s.lane)
    assert (found.state, found.acked_to) == (State.PREPARED, 14)
    assert {d.destination: (d.held, d.receipt) for d in ledger.prepared(s)} == {
        "out": ({"seq": 14}, None),
        "two": (None, {}),
    }
    assert ledger.nacks(s.lane, NackState.HELD) == in_batch(s, nack(14, "out", NackState.HELD))
    assert hold(ledger, s, 14) is None
    assert hold(ledger, s, 17) == [14, 15, 16]  # it went on, and stopped again
    assert [n.seq for n in ledger.nacks(s.lane)] == [17]
    assert [seqs(r) for r in ledger.done(s, "out", {}, 19, frontier)] == [[17, 18, 19]]
    assert ledger.nacks(s.lane) == []
    assert {d.destination: d.held for d in ledger.prepared(s)} == {"out": None, "two": None}
    assert (ledger.totals(1).read, ledger.totals(1).acked) == (20, 20)
    ledger.close()


def test_a_delivery_that_stops_at_its_first_record_acks_nothing(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery()])
    assert hold(ledger, s, 0) is None
    assert [seqs(r) for r in ledger.done(s, "out", {}, 10, frontier)] == [list(range(10))]


def test_a_delivery_that_stops_earlier_than_before_acks_nothing_twice(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery()])
    assert hold(ledger, s, 6) == list(range(6))
    assert hold(ledger, s, 3) is None
    assert hold(ledger, s, 8) == [6, 7]
    assert [seqs(r) for r in ledger.done(s, "out", {}, 10, frontier)] == [[8, 9]]


def test_nothing_is_acked_while_another_delivery_is_under_way(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery(), delivery("two"), delivery("dlq", Kind.DLQ)])
    assert hold(ledger, s, 4) is None
    assert ledger.done(s, "two", {}, 10, frontier) == []
    assert hold(ledger, s, 4) is None
    assert ledger.done(s, "dlq", {}, 0, frontier) == []
    assert hold(ledger, s, 4) == [0, 1, 2, 3]
    assert [seqs(r) for r in ledger.done(s, "out", {}, 10, frontier)] == [[4, 5, 6, 7, 8, 9]]


def test_nothing_is_acked_while_a_batch_before_it_is_not_done(ledger: Ledger) -> None:
    before, s = take(ledger), take(ledger, 10, "b")
    ledger.prepare(before, 10, [delivery()])
    ledger.prepare(s, 10, [delivery()])
    assert hold(ledger, s, 14) is None
    assert ledger.done(before, "out", {}, 10, frontier) == [before.ranges]
    assert hold(ledger, s, 14) == [10, 11, 12, 13]


def test_nothing_is_acked_while_a_batch_before_it_is_done_and_not_acked(ledger: Ledger) -> None:
    before, s = take(ledger), take(ledger, 10, "b")
    for one in (before, s):
        ledger.prepare(one, 10, [delivery()])
    ledger.done(before, "out", {}, 10, frontier, settle=False)
    assert hold(ledger, s, 14) is None
    assert ledger.advance(s.lane, frontier) == [before.ranges]
    assert hold(ledger, s, 14) == [10, 11, 12, 13]


def test_a_half_of_a_split_stops_inside_its_own_borders(ledger: Ledger) -> None:
    whole = take(ledger)
    first, second = ledger.split(whole, *whole.ranges.split(4), "killed")
    ledger.prepare(first, 4, [delivery()])
    ledger.done(first, "out", {}, 4, frontier)
    ledger.prepare(second, 6, [delivery()])
    assert hold(ledger, second, 7) == [4, 5, 6]
    assert [seqs(r) for r in ledger.done(second, "out", {}, 6, frontier)] == [[7, 8, 9]]


def test_the_dead_letter_that_ends_a_hold_takes_its_place(ledger: Ledger) -> None:
    """The operator skips the record: it becomes a late nack like any other."""
    s = take(ledger)
    ledger.prepare(s, 10, [delivery()], [nack(1)])
    hold(ledger, s, 4)
    ledger.done(s, "out", {}, 8, frontier, late=Late([nack(4, "out")], ring="[6]"))
    assert ledger.nacks(s.lane) == in_batch(s, nack(1), nack(4, "out"))
    assert totals(ledger) == {"delivered": 8, "dead_lettered": 1}


def test_two_deliveries_that_stop_are_both_held(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery(), delivery("two")])
    hold(ledger, s, 6, "out")
    hold(ledger, s, 4, "two")
    held = in_batch(s, nack(4, "two", NackState.HELD), nack(6, "out", NackState.HELD))
    assert ledger.nacks(s.lane, NackState.HELD) == held
    ledger.done(s, "two", {}, 10, frontier)
    assert ledger.nacks(s.lane, NackState.HELD) == held[1:]


@pytest.mark.parametrize(
    "order",
    [
        ("two", "out"),
        ("out", "two"),
    ],
)
def test_of_two_deliveries_that_stop_the_one_that_came_less_far_decides(ledger: Ledger, order: tuple[str, ...]) -> None:
    """A record that one of them has not delivered is pending: it is never acked."""
    stops = {"out": 4, "two": 6}
    s = take(ledger)
    ledger.prepare(s, 10, [delivery(), delivery("two")])
    acked = [seq for name in order for seq in hold(ledger, s, stops[name], name) or []]
    assert all(seq < 4 for seq in acked)
    for name in order:
        acked += [seq for r in ledger.done(s, name, {}, 10, frontier) for seq in seqs(r)]
    assert acked == list(range(10))


# -- given up on purpose --------------------------------------------------------------------------------------------


def test_a_delivery_that_a_person_gave_up_is_discarded_and_written_down(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery(filtered=1, nacked=2), delivery("two")])
    assert ledger.abandon(s, "out", "p", 7, frontier) == []
    again = reopened(ledger)
    [(pipeline, what, detail)] = audit(again)
    assert (pipeline, what) == ("p", "abandon")
    assert json.loads(str(detail)) == {"batch": s.batch, "destination": "out", "records": 7}
    assert totals(again) == {"filtered": 1, "dead_lettered": 2, "discarded": 7}
    assert {d.destination: d.receipt for d in again.prepared(s)} == {"out": {"written": 0, "discarded": 7}, "two": None}
    assert again.done(s, "two", {}, 10, frontier) == [s.ranges]
    again.close()


def test_giving_up_the_last_delivery_settles_the_batch(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery()])
    hold(ledger, s, 4)
    assert [seqs(r) for r in ledger.abandon(s, "out", "p", 10, frontier)] == [[4, 5, 6, 7, 8, 9]]
    assert ledger.unfinished(s.lane) == []
    assert ledger.nacks(s.lane) == []


def test_a_delivery_given_up_twice_is_discarded_once(ledger: Ledger) -> None:
    s = take(ledger)
    ledger.prepare(s, 10, [delivery(), delivery("two")])
    for _ in range(2):
        assert ledger.abandon(s, "out", "p", 10, frontier) == []
    assert totals(ledger) == {"discarded": 10}


def test_what_was_not_given_up_is_not_written_down(ledger: Ledger) -> None:
    s = take(ledger)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.abandon(s, "out", "p", 10, frontier)
    assert dump(ledger) == before


def test_a_lane_that_did_nothing_has_no_totals(ledger: Ledger) -> None:
    assert ledger.totals(ledger.lane("p", "in").key) == Totals(0, 0, {}, {}, {}, {}, {})
