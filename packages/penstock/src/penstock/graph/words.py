"""Text that is safe in a picture, and how wide it is in a terminal. Used by every form of a graph."""

from __future__ import annotations

import unicodedata

ELLIPSIS = "…"


def one_line(text: str) -> str:
    """Without line breaks, runs of spaces, or anything that drives a terminal or is not allowed in XML."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in joined)


def width(text: str) -> int:
    """In columns: East Asian characters take two, accents that stand on another character none."""
    return sum(_width(c) for c in text)


def cut(text: str, columns: int) -> str:
    """One line of at most so many columns; where something is left out it ends in an ellipsis."""
    text = one_line(text)
    if width(text) <= columns:
        return text
    kept, used = [], width(ELLIPSIS)
    for c in text:
        used += _width(c)
        if used > columns:
            break
        kept.append(c)
    return "".join(kept).rstrip() + ELLIPSIS


def padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def _width(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1
