"""What a payload is made of: texts, and values that differ from record to record. Pure, no Spark.

A template of the user's and the fields of Conduit's `format.options.*` become the same thing, a list of pieces; `columns.py`
makes a Spark column of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

LARGEST = 1 << 62  # of a number in a range
DIGITS = 9  # behind the point, at most

_PLACEHOLDER = re.compile(r"\{([a-z]+)(?::([^{}]*))?\}")
_RANGE = re.compile(r"(-?[0-9]{1,19})\.\.(-?[0-9]{1,19})")
_DECIMALS = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]+)?)\.\.(-?[0-9]{1,18}(?:\.[0-9]+)?)")


class Kind(StrEnum):
    SEQ = "seq"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    WORD = "word"
    UUID = "uuid"
    CHOICE = "choice"
    TIME = "time"
    DURATION = "duration"


@dataclass(frozen=True)
class Value:
    kind: Kind
    name: str  # two values of one record differ by it
    low: int = 0  # INT and FLOAT: both ends are possible; of a FLOAT in units of the last digit
    high: int = 0
    digits: int = 0
    choices: tuple[str, ...] = ()


Piece = str | bytes | Value
Pieces = tuple[Piece, ...]

FIELD_TYPES = {"int": Kind.INT, "string": Kind.WORD, "time": Kind.TIME, "bool": Kind.BOOL, "duration": Kind.DURATION}
_PLACEHOLDERS = {kind.value: kind for kind in Kind if kind is not Kind.DURATION}
_QUOTED = (Kind.WORD, Kind.TIME)
_PLAIN = (Kind.SEQ, Kind.BOOL, Kind.WORD, Kind.UUID, Kind.TIME)  # take nothing behind their name
_SIZES = {Kind.SEQ: 7, Kind.BOOL: 5, Kind.WORD: 6, Kind.UUID: 36, Kind.TIME: 24, Kind.DURATION: 12}


def parse(text: str) -> Pieces:
    """The pieces of a template. Raises `ValueError` for a placeholder that is known and wrongly used."""
    pieces: list[Piece] = []
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        kind = _PLACEHOLDERS.get(match[1])
        if kind is None:
            continue
        if match.start() > at:
            pieces.append(text[at : match.start()])
        pieces.append(_value(kind, match[2], str(len(pieces))))
        at = match.end()
    return (*pieces, text[at:]) if at < len(text) else tuple(pieces)


def of_fields(fields: Mapping[str, str]) -> Pieces:
    """A JSON object, its keys sorted."""
    pieces: list[Piece] = []
    text = "{"
    for i, name in enumerate(sorted(fields)):
        kind = FIELD_TYPES[fields[name]]
        quote = '"' if kind in _QUOTED else ""
        pieces += [f"{text}{',' if i else ''}{json.dumps(name, ensure_ascii=False)}:{quote}", _any(kind, name)]
        text = quote
    return (*pieces, text + "}")


def size(pieces: Sequence[Piece]) -> int:
    """About how many bytes a payload has; at least one."""
    return max(1, sum(_size(p) for p in pieces))


def one_line(pieces: Sequence[Piece]) -> bool:
    """True when no payload can have a line break."""
    texts = [t for p in pieces for t in (p.choices if isinstance(p, Value) else (p,))]
    return not any((b"\n" in t) if isinstance(t, bytes) else ("\n" in t) for t in texts)


def _any(kind: Kind, name: str) -> Value:
    return Value(kind, name, 0, LARGEST * 2 - 1) if kind is Kind.INT else Value(kind, name)


def _value(kind: Kind, given: str | None, name: str) -> Value:
    if kind in _PLAIN:
        if given is not None:
            raise ValueError(f"must have nothing behind `{kind}`: write {{{kind}}}")
        return _any(kind, name)
    if kind is Kind.CHOICE:
        if not given:
            raise ValueError("must name the choices, such as {choice:a|b|c}")
        return Value(kind, name, choices=tuple(given.split("|")))
    return _whole(given, name) if kind is Kind.INT else _decimal(given, name)


def _whole(given: str | None, name: str) -> Value:
    if given is None:
        return _any(Kind.INT, name)
    match = _RANGE.fullmatch(given)
    low, high = (int(match[1]), int(match[2])) if match else (1, 0)
    if not -LARGEST < low <= high < LARGEST:
        raise ValueError("must say a number from where to where, such as {int:1..100}")
    return Value(Kind.INT, name, low, high)


def _decimal(given: str | None, name: str) -> Value:
    """As many digits behind the point as the longer end has, two at least: a number of them prints alike on every JVM."""
    match = _DECIMALS.fullmatch(given if given is not None else "0..1")
    ends = (match[1], match[2]) if match else ("1", "0")
    digits = max(2, *(len(e.partition(".")[2]) for e in ends))
    low, high = (int(Decimal(e).scaleb(min(digits, DIGITS))) for e in ends)
    if digits > DIGITS or not -LARGEST < low <= high < LARGEST:
        raise ValueError(
            f"must say a number from where to where, with at most {DIGITS} digits behind the point, such as"
            " {float:0..9.99}"
        )
    return Value(Kind.FLOAT, name, low, high, digits)


def _size(piece: Piece) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    if isinstance(piece, str):
        return len(piece.encode())
    if piece.kind is Kind.CHOICE:
        return sum(len(c.encode()) for c in piece.choices) // len(piece.choices)
    if piece.kind in (Kind.INT, Kind.FLOAT):
        return max(len(str(piece.low)), len(str(piece.high)), piece.digits + 1) + (piece.kind is Kind.FLOAT)
    return _SIZES[piece.kind]
