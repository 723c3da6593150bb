"""`filter`: drops what its condition matches, on purpose. Without a condition that is everything."""

from __future__ import annotations

from penstock.config import Settings
from penstock.native import Columns, Processor, Step


class FilterSettings(Settings):
    condition: str = ""  # Spark SQL over the record's columns; the processor's `condition` key


class Filter(Processor[FilterSettings]):
    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        del columns
        return Step(drop=F.expr(self.settings.condition) if self.settings.condition else F.lit(True))
