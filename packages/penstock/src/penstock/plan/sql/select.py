"""A select list over a record: `after.id AS id, upper(after.name) AS name`, or `after.*, after.a + after.b AS sum`.

Cut into items here, by words and brackets, for the processor `sql`; each item is then an expression like any other. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock.plan.sql.errors import ExpressionError
from penstock.plan.sql.refused import CLOSING, LITERALS, OPENING, refuse_beyond_a_record
from penstock.plan.sql.text import not_parsed, parse_spark, prepared


@dataclass(frozen=True)
class Item:
    name: str
    text: str  # an expression, as it was written


@dataclass(frozen=True)
class SelectList:
    items: tuple[Item, ...]
    star: bool = False  # `after.*` stands in front: all fields, where no item has their name


def parse_select(text: str) -> SelectList:
    """Raises `ExpressionError`; names that are no columns of a record are not looked for."""
    ready = prepared(text)
    try:
        tokens = Spark().tokenize(ready)
    except SqlglotError as e:
        raise not_parsed(e, ready) from None
    refuse_beyond_a_record(tokens)
    items: list[Item] = []
    star = False
    start = 0
    for n, piece in enumerate(_pieces(tokens)):
        end = piece[-1].start if piece and piece[-1].token_type is TokenType.COMMA else len(text)
        words = piece[:-1] if end < len(text) and piece else piece
        if not words:
            raise ExpressionError("an item of the list is empty", hint="remove a comma", column=start + 1)
        if [w.text.lower() for w in words] == ["after", ".", "*"]:
            if n:
                raise ExpressionError("after.* has to be the first item", column=words[0].start + 1)
            star = True
        else:
            items.append(_item(text, start, end, words))
        start = end + 1
    names = [item.name for item in items]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ExpressionError(f"two items have the name {twice!r}", hint="a name stands once in a list")
    return SelectList(tuple(items), star)


def _pieces(tokens: list[Token]) -> list[list[Token]]:
    """Cut behind every comma that is in no bracket."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        pieces[-1].append(token)
        if token.token_type is TokenType.COMMA and depth == 0:
            pieces.append([])
    return pieces


def _item(text: str, start: int, end: int, words: list[Token]) -> Item:
    column = words[0].start + 1
    if words[-1].token_type is TokenType.STAR:
        raise ExpressionError("only `after.*` is known, as the first item", hint="name the fields", column=column)
    at = _alias(words)
    if at is None:
        body = text[start:end].strip()
        tree = parse_spark(body)
        name = tree.parts[-1].name if isinstance(tree, exp.Column | exp.Dot) else ""
        if not name:
            raise ExpressionError("an item has no name", hint="write AS and a name behind it", column=column)
        return Item(name, body)
    last = words[-1]
    if at == 0 or at != len(words) - 2 or last.token_type in LITERALS or not _is_word(last):
        raise ExpressionError(
            "behind AS stands one name", hint="AS total, or AS `odd name`", column=words[at].start + 1
        )
    body = text[start : words[at].start].strip()
    parse_spark(body)
    return Item(last.text, body)


def _alias(words: list[Token]) -> int | None:
    """Where AS stands, outside of brackets: the one in a cast is inside."""
    depth = 0
    for i, word in enumerate(words):
        depth += (word.token_type in OPENING) - (word.token_type in CLOSING)
        if depth == 0 and word.token_type is TokenType.ALIAS and not (i and words[i - 1].token_type is TokenType.DOT):
            return i
    return None


def _is_word(token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return bool(token.text)
    return token.text.replace("_", "a").isalnum()
