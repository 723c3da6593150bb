"""Splits in the ledger: two smaller batches stand for one, and the order of numbers stays the order of records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError
from penstock.ledger import Ledger, Nack, NackState, Prepared, Snapshot, State, TargetRef
from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges

WIDTH = 10  # every range below has this many records, one per seq


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()


def reopened(ledger: Ledger) -> Ledger:
    ledger.close()
    return Ledger(ledger.path)


def rows(ledger: Ledger, sql: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def dump(ledger: Ledger) -> list[str]:
    db = sqlite3.connect(f"file:{ledger.path}?mode=ro", uri=True)
    try:
        return list(db.iterdump())
    finally:
        db.close()


def take(ledger: Ledger, base: int, *strands: str) -> Snapshot:
    """A batch of strands with records base, base + 1, …, ten each."""
    items = tuple(Range(name, {"to": WIDTH}, base + n * WIDTH, WIDTH) for n, name in enumerate(strands))
    return ledger.take(ledger.lane("p", "in"), Ranges(items, base + len(strands) * WIDTH))[0]


def split(ledger: Ledger, s: Snapshot, at: int, held: Nack | None = None) -> tuple[Snapshot, Snapshot]:
    first, second = ledger.split(s, *s.ranges.split(at), "gate", held)
    return first, second


def finish(ledger: Ledger, s: Snapshot, records: int = 1) -> list[Ranges]:
    ledger.prepare(s, records, [Prepared("out", f"hash {s.batch}", "files", {}, {}, 0)])
    return ledger.done(s, "out", {"written": records}, records, frontier)


def seqs(ranges: Ranges) -> list[int]:
    return [
        seq
        for r in ranges
        for seq in range(r.base, r.base + WIDTH)
        if (r.low is None or r.low <= seq) and (r.high is None or seq < r.high)
    ]


def strands(ledger: Ledger) -> dict[object, object]:
    """By name the batch that took it last."""
    return dict(rows(ledger, "SELECT name, batch FROM strand"))  # type: ignore[arg-type]


def finish_all(ledger: Ledger) -> list[int]:
    """Everything that is unfinished, in the order of numbers; returns the seqs that were acked, in the order of the acks."""
    acked: list[int] = []
    while found := ledger.unfinished(1):
        for settled in finish(ledger, found[0]):
            acked += seqs(settled)
    return acked


def held(seq: int, error: str = "error") -> Nack:
    return Nack(seq, 0, "", f"id {seq}", b"%d" % seq, "node", "code", error, 5, NackState.HELD, '{"after":1}')


# -- one split ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C7", reason="the ledger's half of the row; the engine's tests fail it five times")
def test_a_split_names_its_parent_and_why(ledger: Ledger) -> None:
    s = take(ledger, 0, "a", "b")
    first, second = split(ledger, s, 14)
    again = reopened(ledger)
    assert again.unfinished(s.lane) == [first, second]
    assert [(x.batch, x.parent, x.reason, x.state) for x in (first, second)] == [
        (2, s.batch, "gate", State.OPEN),
        (3, s.batch, "gate", State.OPEN),
    ]
    assert again.snapshot(s.lane, s.batch).state is State.SPLIT
    assert (seqs(first.ranges), seqs(second.ranges)) == (list(range(14)), list(range(14, 20)))
    assert {(x.epoch, x.batch_time) for x in (first, second)} == {(s.epoch, s.batch_time)}
    assert again.lane("p", "in").next_batch == 4
    again.close()


def test_the_halves_are_tried_under_hashes_and_attempts_of_their_own(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    ledger.retry(s)
    first, second = split(ledger, s, 4)
    assert len({delivery_hash("p", "in", x.epoch, "out", x.ranges) for x in (s, first, second)}) == 3
    assert [ledger.deaths(x) for x in (s, first, second)] == [2, 0, 0]
    assert [ledger.retry(x).number for x in (first, second)] == [1, 1]


def test_a_strand_belongs_to_the_half_that_holds_its_end(ledger: Ledger) -> None:
    s = take(ledger, 0, "a", "b", "c")
    first, second = split(ledger, s, 14)
    assert strands(ledger) == {"a": first.batch, "b": second.batch, "c": second.batch}
    finish(ledger, first)
    assert ledger.lane("p", "in").known.acked == {"a"}
    finish(ledger, second)
    assert ledger.lane("p", "in").known.acked == {"a", "b", "c"}
    assert set(ledger.lane("p", "in").known.strands) == {"a", "b", "c"}


def test_what_a_source_knows_of_a_strand_is_its_whole_range(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    split(ledger, s, 4)
    assert ledger.lane("p", "in").known.strands == {"a": s.ranges[0]}


def test_both_halves_are_acked_one_after_the_other_and_the_parent_never(ledger: Ledger) -> None:
    s = take(ledger, 0, "a", "b")
    first, second = split(ledger, s, 14)
    assert finish(ledger, first, 14) == [first.ranges]
    assert finish(ledger, second, 6) == [second.ranges]
    totals = ledger.totals(s.lane)
    assert (totals.read, totals.acked, totals.delivered) == (20, 20, {"out": 20})


def test_a_second_half_done_first_waits_for_the_first(ledger: Ledger) -> None:
    first, second = split(ledger, take(ledger, 0, "a"), 4)
    assert finish(ledger, second) == []
    assert finish(ledger, first) == [first.ranges, second.ranges]


def test_a_dropped_half_holds_nothing_up(ledger: Ledger) -> None:
    first, second = split(ledger, take(ledger, 0, "a", "b"), 14)
    ledger.drop(first)
    assert strands(ledger) == {"b": second.batch}
    assert finish(ledger, second) == [second.ranges]


def test_lanes_are_split_apart(ledger: Ledger) -> None:
    other, _ = ledger.take(ledger.lane("p", "other"), Ranges((Range("a", {}, 0, 1),), 10))
    split(ledger, take(ledger, 0, "a"), 4)
    assert ledger.unfinished(other.lane) == [other]
    assert rows(ledger, "SELECT name, batch FROM strand WHERE lane = 1") == [("a", 1)]


# -- what waits behind it -------------------------------------------------------------------------------------------


def test_what_waits_behind_a_split_batch_gets_later_numbers(ledger: Ledger) -> None:
    s, behind, last = take(ledger, 0, "a"), take(ledger, 10, "b"), take(ledger, 20, "c", "d")
    ledger.retry(behind, [TargetRef("out", "files", {})])
    first, second = split(ledger, s, 4)
    again = reopened(ledger)
    found = again.unfinished(s.lane)
    assert [x.ranges for x in found] == [first.ranges, second.ranges, behind.ranges, last.ranges]
    assert [x.batch for x in found] == [4, 5, 6, 7]
    assert again.lane("p", "in").next_batch == 8
    assert strands(again) == {"a": 5, "b": 6, "c": 7, "d": 7}
    assert rows(again, "SELECT batch, number FROM attempt ORDER BY batch, number") == [(1, 1), (6, 1), (6, 2), (7, 1)]
    assert again.deaths(found[2]) == 2
    assert again.attempted(found[2]) == [TargetRef("out", "files", {})]
    assert finish_all(again) == list(range(40))
    again.close()


def test_the_parent_of_a_batch_that_waits_stays_its_parent(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    first, _ = split(ledger, s, 6)
    nearer = split(ledger, first, 3)
    assert [(x.batch, x.parent) for x in ledger.unfinished(s.lane)] == [(4, 2), (5, 2), (6, 1)]
    assert [x.batch for x in nearer] == [4, 5]
    assert [(x.batch, x.state) for x in (ledger.snapshot(s.lane, n) for n in (1, 2))] == [
        (1, State.SPLIT),
        (2, State.SPLIT),
    ]


@pytest.mark.parametrize("order", [(8, 4, 2, 1), (1, 2, 4, 8), (5, 2, 8, 12, 25, 29, 17), (10, 20, 15, 5, 25)])
def test_after_any_splits_the_order_of_numbers_is_the_order_of_records(ledger: Ledger, order: tuple[int, ...]) -> None:
    """Down to single records, as for a batch that kills: whichever piece holds a seq is split there."""
    take(ledger, 0, "a", "b")
    take(ledger, 20, "c")
    for at in order:
        [piece] = [s for s in ledger.unfinished(1) if at in seqs(s.ranges)]
        if seqs(piece.ranges)[0] != at:
            split(ledger, piece, at)
        found = [seq for s in ledger.unfinished(1) for seq in seqs(s.ranges)]
        assert found == list(range(30))
        ledger = reopened(ledger)
    assert finish_all(ledger) == list(range(30))
    assert ledger.lane("p", "in").known.acked == {"a", "b", "c"}
    ledger.close()


def test_a_strand_of_a_half_that_waits_stays_with_it_when_the_other_half_is_split(ledger: Ledger) -> None:
    first, _ = split(ledger, take(ledger, 0, "a"), 6)
    one, two = split(ledger, first, 3)
    [_, _, waiting] = ledger.unfinished(1)
    assert strands(ledger) == {"a": waiting.batch}
    finish(ledger, one)
    finish(ledger, two)
    assert ledger.lane("p", "in").known.acked == set()  # its end is not delivered
    ledger.drop(waiting)
    assert ledger.lane("p", "in").known.strands == {}  # so that it is taken anew


def test_batches_done_before_a_split_stay_as_they_are(ledger: Ledger) -> None:
    done = take(ledger, 0, "a")
    finish(ledger, done)
    s = take(ledger, 10, "b")
    split(ledger, s, 14)
    assert ledger.snapshot(1, done.batch).state is State.DONE
    assert strands(ledger)["a"] == done.batch
    assert finish_all(ledger) == list(range(10, 20))


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PREPARED, State.DONE, State.DROPPED, State.SPLIT, State.TAKEN])
def test_only_an_unprepared_batch_is_split(ledger: Ledger, state: State) -> None:
    lane = ledger.lane("p", "in")
    ranges = Ranges((Range("a", {}, 0, 1),), 10)
    s = ledger.take_and_settle(lane, ranges, (), frontier)[0] if state is State.TAKEN else ledger.take(lane, ranges)[0]
    if state in (State.PREPARED, State.DONE):
        ledger.prepare(s, 1, [Prepared("out", "h", "files", {}, {}, 0)])
    if state is State.DONE:
        ledger.done(s, "out", {}, 1, frontier)
    elif state is State.DROPPED:
        ledger.drop(s)
    elif state is State.SPLIT:
        split(ledger, s, 4)
    before = dump(ledger)
    with pytest.raises(LedgerError) as caught:
        split(ledger, s, 5, held(5))
    assert caught.value.code == "ledger.prepared"
    assert dump(ledger) == before
    take(ledger, 50, "b")  # the ledger itself is not broken by it


def test_a_batch_that_was_split_is_not_given_up(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    split(ledger, s, 4)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.drop(s)
    assert dump(ledger) == before


@pytest.mark.parametrize("which", ["split", "renumbered", "dropped", "done"])
def test_only_an_open_batch_is_prepared(ledger: Ledger, which: str) -> None:
    """A row from before a split names a batch that stands for nothing any more."""
    s, behind = take(ledger, 0, "a"), take(ledger, 10, "b")
    if which in ("split", "renumbered"):
        split(ledger, s, 4)
    elif which == "dropped":
        ledger.drop(s)
    else:
        finish(ledger, s)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.prepare(behind if which == "renumbered" else s, 1, [Prepared("new", "h", "files", {}, {}, 0)])
    assert dump(ledger) == before


@pytest.mark.parametrize("state", [State.SPLIT, State.DROPPED])
def test_a_batch_that_was_never_prepared_is_not_done(ledger: Ledger, state: State) -> None:
    s = take(ledger, 0, "a")
    if state is State.SPLIT:
        split(ledger, s, 4)
    else:
        ledger.drop(s)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.done(s, "out", {}, 1, frontier)
    assert dump(ledger) == before


def test_a_batch_with_a_prepared_one_behind_it_is_not_split(ledger: Ledger) -> None:
    """The halves' numbers would come after it, and its records be acked before theirs."""
    s, ahead = take(ledger, 0, "a"), take(ledger, 10, "b")
    ledger.prepare(ahead, 1, [Prepared("out", "h", "files", {}, {}, 0)])
    before = dump(ledger)
    with pytest.raises(LedgerError):
        split(ledger, s, 4)
    assert dump(ledger) == before


