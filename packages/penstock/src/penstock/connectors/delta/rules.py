"""The rules of a table, as far as they can be told of single records: `NOT NULL`, lengths, and `CHECK`. Who breaks one is a dead letter;
Delta itself would refuse the whole batch, when it is prepared already, and not say which row it was.

Fields that records do not have are left to Delta: a column may have a default, and a MERGE keeps what is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from penstock import record
from penstock.connectors.delta.commits import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.delta.table import Layout

_LENGTH = re.compile(r"(?:var)?char\((\d+)\)")
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"  # where Spark keeps `varchar(5)` of a column that is a string to it


def broken(spark: SparkSession, layout: Layout, fields: StructType, keys: tuple[str, ...]) -> list[tuple[Column, str]]:
    """Conditions that are true of records which the table refuses, and why. What is in `keys` is never null here."""
    from pyspark.sql import functions as F

    found: list[tuple[Column, str]] = []
    for f in layout.schema.fields:
        if f.name not in fields.names:
            continue
        value = F.col(record.AFTER).getField(f.name)
        if not f.nullable and f.name not in keys:
            found.append((value.isNull(), f"{f.name!r} must not be null in the table"))
        declared = str(f.metadata.get(_DECLARED, ""))
        if (limit := _LENGTH.fullmatch(declared)) is not None:
            found.append((F.length(value) > int(limit[1]), f"{f.name!r} is longer than {declared} of the table"))
    for name, text in layout.checks.items():
        rule = _on_records(text, fields, layout)
        if rule is not None and _understood(spark, rule, fields):
            kept = F.coalesce(F.expr(rule), F.lit(False))  # Delta takes neither false nor NULL
            found.append((~kept, f"it breaks the rule {name!r} of the table: {text}"))
    return found


def _on_records(text: str, fields: StructType, layout: Layout) -> str | None:
    """The rule with the fields of records where it has columns; None where it is about something else, too."""
    try:
        tokens = Spark().tokenize(text)
    except SqlglotError:
        return None
    here = {name.lower(): name for name in fields.names}
    columns = {f.name.lower() for f in layout.schema.fields}
    made, at = "", 0
    for i, token in enumerate(tokens):
        if token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) or not _is_column(tokens, i):
            continue
        name = token.text.lower()
        if name not in here:
            if name in columns:
                return None
            continue
        made += f"{text[at : token.start]}{record.AFTER}.{quoted(here[name])}"
        at = token.end + 1
    return made + text[at:]


def _is_column(tokens: list[Token], i: int) -> bool:
    before = tokens[i - 1].token_type if i else None
    behind = tokens[i + 1].token_type if i + 1 < len(tokens) else None
    return before is not TokenType.DOT and behind is not TokenType.L_PAREN


def _understood(spark: SparkSession, rule: str, fields: StructType) -> bool:
    """Whether Spark can make sense of it; names that sqlglot takes for something else are left to Delta."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        nothing = spark.range(0).select(F.lit(None).cast(fields).alias(record.AFTER))
        return nothing.selectExpr(rule).schema[0].dataType.simpleString() == "boolean"
    except PySparkException:
        return False
