"""How long a lane waits before it tries again."""

from __future__ import annotations

import pytest

from penstock.engine.backoff import Backoff


def delays(backoff: Backoff, failures: int) -> list[float]:
    found = [backoff.delay(failures) for _ in range(200)]
    assert None not in found
    return [d for d in found if d is not None]


@pytest.mark.parametrize("failures, seconds", [(1, 1), (2, 2), (3, 4), (9, 256), (10, 512), (11, 600), (12, 600)])
def test_the_wait_doubles_from_one_second_to_ten_minutes(failures: int, seconds: float) -> None:
    found = delays(Backoff(), failures)
    assert all(0.8 * seconds <= d <= seconds for d in found)


def test_two_lanes_that_fail_together_do_not_try_again_together() -> None:
    assert len(set(delays(Backoff(), 5))) > 100


def test_the_wait_is_never_longer_than_the_most_however_often_it_failed() -> None:
    for failures in (100, 10_000, 10**9):
        assert max(delays(Backoff(), failures)) <= 600


def test_a_continuous_run_never_gives_up() -> None:
    assert Backoff().delay(10**9) is not None


@pytest.mark.parametrize("tries", [0, 1, 3])
def test_it_gives_up_after_as_many_tries_as_it_was_given(tries: int) -> None:
    backoff = Backoff(tries=tries)
    assert [n for n in range(1, 10) if backoff.delay(n) is not None] == list(range(1, tries + 1))
