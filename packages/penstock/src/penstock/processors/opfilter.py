"""`opfilter`: lets records pass by their operation, and drops the others on purpose.

Exactly one of two settings says which: `whitelist: create,update` lets only these pass, `blacklist: delete` all but these.
The words are `create` (or `insert`, which is the same), `update`, `delete` and `snapshot`. What is dropped counts as
filtered. It looks at nothing but the operation, so any payload will do: in Spark on raw and typed ones, and in Python with
its neighbours on open ones.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from penstock import record
from penstock.config import Settings
from penstock.native import DROP, Columns, Drop, Example, Processor, Record, Shape, Step, Where

WORDS = {"create": "create", "insert": "create", "update": "update", "delete": "delete", "snapshot": "snapshot"}


class OpfilterSettings(Settings):
    whitelist: str | None = Field(None, description="The operations that pass, e.g. `create, update`.")
    blacklist: str | None = Field(None, description="The operations that are dropped, e.g. `delete`.")

    @field_validator("whitelist", "blacklist")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None:
            _operations(value)
        return value

    @model_validator(mode="after")
    def _one(self) -> OpfilterSettings:
        if (self.whitelist is None) == (self.blacklist is None):
            raise ValueError("must have either `whitelist` or `blacklist`")
        return self


class Opfilter(Processor[OpfilterSettings]):
    uses = frozenset({record.OPERATION})
    example: ClassVar[Example | None] = Example(
        settings={"blacklist": "delete"}, given={"after": {"id": 7}, "operation": "delete"}, gives=None
    )

    def __init__(self, settings: OpfilterSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.pass_listed = settings.whitelist is not None
        self.listed = _operations(settings.whitelist or settings.blacklist or "")

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def fields(self) -> frozenset[str]:
        return frozenset()

    def apply(self, r: Record) -> Record | Drop:
        return r if (r.operation in self.listed) is self.pass_listed else DROP

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        listed = F.coalesce(columns[record.OPERATION].isin(*sorted(self.listed)), F.lit(False))
        return Step(drop=~listed if self.pass_listed else listed)


def _operations(text: str) -> frozenset[str]:
    words = [word.strip().lower() for word in text.split(",")]
    if not all(word in WORDS for word in words):
        raise ValueError("must be a list of create, update, delete, snapshot (insert is create)")
    return frozenset(WORDS[word] for word in words)
