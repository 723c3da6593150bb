"""The gate: how many nacks a destination bears before its pipeline stops. Pure; saved in the ledger with the outcome.

Per lane and destination there is a ring of the last `size` records in record order, nacked or not. More than `threshold`
nacks in it close the gate at the record that was one too many. Size 0 is no limit. Saved is only where the nacks are: the
ring itself would be mostly empty.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.testing import faults


@dataclass(frozen=True)
class Window:
    """The pipeline's setting. The default stops at the first nack."""

    size: int = 1
    threshold: int = 0

    @property
    def bounded(self) -> bool:
        return self.size > 0

    @property
    def needs_ordinals(self) -> bool:
        """With a threshold of 0 any nack closes the gate, wherever it stands."""
        return self.bounded and self.threshold > 0


DEFAULT = Window()


@dataclass(frozen=True)
class Ring:
    """Nacks of the last records, as distances back from the record that comes next (1 = the last one)."""

    back: tuple[int, ...] = ()  # ascending

    def to_json(self) -> str:
        return json.dumps(self.back, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> Ring:
        return cls(tuple(json.loads(text))) if text else cls()


def pass_through(window: Window, ring: Ring, records: int, nacks: Sequence[int]) -> tuple[Ring, int | None]:
    """A batch of `records` records goes through, of which those at the ordinals `nacks` (ascending, from 0) were nacked.

    Returns the ring after it, and the ordinal of the nack that closed the gate, or None. Where it closed, the ring is the
    one before the batch: nothing of the batch has an outcome yet.
    """
    if not window.bounded or not faults.safeguard("gate"):
        return Ring(), None
    recent = deque(-d for d in reversed(ring.back) if d < window.size)  # ordinals relative to this batch's first record
    for ordinal in nacks:
        while recent and recent[0] <= ordinal - window.size:
            recent.popleft()
        recent.append(ordinal)
        if len(recent) > window.threshold:
            return ring, ordinal
    back = (records - ordinal for ordinal in reversed(recent))
    return Ring(tuple(d for d in back if d < window.size)), None
