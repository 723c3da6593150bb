"""A declared schema: what is read as one, what is refused, and for every type which values are kept and which are not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.plan.schema import Schema, SchemaError
from penstock.plan.typed import TypedDecoder
from penstock_sdk.errors import Rejected

inf = float("inf")


def short(value: Any) -> str:
    return "huge" if isinstance(value, int) and abs(value) > 2**70 else ascii(value)[:40]


def decoder(ddl: str) -> TypedDecoder:
    return TypedDecoder(Schema.parse(ddl))


def both(ddl: str, text: str | bytes) -> Any:
    """One payload through the fast way and the slow way, as the column and as a dict: all have to agree."""
    d = decoder(ddl)
    raw = text.encode() if isinstance(text, str) else text
    made = d.from_json(raw)
    d._quick = None
    slow = d.from_json(raw)
    assert d.column([made]).equals(d.column([slow]))
    column = d.column([made])
    assert column.type == d.schema.arrow()
    column.validate(full=True)
    plain = d.to_dict(made)
    assert plain == d.to_dict(slow)
    (found,) = column.to_pylist(maps_as_pydicts="strict")
    assert found == plain
    return found


def why(ddl: str, text: str | bytes) -> Rejected:
    d = decoder(ddl)
    raw = text.encode() if isinstance(text, str) else text
    with pytest.raises(Rejected) as caught:
        d.from_json(raw)
    return caught.value


# --- schemas ---


@pytest.mark.parametrize(
    "ddl, canonical",
    [
        ("id string", "`id` STRING"),
        ("n BIGINT NOT NULL", "`n` BIGINT NOT NULL"),
        ("n LONG, s SHORT, b BYTE, i INTEGER, r REAL", "`n` BIGINT, `s` SMALLINT, `b` TINYINT, `i` INT, `r` FLOAT"),
        ("d DECIMAL, e DECIMAL(5), f NUMERIC(5,2)", "`d` DECIMAL(10,0), `e` DECIMAL(5,0), `f` DECIMAL(5,2)"),
        (
            "t TIMESTAMP, l TIMESTAMP_LTZ, n TIMESTAMP_NTZ",
            "`t` TIMESTAMP, `l` TIMESTAMP, `n` TIMESTAMP_NTZ",
        ),
        (
            "t STRUCT<a: INT, b: ARRAY<DECIMAL(38,2)>>, m MAP<STRING, DOUBLE>",
            "`t` STRUCT<`a`: INT, `b`: ARRAY<DECIMAL(38,2)>>, `m` MAP<STRING, DOUBLE>",
        ),
        ("t STRUCT<a: INT NOT NULL>", "`t` STRUCT<`a`: INT NOT NULL>"),
        ("`a b` INT, `a``b` INT, `a,b` INT", "`a b` INT, `a``b` INT, `a,b` INT"),
        ("a INT COMMENT 'how many, exactly', b INT -- the end", "`a` INT, `b` INT"),
        ("date DATE, map MAP<STRING, INT>, A INT, a INT", "`date` DATE, `map` MAP<STRING, INT>, `A` INT, `a` INT"),
    ],
)
def test_a_schema_has_one_spelling_that_reads_as_the_same(ddl: str, canonical: str) -> None:
    schema = Schema.parse(ddl)
    assert schema.ddl == canonical
    assert Schema.parse(canonical) == schema
    assert hash(Schema.parse(canonical)) == hash(schema)
    assert pickle.loads(pickle.dumps(schema)) == schema


@pytest.mark.parametrize(
    "ddl, part",
    [
        ("", "at least one field"),
        ("  ", "at least one field"),
        ("a", "can't be read"),
        ("INT", "a name and a type"),
        ("a INT, a STRING", "`a` is there twice"),
        ("t STRUCT<x: INT, x: INT>", "`x` is there twice in `t`"),
        ("a FOO", "a is FOO"),
        ("a VOID", "a is VOID"),
        ("b INT, t STRUCT<a: VOID>", "a is VOID"),
        ("a INTERVAL DAY", "`a` is INTERVAL DAY"),
        ("a VARIANT", "`a` is VARIANT"),
        ("a OBJECT", "`a` is OBJECT"),
        ("a VARCHAR(3)", "`a` is VARCHAR(3)"),
        ("a BIGINT UNSIGNED", "`a` is"),
        ("a ARRAY", "`a` is ARRAY"),
        ("a INT(3)", "`a` is INT(3)"),
        ("t STRUCT<x: ARRAY<INTERVAL DAY>>", "`t`.`x`.element is INTERVAL DAY"),
        ("m MAP<INT, INT>", "those of `m` are INT"),
        ("a DECIMAL(39,0)", "DECIMAL(39,0)"),
        ("a DECIMAL(2,3)", "DECIMAL(2,3)"),
        ("a DECIMAL(0,0)", "DECIMAL(0,0)"),
        ("a INT DEFAULT 3", "DEFAULT 3"),
        ("a STRING COLLATE UTF8_LCASE", "COLLATE"),
        ("a INT b INT", "can't be read"),
        ("a INT, , b INT", "both sides of a comma"),
        ("a INT,", "both sides of a comma"),
        ("a INT>, b INT", "can't be read"),
        ("`` INT", "not empty"),
        ("`\ud800` INT", "UTF-8"),
        ("a " + "ARRAY<" * 70 + "INT" + ">" * 70, "deeper than 64"),
        ("a " + "ARRAY<" * 9000 + "INT" + ">" * 9000, "deeper than 64"),
    ],
    ids=short,
)
def test_what_is_no_schema_is_refused_in_words(ddl: str, part: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(ddl)
    assert str(caught.value).startswith("must ")
    assert part in str(caught.value)
    assert caught.value.hint


def test_checking_a_schema_imports_neither_arrow_nor_msgspec() -> None:
    code = (
        "import sys; from penstock.plan.schema import Schema;"
        "Schema.parse('a INT'); print(*({'pyarrow', 'msgspec', 'pyspark'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


# --- values ---

KEPT: list[tuple[str, str, Any]] = [
    ("STRING", '""', ""),
    ("STRING", r'"a\"b\\\"c\\"', 'a"b\\"c\\'),
    ("STRING", r'"\u0000\ud83d\ude00"', "\0😀"),
    ("STRING", '"é😀"', "é😀"),
    ("STRING", "null", None),
    ("BOOLEAN", "true", True),
    ("BOOLEAN", "false", False),
    ("TINYINT", "-128", -128),
    ("TINYINT", "127", 127),
    ("SMALLINT", "-32768", -(2**15)),
    ("SMALLINT", "32767", 2**15 - 1),
    ("INT", "-2147483648", -(2**31)),
    ("INT", "2147483647", 2**31 - 1),
    ("BIGINT", "-9223372036854775808", -(2**63)),
    ("BIGINT", "9223372036854775807", 2**63 - 1),
    ("BIGINT", "-0", 0),
    ("DOUBLE", "1", 1.0),
    ("DOUBLE", "0.1", 0.1),
    ("DOUBLE", "1e308", 1e308),
    ("DOUBLE", "1e23", 1e23),
    ("DOUBLE", "9007199254740992", 2.0**53),
    ("DOUBLE", "-9007199254740994", -(2.0**53) - 2),
    ("DOUBLE", "18446744073709551616", 2.0**64),
    ("DOUBLE", "9007199254740993.5", 9007199254740994.0),
    ("DOUBLE", "1e-400", 0.0),
    ("DOUBLE", "1e-99999999999999999999", 0.0),
    ("FLOAT", "16777216", 2.0**24),
    ("FLOAT", "0.1", 0.10000000149011612),
    ("FLOAT", "3.4028234663852886e38", 3.4028234663852886e38),
    ("FLOAT", "20000000.5", 20000000.0),
    ("DECIMAL(5,2)", "1", Decimal("1.00")),
    ("DECIMAL(5,2)", "-999.99", Decimal("-999.99")),
    ("DECIMAL(5,2)", "0.10", Decimal("0.10")),
    ("DECIMAL(5,2)", "1.1000000", Decimal("1.10")),
    ("DECIMAL(5,2)", "1.1" + "0" * 60, Decimal("1.10")),
    ("DECIMAL(5,2)", '"12.5"', Decimal("12.50")),
    ("DECIMAL(5,2)", '"1E+2"', Decimal("100.00")),
    ("DECIMAL(5,2)", "1.5e2", Decimal("150.00")),
    ("DECIMAL(5,2)", "1200e-2", Decimal("12.00")),
    ("DECIMAL(5,2)", "-0", Decimal("0.00")),
    ("DECIMAL(5,2)", "-0.00", Decimal("0.00")),
    ("DECIMAL(5,2)", "null", None),
    ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38)),
    ("DECIMAL(38,0)", "-" + "9" * 38, Decimal("-" + "9" * 38)),
    ("DECIMAL(38,0)", "1.0", Decimal(1)),
    ("DECIMAL(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("DECIMAL(38,38)", "0", Decimal("0E-38")),
    ("DECIMAL(38,10)", "0." + "0" * 9 + "1", Decimal("1E-10")),
    ("DECIMAL(1,1)", "0.5", Decimal("0.5")),
    ("DATE", '"2024-02-29"', date(2024, 2, 29)),
    ("DATE", '"0001-01-01"', date(1, 1, 1)),
    ("DATE", '"9999-12-31"', date(9999, 12, 31)),
    ("TIMESTAMP", '"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02T03:04:05.1Z"', datetime(2024, 1, 2, 3, 4, 5, 100000, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02T03:04:05.123456000Z"', datetime(2024, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02T03:04:05.5+02:00"', datetime(2024, 1, 2, 1, 4, 5, 500000, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02 03:04:05-0230"', datetime(2024, 1, 2, 5, 34, 5, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02t03:04:05+00"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("TIMESTAMP", '"2024-01-02T03:04Z"', datetime(2024, 1, 2, 3, 4, tzinfo=UTC)),
    ("TIMESTAMP", '"0001-01-01T00:00:00Z"', datetime(1, 1, 1, tzinfo=UTC)),
    ("TIMESTAMP", '"9999-12-31T23:59:59.999999Z"', datetime.max.replace(tzinfo=UTC)),
    ("TIMESTAMP_NTZ", '"2024-01-02T03:04:05.000001"', datetime(2024, 1, 2, 3, 4, 5, 1)),
    ("TIMESTAMP_NTZ", '"2024-01-02 03:04"', datetime(2024, 1, 2, 3, 4)),
    ("TIMESTAMP_NTZ", '"0001-01-01T00:00:00"', datetime(1, 1, 1)),
    ("BINARY", '"aGk="', b"hi"),
    ("BINARY", '""', b""),
    ("BINARY", '"/+8="', b"\xff\xef"),
    ("STRUCT<a: INT, b: STRING>", '{"b":"x"}', {"a": None, "b": "x"}),
    ("STRUCT<a: INT>", "{}", {"a": None}),
    ("STRUCT<a: INT NOT NULL>", "null", None),
    ("ARRAY<INT>", "[]", []),
    ("ARRAY<INT>", "[1,null,2]", [1, None, 2]),
    ("ARRAY<STRING>", '["a",null,"\\""]', ["a", None, '"']),
    ("ARRAY<DECIMAL(3,1)>", '[1,null,"2.5"]', [Decimal("1.0"), None, Decimal("2.5")]),
    ("ARRAY<TIMESTAMP>", '[null,"2024-01-02T03:04:05Z"]', [None, datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)]),
    ("ARRAY<FLOAT>", "[0.1]", [0.10000000149011612]),
    ("ARRAY<ARRAY<STRING>>", '[["a"],null,[]]', [["a"], None, []]),
    (
        "ARRAY<STRUCT<a: INT, b: STRING>>",
        '[{"a":1},null,{"b":"x"}]',
        [{"a": 1, "b": None}, None, {"a": None, "b": "x"}],
    ),
    ("MAP<STRING, DOUBLE>", '{"a":1,"b":null,"":2.5}', {"a": 1.0, "b": None, "": 2.5}),
    ("MAP<STRING, STRING>", '{"a":"x","b\\"":null}', {"a": "x", 'b"': None}),
    ("MAP<STRING, ARRAY<DECIMAL(3,1)>>", '{"a":[1],"b":null}', {"a": [Decimal("1.0")], "b": None}),
    (
        "MAP<STRING, STRUCT<m: MAP<STRING, DATE>>>",
        '{"a":{"m":{"d":"2024-01-02"}}}',
        {"a": {"m": {"d": date(2024, 1, 2)}}},
    ),
]


@pytest.mark.parametrize("type_, text, value", KEPT, ids=short)
def test_values_that_fit_are_kept(type_: str, text: str, value: Any) -> None:
    found = both(f"v {type_}, other STRING", f'{{"v":{text}}}')
    assert found == {"v": value, "other": None}
    assert repr(found["v"]).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(value)  # -0, 1.00
    if value is not None:
        assert both(f"other STRING, v {type_} NOT NULL", f'{{ "v" : {text} , "other" : null }}')["v"] == value


REFUSED: list[tuple[str, str, str]] = [
    ("STRING", "1", "a number: 1"),
    ("STRING", "true", "a boolean: true"),
    ("STRING", "{}", "an object: {}"),
    ("STRING", r'"\ud800"', "surrogate"),
    ("BOOLEAN", "1", "a number: 1"),
    ("BOOLEAN", '"true"', "a string"),
    ("TINYINT", "128", "out of range"),
    ("TINYINT", "-129", "out of range"),
    ("SMALLINT", "32768", "out of range"),
    ("INT", "2147483648", "out of range"),
    ("INT", "true", "a boolean: true"),
    ("BIGINT", "9223372036854775808", "out of range"),
    ("BIGINT", "-9223372036854775809", "out of range"),
    ("BIGINT", "1" * 5000, "11..."),
    ("BIGINT", "1.0", "1.0 (not written as an integer)"),
    ("BIGINT", "1e3", "not written as an integer"),
    ("BIGINT", '"1"', 'a string: "1"'),
    ("BIGINT", "[1]", "an array: [1]"),
    ("DOUBLE", "1e400", "out of range"),
    ("DOUBLE", "-1e99999999999999999999", "out of range"),
    ("DOUBLE", "9" * 400, "out of range"),
    ("DOUBLE", "9007199254740993", "can't hold exactly"),
    ("DOUBLE", "-9007199254740993", "can't hold exactly"),
    ("DOUBLE", "123456789012345678901234567890", "can't hold exactly"),
    ("DOUBLE", '"1"', "a string"),
    ("DOUBLE", "false", "a boolean"),
    ("FLOAT", "3.5e38", "out of range"),
    ("FLOAT", "16777217", "can't hold exactly"),
    ("FLOAT", '"1"', "a string"),
    ("DECIMAL(5,2)", "1.234", "more than 2 digits behind the point"),
    ("DECIMAL(5,2)", "1000", "more than 3 digits before the point"),
    ("DECIMAL(5,2)", '"1000.00"', "more than 3 digits before the point"),
    ("DECIMAL(5,2)", "1e400", "before the point"),
    ("DECIMAL(5,2)", '"1e99999999999999999999"', "before the point"),
    ("DECIMAL(5,2)", "1e-99999999999999999999", "behind the point"),
    ("DECIMAL(5,2)", '"abc"', "a string"),
    ("DECIMAL(5,2)", '"NaN"', "a string"),
    ("DECIMAL(5,2)", '"Infinity"', "a string"),
    ("DECIMAL(5,2)", '"1_0"', "a string"),
    ("DECIMAL(5,2)", '" 1"', "a string"),
    ("DECIMAL(5,2)", '"١"', "a string"),
    ("DECIMAL(5,2)", '""', "a string"),
    ("DECIMAL(5,2)", "true", "a boolean"),
    ("DECIMAL(5,2)", "[1]", "an array"),
    ("DECIMAL(38,0)", "1" + "0" * 38, "more than 38 digits"),
    ("DECIMAL(38,38)", "1", "more than 0 digits before"),
    ("DATE", '"2024-02-30"', "no such day"),
    ("DATE", '"0000-01-01"', "no such day"),
    ("DATE", '"2024-2-1"', "is written"),
    ("DATE", '"2024-01-02T00:00:00"', "is written"),
    ("DATE", "19000", "a number"),
    ("TIMESTAMP", '"2024-01-02T03:04:05"', "no offset"),
    ("TIMESTAMP", '"2024-01-02T03:04:05.1234567Z"', "more than 6 digits"),
    ("TIMESTAMP", '"2024-01-02T03:04:05.0000001+02:00"', "more than 6 digits"),
    ("TIMESTAMP", '"2024-01-02T24:00:00Z"', "no such time"),
    ("TIMESTAMP", '"2024-01-02T23:59:60Z"', "no such time"),
    ("TIMESTAMP", '"2024-02-30T00:00:00Z"', "no such time"),
    ("TIMESTAMP", '"2024-01-02T03:04:05+24:00"', "no such offset"),
    ("TIMESTAMP", '"2024-01-02T03:04:05,5Z"', "is written"),
    ("TIMESTAMP", '"2024-01-02T03:04:05ZZ"', "is written"),
    ("TIMESTAMP", '"2024-01-02"', "is written"),
    ("TIMESTAMP", '"0001-01-01T00:00:00+02:00"', "0001 to 9999"),
    ("TIMESTAMP", '"9999-12-31T23:59:59-02:00"', "0001 to 9999"),
    ("TIMESTAMP", '"0000-01-01T00:00:00Z"', "no such time"),
    ("TIMESTAMP", "1704164645", "a number"),
    ("TIMESTAMP_NTZ", '"2024-01-02T03:04:05Z"', "has an offset"),
    ("TIMESTAMP_NTZ", '"2024-01-02T03:04:05+02:00"', "has an offset"),
    ("TIMESTAMP_NTZ", '"2024-01-02T03:04:05.1234567"', "more than 6 digits"),
    ("BINARY", '"aGk"', "base64"),
    ("BINARY", '"a-_="', "base64"),
    ("BINARY", '"aGk=="', "base64"),
    ("BINARY", "1", "base64"),
    ("STRUCT<a: INT>", "[]", "an array: []"),
    ("STRUCT<a: INT>", '"x"', "a string"),
    ("ARRAY<INT>", "{}", "an object"),
    ("ARRAY<INT>", "1", "a number"),
    ("MAP<STRING, INT>", "[]", "an array"),
]


@pytest.mark.parametrize("type_, text, part", REFUSED, ids=short)
def test_values_that_do_not_fit_are_refused_with_the_field_named(type_: str, text: str, part: str) -> None:
    e = why(f"other INT, v {type_}", f'{{"other":1,"v":{text}}}')
    assert e.code == "schema.mismatch"
    assert e.what.startswith("field v: expected ")
    assert part in e.what
    assert len(e.what) < 350


@pytest.mark.parametrize(
    "ddl, text, place",
    [
        ("t STRUCT<a: INT, b: ARRAY<DECIMAL(38,2)>>", '{"t":{"b":["x"]}}', "t.b[0]"),
        ("t STRUCT<a: STRUCT<`x y`: INT>>", '{"t":{"a":{"x y":"1"}}}', 't.a["x y"]'),
        ("m MAP<STRING, INT>", '{"m":{"a":1,"b":"2"}}', 'm["b"]'),
        ("m MAP<STRING, ARRAY<STRUCT<é: INT>>>", '{"m":{"k":[null,{"é":1.5}]}}', 'm["k"][1].é'),
        ("`a.b` INT", '{"a.b":"x"}', '["a.b"]'),
        ("a INT", '{"b":1}', "b"),
        ("t STRUCT<a: INT>", '{"t":{"a":1,"b c":{"x":1}}}', 't["b c"]'),
        ("n BIGINT NOT NULL", "{}", "n"),
        ("n BIGINT NOT NULL", '{"n":null}', "n"),
        ("n DECIMAL(3,1) NOT NULL", '{"n":null}', "n"),
        ("t ARRAY<STRUCT<a: INT NOT NULL>>", '{"t":[{"a":1},{}]}', "t[1].a"),
        ("a INT", '{"a":1,"a":1}', "a"),
        ("t ARRAY<STRUCT<a: INT>>", '{"t":[{"a":1},{"a":1,"a":null}]}', "t[1].a"),
        ("m MAP<STRING, INT>", '{"m":{"x":1,"y":2,"x":1}}', 'm["x"]'),
    ],
)
def test_the_way_to_the_field_is_named(ddl: str, text: str, place: str) -> None:
    e = why(ddl, text)
    assert e.code == "schema.mismatch"
    assert e.what.startswith(f"field {place}: ")


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"x","a":"y"}',
        '{"a":"x","a":null}',
        '{"a":null,"a":"x"}',
        '{"a":null,"a":null}',
        '{"a":"null","b":1,"b":2}',
        '{"a" :"x","a"\n:"y"}',
        r'{"a":"\"","a":"y"}',
        r'{"a":"\\","a":"\\"}',
        r'{"a":"x","\u0061":"y"}',
        '{"d":1,"d":"1"}',
        '{"d":"1","d":1}',
        '{"l":["x"],"l":[]}',
        '{"m":{"x":"1"},"m":{}}',
        '{"m":{"x":null,"x":null}}',
        '{"t":{"a":1},"t":null}',
        '{"t":{"a":1,"a":2}}',
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str) -> None:
    ddl = "a STRING, b BIGINT, c STRING, d DECIMAL(9,2), l ARRAY<STRING>, m MAP<STRING, STRING>, t STRUCT<a: INT, z: STRING>"
    assert "twice" in why(ddl, text).what


@pytest.mark.parametrize(
    "text, code",
    [
        (b"{", "json.invalid"),
        (b" ", "json.invalid"),
        (b"{}x", "json.invalid"),
        (b'{"a":NaN}', "json.invalid"),
        (b'{"a":-Infinity}', "json.invalid"),
        (b'{"a":01}', "json.invalid"),
        (b'{"a":"\xff"}', "json.invalid"),
        (b'{"\xff":1}', "json.invalid"),
        (b'{"a":"\xed\xa0\x80"}', "json.invalid"),
        (b'{"a":"x\ny"}', "json.invalid"),
        (b"\xef\xbb\xbf{}", "json.invalid"),
        ("{}".encode("utf-16"), "json.invalid"),
        (b"[" * 1_000_000, "json.invalid"),
        (b'{"a":' * 1_000_000, "json.invalid"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "json.invalid"),
        (b"[]", "json.not-an-object"),
        (b'"{}"', "json.not-an-object"),
        (b"1", "json.not-an-object"),
        (b"true", "json.not-an-object"),
    ],
    ids=short,
)
def test_what_is_no_json_object_is_refused(text: bytes, code: str) -> None:
    assert why("a STRING", text).code == code


def test_nothing_and_null_are_no_payload() -> None:
    d = decoder("a STRING NOT NULL, t STRUCT<n: INT NOT NULL>")
    made = [d.from_json(text) for text in (b"", b"null", b" null\n", b'{"a":"x","t":null}')]
    assert made[:3] == [None, None, None]
    column = d.column(made)
    column.validate(full=True)
    assert column.to_pylist() == [None, None, None, {"a": "x", "t": None}]
    assert d.from_value(None) is None
    assert d.column([]).to_pylist() == []
    assert d.column([None]).type == d.schema.arrow()


def test_a_missing_offset_has_a_hint() -> None:
    assert "TIMESTAMP_NTZ" in why("t TIMESTAMP", '{"t":"2024-01-02T03:04:05"}').hint
    assert "TIMESTAMP " in why("t TIMESTAMP_NTZ", '{"t":"2024-01-02T03:04:05Z"}').hint


def test_a_long_value_is_shortened() -> None:
    e = why("a INT", json.dumps({"a": "x" * 10_000}))
    assert e.what.endswith("xxx...")
    assert len(e.what) < 160


NAMES = [
    "a b",
    "class",
    "a.b",
    "$",
    "é",
    "😀",
    'a"b',
    "a\\b",
    "a\nb",
    "\0",
    "f0",
    "f1",
    "None",
    "__init__",
    "a`b",
    "self",
    "o",
    "'",
]


@pytest.mark.parametrize(
    "names", [[n for n in NAMES if not set(n) & set('"\\\n\0')], NAMES], ids=["usual", "with quotes"]
)
def test_a_field_may_have_any_name(names: list[str]) -> None:
    ddl = ", ".join("`" + n.replace("`", "``") + "` BIGINT" for n in names)
    value = {n: i for i, n in enumerate(names)}
    assert both(ddl, json.dumps(value)) == value
    assert both(ddl, json.dumps(value, ensure_ascii=False)) == value
    for n in names:
        assert why(ddl, json.dumps({n: "x"})).code == "schema.mismatch"


def test_there_may_be_thousands_of_fields() -> None:
    ddl = ", ".join(f"`field {i}` {('STRING', 'BIGINT', 'DECIMAL(9,2)')[i % 3]}" for i in range(5000))
    value = {f"field {i}": (f"v{i}", i, None)[i % 3] for i in range(5000)}
    assert both(ddl, json.dumps(value)) == value


# --- open payloads ---

EVERY = (
    "s STRING, b BOOLEAN, i8 TINYINT, i BIGINT, f FLOAT, d DOUBLE, n DECIMAL(9,2), day DATE, t TIMESTAMP, l TIMESTAMP_NTZ, "
    "x BINARY, a ARRAY<INT>, m MAP<STRING, STRING>, o STRUCT<a: INT>"
)
TWO = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    "name, value, kept",
    [
        ("n", Decimal("1.5"), Decimal("1.50")),
        ("n", 12.34, Decimal("12.34")),
        ("n", 1e6, Decimal("1000000.00")),
        ("n", "12.34", Decimal("12.34")),
        ("d", Decimal("0.1"), 0.1),
        ("d", inf, inf),
        ("f", 0.1, 0.10000000149011612),
        ("day", date(2024, 1, 2), date(2024, 1, 2)),
        ("t", datetime(2024, 1, 2, 3, tzinfo=TWO), datetime(2024, 1, 2, 1, tzinfo=UTC)),
        ("t", "2024-01-02T03:00:00+02:00", datetime(2024, 1, 2, 1, tzinfo=UTC)),
        ("l", datetime(2024, 1, 2, 3), datetime(2024, 1, 2, 3)),
        ("x", b"\xff", b"\xff"),
        ("x", "aGk=", b"hi"),
        ("a", [1, None], [1, None]),
        ("a", (1, 2), [1, 2]),
        ("m", {"a": "b"}, {"a": "b"}),
        ("o", {}, {"a": None}),
    ],
)
def test_an_open_payload_is_taken_by_its_values(name: str, value: Any, kept: Any) -> None:
    d = decoder(EVERY)
    made = d.from_value({name: value})
    assert d.to_dict(made)[name] == kept
    assert d.column([made]).to_pylist(maps_as_pydicts="strict")[0][name] == kept


@pytest.mark.parametrize(
    "name, value",
    [
        ("s", b"x"),
        ("s", "\ud800"),
        ("b", 1),
        ("i", True),
        ("i", 1.0),
        ("i", Decimal(1)),
        ("i", 10**5000),
        ("i8", 128),
        ("d", True),
        ("d", 2**53 + 1),
        ("d", Decimal(2**53 + 1)),
        ("d", 10**5000),
        ("d", Decimal("1e400")),
        ("d", Decimal("sNaN")),
        ("f", 1e39),
        ("n", 0.1 + 0.2),
        ("n", inf),
        ("n", Decimal("NaN")),
        ("n", 10**5000),
        ("n", True),
        ("day", datetime(2024, 1, 2)),
        ("t", datetime(2024, 1, 2)),
        ("t", datetime(1, 1, 1, tzinfo=TWO)),
        ("t", date(2024, 1, 2)),
        ("l", datetime(2024, 1, 2, tzinfo=UTC)),
        ("a", {1}),
        ("m", {1: "x"}),
        ("m", {"\ud800": "x"}),
        ("o", {"a": object}),
        ("o", {1: 2}),
        (1, 2),
    ],
    ids=short,
)
def test_an_open_payload_that_does_not_fit_is_refused(name: Any, value: Any) -> None:
    with pytest.raises(Rejected) as caught:
        decoder(EVERY).from_value({name: value})
    assert caught.value.code == "schema.mismatch"
    assert caught.value.what.startswith(f"field {name if isinstance(name, str) else '[1]'}")


def test_an_open_payload_is_an_object() -> None:
    value: Any
    for value in ([], "x", 1, b"{}"):
        with pytest.raises(Rejected) as caught:
            decoder("a INT").from_value(value)
        assert caught.value.code == "json.not-an-object"


@pytest.mark.parametrize(
    "type_, text",
    [
        (t, x)
        for t, x, _ in KEPT
        if t.split("(")[0] in ("STRING", "BIGINT", "TIMESTAMP_NTZ", "DATE", "BOOLEAN", "BINARY")
    ],
)
def test_usual_text_takes_the_fast_way(type_: str, text: str) -> None:
    if text == '"2024-01-02 03:04"':
        return
    d = decoder(f"v {type_}, other STRING")
    assert d._quick is not None
    assert d._quick(f'{{"v":{text}}}'.encode()) is not None
