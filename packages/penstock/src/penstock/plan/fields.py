"""Fields of the payload as processors take them: a comma list such as ``a, b.c, `odd.name` ``. Pure, and without Spark.

`pick`, `omit`, `rename` and `skip` read their settings with it, in the engine; in Spark's tasks it says what an object is.
A name with a dot, a comma, a colon or a backtick in it stands in backticks, a backtick in it is written twice.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from penstock.errors import Rejected, Stop

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Path = tuple[str, ...]
Tree = dict[str, Union["Tree", None]]  # names by level; None = the whole field

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^.,:`]*[^.,:`\s]))\s*")
_PAYLOAD = re.compile(r"\s*\.payload\.after(?=\.)", re.IGNORECASE)
_HOW = "must be fields such as a, b.c; a name with . , : or ` in it stands in backticks"


def parse_paths(text: str) -> tuple[Path, ...]:
    """Raises `ValueError` with words that begin with "must"."""
    found = _scan(text)
    if any(new is not None for _, new in found):
        raise ValueError(_HOW)
    return tuple(path for path, _ in found)


def parse_path(text: str) -> Path:
    """One field. Raises `ValueError` like `parse_paths`."""
    found = parse_paths(text)
    if len(found) != 1:
        raise ValueError("must be one field")
    return found[0]


def parse_renames(text: str) -> tuple[tuple[Path, str], ...]:
    """`a:b, c.d:e`: old paths and new names. Raises `ValueError` with words that begin with "must"."""
    made = []
    for path, new in _scan(text):
        if new is None:
            raise ValueError("must be pairs such as old:new, a.old:new; the new name stays at the level of the old one")
        if len(new) != 1:
            raise ValueError(
                f"must give {shown(path)!r} one new name without dots: it stays at its level (or write it in backticks)"
            )
        made.append((path, new[0]))
    return tuple(made)


def _scan(text: str) -> list[tuple[Path, Path | None]]:
    found: list[tuple[Path, Path | None]] = []
    at = 0
    while True:
        if prefix := _PAYLOAD.match(text, at):
            at = prefix.end() + 1
        path, at = _path(text, at)
        new = None
        if text[at : at + 1] == ":":
            new, at = _path(text, at + 1)
        found.append((path, new))
        if at == len(text):
            return found
        if text[at] != ",":
            raise ValueError(_HOW)
        at += 1


def _path(text: str, at: int) -> tuple[Path, int]:
    names = []
    while True:
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(_HOW)
        names.append(name[2] if name[1] is None else name[1].replace("``", "`"))
        at = name.end()
        if text[at : at + 1] != ".":
            return tuple(names), at
        at += 1


def tree(paths: Iterable[Path]) -> Tree:
    """The paths by level. Raises `ValueError` where one of them is named twice, or holds another."""
    root: Tree = {}
    for path in paths:
        level = root
        for i, name in enumerate(path[:-1], 1):
            below = level.setdefault(name, {})
            if below is None:
                raise ValueError(_overlap(path[:i], path))
            level = below
        if path[-1] in level:
            raise ValueError(_overlap(path, path))
        level[path[-1]] = None
    return root


def _overlap(outer: Path, inner: Path) -> str:
    if outer == inner:
        return f"must name {shown(outer)!r} once, and no field inside it"
    return f"must not name {shown(inner)!r} beside {shown(outer)!r}, which holds it"


def shown(path: Path) -> str:
    """A path as it is written."""
    plain = re.compile(r"[^.,:`\s]([^.,:`]*[^.,:`\s])?")
    return ".".join(name if plain.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in path)


def object_of(payload: Any) -> dict[str, Any] | None:
    """The payload as an object, None where there is none. In Spark's tasks; anything else is a nack."""
    if payload is None or isinstance(payload, dict):
        return payload
    raise Rejected(
        f"the payload is {type(payload).__name__}, not an object: it has no fields",
        code="processor.not-an-object",
        hint="put json.decode before it",
    )


# -- typed payloads: what the schema says ---------------------------------------------------------------------------------


def struct_fields(type_: DataType) -> Mapping[str, DataType] | None:
    """The fields of a struct; None for any other type."""
    return {f.name: f.dataType for f in type_.fields} if type_.typeName() == "struct" else None  # type: ignore[attr-defined]


def is_text_map(type_: DataType) -> bool:
    """A map whose keys can be named like fields."""
    return type_.typeName() == "map" and type_.keyType.typeName() == "string"  # type: ignore[attr-defined]


def refuse_unknown(names: Tree, type_: DataType, processor_id: str, above: Path = ()) -> None:
    """`Stop` for the first field that the schema has not. The keys of a map are taken as they come, but not what is inside
    their values."""
    fields = struct_fields(type_)
    for name, below in names.items():
        path = (*above, name)
        if fields is None and is_text_map(type_):
            if below is not None:
                raise no_fields(processor_id, path, "a value of a map")
        elif fields is None:
            raise no_fields(processor_id, above, type_.simpleString()[:100])
        elif name not in fields:
            raise unknown_field(processor_id, path, fields)
        elif below is not None:
            refuse_unknown(below, fields[name], processor_id, path)


def unknown_field(processor_id: str, path: Path, known: Iterable[str]) -> Stop:
    names = list(known)
    near = difflib.get_close_matches(path[-1], names, 1)
    there = ", ".join(shown((name,)) for name in names[:50])
    return Stop(
        f"The processor {processor_id!r} names the field {shown(path)}, which the payload has not",
        code="processor.unknown-field",
        why=f"its schema has {there or 'no fields'} there",
        hint=f"did you mean {shown((*path[:-1], near[0]))}?" if near else "correct the name, or leave it out",
    )


def no_fields(processor_id: str, path: Path, what: str) -> Stop:
    return Stop(
        f"The processor {processor_id!r} names a field of {shown(path) or 'the payload'}, which has none",
        code="processor.unknown-field",
        why=f"it is {what}",
        hint="name the whole field, or use `sql` to look inside",
    )
