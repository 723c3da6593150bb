"""The gate against a model that has never heard of rings: every short stream, wherever it is cut into batches."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence

import pytest

from penstock.engine.gate import Ring, Window, pass_through
from penstock.testing import faults

Stream = Sequence[bool]  # per record: was it nacked?

RECORDS = 10
PATTERNS = list(itertools.product([False, True], repeat=RECORDS))
CUTS = [cut for n in range(3) for cut in itertools.combinations(range(1, RECORDS), n)]  # into 1, 2 and 3 batches
WINDOWS = [Window(size, threshold) for size in range(5) for threshold in range(size + 1)]


def model(window: Window, stream: Stream) -> int | None:
    """The record at which the gate closes: the first one that makes the last `size` records hold too many nacks."""
    last = deque[bool](maxlen=window.size)
    for place, nacked in enumerate(stream):
        last.append(nacked)
        if sum(last) > window.threshold:
            return place
    return None


def batches(stream: Stream, cut: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Where each batch starts, how many records it has, and which of them were nacked."""
    for start, end in itertools.pairwise([0, *cut, len(stream)]):
        yield start, end - start, [n for n, nacked in enumerate(stream[start:end]) if nacked]


def closes_at(window: Window, stream: Stream, cut: Sequence[int]) -> int | None:
    """The same by the gate, with a restart after every batch."""
    saved: str | None = None
    for start, records, nacks in batches(stream, cut):
        ring, closed = pass_through(window, Ring.from_json(saved), records, nacks)
        if closed is not None:
            return start + closed
        saved = ring.to_json()
    return None


@pytest.mark.contract("S11", safeguard="gate")
@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: f"{w.threshold}-of-{w.size}")
def test_the_gate_closes_at_the_first_record_that_is_one_nack_too_many(window: Window) -> None:
    for stream in PATTERNS:
        expected = model(window, stream)
        wrong = [cut for cut in CUTS if closes_at(window, stream, cut) != expected]
        assert not wrong, f"{stream} cut at {wrong} must close at {expected}"


@pytest.mark.contract("S11", safeguard="gate")
def test_without_the_safeguard_the_gate_never_closes() -> None:
    closing = [(w, s) for w in WINDOWS for s in PATTERNS if model(w, s) is not None]
    faults.install(off=["gate"])
    assert closing
    assert all(closes_at(window, stream, (3, 6)) is None for window, stream in closing)


@pytest.mark.contract("S11", safeguard="gate")
@pytest.mark.parametrize("window", [w for w in WINDOWS if w.bounded], ids=lambda w: f"{w.threshold}-of-{w.size}")
def test_a_batch_that_is_tried_again_counts_once(window: Window) -> None:
    """Each batch fails after its gate and is passed again with the ring that is saved: the same result every time."""
    for stream in PATTERNS[::7]:
        ring = Ring()
        for _, records, nacks in batches(stream, (3, 6)):
            first, *more = (pass_through(window, Ring.from_json(ring.to_json()), records, nacks) for _ in range(3))
            assert more == [first, first]
            ring, closed = first
            if closed is not None:
                break


@pytest.mark.parametrize("window", [w for w in WINDOWS if w.bounded], ids=lambda w: f"{w.threshold}-of-{w.size}")
def test_a_gate_that_closed_leaves_the_ring_as_it_was(window: Window) -> None:
    for stream in PATTERNS:
        before, closed = pass_through(window, Ring(), 5, [n for n in range(5) if stream[n]])
        if closed is None:
            after, closed = pass_through(window, before, 5, [n for n in range(5) if stream[n + 5]])
            assert closed is None or after == before
        else:
            assert before == Ring()


@pytest.mark.parametrize("window", [w for w in WINDOWS if w.bounded], ids=lambda w: f"{w.threshold}-of-{w.size}")
def test_after_a_split_the_first_half_passes_and_the_second_closes_at_its_first_record(window: Window) -> None:
    for stream in PATTERNS:
        place = model(window, stream)
        if place is not None:
            ring, closed = pass_through(window, Ring(), place, [n for n in range(place) if stream[n]])
            assert closed is None
            rest = [n for n, nacked in enumerate(stream[place:]) if nacked]
            assert pass_through(window, ring, RECORDS - place, rest) == (ring, 0)


def test_the_default_closes_at_the_first_nack() -> None:
    assert pass_through(Window(), Ring(), 5, []) == (Ring(), None)
    assert pass_through(Window(), Ring(), 5, [3, 4]) == (Ring(), 3)


def test_size_0_bears_any_number_of_nacks() -> None:
    assert pass_through(Window(0, 0), Ring((1, 2)), 1000, range(1000)) == (Ring(), None)


@pytest.mark.parametrize("back", [(), (1,), (1, 2, 7), (999_999,)])
def test_a_ring_is_the_same_after_json(back: tuple[int, ...]) -> None:
    assert Ring.from_json(Ring(back).to_json()) == Ring(back)


@pytest.mark.parametrize("saved", [None, ""])
def test_a_destination_without_a_saved_ring_starts_with_an_empty_one(saved: str | None) -> None:
    assert Ring.from_json(saved) == Ring()


def test_a_ring_holds_only_what_can_still_count() -> None:
    """Of a window of 4 the next record sees three: those at most 3 back. A long stream does not make the ring longer."""
    assert pass_through(Window(4, 4), Ring(), 10, range(10)) == (Ring((1, 2, 3)), None)
    assert pass_through(Window(4, 4), Ring((1, 2, 3)), 1, []) == (Ring((2, 3)), None)
    assert pass_through(Window(4, 4), Ring((1, 2, 3)), 3, []) == (Ring(), None)
    assert pass_through(Window(4, 4), Ring((1, 2, 3)), 0, []) == (Ring((1, 2, 3)), None)


def test_a_window_made_smaller_between_two_runs_forgets_what_it_no_longer_sees() -> None:
    ring = Ring((1, 5, 9))
    assert pass_through(Window(10, 3), ring, 1, [0]) == (ring, 0)
    assert pass_through(Window(3, 1), ring, 1, [0]) == (ring, 0)
    assert pass_through(Window(3, 2), ring, 1, [0]) == (Ring((1, 2)), None)


@pytest.mark.parametrize(
    ("window", "bounded", "ordinals"),
    [(Window(), True, False), (Window(0, 5), False, False), (Window(5, 0), True, False), (Window(5, 1), True, True)],
)
def test_ordinals_are_needed_only_where_a_nack_may_pass_and_a_later_one_not(
    window: Window, bounded: bool, ordinals: bool
) -> None:
    assert (window.bounded, window.needs_ordinals) == (bounded, ordinals)
