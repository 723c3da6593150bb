"""What became of each record of a batch so far. Kept when a batch has to be tried again, so that what was delivered is not sent twice."""

from __future__ import annotations

from collections.abc import Iterator

from penstock_sdk import Batch


class Progress:
    """Each record is written to once, by one thread."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._results: list[str | None] = [None] * len(batch)

    def deliver(self, index: int) -> None:
        self._results[index] = ""

    def refuse(self, index: int, why: str) -> None:
        self._results[index] = why or "refused"

    def open(self) -> list[int]:
        """Those that nothing is known of, in order."""
        return [i for i, result in enumerate(self._results) if result is None]

    def refused(self) -> dict[int, str]:
        return {i: result for i, result in enumerate(self._results) if result}

    def is_of(self, batch: Batch) -> bool:
        """Whether this is the same work: the same object, or, for a host that makes it anew, the same delivery of the same records."""
        if batch is self.batch:
            return True
        same = batch.delivery and batch.delivery == self.batch.delivery and len(batch) == len(self.batch)
        return bool(same) and list(_places(batch)) == list(_places(self.batch))


def _places(batch: Batch) -> Iterator[tuple[str, bytes, int]]:
    return ((record.source, record.position, record.part) for record in batch)
