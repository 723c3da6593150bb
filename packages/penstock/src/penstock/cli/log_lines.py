"""How `penstock log show` writes records: a line for each, everything of each, or JSON. In colour where a terminal wants it."""

from __future__ import annotations

import base64
import codecs
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.cells import cell_len, set_cell_size

from penstock.cli.printer import colour, encodable, out, printable
from penstock.cli.shown import CUT_CHARACTERS, count, escaped, json_line, payload

if TYPE_CHECKING:
    from penstock.cli.log_records import Gone, Item, One

CHUNK = 50  # lines that are aligned with each other
NAMES = 24  # columns for a namespace in a pipe, where a longer one moves the others; on a terminal it is cut
HEADER = ("OFFSET", "TIME", "NAMESPACE", "OP", "PAYLOAD")
COLOURS = {"create": "green", "snapshot": "blue", "update": "yellow", "delete": "magenta"}
BINARY = 32  # bytes of a payload that is no text, in a line
_encode = msgspec.json.Encoder(decimal_format="number").encode

# -- for people: a line each --------------------------------------------------------------------------------------------------


class Lines:
    """Aligned with each other as far as they are written together; a column never gets narrower again."""

    def __init__(self, highest: int) -> None:
        self._widths = [len(h) for h in HEADER[:-1]]
        self._widths[0] = max(self._widths[0], len(str(highest)))
        self._rows: list[tuple[Item, list[str]]] = []
        self._begun = False

    def add(self, item: Item) -> None:
        from penstock.cli.log_records import One

        room = CUT_CHARACTERS if not sys.stdout.isatty() else max(20, _columns())
        self._rows.append((item, _cells(item, room) if isinstance(item, One) else []))
        if len(self._rows) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        for _, cells in self._rows:
            for i, cell in enumerate(cells[:-1]):
                self._widths[i] = max(self._widths[i], cell_len(cell))
        self._widths[2] = min(self._widths[2], NAMES if not sys.stdout.isatty() else _columns() // 6)
        made = [] if self._begun else [_grey(self._line(HEADER))]
        made += [self._shown(item, cells) for item, cells in self._rows]
        self._begun, self._rows = True, []
        _write("\n".join(made))

    def _shown(self, item: Item, cells: Sequence[str]) -> str:
        if not cells:
            return _between(item, " " * self._widths[0] + "  ")
        offset, at, namespace, operation, what = self._fitted(cells)
        hue = COLOURS.get(cells[3], "")
        return "  ".join(
            [
                colour(offset, "cyan", sys.stdout),
                _grey(at),
                namespace,
                colour(operation, hue, sys.stdout) if hue else operation,
                what,
            ]
        ).rstrip()

    def _line(self, cells: Sequence[str]) -> str:
        return "  ".join(self._fitted(cells))

    def _fitted(self, cells: Sequence[str]) -> list[str]:
        if not sys.stdout.isatty():
            made = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, self._widths, strict=False)]
            return [cells[0].rjust(self._widths[0]), *made[1:], cells[-1]]
        made = [_padded(cell, width) for cell, width in zip(cells, self._widths, strict=False)]
        made[0] = cells[0].rjust(self._widths[0])
        left = max(8, _columns() - sum(self._widths) - 2 * len(self._widths))
        return [*made, _padded(cells[-1], left).rstrip()]


