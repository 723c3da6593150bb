"""What a source has given and was not told about yet, in its order. Each record waits for an offset of the log to be settled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable


class Unacked:
    """Added to by the thread that reads, taken from by the one that acks."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._lock = threading.Lock()

    def add(self, pairs: Iterable[tuple[int, bytes]]) -> None:
        """Offset and position, in the order in which the source gave them."""
        with self._lock:
            self._waiting.extend(pairs)

    def through(self, end: int) -> list[bytes]:
        """What may be acked when every offset below `end` is settled: each position once, in order, none before all that came before it."""
        found = []
        with self._lock:
            while self._waiting and self._waiting[0][0] < end:
                found.append(self._waiting.popleft()[1])
        return found

    def __len__(self) -> int:
        return len(self._waiting)
