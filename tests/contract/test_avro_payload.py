"""Avro payloads through a pipeline on Spark: each value arrives equal and with its type, and a record whose bytes do not fit is one dead
letter."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Pipeline
from penstock.host.avro_payload import AvroDecode
from penstock.native import Known, Limits, NativeSource, Range, Ranges, Shape
from penstock.pipeline import run
from penstock_sdk.avro import compiled
from tests.contract import test_types_table as t

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row = tuple[bytes | None, bytes | None, bytes | None]  # after, before, key


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


POINT = {
    "type": "record",
    "name": "point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
}
FIELDS: dict[str, tuple[Any, pa.DataType]] = {
    "id": ("long", pa.int64()),
    "ID": ("int", pa.int32()),  # another one
    "truth": ("boolean", pa.bool_()),
    "single": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "text": (["null", "string"], pa.string()),
    "bytes": ("bytes", pa.binary()),
    "fixed": ({"type": "fixed", "name": "f", "size": 2}, pa.binary()),
    "enum": ({"type": "enum", "name": "e", "symbols": ["RED", "GREEN"]}, pa.string()),
    "uuid": (logical("string", "uuid"), pa.string()),
    "wide": (logical("bytes", "decimal", precision=38, scale=0), pa.decimal128(38, 0)),
    "fine": (["null", logical("bytes", "decimal", precision=38, scale=38)], pa.decimal128(38, 38)),
    "date": (logical("int", "date"), pa.date32()),
    "time": (logical("long", "time-micros"), pa.string()),
    "millis": (logical("long", "timestamp-millis"), pa.timestamp("us", tz="UTC")),
    "micros": (logical("long", "timestamp-micros"), pa.timestamp("us", tz="UTC")),
    "local": (["null", logical("long", "local-timestamp-micros")], pa.timestamp("us")),
    "list": ({"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64())),
    "map": ({"type": "map", "values": {"type": "array", "items": "string"}}, pa.map_(pa.string(), pa.list_(pa.string()))),
    "point": (["null", POINT], pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    "points": ({"type": "array", "items": "point"}, pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())]))),
}  # fmt: skip
SCHEMA = json.dumps(
    {"type": "record", "name": "r", "fields": [{"name": name, "type": avro} for name, (avro, _) in FIELDS.items()]}
)
KEY = json.dumps({"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}]})
VALUES: list[dict[str, Any]] = [
    {
        "id": 2**63 - 1, "ID": -(2**31), "truth": True, "single": 0.10000000149011612, "double": 5e-324, "text": "é\0",
        "bytes": b"\x00\xff", "fixed": b"{}", "enum": "GREEN", "uuid": UUID(int=2**128 - 1), "wide": Decimal(10**38 - 1),
        "fine": Decimal("-0." + "9" * 38), "date": date(1, 1, 1), "time": time(23, 59, 59, 999999),
        "millis": datetime(1, 1, 1, tzinfo=UTC), "micros": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "local": datetime(1582, 10, 10, 1, 2, 3, 4), "list": [1, None, -(2**63)], "map": {"": [], "a": ["x", ""]},
        "point": {"x": 1, "y": None}, "points": [{"x": -1, "y": 2}, {"x": 3, "y": None}],
    },
    {
        "id": -(2**63), "ID": 2**31 - 1, "truth": False, "single": float("-inf"), "double": 1.7976931348623157e308, "text": None,
        "bytes": b"", "fixed": b"\xff\xff", "enum": "RED", "uuid": UUID(int=0), "wide": Decimal(1 - 10**38), "fine": None,
        "date": date(9999, 12, 31), "time": time(0), "millis": datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        "micros": datetime(1, 1, 1, tzinfo=UTC), "local": None, "list": [], "map": {}, "point": None, "points": [],
    },
]  # fmt: skip
ENCODE = compiled(SCHEMA.encode()).encode
DATA = [ENCODE(v) for v in VALUES]


class Sent(NativeSource[None]):
    """What a plugin program has sent, once."""

    shape = Shape.RAW

    def __init__(self, rows: Sequence[Row], decode: AvroDecode) -> None:
        super().__init__(None, "in")
        self.rows = rows
        self.processors = (decode,)

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        n = len(self.rows)
        return None if known.next_seq else Ranges((Range("sent", {"from": 0, "to": n}, 0, n),), n)

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        rows = [(i, b"%d" % i, *map(bytearray_or_none, row)) for i, row in enumerate(self.rows)]
        made = spark.createDataFrame(rows, "seq LONG, position BINARY, after BINARY, before BINARY, key BINARY")
        return made.select(*(c for c in made.columns if c in columns))

    def promised(self, ranges: Ranges) -> int:
        return len(self.rows)

    def wait(self, timeout: float) -> None:
        """Never: it is idle."""


def bytearray_or_none(value: bytes | None) -> bytearray | None:
    return None if value is None else bytearray(value)


class Bench:
    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark

    def run(self, rows: Sequence[Row], decode: AvroDecode, form: str = "parquet") -> list[dict[str, Any]]:
        """The dead letters."""
        p = Pipeline("p").source("in", Sent(rows, decode)).destination("out", "files", path=self.out, format=form)
        run([p.dead_letter_queue(window=0)], spark=self.spark, state=self.root / "state").raise_for_error()
        return t.letters(self.root / "state")

    @property
    def out(self) -> Path:
        return self.root / "out"

    def table(self) -> pa.Table:
        return pa.concat_tables(pq.ParquetFile(path).read() for path in t.outputs(self.out, ".parquet"))


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


def expected(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: expected(v) for k, v in value.items()}
    return str(value) if isinstance(value, UUID) else value.isoformat() if isinstance(value, time) else value


@pytest.mark.parametrize("parts", [{"after"}, {"after", "before", "key"}], ids=["after", "all parts"])
def test_every_value_arrives_and_one_bad_record_is_one_dead_letter(bench: Bench, parts: set[str]) -> None:
    key = compiled(KEY.encode()).encode({"id": 1})
    rows: list[Row] = [
        (DATA[0], DATA[1], key),
        (DATA[0][:-1], None, key),
        (DATA[1], None, None),
    ]
    letters = bench.run(rows, AvroDecode("in", SCHEMA, KEY, parts=frozenset(parts)))
    table = bench.table().sort_by([("id", "descending")])
    assert table.to_pylist(maps_as_pydicts="strict") == list(map(expected, VALUES))
    for name, (_, type_) in FIELDS.items():
        found = table.schema.field(name).type
        assert bare(found) == bare(type_), name
    [letter] = letters
    assert letter["code"] == "wire.schema"
    assert "can't be read: the bytes do not fit their schema" in letter["error"]
    assert letter["given"]["after"] == {"base64": b64encode(DATA[0][:-1]).decode()}


def bare(type_: pa.DataType) -> Any:
    """Without the names that writers give to items, and without what may be NULL."""
    if pa.types.is_map(type_):
        return "map", bare(type_.key_type), bare(type_.item_type)
    if pa.types.is_list(type_):
        return "list", bare(type_.value_type)
    if pa.types.is_struct(type_):
        return "struct", [(f.name, bare(f.type)) for f in type_]
    return type_


def test_a_schema_that_nobody_knows_is_a_dead_letter_for_each_record(bench: Bench) -> None:
    rows: list[Row] = [(data, None, None) for data in DATA]
    letters = bench.run(
        rows, AvroDecode("in", None, None, "schema a version 3 is not known", parts=frozenset({"after"})), "json"
    )
    assert [(x["code"], x["error"]) for x in letters] == [("wire.schema", "schema a version 3 is not known")] * 2
    assert t.outputs(bench.out, ".jsonl") == []


def test_what_spark_has_no_type_for_goes_on_as_an_object(bench: Bench) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": ["long", "string", "bytes"]}]})
    encode = compiled(schema.encode()).encode
    rows: list[Row] = [(encode({"x": x}), None, None) for x in (2**63 - 1, "a", b"\x00")]
    assert bench.run([*rows, (b"\x09", None, None)], AvroDecode("in", schema, None, parts=frozenset({"after"})), "json")
    lines = [json.loads(line) for path in t.outputs(bench.out, ".jsonl") for line in path.read_text().splitlines()]
    assert lines == [{"x": 2**63 - 1}, {"x": "a"}, {"x": "AA=="}]
