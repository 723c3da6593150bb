"""What recovery does with each state that a ledger can show, and what it would do without its safeguards."""

from __future__ import annotations

import pytest

from penstock.engine.recovery import Action, decide
from penstock.ledger import State
from penstock.testing import faults

TABLE = {
    State.OPEN: Action.RUN_AGAIN,
    State.PREPARED: Action.FINISH,
    State.DONE: Action.NOTHING,
    State.DROPPED: Action.NOTHING,
    State.SPLIT: Action.NOTHING,  # its halves stand for it
    State.TAKEN: Action.DISCARD,  # at most once: never run again
}


@pytest.mark.contract("C4", "C12", safeguard="one-snapshot and roll-forward")
@pytest.mark.parametrize("state", State)
def test_every_state_has_its_one_action(state: State) -> None:
    assert decide(state) is TABLE[state]


@pytest.mark.contract("C4", safeguard="one-snapshot")
def test_without_one_snapshot_unfinished_work_is_forgotten() -> None:
    faults.install(off=["one-snapshot"])
    wrong = {s: decide(s) for s in State if decide(s) is not TABLE[s]}
    assert wrong == {State.OPEN: Action.FORGET, State.PREPARED: Action.FORGET}


@pytest.mark.contract("C12", safeguard="roll-forward")
def test_without_roll_forward_prepared_work_is_computed_again() -> None:
    faults.install(off=["roll-forward"])
    wrong = {s: decide(s) for s in State if decide(s) is not TABLE[s]}
    assert wrong == {State.PREPARED: Action.RUN_AGAIN}


@pytest.mark.parametrize("off", sorted(faults.SAFEGUARDS.keys() - {"one-snapshot", "roll-forward"}))
def test_no_other_safeguard_has_a_say(off: str) -> None:
    faults.install(off=[off])
    assert {s: decide(s) for s in State} == TABLE
