"""The field processors as Spark columns come to what they do to dicts, record by record."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock import record
from penstock.engine import session
from penstock.engine.trap import trap
from penstock.native import Columns, Record, Reject, Shape, Stop, Where
from penstock.plan.moment import Moment
from penstock.plugins import builtin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BAD = "bad"


@pytest.fixture(scope="module")
def lane(spark: SparkSession) -> SparkSession:
    return session.for_lane(spark)


def made(plugin: str, **settings: str) -> Any:
    cls = builtin.settings_class("processor", plugin)
    return builtin.implementation("processor", plugin)(cls(**settings), "p")


def in_columns(lane: SparkSession, p: Any, ddl: str, rows: list[Any], **others: Any) -> list[Any]:
    """What becomes of each payload: (payload, metadata, namespace, operation), or BAD. Trapped, as the engine does it."""
    from pyspark.sql import functions as F

    assert p.where(Shape.TYPED) is Where.SPARK
    schema = f"i int, metadata map<string,string>, namespace string, operation string, after struct<{ddl}>"
    places = others.get("places") or [(None, None)] * len(rows)
    given = [(i, *place, "create", row) for i, (row, place) in enumerate(zip(rows, places, strict=True))]
    frame = lane.createDataFrame(given, schema).repartition(1)
    columns = {c: F.col(c) for c in frame.columns if c in record.COLUMNS}
    step = p.compile(Columns(columns, Shape.TYPED, frame.schema))
    parts = {name: step.set.get(name, F.col(name)) for name in columns} | {
        "reject": F.lit(None) if step.reject is None else step.reject
    }
    value = F.struct(*(v.alias(k) for k, v in parts.items()))
    found = frame.select("i", trap(value).alias("t")).orderBy("i").collect()
    return [BAD if row.t is None or row.t.value.reject is not None else seen(row.t.value) for row in found]


def seen(row: Any) -> tuple[Any, ...]:
    after = None if row.after is None else row.after.asDict(recursive=True)
    return after, row.metadata, row.namespace, row.operation


def in_dicts(p: Any, rows: list[Any], names: list[str], **others: Any) -> list[Any]:
    found: list[Any] = []
    places = others.get("places") or [(None, None)] * len(rows)
    for row, (metadata, namespace) in zip(rows, places, strict=True):
        after = None if row is None else {n: plain(v) for n, v in zip(names, row, strict=True)}
        r = Record(after, metadata=dict(metadata or {}), namespace=namespace)
        try:
            result = p.apply(copy.deepcopy(r))
        except Exception:
            result = Reject("")
        if isinstance(result, Reject):
            found.append(BAD)
            continue
        own = {k: v for k, v in result.metadata.items() if k != "opencdc.collection"}
        found.append((result.after, own, result.namespace, result.operation))
    return found


def plain(value: Any) -> Any:
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def without_nulls(value: Any) -> Any:
    """A struct can't leave a field out: NULL and missing are the same here."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, float) and value != value:
        return "NaN"
    return (type(value).__name__, value) if isinstance(value, int | float | bool) else value


def same(lane: SparkSession, p: Any, ddl: str, rows: list[Any], names: list[str], **others: Any) -> list[Any]:
    columns = in_columns(lane, p, ddl, rows, **others)
    dicts = in_dicts(p, rows, names, **others)
    for row, a, b in zip(rows, columns, dicts, strict=True):
        if a == BAD or b == BAD:
            assert a == b, f"{row!r}: {a!r} in columns, {b!r} in dicts"
            continue
        a, b = (a[0], a[1] or {}, *a[2:]), b
        assert without_nulls(a[0]) == without_nulls(b[0]), f"{row!r}: {a[0]!r} in columns, {b[0]!r} in dicts"
        assert a[1:] == b[1:], row
    return columns


DDL = "n int, s string, a struct<b: string, `x.y`: int, c: struct<d: int>>, l array<int>, m map<string,string>, `a``b` int"
NAMES = ["n", "s", "a", "l", "m", "a`b"]
ROWS: list[Any] = [
    (1, "t", {"b": "c", "x.y": 2, "c": {"d": 3}}, [1, 2], {"k": "v", "z": "1"}, 5),
    (None, None, None, None, None, None),
    (2, "", {"b": None, "x.y": None, "c": None}, [], {}, 6),
    None,
]


def rows() -> list[Any]:
    from pyspark.sql import Row

    def a(value: Any) -> Any:
        return value and Row(**{**value, "c": value["c"] and Row(**value["c"])})

    return [row and (row[0], row[1], a(row[2]), *row[3:]) for row in ROWS]


