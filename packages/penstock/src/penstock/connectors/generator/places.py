"""How `generator` numbers its records: one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.connectors.numbering import Named, Numbers
from penstock.ranges import Range

EXAMPLE = "1042"


def named(position: bytes) -> Named | None:
    return Named(None, int(position)) if position.isdigit() else None


def position(strand: str, number: int) -> bytes:
    del strand
    return b"%d" % number


def numbers(r: Range, records: int | None = None) -> Numbers | None:
    del records
    p = r.position
    if not {"seed", "format", "from", "to"} <= p.keys():
        return None
    return Numbers(r.base - p["from"], p["from"], p["to"], sure=True)


def candidates(r: Range, records: int | None) -> Iterator[int]:
    n = numbers(r, records)
    yield from range(n.low, n.high) if n is not None else ()
