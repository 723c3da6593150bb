"""What it takes to find a record again by what the ledger keeps of its batch. Pure: no files, no settings, no Spark.

Most sources number their records: a position is a strand and a number in it, and the seq is a number that the range has, plus this one.
Each such source says how in a file `places.py` of its own; `connectors/places.py` knows all of them. Who asks: `penstock trace`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from penstock.ranges import Range


@dataclass(frozen=True, slots=True)
class Named:
    """What a position says. `strand` is None where a source has only one, whatever its name."""

    strand: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The records of a range: those with the numbers from `low` to before `high`. The seq of each is `first` plus its number."""

    first: int
    low: int
    high: int
    sure: bool = False  # every number is a record's
    ended: bool = False  # nothing of the strand comes behind it
    records: int | None = None  # so many of these follow each other, from the first number on or from the one behind it

    def has(self, number: int) -> bool:
        """Whether there is certainly a record with this number."""
        known = self.records is not None and self.low < number < self.low + self.records
        return self.low <= number < self.high and (self.sure or known)


class Numbering(Protocol):
    """How one kind of source numbers its records. Each is a module."""

    EXAMPLE: str  # a position, for people

    def named(self, position: bytes) -> Named | None:
        """None: it is no position of such a source."""

    def numbers(self, r: Range, records: int | None = None) -> Numbers | None:
        """None: it is no range of such a source. `records`: how many the range has, where that is known."""

    def position(self, strand: str, number: int) -> bytes:
        """As the source gives it to the record."""

    def candidates(self, r: Range, records: int | None) -> Iterator[int]:
        """The numbers that its records may have. `records`: of all ranges of its batch, where that is known."""


def cut(r: Range, n: Numbers) -> Numbers:
    """Only what counts of a range that was split."""
    low = n.low if r.low is None else max(n.low, r.low - n.first)
    high = n.high if r.high is None else min(n.high, r.high - n.first)
    return Numbers(n.first, low, max(low, high), n.sure, n.ended and r.high is None, n.records if not r.cut else None)
