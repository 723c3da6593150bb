"""How large the next batch should be: about five seconds of work at the rate of the last ones. Pure.

A stop waits for the batch in flight, and a failure costs one: so they are bounded. A quick batch says little about the rate,
most of it is the cost of having one; so only batches that took a while make the next one smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TARGET = 5.0  # seconds
START = 512 * 1024 * 1024  # bytes of a lane's first batch
SMALLEST = 64 * 1024
GROWTH = 4
TELLING = 1.0  # seconds from which on a batch says what the rate is


@dataclass
class Pace:
    limit: int  # `max-bytes`
    size: int = field(default=START)

    def __post_init__(self) -> None:
        self.size = min(self.size, self.limit)

    def note(self, size: int, seconds: float) -> None:
        """A batch of `size` bytes took so long, from its snapshot until it was done."""
        if size <= 0:
            return
        wanted = min(int(size / max(seconds, 1e-3) * TARGET), self.size * GROWTH)
        if seconds < TELLING:
            wanted = max(wanted, self.size)
        self.size = max(min(wanted, self.limit), min(SMALLEST, self.limit))
