"""How long a lane waits before it tries again. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """1 s, doubled each time, at most ten minutes, with up to a fifth of jitter. `tries` None = for ever."""

    first: float = 1.0
    factor: float = 2.0
    most: float = 600.0
    tries: int | None = None

    def delay(self, failures: int) -> float | None:
        """After this many failures in a row (1 = the first); None = give up."""
        if self.tries is not None and failures > self.tries:
            return None
        plain = min(self.most, self.first * self.factor ** min(failures - 1, 60))
        return float(plain * random.uniform(0.8, 1.0))
