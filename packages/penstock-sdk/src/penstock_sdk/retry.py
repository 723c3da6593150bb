"""Trying again: with a pause that grows, up to a limit, and never beyond a stop."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock_sdk.errors import Retry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between tries, in seconds: the first one, what each is to the one before, the longest, and how many there are."""

    first: float = 0.1
    factor: float = 2.0
    longest: float = 10.0
    tries: int = 8

    def pause(self, tried: int) -> float:
        """After so many tries. A little of it is chance, so that not everybody comes back at the same moment."""
        most = min(self.longest, self.first * self.factor**tried)
        return float(most * random.uniform(0.5, 1.0))


def retried(work: Callable[[], T], stopped: threading.Event, backoff: Backoff | None = None) -> T:
    """Calls `work` again while it raises `Retry`. The last one's error is raised when the tries are used up, or on a stop."""
    backoff = Backoff() if backoff is None else backoff
    tried = 0
    while True:
        try:
            return work()
        except Retry:
            if tried >= backoff.tries or stopped.wait(backoff.pause(tried)):
                raise
            tried += 1
