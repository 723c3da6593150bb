"""Parquet as other tools write it, fields with odd names, values that a format or Python has no form for: kept, or a nack or a
dead file that names what it was. Written and read with pyarrow, json and by hand.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Record, processor
from penstock.errors import Stop
from tests.contract import test_types_table as t
from tests.contract.test_types import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


# -- other tools ----------------------------------------------------------------------------------------------------------------

# what Spark makes of it: (what was written, the type and the value that arrive)
READ: dict[str, tuple[pa.Array, pa.DataType, Any]] = {
    "milliseconds": (pa.array([1], pa.timestamp("ms", tz="UTC")), t.INSTANT, t.at(1970, 1, 1, 0, 0, 0, 1000)),
    "another zone": (pa.array([0], pa.timestamp("us", tz="Asia/Kathmandu")), t.INSTANT, t.at(1970, 1, 1)),
    "seconds": (pa.array([60], pa.timestamp("s")), t.LOCAL, datetime(1970, 1, 1, 0, 1)),
    "uint8": (pa.array([255], pa.uint8()), pa.int16(), 255),
    "uint16": (pa.array([65535], pa.uint16()), pa.int32(), 65535),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), pa.int64(), 2**32 - 1),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), Decimal(2**64 - 1)),
    "dictionary": (pa.array(["x"]).dictionary_encode(), pa.string(), "x"),
    "large string": (pa.array(["x"], pa.large_string()), pa.string(), "x"),
    "string view": (pa.array(["x"], pa.string_view()), pa.string(), "x"),
    "large binary": (pa.array([b"x"], pa.large_binary()), pa.binary(), b"x"),
    "fixed binary": (pa.array([b"xy"], pa.binary(2)), pa.binary(), b"xy"),
    "large list": (pa.array([[1, None]], pa.large_list(pa.int32())), pa.list_(pa.int32()), [1, None]),
    "fixed list": (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), pa.list_(pa.int32()), [1, 2]),
    "duration": (pa.array([timedelta(seconds=1)], pa.duration("us")), pa.int64(), 1_000_000),
    "date64": (pa.array([date(2024, 2, 29)], pa.date64()), pa.date32(), date(2024, 2, 29)),
    "decimal256": (pa.array([Decimal("9" * 38)], pa.decimal256(38, 0)), pa.decimal128(38, 0), Decimal("9" * 38)),
    "decimal32": (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), pa.decimal128(5, 2), Decimal("1.50")),
    "nothing": (pa.nulls(1), pa.int32(), None),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), pa.string(), "{}"),
    "before Christ": (pa.array([-1_000_000], pa.int32()).cast(pa.date32()), pa.date32(), "-0768-02-04"),
    "far away": (pa.array([10**18], pa.int64()).cast(t.INSTANT), t.INSTANT, 10**18),
    "__index_level_0__": (pa.array([7]), pa.int64(), 7),
}
UNREADABLE: dict[str, pa.Array] = {
    "ns": pa.array([1], pa.timestamp("ns", tz="UTC")),
    "ns of day": pa.array([1], pa.time64("ns")),
    "us of day": pa.array([time(1, 2, 3, 4)], pa.time64("us")),
    "ms of day": pa.array([1], pa.time32("ms")),
    "half": pa.array([1.5], pa.float16()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16))),
    "forty digits": pa.array([Decimal("9" * 40)], pa.decimal256(40, 0)),
}
ODD = ("before Christ", "far away")  # to be compared as numbers: Python has no such years


def test_parquet_of_other_tools(bench: Bench) -> None:
    folder, out, lines = bench.root / "in", bench.root / "out", bench.root / "json"
    arrays = {name: array for name, (array, _, _) in READ.items()}
    t.write(folder, pa.table({"id": ["0"], **arrays}), "0.parquet")
    old = pa.table({"id": ["1"], "int96": pa.array([datetime(1500, 1, 1, 0, 0, 0, 1)], t.INSTANT)})
    t.write(folder, old, "1.parquet", use_deprecated_int96_timestamps=True)
    names = pa.table({"id": ["2"], "list": pa.array([[1, None]], pa.list_(pa.int32()))})
    t.write(folder, names, "2.parquet", use_compliant_nested_type=False)
    for name, array in UNREADABLE.items():
        t.write(folder, pa.table({"id": ["x"], name: array}), f"{name.replace(' ', '-')}.parquet")
    p = bench.source(folder, format="parquet")
    p.destination("out", "files", path=out, format="parquet").destination("json", "files", path=lines, format="json")
    errors = {x["error"] for x in bench.run(p)}
    for name in UNREADABLE:
        found = [e for e in errors if f"{name.replace(' ', '-')}.parquet" in e]
        assert len(found) == 1, f"{name}: {errors}"
        assert repr(name) in found[0], f"{found[0]} does not name the column"
    assert len(errors) == len(UNREADABLE)
    rows: dict[str, pa.Table] = {}
    for path in t.outputs(out, ".parquet"):
        table = pq.ParquetFile(path).read()
        rows[table.column("id")[0].as_py()] = table
    assert sorted(rows) == ["0", "1", "2"]
    for name, (array, type_, value) in READ.items():
        column = rows["0"].column(name).combine_chunks()
        assert column.type == type_ or pa.types.is_list(type_), name
        if name in ODD:
            assert (
                column.view(pa.int64() if name == "far away" else pa.int32()).to_pylist()
                == array.view(pa.int64() if name == "far away" else pa.int32()).to_pylist()
            )
        else:
            assert t.same(column[0].as_py(), value), f"{name} is {column[0]}"
    assert rows["1"].column("int96")[0].as_py() == t.at(1500, 1, 1, 0, 0, 0, 1)
    assert rows["2"].column("list")[0].as_py() == [1, None]
    text = {r["id"]: r for r in t.json_rows(lines)}
    assert text["0"]["uint64"] == 2**64 - 1
    assert text["0"]["before Christ"] == "-0768-02-04"
    assert text["0"]["far away"] == "+33658-09-27T01:46:40.000000Z"
    assert text["0"]["nothing"] is None
    assert text["1"]["int96"] == "1500-01-01T00:00:00.000001Z"


BEGIN = "<!-- from tests/contract/test_types_foreign.py -->\n"
SPARK = {
    "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "decimal128(20, 0)": "DECIMAL(20,0)", "string": "STRING", "binary": "BINARY",
    "decimal128(38, 0)": "DECIMAL(38,0)", "decimal128(5, 2)": "DECIMAL(5,2)", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP_NTZ",
    "timestamp[us, tz=UTC]": "TIMESTAMP", "list<item: int32>": "ARRAY<INT>",
}  # fmt: skip


def markdown() -> str:
    lines = ["| as Arrow writes it | arrives as |", "|---|---|"]
    seen = {}
    for name, (array, type_, _) in READ.items():
        if name not in (*ODD, "__index_level_0__"):
            seen[_arrow(array.type)] = f"`{SPARK[str(type_)]}`"
    seen |= {_arrow(array.type): "can't be read: the file is a dead letter" for array in UNREADABLE.values()}
    return "\n".join([*lines, *(f"| `{name}` | {text} |" for name, text in sorted(seen.items()))]) + "\n"


def _arrow(type_: pa.DataType) -> str:
    return str(type_).replace("extension<arrow.", "").replace(">", "") if "extension" in str(type_) else str(type_)


def test_the_page_shows_what_other_tools_write() -> None:
    assert t.PAGE.read_text().partition(BEGIN)[2].partition(t.END)[0] == markdown()


# -- what has no form -------------------------------------------------------------------------------------------------------------

NO_TEXT = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())
NO_PYTHON: dict[str, pa.Array] = {
    "text": NO_TEXT,
    "day": pa.array([0, -1_000_000], pa.int32()).cast(pa.date32()),
    "at": pa.array([0, 10**18], pa.int64()).cast(t.INSTANT),
    "local": pa.array([0, -(10**17)], pa.int64()).cast(t.LOCAL),
    "twice": pa.MapArray.from_arrays([0, 1, 3], pa.array(["a", "a", "a"]), pa.array([1, 2, 3])),
    "deep": pa.StructArray.from_arrays([pa.array([0, 10**18], pa.int64()).cast(t.INSTANT)], ["x"]),
}


@processor
def by_record(r: Record) -> Record:
    return r


@processor(batch=True)
def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def single(arrays: dict[str, pa.Array], which: Sequence[int]) -> pa.Table:
    """A record for each field: the value at `which` there, and NULL in the others."""
    rows = [(name, i) for name in arrays for i in which]
    columns = {
        name: array.take(pa.array([i if n == name else None for n, i in rows], pa.int64()))
        for name, array in arrays.items()
    }
    return pa.table({"id": [f"{name}/{i}" for name, i in rows], **columns})


@pytest.mark.parametrize("function", [by_record, by_batch], ids=["record", "batch"])
def test_what_python_has_no_value_for_costs_its_record_and_names_the_field(bench: Bench, function: Any) -> None:
    t.write(bench.root / "in", single(NO_PYTHON, [0, 1]))
    p = bench.source(bench.root / "in", format="parquet").processor("f", function)
    nacked = bench.run(p.destination("out", "files", path=bench.root / "out", format="json"))
    assert {x["given"]["after"]["value"]["id"] for x in nacked} == {f"{name}/1" for name in NO_PYTHON}
    for x in nacked:
        name = x["given"]["after"]["value"]["id"].partition("/")[0]
        assert repr(name) in x["error"]
    assert {r["id"] for r in t.json_rows(bench.root / "out")} == {f"{name}/0" for name in NO_PYTHON}


def test_text_that_is_not_utf8_stays_in_parquet_and_is_a_nack_elsewhere(bench: Bench) -> None:
    bad = {
        "text": NO_TEXT,
        "list": pa.ListArray.from_arrays([0, 1, 2], NO_TEXT),
        "keys": pa.MapArray.from_arrays([0, 1, 2], NO_TEXT, pa.array([1, 2])),
        "inside": pa.StructArray.from_arrays([NO_TEXT], ["x"]),
    }
    t.write(bench.root / "in", single(bad, [0, 1]))
    p = bench.source(bench.root / "in", format="parquet")
    for name in ("parquet", "json"):
        p.destination(name, "files", path=bench.root / name, format=name)
    nacked = bench.run(p)
    assert {x["destination"] for x in nacked} == {"json"}
    assert sorted(x["given"]["after"]["value"]["id"] for x in nacked) == sorted(f"{name}/1" for name in bad)
    assert all(repr(x["given"]["after"]["value"]["id"].partition("/")[0]) in x["error"] for x in nacked)
    [path] = t.outputs(bench.root / "parquet", ".parquet")
    kept = pq.ParquetFile(path).read().column("text").combine_chunks().view(pa.binary())
    assert kept.drop_null().to_pylist() == [b"fine", b"\xff\xfe"]


def test_a_field_that_sql_sets_to_null_has_a_type_or_an_error_that_says_so(bench: Bench) -> None:
    t.write(bench.root / "in", pa.table({"id": ["0"]}))
    p = bench.source(bench.root / "in", format="parquet")
    p.processor("nothing", "sql", expression="NULL", field=".Payload.After.x")
    p.destination("json", "files", path=bench.root / "json", format="json")
    assert bench.run(p) == []
    assert t.json_rows(bench.root / "json") == [{"id": "0", "x": None}]


INNER = {
    "month": "INTERVAL '1' MONTH",
    "day": "INTERVAL '1' DAY",
    "variant": """parse_json('{"a": 1.5}')""",
}


def test_intervals_and_variants_are_named_where_they_can_not_be_kept(bench: Bench) -> None:
    names = " UNION ALL ".join(f"SELECT '{name}' AS id" for name in INNER)
    parts = [f"if(id = '{name}', {value}, NULL) AS `{name}`" for name, value in INNER.items()]
    bench.spark.sql(f"SELECT id, {', '.join(parts)} FROM ({names})").coalesce(1).write.parquet(str(bench.root / "in"))
    p = bench.source(bench.root / "in", format="parquet")
    for name in ("parquet", "json", "csv"):
        p.destination(name, "files", path=bench.root / name, format=name)
    nacked = bench.run(p)
    found = sorted((x["destination"], x["given"]["after"]["value"]["id"]) for x in nacked)
    assert found == [("csv", "day"), ("csv", "month"), ("csv", "variant"), ("json", "day"), ("json", "month")]
    assert all(f"'{x['given']['after']['value']['id']}'" in x["error"] for x in nacked)
    assert [r["variant"] for r in t.json_rows(bench.root / "json")] == [{"a": Decimal("1.5")}]
    assert len(t.parquet_rows(bench.root / "parquet")) == 3

    for name in ("month", "variant"):
        p = bench.source(bench.root / "in", format="parquet", columns=f"id, {name}").processor("f", by_record)
        p.destination("out", "files", path=bench.root / f"out-{name}", format="json")
        with pytest.raises(Stop, match=f"can't be given the field '{name}'"):
            bench.run(p)


# -- names ----------------------------------------------------------------------------------------------------------------------

NAMES = (
    "a b", "a.b", "a`b", "value", "after", "key", "source", "metadata", "_metadata", "_order", "_folder", "_outcome", "_aside", "_given",
    "_kept", "_path", "_base", "_in_file", "seq", "part", "position", "é😀", "a", "A", "a,b;{}()=\t", '"q"', "'s'", "line\nbreak", " ",
)  # fmt: skip
ROW = {"id": "0", **{name: f"v{i}" for i, name in enumerate(NAMES)}}
EMPTY = {"id": "1", **dict.fromkeys(NAMES)}
DDL = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in ROW)


@pytest.mark.parametrize("way", ["alone", "together", "folders", "sql", "python", "batch", "field.set"])
def test_fields_may_have_any_name(bench: Bench, way: str) -> None:
    t.write(bench.root / "in", pa.Table.from_pylist([ROW, EMPTY]))
    p = bench.source(bench.root / "in", format="parquet")
    formats = {"alone": ["parquet"], "folders": ["parquet", "json", "csv"], "together": ["parquet", "json", "csv"]}
    extra: dict[str, Any] = {}
    if way == "sql":
        p.processor("x", "sql", expression="after.`a.b`", field=".Payload.After.new")
    if way == "field.set":
        p.processor("x", "field.set", field=".Payload.After._order", value="set")
    if way in ("python", "batch"):
        p.processor("x", by_record if way == "python" else by_batch)
        extra = {"schema": DDL}
    for name in formats.get(way, ["parquet", "json"]):
        folder = f"{bench.root / name}" + ("/{after.id}" if way == "folders" else "")
        p.destination(name, "files", path=folder, format=name, **(extra if name == "parquet" else {}))
    assert bench.run(p) == []
    full, nothing = dict(ROW), dict(EMPTY)
    if way == "sql":
        full["new"], nothing["new"] = full["a.b"], None
    if way == "field.set":
        full["_order"] = nothing["_order"] = "set"

    def ordered(rows: Any) -> list[Any]:
        return sorted(rows, key=lambda r: str(r["id"]))

    assert ordered(t.parquet_rows(bench.root / "parquet")) == [full, nothing]
    for name, read in (("json", t.json_rows), ("csv", t.csv_rows)):
        if name in formats.get(way, ["parquet", "json"]):
            assert ordered(read(bench.root / name)) == [full, nothing], name


# -- csv ------------------------------------------------------------------------------------------------------------------------

FIRST = tuple(v for v in t.BY_NAME["string"].values if v != t.MEGABYTE)


@pytest.mark.parametrize("columns", [1, 2])
def test_csv_keeps_texts_in_its_first_and_in_its_only_column(bench: Bench, columns: int) -> None:
    values = [v for v in FIRST if "\n" not in v]
    made = {"text": values} if columns == 1 else {"text": [*values, None], "n": list(range(len(values) + 1))}
    t.write(bench.root / "in", pa.table(made))
    lines, back, whole = bench.root / "csv", bench.root / "back", bench.root / "whole"
    p = bench.source(bench.root / "in", format="parquet")
    assert bench.run(p.destination("out", "files", path=lines, format="csv")) == []
    assert [r["text"] for r in t.csv_rows(lines)] == made["text"]
    [path] = t.outputs(lines, ".csv")
    plain = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))  # as Python's own reader sees it
    assert [row[0] for row in plain[1:]] == [v or "" for v in made["text"]]
    for folder, more in ((back, {}), (whole, {"multi-line": True})):
        p = bench.source(lines, format="csv", **more)
        nacked = bench.run(p.destination("out", "files", path=folder, format="parquet"))
        wrong = [f"nacked: {x['given']['after']}: {x['error']}" for x in nacked]
        got = [r["text"] for r in t.parquet_rows(folder)]
        wrong += [f"{a!r} is {b!r}" for a, b in zip(made["text"], got, strict=False) if a != b]
        t.clean(wrong if len(got) == len(made["text"]) else [*wrong, f"{len(got)} of {len(made['text'])}", str(got)])


EXACT = {
    "BIGINT": (("9007199254740993", 2**53 + 1), ("-1", -1)),
    "DECIMAL(9,2)": (("1.5", Decimal("1.50")), ("1.500", Decimal("1.50")), ("15e-1", Decimal("1.50"))),
    "DOUBLE": (("9007199254740992", 2.0**53), ("0.1", 0.1), ("-0.0", -0.0), ("1e300", 1e300)),
    "FLOAT": (("16777216", 16777216.0), ("0.5", 0.5)),
    "DATE": (("2024-02-29", date(2024, 2, 29)),),
    "TIMESTAMP": (("2024-02-29T12:00:00+05:45", t.at(2024, 2, 29, 6, 15)), ("2024-02-29 12:00:00Z", t.at(2024, 2, 29, 12))),
    "TIMESTAMP_NTZ": (("2024-02-29T12:00:00.000001", datetime(2024, 2, 29, 12, 0, 0, 1)),),
    "BOOLEAN": (("true", True), ("FALSE", False)),
}  # fmt: skip
INEXACT = {
    "TINYINT": ("128", "1.5", "x", "1e1"),
    "BIGINT": ("9223372036854775808", "1.0", "0x1"),
    "DECIMAL(9,2)": ("1.555", "12345678", "NaN", "1e-3", "1_0"),
    "DOUBLE": ("9007199254740993", "1e400", "1d", "x"),
    "FLOAT": ("16777217", "1e39"),
    "DATE": ("2024-02-30", "2024-02-29T12:00:00", "29.02.2024"),
    "TIMESTAMP": ("2024-02-29T12:00:00", "12:00:00Z", "T12:00:00Z", "2024-02-29T12:00:00.1234567Z", "2024-02-29"),
    "TIMESTAMP_NTZ": ("2024-02-29T12:00:00Z", "12:00:00", "2024-02-29T25:00:00"),
    "BOOLEAN": ("2", "maybe"),
}  # fmt: skip


JSON_EXACT: dict[str, tuple[tuple[str, Any], ...]] = {
    "BIGINT": (("9007199254740993", 2**53 + 1),),
    "DECIMAL(9,2)": (("1.5", Decimal("1.50")), ('"1.5"', Decimal("1.50")), ("15e-1", Decimal("1.50"))),
    "DOUBLE": (("9007199254740992", 2.0**53), ("0.1", 0.1), ("-0.0", -0.0)),
    "FLOAT": (("0.1", 0.10000000149011612),),
    "DATE": (('"2024-02-29"', date(2024, 2, 29)),),
    "TIMESTAMP": (('"2024-02-29T12:00:00+05:45"', t.at(2024, 2, 29, 6, 15)),),
    "TIMESTAMP_NTZ": (('"2024-02-29T12:00:00"', datetime(2024, 2, 29, 12)),),
    "BINARY": (('"/wA="', b"\xff\0"),),
    "STRUCT<a: INT, b: INT>": (('{"a":1}', {"a": 1, "b": None}),),
}
JSON_INEXACT = {
    "TINYINT": ("128",),
    "BIGINT": ("1.0", '"1"', "9223372036854775808"),
    "DECIMAL(9,2)": ("1.555", "12345678"),
    "DOUBLE": ("9007199254740993", "1e400", '"NaN"'),
    "FLOAT": ("16777217",),
    "DATE": ('"-0768-02-04"', '"+10000-01-01"', '"2024-02-30"'),
    "TIMESTAMP": ('"2024-02-29T12:00:00"', '"2024-02-29T12:00:00.1234567Z"', '"+10000-01-01T00:00:00Z"'),
    "TIMESTAMP_NTZ": ('"2024-02-29T12:00:00Z"',),
    "BINARY": ('"/wA"', '"?"'),
    "STRUCT<a: INT, b: INT>": ('{"c":1}', '{"a":1,"a":2}', "[]"),
}


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_value_that_its_type_would_change_is_a_nack(bench: Bench, form: str) -> None:
    exact, inexact = (EXACT, INEXACT) if form == "csv" else (JSON_EXACT, JSON_INEXACT)
    types = sorted(exact.keys() | inexact.keys())
    names = {type_: f"field{i}" for i, type_ in enumerate(types)}
    good = [(type_, text) for type_, pairs in exact.items() for text, _ in pairs]
    bad = [(type_, text) for type_, texts in inexact.items() for text in texts]
    if form == "csv":
        lines = [",".join(["id", *names.values()])]
        lines += [
            ",".join([str(n), *(text if x == y else "" for x in types)]) for n, (y, text) in enumerate(good + bad)
        ]
    else:
        lines = [f'{{"id":{n},"{names[type_]}":{text}}}' for n, (type_, text) in enumerate(good + bad)]
    (bench.root / "in").mkdir()
    (bench.root / "in" / "a").write_text("\n".join(lines) + "\n")
    schema = ", ".join(["id INT", *(f"{name} {type_}" for type_, name in names.items())])
    p = bench.source(bench.root / "in", format=form, schema=schema)
    nacked = bench.run(p.destination("out", "files", path=bench.root / "out", format="parquet"))
    rows = {r["id"]: r for r in t.parquet_rows(bench.root / "out")}
    values = [v for pairs in exact.values() for _, v in pairs]
    wrong = []
    for n, (type_, text) in enumerate(good):
        found = rows.get(n, {}).get(names[type_])
        wrong += [] if t.same(found, values[n]) else [f"{type_} {text} is {found!r}"]
    errors = [x["error"] for x in nacked]
    for n, (type_, text) in enumerate(bad, len(good)):
        named = [e for e in errors if names[type_] in e]
        if n in rows:
            wrong.append(f"{type_} {text} is {rows[n][names[type_]]!r}")
        elif len(named) != len(inexact[type_]):
            wrong.append(f"{type_} {text}: {len(named)} nacks name {names[type_]}")
    t.clean(wrong if len(errors) == len(bad) else [*wrong, *errors])


if __name__ == "__main__":
    t.rewrite(BEGIN, markdown())
