"""What a check is and what comes out of one. Checks declare themselves with `@check`; the kit runs them in the order of declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from penstock_sdk.testing.bench import Bench

State = Literal["passed", "failed", "not checked"]
Function = Callable[["Bench"], str | None]  # what it returns is worth saying though it passed


class Failure(Exception):
    """What was seen, what was expected, and what to do about it."""

    def __init__(self, seen: str, expected: str, do: str) -> None:
        super().__init__(f"{seen}; expected: {expected}; do: {do}")
        self.seen, self.expected, self.do = seen, expected, do


class NotChecked(Exception):
    """Why a check says nothing about this connector."""


class Refused(Exception):
    """A call that the connector answered with an error, in its own words. `gone`: its process or its stream has ended."""

    def __init__(self, call: str, text: str, *, gone: bool = False, unimplemented: bool = False) -> None:
        super().__init__(text)
        self.call, self.text, self.gone, self.unimplemented = call, text, gone, unimplemented


@dataclass(frozen=True, slots=True)
class Check:
    """`needs`: checks without which this one says nothing. If one of them failed, it is not run."""

    name: str
    about: str
    run: Function
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """`reason`: what was seen, or why it was not checked, or a remark."""

    check: Check
    state: State
    reason: str = ""
    expected: str = ""
    do: str = ""

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.reason:
            yield self.reason
        if self.expected:
            yield f"expected: {self.expected}"
        if self.do:
            yield f"do: {self.do}"


DECLARED: dict[str, Check] = {}


def check(name: str, *needs: str) -> Callable[[Function], Function]:
    """Declares a check. Its docstring, one sentence, is what it holds a connector to."""

    def declare(function: Function) -> Function:
        about = " ".join((function.__doc__ or "").split())
        DECLARED[name] = Check(name, about, function, needs)
        return function

    return declare
