"""The interface of processors. A processor never sees a DataFrame: it cannot lose a row, reorder, shuffle or run a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock import record
from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column

S = TypeVar("S")


@dataclass(frozen=True)
class Columns:
    """The record as columns, as far as the processors before this one have changed them."""

    by_name: Mapping[str, Column]
    shape: Shape

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]

    @property
    def after(self) -> Column:
        return self.by_name[record.AFTER]


@dataclass(frozen=True)
class Step:
    """What a processor does to every record, as columns: new values, and which records it filters on purpose."""

    set: Mapping[str, Column] = field(default_factory=dict)
    drop: Column | None = None  # true = filtered; NULL is false


class Processor(Generic[S]):
    """One instance per place in a pipeline, in the engine process."""

    def __init__(self, settings: S, processor_id: str) -> None:
        """Called before Spark is there. No I/O."""
        self.settings = settings
        self.processor_id = processor_id

    def compile(self, columns: Columns) -> Step | None:  # noqa: ARG002
        """The processor as columns; called once per attempt, on the engine's thread, with an active Spark session.

        Pure: equal columns give an equal step. Raising here stops the pipeline; an expression that raises in a task
        fails the batch, and nothing of it is prepared.
        """
        return None
