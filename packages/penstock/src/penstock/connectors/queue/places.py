"""How a commit log numbers its records: by their offset. In a queue that is the position, too; what a connector of its own process calls
a position is in the log alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.connectors.numbering import Named, Numbers
from penstock.ranges import Range

EXAMPLE = "1042"
_LOG = re.compile(r"[0-9a-f]{32}")


def named(position: bytes) -> Named | None:
    return Named(None, int(position)) if position.isdigit() else None


def position(strand: str, number: int) -> bytes:
    del strand
    return b"%d" % number


def numbers(r: Range, records: int | None = None) -> Numbers | None:
    del records
    p = r.position
    if not {"from", "to"} <= p.keys() or not is_log(r.strand):
        return None
    return Numbers(r.base - p["from"], p["from"], p["to"], sure="records" not in p)


def is_log(strand: str) -> bool:
    return _LOG.fullmatch(strand) is not None


def candidates(r: Range, records: int | None) -> Iterator[int]:
    n = numbers(r, records)
    yield from range(n.low, n.high) if n is not None else ()
