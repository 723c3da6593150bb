"""What a method can be told to do, and when. One table of modes, one kind of rule: `MODE[:DURATION] [after N | at N | every N [records]]`.

Without a time a rule is for every call. `after 3`: from the fourth call on. `at 3`: the third only. `every 3`: the third, the sixth and so
on. With `records` it counts the records of the calls before instead.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_sdk import Rejected, Retry, Stop
from penstock_sdk.kinds import nanoseconds

PANIC = 2  # the exit code, as of a Go program


def _fail(what: str, _: threading.Event, __: float) -> None:
    raise RuntimeError(f"chaos: {what} was told to fail")


def _retry(what: str, _: threading.Event, __: float) -> None:
    raise Retry(f"chaos: {what} was told to be tried again")


def _stop(what: str, _: threading.Event, __: float) -> None:
    raise Stop(f"chaos: {what} was told to stop the pipeline")


def _reject(what: str, _: threading.Event, __: float) -> None:
    raise Rejected(f"chaos: {what} was told to refuse")


def _panic(what: str, _: threading.Event, __: float) -> None:
    sys.stderr.write(f"panic: chaos: {what}\n")
    sys.stderr.flush()
    os._exit(PANIC)


MODES: Mapping[str, Callable[[str, threading.Event, float], Any]] = {
    "succeed": lambda _, __, ___: None,
    "fail": _fail,
    "retry": _retry,
    "stop": _stop,
    "reject": _reject,
    "block": lambda _, __, ___: threading.Event().wait(),  # for ever: a stop does not help
    "block-until-stopped": lambda _, stopping, ___: stopping.wait(),
    "slow": lambda _, stopping, seconds: stopping.wait(seconds),
    "panic": _panic,
    "kill": lambda _, __, ___: os.kill(os.getpid(), signal.SIGKILL),
}
_RULE = re.compile(r"([a-z-]+)(?::(\S+))?(?:\s+(after|at|every)\s+([0-9]{1,12})(\s+records)?)?")


@dataclass(frozen=True, slots=True)
class Rule:
    mode: str
    seconds: float = 0.0
    when: str = ""
    number: int = 0
    records: bool = False

    def applies(self, before: int, now: int) -> bool:
        """`now` is the number of this call, or of the records before it; `before` is what that was at the last call."""
        match self.when:
            case "after":
                return now >= self.number if self.records else now > self.number
            case "at":
                return before < self.number <= now
            case "every":
                return now // self.number > before // self.number
        return True


def parse_rule(text: str) -> Rule:
    """ValueError says what is wrong."""
    match = _RULE.fullmatch(text.strip())
    if match is None or match[1] not in MODES:
        raise ValueError(f"{text[:60]!r} is no rule: one of {', '.join(MODES)}, then after, at or every N [records]")
    if (match[1] == "slow") != (match[2] is not None):
        raise ValueError(f"{text[:60]!r}: slow has a duration, such as slow:200ms, and nothing else has")
    if match[4] is not None and int(match[4]) == 0 and match[3] != "after":
        raise ValueError(f"{text[:60]!r}: it counts from 1")
    seconds = float(nanoseconds(match[2]) / 10**9) if match[2] else 0.0
    return Rule(match[1], seconds, match[3] or "", int(match[4] or 0), match[5] is not None)


class Method:
    """One method: its rules, and how often it was called with how much."""

    def __init__(self, name: str, rules: Sequence[str], stopping: threading.Event | None = None) -> None:
        self._name, self._rules = name, [parse_rule(rule) for rule in rules]
        self._stopping = threading.Event() if stopping is None else stopping
        self._calls = self._records = self._before = 0

    def __call__(self, records: int = 0) -> None:
        """Does what the rules say, one after the other. `records`: how many this call has."""
        self._calls += 1
        before, now = self._before, self._records
        self._before = self._records
        self._records += records
        for rule in self._rules:
            if rule.applies(*((before, now) if rule.records else (self._calls - 1, self._calls))):
                MODES[rule.mode](self._name, self._stopping, rule.seconds)