@pytest.mark.parametrize("at", [0, 10])
def test_an_empty_half_is_never_written(ledger: Ledger, at: int) -> None:
    s = take(ledger, 0, "a")
    half = Ranges(s.ranges.items, 10)
    empty = Ranges((), 10)
    before = dump(ledger)
    with pytest.raises(LedgerError):
        ledger.split(s, *((empty, half) if at == 0 else (half, empty)), "gate")
    assert dump(ledger) == before


# -- the record that closed the gate --------------------------------------------------------------------------------


def test_the_record_that_closed_the_gate_is_held_with_the_split(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    split(ledger, s, 4, held(4))
    again = reopened(ledger)
    [found] = again.nacks(s.lane)
    assert (found.seq, found.id, found.position, found.state) == (4, "id 4", b"4", NackState.HELD)
    assert (found.record, found.error, found.node, found.code, found.at) == ('{"after":1}', "error", "node", "code", 5)
    assert again.nacks(s.lane, NackState.HELD) == [found]
    assert again.nacks(s.lane, NackState.OPEN) == []
    again.close()


def test_a_record_is_held_where_there_is_nothing_to_split_off(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    ledger.hold(s, held(0))
    again = reopened(ledger)
    assert [(n.seq, n.state, n.batch) for n in again.nacks(s.lane)] == [(0, NackState.HELD, s.batch)]
    assert again.unfinished(s.lane) == [s]
    assert again.lane("p", "in").acked_batch == 0
    again.close()


def test_one_record_is_held_at_a_time(ledger: Ledger) -> None:
    """A batch is run again and its gate closes elsewhere: only the last word counts."""
    s = take(ledger, 0, "a")
    ledger.hold(s, held(0, "first"))
    ledger.hold(s, held(0, "second"))
    assert [(n.seq, n.error) for n in ledger.nacks(s.lane)] == [(0, "second")]
    first, second = split(ledger, s, 4, held(4))
    assert [n.seq for n in ledger.nacks(s.lane)] == [4]
    split(ledger, first, 2)
    [kept] = ledger.nacks(s.lane)  # what the first half does is nothing to it
    [_, _, second] = ledger.unfinished(s.lane)
    assert (kept.seq, kept.batch) == (4, second.batch)
    split(ledger, second, 6)
    assert ledger.nacks(s.lane) == []


def test_a_record_that_passes_the_gate_later_is_no_longer_held(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    ledger.hold(s, held(0))
    finish(ledger, s)
    assert ledger.nacks(s.lane) == []


def test_a_lane_holds_nothing_for_another(ledger: Ledger) -> None:
    s = take(ledger, 0, "a")
    other, _ = ledger.take(ledger.lane("p", "other"), Ranges((Range("a", {}, 0, 1),), 10))
    ledger.hold(s, held(0))
    ledger.hold(other, held(1))
    finish(ledger, other)
    assert [n.seq for n in ledger.nacks(s.lane)] == [0]
    assert ledger.nacks(other.lane) == []
