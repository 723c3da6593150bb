"""Tokens to a tree, by Go's own grammar: what Conduit refuses is refused here. Pure; used by `template`.

Which functions exist is asked of `known`; names that are nowhere are refused with the nearest that is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.plan.gotemplate.errors import TemplateError, unsupported
from penstock.plan.gotemplate.lexer import Kind, Token, tokens
from penstock.plan.gotemplate.literals import character, real, unquoted, whole
from penstock.plan.gotemplate.tree import (
    Action,
    Bool,
    Branch,
    Call,
    Chain,
    Command,
    Dot,
    Field,
    Item,
    Items,
    Jump,
    Name,
    Nil,
    Node,
    Number,
    Pipe,
    Plain,
    Text,
    Tree,
    Variable,
)

DEPTH = 60  # of parentheses and blocks; Python's stack is not endless
_OPERANDS = frozenset(
    {
        Kind.BOOL,
        Kind.CHAR,
        Kind.COMPLEX,
        Kind.DOT,
        Kind.FIELD,
        Kind.NAME,
        Kind.NUMBER,
        Kind.STRING,
        Kind.VARIABLE,
        Kind.OPEN,
    }
)


def parse(text: str, known: Callable[[str], None]) -> Tree:
    """Raises `TemplateError`. `known` raises for a name that is no function, or none that is offered."""
    parser = _Parser(tokens(text), known)
    root = parser.main()
    return Tree(root, parser.defined)


@dataclass(frozen=True, slots=True)
class _Closing:
    """end or else, where a list of items ends."""

    word: str


class _Parser:
    def __init__(self, found: list[Token], known: Callable[[str], None]) -> None:
        self.found = found
        self.at = 0
        self.known = known
        self.variables = ["$"]
        self.ranges = 0
        self.depth = 0
        self.defined: dict[str, Items] = {}

    # --- tokens

    def peek(self) -> Token:
        return self.found[self.at]

    def next(self) -> Token:
        token = self.found[self.at]
        if token.kind is not Kind.END:
            self.at += 1
        return token

    def skip(self) -> Token:
        """The next one that is no space, not taken."""
        if self.peek().kind is Kind.SPACE:
            self.at += 1
        return self.peek()

    def solid(self) -> Token:
        self.skip()
        return self.next()

    def bad(self, what: str, token: Token | None = None) -> TemplateError:
        return TemplateError(f"line {(token or self.peek()).line} of the template: {what}")

    def expect(self, kind: Kind, context: str) -> Token:
        token = self.solid()
        if token.kind is not kind:
            raise self.unexpected(token, context)
        return token

    def unexpected(self, token: Token, context: str) -> TemplateError:
        shown = repr(token.text) if token.text else "the end"
        return self.bad(f"{shown} is not expected in {context}", token)

    def deeper(self, by: int) -> None:
        self.depth += by
        if self.depth > DEPTH:
            raise unsupported(f"the template is nested deeper than {DEPTH}", "use fewer levels, or variables")

    # --- items

    def main(self) -> Items:
        items: list[Item] = []
        while self.peek().kind is not Kind.END:
            if self.peek().kind is Kind.LEFT and self._definition():
                continue
            item = self.item()
            if isinstance(item, _Closing):
                raise self.bad(f"{{{{{item.word}}}}} has nothing to close")
            items.append(item)
        return tuple(items)

    def _definition(self) -> bool:
        begin = self.at
        self.next()
        token = self.solid()
        if token.kind is not Kind.KEYWORD or token.text != "define":
            self.at = begin
            return False
        name = self.text_of(self.expect(Kind.STRING, "define"))
        self.expect(Kind.RIGHT, "define")
        self._define(name, "define")
        return True

    def _define(self, name: str, context: str) -> None:
        variables, self.variables = self.variables, ["$"]
        ranges, self.ranges = self.ranges, 0
        body, closing = self.items()
        self.variables, self.ranges = variables, ranges
        if closing.word != "end":
            raise self.bad(f"{{{{else}}}} in {context}")
        if _is_empty(self.defined.get(name, ())):
            self.defined[name] = body
        elif not _is_empty(body):
            raise self.bad(f"the template {name!r} is defined twice")

    def items(self) -> tuple[Items, _Closing]:
        self.deeper(1)
        found: list[Item] = []
        while self.skip().kind is not Kind.END:
            item = self.item()
            if isinstance(item, _Closing):
                self.deeper(-1)
                return tuple(found), item
            found.append(item)
        raise self.bad("{{end}} is missing")

    def item(self) -> Item | _Closing:
        token = self.solid()
        if token.kind is Kind.TEXT:
            return Plain(token.text)
        if token.kind is not Kind.LEFT:
            raise self.unexpected(token, "input")
        begin = self.at
        token = self.solid()
        if token.kind is Kind.KEYWORD and token.text not in ("nil", "define"):
            return self.control(token.text)
        self.at = begin
        return Action(self.pipeline("command", Kind.RIGHT))

    def control(self, word: str) -> Item | _Closing:
        if word in ("if", "with", "range"):
            return self.branch(word)
        if word in ("break", "continue"):
            self.expect(Kind.RIGHT, word)
            if not self.ranges:
                raise self.bad(f"{{{{{word}}}}} outside {{{{range}}}}")
            return Jump(word)
        if word == "end":
            self.expect(Kind.RIGHT, word)
            return _Closing(word)
        if word == "else":
            following = self.skip()
            if not (following.kind is Kind.KEYWORD and following.text in ("if", "with")):
                self.expect(Kind.RIGHT, word)
            return _Closing(word)
        name = self.text_of(self.expect(Kind.STRING, word))
        if word == "template" and self.skip().kind is Kind.RIGHT:
            self.next()
            return Call(name, None)
        pipe = self.pipeline(word, Kind.RIGHT)
        if word == "block":
            self._define(name, word)
        return Call(name, pipe)

    def branch(self, word: str) -> Branch:
        self.deeper(1)
        visible = len(self.variables)
        pipe = self.pipeline(word, Kind.RIGHT)
        self.ranges += word == "range"
        body, closing = self.items()
        self.ranges -= word == "range"
        otherwise: Items | None = None
        if closing.word == "else":
            following = self.peek()
            if word != "range" and following.kind is Kind.KEYWORD and following.text == word:
                self.next()
                otherwise = (self.branch(word),)
            else:
                otherwise, closing = self.items()
                if closing.word != "end":
                    raise self.bad("a second {{else}}")
        del self.variables[visible:]
        self.deeper(-1)
        return Branch(word, pipe, body, otherwise)

    # --- pipelines

    def pipeline(self, context: str, end: Kind) -> Pipe:
        self.deeper(1)
        variables, assigns = self._declared(context)
        commands: list[Command] = []
        while True:
            token = self.skip()
            if token.kind is end:
                self.next()
                break
            if token.kind not in _OPERANDS and not (token.kind is Kind.KEYWORD and token.text == "nil"):
                raise self.unexpected(token, context)
            commands.append(self.command())
        self.deeper(-1)
        if not commands:
            raise self.bad(f"a value is missing for {context}")
        if any(isinstance(c.args[0], Bool | Dot | Nil | Number | Text) for c in commands[1:]):
            raise self.bad("what follows a | has to be a function")
        return Pipe(tuple(commands), tuple(variables), assigns)

    def _declared(self, context: str) -> tuple[list[str], bool]:
        names: list[str] = []
        while self.skip().kind is Kind.VARIABLE:
            begin = self.at
            name = self.next().text
            following = self.skip()
            if following.kind in (Kind.ASSIGN, Kind.DECLARE):
                self.next()
                self.variables.append(name)
                return [*names, name], following.kind is Kind.ASSIGN
            if following.kind is not Kind.OTHER or following.text != ",":
                self.at = begin
                break
            self.next()
            names.append(name)
            self.variables.append(name)
            if context != "range" or len(names) > 1:
                raise self.bad("too many variables")
            if self.skip().kind not in (Kind.VARIABLE, Kind.RIGHT, Kind.CLOSE):
                raise self.bad("range can only declare variables")
        return names, False

    def command(self) -> Command:
        args: list[Node] = []
        while True:
            self.skip()
            operand = self.operand()
            if operand is not None:
                args.append(operand)
            token = self.next()
            if token.kind is Kind.SPACE:
                continue
            if token.kind in (Kind.RIGHT, Kind.CLOSE):
                self.at -= 1
            elif token.kind is not Kind.PIPE:
                raise self.unexpected(token, "operand")
            break
        if not args:
            raise self.bad("a command is empty")
        return Command(tuple(args))

    def operand(self) -> Node | None:
        node = self.term()
        if node is None or self.peek().kind is not Kind.FIELD:
            return node
        names: list[str] = []
        while self.peek().kind is Kind.FIELD:
            names.append(self.next().text[1:])
        if isinstance(node, Field):
            return Field((*node.names, *names))
        if isinstance(node, Variable):
            return Variable(node.name, (*node.names, *names))
        if isinstance(node, Bool | Text | Number | Nil | Dot):
            raise self.bad("a literal has no fields")
        return Chain(node, tuple(names))

    def term(self) -> Node | None:
        begin = self.at
        token = self.solid()
        kind = token.kind
        if kind is Kind.NAME:
            self.known(token.text)
            return Name(token.text)
        if kind is Kind.DOT:
            return Dot()
        if kind is Kind.KEYWORD and token.text == "nil":
            return Nil()
        if kind is Kind.VARIABLE:
            if token.text not in self.variables:
                raise self.bad(f"the variable {token.text} is not declared", token)
            return Variable(token.text)
        if kind is Kind.FIELD:
            return Field((token.text[1:],))
        if kind is Kind.BOOL:
            return Bool(token.text == "true")
        if kind in (Kind.CHAR, Kind.NUMBER, Kind.COMPLEX):
            return self.number(token)
        if kind is Kind.OPEN:
            return self.pipeline("parentheses", Kind.CLOSE)
        if kind is Kind.STRING:
            return Text(self.text_of(token))
        self.at = begin
        return None

    def text_of(self, token: Token) -> str:
        value = unquoted(token.text)
        if value is None:
            raise self.bad("a text holds an escape that Go does not know", token)
        return value

    def number(self, token: Token) -> Number:
        text = token.text
        if token.kind is Kind.CHAR:
            value = character(text)
            if value is None:
                raise self.bad("a character constant has to be one character", token)
            return Number(text, value, float(value))
        if token.kind is Kind.COMPLEX or (text.endswith("i") and real(text[:-1]) is not None):
            raise unsupported("the template holds a complex number", "write a real number")
        value = whole(text)
        if value is not None and -(2**63) <= value < 2**63:
            is_real = "x" not in text.lower() and any(c in text for c in ".eEpP")
            return Number(text, value, float(value), is_real)
        if value is not None and 0 <= value < 2**64 and text[0] not in "+-":
            return Number(text, None, float(value), overflows=True)
        found = real(text)
        if found is None or not any(c in text for c in ".eEpP"):
            raise self.bad("a number is not written as Go writes numbers, or too large", token)
        fits = found.is_integer() and -(2.0**63) <= found < 2.0**63
        return Number(text, int(found) if fits else None, found, True)


def _is_empty(items: Items) -> bool:
    return all(isinstance(item, Plain) and not item.text.strip() for item in items)
