"""Go's regular expressions (RE2) in Python's spelling, with Go's rules for finding all matches. Pure; runs in Spark's tasks.

What Go refuses is refused (`PatternError`). What it takes and Python reads otherwise is translated, or refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from penstock.plan.gotemplate.errors import Failure

_WORD = "0-9A-Za-z_"
_CLASSES = {"d": "0-9", "w": _WORD, "s": r"\t\n\f\r "}
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7F", "blank": r"\t ", "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": _WORD, "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_EDGE = rf"(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}])"
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_FLAGS = re.compile(r"\?([ims]*)(-[ims]+)?([:)])")
_NAMED = re.compile(r"\?P?<([A-Za-z0-9_]+)>")


class PatternError(Exception):
    """Go refuses it."""


class Untranslatable(Exception):
    """Go takes it, and it is not offered here."""


@lru_cache(maxsize=512)
def translated(pattern: str) -> re.Pattern[str]:
    if any("\ud800" <= c <= "\udfff" for c in pattern):
        raise PatternError("it is no UTF-8")
    translator = _Translator(pattern)
    made = translator.alternatives(closes=False)
    try:
        return re.compile(made)
    except (re.error, OverflowError, RecursionError) as e:
        raise Untranslatable("a regular expression that Python can't take") from e


class _Weight:
    """Finds (a+)+ and its like: Go is quick about them, and Python may take for ever."""

    def __init__(self) -> None:
        self.firm = self.endless = 0  # of the alternative that is read
        self.pending: bool | None = None  # the last atom, and whether it is loose
        self.loose = False

    def add(self, is_atom: bool, loose: bool) -> None:
        self._settle()
        if is_atom:
            self.pending = loose
        else:
            self._close()

    def repeated(self, how: str) -> None:
        endless = how[0] in "*+" or ",}" in how
        if endless and self.pending:
            raise Untranslatable("a repetition of a repetition such as (a+)+")
        self.endless += endless or bool(self.pending)
        self.firm += not endless and how[0] == "{" and not how.startswith("{0")
        self.pending = None

    def ended(self) -> bool:
        self._settle()
        self._close()
        return self.loose

    def _settle(self) -> None:
        if self.pending is not None:
            self.endless += self.pending
            self.firm += not self.pending
        self.pending = None

    def _close(self) -> None:
        self.loose = self.loose or (self.endless > 0 and not self.firm)
        self.firm = self.endless = 0


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.p = pattern
        self.at = 0
        self.multiline = False
        self.names: set[str] = set()
        self.loose = False  # the last atom is a group that repeats without end and holds nothing else

    def alternatives(self, *, closes: bool) -> str:
        """Up to the end, or to the parenthesis that closes the group."""
        out: list[str] = []
        begun, inherited = 0, self.multiline
        repeatable, weight = False, _Weight()
        while self.at < len(self.p):
            c = self.p[self.at]
            if c == ")":
                if not closes:
                    raise PatternError("unexpected )")
                break
            if c in "*+?" or (c == "{" and _REPEAT.match(self.p, self.at)):
                if not repeatable:
                    raise PatternError("a repetition of nothing, or of a repetition")
                out.append(self.repetition())
                weight.repeated(out[-1])
                repeatable = False
                continue
            if c == "(" and (flags := _FLAGS.match(self.p, self.at + 1)) and flags[3] == ")":
                if out:
                    raise Untranslatable("flags in the middle of a regular expression; put them first")
                self.at = flags.end()
                out.append(self.flags(flags))
                begun += 1
                continue
            self.loose = False
            made, repeatable = self.atom(c)
            out.append(made)
            weight.add(repeatable, self.loose)
        else:
            if closes:
                raise PatternError("missing )")
        self.multiline = inherited
        self.loose = weight.ended()
        return "".join(out) + ")" * begun

    def flags(self, found: re.Match[str]) -> str:
        """The beginning of a group that has them. ^ and $ are translated by hand."""
        if "m" in found[1]:
            self.multiline = True
        if "m" in (found[2] or ""):
            self.multiline = False
        on, off = found[1].replace("m", ""), (found[2] or "").replace("m", "").rstrip("-")
        on = "".join(dict.fromkeys(on))
        return f"(?{on}{off}:"

    def atom(self, c: str) -> tuple[str, bool]:
        self.at += 1
        if c == "|":
            return "|", False
        if c == "(":
            return self.group(), True
        if c == "[":
            return self.charset(), True
        if c == "^":
            return ("(?:(?<![^\\n]))" if self.multiline else r"(?:\A)"), True
        if c == "$":
            return (r"(?:(?=\n)|\Z)" if self.multiline else r"(?:\Z)"), True
        if c == ".":
            return ".", True
        if c == "\\":
            return self.escape()
        return re.escape(c), True

    def group(self) -> str:
        if not self.p.startswith("?", self.at):
            begin = "("
        elif named := _NAMED.match(self.p, self.at):
            if named[1] in self.names:
                raise Untranslatable("two groups of one name")
            if not named[1].isidentifier():
                raise Untranslatable("the name of a group that begins with a digit")
            self.names.add(named[1])
            self.at = named.end()
            begin = f"(?P<{named[1]}>"
        elif (flags := _FLAGS.match(self.p, self.at)) and flags[3] == ":":
            inherited = self.multiline
            self.at = flags.end()
            begin = self.flags(flags)
            inner = self.alternatives(closes=True)
            self.multiline = inherited
            self.at += 1
            return f"{begin}{inner})"
        elif re.match(r"\?[imsU]*(-[imsU]+)?[:)]", self.p[self.at :]):
            raise Untranslatable("the flag U in a regular expression")
        else:
            raise PatternError("a group that Go does not know (no look-around)")
        inner = self.alternatives(closes=True)
        self.at += 1
        return f"{begin}{inner})"

    def repetition(self) -> str:
        c = self.p[self.at]
        if c == "{":
            found = _REPEAT.match(self.p, self.at)
            assert found is not None
            low, high = int(found[1]), int(found[3]) if found[3] else None
            if low > 1000 or (high is not None and (high > 1000 or high < low)):
                raise PatternError("a repetition of more than 1000")
            made = found[0]
            self.at = found.end()
        else:
            made = c
            self.at += 1
        if self.p.startswith("?", self.at):
            self.at += 1
            made += "?"
        return made

    def escape(self) -> tuple[str, bool]:
        c = self.p[self.at : self.at + 1]
        self.at += 1
        if not c:
            raise PatternError("a backslash at the end")
        if c in _CLASSES:
            return f"[{_CLASSES[c]}]", True
        if c.lower() in _CLASSES:
            return f"[^{_CLASSES[c.lower()]}]", True
        if c in "bB":
            return (f"(?:{_EDGE})" if c == "b" else f"(?!{_EDGE})"), True
        if c in "Az":
            return (r"(?:\A)" if c == "A" else r"(?:\Z)"), True
        if c == "Q":
            end = self.p.find("\\E", self.at)
            literal = self.p[self.at :] if end < 0 else self.p[self.at : end]
            self.at = len(self.p) if end < 0 else end + 2
            return re.escape(literal), len(literal) > 0
        if c in "pP":
            raise Untranslatable("\\p in a regular expression; list the characters")
        if c == "C":
            raise Untranslatable("\\C in a regular expression")
        self.at -= 1
        return re.escape(chr(self.code())), True

    def code(self) -> int:
        """The character of an escape; the backslash is past."""
        c = self.p[self.at : self.at + 1]
        self.at += 1
        if c in _CONTROL and c:
            return _CONTROL[c]
        if c == "x":
            found = re.compile(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}").match(self.p, self.at)
            if found is None or int(found[1] or found[2], 16) > 0x10FFFF:
                raise PatternError("an escape that Go does not know")
            self.at = found.end()
            return int(found[1] or found[2], 16)
        octal = re.compile("[0-7]{1,3}").match(self.p, self.at - 1)
        if octal and (c == "0" or len(octal[0]) > 1):
            self.at = octal.end()
            return int(octal[0], 8)
        if c and c < "\x80" and not c.isalnum():
            return ord(c)
        raise PatternError("an escape that Go does not know")

    def charset(self) -> str:
        out = ["["]
        if self.p.startswith("^", self.at):
            out.append("^")
            self.at += 1
        first = True
        while first or not self.p.startswith("]", self.at):
            first = False
            out.append(self.members())
        self.at += 1
        return "".join(out) + "]"

    def members(self) -> str:
        if self.at >= len(self.p):
            raise PatternError("missing ]")
        if self.p.startswith("[:", self.at) and (end := self.p.find(":]", self.at)) > 0:
            name = self.p[self.at + 2 : end]
            if name.startswith("^") and name[1:] in _POSIX:
                raise Untranslatable("a negated class in a class")
            if name not in _POSIX:
                raise PatternError("a class that Go does not know")
            self.at = end + 2
            return _POSIX[name]
        following = self.p[self.at + 1 : self.at + 2]
        if self.p[self.at] == "\\" and following and following in "dws":
            self.at += 2
            return _CLASSES[following]
        if self.p[self.at] == "\\" and following and following in "DWSpP":
            raise Untranslatable(f"\\{following} in a class")
        low = self.single()
        if self.p.startswith("-", self.at) and self.p[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self.single()
            if high < low:
                raise PatternError("a range that ends before it begins")
            return f"{_member(low)}-{_member(high)}"
        return _member(low)

    def single(self) -> int:
        if self.at >= len(self.p):
            raise PatternError("missing ]")
        c = self.p[self.at]
        self.at += 1
        return self.code() if c == "\\" else ord(c)


def _member(code: int) -> str:
    c = chr(code)
    return c if c.isalnum() else f"\\U{code:08x}"


def compiled(pattern: str) -> re.Pattern[str]:
    """Raises `Failure` for what Go refuses, and for what is not offered."""
    try:
        return translated(pattern)
    except PatternError as e:
        raise Failure(f"a regular expression is not valid: {e}") from e
    except Untranslatable as e:
        raise Failure(f"not offered: {e}") from e


def all_matches(found: re.Pattern[str], s: str, limit: int) -> Iterator[re.Match[str]]:
    """No empty match right behind another."""
    at, previous, count = 0, -1, 0
    while (limit < 0 or count < limit) and at <= len(s):
        match = found.search(s, at)
        if match is None:
            return
        accepted = True
        if match.end() == at:
            accepted = match.start() != previous
            at += 1
        else:
            at = match.end()
        previous = match.end()
        if accepted:
            count += 1
            yield match


def replaced(found: re.Pattern[str], s: str, by: str, *, literal: bool) -> str:
    out: list[str] = []
    last = 0
    for match in all_matches(found, s, -1):
        out.append(s[last : match.start()])
        out.append(by if literal else _expanded(match, by))
        last = match.end()
    return "".join(out) + s[last:]


_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")


def _expanded(match: re.Match[str], by: str) -> str:
    def one(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        try:
            return match[int(name) if name.isdigit() else name] or ""
        except IndexError:
            return ""

    return _REFERENCE.sub(one, by)


def split(found: re.Pattern[str], s: str, limit: int) -> list[str]:
    if limit == 0:
        return []
    if found.pattern and not s:
        return [""]
    out: list[str] = []
    begin = end = 0
    for match in all_matches(found, s, limit):
        if limit > 0 and len(out) == limit - 1:
            break
        end = match.start()
        if match.end() != 0:
            out.append(s[begin:end])
        begin = match.end()
    if end != len(s):
        out.append(s[begin:])
    return out
