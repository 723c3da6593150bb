"""`error`: nacks what its condition matches, with a message. Without a condition that is everything.

The message may be a Go template (`{{ .Payload.After.id }} is not wanted`); where the template fails for a record, the record is
nacked with that error instead. With a plain message it runs as columns in Spark on raw and typed payloads, in Python on open
ones; a template always runs in Python.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Processor, Record, Reject, Shape, Step, Where
from penstock.plan.gotext import trim
from penstock.plan.templated import checked, template

MESSAGE = "error processor triggered"


class ErrorSettings(Settings):
    message: Annotated[str, BeforeValidator(trim)] = Field(
        MESSAGE, description="What the dead letter says: plain text, or a Go template."
    )

    @field_validator("message")
    @classmethod
    def _message(cls, value: str) -> str:
        return checked(value or MESSAGE)


class Error(Processor[ErrorSettings]):
    example: ClassVar[Example | None] = Example(
        settings={"message": "no price"},
        condition="after.price IS NULL",
        given={"after": {"id": 7}},
        rejects="no price",
    )

    def __init__(self, settings: ErrorSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.template = template(settings.message)
        self.uses = self.template.columns if self.template else frozenset()  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.settings, self.processor_id)

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN or self.template else Where.SPARK

    def fields(self) -> frozenset[str] | None:
        return None if record.AFTER in self.uses else frozenset()

    def apply(self, r: Record) -> Reject:
        return Reject(self.template.text(r) if self.template else self.settings.message)

    def compile(self, columns: Columns) -> Step:  # noqa: ARG002
        from pyspark.sql import functions as F

        return Step(reject=F.lit(self.settings.message))
