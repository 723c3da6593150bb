"""semverCompare: does a version meet a constraint. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function

_TAIL = r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
_VERSION = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?" + _TAIL)
_PARTIAL = r"v?([0-9|xX*]+)(?:\.([0-9xX*]+))?(?:\.([0-9xX*]+))?" + _TAIL
_ONE = re.compile(r"\s*(=|!=|>=|=>|<=|=<|>|<|~>|~|\^|)\s*" + _PARTIAL + r"\s*")
_HYPHEN = re.compile(r"\s*(" + _PARTIAL + r")\s+-\s+(" + _PARTIAL + r")\s*")


@dataclass(frozen=True)
class _Version:
    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def key(self) -> tuple[object, ...]:
        """In order of precedence: a version comes after its previews."""
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.pre)
        return (*self.numbers, 0 if self.pre else 1, parts)


@dataclass(frozen=True)
class _Constraint:
    operator: str
    low: _Version
    given: int  # how many numbers it names; the others are free

    def meets(self, v: _Version) -> bool:
        unasked = v.pre and not self.low.pre  # previews are only for constraints that name one
        if unasked and (self.operator != "!=" or self.given < 3):
            return False
        return bool(_CHECKS[self.operator](self, v))

    @property
    def above(self) -> tuple[int, int, int]:
        """The first version behind what is named: 1.2 → 1.3.0."""
        return _next(self.low.numbers, max(self.given, 1) - 1)


def _next(numbers: tuple[int, int, int], place: int) -> tuple[int, int, int]:
    kept = [*numbers[:place], numbers[place] + 1, 0, 0]
    return kept[0], kept[1], kept[2]


def _equal(c: _Constraint, v: _Version) -> bool:
    return _tilde(c, v) if c.given < 3 else v.key() == c.low.key()


def _unequal(c: _Constraint, v: _Version) -> bool:
    return v.numbers[: c.given] != c.low.numbers[: c.given] if c.given < 3 else v.key() != c.low.key()


def _greater(c: _Constraint, v: _Version) -> bool:
    return v.numbers >= c.above if 0 < c.given < 3 else v.key() > c.low.key()


def _at_most(c: _Constraint, v: _Version) -> bool:
    return v.numbers < c.above if c.given < 3 else v.key() <= c.low.key()


def _tilde(c: _Constraint, v: _Version) -> bool:
    if not c.given:
        return True
    return v.key() >= c.low.key() and v.numbers < _next(c.low.numbers, min(c.given - 1, 1))


def _caret(c: _Constraint, v: _Version) -> bool:
    numbers = c.low.numbers
    place = next((i for i in range(c.given) if numbers[i]), max(c.given - 1, 0))
    return v.key() >= c.low.key() and v.numbers < _next(numbers, place)


_CHECKS = {
    "": _equal,
    "=": _equal,
    "!=": _unequal,
    ">": _greater,
    ">=": lambda c, v: v.key() >= c.low.key(),
    "<": lambda c, v: v.key() < c.low.key(),
    "<=": _at_most,
    "~": _tilde,
    "^": _caret,
}
_SPELLINGS = {"=>": ">=", "=<": "<=", "~>": "~"}


def _version(s: str) -> _Version:
    found = _VERSION.fullmatch(s)
    if found is None or len(s) > 256:
        raise Failure("semverCompare of what is no version")
    return _Version(
        (int(found[1]), int(found[2] or 0), int(found[3] or 0)), tuple((found[4] or "").split(".")) if found[4] else ()
    )


def _constraint(s: str) -> _Constraint:
    found = _ONE.fullmatch(s)
    if found is None:
        raise Failure("semverCompare with what is no constraint")
    numbers: list[int] = []
    for text in (found[2], found[3], found[4]):
        if text is None or not text.isdigit():
            break
        numbers.append(int(text))
    given = len(numbers)
    numbers += [0, 0, 0]
    pre = tuple(found[5].split(".")) if found[5] else ()
    operator = _SPELLINGS.get(found[1], found[1])
    return _Constraint(operator, _Version((numbers[0], numbers[1], numbers[2]), pre), given)


@function("semverCompare", "string", "string")
def semver_compare(constraint: str, version: str) -> bool:
    alternatives = [
        [_constraint(one) for one in re.split(r",|(?<=[0-9A-Za-z*])\s+(?=[<>=!~^0-9v*xX])", _plain(part).strip())]
        for part in constraint.split("||")
    ]
    v = _version(version)
    return any(all(c.meets(v) for c in together) for together in alternatives)


def _plain(s: str) -> str:
    """1.2 - 1.4 as two constraints."""
    return _HYPHEN.sub(lambda found: f">={found[1]},<={found[6]}", s)
