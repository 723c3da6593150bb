"""Hostile input through processors and destinations: values stay exact, namespaces stay inside their folder, and in random
mixes every record ends in one place."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import DROP, Pipeline, Record, Reject, processor
from penstock.pipeline import run
from penstock.testing import hostile
from penstock.testing import hostile_judge as judge
from penstock.testing.hostile import Delivered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OPEN = tuple(c for c in hostile.cases("json") if not c.settings and not c.batch)


def results_of(pipelines: list[Pipeline], spark: SparkSession, state: Path) -> dict[str, dict[str, Any]]:
    summary = run(pipelines, spark=spark, state=state).raise_for_error()
    return {p["id"]: p for p in summary.to_json()["pipelines"]}


def holds(result: dict[str, Any]) -> bool:
    read = sum(s["read"] for s in result["sources"].values())
    own = (d for name, d in result["destinations"].items() if not name.startswith("dead-letter"))
    return all(read == d["delivered"] + d["filtered"] + d["dead_lettered"] for d in own)


# -- processors -------------------------------------------------------------------------------------------------------------------


def same(r: Record) -> Record:
    return r


@processor(batch=True)
def same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def touched(r: Record) -> Record:
    assert isinstance(r.after, dict)
    r.after["mark"] = "x"
    return r


WAYS: dict[str, Callable[[Pipeline], Pipeline]] = {
    "set": lambda p: p.processor("set", "field.set", field=".Payload.After.mark", value="x"),
    "sql": lambda p: p.processor("sql", "sql", expression="'x'", field=".Payload.After.mark"),
    "python": lambda p: p.processor("python", touched),
    "text": lambda p: p.processor("decode", "json.decode").processor(
        "set", "field.set", field=".Payload.After.mark", value="x"
    ),
    "again": lambda p: (
        p.processor("set", "field.set", field=".Payload.After.mark", value="x")
        .processor("encode", "json.encode")
        .processor("batch", same_batch)
        .processor("record", same)
    ),
}


def pairs(line: bytes) -> Any:
    return json.loads(line, parse_float=Decimal)


@pytest.mark.contract("X2", reason="values are compared digit by digit")
def test_an_object_that_is_taken_apart_and_put_together_has_the_same_values(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Through every processor that looks into open payloads: each field as it was, with the mark added. json.decode makes no
    payload of a blank line and of `null`, and field.set makes an object of that."""
    for case in OPEN:
        hostile.write(case, tmp_path / "in" / case.name)
    pipelines = []
    for name, way in WAYS.items():
        format = "text" if name == "text" else "json"
        p = Pipeline(name).source("in", "files", path=tmp_path / "in", format=format, recursive=True)
        p = way(p).destination("out", "files", path=tmp_path / name, format="json" if name != "again" else "text")
        pipelines.append(p.dead_letter_queue(window=0))
    results = results_of(pipelines, spark, tmp_path / "state")
    lines = [o.payload for c in OPEN for found in c.outcomes.values() for o in found if isinstance(o, Delivered)]
    expected = {p["id"]: {**p, "mark": "x"} for p in (pairs(line) for line in lines if isinstance(line, bytes))}
    for name, result in results.items():
        assert holds(result), result
        rows = [pairs(line) for line in judge.payloads_of(tmp_path / name, "json")]
        assert [p for p in rows if "id" not in p and (name != "text" or p != {"mark": "x"})] == []
        found = {p["id"]: p for p in rows if "id" in p}
        wrong = [
            f"{name}: {judge.shown(found.get(i))} is not {judge.shown(want)}"
            for i, want in expected.items()
            if found.get(i) != want
        ]
        assert wrong == []
        # what is not strict JSON is a nack of the format, and taken by json.decode, as in Conduit
        taken = {"jsur:1", "jnul:2", "jnan:3"} if name == "text" else set()
        assert found.keys() == expected.keys() | taken


# -- from every format to every other and back --------------------------------------------------------------------------------------

TEXTS = (
    *(
        "plain",
        "",
        None,
        " ",
        " around ",
        "\t",
        "a,b",
        "a;b",
        '"',
        '""',
        '"quoted"',
        'in "the" middle',
        "'",
        "\\",
        "\\N",
        "a\\",
        '\\"',
    ),
    *(
        "line\nbreak",
        "\n",
        "cr\rhere",
        "\r",
        "crlf\r\n",
        "nul\0",
        "\0",
        "#comment",
        "=1+1",
        "null",
        "NULL",
        "NaN",
        "\ufeff",
        "🎈",
        "\u2028",
    ),
    *("\ue000\ue0ff", "\x1f", "\x7f", "{", "[1]", "true", "007", "x" * 100_000),
)


