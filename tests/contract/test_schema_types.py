"""The spelling of a schema is a type in Spark, and the columns of typed values arrive in it as they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine import session
from penstock.plan.schema import Schema
from penstock.plan.typed import TypedDecoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = """
    s STRING NOT NULL, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT NOT NULL, f FLOAT, d DOUBLE,
    n DECIMAL(9,2), wide DECIMAL(38,0), deep DECIMAL(38,38), day DATE, t TIMESTAMP, l TIMESTAMP_NTZ, x BINARY,
    a ARRAY<INT>, ad ARRAY<DECIMAL(5,1)>, am ARRAY<MAP<STRING, TIMESTAMP>>,
    m MAP<STRING, DOUBLE>, mo MAP<STRING, STRUCT<v: ARRAY<STRING>>>,
    o STRUCT<`a b`: INT NOT NULL, `p.q`: STRUCT<`x``y`: STRING, n: DECIMAL(5,1)>>, `a``b`: INT, `$ é.😀` STRING
"""
TEXTS = [
    b"""{"s":"\\u0000 text","b":true,"i8":-128,"i16":32767,"i32":-2147483648,"i64":9223372036854775807,"f":0.1,"d":1e300,
    "n":1234567.80,"wide":99999999999999999999999999999999999999,"deep":0.00000000000000000000000000000000000001,
    "day":"0001-01-01","t":"2024-07-01T03:04:05.123456+02:00","l":"2024-03-31T02:30:00.000001","x":"/+8=",
    "a":[1,null,3],"ad":[1,"2.5",null],"am":[{"k":"1900-01-01T00:00:00Z","l":null},null,{}],
    "m":{"a":1,"b":null},"mo":{"a":{"v":["x",null]},"b":null,"c":{}},
    "o":{"a b":1,"p.q":{"x`y":"z","n":-0.5}},"a`b":7,"$ \xc3\xa9.\xf0\x9f\x98\x80":"\xf0\x9f\x98\x80"}""",
    b"",
    b'{"s":"","i64":-9223372036854775808}',
    b'{"s":"x","i64":0,"o":null,"a":[],"ad":[],"am":[],"m":{},"mo":{},"day":"9999-12-31","n":-0}',
    b'{"s":"x","i64":0,"o":{"a b":2},"t":"0001-01-01T00:00:00Z","l":"9999-12-31T23:59:59.999999"}',
]


class Fill:
    """Sent to the task; the decoder is made there."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        decoder = TypedDecoder(self.schema)
        for batch in batches:
            made = [decoder.from_json(text) for text in batch.column("text").to_pylist()]
            yield pa.RecordBatch.from_arrays([batch.column("seq"), decoder.column(made)], names=["seq", "after"])


class Show:
    """What a later Python stage sees, as text."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            found = batch.column("after").to_pylist(maps_as_pydicts="strict")
            shown = pa.array([repr(plain(v)) for v in found], pa.string())
            yield pa.RecordBatch.from_arrays([batch.column("seq"), shown], names=["seq", "shown"])


def plain(value: Any) -> Any:
    """With one spelling of UTC."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def test_every_type_arrives_in_spark_as_it_is(spark: SparkSession) -> None:
    lane = spark.newSession()
    for key, setting in session.LANE.items():
        lane.conf.set(key, setting)
    schema = Schema.parse(DDL)
    rows = lane.createDataFrame(list(enumerate(map(bytearray, TEXTS))), "seq BIGINT, text BINARY")
    typed = rows.mapInArrow(Fill(schema), f"seq BIGINT, after STRUCT<{schema.ddl}>")
    assert typed.schema["after"].dataType == lane.createDataFrame([], schema.ddl).schema

    decoder = TypedDecoder(schema)
    expected = [decoder.from_json(text) for text in TEXTS]
    shown = typed.mapInArrow(Show(), "seq BIGINT, shown STRING").orderBy("seq").collect()
    assert [r.shown for r in shown] == [repr(None if v is None else plain(decoder.to_dict(v))) for v in expected]

    first = typed.where("after.i8 = -128").selectExpr(
        "string(after.wide)", "after.n", "string(after.t)", "string(after.l)", "after.day", "hex(after.x)", "after.o.`p.q`.n",
        "string(after.am[0]['k'])", "after.mo['a'].v[0]", "after.`a``b`", "after.f = float('0.1')",
    ).collect()  # fmt: skip
    assert [tuple(r) for r in first] == [
        (
            "9" * 38, Decimal("1234567.80"), "2024-07-01 01:04:05.123456", "2024-03-31 02:30:00.000001", date(1, 1, 1), "FFEF",
            Decimal("-0.5"), "1900-01-01 00:00:00", "x", 7, True,
        )
    ]  # fmt: skip
    assert typed.where("after IS NULL").count() == 1
    assert typed.where("after.s IS NOT NULL AND after.d IS NULL").count() == 3
