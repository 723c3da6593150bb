"""What is wrong with a configuration: problems with their place, gathered and raised together before a start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import UsageError

_SHOWN = 160  # characters of an offending line; a longer one is cut around the caret


@dataclass(frozen=True)
class Problem:
    """One mistake: code · what · where (`file:line:column`) · the offending line · what to do next."""

    code: str
    what: str
    where: str
    line_text: str = ""
    hint: str = ""

    def __str__(self) -> str:
        shown = [f"[{self.code}] {self.what}"]
        if self.where:
            shown.append(f"  at: {self.where}")
        if self.line_text.strip():
            before = self.position[1] - 1
            cut = max(0, before - _SHOWN // 2)
            shown += ["    " + self.line_text[cut : cut + _SHOWN], "    " + " " * (before - cut) + "^"]
        if self.hint:
            shown.append(f"  do: {self.hint}")
        return "\n".join(_printable(line) for line in shown)

    @property
    def position(self) -> tuple[int, int]:
        """Line and column; (0, 0) for a problem with a whole file."""
        parts = self.where.rsplit(":", 2)
        return (
            (int(parts[1]), int(parts[2])) if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit() else (0, 0)
        )


class ConfigErrors(UsageError):
    """Every problem of every file that was read. Printed as one block per problem."""

    def __init__(self, problems: Iterable[Problem], read: Sequence[Any] = ()) -> None:
        """`read` is what could be read of the files nevertheless (`Loaded`), for further checks."""
        self.problems = list(problems)
        self.read = read
        first = self.problems[0]
        many = len(self.problems) > 1
        what = f"{len(self.problems)} problems in the configuration" if many else first.what
        super().__init__(what, code=first.code, where=first.where, hint=first.hint)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def _printable(line: str) -> str:
    """Character for character, so that the caret stays in place; a file must not be able to drive the terminal."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line)
