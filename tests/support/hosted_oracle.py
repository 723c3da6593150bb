"""The oracle for hosted sources: what arrived, and what the source was told. Plain tools; imports nothing of Penstock.

The source gives the numbers from 1 to `records`, padded with zeros, each with itself as its position. What it was told is in its `calls`
file, a JSON line for each call, written before the call does anything.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.oracle import Verdict, delivered


def numbers(folder: Path) -> list[int]:
    """At the destination, in the order of its files."""
    return [int(line) for line in delivered(folder)]


def judge(records: int, folder: Path) -> Verdict:
    """Every number once, in order: a hosted source is one strand."""
    found = numbers(folder)
    counts = Counter(found)
    wanted = range(1, records + 1)
    return Verdict(
        missing=[str(n) for n in wanted if n not in counts],
        duplicated=[str(n) for n, times in counts.items() if times > 1],
        invented=[str(n) for n in counts if n not in wanted],
        reordered=[str(b) for a, b in pairwise(found) if b < a],
    )


@dataclass
class Life:
    """One opening of the source."""

    pid: int
    position: int  # that it was opened at; 0: none
    given: int = 0
    acks: list[int] = field(default_factory=list)


@dataclass
class Heard:
    """What the source was told, over all its lives."""

    lives: list[Life] = field(default_factory=list)

    @classmethod
    def of(cls, calls: Path) -> Heard:
        lives: dict[int, Life] = {}
        made = cls()
        for call in _lines(calls):
            match call["method"]:
                case "open":
                    lives[call["pid"]] = Life(call["pid"], int(call["position"] or 0))
                    made.lives.append(lives[call["pid"]])
                case "read":
                    lives[call["pid"]].given += call["count"]
                case "ack":
                    lives[call["pid"]].acks += map(int, call["positions"])
        return made

    @property
    def acks(self) -> list[int]:
        return [n for life in self.lives for n in life.acks]

    @property
    def settled(self) -> set[int]:
        """What it was told is settled: singly, or by the position that it was opened at."""
        return set(self.acks) | set(range(1, max((life.position for life in self.lives), default=0) + 1))

    def faults(self, resend: int = 0) -> Iterable[str]:
        """What is wrong with its acks: each life hears of what it gave, from the first on, in order; no life of what an earlier one
        heard of, unless it has sent it again."""
        highest = 0
        for n, life in enumerate(self.lives, 1):
            first = max(0, life.position - resend) + 1
            if life.acks != list(range(first, first + len(life.acks))):
                yield f"life {n}, opened at {life.position}, heard {_shown(life.acks)}"
            if len(life.acks) > life.given:
                yield f"life {n} gave {life.given} and heard of {len(life.acks)}"
            if life.position < highest:
                yield f"life {n} was opened at {life.position}, and {highest} was acked before"
            highest = max([highest, life.position, *life.acks])
        if not resend and len(set(self.acks)) < len(self.acks):
            yield f"acked twice: {_shown([n for n, times in Counter(self.acks).items() if times > 1])}"


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def _shown(found: list[int]) -> str:
    return f"{found[:5]} … {found[-5:]} ({len(found)})"
