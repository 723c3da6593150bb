"""The text of a template as tokens, white space and trim markers included, as Go's lexer cuts it. Pure; used by `parser`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

from penstock.plan.gotemplate.errors import TemplateError

SPACES = " \t\r\n"
KEYWORDS = frozenset({"block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with"})


class Kind(Enum):
    TEXT = auto()
    LEFT = auto()  # {{
    RIGHT = auto()  # }}
    SPACE = auto()
    ASSIGN = auto()  # =
    DECLARE = auto()  # :=
    PIPE = auto()
    STRING = auto()
    CHAR = auto()  # 'x'
    NUMBER = auto()
    COMPLEX = auto()
    BOOL = auto()
    KEYWORD = auto()
    NAME = auto()
    FIELD = auto()  # .x
    DOT = auto()
    VARIABLE = auto()
    OPEN = auto()
    CLOSE = auto()
    OTHER = auto()  # any other printable ASCII character
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    line: int


_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_RAW = re.compile(r"`[^`]*`")
_CHAR = re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")
_SPACE = re.compile(r"[ \t\r\n]+")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_SINGLE = {"=": Kind.ASSIGN, "|": Kind.PIPE, "(": Kind.OPEN, ")": Kind.CLOSE}
_DELIMITED = {'"': (_STRING, Kind.STRING), "`": (_RAW, Kind.STRING), "'": (_CHAR, Kind.CHAR)}


def is_name(c: str) -> bool:
    return c == "_" or c.isalpha() or c.isdecimal()


def tokens(text: str) -> list[Token]:
    """Raises `TemplateError` where no token begins."""
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: list[Token] = []
        self.depth = 0

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            self._plain()
        self._add(Kind.END, "")
        return self.found

    def _add(self, kind: Kind, text: str) -> None:
        self.found.append(Token(kind, text, self.text.count("\n", 0, self.at) + 1))

    def _bad(self, what: str) -> TemplateError:
        line = self.text.count("\n", 0, self.at) + 1
        return TemplateError(f"line {line} of the template: {what}")

    def _plain(self) -> None:
        """Text up to the next action, then the whole action."""
        begin = self.text.find("{{", self.at)
        end = begin if begin >= 0 else len(self.text)
        plain = self.text[self.at : end]
        trims = begin >= 0 and self.text[begin + 2 : begin + 3] == "-" and self.text[begin + 3 : begin + 4] in SPACES
        trims = trims and begin + 3 < len(self.text)
        if trims:
            plain = plain.rstrip(SPACES)
        if plain:
            self._add(Kind.TEXT, plain)
        self.at = end
        if begin < 0:
            return
        after = begin + (4 if trims else 2)
        if self.text.startswith("/*", after):
            self._comment(after)
            return
        self._add(Kind.LEFT, "{{")
        self.at = after
        self.depth = 0
        while not self._right():
            self._inside()

    def _comment(self, begin: int) -> None:
        end = self.text.find("*/", begin + 2)
        if end < 0:
            raise self._bad("a comment is not closed")
        self.at = end + 2
        closed = self._closing()
        if closed is None:
            raise self._bad("a comment has to fill its action: {{/* … */}}")
        self.at, trims = closed
        if trims:
            self._skip()

    def _closing(self) -> tuple[int, bool] | None:
        """Where the action ends that ends here, and whether it trims."""
        if self.text.startswith("}}", self.at):
            return self.at + 2, False
        if self.text.startswith("-}}", self.at + 1) and self.text[self.at] in SPACES:
            return self.at + 4, True
        return None

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in SPACES:
            self.at += 1

    def _right(self) -> bool:
        closed = self._closing()
        if closed is None:
            return False
        if self.depth:
            raise self._bad("a parenthesis is not closed")
        self._add(Kind.RIGHT, "}}")
        self.at, trims = closed
        if trims:
            self._skip()
        return True

    def _inside(self) -> None:
        if self.at >= len(self.text):
            raise self._bad("an action is not closed: }} is missing")
        c = self.text[self.at]
        following = self.text[self.at + 1 : self.at + 2]
        if c in SPACES:
            self._space()
        elif c == ":":
            if following != "=":
                raise self._bad("a colon without =")
            self._take(Kind.DECLARE, 2)
        elif c in _SINGLE:
            self._parenthesis(c)
            self._take(_SINGLE[c], 1)
        elif c in _DELIMITED:
            self._delimited(c)
        elif c == "$" or (c == "." and not ("0" <= following <= "9" and following)):
            self._field(c)
        elif c in ".+-" or "0" <= c <= "9":
            self._number()
        elif is_name(c):
            self._word()
        elif " " < c <= "~":
            self._take(Kind.OTHER, 1)
        else:
            raise self._bad(f"the character U+{ord(c):04X} has no meaning in an action")

    def _take(self, kind: Kind, length: int) -> str:
        text = self.text[self.at : self.at + length]
        self._add(kind, text)
        self.at += length
        return text

    def _parenthesis(self, c: str) -> None:
        self.depth += {"(": 1, ")": -1}.get(c, 0)
        if self.depth < 0:
            raise self._bad("a parenthesis is closed that was not opened")

    def _space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        length = len(found[0])
        if self.text.startswith("-}}", found.end()):
            length -= 1  # the last one belongs to the trim marker
        if length:
            self._take(Kind.SPACE, length)

    def _delimited(self, c: str) -> None:
        pattern, kind = _DELIMITED[c]
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self._bad(f"a text in {c} is not closed")
        self._take(kind, len(found[0]))

    def _name_end(self, begin: int) -> int:
        end = begin
        while end < len(self.text) and is_name(self.text[end]):
            end += 1
        return end

    def _ends_well(self, end: int) -> None:
        c = self.text[end : end + 1]
        if c and c not in SPACES and c not in ".,|:)(" and not self.text.startswith("}}", end):
            raise self._bad(f"{c!r} can't follow a name; put a space before it")

    def _field(self, c: str) -> None:
        end = self._name_end(self.at + 1)
        self._ends_well(end)
        alone = end == self.at + 1
        kind = Kind.VARIABLE if c == "$" else Kind.DOT if alone else Kind.FIELD
        self._take(kind, end - self.at)

    def _number(self) -> None:
        end = self._number_end(self.at)
        kind = Kind.NUMBER
        if self.text[end : end + 1] in ("+", "-"):
            kind = Kind.COMPLEX
            end = self._number_end(end)
            if self.text[end - 1] != "i":
                raise self._bad("a number is not written as Go writes numbers")
        self._take(kind, end - self.at)

    def _number_end(self, begin: int) -> int:
        found = _NUMBER.match(self.text, begin)
        assert found is not None
        end = found.end()
        if end < len(self.text) and is_name(self.text[end]):
            raise self._bad("a number is not written as Go writes numbers")
        return end

    def _word(self) -> None:
        end = self._name_end(self.at)
        self._ends_well(end)
        word = self.text[self.at : end]
        kind = Kind.KEYWORD if word in KEYWORDS else Kind.BOOL if word in ("true", "false") else Kind.NAME
        self._take(kind, end - self.at)
