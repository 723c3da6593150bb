"""The oracle: what is really at the destination, read with plain tools. Imports nothing of Penstock.

Records are lines `<file>:<number>:<padding>`, numbered from 0 in each input file. The tester's own tally says which were
issued; the output folder is read in name order.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


def write_inputs(folder: Path, files: int, lines: int, *, first: int = 0, pad: int = 20) -> list[str]:
    """Issues records and returns their ids."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = []
    for f in range(first, first + files):
        rows = [f"f{f:05d}:{n}:{'x' * pad}" for n in range(lines)]
        temp = folder / f".f{f:05d}.writing"
        temp.write_text("".join(r + "\n" for r in rows))
        temp.rename(folder / f"f{f:05d}.txt")
        ids += [r.rsplit(":", 1)[0] for r in rows]
    return ids


@dataclass
class Verdict:
    missing: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    corrupted: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.missing or self.duplicated or self.invented or self.corrupted or self.reordered)

    def __str__(self) -> str:
        return ", ".join(f"{len(v)} {k} {v[:3]}" for k, v in vars(self).items() if v) or "clean"


def outputs(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.txt") if not p.name.startswith((".", "_")))


def delivered(folder: Path) -> list[str]:
    return [line for path in outputs(folder) for line in path.read_text().splitlines()]


def judge(issued: list[str], folder: Path, *, pad: int = 20) -> Verdict:
    """Every id issued is there once, intact, and in order within its input file over the output files in name order."""
    verdict = Verdict()
    expected = set(issued)
    seen: Counter[str] = Counter()
    last: dict[str, int] = {}
    for line in delivered(folder):
        id_, _, padding = line.rpartition(":")
        if id_ not in expected:
            verdict.invented.append(line[:60])
            continue
        if padding != "x" * pad:
            verdict.corrupted.append(id_)
        seen[id_] += 1
        if seen[id_] > 1:
            verdict.duplicated.append(id_)
            continue
        file, _, number = id_.partition(":")
        if int(number) <= last.get(file, -1):
            verdict.reordered.append(id_)
        last[file] = int(number)
    verdict.missing = sorted(expected - seen.keys())
    return verdict


def rows(state: Path, sql: str) -> list[tuple[object, ...]]:
    """A look into the ledger with SQLite alone."""
    db = sqlite3.connect(f"file:{state / 'ledger.db'}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()
