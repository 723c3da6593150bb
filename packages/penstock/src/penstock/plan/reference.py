"""References to a field of a record: `.Payload.After.x.y`, as in Conduit, or `after.x.y`, which is ours. Pure.

Used by the settings of processors, and by what they do to a record in Spark's tasks.

With a point (or `$`) in front it is Conduit's spelling, with Conduit's rules: `.Payload`, `.Key` and so on may begin with a small
letter; a name is made of letters, digits and `_` and does not begin with a digit; any other key is written `["any key"]`, where
a backslash keeps the quotation mark behind it from ending the key, and both stay in the key. Ours ignores the case of its first
word, takes any name without `.`, `[`, `]` and `"`, and in `["a \\"key\\""]` a backslash is left out. Lists have no indexes.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from penstock_sdk.record import COLLECTION, Record

PAYLOAD, RECORD = "payload", "record"  # roots that are no column: both payloads, and the whole record
_PLACES = {"Key": "key", "Metadata": "metadata", "Operation": "operation", "Position": "position"}
_PAYLOADS = {"After": "after", "Before": "before"}
_OURS = ("after", "before", "key", "metadata", "operation", "position")
_OUR_PART = re.compile(r'\.([^.\[\]"]+)|\["((?:[^"\\]|\\.)*)"\]', re.DOTALL)
_PART = re.compile(r'\.(?![0-9])(\w+)(?=[.\[]|\Z)|\["((?:[^"\\\n]|\\[^\n])*)"\]')
_SMALL = re.compile(r"\.(payload|key|metadata|position|operation)")
_SMALL_PAYLOAD = re.compile(r"\.Payload\.(before|after)")


class BadReference(ValueError):
    pass


@dataclass(frozen=True)
class Reference:
    """A record's field: `root` is a column, `path` leads into it."""

    root: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, whole: bool = False) -> Reference:
        """Raises `BadReference` with words that begin with "must". With `whole` also `.Payload` (both of them) and `.` (the
        record) are references: Conduit takes them where it then fails for every record."""
        if text[:1] in (".", "$") or (whole and not text):
            made = cls._conduit(text)
            if made.root in (PAYLOAD, RECORD) and not whole:
                raise BadReference(_EXPECTED)
        else:
            made = cls._our(text)
        if made.root == "metadata" and len(made.path) > 1:
            key = ".".join(made.path)
            raise BadReference(
                f'must name one key of the metadata; one with points in it is written .Metadata["{key}"]'
            )
        if made.root in ("operation", "position") and made.path:
            raise BadReference(f"must be `.{made.root.capitalize()}`: it has no fields")
        return made

    @classmethod
    def _conduit(cls, text: str) -> Reference:
        rest = _SMALL.sub(lambda m: f".{m[1].capitalize()}", text, count=1) if _SMALL.match(text) else text
        if _SMALL_PAYLOAD.match(rest):
            rest = _SMALL_PAYLOAD.sub(lambda m: f".Payload.{m[1].capitalize()}", rest, count=1)
        if rest[:1] == "$" or (rest[:1] == "." and rest[1:2] in ("", ".", "[")):
            rest = rest[1:]  # the record itself, said aloud
        names: list[str] = []
        for quoted, name in _parts(_PART, text, rest):
            if (quoted and not names) or not (quoted or all(map(_in_name, name))):
                raise BadReference(_EXPECTED)
            names.append(name)
        if not names:
            return cls(RECORD, ())
        if names == ["Payload"]:
            return cls(PAYLOAD, ())
        if names[0] == "Payload" and names[1] in _PAYLOADS:
            return cls(_PAYLOADS[names[1]], tuple(names[2:]))
        if names[0] in _PLACES:
            return cls(_PLACES[names[0]], tuple(names[1:]))
        raise BadReference(_EXPECTED)

    @classmethod
    def _our(cls, text: str) -> Reference:
        if text.lower() == "namespace":
            return cls("metadata", (COLLECTION,))
        root = text[: next((i for i, c in enumerate(text) if c in ".["), len(text))]
        if root.lower() not in _OURS:
            raise BadReference(_EXPECTED)
        parts = _parts(_OUR_PART, text, text[len(root) :])
        names = [re.sub(r"\\([\"\\])", r"\1", name) if quoted else name for quoted, name in parts]
        return cls(root.lower(), tuple(names))

    def get(self, r: Record) -> Any:
        """None where any part of the way is missing."""
        value = getattr(r, self.root)
        for name in self.path:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise TypeError(f"{self} can't be found: a part of the way is {type(value).__name__}, not an object")
            value = value.get(name)
        return value

    def set(self, r: Record, value: Any) -> None:
        """Makes what is missing on the way; a scalar on the way is an error."""
        if not self.path:
            setattr(r, self.root, value)
        else:
            self.holder(r)[self.path[-1]] = value

    def holder(self, r: Record) -> dict[str, Any]:
        """The object that the last name of the path is a key of; it is made, with all above it, where it is not there."""
        payload = getattr(r, self.root)
        if payload is None:
            payload = {}
            setattr(r, self.root, payload)
        return self.inside(payload)

    def inside(self, payload: Any) -> dict[str, Any]:
        """The same in a payload that is there. Nothing is changed where it raises."""
        at = payload
        for name in self.path[:-1]:
            if not isinstance(at, dict):
                break
            below = at.get(name)
            if below is None:
                below = at[name] = {}
            at = below
        if not isinstance(at, dict):
            raise TypeError(f"{self} can't be set: a part of the way is {type(at).__name__}, not an object")
        return at

    def put(self, payload: Any, value: Any) -> Any:
        """The payload with the field set, in place where it is there already."""
        if payload is None:
            payload = {}
        self.inside(payload)[self.path[-1]] = value
        return payload

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


_EXPECTED = "must be a reference such as .Payload.After.x, .Payload.Before.x, .Key.x, .Metadata.x or .Operation"


def _parts(pattern: re.Pattern[str], text: str, rest: str) -> list[tuple[bool, str]]:
    """(in brackets, name)"""
    found, at = [], 0
    while at < len(rest):
        match = pattern.match(rest, at)
        if match is None:
            raise BadReference(f"must be a reference: {text!r} can't be read from {rest[at:]!r} on")
        found.append((match[1] is None, match[2] if match[1] is None else match[1]))
        at = match.end()
    return found


def _in_name(c: str) -> bool:
    """Go's letters and decimal digits; Python's `\\w` knows more."""
    return c.isascii() or unicodedata.category(c)[0] == "L" or unicodedata.category(c) == "Nd"
