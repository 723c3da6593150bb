"""`generator` on Spark: a record follows from seed, format and number alone, in every cut, on any cores, in every run."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Pipeline, Record, Reject, record
from penstock.config import parse_settings
from penstock.connectors.generator import source as module
from penstock.connectors.generator.settings import GeneratorSourceSettings
from penstock.connectors.generator.source import GeneratorSource
from penstock.connectors.generator.words import WORDS
from penstock.errors import PenstockError
from penstock.pipeline import run
from penstock.ranges import Range, Ranges
from tests.support import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVERYTHING = {
    "template": "{seq} {int:-3..3} {int} {float:-1..0.125} {bool} {word} {uuid} {choice:red|güld|} {time} {x}",
    "operations": "create,update,delete,snapshot",
    "collections.users.format.type": "raw",
    "collections.users.format.options.id": "int",
    "collections.users.format.options.name": "string",
    "collections.users.format.options.at": "time",
    "collections.users.format.options.took": "duration",
    "collections.users.format.options.ok": "bool",
}
GIVEN = [c for c in record.COLUMNS if c not in (record.SOURCE, record.PART, record.PHASE, record.TIMESTAMP)]


def source(**settings: str) -> GeneratorSource:
    return GeneratorSource(parse_settings(GeneratorSourceSettings, settings), "g")


def ranges(low: int, high: int, base: int | None = None) -> Ranges:
    return Ranges((Range("generator", {"from": low, "to": high}, low if base is None else base),))


def rows(
    spark: SparkSession, made: GeneratorSource, low: int, high: int, columns: Collection[str] = GIVEN
) -> list[dict[str, Any]]:
    return [r.asDict() for r in made.frame(spark, ranges(low, high), columns).collect()]


# -- content --------------------------------------------------------------------------------------------------------


def test_records_are_the_same_in_every_cut_and_on_any_number_of_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows(spark, source(**EVERYTHING), 0, 3000)
    assert [r["seq"] for r in whole] == list(range(3000))
    monkeypatch.setattr(module, "PER_TASK", 10)  # on both cores now
    again = source(**EVERYTHING)  # as after a restart
    assert again.frame(spark, ranges(0, 3000), GIVEN).rdd.getNumPartitions() == 2
    cuts = [0, 1, 7, 400, 2999, 3000]
    assert [r for low, high in itertools.pairwise(cuts) for r in rows(spark, again, low, high)] == whole


def test_another_seed_makes_other_records(spark: SparkSession) -> None:
    one, two = (rows(spark, source(template="{int}", seed=seed), 0, 100, {"after"}) for seed in ("0", "1"))
    assert len({r["after"] for r in one + two}) == 200


def test_what_is_made_today_is_made_for_ever(spark: SparkSession) -> None:
    """When this fails on purpose, raise VERSION in `source.py`: a range must not stand for other records."""
    assert module.VERSION == 1
    made = rows(spark, source(**EVERYTHING), 1000, 1004)
    assert [(r["operation"], r["key"], r["before"], r["after"]) for r in made] == GOLDEN


GOLDEN = [
    (
        "snapshot",
        "canvas",
        None,
        "1000 0 731553307147286710 -0.523 false lichen ae8cdf89-c689-4daa-b6f7-be9165bbf753  2024-01-01T00:00:01.000Z {x}",
    ),
    (
        "create",
        "button",
        None,
        '{"at":"2024-01-01T00:00:01.001Z","id":8510954637829455516,"name":"pillow","ok":false,"took":226000000000}',
    ),
    (
        "update",
        "oasis",
        "1002 -1 7019289848971128411 -0.365 true coral 545eb7ce-5c13-432c-83eb-d901271a8226  2024-01-01T00:00:01.002Z {x}",
        "1002 -2 365157029760763633 -0.748 true tangle 48eb0887-ba6b-4008-a844-025b118d5715  2024-01-01T00:00:01.002Z {x}",
    ),
    (
        "create",
        "eagle",
        None,
        '{"at":"2024-01-01T00:00:01.003Z","id":226985735501481608,"name":"circle","ok":true,"took":518000000000}',
    ),
]


def test_every_placeholder_gives_what_it_says(spark: SparkSession) -> None:
    text = "{seq};{int:-3..3};{int};{float:-1..0.125};{bool};{word};{uuid};{choice:red|güld|};{time};{x}"
    values = [r["after"].split(";") for r in rows(spark, source(template=text), 0, 2000, {"after"})]
    columns = [set(c) for c in zip(*values, strict=True)]
    assert [int(v[0]) for v in values] == list(range(2000))
    assert columns[1] == {"-3", "-2", "-1", "0", "1", "2", "3"}
    assert len(columns[2]) == 2000
    assert all(0 <= int(v) < 2**63 for v in columns[2])
    assert all(re.fullmatch(r"-?[01]\.[0-9]{3}", v) for v in columns[3])
    assert -1 <= min(map(float, columns[3])) < -0.99 < 0.12 < max(map(float, columns[3])) <= 0.125
    assert columns[4] == {"true", "false"}
    assert columns[5] == set(WORDS.split())
    assert {(str(u), u.version, u.variant) for u in map(uuid.UUID, columns[6])} == {
        (v, 4, uuid.RFC_4122) for v in columns[6]
    }
    assert len(columns[6]) == 2000
    assert columns[7] == {"red", "güld", ""}
    assert columns[9] == {"{x}"}


def test_times_follow_from_the_number_over_the_ends_of_days(spark: SparkSession) -> None:
    day = 86_400_000
    for low in (0, 59_990, 3_599_990, 60 * day - 5, 10_000 * day - 5):
        made = [r["after"] for r in rows(spark, source(template="{time}"), low, low + 20, {"after"})]
        start = datetime(2024, 1, 1, tzinfo=UTC)
        times = [start + timedelta(milliseconds=n) for n in range(low, low + 20)]
        assert made == [f"{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond // 1000:03d}Z" for t in times]


def test_fields_are_json_of_their_types(spark: SparkSession) -> None:
    fields = {"id": "int", "name": "string", "at": "time", "took": "duration", "ok": "bool", 'odd "ä"': "int"}
    options = {f"format.options.{name}": kind for name, kind in fields.items()}
    raw, structured = (source(**{"format.type": t}, **options) for t in ("raw", "structured"))
    made = rows(spark, raw, 0, 500, {"after"})
    assert made == rows(spark, structured, 0, 500, {"after"})
    for text in (r["after"] for r in made):
        value = json.loads(text)
        assert text == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert {name: type(v) for name, v in value.items()} == {
            "id": int,
            "name": str,
            "at": str,
            "took": int,
            "ok": bool,
            'odd "ä"': int,
        }
        assert value["took"] % 1_000_000_000 == 0 <= value["took"] < 1_000_000_000_000


def test_a_file_is_every_payload_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    content = b"one\ntwo \xff\x00 {seq} '\\"
    (tmp_path / "f").write_bytes(content)
    made = source(**{"format.type": "file", "format.options.path": str(tmp_path / "f")})
    made.check()
    (tmp_path / "f").write_bytes(b"another")  # it was read once
    frame = made.frame(spark, ranges(0, 3), {"after"})
    assert [bytes(r[0]) for r in frame.select(frame.after.cast("binary")).collect()] == [content] * 3


def test_operations_say_which_payloads_there_are(spark: SparkSession) -> None:
    made = rows(spark, source(template="{int}", operations="create,update,delete,snapshot"), 0, 4000)
    counts = {op: sum(r["operation"] == op for r in made) for op in ("create", "update", "delete", "snapshot")}
    assert sum(counts.values()) == 4000
    assert all(900 < n < 1100 for n in counts.values())
    for r in made:
        assert (r["before"] is not None, r["after"] is not None) == {
            "create": (False, True),
            "snapshot": (False, True),
            "update": (True, True),
            "delete": (True, False),
        }[r["operation"]]
        assert r["before"] != r["after"]


def test_collections_take_turns_and_places_are_as_the_frame_says(spark: SparkSession) -> None:
    made = source(**EVERYTHING)
    some = ranges(1000, 1050, base=77)
    places = made.locate(some)
    found = [r.asDict() for r in made.frame(spark, some, GIVEN).collect()]
    assert [r["seq"] for r in found] == list(range(77, 127))
    assert [r["namespace"] for r in found] == [None, "users"] * 25
    assert [(bytes(r["position"]), r["metadata"]) for r in found] == [places(r["seq"]) for r in found]


@pytest.mark.parametrize("columns", [{"after"}, {"after", "seq"}, {"seq"}, {"after", "key", "source", "metadata"}])
def test_only_what_is_asked_for_is_made(spark: SparkSession, columns: set[str]) -> None:
    frame = source(**EVERYTHING).frame(spark, ranges(0, 3), columns)
    assert set(frame.columns) == columns - {"source"}


# -- pipelines ------------------------------------------------------------------------------------------------------


class Bench:
    """A pipeline from the generator to files, run again and again on one state folder."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark

    def pipeline(self, max_bytes: int = 300, /, **settings: Any) -> Pipeline:
        return Pipeline("p").source("g", "generator", batch={"max-bytes": max_bytes}, **settings)

    def run(self, p: Pipeline) -> dict[str, Any]:
        p.destination("out", "files", path=self.root / "out")
        summary = run([p], spark=self.spark, state=self.root / "state").raise_for_error()
        result: dict[str, Any] = summary.to_json()["pipelines"][0]
        return result

    def lines(self) -> list[str]:
        return oracle.delivered(self.root / "out")


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


