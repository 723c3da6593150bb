"""The frontier against a model that is too slow and too plain to be wrong, and the control that shows why it is needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.frontier import frontier
from penstock.testing import faults

pytestmark = pytest.mark.contract("S9", safeguard="prefix-ack")


@st.composite
def _accounts(draw: st.DrawFn) -> tuple[int, dict[int, bool]]:
    """A last acked batch, and what is known of those after it; numbers may be missing and come in any order."""
    acked = draw(st.integers(0, 20))
    return acked, draw(st.dictionaries(st.integers(acked + 1, acked + 12), st.booleans()))


def _model(acked: int, batches: dict[int, bool]) -> int:
    fine = [b for b in batches if all(settled for other, settled in batches.items() if other <= b)]
    return max([acked, *fine])


@settings(deadline=None)
@given(_accounts())
def test_the_frontier_is_the_longest_settled_prefix(account: tuple[int, dict[int, bool]]) -> None:
    assert frontier(*account) == _model(*account)


@settings(deadline=None)
@given(_accounts())
def test_no_pending_batch_is_skipped(account: tuple[int, dict[int, bool]]) -> None:
    reached = frontier(*account)
    assert all(settled for batch, settled in account[1].items() if batch <= reached)


@settings(deadline=None)
@given(_accounts())
def test_the_frontier_never_falls_behind_what_is_acked(account: tuple[int, dict[int, bool]]) -> None:
    assert frontier(*account) >= account[0]


@settings(deadline=None)
@given(_accounts(), st.data())
def test_settling_one_more_batch_never_lowers_the_frontier(
    account: tuple[int, dict[int, bool]], data: st.DataObject
) -> None:
    acked, batches = account
    before = frontier(acked, batches)
    for batch in data.draw(st.permutations(sorted(batches))):
        batches = {**batches, batch: True}
        after = frontier(acked, batches)
        assert after >= before
        before = after
    assert before == max([acked, *batches])


def test_a_batch_done_before_an_earlier_one_is_not_acked_and_would_be_without_the_safeguard() -> None:
    batches = {4: True, 5: False, 6: True}
    assert frontier(3, batches) == 4
    faults.install(off=["prefix-ack"])
    assert frontier(3, batches) == 6  # 5 is pending: a source told of 6 would forget it


def test_without_the_safeguard_the_properties_do_not_hold() -> None:
    faults.install(off=["prefix-ack"])
    skipping = [
        (acked, batches)
        for acked, batches in ((0, {1: False, 2: True}), (0, {1: True, 2: False, 3: True}), (7, {9: True, 8: False}))
        if frontier(acked, batches) != _model(acked, batches)
    ]
    assert len(skipping) == 3
