"""What to do with each ending that a ledger can show. Pure: a row of states in, a row of actions out.

| the last row says     | the seed's ending                       | what recovery does                                  |
|-----------------------|-----------------------------------------|-----------------------------------------------------|
| nothing               | no attempt was ever made                | nothing                                             |
| open                  | a snapshot: the attempt failed          | remove what attempts staged, run the same batch     |
| prepared, not done    | an attempt; is its hash at the output?  | finish: what is there is kept, the rest is committed |
| prepared, nothing staged | a nil attempt                        | finish: a receipt with written 0                    |
| taken                 | at most once, and it died on the way    | count it as discarded                               |
| done, dropped, split  | delivered, or others stand for it       | nothing                                             |
"""

from __future__ import annotations

from enum import Enum, auto

from penstock.ledger import State
from penstock.testing import faults


class Action(Enum):
    NOTHING = auto()
    RUN_AGAIN = auto()  # the same snapshot, a new attempt
    FINISH = auto()  # only forward: nothing is recomputed
    DISCARD = auto()  # at most once: never run again
    FORGET = auto()  # only ever with a safeguard off


def decide(state: State) -> Action:
    if state is State.OPEN:
        return Action.RUN_AGAIN if faults.safeguard("one-snapshot") else Action.FORGET
    if state is State.PREPARED:
        if not faults.safeguard("one-snapshot"):
            return Action.FORGET
        return Action.FINISH if faults.safeguard("roll-forward") else Action.RUN_AGAIN
    return Action.DISCARD if state is State.TAKEN else Action.NOTHING
