"""How `kafka` numbers its records: by their offset in the partition. Not every offset is a record's: transactions have some of their own,
and compaction takes others away."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.connectors.numbering import Named, Numbers
from penstock.ranges import Range

EXAMPLE = "orders/3/1042"


def named(position: bytes) -> Named | None:
    strand, _, offset = position.rpartition(b"/")
    topic, _, partition = strand.rpartition(b"/")
    if not (topic and partition.isdigit() and offset.isdigit() and strand.isascii()):
        return None
    return Named(strand.decode(), int(offset))


def position(strand: str, number: int) -> bytes:
    return f"{strand}/{number}".encode()


def numbers(r: Range, records: int | None = None) -> Numbers | None:
    p = r.position
    if not {"topic", "partition", "from", "to"} <= p.keys():
        return None
    return Numbers(r.base - p["from"], p["from"], p["to"], sure=records == p["to"] - p["from"])


def candidates(r: Range, records: int | None) -> Iterator[int]:
    n = numbers(r, records)
    yield from range(n.low, n.high) if n is not None else ()
