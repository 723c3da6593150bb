"""How the commands that look at a state folder show things: tables that fit the terminal, times, payloads, JSON without loss."""

from __future__ import annotations

import base64
import binascii
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.cli.printer import columns, out, printable

CUT_CHARACTERS = 2000
CUT_LINES = 40
CUT_BYTES = 256
_LEAST = 8  # columns are not cut below this

_encode = msgspec.json.Encoder(decimal_format="number").encode


def json_text(value: Any) -> str:
    return _encode(value).decode()


def json_line(value: Any) -> None:
    """One line on stdout. What a terminal would act on, or can't show, is escaped as JSON has it: nothing is lost."""
    text = json_text(value)
    every = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    if not text.isprintable() or not (every or text.isascii()):
        text = "".join(c if c.isprintable() and (every or c.isascii()) else _as_json(c) for c in text)
    out(text)


def _as_json(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def when(milliseconds: int | None) -> str:
    """ISO 8601, UTC."""
    if milliseconds is None:
        return "never"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def ago(milliseconds: int | None) -> str:
    """How long since, for a column that is narrow."""
    if milliseconds is None:
        return "never"
    seconds = max(0, int(time.time() - milliseconds / 1000))
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:,} {name} ago"
    return f"{seconds} s ago"


def count(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def table(
    rows: Iterable[Sequence[str]], header: Sequence[str], *, numbers: Collection[int] = (), indent: str = ""
) -> str:
    """Under each other; the columns of `numbers` to the right. On a terminal a line is made to fit: the widest of the other columns
    are cut, and large numbers are rounded if that is not enough."""
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in (header, *rows)]
    widths = _widths(cells)
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - len(indent) - 2 * (len(header) - 1)
        texts = [i for i in range(len(header)) if i not in numbers and header[i] != "ID"]
        widths = fitted(widths, room, texts)
        if sum(widths) > room:
            cells = [[rounded(c) if i in numbers else c for i, c in enumerate(row)] for row in cells]
            widths = fitted(_widths(cells), room, texts)
    shown = [
        [cut(c, w).rjust(w) if i in numbers else cut(c, w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        for row in cells
    ]
    return columns([[indent + row[0], *row[1:]] for row in shown])


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def rounded(number: str) -> str:
    """12,345,678 as 12.3M."""
    digits = number.replace(",", "")
    if not digits.isdecimal() or len(digits) < 6:
        return number
    size, name = next((s, n) for s, n in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")) if int(digits) >= s)
    return f"{int(digits) / size:.1f}{name}"


def fitted(widths: Sequence[int], room: int, may_shrink: Collection[int]) -> list[int]:
    """Takes from the widest first."""
    found = list(widths)
    while sum(found) > room:
        widest = max(may_shrink, key=lambda i: found[i], default=None)
        if widest is None or found[widest] <= _LEAST:
            break
        found[widest] -= 1
    return found


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# -- records --------------------------------------------------------------------------------------------------------


def record(value: Any, indent: str, *, full: bool) -> Iterator[str]:
    """A record of a dead letter file (`given` or `form`), field by field."""
    if not isinstance(value, dict):
        yield from payload("record", {"value": value}, indent, full=full)
        return
    for name in ("key", "before", "after"):
        if value.get(name) is not None:
            yield from payload(name, value[name], indent, full=full)
    for name in ("operation", "namespace"):
        if value.get(name) is not None:
            yield f"{indent}{name}: {escaped(str(value[name]))}"
    if "repr" in value:
        yield from _text("what it held", str(value["repr"]), indent, full=full)
    if value.get("metadata"):
        yield f"{indent}metadata:"
        for key, text in value["metadata"].items():
            yield f"{indent}  {escaped(str(key))}: {_short(escaped(str(text)), full)}"


def payload(name: str, packed: Any, indent: str, *, full: bool) -> Iterator[str]:
    """Structured as JSON, text as text, other bytes in hexadecimal digits."""
    if isinstance(packed, dict) and isinstance(packed.get("text"), str):
        yield from _text(name, packed["text"], indent, full=full)
    elif isinstance(packed, dict) and isinstance(packed.get("base64"), str):
        yield from _binary(name, packed["base64"], indent, full=full)
    else:
        value = packed.get("value") if isinstance(packed, dict) and set(packed) == {"value"} else packed
        pretty = msgspec.json.format(_encode(value), indent=2).decode()
        yield from _lines(f"{name} (structured):", pretty.split("\n"), indent, full=full)


def _text(name: str, text: str, indent: str, *, full: bool) -> Iterator[str]:
    size = count(len(text), "character")
    if not text:
        yield f"{indent}{name}: empty text"
        return
    odd = "" if all(c.isprintable() or c == "\n" for c in text) else "; control characters as in Python"
    yield from _lines(f"{name} (text, {size}{odd}):", text.split("\n"), indent, full=full)


def _binary(name: str, text: str, indent: str, *, full: bool) -> Iterator[str]:
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        yield from _text(name, text, indent, full=full)
        return
    yield f"{indent}{name} (binary, {count(len(data), 'byte')}):"
    part = data if full else data[:CUT_BYTES]
    for at in range(0, len(part), 16):
        row = part[at : at + 16]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        yield f"{indent}  {at:04x}  {row.hex(' '):<47}  {letters}"
    if len(part) < len(data):
        yield f"{indent}  … {count(len(data) - len(part), 'byte')} more; --full shows all"


def _lines(title: str, lines: Sequence[str], indent: str, *, full: bool) -> Iterator[str]:
    yield indent + title
    left = CUT_CHARACTERS
    for n, line in enumerate(lines):
        if not full and (n >= CUT_LINES or left <= 0):
            yield f"{indent}  … {count(len(lines) - n, 'line')} more; --full shows all"
            return
        if not full and len(line) > left:
            yield f"{indent}  {escaped(line[:left])}"
            rest = sum(len(more) + 1 for more in lines[n:]) - left - 1
            yield f"{indent}  … {count(rest, 'character')} more; --full shows all"
            return
        yield f"{indent}  {escaped(line)}"
        left -= len(line)


def _short(text: str, full: bool) -> str:
    return text if full or len(text) <= 200 else f"{text[:200]}… (--full shows all)"


def escaped(text: str) -> str:
    """What is not for the eye is written as Python writes it: a record that failed for a tab or a NUL has to show it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
