"""pick, omit, rename, skip, opfilter, sample, expect and the select list of sql, without Spark."""

from __future__ import annotations

import copy
import hashlib
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.native import DROP, Example, Processor, Record, Reject, Rejected, Shape, Unsuitable, Where
from penstock.plan.fields import parse_paths, parse_renames, shown, tree
from penstock.plan.sql import ExpressionError, columns_of, compile_condition, compile_expression, fields_of
from penstock.plan.sql.select import parse_select
from penstock.plan.sql.spark import spark_text
from penstock.plugins import builtin

NAMES = ("pick", "omit", "rename", "skip", "opfilter", "sample", "expect", "sql")


def made(plugin: str, **settings: Any) -> Processor[Any]:
    cls = builtin.settings_class("processor", plugin)
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    p: Processor[Any] = builtin.implementation("processor", plugin)(cls.model_validate(given, by_alias=True), "p")
    return p


def result(p: Processor[Any], r: Record) -> Any:
    """The payload behind it, DROP, or the code of a nack."""
    try:
        got = p.apply(r)
    except Rejected as e:
        return e.code
    return got.code if isinstance(got, Reject) else got.after if isinstance(got, Record) else got


def both(p: Processor[Any], payload: Any) -> Any:
    """The same on both ways, also behind a pickle, and what was given is not changed."""
    given = copy.deepcopy(payload)
    slow = result(p, Record(payload))
    assert payload == given or payload != payload
    op = pickle.loads(pickle.dumps(p)).on_payload()
    assert op is not None
    try:
        fast = op(payload)
    except Rejected as e:
        fast = e.code
    assert (fast, type(fast)) == (slow, type(slow))
    assert result(pickle.loads(pickle.dumps(p)), Record(copy.deepcopy(given))) == slow
    return slow


def refused(plugin: str, **settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        made(plugin, **settings)
    [error] = caught.value.errors()
    return str(error["msg"]).removeprefix("Value error, ")


# -- for all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_page_is_what_happens(name: str) -> None:
    example = builtin.implementation("processor", name).example
    assert isinstance(example, Example)
    p = made(name, **example.settings)
    given = {key: copy.deepcopy(value) for key, value in example.given.items()}
    got = p.apply(Record(given.pop("after"), source="in", **given))
    if example.rejects:
        assert isinstance(got, Reject)
        assert got.reason == example.rejects
    elif example.gives is None:
        assert got is DROP
    else:
        assert isinstance(got, Record)
        assert isinstance(example.gives, dict)
        assert got.after == example.gives["after"]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_described(name: str) -> None:
    fields = builtin.settings_class("processor", name).model_fields
    assert fields
    assert all(f.description for f in fields.values())


@pytest.mark.parametrize(
    "name, settings",
    [
        ("pick", {"fields": "a"}),
        ("omit", {"fields": "a"}),
        ("rename", {"fields": "a:b"}),
        ("skip", {"field": "a", "operator": "==", "match": "1"}),
        ("expect", {"rule": "after.a = 1"}),
        ("sql", {"select": "after.a AS a"}),
        ("sql", {"select": "after.*, 1 AS x"}),
    ],
)
def test_raw_payloads_have_no_fields_yet(name: str, settings: dict[str, str]) -> None:
    with pytest.raises(Unsuitable, match="raw"):
        made(name, **settings).where(Shape.RAW)
    assert made(name, **settings).where(Shape.TYPED) is Where.SPARK
    assert made(name, **settings).where(Shape.OPEN) is Where.PYTHON


@pytest.mark.parametrize(
    "name, settings",
    [("pick", {"fields": "a"}), ("omit", {"fields": "a.b"}), ("rename", {"fields": "a:b"}),
     ("skip", {"field": "a", "operator": "==", "match": "1"}), ("sql", {"select": "after.*"})],
)  # fmt: skip
def test_what_is_no_object_is_a_nack_and_no_payload_stays_none(name: str, settings: dict[str, str]) -> None:
    p = made(name, **settings)
    assert both(p, b"raw") == "processor.not-an-object"
    assert both(p, None) is (DROP if name == "skip" else None)


# -- lists of fields -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, paths",
    [
        ("a", [("a",)]),
        (" a , b.c,\n d ", [("a",), ("b", "c"), ("d",)]),
        ("`odd.name`.x, `a``b`, ` `", [("odd.name", "x"), ("a`b",), (" ",)]),
        ("two words . ключ, .Payload.After.x.y", [("two words", "ключ"), ("x", "y")]),
        ("after.x", [("after", "x")]),
        ("`a,b`.`c:d`", [("a,b", "c:d")]),
    ],
)
def test_paths(text: str, paths: list[tuple[str, ...]]) -> None:
    assert list(parse_paths(text)) == paths
    assert list(parse_paths(", ".join(map(shown, paths)))) == paths


