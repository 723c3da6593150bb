"""How many records may be made by now: a rate, and bursts with pauses between them. Pure: the time is given.

Counted from the opening, so that a batch that took long is made up for; but at most `BACKLOG` seconds of it. Records come in
batches, so a few are gathered first: one batch a second is enough.
"""

from __future__ import annotations

import math

BACKLOG = 60.0  # seconds that a source which was held up may make up for
GATHER = 1.0  # seconds of records that make a batch worth its while
_EXACT = 1e-6  # of a record, for what floating point loses


class Pace:
    def __init__(self, rate: float, sleep: float, generate: float) -> None:
        self.rate = rate
        self.sleep = sleep
        self.generate = generate
        self._forgone = 0.0  # records that were not made in time

    def allowed(self, elapsed: float, made: int, most: int) -> int:
        """How many of `most` records may be made now, `made` having been made since the opening; 0 = wait."""
        generating = self._phase(elapsed)[1]
        if not self.rate:
            return most if generating else 0
        ready = math.floor(self._ready(elapsed, made) + _EXACT)
        return min(ready, most) if ready >= min(self._enough(generating=generating), most) else 0

    def delay(self, elapsed: float, made: int, most: int) -> float:
        """Seconds until `allowed` may say something else."""
        _, generating, left = self._phase(elapsed)
        if not generating:
            return left
        if not self.rate:
            return 0.0
        missing = min(self._enough(generating=True), most) - self._ready(elapsed, made)
        return min(left, max(0.0, missing / self.rate))

    def _enough(self, *, generating: bool) -> int:
        return max(1, math.floor(self.rate * GATHER)) if generating else 1  # in a pause nothing is added

    def _ready(self, elapsed: float, made: int) -> float:
        """One at once, then as many as the rate gives."""
        ready = 1 + self.rate * self._phase(elapsed)[0] - made - self._forgone
        over = ready - max(1.0, self.rate * BACKLOG)
        if over > 0:
            self._forgone += over
            ready -= over
        return ready

    def _phase(self, elapsed: float) -> tuple[float, bool, float]:
        """Seconds of generating so far, whether it is time for it now, and seconds until that changes."""
        if not self.sleep:
            return elapsed, True, math.inf
        bursts, inside = divmod(elapsed, self.generate + self.sleep)
        active = bursts * self.generate + min(inside, self.generate)
        if inside < self.generate:
            return active, True, self.generate - inside
        return active, False, self.generate + self.sleep - inside
