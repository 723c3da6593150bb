"""What compiling an expression refuses, with the place and a way out; and which columns an expression names."""

from __future__ import annotations

import pytest

from penstock.plan.sql import ExpressionError, columns_of, compile_condition, compile_expression

SCHEMA = "json.decode with `schema`"


@pytest.mark.parametrize(
    "text, what, hint, column",
    [
        ("after.x + sha2(after.y, 256)", "the function sha2", SCHEMA, 11),
        ("transform(after.l, x -> x + 1)", "TRANSFORM", SCHEMA, None),
        ("get_json_object(after.x, '$.a')", "the function get_json_object", SCHEMA, 1),
        ("count(*)", "the function count", SCHEMA, 1),
        ("sum(after.x) over ()", "WINDOW", SCHEMA, 1),
        ("after.x in (select 1)", "", SCHEMA, None),
        ("(select 1)", "", "", None),
        ("after.x div 2", "INTDIV", SCHEMA, 1),
        ("after.x & 1", "BITWISEAND", SCHEMA, 1),
        ("after.x ilike 'a'", "ILIKE", SCHEMA, 1),
        ("after.x like 'a' escape '/'", "ESCAPE", SCHEMA, 1),
        ("interval 1 day", "INTERVAL", SCHEMA, None),
        ("now() > timestamp", "now()", "`timestamp`", 1),
        ("current_timestamp()", "current_timestamp", "`timestamp`", 1),
        ("current_date", "current_date", "`timestamp`", 1),
        ("rand() < 0.5", "rand()", "`timestamp`", 1),
        ("uuid()", "uuid()", "", 1),
        ("afer.x = 1", "no column 'afer'", "did you mean `after`?", 1),
        ("After.x = 1", "no column 'After'", "did you mean `after`?", 1),
        ("1 = amount", "no column 'amount'", "`after.amount`", 5),
        ("batch_time", "no column 'batch_time'", "the columns are source", 1),
        ("operation.x", "operation has no fields", "", 1),
        ("metadata.a.b", "metadata maps", "", 1),
        ("cast(after.x as float)", "a cast to float", "decimal(p,s)", None),
        ("cast(after.x as array<int>)", "a cast to array", "decimal(p,s)", None),
        ("cast(after.x as decimal(39,0))", "decimal(39,0)", "", None),
        ("after.x = after.y < 3", "one condition inside another", "brackets", None),
        ("after.x is null = true", "one condition inside another", "brackets", None),
        ("after.x in (1) is null", "one condition inside another", "brackets", None),
        ("after.x not in (1) is null", "one condition inside another", "brackets", None),
        ("after.x || after.y + 1", "beside arithmetic", "brackets", None),
        ("+after.x", "a plus sign", "leave it out", 1),
        ("after.x + 1L", "a type suffix", "cast(1 as bigint)", 11),
        ("'a' 'b'", "two strings", "concat", 5),
        ("r'a'", "a raw string", "", 1),
        ("after.x rlike '\\d'", "the escape", "twice", 16),
        ("after.x rlike after.y", "has to be a string literal", SCHEMA, None),
        ("after.x rlike '(?<=a)b'", "may mean something else in Java", SCHEMA, None),
        ("after.x rlike '\\\\bword\\\\b'", "may mean something else in Java", SCHEMA, None),
        ("after.x rlike '[a&&b]'", "may mean something else in Java", SCHEMA, None),
        ("after.x rlike 'a++'", "may mean something else in Java", SCHEMA, None),
        ("regexp_replace(after.x, '(a)', '$1')", "without $", SCHEMA, 1),
        ("split(after.x, 'a*')", "matches the empty string", SCHEMA, 1),
        ("after.x like 'a\\\\b'", "escapes neither", "", None),
        ("round(after.x, after.y)", "integer literal", SCHEMA, 1),
        ("lower(after.x, 2)", "lower takes 1 arguments", SCHEMA, 1),
        ("to_date(after.x, 'yyyy')", "to_date takes 1", SCHEMA, 1),
        ("1e400", "too large", "", 1),
        ("12345678901234567890123456789012345678901", "more than 38 digits", "", 1),
        ("after.x + 1 / 0", "always fails: division by zero", "", None),
        ("if(true, 1, cast('a' as int))", "always fails", "", None),
        ("after.x[1.5]", "an index is", "", None),
        ("after[after.x]", "a computed key", "", None),
        ("after.*", "", "", None),
        ("-(" * 60 + "after.x" + ")" * 60, "nested", "split it", None),
    ],
)  # fmt: skip
def test_outside_the_subset(text: str, what: str, hint: str, column: int | None) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert what in caught.value.what
    assert hint in caught.value.hint
    if column is not None:
        assert caught.value.column == column


@pytest.mark.parametrize(
    "text, column",
    [
        ("", 1),
        ("after.x +", None),
        ("after.x = = 1", None),
        ("(after.x", None),
        ("after.x 1", None),
        ("'open", None),
        ("a; b", None),
    ],
)
def test_what_does_not_parse(text: str, column: int | None) -> None:
    for compiled in (compile_expression, compile_condition, columns_of):
        with pytest.raises(ExpressionError) as caught:
            compiled(text)
        if column is not None:
            assert caught.value.column == column


def test_a_parse_error_points_at_the_text_as_it_was_written() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(".Payload.After.x = 1 )")
    assert caught.value.column == 22
    with pytest.raises(ExpressionError) as caught:
        compile_expression(".Payload.After.x = sha1(1)")
    assert caught.value.column == 20
    assert "(column 20)" in str(caught.value)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("after.x > 1", {"after"}),
        (".Payload.After.x = .Key.id", {"after", "key"}),
        ("metadata['k'] = 'after.x'", {"metadata"}),
        ("sha2(before.x, 256) = operation", {"before", "operation"}),
        ("transform(after.l, source -> source + seq)", {"after", "seq"}),
        ("exists(after.l, x -> x.key > 1)", {"after"}),
        ("aggregate(after.l, 0, (acc, key) -> acc + key.z)", {"after"}),
        ("batch_time > timestamp", {"timestamp"}),
        ("after.a.b.c.d.e.f", {"after"}),
        ("after.items[part].key", {"after", "part"}),
        ("`after`.`key`", {"after"}),
        ("year(timestamp) = 2020 and position is not null", {"timestamp", "position"}),
        ("1", set()),
        ("named_struct('a', phase, 'b', namespace)", {"phase", "namespace"}),
    ],
)
def test_columns_of(text: str, expected: set[str]) -> None:
    assert columns_of(text) == expected


def test_an_expression_knows_its_columns() -> None:
    assert compile_expression("after.x + key.y").columns == {"after", "key"}
    assert compile_expression("1 + 1").columns == frozenset()
