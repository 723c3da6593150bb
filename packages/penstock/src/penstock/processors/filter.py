"""`filter`: drops what its condition matches, on purpose. Without a condition that is everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.config import Settings
from penstock.native import DROP, Columns, Drop, Processor, Record, Shape, Step, Where


class FilterSettings(Settings):
    """It has none: the processor's `condition` says which records are dropped."""


class Filter(Processor[FilterSettings]):
    uses = frozenset()

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def fields(self) -> frozenset[str]:
        return frozenset()

    def apply(self, r: Record) -> Drop:  # noqa: ARG002
        return DROP

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return lambda _: DROP

    def compile(self, columns: Columns) -> Step:  # noqa: ARG002
        from pyspark.sql import functions as F

        return Step(drop=F.lit(True))
