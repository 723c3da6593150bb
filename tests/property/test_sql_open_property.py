"""An expression over an open payload answers what Spark SQL answers for the same values in typed columns, or raises as it does.

Random expressions of the subset over random JSON values. Spark evaluates each on a row of its own, as an inline table: no
job is started (about 30 ms each), nothing is folded as a constant, and one that raises does not touch the others.
SQL_EXAMPLES=20000 in the environment makes it a campaign.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from datetime import datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine import session
from penstock.plan.sql import EvaluationError, ExpressionError, Unmatched, compile_expression
from penstock.plan.sql.casts import timestamp_to_str
from penstock_sdk import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("SQL_EXAMPLES", "400"))

WHOLE = [0, 1, -1, 2, 3, 7, 10, -13, 50, 99, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]
LARGE = [2**63, -(2**63) - 1, 10**20 + 7, 10**37 + 3, 10**38 - 1]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    0.1,
    1e10,
    12345678.9,
    1e-5,
    3.14159,
    1e20,
    -7.25,
    2.675,
    1e300,
    float("nan"),
    float("inf"),
]
NUMERIC_TEXT = [
    "12",
    " 7 ",
    "-3",
    "+4",
    "1.5",
    "1e2",
    "0",
    "",
    "abc",
    "true",
    "1.5f",
    "NaN",
    "99999999999",
    "Infinity",
    ".5",
    "5.",
]
TEXTS = [
    "",
    "a",
    "abc",
    "Abc",
    " abc ",
    "a,b,,c",
    "ä€😀",
    "x_y%z",
    "hello world",
    "line\nbreak",
    "no",
    "t",
    "Straße",
    "a\\b",
]
TIMES = [
    "2020-02-29", "2021-1-5", "2020-02-30", "2024-12-31 23:59:59.5", "2020-01-01T10:11:12Z", "1999", "2020-05",
    "2020-02-03 01:02:03+02:30", " 2020-02-03 ", "2020-01-01 10:1", "x",
]  # fmt: skip
LISTS: list[list[Any]] = [[], [1, 2, 3], [1, None], ["a", "b"], [1.5, 2.5], [True], [None]]

values = {
    "i": st.one_of(st.sampled_from(WHOLE), st.integers(-200, 200)),
    "n": st.one_of(st.sampled_from(WHOLE), st.sampled_from(LARGE), st.sampled_from(DOUBLES), st.none()),
    "d": st.one_of(st.sampled_from(DOUBLES), st.floats(-1e6, 1e6)),
    "s": st.one_of(st.sampled_from(TEXTS), st.text("ab _%,é", max_size=6)),
    "m": st.sampled_from(NUMERIC_TEXT),
    "w": st.sampled_from(TIMES),
    "f": st.sampled_from([True, False, None]),
    "l": st.sampled_from(LISTS),
    "x": st.one_of(
        st.none(),
        st.sampled_from(WHOLE),
        st.sampled_from(DOUBLES),
        st.sampled_from(TEXTS),
        st.booleans(),
        st.sampled_from(LARGE),
    ),
}
payloads = st.fixed_dictionaries(values)

COMPARE = ["=", "<>", "<", "<=", ">", ">=", "<=>", "!="]
LITERALS = {
    "number": [
        "0",
        "1",
        "2",
        "-3",
        "50",
        "1.5",
        "0.25",
        "-2.50",
        "1e3",
        "2.5e0",
        "3000000000",
        "9223372036854775808",
        "NULL",
        "-1",
    ],
    "text": ["''", "'a'", "'abc'", "'12'", "'it''s'", "'b c'", "'%b%'", "'é'", "NULL"],
    "truth": ["true", "false", "NULL"],
}
TARGETS = [
    "string",
    "int",
    "bigint",
    "double",
    "boolean",
    "decimal(10,2)",
    "decimal(38,0)",
    "decimal(5,4)",
    "date",
    "timestamp",
]
PATTERNS = [
    "'a'",
    "'^a.*c$'",
    "'[a-c]+'",
    "'\\\\d+'",
    "'(b|c)\\\\s?'",
    "'^\\\\w+$'",
    "','",
    "'[^a-z ]'",
    "'b{1,2}'",
    "'(?i)ABC'",
]


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["after.i", "after.n", "after.d", "after.i", "after.x", *LITERALS["number"]])
    if depth == 0:
        return leaf
    n, t, b = numbers(depth - 1), texts(depth - 1), truths(depth - 1)
    two = st.builds("{} {} {}".format, n, st.sampled_from("+-*/%"), n)
    return st.one_of(
        leaf,
        two,
        two,
        st.builds("({})".format, two),
        st.builds("-{}".format, n.filter(lambda s: not s.startswith("-"))),
        st.builds("-({})".format, n),
        st.builds("{}({})".format, st.sampled_from(["abs", "floor", "ceil", "round"]), n),
        st.builds("round({}, {})".format, n, st.sampled_from(["0", "1", "2", "-1", "-3"])),
        st.builds("{}({}, {})".format, st.sampled_from(["greatest", "least", "coalesce", "nullif"]), n, n),
        st.builds("{}({}, {}, {})".format, st.sampled_from(["greatest", "least", "coalesce"]), n, n, n),
        st.builds("if({}, {}, {})".format, b, n, n),
        st.builds("case when {} then {} when {} then {} end".format, b, n, b, n),
        st.builds("case {} when {} then {} else {} end".format, n, n, n, n),
        st.builds("length({})".format, t),
        st.builds("{}(cast({} as {}))".format, st.just("abs"), t, st.sampled_from(["int", "double", "decimal(10,2)"])),
        st.builds(
            "{}({} as {})".format,
            st.sampled_from(["cast", "try_cast"]),
            st.one_of(n, t, b),
            st.sampled_from(TARGETS[1:4]),
        ),
        st.builds("cast({} as {})".format, n, st.sampled_from(TARGETS[5:8])),
        st.builds("{}(after.w)".format, st.sampled_from(["year", "month", "day", "hour"])),
        st.builds("datediff({}, {})".format, dates(), dates()),
        st.sampled_from(
            ["size(after.l)", "element_at(after.l, 1)", "after.l[0]", "after.l[2]", "element_at(after.l, -2)"]
        ),
        st.sampled_from(["after.m", "after.m + 1", "after.m * after.d", "-after.m"]),
    )


def texts(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["after.s", "after.m", "after.s", "after.x", "after.w", *LITERALS["text"]])
    if depth == 0:
        return leaf
    n, t, b = numbers(depth - 1), texts(depth - 1), truths(depth - 1)
    small = st.sampled_from(["0", "1", "2", "-2", "5", "-9", "after.i % 7", "'2'", "2.7", "NULL"])
    return st.one_of(
        leaf,
        st.builds("{}({})".format, st.sampled_from(["lower", "upper", "trim", "ltrim", "rtrim", "reverse"]), t),
        st.builds("substring({}, {}, {})".format, t, small, small),
        st.builds("substr({}, {})".format, t, small),
        st.builds("concat({}, {})".format, t, st.one_of(t, n, b)),
        st.builds("{} || {}".format, t, t),
        st.builds("concat_ws({}, {}, {})".format, t, t, st.one_of(t, n)),
        st.builds("replace({}, {}, {})".format, t, t, t),
        st.builds("{}({}, {}, {})".format, st.sampled_from(["lpad", "rpad"]), t, small, t),
        st.builds("regexp_replace({}, {}, 'z')".format, t, st.sampled_from(PATTERNS)),
        st.builds("split({}, {})[0]".format, t, st.sampled_from(PATTERNS)),
        st.builds("element_at(split({}, ','), {})".format, t, st.sampled_from(["1", "-1", "2", "0"])),
        st.builds("{}({} as string)".format, st.sampled_from(["cast", "try_cast"]), st.one_of(n, b, dates(), t)),
        st.builds("{}::string".format, st.sampled_from(["after.d", "after.n", "after.f", "after.i"])),
        st.builds("{}({}, {})".format, st.sampled_from(["coalesce", "nullif", "greatest", "least"]), t, t),
        st.builds("if({}, {}, {})".format, b, t, t),
        st.builds("cast({} as timestamp)".format, st.sampled_from(["after.w", "after.s", "after.i"])),
    )


def dates() -> st.SearchStrategy[str]:
    return st.sampled_from(
        ["to_date(after.w)", "cast(after.w as date)", "date_add(after.w, 3)", "to_timestamp(after.w)", "date '2020-01-01'",
         "date_add(to_date(after.w), -400)", "try_cast(after.w as date)", "try_cast(after.s as timestamp)", "after.w"]
    )  # fmt: skip


def truths(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(
        ["after.f", "after.i > 5", "after.f", "after.x is null", "after.s = 'abc'", *LITERALS["truth"]]
    )
    if depth == 0:
        return leaf
    n, t, b = numbers(depth - 1), texts(depth - 1), truths(depth - 1)
    sign = st.sampled_from(COMPARE)
    word = st.sampled_from(["and", "or"])
    return st.one_of(
        leaf,
        st.builds("{} {} {}".format, n, sign, n),
        st.builds("{} {} {}".format, n, sign, n),
        st.builds("{} {} {}".format, t, sign, t),
        st.builds("{} {} {}".format, st.one_of(n, t), sign, st.one_of(n, t)),
        st.builds("({}) {} ({})".format, b, sign, b),
        st.builds("{} {} {}".format, dates(), sign, st.one_of(dates(), t)),
        st.builds("{} {} {}".format, b, word, b),
        st.builds("{} {} {} {} {}".format, b, word, b, word, b),
        st.builds("({} {} {})".format, b, word, b),
        st.builds("not {}".format, b),
        st.builds("not ({})".format, b),
        st.builds("{} {}".format, st.one_of(n, t, b), st.sampled_from(["is null", "is not null"])),
        st.builds("({}) {}".format, b, st.sampled_from(["is true", "is not true", "is false", "is not null"])),
        st.builds("{} {} ({}, {})".format, n, st.sampled_from(["in", "not in"]), n, n),
        st.builds("{} {} ({}, {}, {})".format, t, st.sampled_from(["in", "not in"]), t, t, st.one_of(t, n)),
        st.builds("{} {} {} and {}".format, n, st.sampled_from(["between", "not between"]), n, n),
        st.builds(
            "{} {} {}".format,
            t,
            st.sampled_from(["like", "not like"]),
            st.sampled_from(["'a%'", "'%b_'", "'%\\\\%%'", "after.s"]),
        ),
        st.builds("{} {} {}".format, t, st.sampled_from(["rlike", "not rlike"]), st.sampled_from(PATTERNS)),
        st.builds("{}({}, {})".format, st.sampled_from(["startswith", "endswith", "contains"]), t, t),
        st.builds("array_contains(after.l, {})".format, st.one_of(n, t)),
        st.builds("{}({} as boolean)".format, st.sampled_from(["cast", "try_cast"]), st.one_of(n, t)),
    )


expressions = st.one_of(truths(2), numbers(2), texts(2), st.one_of(truths(3), numbers(3)))


def typed(value: Any) -> str:
    """The value as a Spark literal of the type that an open payload gives it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        kind = "BIGINT" if -(2**63) <= value < 2**63 else "DECIMAL(38,0)"
        return f"CAST('{value}' AS {kind})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"array({', '.join(map(typed, value))})"


