"""What a source has given before: the positions of the last records of its log. Used by the loop that appends to it.

A source that is opened again may send some of what is in the log already. It is recognised by its position, acked or not, and not
logged twice; further back than the window nothing is recognised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.log import Lost, Reader

WINDOW = 100_000


class Resends:
    """Position → offset of the last `size` records. `count`: how many were recognised so far."""

    def __init__(self, size: int = WINDOW) -> None:
        self.count = 0
        self._size = size
        self._offsets: dict[bytes, int] = {}
        self._order: deque[bytes] = deque()  # a dict finds its first key slowly after many were taken out of its front

    @classmethod
    def of(cls, reader: Reader, size: int = WINDOW) -> Resends:
        """From the end of a log."""
        made = cls(size)
        for rows in reader.read(max(reader.first, reader.end - size)):
            if not isinstance(rows, Lost) and "position" in rows.rows.schema.names:
                made.remember(rows.rows.column("position").to_pylist(), range(rows.offset, rows.end))
        return made

    def remember(self, positions: Sequence[bytes], offsets: range) -> None:
        self._offsets.update(zip(positions, offsets, strict=True))
        self._order.extend(positions)
        while len(self._order) > self._size:
            oldest = self._order.popleft()
            if self._offsets[oldest] < offsets.stop - self._size:  # else it came again, and is not the oldest
                del self._offsets[oldest]

    def knows(self, positions: Sequence[bytes]) -> bool:
        """Whether it knows one of them: most often none."""
        return not self._offsets.keys().isdisjoint(positions)

    def offset(self, position: bytes) -> int | None:
        """Where it is in the log; None: it is new, as far as that is known."""
        return self._offsets.get(position)
