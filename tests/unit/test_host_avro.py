"""Avro of plugin programs as typed payloads: which Spark types, every value as it was, and bytes that do not fit are a nack."""

from __future__ import annotations

import json
import math
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine import aside
from penstock.engine.python.stage import PythonStage
from penstock.host.avro_payload import AvroDecode, AvroPayload, payload_of
from penstock.host.avro_reading import COLUMNS, reader
from penstock.native import Record, Rejected, Where
from penstock.plan.nodes import Node, stages
from penstock.plan.schema import Schema
from penstock.record import Shape
from penstock_sdk.avro import AvroError, compiled

AFTER = frozenset({"after"})
ALL = frozenset({"after", "before", "key"})
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def record_of(fields: Mapping[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def text_of(fields: Mapping[str, Any]) -> str:
    return json.dumps(record_of(fields))


def typed(schema: str) -> AvroPayload:
    found = payload_of(schema)
    assert found is not None
    return found


def held(schema: str, values: list[Any]) -> list[Any]:
    """Encoded, decoded as a task does, and in the column."""
    codec = compiled(schema.encode())
    decode = AvroDecode("in", schema, None, parts=AFTER).on_payload()
    assert decode is not None
    data = [None if v is None else codec.encode(v) for v in values]
    column = typed(schema).column([decode(d) for d in data])
    column.validate(full=True)
    assert column.type == Schema(typed(schema).tree.type().fields).arrow()
    quick = reader(typed(schema).tree)
    assert [repr(quick(d)) for d in data if d is not None] == [repr(codec.decode(d)) for d in data if d is not None]
    slow = typed(schema).column([None if d is None else codec.decode(d) for d in data])
    assert repr(slow.to_pylist()) == repr(column.to_pylist())  # NaN is not equal to itself
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def expected(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: expected(v) for k, v in value.items()}
    if isinstance(value, list):
        return [expected(v) for v in value]
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, time) else value


# --- types

FIXED = {"type": "fixed", "name": "f", "size": 4}
ENUM = {"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}
MAPPED = [
    ("boolean", "BOOLEAN NOT NULL"),
    ("int", "INT NOT NULL"),
    ("long", "BIGINT NOT NULL"),
    ("float", "FLOAT NOT NULL"),
    ("double", "DOUBLE NOT NULL"),
    ("string", "STRING NOT NULL"),
    ("bytes", "BINARY NOT NULL"),
    (FIXED, "BINARY NOT NULL"),
    (ENUM, "STRING NOT NULL"),
    (logical("string", "uuid"), "STRING NOT NULL"),
    ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, "STRING NOT NULL"),
    (decimal(9, 2), "DECIMAL(9,2) NOT NULL"),
    (decimal(38, 38), "DECIMAL(38,38) NOT NULL"),
    (
        {"type": "fixed", "name": "d", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 3},
        "DECIMAL(18,3) NOT NULL",
    ),
    (logical("int", "date"), "DATE NOT NULL"),
    (logical("int", "time-millis"), "STRING NOT NULL"),
    (logical("long", "time-micros"), "STRING NOT NULL"),
    (logical("long", "timestamp-millis"), "TIMESTAMP NOT NULL"),
    (logical("long", "timestamp-micros"), "TIMESTAMP NOT NULL"),
    (logical("long", "local-timestamp-millis"), "TIMESTAMP_NTZ NOT NULL"),
    (logical("long", "local-timestamp-micros"), "TIMESTAMP_NTZ NOT NULL"),
    (logical("long", "timestamp-nanos"), "BIGINT NOT NULL"),  # Python's times have none
    (logical("string", "nobody knows"), "STRING NOT NULL"),
    (logical("long", "date"), "BIGINT NOT NULL"),  # of the wrong type
    (decimal(2, 3), "BINARY NOT NULL"),  # none that the standard has
    (["null", "long"], "BIGINT"),
    (["long", "null"], "BIGINT"),
    (["long"], "BIGINT NOT NULL"),
    ({"type": ["null", {"type": "string"}]}, "STRING"),
    ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT> NOT NULL"),
    (["null", {"type": "map", "values": {"type": "array", "items": "double"}}], "MAP<STRING, ARRAY<DOUBLE>>"),
    (record_of({"a": "int", "b": ["null", "string"]}, "s"), "STRUCT<`a`: INT NOT NULL, `b`: STRING> NOT NULL"),
]


@pytest.mark.parametrize(("avro", "spark"), MAPPED, ids=[spark for _, spark in MAPPED])
def test_each_type_of_avro_has_its_type_of_spark(avro: Any, spark: str) -> None:
    payload = typed(text_of({"x": avro}))
    assert payload.ddl == f"STRUCT<`x` {spark}>"
    assert Schema.parse(payload.ddl[7:-1]).arrow() == payload.column([]).type


UNTYPED = {
    "two types": text_of({"x": ["null", "int", "string"]}),
    "null alone": text_of({"x": "null"}),
    "null in a union alone": text_of({"x": ["null"]}),
    "a list of nulls": text_of({"x": {"type": "array", "items": "null"}}),
    "duration": text_of({"x": {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}}),
    "39 digits": text_of({"x": decimal(39, 0)}),
    "recursive": text_of({"x": ["null", "r"]}),
    "recursive below": text_of({"x": record_of({"y": {"type": "array", "items": "s"}}, "s")}),
    "no fields": text_of({}),
    "no fields below": text_of({"x": record_of({}, "s")}),
    "a long": '"long"',
    "null or a record": json.dumps(["null", record_of({"x": "int"})]),
    "a map": '{"type": "map", "values": "int"}',
    "no JSON": "{",
    "no schema": '"lang"',
}


@pytest.mark.parametrize("schema", UNTYPED.values(), ids=UNTYPED)
def test_what_spark_has_no_type_for_is_not_typed(schema: str) -> None:
    assert payload_of(schema) is None


def test_depth_and_number_of_columns_have_a_limit() -> None:
    def chain(levels: int) -> str:
        inner: Any = "int"
        for _ in range(levels):
            inner = {"type": "array", "items": inner}
        return text_of({"x": inner})

    assert held(chain(63), [{"x": [[]] * 2}]) == [{"x": [[], []]}]
    assert payload_of(chain(64)) is None
    doubled: Any = "int"
    for n in range(40):  # 2^40 columns, in a few lines
        doubled = record_of({"a": doubled, "b": f"r{n - 1}" if n else "int"}, f"r{n}")
    assert payload_of(json.dumps(doubled)) is None
    assert payload_of(text_of({f"c{n}": "int" for n in range(COLUMNS - 1)})) is not None
    assert payload_of(text_of({f"c{n}": "int" for n in range(COLUMNS)})) is None


def test_a_named_type_is_found_again_in_its_namespace() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    schema = {**record_of({"a": point, "b": ["null", "point"], "c": "n.m.point"}), "namespace": "n.m"}
    value = {"a": {"x": 1}, "b": None, "c": {"x": -3}}
    assert held(json.dumps(schema), [value, {**value, "b": {"x": 2}}]) == [value, {**value, "b": {"x": 2}}]


def test_names_that_are_words_of_sql_or_differ_in_case_are_kept() -> None:
    value = {"select": 1, "Select": 2, "_": 3, "order": 4}
    schema = text_of(dict.fromkeys(value, "int"))
    assert held(schema, [value]) == [value]
    assert Schema.parse(typed(schema).ddl[7:-1]).arrow().names == list(value)


# --- values

EDGES: list[tuple[Any, list[Any]]] = [
    ("boolean", [True, False]),
    ("int", [0, -1, 2**31 - 1, -(2**31)]),
    ("long", [0, -1, 63, 64, -64, -65, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]),
    ("float", [0.0, -1.5, 3.4028234663852886e38, 1.401298464324817e-45, math.inf, -math.inf]),
    ("double", [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf]),
    ("string", ["", "é\0\U0001f600", "x" * 100_000]),
    ("bytes", [b"", b"\x00\xff", b"{}"]),
    (FIXED, [b"\0\0\0\0", b"\xff" * 4]),
    ({**FIXED, "size": 0}, [b""]),
    (ENUM, ["RED", "GREEN"]),
    (decimal(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)]),
    (decimal(38, 38), [Decimal("0." + "9" * 38), Decimal("1e-38"), Decimal("-0." + "1" * 38)]),
    (decimal(5, 2), [Decimal("999.99"), Decimal("-0.01"), Decimal("1"), Decimal("0.10")]),
    (logical("string", "uuid"), [UUID(int=0), UUID(int=2**128 - 1)]),
    ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, [UUID(int=7)]),
    (logical("int", "date"), [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10), date(1969, 12, 31)]),
    (logical("int", "time-millis"), [time(0), time(23, 59, 59, 999000)]),
    (logical("long", "time-micros"), [time(0), time(1, 2), time(23, 59, 59, 999999), time(0, 0, 0, 1)]),
    *(
        (logical("long", f"{zone}timestamp-{unit}"), [datetime(1, 1, 1, tzinfo=tz), latest, datetime(1969, 1, 1, 0, 0, 1, tzinfo=tz)])
        for zone, tz in [("", UTC), ("local-", None)]
        for unit, latest in [
            ("millis", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=tz)),
            ("micros", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=tz)),
        ]
    ),
    ({"type": "array", "items": "long"}, [[], [1], list(range(-200, 200))]),
    ({"type": "array", "items": ["null", decimal(3, 1)]}, [[None], [Decimal("1.5"), None], []]),
    ({"type": "map", "values": ["null", "string"]}, [{}, {"": None, "é": "x", "a b": ""}]),
    ({"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "int"}}}, [[{}, {"a": []}, {"b": [1]}]]),
    (record_of({"a": ["null", record_of({"b": ["null", "int"]}, "t")]}, "s"), [{"a": None}, {"a": {"b": None}}, {"a": {"b": 1}}]),
]  # fmt: skip


@pytest.mark.parametrize(("avro", "values"), EDGES, ids=[json.dumps(avro)[:60] for avro, _ in EDGES])
def test_every_value_is_in_the_column_as_it_was(avro: Any, values: list[Any]) -> None:
    rows = [{"x": v} for v in values]
    assert held(text_of({"x": avro}), [*rows, None]) == [*map(expected, rows), None]
    optional = [{"y": 1, "x": v} for v in [*values, None]]
    assert held(text_of({"y": "int", "x": ["null", avro]}), optional) == list(map(expected, optional))
    lists = [{"x": [*values, None]}, {"x": []}]
    assert held(text_of({"x": {"type": "array", "items": ["null", avro]}}), lists) == list(map(expected, lists))


def test_not_a_number_stays_that_and_zero_keeps_its_sign() -> None:
    [found] = held(text_of({"f": "float", "d": "double", "z": "double"}), [{"f": math.nan, "d": math.nan, "z": -0.0}])
    assert math.isnan(found["f"])
    assert math.isnan(found["d"])
    assert struct.pack("<d", found["z"]) == struct.pack("<d", -0.0)


names = st.text("abcXY_", min_size=1, max_size=3)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
moments = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31, 23, 59, 59))


