"""References to a field of a record: `.Payload.After.x.y`, as in Conduit, or `after.x.y`. Pure.

The fixed part ignores case; `["any key"]` is a key that is no plain name. Lists have no indexes here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock_sdk.record import Record

_ROOTS = {
    ".payload.after": "after",
    ".payload.before": "before",
    ".key": "key",
    ".metadata": "metadata",
    ".operation": "operation",
    ".position": "position",
}
_PART = re.compile(r'\.([^.\[\]"]+)|\["((?:[^"\\]|\\.)*)"\]')


class BadReference(ValueError):
    pass


@dataclass(frozen=True)
class Reference:
    """A record's field: `root` is a column, `path` leads into it."""

    root: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Raises `BadReference` with words that begin with "must"."""
        low = text.lower()
        for prefix, root in (*_ROOTS.items(), *((name, name) for name in _ROOTS.values())):
            if low == prefix or (low.startswith(prefix) and text[len(prefix)] in ".["):
                return cls(root, _path(text, text[len(prefix) :]))
        raise BadReference(
            "must be a reference such as .Payload.After.x, .Payload.Before.x, .Key.x, .Metadata.x or .Operation"
        )

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
            return
        setattr(r, self.root, self.put(getattr(r, self.root), value))

    def put(self, payload: Any, value: Any) -> Any:
        """The payload with the field set, in place where it is there already."""
        if payload is None:
            payload = {}
        at = payload
        for name in self.path[:-1]:
            if not isinstance(at, dict):
                break
            if at.get(name) is None:
                at[name] = {}
            at = at[name]
        if not isinstance(at, dict):
            raise TypeError(f"{self} can't be set: a part of the way is {type(at).__name__}, not an object")
        at[self.path[-1]] = value
        return payload

    def __str__(self) -> str:
        return ".".join((self.root, *self.path))


def _path(text: str, rest: str) -> tuple[str, ...]:
    path, at = [], 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None:
            raise BadReference(f"must be a reference: {text!r} can't be read from {rest[at:]!r} on")
        path.append(found[1] if found[1] is not None else found[2].replace('\\"', '"').replace("\\\\", "\\"))
        at = found.end()
    return tuple(path)