@pytest.mark.parametrize(
    "text", ["", " ", ",", "a,", ",a", "a..b", ".a", "a.", "`a", "``", "a`b", "a:b", "`a`b", "a b."]
)
def test_what_is_no_list_of_fields(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must"):
        parse_paths(text)


@pytest.mark.parametrize("text", ["a, a", "a, a.b", "a.b, a", "a.b.c, a.b", "a.b, a.b"])
def test_fields_that_hold_each_other(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must"):
        tree(parse_paths(text))
    assert refused("pick", fields=text).startswith("must")
    assert refused("omit", fields=text).startswith("must")


def test_renames() -> None:
    assert parse_renames("a:b, c.d : e f,`x:y`:`z.z`") == ((("a",), "b"), (("c", "d"), "e f"), (("x:y",), "z.z"))
    for text in ("a", "a:", ":b", "a:b.c", "a:b:c", "a:b,", "a:a", "a:c, b:c", "a:b, a:c", "x.a:c, x.b:c"):
        assert refused("rename", fields=text).startswith("must")


# -- pick, omit, rename --------------------------------------------------------------------------------------------------

PAYLOAD = {"a": 1, "b": {"c": None, "d": [1, {"e": 2}], "f": {"g": 1.5}}, "odd.name": "x", "l": [{"c": 1}], "n": None}


@pytest.mark.parametrize(
    "fields, left",
    [
        ("a", {"a": 1}),
        ("n, a, gone", {"n": None, "a": 1}),
        ("b.c", {"b": {"c": None}}),
        ("b.f.g, b.d", {"b": {"f": {"g": 1.5}, "d": [1, {"e": 2}]}}),
        ("b.gone, n.x, gone.x", {"b": {}, "n": None}),
        ("a.x, l.c", {}),
        ("`odd.name`", {"odd.name": "x"}),
        ("odd.name", {}),
    ],
)
def test_pick(fields: str, left: dict[str, Any]) -> None:
    assert both(made("pick", fields=fields), copy.deepcopy(PAYLOAD)) == left


@pytest.mark.parametrize(
    "fields, left",
    [
        ("b, l, n, gone", {"a": 1, "odd.name": "x"}),
        ("a, b.d, b.f.g, l, n, `odd.name`", {"b": {"c": None, "f": {}}}),
        ("a.x, l.c, n.x, gone.x, odd.name", PAYLOAD),
    ],
)
def test_omit(fields: str, left: dict[str, Any]) -> None:
    assert both(made("omit", fields=fields), copy.deepcopy(PAYLOAD)) == left


@pytest.mark.parametrize(
    "fields, payload, left",
    [
        ("a:b", {"a": 1, "c": 2}, {"b": 1, "c": 2}),
        ("a:b, b:a", {"a": 1, "b": 2}, {"b": 1, "a": 2}),
        ("a:b, b:c", {"a": 1, "b": 2}, {"b": 1, "c": 2}),
        ("a:b", {"b": 1}, {"b": 1}),
        ("a:b", {"a": None}, {"b": None}),
        ("a:b, a.x:y", {"a": {"x": 1, "z": 2}}, {"b": {"y": 1, "z": 2}}),
        ("a.x:y", {"a": 1, "x": 2}, {"a": 1, "x": 2}),
        ("a.x:y", {"a": None}, {"a": None}),
        ("a.b.c:`d.e`", {"a": {"b": {"c": 1}}}, {"a": {"b": {"d.e": 1}}}),
        ("a:b", {"a": 1, "b": None}, "rename.exists"),
        ("x.a:b", {"x": {"b": 1, "a": 2}}, "rename.exists"),
    ],
)
def test_rename(fields: str, payload: dict[str, Any], left: Any) -> None:
    assert both(made("rename", fields=fields), payload) == left


def test_sources_are_asked_for_no_more_than_is_looked_at() -> None:
    assert made("pick", fields="a, b.c").fields() == frozenset({"a", "b"})
    assert made("pick", fields="a, b.c").replaces()
    assert made("omit", fields="a, b.c").fields() == frozenset({"a", "b"})
    assert not made("omit", fields="a").replaces()
    assert made("rename", fields="a:x, b.c:y").fields() == frozenset({"a", "b", "x"})
    assert made("skip", field="a.b", operator="=", match="1").fields() == frozenset({"a"})
    assert made("sql", select="after.a + after.b AS x, operation").fields() == frozenset({"a", "b"})
    assert made("sql", select="after AS x").fields() is None
    assert made("sql", select="after.a").replaces()
    assert not made("sql", select="after.*, after.a AS b").replaces()
    assert made("expect", rule="after.a > 1 and operation = 'create'").fields() == frozenset({"a"})


# -- skip ----------------------------------------------------------------------------------------------------------------


def keeps(value: Any, operator: str, match: str) -> Any:
    got = both(made("skip", field="x.v", operator=operator, match=match), {"x": {"v": value}})
    return got if isinstance(got, str) else got is not DROP


@pytest.mark.parametrize("operator, answers", [
    ("==", "010"), ("eq", "010"), ("=", "010"), ("!=", "101"), ("ne", "101"), ("<", "100"), ("lt", "100"), ("<=", "110"),
    ("le", "110"), (">", "001"), ("gt", "001"), (">=", "011"), ("ge", "011"), ("GTE", "011"), ("$ne", "101"),
])  # fmt: skip
@pytest.mark.parametrize("values, match", [
    ((1, 2, 3), "2"), ((1, 2, 3), " 2.0 "), ((1.5, 2.5, 1e300), "2.5"), ((Decimal("0.09"), Decimal("0.10"), 1), "1e-1"),
    ((2**70 - 1, 2**70, 2**70 + 1), str(2**70)), (("a", "b", "bb"), "b"), (("A", "é", "😀"), "é"), (("1", "10", "9"), "10"),
    ((date(2024, 1, 30), date(2024, 1, 31), date(2024, 2, 1)), "2024-01-31"), ((b"a", b"b", b"c"), "b"),
    ((datetime(2024, 1, 1, 11, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 12, 0, 0, 1)),
     "2024-01-01 12:00:00"),
])  # fmt: skip
def test_skip_compares_by_what_the_field_is(operator: str, answers: str, values: tuple[Any, ...], match: str) -> None:
    assert [keeps(v, operator, match) for v in values] == [a == "1" for a in answers]


def test_skip_with_booleans_patterns_and_nothing() -> None:
    assert [keeps(v, "==", "True") for v in (True, False)] == [True, False]
    assert [keeps(v, "!=", "true") for v in (True, False)] == [False, True]
    assert [keeps(v, "=~", "^a.c$") for v in ("abc", "xabc", "a\nc")] == [True, False, False]
    assert keeps("xxabcxx", "=~", "b") is True
    for operator in ("==", "<", "<=", ">", ">=", "=~"):
        assert keeps(None, operator, "1") is False
    assert keeps(None, "!=", "1") is True
    for payload in ({}, {"x": 1}, {"x": [1]}, None):
        assert both(made("skip", field="x.v", operator="!=", match="1"), payload) == payload
        assert both(made("skip", field="x.v", operator="<", match="1"), payload) is DROP
    nan = float("nan")
    assert [keeps(5.0, op, "5") for op in ("<", ">", "!=")] == [False, False, False]
    skip = [made("skip", field="v", operator=op, match="5") for op in ("<", ">", "!=", "==", ">=")]
    assert [p.apply(Record({"v": nan})) is not DROP for p in skip] == [False, True, True, False, True]


@pytest.mark.parametrize(
    "value, operator, match",
    [
        (1, "==", "x"), (1.5, "<", ""), (1, "==", "true"), (1, "==", "NaN"), (1, "==", "1_0"), (True, "==", "1"),
        (True, "<", "true"), (1, "=~", "1"), (True, "=~", "true"), ([1], "==", "1"), ({"a": 1}, "!=", "1"), (b"\xff", "==", "x"),
    ],
)  # fmt: skip
def test_a_comparison_that_makes_no_sense_is_a_nack(value: Any, operator: str, match: str) -> None:
    assert keeps(value, operator, match) == "skip.compare"


def test_what_skip_refuses() -> None:
    assert refused("skip", field="a, b", operator="==", match="1").startswith("must")
    assert refused("skip", field="a", operator="~", match="1").startswith("must be one of")
    with pytest.raises(Unsuitable, match="Java"):
        made("skip", field="a", operator="=~", match="(?<=a)b").where(Shape.OPEN)
    assert made("skip", field="a", operator="=~", match="(?<=a)b").where(Shape.TYPED) is Where.SPARK


# -- opfilter and sample -------------------------------------------------------------------------------------------------

OPERATIONS = ("create", "update", "delete", "snapshot")


@pytest.mark.parametrize(
    "settings, passing",
    [
        ({"whitelist": "insert, Update"}, {"create", "update"}),
        ({"blacklist": "delete"}, {"create", "update", "snapshot"}),
        ({"whitelist": "snapshot"}, {"snapshot"}),
        ({"blacklist": "create,update,delete,snapshot"}, set()),
    ],
)
def test_opfilter(settings: dict[str, str], passing: set[str]) -> None:
    p = made("opfilter", **settings)
    assert {op for op in OPERATIONS if p.apply(Record(b"x", operation=op)) is not DROP} == passing
    assert [p.where(s) for s in Shape] == [Where.SPARK, Where.SPARK, Where.PYTHON]
    assert p.uses == {"operation"}


def test_opfilter_takes_one_list_of_known_words() -> None:
    for settings in ({}, {"whitelist": "create", "blacklist": "delete"}, {"whitelist": ""}, {"blacklist": "drop"}):
        assert refused("opfilter", **settings).startswith("must")


def test_a_sample_is_the_same_every_time() -> None:
    def kept(rate: float, seed: str = "") -> set[int]:
        p = made("sample", rate=str(rate), seed=seed)
        return {i for i in range(20_000) if p.apply(Record(b"", source="in", seq=i)) is not DROP}

    assert kept(0.1) == kept(0.1) != kept(0.1, "b")
    assert kept(0.1) < kept(0.3) < kept(1) == set(range(20_000))
    assert 0.09 < len(kept(0.1)) / 20_000 < 0.11
    assert kept(0.25, "ü") == {
        i for i in range(20_000) if int(hashlib.md5(f"ü:in:{i}:0".encode()).hexdigest()[:8], 16) < 2**30
    }
    for rate in ("0", "1.1", "nan", "-1", "x"):
        assert refused("sample", rate=rate)


# -- expect --------------------------------------------------------------------------------------------------------------


def test_expect() -> None:
    p = made("expect", rule="after.a >= 0")
    assert both(p, {"a": 0}) == {"a": 0}
    for failing in ({"a": -1}, {"a": None}, {}):
        assert both(p, failing) == "expect.failed"
        assert both(made("expect", rule="after.a >= 0", on_fail="stop"), failing) == "expect.stop"
    assert both(p, {"a": "x"}) == "sql.value"
    got = p.apply(Record({"a": -1}))
    assert isinstance(got, Reject)
    assert got.reason == "the rule does not hold"
    got = made("expect", rule="operation = 'create'", message="no").apply(Record({}, operation="delete"))
    assert isinstance(got, Reject)
    assert got.reason == "no"


def test_expect_that_warns_lets_records_go_on_and_counts() -> None:
    p = made("expect", rule="after.a >= 0", on_fail="warn")
    r = Record({"a": -1})
    assert p.apply(r) is r
    assert p.warned == 1
    op = p.on_payload()
    assert op is not None
    assert op({"a": None}) == {"a": None}
    assert op({"a": 5}) == {"a": 5}
    assert p.warned == 2
    with pytest.raises(Rejected):
        op({"a": "x"})
    assert p.code == ""


def test_what_expect_refuses() -> None:
    for rule in ("", "a +", "now() > timestamp", "count(*) > 1", "select 1"):
        assert refused("expect", rule=rule)
    assert refused("expect", rule="1 = 1", on_fail="drop")
    with pytest.raises(Unsuitable, match="rule"):
        made("expect", rule="sha2(after.a, 256) = 'x'").where(Shape.OPEN)
    assert made("expect", rule="sha2(after.a, 256) = 'x'").where(Shape.TYPED) is Where.SPARK
    assert made("expect", rule="length(after) > 3").where(Shape.RAW) is Where.SPARK


# -- sql -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, items, star",
    [
        ("after.id", [("id", "after.id")], False),
        ("after.*, after.a+1 AS b", [("b", "after.a+1")], True),
        ("AFTER.*", [], True),
        (".Payload.After.*, .Payload.After.x as y", [("y", ".Payload.After.x")], True),
        ("cast(after.a AS int) AS a, if(after.b, 1, 2) AS `b, c`",
         [("a", "cast(after.a AS int)"), ("b, c", "if(after.b, 1, 2)")], False),
        ("'a, b' AS x, after.`q.r`", [("x", "'a, b'"), ("q.r", "after.`q.r`")], False),
        ("array(1, 2)[0] AS x, operation", [("x", "array(1, 2)[0]"), ("operation", "operation")], False),
        ("case when after.a = 1 then 'x' end AS case_, extract(year from timestamp) AS year",
         [("case_", "case when after.a = 1 then 'x' end"), ("year", "extract(year from timestamp)")], False),
        ("after.a /* AS no, */ AS yes", [("yes", "after.a /* AS no, */")], False),
        ("after.order, after.from AS `select`, after.x AS limit",
         [("order", "after.order"), ("select", "after.from"), ("limit", "after.x")], False),
    ],
)  # fmt: skip
def test_select_lists(text: str, items: list[tuple[str, str]], star: bool) -> None:
    found = parse_select(text)
    assert [(i.name, i.text) for i in found.items] == items
    assert found.star is star


@pytest.mark.parametrize(
    "text, what",
    [
        ("select after.a", "not a query"), ("after.a AS a FROM t", "not a query"), ("after.a from t", "not a query"),
        ("after.a AS a WHERE after.a > 1", "not a query"), ("(select 1) AS a", "not a query"),
        ("sum(after.a) AS a", "not a query"), ("row_number() over (order by after.a) AS n", "not a query"),
        ("explode(after.l) AS x", "not a query"), ("max(after.a, after.b) AS a", "greatest"),
        ("after.a + 1", "no name"), ("1", "no name"), ("upper(after.a)", "no name"), ("null", "no name"),
        ("after.a AS", "one name"), ("after.a AS 'x'", "one name"), ("after.a AS (x, y)", "one name"), ("after.a AS a b", "one name"),
        ("after.a x", ""), ("after.a,, after.b", "empty"), ("after.a,", "empty"), ("", ""), ("after.a, after.*", "first"),
        ("*", "after.*"), ("before.*", "after.*"), ("after.a, after.b AS a", "two items"), ("after.*, after.*", "first"),
        ("now() AS t", "not the same"), ("uuid() AS t", "not the same"), ("after.a + AS x", "does not parse"), ("after.a; after.b", ""),
    ],
)  # fmt: skip
def test_what_is_no_select_list(text: str, what: str) -> None:
    message = refused("sql", select=text)
    assert what in message
    assert message.startswith("must") or not text


@pytest.mark.parametrize(
    "select, payload, left",
    [
        ("after.id AS id, upper(after.n) AS n, after.p * after.a AS t",
         {"id": 1, "n": "x", "p": 2, "a": 3}, {"id": 1, "n": "X", "t": 6}),
        ("after.*, after.a + 1 AS a, after.b AS c", {"a": 1, "b": [2]}, {"a": 2, "b": [2], "c": [2]}),
        ("after.*", {"a": 1}, {"a": 1}),
        ("after.b AS a, after.a AS b", {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ("after.a AS a", {}, {"a": None}),
        ("after.a AS a", None, {"a": None}),
        ("after.*, 1 AS x", None, None),
        ("1 AS x", None, {"x": 1}),
        ("after.a / 0 AS x", {"a": 1}, "sql.value"),
    ],
)  # fmt: skip
def test_select(select: str, payload: Any, left: Any) -> None:
    assert both(made("sql", select=select), payload) == left


def test_select_over_the_whole_record() -> None:
    p = made("sql", select="after.*, operation AS op, metadata['k'] AS k, metadata['opencdc.collection'] AS c")
    assert p.uses == {"after", "operation", "metadata", "namespace"}
    assert p.on_payload() is None
    r = Record({"a": 1}, operation="update", metadata={"k": "v"}, namespace="shop")
    assert result(p, r) == {"a": 1, "op": "update", "k": "v", "c": "shop"}


def test_the_shape_behind_sql() -> None:
    p = made("sql", select="split(after, ',')[0] AS a")
    assert [p.where(s) for s in (Shape.RAW, Shape.TYPED)] == [Where.SPARK, Where.SPARK]
    assert [p.gives(s) for s in (Shape.RAW, Shape.TYPED, Shape.OPEN)] == [Shape.TYPED, Shape.TYPED, Shape.OPEN]
    one = made("sql", expression="after.a", field=".Payload.After.b")
    assert [one.gives(s) for s in (Shape.TYPED, Shape.OPEN)] == [Shape.TYPED, Shape.OPEN]
    assert one.fields() == frozenset({"a"})
    assert made("sql", expression="'x'", field='.Metadata["opencdc.collection"]').uses == {"metadata", "namespace"}


def test_sql_goes_one_way() -> None:
    for settings in (
        {},
        {"expression": "1"},
        {"field": "after.x"},
        {"select": "1 AS x", "field": "after.x"},
        {"select": "1 AS x", "expression": "1", "field": "after.x"},
    ):
        assert refused("sql", **settings) == "must have either `expression` and `field`, or `select`"
    assert "not a query" in refused("sql", expression="sum(after.a)", field="after.x")
    with pytest.raises(Unsuitable, match="sha2"):
        made("sql", select="sha2(after.a, 256) AS x").where(Shape.OPEN)


# -- what no expression may hold -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "now()", "NOW ( )", "current_timestamp", "current_timestamp()", "current_date + 1", "localtimestamp", "curdate()",
        "rand()", "rand(5)", "randn()", "uuid()", "shuffle(after.l)", "input_file_name()", "monotonically_increasing_id()",
        "spark_partition_id()", "current_user()", "current_user", "unix_timestamp()", "`now`()", "builtin.now()", "timestamp 'now'",
        "DATE 'Today'", "timestamp ' now UTC'", "transform(after.l, x -> x + rand())", "reflect('java.util.UUID', 'randomUUID')",
        "aes_encrypt(after.a, 'k')", "case when now() > timestamp then 1 end", "uniform(0, 1)",
    ],
)  # fmt: skip
def test_what_differs_from_attempt_to_attempt_is_refused_everywhere(text: str) -> None:
    for read in (columns_of, lambda t: fields_of(t, "after"), compile_expression, compile_condition):
        with pytest.raises(ExpressionError) as caught:
            read(text)
    with pytest.raises(ExpressionError, match="not the same when a batch is run again") as caught:
        columns_of(text)
    assert caught.value.hint
    assert caught.value.column is not None


@pytest.mark.parametrize(
    "text",
    [
        "after.now = 1", "'now()' = after.a", "after.`current_date` = 1", "after.current_date.x = 1", "unix_timestamp(after.a)",
        "timestamp > '2020'", "date '2020-01-01' < timestamp", "after.rand", "aes_encrypt(after.a, 'k', 'GCM', 'NONE', 'iv')",
        "after.a like any ('x', 'y')", "after.max = 1", "aggregate(after.l, 0, (a, b) -> a + b)", "after.`select` = 1",
        "array_max(after.l)", "after.count + after.sum", "after.user = 'x'", "after.a /* now() */ = 1", "after.where",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert columns_of(text) >= set()


@pytest.mark.parametrize(
    "text, spark",
    [
        ("metadata['opencdc.collection'] = 'x'", "namespace = 'x'"),
        ('.Metadata[ "opencdc.collection" ] = .Payload.After.x', "namespace = after.x"),
        ("metadata.`opencdc.collection`", "namespace"),
        ("metadata['Opencdc.collection']", "metadata['Opencdc.collection']"),
        ("after.metadata['opencdc.collection']", "after.metadata['opencdc.collection']"),
        ("after. metadata['opencdc.collection']", "after. metadata['opencdc.collection']"),
        ("\"metadata['opencdc.collection']\"", "\"metadata['opencdc.collection']\""),
    ],
)
def test_the_collection_is_the_namespace(text: str, spark: str) -> None:
    assert spark_text(text) == spark
    assert ("namespace" in columns_of(text)) is spark.startswith("namespace")


def test_the_collection_in_python_and_where_it_is_refused() -> None:
    assert compile_condition("metadata['opencdc.collection'] = 'x'").columns == {"namespace"}
    for name in ("element_at", "try_element_at", "map_contains_key"):
        with pytest.raises(ExpressionError) as caught:
            columns_of(f"{name}(metadata, 'opencdc.collection')")
        assert "namespace" in caught.value.hint
