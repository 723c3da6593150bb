"""Which Avro schema values need: a shape is what has been seen at one place, and only ever grows, so that one schema fits many records.
Used by sources that send payloads as Avro.

Nothing is given up for it: a name that is missing is not null, so that dicts with other names are other records of a union; dicts whose
names are no Avro names, or too many different ones, are maps. What Avro has no form for is an AvroError with the path to it.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from penstock_sdk.avro import NAME, AvroError, Duration

VARIANTS: Final = 16  # sets of names at one place; more are a map
DIGITS: Final = 38  # of a decimal, unless it needs more: the most that Spark has, so that the schema seldom changes
MOST_DIGITS: Final = 1000
DEEPEST: Final = 64
_ORDER: Final = ("boolean", "long", "int", "double", "string", "bytes", "fixed")
_MICROS: Final = {"type": "long", "logicalType": "timestamp-micros"}
_LOCAL: Final = {"type": "long", "logicalType": "local-timestamp-micros"}
_WHOLE: Final = "digits before the point"  # that were seen; not in the schema
_NOTHING: Final = ["null", "string"]  # where only nulls were seen


class Shape:
    """`scalars`: by what they are made of, because a union has each of these once."""

    def __init__(self) -> None:
        self.null = False
        self.scalars: dict[str, Any] = {}
        self.items: Shape | None = None
        self.records: dict[tuple[str, ...], dict[str, Shape]] = {}
        self.map: Shape | None = None

    def widen(self, value: Any, level: int = 0) -> None:
        """So that it fits this value as well. After an AvroError it may be wider than it was."""
        if level > DEEPEST:
            raise AvroError(f"it is nested deeper than {DEEPEST}", value)
        if value is None:
            self.null = True
        elif isinstance(value, dict):
            self._widen_dict(value, level)
        elif isinstance(value, list):
            self.items = self.items or Shape()
            for place, item in enumerate(value):
                _step(self.items, item, level, place)
        else:
            base, made = _scalar(value)
            known = self.scalars.setdefault(base, made)
            if known != made:
                self.scalars[base] = _both(known, made, value)

    def _widen_dict(self, value: dict[Any, Any], level: int) -> None:
        if any(not isinstance(name, str) for name in value):
            raise AvroError("keys are texts", value)
        names = tuple(sorted(value))
        named = all(NAME.fullmatch(name) for name in names)
        if self.map is None and named and (names in self.records or len(self.records) < VARIANTS):
            fields = self.records.setdefault(names, {name: Shape() for name in names})
            for name in names:
                _step(fields[name], value[name], level, name)
            return
        self.map = self.map or Shape()
        for name, item in value.items():
            _step(self.map, item, level, name)

    def schema(self) -> bytes:
        return json.dumps(_Names().type(self, "record"), separators=(",", ":")).encode()


def _step(shape: Shape, value: Any, level: int, step: Any) -> None:
    try:
        shape.widen(value, level + 1)
    except AvroError as error:
        error.steps.append(step)
        raise


def _scalar(value: Any) -> tuple[str, Any]:
    """What it is made of, and its type."""
    if isinstance(value, bool):
        return "boolean", "boolean"
    if isinstance(value, int):
        return "long", "long"
    if isinstance(value, float):
        return "double", "double"
    if isinstance(value, str):
        return "string", "string"
    if isinstance(value, bytes):
        return "bytes", "bytes"
    if isinstance(value, datetime):
        return "long", (_LOCAL if value.utcoffset() is None else _MICROS)
    if isinstance(value, date):
        return "int", {"type": "int", "logicalType": "date"}
    if isinstance(value, time):
        return "long", {"type": "long", "logicalType": "time-micros"}
    if isinstance(value, Decimal):
        return "bytes", _decimal(value)
    if isinstance(value, UUID):
        return "string", {"type": "string", "logicalType": "uuid"}
    if isinstance(value, Duration):
        return "fixed", {"type": "fixed", "name": "duration", "size": 12, "logicalType": "duration"}
    raise AvroError("Avro has no type for it", value)


def _decimal(value: Decimal) -> dict[str, Any]:
    if not value.is_finite():
        raise AvroError("Avro has only finite decimals", value)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent) if value else 0
    return _digits(max(1, value.adjusted() + 1) if value else 1, scale, value)


def _digits(whole: int, scale: int, value: Any) -> dict[str, Any]:
    if whole + scale > MOST_DIGITS:
        raise AvroError(f"it needs more than {MOST_DIGITS} digits", value)
    made = {"type": "bytes", "logicalType": "decimal", "precision": max(DIGITS, whole + scale), "scale": scale}
    return {**made, _WHOLE: whole}


def _both(known: Any, made: Any, value: Any) -> Any:
    """One type for both. Of the decimals: as many digits after the point as any, and room for as many before it as there were."""
    if isinstance(known, dict) and isinstance(made, dict) and known["logicalType"] == made["logicalType"] == "decimal":
        return _digits(max(known[_WHOLE], made[_WHOLE]), max(known["scale"], made["scale"]), value)
    raise AvroError("other values at this place are of a type that a union can't hold besides it", value)


class _Names:
    """Makes the schema: a named type is defined once, and has a name of its own."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def type(self, shape: Shape, name: str) -> Any:
        """The order of a union does not depend on the order of the records."""
        made: list[Any] = ["null"] if shape.null else []
        made += [self._scalar(shape.scalars[base]) for base in _ORDER if base in shape.scalars]
        made += [self._record(names, shape.records[names], name) for names in sorted(shape.records)]
        if shape.items is not None:
            made.append({"type": "array", "items": self.type(shape.items, name)})
        if shape.map is not None:
            made.append({"type": "map", "values": self.type(shape.map, name)})
        if made in ([], ["null"]):
            return _NOTHING
        return made[0] if len(made) == 1 else made

    def _scalar(self, made: Any) -> Any:
        if isinstance(made, dict) and "name" in made:
            if made["name"] in self._used:
                return made["name"]
            self._used.add(made["name"])
        return {name: each for name, each in made.items() if name != _WHOLE} if isinstance(made, dict) else made

    def _record(self, names: tuple[str, ...], fields: dict[str, Shape], name: str) -> Any:
        own, number = name, 1
        while own in self._used:
            number += 1
            own = f"{name}_{number}"
        self._used.add(own)
        return {
            "name": own,
            "type": "record",
            "fields": [{"name": each, "type": self.type(fields[each], f"{own}_{each}")} for each in names],
        }