def test_a_finite_run_delivers_every_number_once_and_a_later_one_goes_on(bench: Bench) -> None:
    bench.run(bench.pipeline(template="{seq}", recordCount=100))
    assert bench.lines() == [str(n) for n in range(100)]
    assert len(oracle.outputs(bench.root / "out")) > 1
    bench.run(bench.pipeline(template="{seq}", recordCount=100))
    assert len(bench.lines()) == 100
    bench.run(bench.pipeline(template="n{seq}", recordCount=130, seed=3))
    assert bench.lines() == [str(n) for n in range(100)] + [f"n{n}" for n in range(100, 130)]


def test_runs_in_pieces_give_what_one_run_gives(tmp_path: Path, spark: SparkSession) -> None:
    one, many = Bench(tmp_path / "one", spark), Bench(tmp_path / "many", spark)
    settings = {"template": "{seq} {int} {word}", "seed": "42"}
    one.run(one.pipeline(1 << 30, recordCount=60, **settings))
    for count in (1, 25, 60):
        many.run(many.pipeline(500, recordCount=count, **settings))
    assert one.lines() == many.lines()
    assert len(one.lines()) == 60


def test_structured_records_are_objects_and_encode_to_text(bench: Bench) -> None:
    seen = {"format.type": "structured", "format.options.id": "int", "format.options.name": "string"}
    p = bench.pipeline(recordCount=20, **seen)
    p.processor("even", "filter", condition="after.id % 2 = 0").processor("encode", "json.encode")
    bench.run(p)
    expected = [r["after"] for r in rows(bench.spark, source(**seen), 0, 20, {"after"})]
    kept = [json.loads(line) for line in bench.lines()]
    assert len(kept) > 0
    assert all(list(v) == ["id", "name"] for v in kept)
    assert {json.dumps(v, separators=(",", ":")) for v in kept} < set(expected)
    assert len({v["id"] % 2 for v in kept}) == 1