def on_spark(spark: SparkSession, text: str, payload: dict[str, Any]) -> tuple[str, Any]:
    """('value', v), ('raised', why), or 'untyped' or 'unparsed' when it gets no further than Spark's analyzer or parser."""
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql.types import TimestampType

    fields = ", ".join(f"'{name}', {typed(value)}" for name, value in payload.items())
    source = f"FROM VALUES (named_struct({fields})) AS t(after)"
    try:
        frame = spark.sql(f"SELECT {text} AS r {source}")
        if isinstance(frame.schema[0].dataType, TimestampType):
            frame = frame.selectExpr("cast(r as string) as r")
    except AnalysisException as e:
        return ("unparsed" if "PARSE_SYNTAX_ERROR" in str(e) else "untyped"), str(e)
    try:
        return "value", frame.collect()[0][0]
    except PySparkException as e:
        return "raised", str(e)
    except ValueError as e:  # a year that Python's dates do not have
        return "raised", str(e)


def on_dict(text: str, payload: dict[str, Any]) -> tuple[str, Any]:
    try:
        expression = compile_expression(text)
    except ExpressionError as e:
        return "refused", str(e)
    try:
        value = expression.on_record(Record(payload))
    except Unmatched as e:
        return "unmatched", str(e)
    except EvaluationError as e:
        return "raised", str(e)
    return "value", timestamp_to_str(value, "") if isinstance(value, datetime) else value


