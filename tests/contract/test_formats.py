"""`files` in every format: what is read, what is written, and where. Read back with plain tools, never through Penstock."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.summary import Summary
from penstock_sdk.record import Record

pytestmark = pytest.mark.spark

ROWS = [{"id": i, "name": f"n{i}", "price": i / 4} for i in range(40)]
SCHEMA = "id BIGINT, name STRING, price DOUBLE"


def write(format: str, folder: Path, rows: Iterable[dict[str, Any]], name: str = "a", *, pack: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    listed = list(rows)
    path = folder / f"{name}.{format}"
    if format == "parquet":
        pq.write_table(pa.Table.from_pylist(listed), path)
        return path
    if format == "csv":
        text = "id,name,price\n" + "".join(f"{r['id']},{r['name']},{r['price']}\n" for r in listed)
    else:
        text = "".join(json.dumps(r) + "\n" for r in listed)
    if pack:
        path = path.with_name(path.name + ".gz")
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """All records under a folder, files in the order of their names, values of CSV as text."""
    found: list[dict[str, Any]] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and "_penstock" not in p.parts):
        if path.suffix == ".parquet":
            found += pq.read_table(path).to_pylist()
            continue
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        if ".csv" in path.name:
            found += list(csv.DictReader(text.splitlines()))
        else:
            found += [json.loads(line) for line in text.splitlines()]
    return found


def run(spark: SparkSession, tmp_path: Path, source: dict[str, Any], target: dict[str, Any], **more: Any) -> Summary:
    p = Pipeline("p").source("in", "files", settle="0s", batch=more.pop("batch", None), **source)
    for i, (plugin, settings) in enumerate(more.pop("processors", ())):
        p.processor(f"p{i}", plugin, **settings)
    p.destination("out", "files", **{"path": tmp_path / "out", **target}).dead_letter_queue(window=0)
    return p.run(spark, state=tmp_path / "state")


def numbers(summary: Summary) -> tuple[int, int, int, int]:
    [p] = summary.to_json()["pipelines"]
    out = p["destinations"]["out"]
    return p["sources"]["in"]["read"], out["delivered"], out["filtered"], out["dead_lettered"]


def as_text(rows: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in rows]


@pytest.mark.contract("S5", reason="the order of a file is compared, format by format; there is nothing to switch off")
@pytest.mark.parametrize("target", ["json", "csv", "parquet"])
@pytest.mark.parametrize("source", ["json", "csv", "parquet"])
def test_every_format_becomes_every_other_in_order(
    spark: SparkSession, tmp_path: Path, source: str, target: str
) -> None:
    write(source, tmp_path / "in", ROWS)
    typed = {} if source == "parquet" else {"schema": SCHEMA}
    done = run(spark, tmp_path, {"path": tmp_path / "in", "format": source, **typed}, {"format": target})
    assert numbers(done) == (40, 40, 0, 0)
    assert read(tmp_path / "out") == (as_text(ROWS) if target == "csv" else ROWS)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_packed_files_are_read_and_written(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write(format, tmp_path / "in", ROWS, pack=True)
    done = run(spark, tmp_path, {"path": tmp_path / "in", "format": format}, {"format": format, "compression": "gzip"})
    assert numbers(done) == (40, 40, 0, 0)
    assert read(tmp_path / "out") == (as_text(ROWS) if format == "csv" else ROWS)
    assert all(p.suffix == ".gz" for p in (tmp_path / "out").glob("p.in-*"))


def test_zstd_is_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pa.output_stream(str(tmp_path / "in" / "a.txt.zst"), compression="zstd") as f:
        f.write(b"one\ntwo\n")
    assert numbers(run(spark, tmp_path, {"path": tmp_path / "in"}, {})) == (2, 2, 0, 0)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4"])
def test_parquet_is_written_with_its_codecs(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    write("parquet", tmp_path / "in", ROWS)
    run(spark, tmp_path, {"path": tmp_path / "in", "format": "parquet"}, {"format": "parquet", "compression": codec})
    [path] = (tmp_path / "out").glob("p.in-*")
    column = pq.read_metadata(path).row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED", "lz4": "UNKNOWN"}.get(
        codec, codec.upper()
    )  # pyarrow has no word for it
    assert read(tmp_path / "out") == ROWS


def test_an_open_payload_is_given_the_schema_of_its_destination(spark: SparkSession, tmp_path: Path) -> None:
    write("json", tmp_path / "in", [*ROWS[:3], {"id": "x", "name": "bad", "price": 1.0}, {"id": 4, "colour": "red"}])
    done = run(
        spark,
        tmp_path,
        {"path": tmp_path / "in", "format": "json"},
        {"format": "parquet", "schema": SCHEMA},
        processors=[("field.set", {"field": ".Payload.After.name", "value": "set"})],
    )
    assert numbers(done) == (5, 3, 0, 2)
    assert read(tmp_path / "out") == [{**row, "name": "set"} for row in ROWS[:3]]
    [letters] = (tmp_path / "state" / "dead-letters").rglob("*.parquet")
    errors = pq.read_table(letters)["error"].to_pylist()
    assert "id" in errors[0]
    assert "colour" in errors[1]


def test_globs_sub_folders_and_values_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        for kind in ("txt", "csv"):
            folder = tmp_path / "in" / f"day={day}" / "land=d%2Fe"
            write("csv", folder, ROWS[:2], name=day).rename(folder / f"{day}.{kind}")
    settings = {"path": tmp_path / "in" / "**" / "*.csv", "format": "csv", "schema": f"{SCHEMA}, day DATE, land STRING"}
    assert numbers(run(spark, tmp_path, settings, {"format": "json"})) == (4, 4, 0, 0)
    found = read(tmp_path / "out")
    assert [(r["id"], r["day"], r["land"]) for r in found] == [
        (i, day, "d/e") for day in ("2026-01-01", "2026-01-02") for i in (0, 1)
    ]


def test_values_in_names_of_folders_are_fields_of_parquet_and_metadata_of_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    write("parquet", tmp_path / "in" / "day=1" / "land=__HIVE_DEFAULT_PARTITION__", ROWS[:1])
    run(spark, tmp_path, {"path": tmp_path / "in", "format": "parquet"}, {"format": "json"})
    assert read(tmp_path / "out") == [{**ROWS[0], "day": "1", "land": None}]

    def show(r: Record) -> Record:
        r.after = {k: v for k, v in r.metadata.items() if "partition" in k}
        return r

    write("json", tmp_path / "two" / "day=1", ROWS[:1])
    other = Pipeline("q").source("in", "files", path=tmp_path / "two", settle="0s").processor("show", show)
    other.destination("out", "files", path=tmp_path / "out2").run(spark, state=tmp_path / "state2")
    assert read(tmp_path / "out2") == [{"penstock.partition.day": "1"}]


def by_namespace(r: Record) -> Record:
    r.namespace = r.after["name"]  # type: ignore[index, call-overload]
    return r


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_records_go_to_folders_by_value_and_keep_their_order(spark: SparkSession, tmp_path: Path, format: str) -> None:
    names = ["plain", "a/b", "..", "x/../y", "", "_hidden", ".dot", "ü %", "l" * 300]
    rows = [{"id": i, "name": names[i % len(names)], "price": 0.0} for i in range(90)]
    write("json", tmp_path / "in", rows)
    target = {"path": tmp_path / "out" / "{namespace}" / "x", "format": format}
    target |= {"schema": SCHEMA} if format == "parquet" else {}
    done = run(
        spark,
        tmp_path,
        {"path": tmp_path / "in", "format": "json"},
        target,
        processors=[(by_namespace, {})],
    )
    assert numbers(done) == (90, 50, 0, 40)
    folders = sorted(p.name for p in (tmp_path / "out").iterdir() if p.name != "_penstock")
    assert folders == sorted(["plain", "a%2Fb", "%5Fhidden", "%2Edot", "%C3%BC%20%25"])
    for name, folder in (("plain", "plain"), ("a/b", "a%2Fb"), ("ü %", "%C3%BC%20%25")):
        assert read(tmp_path / "out" / folder / "x") == [r for r in rows if r["name"] == name]


def test_order_is_kept_over_many_folders(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": i, "name": f"n{i % 50}", "price": 0.0} for i in range(5000)]
    write("json", tmp_path / "in", rows)
    run(
        spark,
        tmp_path,
        {"path": tmp_path / "in", "format": "json"},
        {"path": tmp_path / "out" / "{namespace}", "format": "json"},
        processors=[(by_namespace, {})],
    )
    for n in range(50):
        assert read(tmp_path / "out" / f"n{n}") == rows[n::50]


@pytest.mark.parametrize("format", ["text", "json", "csv"])
def test_plain_files_are_cut_inside_by_max_records(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write("json" if format == "text" else format, tmp_path / "in", ROWS[:25], "a")
    write("json" if format == "text" else format, tmp_path / "in", ROWS[25:], "b")
    seen: list[int] = []
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", settle="0s", format=format, batch={"max-records": 7})
    p.destination("out", "files", path=tmp_path / "out", format=format).on_outcome(lambda o: seen.append(o.records))
    assert numbers(p.run(spark, state=tmp_path / "state")) == (40, 40, 0, 0)
    header = 1 if format == "csv" else 0  # a line like any other to the one who counts lines
    assert max(seen) <= 7
    assert len(seen) == (40 + 2 * header + 6) // 7
    assert read(tmp_path / "out") == (as_text(ROWS) if format == "csv" else ROWS)


def test_max_records_counts_rows_of_parquet_and_takes_whole_files(spark: SparkSession, tmp_path: Path) -> None:
    for i in range(4):
        write("parquet", tmp_path / "in", ROWS[i * 10 : i * 10 + 10], f"f{i}")
    seen: list[int] = []
    p = Pipeline("p").source(
        "in", "files", path=tmp_path / "in", settle="0s", format="parquet", batch={"max-records": 25}
    )
    p.destination("out", "files", path=tmp_path / "out", format="parquet").on_outcome(lambda o: seen.append(o.records))
    p.run(spark, state=tmp_path / "state")
    assert seen == [20, 20]


@pytest.mark.contract(
    "X2", reason="the account of other tests over a record that is too large; there is nothing to switch off"
)
def test_a_record_over_the_limit_is_a_nack_with_its_size(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("short\n" + "x" * 5000 + "\nlast\n")
    done = run(spark, tmp_path, {"path": tmp_path / "in"}, {}, batch={"max-record-bytes": "4k"})
    assert numbers(done) == (3, 2, 0, 1)
    [letters] = (tmp_path / "state" / "dead-letters").rglob("*.parquet")
    [row] = pq.read_table(letters).to_pylist()
    assert row["code"] == "record.too-large"
    assert "5000 bytes" in row["error"]
    assert "xxx" not in row["given"]
    assert row["position"].decode().endswith("a.txt#1")


def test_files_have_about_the_size_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    for i in range(20):
        write("json", tmp_path / "in", ROWS * 25, f"f{i}")  # 45 kB each
    run(spark, tmp_path, {"path": tmp_path / "in", "format": "json"}, {"format": "json", "target-file-size": "200k"})
    sizes = [p.stat().st_size for p in (tmp_path / "out").glob("p.in-*")]
    assert 3 <= len(sizes) <= 6
    assert len(read(tmp_path / "out")) == 20_000


def test_parquet_reads_only_the_columns_that_are_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    """Held against a run that looks at all of them; the first run of a kind also reads classes, so each is run twice."""
    made = random.Random(5)
    columns = {f"c{n}": [made.getrandbits(62) for _ in range(60_000)] for n in range(8)}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": range(60_000), **columns}), tmp_path / "in" / "a.parquet")
    one = [
        ("filter", {"condition": "after.id % 2 = 1"}),
        ("sql", {"expression": "cast(after.id as string)", "field": ".Payload.After"}),
    ]
    read_of: dict[str, int] = {}
    for n, (name, processors) in enumerate([("one", one), ("all", [("json.encode", {})])] * 2):
        before = bytes_read(spark)
        folder = tmp_path / f"{n}-{name}"
        folder.mkdir()
        source = {"path": tmp_path / "in", "format": "parquet"}
        done = run(spark, folder, source, {"format": "text"}, processors=processors)
        read_of[name] = bytes_read(spark) - before
        assert numbers(done) == ((60_000, 30_000, 30_000, 0) if name == "one" else (60_000, 60_000, 0, 0))
    text = "".join(p.read_text() for p in sorted((tmp_path / "2-one" / "out").glob("p.in-*")))
    assert text.split() == [str(i) for i in range(0, 60_000, 2)]
    assert read_of["all"] > 3_500_000
    assert read_of["one"] < read_of["all"] / 2


def bytes_read(spark: SparkSession) -> int:
    """What the JVM has read so far, by the kernel's account: Spark's own does not see the raw local file system."""
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])