@pytest.mark.contract("X2", reason="values are compared one by one")
def test_texts_come_back_from_every_format_as_they_were(tmp_path: Path, spark: SparkSession) -> None:
    """Parquet → json, csv, parquet → parquet. As the first field, as the last, and alone."""
    rows = [{"a": text, "id": f"text:{n}", "b": text} for n, text in enumerate(TEXTS)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "rows.parquet")
    formats: dict[str, dict[str, Any]] = {
        "json": {"schema": "a STRING, id STRING, b STRING"},
        "csv": {"multi_line": True},
        "parquet": {},
    }
    p = Pipeline("out").source("in", "files", path=tmp_path / "in", format="parquet", settle="0s")
    for format in formats:
        p.destination(format, "files", path=tmp_path / format, format=format)
    results_of([p], spark, tmp_path / "state")
    back = [
        Pipeline(f"back-{format}")
        .source("in", "files", path=tmp_path / format, format=format, settle="0s", **settings)
        .destination("back", "files", path=tmp_path / f"back-{format}", format="parquet")
        for format, settings in formats.items()
    ]
    results_of(back, spark, tmp_path / "state")
    for format in formats:
        found = {r["id"]: r for r in judge.payloads_of(tmp_path / f"back-{format}", "parquet")}
        wrong = [
            f"{format}: {judge.shown(found.get(r['id']))} is not {judge.shown(r)}"
            for r in rows
            if found.get(r["id"]) != r
        ]
        assert not wrong, "\n".join(wrong)
        assert len(found) == len(rows)
    with next(iter((tmp_path / "csv").glob("*.csv"))).open(newline="") as f:
        by_python = list(csv.DictReader(f, strict=True))
    assert [r["b"] for r in by_python] == [r["b"] or "" for r in rows]


def without(r: Record) -> Record:
    r.after = None
    return r


