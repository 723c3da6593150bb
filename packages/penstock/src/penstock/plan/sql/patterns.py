"""LIKE patterns, and the part of Java's regular expressions that Python's can be made to agree with.

Refused, because the two differ or may differ: back references, look-behind, possessive quantifiers, inline flags but a
leading `(?i)`, `\\b`, `\\p{...}`, `\\Q...\\E`, `\\A`/`\\z`, and character classes with `[`, `&&` or POSIX names inside.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.plan.sql.errors import EvaluationError

_BREAKS = r"\n\r\u0085\u2028\u2029"
_DOT = f"[^{_BREAKS}]"
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)"
_PIECE = re.compile(
    r"""
      (?P<escape>\\[dDwWsS]|\\[.\\*+?()\[\]{}|^$/\-"'#&@%:;,<>=!~` _]|\\[tnrf])
    | (?P<class>\[\^?(?:[^\]\[\\^&\n-]|-(?=\])|(?:[^\]\[\\^&\n-])-(?:[^\]\[\\^&\n-])|\\[dwsDWS]|\\[.\\*+?()\[\]{}|^$/\-])+\])
    | (?P<group>\((?!\?)|\(\?:|\(\?=|\(\?!|\))
    | (?P<quantifier>(?:[*+?]|\{[0-9]{1,4}(?:,(?:[0-9]{1,4})?)?\})\??(?![*+?{]))
    | (?P<dot>\.)
    | (?P<end>\$)(?![*+?{])
    | (?P<start>\^)(?![*+?{])
    | (?P<bar>\|)
    | (?P<plain>[^\\\[\](){}*+?.^$|])
    """,
    re.VERBOSE,
)


class PatternRefused(ValueError):
    """This regular expression may mean something else in Java. `args[0]` says where."""


@lru_cache(maxsize=1000)
def java_regex(pattern: str) -> re.Pattern[str]:
    """The same matches in Python. Java's classes are ASCII, its dot stops at five kinds of line end."""
    flags = re.ASCII
    at = 0
    if pattern.startswith("(?i)"):
        flags |= re.IGNORECASE
        at = 4
        if not pattern.isascii():
            raise PatternRefused("(?i) beside characters outside ASCII")
    made = []
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            raise PatternRefused(f"{pattern[at : at + 10]!r} at character {at + 1}")
        text = piece[0]
        kind = piece.lastgroup
        made.append(_DOT if kind == "dot" else _END if kind == "end" else re.escape(text) if kind == "plain" else text)
        at = piece.end()
    try:
        return re.compile("".join(made), flags)
    except (re.error, OverflowError) as e:
        raise PatternRefused(str(e)) from None


def never_empty(pattern: re.Pattern[str]) -> bool:
    """Whether it surely matches at least one character, so that splitting and replacing agree with Java's."""
    return re._parser.parse(pattern.pattern, pattern.flags).getwidth()[0] > 0  # type: ignore[attr-defined,no-any-return]


@lru_cache(maxsize=1000)
def like_regex(pattern: str) -> re.Pattern[str]:
    """A LIKE pattern with the escape character `\\`, to be used with `fullmatch`."""
    made = []
    characters = iter(pattern)
    for c in characters:
        if c == "\\":
            c = next(characters, "")
            if c not in ("_", "%", "\\"):
                raise EvaluationError(f"the LIKE pattern {pattern!r} escapes neither _ nor % nor \\")
            made.append(re.escape(c))
        else:
            made.append("." if c == "_" else ".*" if c == "%" else re.escape(c))
    return re.compile("".join(made), re.DOTALL)
