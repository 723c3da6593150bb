"""Which writer publishes which of the staged files. Pure.

Files that hold records of the same strand go to one writer, in their order, so that no record of a strand overtakes another. Everything
else may be written side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A staged file."""

    name: str
    rows: int
    low: int  # the lowest seq in it
    high: int  # and the highest


def shares(parts: Sequence[Part], bases: Sequence[int], writers: int) -> list[list[Part]]:
    """At most so many lists, of about the same number of rows. `parts` are in the order of their records; `bases` are the first seqs of the
    strands. Without any, all is one strand."""
    groups = _groups([part for part in parts if part.rows], sorted(bases))
    made: list[list[Part]] = [[] for _ in range(min(max(1, writers), len(groups)))]
    loads = [0] * len(made)
    for group in sorted(groups, key=lambda group: -sum(part.rows for part in group)):
        n = loads.index(min(loads))
        made[n] += group
        loads[n] += sum(part.rows for part in group)
    return made


def _groups(parts: Sequence[Part], bases: Sequence[int]) -> list[list[Part]]:
    """Files that have to stay together. Every strand has a stretch of seqs of its own, which its base begins."""
    if not bases:
        return [list(parts)] if parts else []
    owner: dict[int, int] = {}  # strand → group
    groups: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        strands = range(bisect_right(bases, part.low), bisect_right(bases, part.high) + 1)
        met = sorted({owner[strand] for strand in strands if strand in owner})
        home = met[0] if met else i
        joined = [*groups.pop(home, []), i]
        for other in met[1:]:
            joined += groups.pop(other)
        groups[home] = sorted(joined)
        owner |= dict.fromkeys(strands, home)
        owner.update({strand: home for strand, group in owner.items() if group in met})
    return [[parts[i] for i in members] for members in groups.values()]
