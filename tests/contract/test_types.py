"""Every type through every hop: each value arrives equal, or its record is a nack that names the field. Nothing else.

The values and what each format holds are in `test_types_table.py`; what arrived is read with pyarrow, json and by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Pipeline, Record, processor
from tests.contract import test_types_table as t
from tests.contract.test_types_table import (
    CSV_SCHEMA,
    KINDS,
    SCALARS,
    SCHEMA,
    csv_holds,
    from_csv,
    from_json,
    json_holds,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DECLARED = tuple(k for k in KINDS if k.declared)


class Bench:
    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark
        self.n = 0

    def source(self, path: Path, **settings: Any) -> Pipeline:
        self.n += 1
        return Pipeline(f"p{self.n}").source("in", "files", path=path, settle="0s", **settings)

    @property
    def state(self) -> Path:
        return self.root / f"state{self.n}"

    def run(self, p: Pipeline) -> list[dict[str, Any]]:
        """The dead letters."""
        from penstock.pipeline import run

        run([p.dead_letter_queue(window=0)], spark=self.spark, state=self.state).raise_for_error()
        return t.letters(self.state)


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    t.write(tmp_path / "in", t.table())
    return tmp_path / "in"


def only(kinds: Any) -> dict[str, Any]:
    return t.cases(kinds)


def held(holds: Any, kinds: Any = KINDS) -> dict[str, Any]:
    return {i: (k, v) for i, (k, v) in t.cases(kinds).items() if holds(k, v)}


# -- parquet ------------------------------------------------------------------------------------------------------------------


def test_parquet_to_parquet(bench: Bench, given: Path) -> None:
    out = bench.root / "out"
    nacked = bench.run(bench.source(given, format="parquet").destination("out", "files", path=out, format="parquet"))
    t.clean(t.judge(t.parquet_rows(out), nacked))
    logical_types(out)


def logical_types(out: Path) -> None:
    """As other tools read them: no INT96, instants are adjusted to UTC and times of day are not."""
    [path] = t.outputs(out, ".parquet")
    schema = pq.ParquetFile(path).schema
    found = {schema.column(i).path: schema.column(i) for i in range(len(schema.names))}
    instant, local = found["timestamp"], found["local"]
    assert instant.physical_type == local.physical_type == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(instant.logical_type)
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(local.logical_type)
    assert str(found["date"].logical_type) == "Date"
    assert str(found["wide"].logical_type) == "Decimal(precision=38, scale=0)"
    assert str(found["fine"].logical_type) == "Decimal(precision=38, scale=18)"
    assert str(found["string"].logical_type) == "String"
    assert "bitWidth=8" in str(found["tinyint"].logical_type)
    assert str(found["binary"].logical_type) == "None"
    assert not [c for c in found.values() if c.physical_type == "INT96"]
    assert {f.name: f.type for f in pq.read_schema(path)}["timestamp"] == pa.timestamp("us", tz="UTC")


def test_parquet_to_json_and_with_a_schema_back(bench: Bench, given: Path) -> None:
    lines, back, again = bench.root / "json", bench.root / "back", bench.root / "again"
    nacked = bench.run(bench.source(given, format="parquet").destination("out", "files", path=lines, format="json"))
    rows = t.json_rows(lines)
    t.clean(t.judge(rows, nacked, from_json, json_holds))
    as_the_page_says([line for f in t.outputs(lines, ".jsonl") for line in f.read_text().split("\n")])

    # `numbered` is NULL in what was delivered, and no schema can name it
    schema = SCHEMA + ", numbered STRING"
    p = bench.source(lines, format="json", schema=schema)
    p.destination("back", "files", path=back, format="parquet").destination("again", "files", path=again, format="json")
    nacked = bench.run(p)
    t.clean(t.judge(t.parquet_rows(back), nacked, expected=held(json_holds)))
    t.clean(t.judge(t.json_rows(again), nacked, from_json, expected=held(json_holds)))


def as_the_page_says(lines: list[str]) -> None:
    for k in KINDS:
        found = [line for line in lines if f'"id":"{k.name}/0"' in line]
        assert [f'"{k.name}":{k.json}' in line for line in found] == ([True] if k.json else []), k.name


def test_parquet_to_csv_and_with_a_schema_back(bench: Bench, given: Path) -> None:
    lines, back, again = bench.root / "csv", bench.root / "back", bench.root / "again"
    nacked = bench.run(bench.source(given, format="parquet").destination("out", "files", path=lines, format="csv"))
    rows = t.csv_rows(lines)
    t.clean(t.judge(rows, nacked, from_csv, csv_holds))
    text = "\n" + "".join(f.read_bytes().decode() for f in t.outputs(lines, ".csv"))
    for k in SCALARS:
        before = KINDS.index(k)
        assert f"\n{k.name}/0,{',' * before}{k.csv},".rstrip(",") in text, k.name

    schema = ", ".join([CSV_SCHEMA, *(f"`{k.name}` STRING" for k in KINDS if k not in SCALARS)])
    p = bench.source(lines, format="csv", schema=schema, **{"multi-line": True})
    p.destination("back", "files", path=back, format="parquet").destination("again", "files", path=again, format="csv")
    nacked = bench.run(p)
    t.clean(t.judge(t.parquet_rows(back), nacked, expected=held(csv_holds)))
    t.clean(t.judge(t.csv_rows(again), nacked, from_csv, expected=held(csv_holds)))


def test_csv_line_by_line_keeps_what_has_no_line_break(bench: Bench) -> None:
    expected = {i: (k, v) for i, (k, v) in only(SCALARS).items() if not (isinstance(v, str) and "\n" in v)}
    t.write(bench.root / "in", t.table(SCALARS, expected))
    lines, back = bench.root / "csv", bench.root / "back"
    p = bench.source(bench.root / "in", format="parquet")
    assert bench.run(p.destination("out", "files", path=lines, format="csv", delimiter=";")) == []
    t.clean(t.judge(t.csv_rows(lines, ";"), [], from_csv, expected=expected))
    p = bench.source(lines, format="csv", delimiter=";", schema=CSV_SCHEMA)
    nacked = bench.run(p.destination("back", "files", path=back, format="parquet"))
    t.clean(t.judge(t.parquet_rows(back), nacked, expected=expected))


def test_several_destinations_get_the_same_values(bench: Bench, given: Path) -> None:
    p = bench.source(given, format="parquet")
    for name in ("parquet", "json", "csv"):
        p.destination(name, "files", path=bench.root / name, format=name)
    nacked = bench.run(p)

    def of(name: str) -> list[dict[str, Any]]:
        return [x for x in nacked if x["destination"] == name]

    t.clean(t.judge(t.parquet_rows(bench.root / "parquet"), of("parquet")))
    logical_types(bench.root / "parquet")
    t.clean(t.judge(t.json_rows(bench.root / "json"), of("json"), from_json, json_holds))
    t.clean(t.judge(t.csv_rows(bench.root / "csv"), of("csv"), from_csv, csv_holds))


# -- processors ---------------------------------------------------------------------------------------------------------------


def test_spark_stages_keep_what_they_do_not_touch(bench: Bench, given: Path) -> None:
    out, lines = bench.root / "out", bench.root / "json"
    p = bench.source(given, format="parquet")
    p.processor("more", "sql", expression="after.wide", field=".Payload.After.copied")
    p.processor("set", "field.set", field=".Payload.After.region", value="eu")
    p.processor("none", "filter", condition="after.bigint = 0")
    p.destination("out", "files", path=out, format="parquet").destination("json", "files", path=lines, format="json")
    nacked = bench.run(p)
    expected = {i: v for i, v in t.cases().items() if i != "bigint/2"}
    of_json = [x for x in nacked if x["destination"] == "json"]
    rows = t.parquet_rows(out)
    t.clean(t.judge(rows, [x for x in nacked if x not in of_json], expected=expected))
    assert all(r["copied"] == r["wide"] and r["region"] == "eu" for r in rows)
    logical_types(out)
    t.clean(t.judge(t.json_rows(lines), of_json, from_json, json_holds, expected))


@processor
def by_record(r: Record) -> Record:
    assert isinstance(r.after, dict)
    return r


@processor(batch=True)
def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@pytest.mark.parametrize("function", [by_record, by_batch], ids=["record", "batch"])
def test_python_gives_on_what_it_was_given(bench: Bench, function: Any) -> None:
    t.write(bench.root / "in", t.table(DECLARED))
    out, lines = bench.root / "out", bench.root / "json"
    p = bench.source(bench.root / "in", format="parquet").processor("f", function)
    p.destination("out", "files", path=out, format="parquet", schema=SCHEMA)
    p.destination("json", "files", path=lines, format="json")
    nacked = bench.run(p)
    of_json = [x for x in nacked if x["destination"] != "out"]
    of_out = [x for x in nacked if x["destination"] != "json"]
    wrong = t.judge(t.json_rows(lines), of_json, from_json, json_holds, only(DECLARED))
    t.clean(wrong + t.judge(t.parquet_rows(out), of_out, holds=json_holds, expected=only(DECLARED)))


SEEN: dict[str, type] = {
    "tinyint": int, "wide": Decimal, "fine": Decimal, "float": float, "boolean": bool, "string": str, "date": date,
    "timestamp": datetime, "local": datetime, "binary": bytes, "struct": dict, "array": list, "times": list, "map": dict,
}  # fmt: skip


def test_python_sees_python_values(bench: Bench) -> None:
    out, names, seen = bench.root / "out", [k.name for k in DECLARED], dict(SEEN)

    def look(r: Record) -> Record:
        assert isinstance(r.after, dict)
        name = str(r.after["id"]).partition("/")[0]
        assert list(r.after) == ["id", *names]
        if name in seen:
            assert type(r.after[name]) is seen[name], f"{name} is {type(r.after[name])}"
        if name == "timestamp":
            assert r.after[name].utcoffset().total_seconds() == 0
        return r

    t.write(bench.root / "in", t.table(DECLARED, [f"{k.name}/0" for k in DECLARED]))
    p = bench.source(bench.root / "in", format="parquet").processor("look", look)
    nacked = bench.run(p.destination("out", "files", path=out, format="parquet", schema=SCHEMA))
    expected = {i: v for i, v in only(DECLARED).items() if i.endswith("/0")}
    t.clean(t.judge(t.parquet_rows(out), nacked, expected=expected))


# -- json ---------------------------------------------------------------------------------------------------------------------

NUMBERS = (
    "0", "-0", "-0.0", "0.1", "1e5", "1E-7", "9007199254740993", "123456789012345678901234567890123456789012345",
    "0.1234567890123456789012345678901234567890", "1.10", "12345678901234567890.5", "5e-324", "1.7976931348623157e308", "1e-400",
    "1.23456e-320", "100000000000000000000000e-2", "0.10000000000000000555", "123456789012345.67", "1e22", "1e23",
)  # fmt: skip


def open_lines(folder: Path) -> dict[str, Any]:
    lines = [f'{{"id":"{i}","n":{n},"a":[{n},null,{{"x":{n}}}],"s":"\\u0000é😀\\n"}}' for i, n in enumerate(NUMBERS)]
    folder.mkdir()
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    return {str(i): Decimal(n) for i, n in enumerate(NUMBERS)}


@pytest.mark.parametrize("way", ["untouched", "python", "twice"])
def test_open_json_keeps_every_digit_or_nacks(bench: Bench, way: str) -> None:
    expected = open_lines(bench.root / "in")
    p = bench.source(bench.root / "in", format="json")
    if way != "untouched":
        p.processor("f", by_record)
    if way == "twice":
        p.processor("g", by_batch)
        p.processor("h", by_record)
    nacked = bench.run(p.destination("out", "files", path=bench.root / "out", format="json"))
    wrong = []
    rows = {r["id"]: r for r in t.json_rows(bench.root / "out")}
    for i, n in expected.items():
        if i not in rows:
            wrong.append(f"{NUMBERS[int(i)]} is gone")
        elif any(Decimal(x) != n for x in (rows[i]["n"], rows[i]["a"][0], rows[i]["a"][2]["x"])):
            wrong.append(f"{NUMBERS[int(i)]} is {rows[i]['n']}")
        elif rows[i]["s"] != "\0é😀\n" or rows[i]["a"][1] is not None:
            wrong.append(str(rows[i]))
    t.clean(wrong + [x["error"] for x in nacked])


def test_json_decode_with_a_schema_then_sql_to_parquet(bench: Bench, given: Path) -> None:
    lines, out = bench.root / "text", bench.root / "out"
    lines.mkdir()
    bench.run(bench.source(given, format="parquet").destination("out", "files", path=bench.root / "j", format="json"))
    for f in t.outputs(bench.root / "j", ".jsonl"):
        (lines / f"{f.stem}.txt").write_bytes(f.read_bytes())
    p = bench.source(lines).processor("decode", "json.decode", schema=SCHEMA + ", numbered STRING")
    p.processor("more", "sql", expression="after.fine", field=".Payload.After.copied")
    nacked = bench.run(p.destination("out", "files", path=out, format="parquet"))
    rows = t.parquet_rows(out)
    assert nacked == []
    t.clean(t.judge(rows, [], expected=held(json_holds)))
    assert all(r["copied"] == r["fine"] for r in rows)
    logical_types(out)


# -- dead letters ---------------------------------------------------------------------------------------------------------------


def reject(r: Record) -> Record:
    raise ValueError("no")


@processor(batch=True)
def reject_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("no")


NACKS: Mapping[str, Any] = {
    "spark": lambda p: p.processor("no", "error"),
    "record": lambda p: p.processor("no", reject),
    "batch": lambda p: p.processor("no", reject_batch),
    "behind spark": lambda p: p.processor("x", "field.set", field=".Payload.After.string", value="y").processor(
        "no", "error"
    ),
    "python behind spark": lambda p: p.processor("x", "sql", expression="1", field=".Payload.After.x").processor(
        "no", reject
    ),
    "python behind python": lambda p: p.processor("x", by_record).processor("y", by_batch).processor("no", reject),
}


@pytest.mark.parametrize("way", NACKS)
def test_a_dead_letter_has_the_values_of_its_record(bench: Bench, given: Path, way: str) -> None:
    p = bench.source(given, format="parquet")
    NACKS[way](p)
    nacked = bench.run(p.destination("out", "files", path=bench.root / "out", format="json"))
    t.clean(t.judge_given(nacked, t.cases()))
    assert t.json_rows(bench.root / "out") == []


def test_a_dead_letter_of_open_json_has_every_digit(bench: Bench) -> None:
    expected = open_lines(bench.root / "in")
    p = bench.source(bench.root / "in", format="json").processor("same", by_record).processor("no", reject)
    nacked = bench.run(p.destination("out", "files", path=bench.root / "out", format="json"))
    assert len(nacked) == len(expected)
    wrong = []
    for x in nacked:
        after = x["given"]["after"]
        value = t.loads(after["text"]) if "text" in after else after["value"]
        if Decimal(value["n"]) != expected[value["id"]]:
            wrong.append(f"{NUMBERS[int(value['id'])]} is {value['n']}")
    t.clean(wrong)
