"""`error`: nacks what its condition matches, with a message. Without a condition that is everything."""

from __future__ import annotations

from pydantic import Field

from penstock.config import Settings
from penstock.native import Columns, Processor, Record, Reject, Shape, Step, Where


class ErrorSettings(Settings):
    message: str = Field("error processor triggered", description="What the dead letter says.")


class Error(Processor[ErrorSettings]):
    uses = frozenset()

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def apply(self, r: Record) -> Reject:  # noqa: ARG002
        return Reject(self.settings.message)

    def compile(self, columns: Columns) -> Step:  # noqa: ARG002
        from pyspark.sql import functions as F

        return Step(reject=F.lit(self.settings.message))