def shown(value: Any) -> str:
    """Decimals by value: a scale on its way to Python is not always the column's. Casts to string compare the scale."""
    return f"{value.normalize(Context(prec=80)):f} (decimal)" if isinstance(value, Decimal) else repr(value)


def differs(ours: tuple[str, Any], sparks: tuple[str, Any]) -> bool:
    if ours[0] in ("refused", "unmatched"):
        return False
    if sparks[0] == "unparsed":
        return True
    if ours[0] == "raised":
        return sparks[0] == "value"
    if sparks[0] == "untyped":  # a NULL without a type: in some places Spark refuses what it takes from a typed column
        return ours[1] is not None and not re.search("VOID|NULL_TYPE|BINARY_OP_WRONG_TYPE", sparks[1])
    return sparks[0] != "value" or shown(ours[1]) != shown(sparks[1])


@pytest.mark.spark
def test_an_open_expression_answers_what_spark_answers(spark: SparkSession) -> None:
    lane = session.for_lane(spark)
    seen: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(expressions, payloads)
    def compare(text: str, payload: dict[str, Any]) -> None:
        ours = on_dict(text, payload)
        seen[ours[0]] += 1
        if ours[0] not in ("refused", "unmatched"):
            sparks = on_spark(lane, text, payload)
            assert not differs(ours, sparks), f"{text}\n  over {payload}\n  open {ours}\n  Spark {sparks}"

    compare()
    total = sum(seen.values())
    assert seen["value"] > 0.4 * total, seen  # the comparison is of answers, not only of errors
    assert seen["refused"] + seen["unmatched"] < 0.3 * total, seen
