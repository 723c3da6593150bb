"""From the text a user wrote to sqlglot's tree: Conduit's spelling of references, string literals, and the two dialects.

Positions are kept: what is rewritten keeps its length, so an error's column counts in the text as it was written.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.plan.sql.errors import ExpressionError
from penstock.plan.sql.refused import refuse_beyond_a_record, refuse_unrepeatable

COLUMNS = (
    "source", "seq", "part", "position", "operation", "namespace", "phase", "timestamp", "metadata", "key", "before", "after",
)  # fmt: skip


class PlainSpark(Spark):
    """Spark's grammar with functions left as they were written: sqlglot's own readings would change what they mean."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            k: v for k, v in SparkParser.FUNCTION_PARSERS.items() if k in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}

        def _parse_paren(self) -> exp.Expr | None:
            """Marks brackets that were written: sqlglot adds some of its own, where Spark would not parse the text."""
            made = super()._parse_paren()
            if isinstance(made, exp.Paren):
                made.meta["written"] = True
            return made


_PARTS = re.compile(
    r"""
      (?P<collection>(?<![A-Za-z0-9_`\])'".])\.?metadata\s*(?-i:
          \[\s*(?:'opencdc\.collection'|"opencdc\.collection")\s*\] | \.`opencdc\.collection`))
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<other>`[^`]*`|--[^\n]*|/\*.*?\*/|[A-Za-z_0-9]+)
    | (?P<conduit>(?<![A-Za-z0-9_`\])'".])\.(?:payload\.(?:after|before)|key|metadata|operation|position)(?![A-Za-z0-9_]))
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ESCAPES = re.compile(r"\\(.)", re.DOTALL)
_SAME_ESCAPES = frozenset("\\'\"nrt")  # read alike by Spark and sqlglot; `\%` and `\_` are doubled below


def prepared(text: str) -> str:
    """`.Payload.After.x` becomes `after.x`, outside of strings, names in backticks and comments."""

    def change(match: re.Match[str]) -> str:
        name = _renamed(match)
        if name is not None:
            return name.rjust(len(match[0]))
        if match["string"]:
            return _quote_kept(match[0])
        return match[0]

    return _PARTS.sub(change, text)


def respelled(text: str) -> str:
    """The same for Spark, which reads strings by itself."""
    return _PARTS.sub(lambda match: _renamed(match) or match[0], text)


def _renamed(match: re.Match[str]) -> str | None:
    """The column that another spelling stands for: Conduit's references, and the metadata key that is a column here."""
    if match["conduit"]:
        return match[0].rsplit(".", 1)[1].lower()
    inner = match.string[: match.start()].rstrip().endswith(".")  # `after. metadata[…]` is a field of the payload
    return "namespace" if match["collection"] and not inner else None


def _quote_kept(literal: str) -> str:
    """'it''s' is one string in Spark 4, two that are joined in sqlglot."""
    quote = literal[0]
    body = re.sub(
        r"\\.|" + quote * 2, lambda m: "\\" + quote if m[0] == quote * 2 else m[0], literal[1:-1], flags=re.DOTALL
    )
    return quote + body + quote


def refuse_odd_strings(text: str) -> None:
    for match in _PARTS.finditer(text):
        if match["raw"]:
            raise ExpressionError(
                "a raw string is outside the subset", hint="double the backslashes", column=match.start() + 1
            )
        if match["string"]:
            for escape in _ESCAPES.finditer(match[0]):
                if escape[1] not in _SAME_ESCAPES:
                    raise ExpressionError(
                        f"the escape {escape[0]!r} in a string is outside the subset",
                        hint="a backslash in a pattern is written twice: '\\\\d+', '100\\\\%'",
                        column=match.start() + escape.start() + 1,
                    )


_BEFORE_SIGN = frozenset(
    {
        TokenType.L_PAREN, TokenType.COMMA, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD,
        TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.NULLSAFE_EQ,
        TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE, TokenType.RLIKE,
        TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.L_BRACKET, TokenType.DPIPE,
    }
)  # fmt: skip


def _refuse_tokens(tokens: list[Token], text: str) -> None:
    """What sqlglot would take without a trace in its tree."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        column = token.start + 1
        if token.token_type == TokenType.PLUS and (before is None or before.token_type in _BEFORE_SIGN):
            raise ExpressionError(
                "a plus sign before a value is outside the subset", hint="leave it out", column=column
            )
        if token.token_type == TokenType.DCOLON and not text[token.start : token.start + 1] == ":":
            raise ExpressionError(
                "a number with a type suffix is outside the subset", hint="write cast(1 as bigint)", column=column
            )
        if before is not None and token.token_type == before.token_type == TokenType.STRING:
            raise ExpressionError("two strings side by side", hint="use concat", column=column)


def parse_plain(text: str) -> exp.Expression:
    """For evaluation: the tree says what was written, no more."""
    ready = prepared(text)
    refuse_odd_strings(text)
    dialect = PlainSpark()
    try:
        tokens = dialect.tokenize(ready)
        _refuse_tokens(tokens, ready)
        refuse_unrepeatable(tokens)
        trees = dialect.parser().parse(tokens, ready)
    except SqlglotError as e:
        raise not_parsed(e, ready) from None
    except RecursionError:
        raise ExpressionError("the expression is nested too deep", hint="split it") from None
    return _only(trees)


def parse_spark(text: str) -> exp.Expression:
    """For reading names only: all that sqlglot knows of Spark SQL. Refused is what is no function of one record."""
    ready = prepared(text)
    dialect = Spark()
    try:
        tokens = dialect.tokenize(ready)
        refuse_unrepeatable(tokens)
        refuse_beyond_a_record(tokens)
        trees = dialect.parser().parse(tokens, ready)
    except SqlglotError as e:
        raise not_parsed(e, ready) from None
    except RecursionError:
        raise ExpressionError("the expression is nested too deep", hint="split it") from None
    return _only(trees)


def _only(trees: list[Any]) -> exp.Expression:
    if len(trees) != 1 or trees[0] is None:
        raise ExpressionError("there has to be one expression", column=1)
    tree = trees[0]
    if isinstance(tree, exp.Alias | exp.Query | exp.Command | exp.DDL | exp.DML):
        raise ExpressionError(
            "this is not an expression", hint="write what would stand in a WHERE or a SELECT", column=1
        )
    assert isinstance(tree, exp.Expression)
    return tree


def not_parsed(error: SqlglotError, text: str) -> ExpressionError:
    details = getattr(error, "errors", None)
    if not details:
        return ExpressionError(f"the expression does not parse: {str(error).splitlines()[0]}")
    first = details[0]
    line, col = first.get("line"), first.get("col")
    mark = first.get("highlight") or ""
    column = None
    if line and col is not None:
        before = sum(len(part) + 1 for part in text.split("\n")[: line - 1])
        column = max(1, before + col - max(0, len(mark) - 1))  # sqlglot counts to a token's last character
    what = str(first.get("description") or "").rstrip(". ")
    if "sqlglot" in what:  # what it lacks, in words of its own classes
        what = "something is missing"
    return ExpressionError(
        f"the expression does not parse: {what}" + (f" near {mark!r}" if mark else ""), column=column
    )
