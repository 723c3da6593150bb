"""From a position to a seq and back, by what a range says alone: for every source that can do that. Pure; tried one after the other, since
the ledger does not say which plugin has made a range."""

from __future__ import annotations

from typing import cast

from penstock.connectors.files import places as files
from penstock.connectors.generator import places as generator
from penstock.connectors.jdbc import places as jdbc
from penstock.connectors.kafka import places as kafka
from penstock.connectors.numbering import Named, Numbering, Numbers, cut
from penstock.connectors.queue import places as queue
from penstock.ranges import Range

__all__ = ["Named", "Numbering", "Numbers", "numbering", "numbers", "seq_of", "seqs_of"]

NUMBERINGS = tuple(cast(Numbering, module) for module in (files, kafka, generator, queue))


def numbering(r: Range) -> Numbering | None:
    """How the source of a range numbers its records; None where it does not, or is not ours."""
    return next((found for found in NUMBERINGS if found.numbers(r) is not None), None)


def numbers(r: Range, records: int | None = None) -> Numbers | None:
    """Which records a range holds, as far as it counts."""
    made = (found.numbers(r, records) for found in NUMBERINGS)
    whole = next((n for n in made if n is not None), None)
    return None if whole is None else cut(r, whole)


def seq_of(r: Range, position: bytes) -> int | None:
    """The seq of the record with this position; None where the range does not hold it, or does not say."""
    found = seqs_of(r, position)
    return found[0] if found is not None and found[1] - found[0] == 1 else None


def seqs_of(r: Range, position: bytes) -> tuple[int, int] | None:
    """The seqs between which it is: the first, and the one behind the last."""
    if jdbc.is_ours(r):
        place = jdbc.place(position)
        found = None if place is None else jdbc.seqs(r, place)
        return None if found is None else _counting(r, *found)
    how = numbering(r)
    at, n = None if how is None else how.named(position), numbers(r)
    if at is None or n is None or at.strand not in (None, r.strand) or not n.low <= at.number < n.high:
        return None
    return n.first + at.number, n.first + at.number + 1


def _counting(r: Range, low: int, high: int) -> tuple[int, int] | None:
    low = low if r.low is None else max(low, r.low)
    high = high if r.high is None else min(high, r.high)
    return (low, high) if low < high else None