def scalars() -> list[tuple[Any, st.SearchStrategy[Any]]]:
    day = st.times()
    return [
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)),
        ("float", st.floats(width=32, allow_nan=False)),
        ("double", st.floats(allow_nan=False)),
        ("string", texts),
        ("bytes", st.binary(max_size=5)),
        (decimal(38, 9), st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(f"{n}e-9"))),
        (logical("int", "date"), st.dates()),
        (logical("long", "time-micros"), day),
        (logical("long", "timestamp-micros"), moments.map(lambda t: t.replace(tzinfo=UTC))),
        (logical("long", "timestamp-millis"), moments.map(lambda t: t.replace(microsecond=0, tzinfo=UTC))),
        (logical("long", "local-timestamp-micros"), moments),
        (logical("string", "uuid"), st.uuids()),
    ]


def schemas(numbers: Iterator[int], depth: int) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """A type, and what makes values of it."""
    plain = st.sampled_from(scalars()) | st.integers(0, 3).map(
        lambda size: ({"type": "fixed", "name": f"f{next(numbers)}", "size": size}, st.binary(min_size=size, max_size=size))
    )  # fmt: skip
    if not depth:
        return plain
    inner = schemas(numbers, depth - 1)
    return st.one_of(
        plain,
        inner.filter(lambda s: not isinstance(s[0], list)).map(lambda s: (["null", s[0]], st.none() | s[1])),
        inner.filter(lambda s: not isinstance(s[0], list)).map(lambda s: ([s[0], "null"], st.none() | s[1])),
        inner.map(lambda s: ({"type": "array", "items": s[0]}, st.lists(s[1], max_size=3))),
        inner.map(lambda s: ({"type": "map", "values": s[0]}, st.dictionaries(texts, s[1], max_size=3))),
        records(numbers, depth),
    )


