"""What expressions over open payloads answer: tables of expression, payload and result, as ANSI Spark has them."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.plan.sql import EvaluationError, Unmatched, compile_condition, compile_expression
from penstock_sdk import Record

LARGE = 2**63


def value(text: str, after: Any = None) -> Any:
    expression = compile_expression(text)
    assert expression.on_after is not None
    found = expression.on_after(after)
    again = expression.on_record(Record(after))
    assert repr(found) == repr(again)
    return found


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("after.x < 50", {"x": 12}, True),
        ("after.x < 50", {"x": "12"}, True),
        ("after.x < 50", {"x": 49.5}, True),
        ("after.x < 50", {"x": LARGE}, False),
        ("after.x < 50", {}, None),
        ("after.x < 50", None, None),
        ("after.x = 'a'", {"x": "a"}, True),
        ("after.x = 1.10", {"x": 1}, False),
        ("after.x = true", {"x": "yes"}, True),
        ("after.x <=> NULL", {}, True),
        ("after.x <=> 1", {}, False),
        ("after.x is not distinct from 1", {"x": 1}, True),
        ("after.x = 1 is null", {}, True),
        ("after.x != 1", {"x": 2}, True),
        ("after.x = after.y", {"x": math.nan, "y": math.nan}, True),
        ("after.x > 1e300", {"x": math.nan}, True),
        ("after.x >= after.y", {"x": math.nan, "y": math.inf}, True),
        ("after.x = after.y", {"x": -0.0, "y": 0.0}, True),
        ("after.x < after.y", {"x": -0.0, "y": 0.0}, False),
        ("after.x = after.y", {"x": 2**53 + 1, "y": float(2**53)}, True),  # as doubles, like Java
        ("after.x between 1 and 3", {"x": 3}, True),
        ("after.x not between 1 and 3", {"x": 3}, False),
        ("after.x in (1, 2)", {"x": 2}, True),
        ("after.x in (1, NULL)", {"x": 2}, None),
        ("after.x not in (1, 2)", {"x": 3}, True),
        ("after.x in ('1', 2)", {"x": 1}, True),
    ],
)
def test_comparison(text: str, after: Any, expected: Any) -> None:
    assert value(text, after) is expected


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_logic_has_three_values(a: bool | None, b: bool | None) -> None:
    payload = {"a": a, "b": b}
    both = False if a is False or b is False else None if a is None or b is None else True
    either = True if a is True or b is True else None if a is None or b is None else False
    assert value("after.a and after.b", payload) is both
    assert value("after.a or after.b", payload) is either
    assert value("not after.a", payload) is (None if a is None else not a)
    assert value("after.a is true", payload) is (a is True)


def test_the_right_side_is_not_computed_when_the_left_decides() -> None:
    assert value("after.x = 0 or 1 / after.x > 2", {"x": 0}) is True
    assert value("after.x <> 0 and 1 / after.x > 2", {"x": 0}) is False
    assert value("if(after.x = 0, 0, 1 / after.x)", {"x": 0}) == 0.0


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("after.x + 1", {"x": 1}, 2),
        ("after.x / 2", {"x": 1}, 0.5),
        ("after.x % 3", {"x": -5}, -2),
        ("5 % after.x", {"x": -3}, 2),
        ("after.x % 3", {"x": -5.5}, -2.5),
        ("-after.x", {"x": 5}, -5),
        ("-after.x", {"x": "5"}, -5.0),
        ("after.x + 1.5", {"x": 1}, Decimal("2.5")),
        ("after.x / 2.5", {"x": 1}, Decimal("0.400000")),
        ("1 / 3.0", None, Decimal("0.333333")),
        ("after.x + 1", {"x": LARGE}, Decimal(LARGE + 1)),
        ("after.x + 1", {"x": "41"}, 42),
        ("after.x * 2.5", {"x": "2"}, 5.0),
        ("after.x + 1", {"x": None}, None),
        ("round(after.x)", {"x": 2.5}, 3.0),
        ("round(after.x, 2)", {"x": 2.675}, 2.68),
        ("round(after.x, -1)", {"x": 125}, 130),
        ("floor(after.x)", {"x": -2.5}, -3),
        ("ceil(2.5)", None, Decimal("3")),
        ("abs(after.x)", {"x": "-5"}, 5.0),
        ("greatest(after.x, 2, NULL)", {"x": 1}, 2),
        ("least(after.x, 2e0)", {"x": math.nan}, 2.0),
        ("coalesce(after.x, after.y, 0)", {"y": 3}, 3),
        ("coalesce(after.x, 2.5)", {"x": 1}, Decimal("1.0")),
        ("nullif(after.x, 1)", {"x": 1}, None),
        ("case after.x when 1 then 'one' when 2 then 'two' else 'many' end", {"x": 2}, "two"),
        ("case when after.x > 1 then 'a' end", {"x": 1}, None),
        ("case when after.x then 1 else 2 end", {}, 2),
    ],
)
def test_numbers(text: str, after: Any, expected: Any) -> None:
    found = value(text, after)
    assert type(found) is type(expected)
    assert str(found) == str(expected)


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("cast(after.x as string)", {"x": 1e10}, "1.0E10"),
        ("cast(after.x as string)", {"x": 0.001}, "0.001"),
        ("cast(after.x as string)", {"x": 1e-5}, "1.0E-5"),
        ("cast(after.x as string)", {"x": 9999999.0}, "9999999.0"),
        ("cast(after.x as string)", {"x": -0.0}, "-0.0"),
        ("cast(after.x as string)", {"x": math.inf}, "Infinity"),
        ("cast(after.x as string)", {"x": True}, "true"),
        ("cast(1.10 as string)", None, "1.10"),
        ("cast(after.x as int)", {"x": " 12\t"}, 12),
        ("after.x::bigint", {"x": -1.9}, -1),
        ("cast(after.x as bigint)", {"x": 2.0**63}, 2**63 - 1),
        ("try_cast(after.x as int)", {"x": "abc"}, None),
        ("try_cast(after.x as int)", {"x": 2**31}, None),
        ("cast(after.x as double)", {"x": "1.5f"}, 1.5),
        ("cast(after.x as boolean)", {"x": " Yes "}, True),
        ("cast(after.x as boolean)", {"x": 0.0}, False),
        ("cast(after.x as decimal(3,1))", {"x": 1.25}, Decimal("1.3")),
        ("cast(after.x as decimal(3,1))", {"x": math.inf}, None),
        ("cast(after.x as decimal(5,1))", {"x": "1e2"}, Decimal("100.0")),
        ("cast(after.x as decimal(5,1))", {"x": "-0.0"}, Decimal("0.0")),
        ("cast(after.x as date)", {"x": "2020-2-3 anything"}, date(2020, 2, 3)),
        ("cast(after.x as date)", {"x": "2020"}, date(2020, 1, 1)),
        (
            "cast(after.x as timestamp)",
            {"x": "2020-02-03T01:02:03.5+02:00"},
            datetime(2020, 2, 2, 23, 2, 3, 500000, UTC),
        ),
        ("cast(cast(after.x as timestamp) as string)", {"x": "2020-02-03 1:2:3.50"}, "2020-02-03 01:02:03.5"),
        ("cast(after.x as timestamp)", {"x": 5}, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        ("to_date(after.x)", {"x": "2020-01-01"}, date(2020, 1, 1)),
        ("date_add(after.x, 31)", {"x": "2020-01-01"}, date(2020, 2, 1)),
        ("datediff(after.x, '2020-01-01')", {"x": "2020-01-05"}, 4),
        ("year(after.x) * 100 + month(after.x)", {"x": "2020-05-01"}, 202005),
        ("hour(after.x)", {"x": "2020-05-01 13:00:00"}, 13),
        ("after.x < date '2020-01-02'", {"x": "2020-01-01"}, True),
    ],
)
def test_casts_and_times(text: str, after: Any, expected: Any) -> None:
    assert repr(value(text, after)) == repr(expected)


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("lower(after.x)", {"x": "ABC"}, "abc"),
        ("lower(after.x)", {"x": 1e10}, "1.0e10"),
        ("trim(after.x)", {"x": "  a\t "}, "a\t"),
        ("length(after.x)", {"x": "ä😀"}, 2),
        ("substring(after.x, 2)", {"x": "hello"}, "ello"),
        ("substr(after.x, -3, 2)", {"x": "hello"}, "ll"),
        ("substring(after.x, -10, 7)", {"x": "hello"}, "he"),
        ("concat(after.x, 1, true)", {"x": "a"}, "a1true"),
        ("concat(after.x, after.y)", {"x": "a"}, None),
        ("after.x || '-' || after.x", {"x": "a"}, "a-a"),
        ("concat_ws(',', after.x, after.y, after.l)", {"x": "a", "l": ["b", None, "c"]}, "a,b,c"),
        ("replace(after.x, 'b', 'z')", {"x": "abcb"}, "azcz"),
        ("replace(after.x, '', 'z')", {"x": "abc"}, "abc"),
        ("split(after.x, ',')", {"x": "a,,b,"}, ["a", "", "b", ""]),
        ("split(after.x, '\\\\.')[1]", {"x": "a.b"}, "b"),
        ("lpad(after.x, 5, 'xy')", {"x": "abc"}, "xyabc"),
        ("rpad(after.x, 2)", {"x": "abc"}, "ab"),
        ("reverse(after.x)", {"x": "abc"}, "cba"),
        ("after.x like 'a\\\\_%'", {"x": "a_b"}, True),
        ("after.x like 'a\\\\_%'", {"x": "axb"}, False),
        ("after.x like 'a%'", {"x": "a\nb"}, True),
        ("after.x rlike '^a.c$'", {"x": "abc\n"}, True),
        ("after.x rlike 'a.c'", {"x": "a\rc"}, False),
        ("after.x rlike '\\\\d'", {"x": "٣"}, False),
        ("regexp_replace(after.x, '[0-9]+', '#')", {"x": "a12b3"}, "a#b#"),
        ("contains(after.x, 'b') and startswith(after.x, 'a') and endswith(after.x, 'c')", {"x": "abc"}, True),
        ("size(after.l)", {"l": [1, "a"]}, 2),
        ("element_at(after.l, -1)", {"l": [1, 2]}, 2),
        ("array_contains(after.l, 2)", {"l": [1, 2]}, True),
        ("array_contains(after.l, 3)", {"l": [1, None]}, None),
        ("after.items[0].name", {"items": [{"name": "n"}]}, "n"),
        ("after['any key'].x", {"any key": {"x": 1}}, 1),
        ("after.`odd name`", {"odd name": 1}, 1),
        ("after.a.b.c.d.e.f", {"a": {"b": {"c": {"d": {"e": {"f": 7}}}}}}, 7),
        ("after.timestamp", {"timestamp": "t"}, "t"),
        ("'it''s'", None, "it's"),
        ("after.x", {"x": {"y": [1]}}, {"y": [1]}),
    ],
)
def test_strings_and_lists(text: str, after: Any, expected: Any) -> None:
    assert value(text, after) == expected


@pytest.mark.parametrize(
    "text, after, why",
    [
        ("after.x < 50", {"x": "abc"}, "'abc' cannot be cast to bigint"),
        ("after.x + 1", {"x": 2**63 - 1}, "does not fit bigint"),
        ("length(after.x) + 2147483647", {"x": "a"}, "does not fit int"),
        ("-after.x", {"x": -(2**63)}, "does not fit bigint"),
        ("abs(after.x)", {"x": -(2**63)}, "does not fit bigint"),
        ("after.x / 0", {"x": 1}, "division by zero"),
        ("after.x / 0.0", {"x": 1.5}, "division by zero"),
        ("after.x % 0", {"x": 1}, "remainder by zero"),
        ("after.x = 1", {"x": True}, "= does not take boolean and int"),
        ("after.x + 1", {"x": True}, "does not take boolean"),
        ("after.x + after.x", {"x": "1"}, "does not take string and string"),
        ("after.x < 1", {"x": 10**38}, "more than 38 digits"),
        ("cast(after.x as int)", {"x": "1.5"}, "cannot be cast to int"),
        ("cast(after.x as int)", {"x": 1e10}, "cannot be cast to int"),
        ("cast(after.x as decimal(2,0))", {"x": 123}, "cannot be cast to decimal"),
        ("cast(after.x as date)", {"x": "2020-02-30"}, "cannot be cast to date"),
        ("after.x.y", {"x": "text"}, "after.x is a str"),
        ("after.x[0]", {"x": {"0": 1}}, "after.x is a dict"),
        ("after.x[2]", {"x": [1]}, "there is no [2]"),
        ("element_at(after.x, 0)", {"x": [1]}, "counts from 1"),
        ("greatest(after.x, 1)", {"x": "a"}, "greatest does not take"),
        ("coalesce(after.x, 1)", {"x": "a"}, "cannot be cast to bigint"),
        ("after.x < 1", b'{"x": 1}', "raw"),
    ],
)
def test_what_spark_raises_on_raises(text: str, after: Any, why: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        value(text, after)
    assert why in caught.value.what
    assert not isinstance(caught.value, Unmatched)


def test_an_error_names_the_field() -> None:
    with pytest.raises(EvaluationError) as caught:
        value("after.a.amount < 50", {"a": {"amount": "abc"}})
    assert caught.value.where == "after.a.amount"


@pytest.mark.parametrize(
    "text, after",
    [
        ("after.x = after.y", {"x": {"a": 1}, "y": {"a": 1}}),
        ("after.x.name", {"x": [{"name": 1}]}),
        ("element_at(after.x, 1)", {"x": [1, "a"]}),
        ("cast(after.x as string)", {"x": 1e20}),
        ("cast(after.x as string)", {"x": [1]}),
        ("cast(after.x as timestamp)", {"x": "12:30:00"}),
        ("cast(after.x as timestamp)", {"x": "2020-01-01 00:00:00 Europe/Berlin"}),
        ("try_cast(after.x as date)", {"x": "-0044-03-15"}),
        ("date_add(after.x, 1)", {"x": "9999-12-31"}),
        ("cast(after.x as date) + 1", {"x": "2020-01-01"}),
        ("to_timestamp(after.x)", {"x": 1.5}),
        ("upper(after.x)", {"x": "\u0264"}),
    ],
)
def test_what_could_differ_from_spark_raises_rather_than_answers(text: str, after: Any) -> None:
    with pytest.raises(Unmatched):
        value(text, after)


def test_an_element_behind_the_end_raises_only_where_it_is_reached() -> None:
    text = "if(size(after.l) > 1, after.l[1], after.l[0])"
    assert value(text, {"l": [7]}) == 7
    assert value(text, {"l": [7, 8]}) == 8


@pytest.mark.parametrize("after, expected", [({"x": 1}, True), ({"x": 3}, False), ({}, False), (None, False)])
def test_a_condition_is_a_bool_and_null_is_false(after: Any, expected: bool) -> None:
    condition = compile_condition("after.x in (1, 2)")
    assert condition.on_after is not None
    assert condition.on_after(after) is expected
    assert condition.on_record(Record(after)) is expected


def test_a_condition_that_is_no_boolean_raises() -> None:
    condition = compile_condition("after.x")
    assert condition.on_record(Record({"x": True})) is True
    others: list[Any] = [1, "true", 1.5, [], {}]
    for other in others:
        with pytest.raises(EvaluationError, match="has to be a boolean"):
            condition.on_record(Record({"x": other}))


def test_the_columns_of_a_record() -> None:
    record = Record(
        {"x": 1},
        before={"x": 0},
        key={"id": 5},
        position=b"p1",
        operation="update",
        namespace="orders",
        metadata={"k": "v", "odd key": "w"},
        timestamp=datetime(2020, 1, 1, 12, tzinfo=UTC),
        source="s",
        seq=9,
    )
    for text, expected in {
        "after.x > before.x": True,
        "key.id": 5,
        "metadata['odd key']": "w",
        "metadata.k": "v",
        "metadata['none']": None,
        "element_at(metadata, 'k')": "v",
        "size(metadata)": 2,
        "operation = 'update' and namespace = 'orders' and source = 's' and phase = 'sync'": True,
        "seq + part": 9,
        "position": b"p1",
        "length(position)": 2,
        "hour(timestamp)": 12,
        "timestamp < '2020-01-02'": True,
        "after is null": False,
        ".Payload.After.x + .Payload.Before.x": 1,
        ".Key.id": 5,
        ".Metadata.k": "v",
        ".operation = 'update' AND .Position is not null": True,
        "concat('.Payload.After.x', \".Key.id\")": ".Payload.After.x.Key.id",
    }.items():
        expression = compile_expression(text)
        assert expression.on_record(record) == expected, text
        if not expression.columns <= {"after"}:
            assert expression.on_after is None


def test_records_of_different_types_do_not_disturb_each_other() -> None:
    expression = compile_expression("after.x + 1")
    assert expression.on_after is not None
    mixed: list[Any] = [1, 1.5, "1", LARGE, None, 2, 2.5, "2", LARGE + 1, None]
    found = [expression.on_after({"x": x}) for x in mixed]
    assert found == [2, 2.5, 2, Decimal(LARGE + 1), None, 3, 3.5, 3, Decimal(LARGE + 2), None]
    assert type(found[3]) is Decimal


def test_an_expression_is_pickled_as_its_text() -> None:
    for compiled in (compile_expression("after.x + 1"), compile_condition("after.x > 1")):
        again = pickle.loads(pickle.dumps(compiled))
        assert (again.text, again.columns, again.condition) == (compiled.text, compiled.columns, compiled.condition)
        assert again.on_after({"x": 5}) == compiled.on_after({"x": 5})  # type: ignore[misc]


def test_a_long_chain_is_not_deep() -> None:
    text = " or ".join(f"after.x = {n}" for n in range(500))
    assert value(text, {"x": 499}) is True
