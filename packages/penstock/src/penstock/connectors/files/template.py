"""`path: out/{namespace}`: the folder a record goes to. A literal folder in front, then text with values of the record.

Values are percent-encoded, so that none of them is a path: a `/` in one is `%2F`. A value that is missing, that names a folder
above (`..`), or that is too long for a name is a nack of its record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import record

if TYPE_CHECKING:
    from pyspark.sql import Column

_PLACE = re.compile(r"\{([^{}]*)\}")
_NAMES = (record.NAMESPACE, record.OPERATION, record.SOURCE)
LONGEST = 230  # characters of a folder's name as Spark writes it while it is staged


@dataclass(frozen=True)
class Template:
    root: str  # the literal folder
    parts: tuple[tuple[str, str], ...]  # (text, name of a value or empty)

    @classmethod
    def parse(cls, path: str) -> Template:
        """Raises `ValueError` with words that begin with "must"."""
        first = path.find("{")
        if first < 0:
            if "}" in path:
                raise ValueError("must have a `{` for every `}`")
            return cls(path, ())
        root, _, rest = path[:first].rpartition("/")
        if not root.strip("/."):
            raise ValueError("must begin with a folder of its own, before the first `{…}`")
        rest += path[first:]
        parts, end = [], 0
        for found in _PLACE.finditer(rest):
            parts.append((rest[end : found.start()], _name(found[1])))
            end = found.end()
        parts.append((rest[end:], ""))
        text = "".join(part for part, _ in parts)
        if "{" in text or "}" in text:
            raise ValueError("must have a `}` for every `{`")
        if any(piece in ("..", ".") for piece in path.split("/")[1:]) or "//" in rest or rest.endswith("/"):
            raise ValueError("must name folders, without `..`, `.` or empty ones")
        if rest.startswith("_"):
            raise ValueError("must not begin with `_` behind its own folder: `_penstock` is there")
        return cls(root, tuple(parts))

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.parts if name]

    @property
    def columns(self) -> set[str]:
        return {name.partition(".")[0] for name in self.names}

    def folder(self, columns: Mapping[str, Column]) -> Column | None:
        """The folder below the root; NULL where a value is missing."""
        from pyspark.sql import functions as F

        if not self.parts:
            return None
        pieces = []
        for text, name in self.parts:
            pieces += [F.lit(text)] if text else []
            pieces += [_encoded(_value(name, columns))] if name else []
        return F.concat(*pieces)

    def unfit(self, columns: Mapping[str, Column]) -> list[tuple[Column, str]]:
        """Conditions under which a record has no folder, and why."""
        from pyspark.sql import functions as F

        found = []
        for name in self.names:
            value = _value(name, columns)
            found.append((value.isNull() | (value == ""), f"its {name} is missing, which the path of the files needs"))
            found.append((~F.is_valid_utf8(value), f"its {name} is not UTF-8, and can't be part of a path"))
            found.append(
                (F.regexp_like(value, F.lit(r"(^|[/\\])\.\.?($|[/\\])")), f"its {name} would lead to another folder")
            )
        folder = self.folder(columns)
        if folder is not None:
            long = F.length(F.replace(F.replace(folder, F.lit("%"), F.lit("%25")), F.lit("/"), F.lit("%2F"))) > LONGEST
            found.append((long, "the folder it belongs to has too long a name"))
        return found


def _name(text: str) -> str:
    root, _, key = text.partition(".")
    if text in _NAMES or (root in (record.METADATA, record.AFTER) and key):
        return text
    known = ", ".join(f"{{{n}}}" for n in (*_NAMES, "metadata.KEY", "after.FIELD"))
    raise ValueError(f"must have only {known} in braces, and it has {{{text}}}")


def _value(name: str, columns: Mapping[str, Column]) -> Column:
    root, _, key = name.partition(".")
    value = columns[root]
    if root == record.METADATA:
        return value[key]
    for part in key.split(".") if key else ():
        value = value.getField(part)
    return value.cast("string")


def _encoded(value: Column) -> Column:
    """Letters, digits, `-`, `_` and `.` as they are, but not `_` or `.` in front: such folders are hidden from readers."""
    from pyspark.sql import functions as F

    text = F.replace(F.replace(F.url_encode(value), F.lit("+"), F.lit("%20")), F.lit("*"), F.lit("%2A"))
    return F.regexp_replace(F.regexp_replace(text, r"^\.", "%2E"), "^_", "%5F")