def _cells(one: One, room: int) -> list[str]:
    from penstock.cli.shown import when

    operation = one.record.operation if one.record is not None else "–"
    shown = (str(one.offset), when(one.appended // 1_000_000), one.namespace or "–", operation, _told(one, room))
    return [encodable(escaped(cell), sys.stdout.encoding) for cell in shown]


def _told(one: One, room: int) -> str:
    """The payload in a line: what it is now, else what it was; with its key before it."""
    r = one.record
    parts = []
    if r is not None:
        key = "" if r.key is None else _brief(r.key, room)
        body = (
            _brief(r.after, room)
            if r.after is not None
            else ""
            if r.before is None
            else "was " + _brief(r.before, room)
        )
        parts = [": ".join(part for part in (key, body) if part)]
    if one.columns:
        parts.append(_brief(one.columns, room))
    return " ".join(part for part in parts if part) or "–"


def _brief(value: Any, room: int) -> str:
    """Of a large one only the beginning is looked at."""
    if isinstance(value, bytes):
        text = _beginning(value, room)
        if text is None:
            more = "…" if len(value) > BINARY else ""
            return f"{value[:BINARY].hex(' ')}{more} ({count(len(value), 'byte')})"
        if len(text) >= room and len(value) > 4 * room:
            return f"{text[:room]}… ({count(len(value), 'byte')}; --full shows all)"
    else:
        text = _encode(plain(value)).decode()
    return text if len(text) <= room else f"{text[:room]}… ({count(len(text), 'character')}; --full shows all)"


def _beginning(data: bytes, room: int) -> str | None:
    """As text, if that is what it is."""
    part = data[: 4 * room + 4]
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(part, final=len(part) == len(data))
    except UnicodeDecodeError:
        return None


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _padded(text: str, width: int) -> str:
    """Some characters take two columns."""
    size = cell_len(text)
    if size <= width:
        return text + " " * (width - size)
    mark = encodable("…", sys.stdout.encoding)
    return set_cell_size(text, width - len(mark)) + mark


# -- for people: everything ---------------------------------------------------------------------------------------------------


def full(item: Item) -> None:
    from penstock.cli.log_records import One

    if not isinstance(item, One):
        _write(_between(item, ""))
        return
    r = item.record
    operation = (r.operation,) if r is not None else ()
    head = (f"offset {item.offset}", stamp(item.appended), item.namespace or "–", item.phase, *operation)
    _write(colour(printable("  ".join(escaped(part) for part in head)), "cyan", sys.stdout))
    out("\n".join([*_fields(item), ""]))


def _fields(one: One) -> Iterator[str]:
    r = one.record
    if r is not None:
        if r.timestamp is not None:
            yield f"  timestamp: {r.timestamp.isoformat()}"
        for name, value in (("position", r.position or None), ("key", r.key), ("before", r.before), ("after", r.after)):
            if value is not None:
                yield from payload(name, packed(value), "  ", full=True)
        if texts := metadata(r.metadata):
            yield "  metadata:"
            yield from (f"    {escaped(name)}: {escaped(text)}" for name, text in texts.items())
    if one.columns:
        yield from payload("columns", {"value": plain(one.columns)}, "  ", full=True)


# -- for both -----------------------------------------------------------------------------------------------------------------


def _between(item: Item, indent: str) -> str:
    from penstock.cli.log_records import Gap, Gone

    if isinstance(item, Gap):
        return _grey(encodable(f"{indent}… {count(item.count, 'offset')} compacted away", sys.stdout.encoding))
    assert isinstance(item, Gone)
    lost = item.lost
    what = "lost (marked by repair)" if item.repaired else "DAMAGED"
    text = f"{offsets(lost.offset, lost.count)}: {count(lost.count, 'record')} {what}: {escaped(lost.why)}"
    return colour(encodable(text, sys.stdout.encoding), "red", sys.stdout)


def offsets(first: int, many: int) -> str:
    return f"offset {first}" if many <= 1 else f"offsets {first}–{first + many - 1}"


def _grey(text: str) -> str:
    return colour(text, "bright_black", sys.stdout)


def _write(text: str) -> None:
    """The parts were made harmless before they were coloured."""
    if sys.stdout.isatty():
        click.echo(text)
    else:
        out(text)


def stamp(nanoseconds: int) -> str:
    """ISO 8601, UTC, with every digit."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).strftime('%Y-%m-%dT%H:%M:%S')}.{rest:09d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds} ns"


# -- for programs -------------------------------------------------------------------------------------------------------------


def json_item(item: Item) -> None:
    """Offsets that were compacted away have no line."""
    from penstock.cli.log_records import Gone, One

    if isinstance(item, One):
        json_line(_record_json(item))
    elif isinstance(item, Gone):
        json_line(_gone_json(item))


def _record_json(one: One) -> dict[str, Any]:
    r = one.record
    made: dict[str, Any] = {
        "offset": one.offset,
        "timestamp": stamp(one.appended),
        "namespace": one.namespace,
        "phase": one.phase,
    }
    if r is not None:
        made |= {
            "operation": r.operation,
            "position": base64.b64encode(r.position).decode(),
            "metadata": metadata(r.metadata),
            "record_timestamp": r.timestamp,
            "key": packed(r.key),
            "before": packed(r.before),
            "after": packed(r.after),
        }
    return {**made, "columns": plain(one.columns)} if one.columns else made


def _gone_json(gone: Gone) -> dict[str, Any]:
    lost = gone.lost
    return {
        "offset": lost.offset,
        "count": lost.count,
        "lost": lost.why,
        "repaired": gone.repaired,
        "namespace": lost.namespace or None,
        "file": str(lost.segment),
        "byte": lost.position,
    }


def metadata(texts: dict[str, str]) -> dict[str, str]:
    """Without the namespace, which stands beside it."""
    from penstock_sdk.record import COLLECTION

    return {name: text for name, text in texts.items() if name != COLLECTION}


def packed(value: Any) -> dict[str, Any] | None:
    """Text as text, other bytes as base64, and what has a structure as JSON."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return {"value": plain(value)}


def plain(value: Any) -> Any:
    """What JSON has no form for, in one that can be read: dates as ISO 8601, bytes as base64, an object id as its digits."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, Decimal):
        return value if value.is_finite() else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)