@pytest.mark.contract("X2", reason="a record with no payload is one nack at every kind of file")
def test_a_record_without_a_payload_is_nacked_by_files_and_taken_by_others(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id":"none:0"}\n{"id":"none:1"}\n')
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", format="json", settle="0s")
    p.processor("without", without, condition="after.id = 'none:1'")
    for format in ("text", "json", "csv", "parquet"):
        schema = {"schema": "id STRING"} if format in ("csv", "parquet") else {}
        p.destination(format, "files", path=tmp_path / format, format=format, **schema)
    p.destination("log", "log").destination("blackhole", "blackhole").dead_letter_queue(window=0).guarantee(
        "at-least-once"
    )
    result = results_of([p], spark, tmp_path / "state")["p"]
    assert holds(result), result
    for format in ("text", "json", "csv", "parquet"):
        assert (result["destinations"][format]["delivered"], result["destinations"][format]["dead_lettered"]) == (1, 1)
        assert len(judge.payloads_of(tmp_path / format, format)) == 1
    assert result["destinations"]["log"]["delivered"] == result["destinations"]["blackhole"]["delivered"] == 2


# -- namespaces -------------------------------------------------------------------------------------------------------------------


def into_namespace(r: Record) -> Record:
    assert isinstance(r.after, dict)
    r.namespace = hostile.NAMESPACES[int(r.after["n"])].value
    return r


@pytest.mark.contract("X2", reason="every folder is looked at; there is nothing to switch off")
def test_no_namespace_leaves_its_folder(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": f"ns:{n}", "n": n}) for n in range(len(hostile.NAMESPACES))]
    (tmp_path / "in" / "a.json").write_text("\n".join(lines) + "\n")
    p = (
        Pipeline("p")
        .source("in", "files", path=tmp_path / "in", format="json", settle="0s")
        .processor("ns", into_namespace)
    )
    formats = ("text", "json", "csv", "parquet")
    for format in formats:
        schema = {"schema": "id STRING, n INT"} if format in ("csv", "parquet") else {}
        p.destination(format, "files", path=tmp_path / "out" / format / "{namespace}", format=format, **schema)
    result = results_of([p.dead_letter_queue(window=0)], spark, tmp_path / "state")["p"]
    assert holds(result), result
    letters = judge.letters_of(tmp_path / "state")
    for format in formats:
        root = tmp_path / "out" / format
        found = {}
        for path in judge.files_of(root):
            for n in re.findall(
                rb"ns:(\d+)", path.read_bytes() if format != "parquet" else str(judge.rows_of(path)).encode()
            ):
                found[int(n)] = str(path.parent.relative_to(root))
        assert found == {n: ns.folder for n, ns in enumerate(hostile.NAMESPACES) if ns.folder is not None}
        errors = {x["seq"]: x["error"] for x in letters if x["destination"] == format}
        bad = [ns for ns in hostile.NAMESPACES if ns.folder is None]
        assert len(errors) == len(bad)
        assert all(ns.says in errors[seq] for seq, ns in zip(sorted(errors), bad, strict=True))
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_relative_to(tmp_path / "out")]
    assert [p for p in outside if p.parts[len(tmp_path.parts)] not in ("in", "state")] == []


# -- random mixes -----------------------------------------------------------------------------------------------------------------

ID = re.compile(rb"[a-z0-9-]+:\d+(?!\d)")


def drops(r: Record) -> Any:
    return DROP if r.after is not None and len(repr(r.after)) % 3 == 0 else r


def rejects(r: Record) -> Any:
    return Reject("it is odd") if len(repr(r.after)) % 2 else r


def splits(r: Record) -> Record:
    r.metadata["seen"] = "yes"
    return r


RAW: tuple[Callable[[Pipeline, str], Pipeline], ...] = (
    lambda p, i: p.processor(i, "filter", condition="after like '%:1%'"),
    lambda p, i: p.processor(i, "error", condition="length(after) % 5 = 0"),
    lambda p, i: p.processor(i, same),
    lambda p, i: p.processor(i, same_batch),
    lambda p, i: p.processor(i, drops),
    lambda p, i: p.processor(i, rejects),
    lambda p, i: p.processor(i, splits),
)
TYPED: tuple[Callable[[Pipeline, str], Pipeline], ...] = (
    lambda p, i: p.processor(i, "filter", condition="after.id like '%:1'"),
    lambda p, i: p.processor(i, "error", condition="1 / (length(after.id) % 2) = 1"),
    lambda p, i: p.processor(i, "field.set", field=".Payload.After.mark", value="x"),
    lambda p, i: p.processor(i, "sql", expression="upper(after.id)", field=".Payload.After.big"),
)
OPENED: tuple[Callable[[Pipeline, str], Pipeline], ...] = (
    *TYPED,
    *RAW[2:],
    lambda p, i: p.processor(i, "field.set", field=".Metadata.x", value="y"),
)


def mixed(root: Path, number: int, seed: int) -> Pipeline:
    """A source of some cases, some processors, some destinations."""
    chance = random.Random(f"{seed}-{number}")
    format = chance.choice(["text", "json", "csv", "parquet"])
    usable = [c for c in hostile.cases(format) if not c.batch and "5000" not in c.name and "5-mb" not in c.name]  # type: ignore[arg-type]
    settings = chance.choice(sorted({tuple(c.settings.items()) for c in usable}))
    chosen = [c for c in usable if tuple(c.settings.items()) == settings]
    for case in chance.sample(chosen, min(len(chosen), 6)):
        hostile.write(case, root / "in" / case.name)
    p = Pipeline(root.name).source(
        "in", "files", path=root / "in", format=format, recursive=True, settle="100ms",
        batch={"max-files": chance.choice([1, 3, 100])}, **{k.replace("-", "_"): v for k, v in settings},
    )  # fmt: skip
    shape = "raw" if format == "text" else "open" if format == "json" and not settings else "typed"
    steps = {"raw": RAW, "typed": TYPED, "open": OPENED}[shape]
    for i in range(chance.randrange(4)):
        chance.choice(steps)(p, f"p{i}")
    targets = {"raw": ["text"], "open": ["text", "json"], "typed": ["json", "csv", "parquet"]}[shape]
    for format in chance.sample(targets, chance.randint(1, len(targets))):
        more = {"compression": "gzip"} if format != "parquet" and chance.random() < 0.5 else {}
        p.destination(format, "files", path=root / format, format=format, **more)
    if chance.random() < 0.5:
        p.destination("blackhole", "blackhole")
    return p.dead_letter_queue("files", window=0, path=root / "queue", format="json")


def ids_of(folder: Path, format: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for path in judge.files_of(folder):
        if format == "parquet":
            records = [str(row.get("id")).encode() for row in judge.rows_of(path)]
        elif format == "csv":
            records = judge.csv_of(path)
        else:
            records = judge.lines_of(path)
        found.update(m[0] for r in records if (m := ID.search(r)))
    return found


@pytest.mark.contract("X2", "C14", reason="random mixes with a fixed seed: the account, and one end per record")
def test_in_random_mixes_every_record_ends_in_one_place(tmp_path: Path, spark: SparkSession) -> None:
    roots = [tmp_path / f"mix{n}" for n in range(12)]
    results = results_of([mixed(root, n, seed=7) for n, root in enumerate(roots)], spark, tmp_path / "state")
    for root in roots:
        result = results[root.name]
        assert holds(result), result
        letters = judge.letters_of(tmp_path / "state", root.name)
        for name, counts in result["destinations"].items():
            if name not in ("text", "json", "csv", "parquet"):
                continue
            assert len(judge.payloads_of(root / name, name)) == counts["delivered"], (root.name, name)
            own = [x for x in letters if x["destination"] in ("", name)]
            assert len(own) == counts["dead_lettered"], (root.name, name)
            there = ids_of(root / name, name)
            dead = Counter(m[0] for x in own if (m := ID.search((x["given"] or "").encode())))
            assert [i for i, n in there.items() if n > 1] == []
            assert not there.keys() & dead.keys()
        assert len(judge.payloads_of(root / "queue", "json")) == len(letters)


def test_a_packed_destination_is_read_by_plain_gzip(tmp_path: Path, spark: SparkSession) -> None:
    case = next(c for c in hostile.cases("text") if c.name == "text-invalid-utf8")
    hostile.write(case, tmp_path / "in")
    p = Pipeline("p").source("in", "files", path=tmp_path / "in")
    p.destination("out", "files", path=tmp_path / "out", compression="gzip")
    results_of([p], spark, tmp_path / "state")
    [path] = judge.files_of(tmp_path / "out")
    assert gzip.decompress(path.read_bytes()) == case.files["lines.txt"]
