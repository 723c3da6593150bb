"""Open payloads of a log that hold what plain JSON has not (dates, decimals, bytes), as objects. Runs in Spark's tasks, before every
processor of the pipeline: a payload that has no form in JSON behind it is a nack there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import record
from penstock.log import values
from penstock.native import Processor, Record, Rejected, Shape, Where


class ExtendedDecode(Processor[None]):
    def __init__(self, source_id: str, parts: frozenset[str]) -> None:
        super().__init__(None, source_id)
        self.parts = parts
        self.uses = parts | {record.AFTER}  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        return Shape.OPEN if record.AFTER in self.parts else shape

    def apply(self, r: Record) -> Record:
        for name in self.parts:
            setattr(r, name, _decoded(getattr(r, name)))
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        return _decoded if self.parts == {record.AFTER} else None


def _decoded(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return values.decode(value.decode(), extended=True)
    except ValueError as e:
        raise Rejected(f"the payload can't be read: {e}", code="log.value") from e
