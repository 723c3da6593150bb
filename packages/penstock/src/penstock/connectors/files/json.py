"""JSON lines: every line is one object. A blank line is no record; anything else is a nack.

Without a schema the payload is open: it stays the line's own text where no processor looks at it. With one it is typed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.native import DROP, Drop, Processor, Record, Rejected, Shape, Where
from penstock.plan.payload import TypedPayload, loads


@dataclass(frozen=True)
class JsonLineSettings:
    schema: str | None


class JsonLine(Processor[JsonLineSettings]):
    sound = True

    def __init__(self, settings: JsonLineSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        self.typed: TypedPayload | None = TypedPayload(settings.schema) if settings.schema is not None else None

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN if self.typed is None else Shape.TYPED

    def apply(self, r: Record) -> Record | Drop:
        found = self._decode()(r.after)
        if isinstance(found, Drop):
            return found
        r.after = found
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:
        return _checked if last and self.typed is None else self._decode()

    def _decode(self) -> Callable[[Any], Any]:
        typed = self.typed
        if typed is None:
            return _decoded
        from_json = typed.decoder.from_json

        def decode(line: bytes) -> Any:
            if not line or line.isspace():
                return DROP
            found = from_json(line)
            if found is None:
                raise Rejected("the line is a JSON null, not an object", code="json.not-an-object")
            return found

        return decode


def _decoded(line: bytes) -> Any:
    if not line or line.isspace():
        return DROP
    try:
        found = loads(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as e:
        raise Rejected(f"the line is not JSON: {e}", code="json.invalid") from e
    if type(found) is not dict:
        kind = "null" if found is None else type(found).__name__
        raise Rejected(f"the line is a JSON {kind}, not an object", code="json.not-an-object")
    return found


def _checked(line: bytes) -> Any:
    """The line itself, once it is known to be an object."""
    try:
        if type(loads(line)) is dict:
            return line if line[:1] == b"{" and line[-1:] == b"}" else line.strip()
    except Exception:
        pass
    return DROP if _decoded(line) is DROP else line.strip()


class WithSchema(Processor[str]):
    """An open payload becomes typed, for a destination that says what its fields are."""

    def __init__(self, schema: str, destination_id: str) -> None:
        super().__init__(schema, destination_id)
        self.typed: TypedPayload = TypedPayload(schema)

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.TYPED

    def apply(self, r: Record) -> Record:
        r.after = self._typed(r.after)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return self._typed

    def _typed(self, value: Any) -> Any:
        if value is None:
            return None
        decoder = self.typed.decoder
        return decoder.from_value(value) if isinstance(value, dict) else decoder.from_json(value)