FIELDS = [
    ".Payload.After.n",
    ".Payload.After.new",
    ".Payload.After.new.deep.er",
    ".Payload.After.a",
    ".Payload.After.a.b",
    ".Payload.After.a.new",
    '.Payload.After.a["x.y"]',
    ".Payload.After.a.c.d",
    ".Payload.After.a.c.new.x",
    ".Payload.After.s.sub",
    ".Payload.After.l.sub",
    ".Payload.After.m",
    ".Payload.After.m.k",
    ".Payload.After.m.new",
    ".Payload.After.m.k.sub",
    '.Payload.After["a`b"]',
    '.Payload.After["n.m"]',
    ".Payload.After.N",
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_set(lane: SparkSession, field: str) -> None:
    p = made("field.set", field=field, value="v'`\"")
    if field == ".Payload.After.m.k.sub":
        with pytest.raises(Stop, match="can't be set"):
            in_columns(lane, p, DDL, rows())
        return
    found = same(lane, p, DDL, rows(), NAMES)
    assert any(one != BAD for one in found)


@pytest.mark.parametrize("field", [f for f in FIELDS if f != ".Payload.After.m.k.sub"])
def test_a_field_is_excluded(lane: SparkSession, field: str) -> None:
    same(lane, made("field.exclude", fields=field), DDL, rows(), NAMES)


def test_every_field_is_excluded(lane: SparkSession) -> None:
    fields = ",".join(f for f in FIELDS if "m.k.sub" not in f and ".sub" not in f)
    same(lane, made("field.exclude", fields=fields), DDL, rows(), NAMES)
    same(lane, made("field.exclude", fields=".Payload.After.x"), "x int", [(1,)], ["x"])


@pytest.mark.parametrize("name", ["s", "b"])
@pytest.mark.parametrize("field", [f for f in FIELDS if f != ".Payload.After.m.k.sub"])
def test_a_field_is_renamed(lane: SparkSession, field: str, name: str) -> None:
    same(lane, made("field.rename", mapping=f"{field}:{name}"), DDL, rows(), NAMES)


def test_several_fields_are_renamed_in_order(lane: SparkSession) -> None:
    mapping = ".Payload.After.n:t,.Payload.After.s:n,.Payload.After.t:s,.Metadata.k:z"
    places = [({"k": "1"}, None)] * len(ROWS)
    found = same(lane, made("field.rename", mapping=mapping), DDL, rows(), NAMES, places=places)
    assert found[0][0]["n"] == "t"


PLACES: list[tuple[str, dict[str, str]]] = [
    ("field.set", {"field": ".Metadata.k", "value": "v"}),
    ("field.set", {"field": ".Metadata.new", "value": "v"}),
    ("field.set", {"field": "namespace", "value": "v"}),
    ("field.set", {"field": ".Operation", "value": "delete"}),
    ("field.set", {"field": ".Operation", "value": "2"}),
    ("field.set", {"field": ".Operation", "value": "nonsense"}),
    ("field.exclude", {"fields": ".Metadata.k"}),
    ("field.exclude", {"fields": ".Metadata.missing,.Payload.After.n"}),
    ("field.exclude", {"fields": '.Metadata["opencdc.collection"]'}),
    ("field.exclude", {"fields": ".Metadata"}),
    ("field.exclude", {"fields": ".Payload.After"}),
    ("field.rename", {"mapping": ".Metadata.k:new"}),
    ("field.rename", {"mapping": ".Metadata.k:z"}),
    ("field.rename", {"mapping": ".Metadata.missing:x"}),
    ("field.rename", {"mapping": ".Metadata.k:opencdc.collection"}),
    ("field.rename", {"mapping": "namespace:x"}),
]


@pytest.mark.parametrize("plugin, settings", PLACES)
def test_metadata_and_operation(lane: SparkSession, plugin: str, settings: dict[str, str]) -> None:
    places = [(m, n) for m in (None, {}, {"k": "1"}, {"k": "1", "z": "2"}) for n in (None, "users")]
    same(lane, made(plugin, **settings), "n int", [(1,)] * len(places), ["n"], places=places)


TEXTS = re.split(
    r"\s+",
    """0 1 -1 +5 007 -0 00000000000000000000000000000000000000001 9223372036854775807 9223372036854775808
-9223372036854775808 -9223372036854775809 1_000 1__0 _1 1_ 1.0 1.5 1.9 -1.9 .5 5. . 1e3 1E5 1e+ 1e1_0 1e400 -1e400 1e-400 1e99999999999
0x10 0x1p4 0X1P-2 0x_1.8p1_0 0x1p99999 0b11 inf -Inf +INFINITY infin nan NaN -nan 1d 1f true TRUE True t T false F yes on
2024-02-29T23:59:59Z 2024-02-29t23:59:59Z 2024-02-29T23:59:59z 2024-02-29T23:59:59.5+02:00 2024-02-29T23:59:59.123456789Z
2024-02-29T23:59:59,5-01:30 2024-02-29T23:59:59.Z 2024-02-29T23:59:60Z 2024-02-29T24:00:00Z 2024-02-29T3:59:59Z 2024-02-29T23:59:59+24:00
2024-02-29T23:59:59+25:00 2024-02-29T23:59:59+02:60 2024-02-29T23:59:59+02:61 2024-02-29T23:59:59+0200 2024-02-29T23:59:59
2023-02-29T00:00:00Z 2024-13-01T00:00:00Z 0000-01-01T00:00:00Z 0001-01-02T00:00:00Z 9999-12-31T23:59:59Z 2024-02-29
1700000000000000000 -7 42 é <nil>""",
)
VALUES: dict[str, list[Any]] = {
    "string": [*TEXTS, None, "", " 1", "1 ", "1\n", "\n", "٣", "a\x00b", "2024-02-29T23:59:59Z\n"],
    "binary": [None, b"", b"5", b"true", b"1.5", b"2024-02-29T23:59:59Z", b"\xff"],
    "boolean": [True, False, None],
    "tinyint": [0, 1, -7, None],
    "int": [0, 1, 1000000, None],
    "bigint": [0, 1, -7, 2**53 + 1, 2**63 - 1, -(2**63), 1700000000123456789, None],
    "decimal(10,0)": [Decimal(0), Decimal(1), Decimal(-7), None],
    "decimal(10,2)": [Decimal("0.00"), Decimal("1.00"), Decimal("1.50"), None],
    "decimal(38,0)": [Decimal(2**63), Decimal(2**63 - 1), Decimal(-(2**63)), Decimal(10**37)],
    "decimal(38,30)": [Decimal("0.000000000000000000000000000001"), Decimal("1." + "0" * 30)],
    "float": [0.0, 1.0, -0.0, 0.10000000149011612, 16777216.0, float("nan"), float("inf"), None],
    "double": [
        0.0, 1.0, -0.0, 5.0, 1.5, 1e21, 1e300, 1e-7, float("nan"), float("inf"), float("-inf"), 2.0**53, 2.0**53 - 1, 2.0**60,
        2.0**62 + 2.0**12, 1e18, 123456789012345678.0, 9223372036854774784.0, 2.0**63, -(2.0**63), -9007199254740994.0,
        1.7e18, 8.41e17, None,
    ],
    "date": [date(2024, 2, 29), None],
    "timestamp": [datetime(2024, 2, 29, 23, 59, 59, 123400), datetime(2024, 2, 29), datetime(1969, 12, 31, 23, 59, 59, 5), None],
    "timestamp_ntz": [datetime(2024, 2, 29, 23, 59, 59, 100), None],
    "array<int>": [[1, 2], [], None],
    "struct<x:int>": [(1,), None],
    "map<string,int>": [{"a": 1}, {}, None],
    "void": [None],
}  # fmt: skip
UNSUPPORTED = {"float", "double", "array<int>", "struct<x:int>", "map<string,int>"}  # as text


@pytest.mark.parametrize("to", ["string", "int", "float", "bool", "time"])
@pytest.mark.parametrize("type_", VALUES)
def test_a_field_is_converted(lane: SparkSession, type_: str, to: str) -> None:
    from pyspark.sql import Row

    p = made("field.convert", field=".Payload.After.v", type=to)
    given = [(Row(x=v[0]) if isinstance(v, tuple) else v,) for v in VALUES[type_]]
    if to == "string" and type_ in UNSUPPORTED:
        with pytest.raises(Stop, match="can't be converted to string") as caught:
            in_columns(lane, p, f"v {type_}", given)
        assert caught.value.code == "processor.unsupported"
        return
    columns = in_columns(lane, p, f"v {type_}", given)
    local = datetime.now().astimezone().tzinfo  # Spark takes and gives such times as those of this machine
    dicts = in_dicts(p, [(v and v.replace(tzinfo=local),) if type_ == "timestamp" else (v,) for (v,) in given], ["v"])
    for row, a, b in zip(given, columns, dicts, strict=True):
        if to == "string" and row[0] == b"\xff":
            assert a == BAD  # a dict holds it, and nothing that text can be written to
            continue
        if b != BAD and isinstance(b[0]["v"], Moment):
            assert a == BAD  # a column holds microseconds, and nothing is cut off
            continue
        assert (a == BAD) == (b == BAD), f"{row!r}: {a!r} in columns, {b!r} in dicts"
        if a != BAD:
            assert without_nulls(a[0]) == without_nulls(b[0]), row


def test_what_is_missing_is_converted_like_null(lane: SparkSession) -> None:
    for to in ("string", "int"):
        same(lane, made("field.convert", field=".Payload.After.x.y", type=to), "v int", [(1,)], ["v"])


def test_a_converted_field_can_be_written(lane: SparkSession) -> None:
    found = in_columns(lane, made("field.convert", field=".Payload.After.v", type="int"), "v string", [("42",)])
    assert json.dumps(found[0][0]) == '{"v": 42}'
