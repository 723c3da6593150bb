"""`clone`: every record becomes `count` + 1 records, equal but for the metadata key `clone.index`.

The original has index 0, the copies 1 to `count`. All of them have the position of the original, each is a part of it with an
outcome of its own, and none shares a payload with another. With a condition only the records that match are cloned. It runs
in Python, also on typed payloads, which have no schema behind it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record
from penstock.plan.gotext import trim
from penstock.plan.unwrap import copied


class CloneSettings(Settings):
    count: int = Field(gt=0, description="How many copies to make of each record.")

    @field_validator("count", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        value = trim(value)
        if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value):
            raise ValueError("must be a whole number")
        return value


class Clone(Processor[CloneSettings]):
    uses = frozenset({record.AFTER, record.METADATA, record.NAMESPACE})
    example: ClassVar[Example] = Example(
        settings={"count": "1"},
        given={"after": {"id": 7}},
        gives=[
            {"after": {"id": 7}, "metadata": {"clone.index": "0"}},
            {"after": {"id": 7}, "metadata": {"clone.index": "1"}},
        ],
    )

    def apply(self, r: Record) -> list[Record]:
        made = []
        for n in range(self.settings.count + 1):
            part = r.derive(after=copied(r.after), before=copied(r.before), key=copied(r.key)) if n else r.derive()
            part.metadata["clone.index"] = str(n)
            made.append(part)
        return made
