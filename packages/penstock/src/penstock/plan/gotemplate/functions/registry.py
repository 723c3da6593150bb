"""How a function of templates is declared: its names, what it takes, what it does. Pure; filled by the modules beside it.

The types are Go's: `string`, `int`, `float64`, `bool`, `map`, `time`, `any`. `compiler` checks arguments against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    names: tuple[str, ...]
    takes: tuple[str, ...]
    more: str | None  # the type of any number of further arguments
    call: Call

    def type_at(self, index: int) -> str:
        if index < len(self.takes):
            return self.takes[index]
        assert self.more is not None
        return self.more

    def accepts(self, count: int) -> bool:
        return count >= len(self.takes) if self.more is not None else count == len(self.takes)


FUNCTIONS: dict[str, Function] = {}


def function(names: str, *takes: str, more: str | None = None) -> Callable[[Call], Call]:
    """Declares a function under each of its names."""

    def declare(call: Call) -> Call:
        made = Function(tuple(names.split()), takes, more, call)
        for name in made.names:
            assert name not in FUNCTIONS, name
            FUNCTIONS[name] = made
        return call

    return declare
