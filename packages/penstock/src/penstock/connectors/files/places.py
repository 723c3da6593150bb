"""How `files` numbers its records: by their place in the file, which is the number of the line; in a file of several blocks it begins anew
with each of them, behind all that the blocks before can have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.connectors.numbering import Named, Numbers
from penstock.ranges import Range

EXAMPLE = "/data/in/a.jsonl#41"
RATIO = {".gz": 1032, ".zst": 1 << 16}  # no stream of these expands more
BLOCK = 64 << 20  # bytes, as in `lines.py` and `engine/session.py`


def named(position: bytes) -> Named | None:
    path, sign, place = position.rpartition(b"#")
    if not (path and sign and place.isdigit()):
        return None
    try:
        return Named(path.decode(), int(place))
    except UnicodeDecodeError:
        return None


def position(strand: str, number: int) -> bytes:
    return f"{strand}#{number}".encode()


def numbers(r: Range, records: int | None = None) -> Numbers | None:
    p = r.position
    if not {"size", "mtime", "from", "to"} <= p.keys():
        return None
    low, ended = _number(p["from"], p.get("place", 0)), p["to"] >= p["size"]
    if not ended:
        return Numbers(r.base, low, _number(p["to"], p["next"]), records=_in_one(r, records))
    if "rows" in p:
        return Numbers(r.base, 0, p["rows"], sure=True, ended=True)
    if (known := _in_one(r, records)) is not None:
        return Numbers(r.base, low, low + known + 1, ended=True, records=known)  # one more: a header has a place
    return Numbers(r.base, low, most_records(r), ended=True)


def candidates(r: Range, records: int | None) -> Iterator[int]:
    n = numbers(r, records)
    if n is None:
        return
    if n.sure or records is None or _in_one(r, records) is not None:
        yield from range(n.low, n.high)
        return
    for block in range(_block(r.position["from"]), _block(r.position["to"]) + 1):
        first = max(n.low, _number(block * BLOCK + 1, 0))
        yield from range(first, min(first + records + 1, _number((block + 1) * BLOCK + 1, 0), n.high))


def _block(byte: int) -> int:
    """The block that the line which starts there belongs to, as `lines.py` has it."""
    return max(byte - 1, 0) // BLOCK


def _number(byte: int, place: int) -> int:
    """Of the line that starts there, with this place in its block: numbers begin anew where a block does, at its first byte."""
    begin = _block(byte) * BLOCK
    return begin + (begin > 0) + place


def _in_one(r: Range, records: int | None) -> int | None:
    """How many records it has, where their numbers follow each other without a gap."""
    p = r.position
    return records if Path(r.strand).suffix in RATIO or _block(p["from"]) == _block(p["to"]) else None


def most_records(r: Range) -> int:
    """How many seqs a file may need, whatever it holds."""
    rows: int | None = r.position.get("rows")
    size: int = r.position["size"]
    most: int = rows if rows is not None else size * RATIO.get(Path(r.strand).suffix, 1)
    return most + 2
