"""`filter`: drops what its condition matches, on purpose. Without a condition that is everything.

A dropped record counts as processed: it is acknowledged, and no dead letter. It runs wherever its neighbours do: as columns in
Spark on raw and typed payloads, in Python on open ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from penstock.config import Settings
from penstock.native import DROP, Columns, Drop, Example, Inline, Processor, Record, Shape, Step, Where


class FilterSettings(Settings):
    """It has none: the processor's `condition` says which records are dropped."""


class Filter(Processor[FilterSettings]):
    uses = frozenset()
    example: ClassVar[Example | None] = Example(
        settings={}, condition="after.amount < 50", given={"after": {"amount": 20}}, gives=None
    )

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def fields(self) -> frozenset[str]:
        return frozenset()

    def apply(self, r: Record) -> Drop:  # noqa: ARG002
        return DROP

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return Inline(_drop, "filtered += 1\ncontinue")

    def compile(self, columns: Columns) -> Step:  # noqa: ARG002
        from pyspark.sql import functions as F

        return Step(drop=F.lit(True))


def _drop(p: Any) -> Drop:  # noqa: ARG001
    return DROP
