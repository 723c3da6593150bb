"""How large the next batch should be: about five seconds of work, and never more than was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.pace import GROWTH, SMALLEST, START, TARGET, TELLING, Pace

MB = 1024 * 1024
LARGE = 1 << 50  # a limit that nobody meets


def test_the_first_batch_is_of_the_size_to_start_with_or_of_the_limit_where_that_is_less() -> None:
    assert Pace(LARGE).size == START
    assert Pace(START).size == START
    assert Pace(1000).size == 1000


def test_a_batch_that_took_the_target_leaves_the_size_as_it_is() -> None:
    pace = Pace(LARGE)
    pace.note(START, TARGET)
    assert pace.size == START


@pytest.mark.parametrize(
    "size, seconds, then",
    [
        (START, 2 * TARGET, START // 2),
        (START, TARGET / 2, START * 2),
        (START, 1000.0, int(START / 1000 * TARGET)),
        (10 * MB, TARGET, 10 * MB),  # the rate counts, not what was asked for
        (10 * MB, 2.0, 25 * MB),
        (START, TARGET / GROWTH, START * GROWTH),
        (START, TELLING, START * GROWTH),
    ],
)
def test_the_next_batch_is_five_seconds_of_work_at_the_rate_of_this_one(size: int, seconds: float, then: int) -> None:
    pace = Pace(LARGE)
    pace.note(size, seconds)
    assert pace.size == pytest.approx(then, abs=1)


def test_it_grows_by_a_factor_at_a_time() -> None:
    pace = Pace(LARGE)
    for n in range(1, 4):
        pace.note(pace.size, 1e-6)
        assert pace.size == START * GROWTH**n


@pytest.mark.parametrize("seconds", [0.0, 0.01, TELLING - 0.001])
def test_a_quick_batch_makes_the_next_one_no_smaller(seconds: float) -> None:
    """Most of its time is the cost of having a batch at all: a trickle of small files says nothing about the rate."""
    pace = Pace(LARGE)
    pace.note(100, seconds)
    assert pace.size == START


def test_it_never_falls_below_the_smallest_nor_that_below_the_limit() -> None:
    pace = Pace(LARGE)
    pace.note(1, 3600.0)
    assert pace.size == SMALLEST
    pace = Pace(1000)
    pace.note(1, 3600.0)
    assert pace.size == 1000


def test_a_batch_without_bytes_says_nothing() -> None:
    pace = Pace(LARGE)
    pace.note(0, 3600.0)
    assert pace.size == START


def test_it_comes_back_after_a_slow_time() -> None:
    pace = Pace(START)
    pace.note(START, 3600.0)
    assert pace.size < START
    for _ in range(10):
        pace.note(pace.size, TELLING)
    assert pace.size == START


@given(
    st.integers(1, LARGE),
    st.lists(st.tuples(st.integers(0, LARGE), st.floats(0, 1e6, allow_nan=False)), max_size=20),
)
def test_whatever_the_batches_were_the_size_is_within_its_bounds(limit: int, notes: list[tuple[int, float]]) -> None:
    pace = Pace(limit)
    for size, seconds in notes:
        before = pace.size
        pace.note(size, seconds)
        assert min(SMALLEST, limit) <= pace.size <= limit
        assert pace.size <= max(before * GROWTH, SMALLEST)
