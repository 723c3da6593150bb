"""What is wrong with settings, in words: shared by those who declare them and those who check them from outside."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock_protocol.interfaces import Parameter
from penstock_sdk.errors import PenstockError


class Problem(NamedTuple):
    """What is wrong with one setting. No name: with several of them together."""

    name: str
    text: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else repr(self.name)
        return f"{clipped(name)}: {self.text}" if self.name else self.text


class SettingsError(PenstockError):
    """Everything that is wrong with a config, a line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems)
        super().__init__("\n".join(" ".join(str(each).splitlines()) for each in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return SettingsError, (self.problems,)


def unknown(name: str, parameters: Mapping[str, Parameter]) -> Problem:
    by_case = {known.lower(): known for known in parameters}
    near = difflib.get_close_matches(name.lower(), by_case, 1)
    return Problem(name, f"no such setting; did you mean {by_case[near[0]]!r}?" if near else "no such setting")


def clipped(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
