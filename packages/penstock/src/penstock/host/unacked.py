"""What a source has given and was not told about yet, in its order. Each record waits for an offset of the log to be settled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

Piece = tuple[Sequence[int], Sequence[bytes]]  # offsets and positions of some records


class Unacked:
    """Added to by the thread that reads, taken from by the one that acks. Records are kept as they came, many at a time: a tuple for
    each of them cost a tenth of the host's time."""

    def __init__(self) -> None:
        self._waiting: deque[Piece] = deque()
        self._count = 0
        self._lock = threading.Lock()

    def add(self, offsets: Sequence[int], positions: Sequence[bytes]) -> None:
        """In the order in which the source gave them."""
        if positions:
            with self._lock:
                self._waiting.append((offsets, positions))
                self._count += len(positions)

    def has(self, end: int) -> bool:
        """Whether something may be acked when every offset below `end` is settled."""
        with self._lock:
            return bool(self._waiting) and self._waiting[0][0][0] < end

    def through(self, end: int, most: int) -> list[Piece]:
        """What may be acked then, at most so many: each record once, in order, none before all that came before it."""
        found: list[Piece] = []
        with self._lock:
            while self._waiting and most > 0:
                offsets, positions = self._waiting.popleft()
                n = min(_below(offsets, end), most)
                if n < len(positions):
                    self._waiting.appendleft((offsets[n:], positions[n:]))
                if n:
                    found.append((offsets[:n], positions[:n]))
                    most -= n
                    self._count -= n
                if n < len(positions):
                    break
        return found

    def __len__(self) -> int:
        return self._count


def _below(offsets: Sequence[int], end: int) -> int:
    """How many stand before the first that is not below `end`."""
    if isinstance(offsets, range):
        return max(0, min(len(offsets), end - offsets.start))
    return next((n for n, offset in enumerate(offsets) if offset >= end), len(offsets))
