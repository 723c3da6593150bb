"""The parts of a page that are generated stand between two comments; what is written by hand stands around them.

Used by the scripts that `make docs` runs. A part has a name, and its comments show it:

    <!-- codes: made by `make docs`, do not edit -->
    …
    <!-- end of codes -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"<!-- (?P<name>[^:\n]+): made by [^\n]*-->\n.*?<!-- end of (?P=name) -->", re.DOTALL)


class LostTextError(Exception):
    """A part is no longer made, and text that was written by hand for it would be lost."""


def part(name: str, made: str) -> str:
    return f"<!-- {name}: made by `make docs`, do not edit -->\n\n{made.strip()}\n\n<!-- end of {name} -->"


def replaced(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts anew. Each has to be there already."""
    there = {m["name"] for m in _PART.finditer(page)}
    if there != parts.keys():
        raise LostTextError(f"the page has the parts {sorted(there)}, but {sorted(parts)} are made")
    return _PART.sub(lambda m: part(m["name"], parts[m["name"]]), page)


def in_order(page: str, parts: Mapping[str, str]) -> str:
    """The page with exactly these parts in this order, each followed by what was written by hand behind it."""
    found = list(_PART.finditer(page))
    ends = [*(m.start() for m in found[1:]), len(page)]
    behind = {m["name"]: page[m.end() : end].strip() for m, end in zip(found, ends, strict=True)}
    for name, text in behind.items():
        if text and name not in parts:
            raise LostTextError(f"{name} is no longer there; move or remove what is written behind it")
    head = page[: found[0].start()] if found else page
    pieces = [head.strip()]
    for name, made in parts.items():
        pieces += [part(name, made), behind.get(name, "")]
    return "\n\n".join(p for p in pieces if p) + "\n"
