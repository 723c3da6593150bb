"""`split`: a record becomes one record for each item of a list in it.

In each of them the list is replaced by the item, and the metadata key `split.index` says which one it is. All have the position
of the original, each is a part of it with an outcome of its own, and none shares a payload with another. An empty list
gives no record: the original is filtered. A field of bytes is split into numbers. What is no list is a nack.

The list may be at any depth. It runs in Python, also on typed payloads, which have no schema behind it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import DROP, Drop, Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.unwrap import PAYLOADS, copied, reference


class SplitSettings(Settings):
    field: str = Field(description="The list: a field of a payload or of the key.")

    @field_validator("field")
    @classmethod
    def _is_field(cls, value: str) -> str:
        if not reference(value).path:
            raise ValueError("must be a field, e.g. `.Payload.After.items`: a whole payload is no list")
        return value


class Split(Processor[SplitSettings]):
    example: ClassVar[Example] = Example(
        settings={"field": ".Payload.After.items"},
        given={"after": {"order": 7, "items": ["a", "b"]}},
        gives=[
            {"after": {"order": 7, "items": "a"}, "metadata": {"split.index": "0"}},
            {"after": {"order": 7, "items": "b"}, "metadata": {"split.index": "1"}},
        ],
    )

    def __init__(self, settings: SplitSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field)
        uses = {self.reference.root, record.AFTER, record.METADATA, record.NAMESPACE}
        self.uses = frozenset(uses)  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.PYTHON

    def apply(self, r: Record) -> list[Record] | Drop:
        at, name = self.reference.holder(r), self.reference.path[-1]
        items = at.get(name)
        if not isinstance(items, list | tuple | bytes):
            raise Rejected(f"{self.reference} is {type(items).__name__}, not a list", code="split.not-a-list")
        at[name] = None  # not to copy the list for each of its items
        made = [self._part(r, n, item) for n, item in enumerate(items)]
        at[name] = items
        return made or DROP

    def _part(self, r: Record, n: int, item: Any) -> Record:
        part = r.derive(**{payload: copied(getattr(r, payload)) for payload in PAYLOADS})
        self.reference.holder(part)[self.reference.path[-1]] = item
        part.metadata["split.index"] = str(n)
        return part