def records(numbers: Iterator[int], depth: int) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    fields = st.dictionaries(names, schemas(numbers, depth - 1), min_size=1, max_size=4)
    return fields.map(
        lambda f: (
            record_of({n: s for n, (s, _) in f.items()}, f"r{next(numbers)}"),
            st.fixed_dictionaries({n: v for n, (_, v) in f.items()}),
        )
    )


@given(st.data())
def test_whatever_is_encoded_is_in_the_column(data: st.DataObject) -> None:
    schema, values = data.draw(records(count(), 3))
    rows = data.draw(st.lists(st.none() | values, max_size=4))
    assert held(json.dumps(schema), rows) == list(map(expected, rows))


@given(st.data())
def test_bytes_that_were_changed_mean_what_the_codec_says(data: st.DataObject) -> None:
    """The quick way never takes what the codec refuses, and never as something else."""
    schema, values = data.draw(records(count(), 2))
    text, codec = json.dumps(schema), compiled(json.dumps(schema).encode())
    made = bytearray(codec.encode(data.draw(values)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(made)))
        made[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    changed = bytes(made)
    before = AvroDecode("in", text, None, parts=frozenset({"before"}))
    decode = AvroDecode("in", text, None, parts=AFTER).on_payload()
    assert decode is not None
    try:
        meant = codec.decode(changed)
    except AvroError:
        with pytest.raises(Rejected, match="can't be read"):
            decode(changed)
        with pytest.raises(Rejected, match="can't be read"):
            before.apply(Record(before=changed))
        return
    # NaN is not equal to itself
    assert repr(before.apply(Record(before=changed)).before) == repr(meant)
    column = typed(text).column
    assert repr(column([decode(changed)]).to_pylist()) == repr(column([meant]).to_pylist())


# --- bytes that do not fit

SAMPLE = {
    "id": 2**40,
    "name": "a name",
    "price": Decimal("-12.345"),
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "tags": ["a", "b"],
    "more": {"k": 1.5},
    "note": None,
    "last": True,
}
SAMPLE_SCHEMA = text_of(
    {
        "id": "long",
        "name": "string",
        "price": decimal(18, 3),
        "at": logical("long", "timestamp-micros"),
        "tags": {"type": "array", "items": "string"},
        "more": {"type": "map", "values": "double"},
        "note": ["null", "string"],
        "last": "boolean",
    }
)
SAMPLE_DATA = compiled(SAMPLE_SCHEMA.encode()).encode(SAMPLE)


def sample(parts: frozenset[str] = AFTER, key: str | None = None) -> AvroDecode:
    return AvroDecode("in", SAMPLE_SCHEMA, key, parts=parts)


@pytest.mark.parametrize("size", range(len(SAMPLE_DATA)))
def test_bytes_that_are_cut_off_are_refused_wherever_it_is(size: int) -> None:
    decode = sample().on_payload()
    assert decode is not None
    with pytest.raises(Rejected, match=r"can't be read: the bytes do not fit their schema: ") as caught:
        decode(SAMPLE_DATA[:size])
    assert caught.value.code == "wire.schema"
    assert caught.value.where.split(".")[:1] == ["after"]
    assert caught.value.where.split(".")[1] in SAMPLE


@pytest.mark.parametrize("more", [b"\0", b"\x02", b"\xff", SAMPLE_DATA], ids=["0", "2", "255", "again"])
def test_bytes_that_are_left_over_are_refused(more: bytes) -> None:
    decode = sample().on_payload()
    assert decode is not None
    with pytest.raises(Rejected, match=rf"{len(more)} bytes are left over"):
        decode(SAMPLE_DATA + more)


@pytest.mark.parametrize(
    ("avro", "data", "where", "why"),
    [
        ("int", b"\x80\x80\x80\x80\x10", "after.x", "more than 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "after.x", "more than 64 bits"),
        ("boolean", b"\x02", "after.x", "a boolean is 0 or 1"),
        ("string", b"\x02\xff", "after.x", "no UTF-8"),
        ("string", b"\x01", "after.x", "a length is negative"),
        (ENUM, b"\x04", "after.x", "no such symbol"),
        (["null", "int"], b"\x04", "after.x", "no such branch"),
        (decimal(2, 0), b"\x02\x64", "after.x", "more than 2 digits"),
        (logical("int", "date"), b"\xfe\xff\xff\xff\x0f", "after.x", "no year from 1 to 9999"),
        (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", "after.x", "no year from 1 to 9999"),
        (logical("long", "local-timestamp-micros"), b"\xff" * 9 + b"\x01", "after.x", "no year from 1 to 9999"),
        (logical("long", "time-micros"), b"\x01", "after.x", "not within a day"),
        (logical("string", "uuid"), b"\x02a", "after.x", "a UUID is none"),
        ({"type": "array", "items": "boolean"}, b"\x04\x01\x07", "after.x.1", "a boolean is 0 or 1"),
        ({"type": "array", "items": "int"}, b"\x03\x08\x02\x02\x00", "after.x.2", "another size than it says"),
        ({"type": "array", "items": {**FIXED, "size": 0}}, b"\xfe\xff\xff\xff\xff\x7f", "after.x.0", "the bytes end"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x02\x00", "after.x", "a name twice"),
        (record_of({"y": ["null", "boolean"]}, "s"), b"\x02\x09", "after.x.y", "a boolean is 0 or 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(avro: Any, data: bytes, where: str, why: str) -> None:
    decode = AvroDecode("in", text_of({"x": avro}), None, parts=AFTER).on_payload()
    assert decode is not None
    with pytest.raises(Rejected, match=why) as caught:
        decode(data)
    assert (caught.value.where, caught.value.code) == (where, "wire.schema")


def test_the_first_and_the_last_moment_and_those_beside_them() -> None:
    epoch = datetime(1970, 1, 1)
    for name, unit in [("timestamp-micros", 1), ("timestamp-millis", 1000), ("local-timestamp-millis", 1000)]:
        schema, plain = text_of({"x": logical("long", name)}), compiled(text_of({"x": "long"}).encode())
        decode = AvroDecode("in", schema, None, parts=AFTER).on_payload()
        assert decode is not None
        first, last = (
            (t - epoch) // timedelta(microseconds=unit) for t in (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))
        )  # fmt: skip
        found = typed(schema).column([decode(plain.encode({"x": n})) for n in (first, last)]).to_pylist()
        assert [row["x"].year for row in found] == [1, 9999]
        for outside in (first - 1, last + 1):
            with pytest.raises(Rejected, match="no year"):
                decode(plain.encode({"x": outside}))


def test_numbers_with_needless_bytes_are_in_the_same_column_as_others() -> None:
    """The quick way leaves times as numbers, the codec gives times: a column takes both."""
    schema = text_of({"n": "long", "at": logical("long", "timestamp-micros"), "u": logical("string", "uuid")})
    decode = AvroDecode("in", schema, None, parts=AFTER).on_payload()
    assert decode is not None
    upper = str(UUID(int=0xABCDEF)).upper()
    value = {"n": 1, "at": TIME, "u": UUID(upper)}
    data = compiled(schema.encode()).encode(value)
    odd = b"\x82" + b"\x80" * 8 + b"\x00" + data[1:]
    loud = data.replace(upper.lower().encode(), upper.encode())
    assert loud != data
    found = typed(schema).column([decode(data), decode(odd), decode(loud), None]).to_pylist()
    assert found == [expected(value)] * 3 + [None]


def test_blocks_that_say_their_size_are_read() -> None:
    """As other writers write them: a negative count, then bytes."""
    fields = {"l": {"type": "array", "items": "int"}, "m": {"type": "map", "values": "string"}}
    decode = AvroDecode("in", text_of(fields), None, parts=AFTER).on_payload()
    assert decode is not None
    data = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x01\x02\x08\x00" + b"\x03\x0e\x02a\x02x\x02b\x00" + b"\x00"
    assert (
        compiled(text_of(fields).encode()).decode(data) == decode(data) == {"l": [1, 2, 3, 4], "m": {"a": "x", "b": ""}}
    )
    assert reader(typed(text_of(fields)).tree)(data) == decode(data)
    for wrong in (data.replace(b"\x03\x0e", b"\x03\x0c"), data.replace(b"\x01\x02\x08", b"\x01\x04\x08")):
        with pytest.raises(Rejected, match="another size than it says"):
            decode(wrong)


# --- the processor


def test_where_it_runs_and_what_it_gives() -> None:
    for decode, shape in [
        (sample(), Shape.TYPED),
        (sample(ALL, SAMPLE_SCHEMA), Shape.TYPED),
        (sample(frozenset({"before"})), Shape.RAW),
        (AvroDecode("in", None, SAMPLE_SCHEMA, parts=frozenset({"key"})), Shape.RAW),
        (AvroDecode("in", UNTYPED["duration"], None, parts=AFTER), Shape.OPEN),
        (AvroDecode("in", None, None, "nobody knows it", parts=AFTER), Shape.OPEN),
        (AvroDecode("in", None, None, "nobody knows it", parts=frozenset({"key"})), Shape.RAW),
        (AvroDecode("in", SAMPLE_SCHEMA, None, "nobody knows its key", parts=ALL), Shape.TYPED),
    ]:
        [stage] = stages([Node(decode)], Shape.RAW)
        assert (stage.where, stage.gives) == (Where.PYTHON, shape)
        assert (stage.schema is not None) == (shape is Shape.TYPED)
        assert decode.uses == {"after", *decode.uses}
    assert sample().uses == AFTER
    assert sample(frozenset({"before"})).uses == {"before", "after"}
    assert sample(ALL).typed == typed(SAMPLE_SCHEMA)


def test_it_works_after_it_was_pickled_also_when_it_was_used_before() -> None:
    decode = sample(ALL, SAMPLE_SCHEMA)
    first = decode.apply(Record(SAMPLE_DATA, before=SAMPLE_DATA, key=SAMPLE_DATA))
    again = pickle.loads(pickle.dumps(decode))
    assert again.apply(Record(SAMPLE_DATA, before=SAMPLE_DATA, key=SAMPLE_DATA)).after == first.after
    assert len(pickle.dumps(decode)) < 3000
    payload = typed(SAMPLE_SCHEMA)
    assert payload.ddl
    assert pickle.loads(pickle.dumps(payload)).column([SAMPLE]).equals(payload.column([SAMPLE]))
    assert pickle.loads(pickle.dumps(payload)) == payload
    assert hash(pickle.loads(pickle.dumps(payload))) == hash(payload)
    assert payload != typed(text_of({"x": "int"}))
    assert payload != SAMPLE_SCHEMA


def test_all_parts_are_decoded_and_nothing_stays_nothing() -> None:
    key = text_of({"id": "long"})
    decode = sample(ALL, key)
    assert decode.on_payload() is None
    r = decode.apply(Record(SAMPLE_DATA, before=SAMPLE_DATA, key=compiled(key.encode()).encode({"id": 7})))
    assert r.before == SAMPLE
    assert r.key == {"id": 7}
    r = decode.apply(Record(None, before=None, key=None))
    assert (r.after, r.before, r.key) == (None, None, None)
    for name in ("after", "before", "key"):
        with pytest.raises(Rejected, match=rf" {name}\.id can't be read: .*the bytes end before it does"):
            decode.apply(Record(None).derive(**{name: b""}))


def test_a_part_without_a_schema_stays_as_it_is() -> None:
    r = sample(ALL).apply(Record(None, before=SAMPLE_DATA, key=b"raw"))
    assert (r.before, r.key) == (SAMPLE, b"raw")
    assert sample(frozenset({"after", "key"})).on_payload() is not None
    r = sample(frozenset({"before"})).apply(Record(b"raw", before=SAMPLE_DATA))
    assert (r.after, r.before) == (b"raw", SAMPLE)
    assert sample(frozenset({"before"})).on_payload() is None


def test_a_schema_that_nobody_knows_rejects_every_record() -> None:
    decode = AvroDecode("in", SAMPLE_SCHEMA, None, "schema a version 2: not found", parts=AFTER)
    on_payload = decode.on_payload()
    assert on_payload is not None
    for payload in (SAMPLE_DATA, None):
        for refused in (lambda p=payload: on_payload(p), lambda p=payload: decode.apply(Record(p))):
            with pytest.raises(Rejected) as caught:
                refused()
            assert (caught.value.what, caught.value.code) == ("schema a version 2: not found", "wire.schema")


@pytest.mark.parametrize(
    ("schema", "given", "why"),
    [
        ("{", b"", r"after can't be read: its schema: the schema is no JSON"),
        ('"long"', b"\x02", r"after can't be read: its schema is of no record"),
        (SAMPLE_SCHEMA, {"id": 1}, r"after can't be read: it is dict, not bytes"),
    ],
)
def test_what_can_not_be_decoded_at_all_is_refused(schema: str, given: Any, why: str) -> None:
    with pytest.raises(Rejected, match=why) as caught:
        AvroDecode("in", schema, None, parts=AFTER).apply(Record(given))
    assert caught.value.code == "wire.schema"


def run(
    decode: AvroDecode, returns: tuple[str, ...], **columns: list[bytes | None]
) -> tuple[pa.Table, list[aside.Dead]]:
    """As Spark calls a stage: what it delivers, and the dead letters."""
    [made] = stages([Node(decode)], Shape.RAW)
    stage = PythonStage("in", made.nodes, made.given, returns, TIME, typed=made.schema)
    n = len(columns["after"])
    numbers = {"seq": pa.array(range(n), pa.int64()), "part": pa.array([0] * n, pa.int32())}
    batch = pa.RecordBatch.from_pydict({**numbers, **{c: pa.array(v, pa.binary()) for c, v in columns.items()}})
    table = pa.Table.from_batches(list(pickle.loads(pickle.dumps(stage))(iter([batch]))))
    kinds = table.column("_outcome").to_pylist()
    lines = [t for t, kind in zip(table.column("_aside").to_pylist(), kinds, strict=True) if kind == aside.DEAD]
    delivered = table.filter(pa.array([kind is None for kind in kinds]))
    return delivered, [aside.decode_dead(line) for line in lines]


@pytest.mark.parametrize("parts", [AFTER, ALL], ids=["payloads", "records"])
def test_in_a_stage_one_bad_record_is_one_dead_letter(parts: frozenset[str]) -> None:
    given = [SAMPLE_DATA, SAMPLE_DATA[:-1], None, SAMPLE_DATA + b"\0", SAMPLE_DATA]
    delivered, dead = run(sample(parts), ("seq", "part", "after"), after=given)
    assert delivered.column("seq").to_pylist() == [0, 2, 4]
    assert delivered.column("after").to_pylist() == [
        None if d is None else {**SAMPLE, "more": [("k", 1.5)]} for d in (SAMPLE_DATA, None, SAMPLE_DATA)
    ]
    assert [(d.seq, d.code, d.node) for d in dead] == [(1, "wire.schema", "in"), (3, "wire.schema", "in")]
    assert dead[0].error == "after.last can't be read: the bytes do not fit their schema: the bytes end before it does"
    assert [aside.unpack(d.given["after"]) for d in dead if d.given] == [SAMPLE_DATA[:-1], SAMPLE_DATA + b"\0"]


def test_in_a_stage_key_and_before_become_objects() -> None:
    key = text_of({"id": "long", "day": logical("int", "date")})
    keys: list[bytes | None] = [compiled(key.encode()).encode({"id": 2**60, "day": date(2026, 1, 2)}), b"", None]
    columns: dict[str, list[bytes | None]] = {
        "after": [SAMPLE_DATA] * 3,
        "before": [SAMPLE_DATA, None, None],
        "key": keys,
    }
    delivered, [dead] = run(sample(ALL, key), ("seq", "part", "key", "before", "after"), **columns)
    assert delivered.column("seq").to_pylist() == [0, 2]
    assert delivered.column("key").to_pylist() == ['{"day":"2026-01-02","id":1152921504606846976}', None]
    before = json.loads(delivered.column("before").to_pylist()[0])
    assert before == {**SAMPLE, "price": -12.345, "at": "2026-01-01T00:00:00Z"}
    assert (dead.seq, dead.code) == (1, "wire.schema")
    assert dead.error.startswith("key.id can't be read")


def test_in_a_stage_what_spark_has_no_type_for_is_open() -> None:
    schema = text_of({"x": ["null", "int", "string"]})
    data = [compiled(schema.encode()).encode({"x": x}) for x in (1, "a", None)]
    delivered, [dead] = run(
        AvroDecode("in", schema, None, parts=AFTER), ("seq", "part", "after"), after=[*data, b"\x06"]
    )
    assert delivered.column("after").to_pylist() == ['{"x":1}', '{"x":"a"}', '{"x":null}']
    assert dead.error == "after.x can't be read: the bytes do not fit their schema: a union has no such branch"


def test_none_of_it_loads_spark_or_arrow() -> None:
    code = (
        "import sys, json; from penstock.host.avro_payload import AvroDecode; "
        f"AvroDecode('in', {SAMPLE_SCHEMA!r}, None, parts=frozenset({{'after'}})).typed.ddl; "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
