"""A destination, as its author writes it. Runs in a connector host, or in a plugin program.

The host calls `open`, then `write` (or `write_async`), one at a time, at the end `flush` and `close`. Any method may be `async def`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from penstock_sdk.columns import columns_of
from penstock_sdk.context import Context
from penstock_sdk.record import Record
from penstock_sdk.settings import Settings
from penstock_sdk.source import declared

if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in their order. `delivery` is the same whenever this work is done again, and empty where the host does not say."""

    records: Sequence[Record]
    delivery: str = ""
    attempt: int = 0
    columns: Callable[[], pa.RecordBatch] | None = field(
        default=None, compare=False, repr=False
    )  # where the host has them

    def arrow(self) -> pa.RecordBatch:
        """The same as columns: `position`, `operation`, `namespace`, `phase`, `timestamp`, `metadata`, `key`, `before`, `after`.

        Payloads are binary, or structs: with the types that they have in the pipeline where the connector runs in the host, else with those
        that Arrow finds. A payload that is raw in some records and structured in others is a `ValueError`. Needs pyarrow.
        """
        return columns_of(self.records) if self.columns is None else self.columns()

    def part(self, start: int, end: int) -> Batch:
        columns = self.columns
        sliced = None if columns is None else lambda: columns().slice(start, end - start)
        return Batch(self.records[start:end], self.delivery, self.attempt, sliced)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


class Acks:
    """What became of each record of a batch, said once for each, in any order, from any thread."""

    def __init__(self, count: int, changed: Callable[[], None]) -> None:
        self._results: list[str | None] = [None] * count
        self._left = count
        self._changed = changed
        self._lock = threading.Lock()

    def ok(self, index: int) -> None:
        """It is durable."""
        self._set(index, "")

    def reject(self, index: int, why: str) -> None:
        """It is bad; its neighbours are not touched."""
        self._set(index, why or "refused")

    def _set(self, index: int, result: str) -> None:
        with self._lock:
            if self._results[index] is not None:
                raise RuntimeError(f"record {index} of the batch was answered before")
            self._results[index] = result
            self._left -= 1
        self._changed()

    def answer(self, refused: Mapping[int, str]) -> None:
        """All at once, for whoever knows: what is not refused is durable."""
        with self._lock:
            self._results = [refused[i] or "refused" if i in refused else "" for i in range(len(self._results))]
            self._left = 0
        self._changed()

    def answered(self, index: int) -> str | None:
        """For the host: None while it is open, empty where it was written, else why not."""
        return self._results[index]

    def open(self) -> int:
        return self._left


class Destination(Generic[S]):
    """Override `write`, or `write_async` and `flush`."""

    settings_type: ClassVar[type[Settings]] = Settings

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.settings_type = declared(cls, Destination) or cls.settings_type

    def __init__(self, settings: S, context: Context) -> None:
        """No I/O here: it is also made to check settings."""
        self.settings = settings
        self.context = context

    def open(self) -> None: ...

    def write(self, batch: Batch) -> None:
        """Returns: ALL of it is durable. `Rejected({i: why})`: only these are bad, all others are durable. `Retry`: nothing is known, it
        is called again with the same batch. Any other exception ends the destination, and nothing of the batch counts as written."""
        raise NotImplementedError(f"{type(self).__name__} has neither write nor write_async")

    def write_async(self, batch: Batch, acks: Acks) -> None:
        """Takes the batch and answers later, each record once; comes before `write` where it is overridden. An exception: as above."""
        raise NotImplementedError

    def flush(self) -> None:
        """Nothing more comes for now: when this returns, every record that `write_async` took was answered. Called at the end, and
        whenever records wait for their answers while no others come."""

    def close(self) -> None:
        """The last call, also after an error, also if `open` has failed."""

    @classmethod
    def created(cls, settings: S) -> None:
        """Once in the life of the connector in its pipeline, before it is opened for the first time."""

    @classmethod
    def updated(cls, before: S, after: S) -> None:
        """Before it is opened with other settings than the last time."""

    @classmethod
    def deleted(cls, settings: S) -> None:
        """After it was taken out of its pipeline."""
