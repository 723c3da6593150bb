"""The ledger on real SQLite files: what is written down is there again after a reopen, and nothing else is."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError, UsageError
from penstock.ledger import Attempt, Lane, Ledger, Prepared, Snapshot, State, Totals
from penstock.ranges import Range, Ranges
from penstock.testing import faults


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()


def reopened(ledger: Ledger) -> Ledger:
    """What the next process sees."""
    ledger.close()
    return Ledger(ledger.path)


def ranges(*names: str, next_seq: int = 0, forget: tuple[str, ...] = (), size: int = 1) -> Ranges:
    position = {"size": size, "mtime": 5, "from": 0, "to": size}
    return Ranges(tuple(Range(n, position, base=7, size=size) for n in names), next_seq, forget)


def prepared(destination: str = "out", filtered: int = 0) -> Prepared:
    staged = {"rows": 1, "manifest": [{"staged": "ä", "name": "b"}]}
    return Prepared(destination, f"hash of {destination}", "files", {"path": "${OUT}"}, staged, filtered)


def take(ledger: Ledger, *names: str) -> Snapshot:
    return ledger.take(ledger.lane("p", "in"), ranges(*names))[0]


def finish(ledger: Ledger, s: Snapshot, *, records: int = 1, written: int = 1) -> list[Ranges]:
    ledger.prepare(s, records, [prepared()])
    return ledger.done(s, "out", {"written": written}, written, frontier)


def totals(read: int, acked: int, delivered: Mapping[str, int], filtered: Mapping[str, int]) -> Totals:
    """Of a lane that never nacked, discarded or produced anything: every destination it knows says so with a 0."""
    nothing = dict.fromkeys(delivered, 0)
    return Totals(read, acked, delivered, filtered, nothing, nothing, nothing)


def names(settled: list[Ranges]) -> list[str]:
    return [r.strand for one in settled for r in one]


def rows(ledger: Ledger, sql: str) -> list[tuple[object, ...]]:
    """A look with SQLite alone: only what is committed."""
    db = sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


# -- snapshots and attempts -----------------------------------------------------------------------------------------


def test_a_new_lane_has_nothing_behind_it(ledger: Ledger) -> None:
    lane = ledger.lane("p", "in")
    assert (lane.next_batch, lane.acked_batch, lane.known.next_seq) == (1, 0, 0)
    assert (lane.known.strands, lane.known.acked) == ({}, set())
    assert ledger.unfinished(lane.key) == []
    assert ledger.totals(lane.key) == totals(0, 0, {}, {})


def test_a_snapshot_is_there_after_a_reopen_as_it_was_taken(ledger: Ledger) -> None:
    given = ranges("/in/ü a.txt", "/in/b.txt", next_seq=42)
    s, attempt = ledger.take(ledger.lane("p", "in"), given)
    assert (s.batch, s.state, s.ranges, attempt.number) == (1, State.OPEN, given, 1)
    again = reopened(ledger)
    assert again.unfinished(s.lane) == [s]
    lane = again.lane("p", "in")
    assert lane.known.strands == {r.strand: r for r in given}
    assert (lane.next_batch, lane.known.next_seq, lane.known.acked) == (2, 42, set())
    assert rows(again, "SELECT batch, number, id, fence, error FROM attempt") == [(1, 1, attempt.id, 1, None)]
    again.close()


def test_batches_of_a_lane_are_numbered_without_gaps_over_reopens(ledger: Ledger) -> None:
    numbers = []
    for n in range(4):
        numbers.append(take(ledger, f"f{n}").batch)
        ledger = reopened(ledger)
    ledger.close()
    assert numbers == [1, 2, 3, 4]


def test_next_seq_never_falls(ledger: Ledger) -> None:
    lane = ledger.lane("p", "in")
    ledger.take(lane, ranges("a", next_seq=100))
    ledger.take(lane, ranges("b", next_seq=3))
    assert ledger.lane("p", "in").known.next_seq == 100


def test_lanes_are_kept_apart_by_pipeline_and_source(ledger: Ledger) -> None:
    lanes = [ledger.lane(p, s) for p, s in (("a.b", "c"), ("a", "b.c"), ("a", "c"))]
    assert len({lane.key for lane in lanes}) == 3
    s, _ = ledger.take(lanes[0], ranges("x"))
    finish(ledger, s)
    for other in lanes[1:]:
        assert ledger.lane(other.pipeline, other.source) == other
        assert ledger.totals(other.key) == totals(0, 0, {}, {})


def test_every_attempt_has_the_next_number_and_an_id_of_its_own(ledger: Ledger) -> None:
    s, first = ledger.take(ledger.lane("p", "in"), ranges("a"))
    attempts = [first, ledger.retry(s)]
    ledger = reopened(ledger)
    attempts += [ledger.retry(s), ledger.retry(s)]
    assert [a.number for a in attempts] == [1, 2, 3, 4]
    assert len({a.id for a in attempts}) == 4
    assert ledger.unfinished(s.lane) == [s]
    assert rows(ledger, "SELECT number, fence FROM attempt ORDER BY number") == [(1, 1), (2, 1), (3, 2), (4, 2)]
    ledger.close()


def test_a_failed_attempt_says_why(ledger: Ledger) -> None:
    s, first = ledger.take(ledger.lane("p", "in"), ranges("a"))
    ledger.failed(s, first, "x" * 5000)
    ledger.failed(s, Attempt(2, "no such attempt"), "nobody")
    ledger.retry(s)
    assert rows(ledger, "SELECT error FROM attempt ORDER BY number") == [("x" * 2000,), (None,)]
    assert ledger.unfinished(s.lane) == [s]


# -- prepare and done -----------------------------------------------------------------------------------------------


def test_what_was_prepared_is_there_after_a_reopen(ledger: Ledger) -> None:
    s = take(ledger, "a")
    given = [prepared("one", filtered=3), prepared("two")]
    ledger.prepare(s, 9, given)
    again = reopened(ledger)
    [found] = again.unfinished(s.lane)
    assert found.state is State.PREPARED
    assert again.prepared(found) == given
    assert again.totals(s.lane) == totals(0, 0, {}, {})
    again.close()


def test_a_receipt_is_kept_with_its_delivery(ledger: Ledger) -> None:
    s = take(ledger, "a")
    ledger.prepare(s, 9, [prepared("one"), prepared("two")])
    ledger.done(s, "one", {"written": 9, "made": ["ü"]}, 9, frontier)
    again = reopened(ledger)
    assert {p.destination: p.receipt for p in again.prepared(s)} == {"one": {"written": 9, "made": ["ü"]}, "two": None}
    again.close()


def test_a_batch_is_acked_only_when_all_its_destinations_are_done(ledger: Ledger) -> None:
    s = take(ledger, "a")
    ledger.prepare(s, 5, [prepared("one", filtered=2), prepared("two")])
    assert ledger.done(s, "two", {}, 5, frontier) == []
    assert ledger.totals(s.lane) == totals(0, 0, {"two": 5}, {"two": 0})
    assert [x.state for x in ledger.unfinished(s.lane)] == [State.PREPARED]
    assert ledger.done(s, "one", {}, 3, frontier) == [s.ranges]
    assert ledger.totals(s.lane) == totals(5, 5, {"one": 3, "two": 5}, {"one": 2, "two": 0})
    assert ledger.unfinished(s.lane) == []


@pytest.mark.contract("S9", safeguard="prefix-ack")
def test_a_batch_done_before_an_earlier_one_is_not_acked(ledger: Ledger) -> None:
    first, second, third = take(ledger, "a"), take(ledger, "b"), take(ledger, "c")
    assert finish(ledger, second, records=2, written=2) == []
    assert ledger.totals(first.lane) == totals(2, 0, {"out": 2}, {"out": 0})
    again = reopened(ledger)
    assert again.lane("p", "in").known.acked == set()
    assert finish(again, first, records=3, written=3) == [first.ranges, second.ranges]
    assert finish(again, third) == [third.ranges]
    assert again.totals(first.lane) == totals(6, 6, {"out": 6}, {"out": 0})
    again.close()


@pytest.mark.contract("S9", safeguard="prefix-ack")
def test_without_the_safeguard_a_later_batch_is_acked_first(ledger: Ledger) -> None:
    take(ledger, "a")
    later = take(ledger, "b")
    faults.install(off=["prefix-ack"])
    assert finish(ledger, later) == [later.ranges]


@pytest.mark.contract("S9", safeguard="ack-once")
def test_ranges_are_acked_in_order_and_once_over_reopens(ledger: Ledger) -> None:
    acked: list[str] = []
    for n in range(4):
        s = take(ledger, f"a{n}", f"b{n}")
        acked += names(finish(ledger, s))
        acked += names(ledger.done(s, "out", {}, 1, frontier))
        ledger = reopened(ledger)
        acked += names(ledger.done(s, "out", {}, 1, frontier))
    ledger.close()
    assert acked == [f"{x}{n}" for n in range(4) for x in "ab"]


@pytest.mark.contract("S9", safeguard="ack-once")
def test_without_the_stored_frontier_a_range_is_acked_twice(ledger: Ledger) -> None:
    faults.install(off=["ack-once"])
    s = take(ledger, "a")
    assert finish(ledger, s) == ledger.done(s, "out", {}, 1, frontier) == [s.ranges]


def test_done_twice_counts_totals_once(ledger: Ledger) -> None:
    s = take(ledger, "a")
    ledger.prepare(s, 7, [prepared(filtered=2)])
    for _ in range(3):
        ledger.done(s, "out", {"first": True}, 5, frontier)
    assert ledger.totals(s.lane) == totals(7, 7, {"out": 5}, {"out": 2})
    assert [p.receipt for p in ledger.prepared(s)] == [{"first": True}]


def test_totals_add_up_over_batches_and_reopens(ledger: Ledger) -> None:
    for n in range(3):
        s = take(ledger, f"f{n}")
        ledger.prepare(s, 10, [prepared("one", filtered=1), prepared("two", filtered=4)])
        ledger.done(s, "one", {}, 9, frontier)
        ledger.done(s, "two", {}, 6, frontier)
        ledger = reopened(ledger)
    assert ledger.totals(1) == totals(30, 30, {"one": 27, "two": 18}, {"one": 3, "two": 12})
    ledger.close()


# -- what is known of strands ---------------------------------------------------------------------------------------


def test_known_strands_and_the_acked_among_them_are_there_after_a_reopen(ledger: Ledger) -> None:
    finish(ledger, take(ledger, "done"))
    ledger.prepare(take(ledger, "prepared"), 1, [prepared()])
    take(ledger, "open")
    again = reopened(ledger)
    known = again.lane("p", "in").known
    assert set(known.strands) == {"done", "prepared", "open"}
    assert known.acked == {"done"}
    again.close()


def test_a_strand_taken_again_is_known_by_its_last_range_and_no_longer_acked(ledger: Ledger) -> None:
    lane = ledger.lane("p", "in")
    finish(ledger, ledger.take(lane, ranges("a", size=1))[0])
    ledger.take(lane, ranges("a", size=2))
    again = reopened(ledger)
    known = again.lane("p", "in").known
    assert known.strands == {"a": ranges("a", size=2)[0]}
    assert known.acked == set()
    again.close()


def test_a_strand_that_the_source_forgets_is_forgotten(ledger: Ledger) -> None:
    finish(ledger, take(ledger, "a", "b"))
    ledger.take(ledger.lane("p", "in"), ranges("c", forget=("a", "never seen")))
    again = reopened(ledger)
    assert set(again.lane("p", "in").known.strands) == {"b", "c"}
    again.close()


def test_a_strand_forgotten_and_taken_in_one_snapshot_is_known(ledger: Ledger) -> None:
    finish(ledger, take(ledger, "a"))
    ledger.take(ledger.lane("p", "in"), ranges("a", forget=("a",), size=9))
    assert ledger.lane("p", "in").known.strands == {"a": ranges("a", size=9)[0]}


def test_one_lane_forgets_nothing_of_another(ledger: Ledger) -> None:
    ledger.take(ledger.lane("p", "other"), ranges("a"))
    ledger.take(ledger.lane("p", "in"), ranges("b", forget=("a",)))
    assert set(ledger.lane("p", "other").known.strands) == {"a"}


# -- drop and rewind ------------------------------------------------------------------------------------------------


def test_the_strands_of_a_dropped_batch_are_new_again(ledger: Ledger) -> None:
    finish(ledger, take(ledger, "a"))
    dropped = take(ledger, "b", "c")
    ledger.drop(dropped)
    again = reopened(ledger)
    assert set(again.lane("p", "in").known.strands) == {"a"}
    assert again.unfinished(dropped.lane) == []
    assert take(again, "b").batch == dropped.batch + 1
    again.close()


def test_a_dropped_batch_holds_nothing_up_and_is_itself_never_acked_nor_counted(ledger: Ledger) -> None:
    dropped, kept = take(ledger, "a"), take(ledger, "b")
    ledger.drop(dropped)
    assert finish(ledger, kept, records=4, written=4) == [kept.ranges]
    assert ledger.totals(kept.lane) == totals(4, 4, {"out": 4}, {"out": 0})


@pytest.mark.parametrize("state", [State.PREPARED, State.DONE])
def test_a_batch_that_is_prepared_can_not_be_given_up(ledger: Ledger, state: State) -> None:
    s = take(ledger, "a")
    ledger.prepare(s, 1, [prepared()])
    if state is State.DONE:
        ledger.done(s, "out", {}, 1, frontier)
    before = ledger.lane("p", "in")
    with pytest.raises(LedgerError) as caught:
        ledger.drop(s)
    assert caught.value.code == "ledger.prepared"
    assert ledger.lane("p", "in") == before
    assert [x.state for x in ledger.unfinished(s.lane)] == ([State.PREPARED] if state is State.PREPARED else [])
    take(ledger, "b")  # the ledger itself is not broken by it


def test_after_a_rewind_nothing_is_known_and_the_epoch_is_new(ledger: Ledger) -> None:
    before = ledger.lane("p", "in")
    ledger.take(before, ranges("a", next_seq=50))
    finish(ledger, ledger.unfinished(before.key)[0])
    ledger.rewind("p", "in")
    again = reopened(ledger)
    lane = again.lane("p", "in")
    assert (lane.known.strands, lane.known.acked) == ({}, set())
    assert lane.epoch == before.epoch + 1
    assert lane.known.next_seq == 50
    s = take(again, "a")
    assert (s.batch, s.epoch) == (2, lane.epoch)
    assert finish(again, s) == [s.ranges]
    again.close()


@pytest.mark.parametrize("state", [State.OPEN, State.PREPARED])
def test_a_lane_with_an_unfinished_batch_is_not_rewound(ledger: Ledger, state: State) -> None:
    s = take(ledger, "a")
    if state is State.PREPARED:
        ledger.prepare(s, 1, [prepared()])
    before = ledger.lane("p", "in")
    with pytest.raises(UsageError) as caught:
        ledger.rewind("p", "in")
    assert caught.value.code == "state.unfinished"
    assert ledger.lane("p", "in") == before
    assert [x.state for x in ledger.unfinished(s.lane)] == [state]


def test_a_rewind_leaves_other_lanes_alone(ledger: Ledger) -> None:
    other = ledger.lane("p", "other")
    finish(ledger, ledger.take(other, ranges("a"))[0])
    before = ledger.lane("p", "other")
    ledger.rewind("p", "in")
    assert ledger.lane("p", "other") == before


# -- pruning --------------------------------------------------------------------------------------------------------


def test_rows_of_old_batches_are_pruned_while_totals_and_strands_stay(ledger: Ledger) -> None:
    kept = 20
    settled = kept + 5
    ledger.keep(ledger.lane("p", "in").key, kept)
    for n in range(settled):
        finish(ledger, take(ledger, f"f{n}"), records=2, written=2)
    expected = [(n,) for n in range(settled - kept + 1, settled + 1)]
    for table in ("snapshot", "attempt", "delivery"):
        assert rows(ledger, f"SELECT DISTINCT batch FROM {table} ORDER BY batch") == expected
    again = reopened(ledger)
    lane = again.lane("p", "in")
    assert again.totals(lane.key) == totals(2 * settled, 2 * settled, {"out": 2 * settled}, {"out": 0})
    assert lane.known.acked == {f"f{n}" for n in range(settled)}
    assert (lane.next_batch, lane.acked_batch) == (settled + 1, settled)
    again.close()


def test_an_unfinished_batch_is_never_pruned(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ledger.sqlite.KEEP_BATCHES", 2)
    finish(ledger, take(ledger, "first"))
    stuck = take(ledger, "stuck")
    ledger.prepare(stuck, 1, [prepared()])
    later = [take(ledger, f"f{n}") for n in range(8)]
    assert [finish(ledger, s) for s in later] == [[]] * 8
    [found] = ledger.unfinished(stuck.lane)
    assert (found.batch, len(ledger.prepared(found))) == (stuck.batch, 1)
    assert names(ledger.done(found, "out", {}, 1, frontier)) == ["stuck", *(f"f{n}" for n in range(8))]


def test_pruning_touches_only_its_own_lane(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.ledger.sqlite.KEEP_BATCHES", 1)
    other = ledger.take(ledger.lane("p", "other"), ranges("a"))[0]
    for n in range(4):
        finish(ledger, take(ledger, f"f{n}"))
    assert ledger.unfinished(other.lane) == [other]


# -- threads --------------------------------------------------------------------------------------------------------


def test_lanes_may_write_at_the_same_time(ledger: Ledger) -> None:
    lanes = [ledger.lane("p", f"in{n}") for n in range(4)]
    acked: dict[int, list[str]] = {lane.key: [] for lane in lanes}
    errors: list[BaseException] = []

    def work(lane: Lane) -> None:
        try:
            for n in range(10):
                s, _ = ledger.take(lane, ranges(f"f{n}"))
                ledger.retry(s)
                acked[lane.key] += names(finish(ledger, s))
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    for lane in lanes:
        assert acked[lane.key] == [f"f{n}" for n in range(10)]
        assert ledger.totals(lane.key) == totals(10, 10, {"out": 10}, {"out": 0})