def test_a_gate_that_closed_inside_a_batch_loses_no_number(bench: Bench) -> None:
    """The batch is cut before the bad record; the next run, with another format, makes the rest at the same numbers."""

    def refuses(r: Record) -> Record | Reject:
        return Reject("not this one") if r.position == b"37" else r

    p = bench.pipeline(1 << 20, template="{seq}", recordCount=100).processor("f", refuses)
    with pytest.raises(PenstockError):
        bench.run(p)
    assert bench.lines() == [str(n) for n in range(37)]
    bench.run(bench.pipeline(1 << 20, template="{seq}!", recordCount=100))
    assert bench.lines() == [str(n) for n in range(37)] + [f"{n}!" for n in range(37, 100)]


def test_a_record_without_a_payload_is_a_dead_letter_of_a_text_file(bench: Bench) -> None:
    p = bench.pipeline(template="{seq}", recordCount=50, operations="create,delete").dead_letter_queue(window=0)
    result = bench.run(p)
    made = rows(bench.spark, source(template="{seq}", operations="create,delete"), 0, 50)
    assert bench.lines() == [r["after"] for r in made if r["after"] is not None]
    assert 0 < len(bench.lines()) < 50
    assert result["destinations"]["out"]["dead_lettered"] == 50 - len(bench.lines())
