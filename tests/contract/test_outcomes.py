"""Every record has exactly one outcome at every destination: delivered, filtered or dead-lettered."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DROP, Pipeline, Record, Reject, processor
from penstock.config import ConfigErrors
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.errors import AccountError, PenstockError, Stop
from penstock.native import Delivery, Known, Limits, NativeDestination, Ranges, Receipt, Refuse, Retry
from penstock.testing import faults
from tests.support import oracle
from tests.support.outcomes import Appender, Refusing, dead, delivered, judge, stamp, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.batch.context import Outcomes

pytestmark = pytest.mark.spark


class Bench:
    """Pipelines in a folder of their own, run inside the test on its Spark."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark

    @property
    def state(self) -> Path:
        return self.root / "state"

    def issue(self, files: int = 1, lines: int = 20, folder: str = "in", first: int = 0) -> list[str]:
        return write_json(self.root / folder, files, lines, first=first)

    def pipeline(self, *, max_files: int = 10, **settings: Any) -> Pipeline:
        source = Pipeline("p").source("in", "files", path=self.root / "in", batch={"max-files": max_files}, **settings)
        return source.processor("decode", "json.decode")

    def to(self, p: Pipeline, *names: str) -> Pipeline:
        p.processor("encode", "json.encode")
        for name in names or ("out",):
            p.destination(name, "files", path=self.root / name)
        return p

    def run(self, p: Pipeline, **options: Any) -> dict[str, Any]:
        from penstock.pipeline import run

        summary = run([p], spark=self.spark, state=self.state, **options).raise_for_error()
        result: dict[str, Any] = summary.to_json()["pipelines"][0]
        return result

    def fails(self, p: Pipeline, **options: Any) -> PenstockError:
        with pytest.raises(PenstockError) as e:
            self.run(p, **options)
        return e.value

    def ids(self, folder: str = "out") -> list[str]:
        return [r["id"] for r in delivered(self.root / folder)]

    def dead(self) -> list[dict[str, Any]]:
        return dead(self.state)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return oracle.rows(self.state, sql)


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


# -- the shape of a pipeline ----------------------------------------------------------------------------------------------


def _mark(name: str) -> Any:
    def f(r: Record) -> Record:
        assert isinstance(r.after, dict)
        r.after.setdefault("marks", []).append(name)
        return r

    return f


@pytest.mark.contract("S1", reason="shape, not a safeguard: each mark is checked at each of its five places")
def test_every_record_goes_through_the_processors_of_its_way_and_no_others(bench: Bench) -> None:
    for name in ("a", "b"):
        write_json(bench.root / name, 1, 4)
    p = Pipeline("p")
    for name in ("a", "b"):
        p.source(name, "files", path=bench.root / name)
        p.processor(f"decode-{name}", "json.decode", on=name).processor(
            f"source-{name}", _mark(f"source-{name}"), on=name
        )
    p.processor("all", _mark("pipeline"))
    for name in ("x", "y"):
        p.destination(name, "files", path=bench.root / name)
        p.processor(f"destination-{name}", _mark(f"destination-{name}"), on=name)
        p.processor(f"encode-{name}", "json.encode", on=name)
    result = bench.run(p)
    for name in ("x", "y"):
        rows = delivered(bench.root / name)
        ways = sorted(tuple(r["marks"]) for r in rows)
        assert ways == sorted((f"source-{s}", "pipeline", f"destination-{name}") for s in ("a", "b") for _ in range(4))
        assert result["destinations"][name]["delivered"] == 8


@pytest.mark.contract("S1", reason="a refusal")
@pytest.mark.parametrize("missing", ["source", "destination"])
def test_a_pipeline_without_a_source_or_a_destination_is_refused(bench: Bench, missing: str) -> None:
    p = Pipeline("p")
    if missing == "source":
        p.destination("out", "files", path=bench.root / "out")
    else:
        p.source("in", "files", path=bench.root)
    with pytest.raises(ConfigErrors, match=f"no {missing}"):
        p.plan()


# -- states -----------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S2", safeguard="nacks-with-prepare")
def test_a_record_that_one_of_three_destinations_rejects_is_nacked_there_and_acked_elsewhere(bench: Bench) -> None:
    ids = bench.issue(lines=20)
    p = bench.to(bench.pipeline(), "one", "two", "three").dead_letter_queue(window=0)
    p.processor("no", "error", condition="after like '%:7\"%'", on="two", message="seven is not wanted")
    result = bench.run(p)
    bad = "f00000:7"
    assert [(x["record"], x["destination"], x["node"]) for x in bench.dead()] == [(bad, "two", "no")]
    assert bench.ids("one") == bench.ids("three") == ids
    assert bench.ids("two") == [i for i in ids if i != bad]
    assert {name: d["dead_lettered"] for name, d in result["destinations"].items()} == {"one": 0, "two": 1, "three": 0}
    assert result["sources"]["in"] == {"read": 20, "acked": 20}
    [(error, state)] = bench.rows("SELECT error, state FROM nack")
    assert (error, state) == ("seven is not wanted", "open")


def _random_outcome(r: Record) -> Any:
    chance = random.random()
    if chance < 0.3:
        return DROP
    if chance < 0.6:
        return Reject("at random")
    return r


@pytest.mark.contract("S2", "C14", safeguard="account")
def test_a_hundred_thousand_random_outcomes_are_one_each(bench: Bench) -> None:
    ids = bench.issue(files=10, lines=10_000)
    p = bench.pipeline().processor("random", _random_outcome)
    result = bench.run(bench.to(p, "one", "two").dead_letter_queue(window=0))
    letters = [str(x["record"]) for x in bench.dead()]
    there = set(bench.ids("one"))
    filtered = set(ids) - there - set(letters)
    assert judge(ids, filtered, bench.dead(), {n: bench.root / n for n in ("one", "two")}) == []
    for name in ("one", "two"):
        d = result["destinations"][name]
        assert d["delivered"] + d["filtered"] + d["dead_lettered"] == 100_000
        assert (d["delivered"], d["filtered"], d["dead_lettered"]) == (len(there), len(filtered), len(letters))


@pytest.mark.contract("C1", reason="each of the three outcomes is counted; the frontier and a second run show the rest")
def test_good_filtered_and_failing_input_are_delivered_all_three(bench: Bench) -> None:
    ids = bench.issue(lines=3)
    p = bench.pipeline().processor("drop", "filter", condition="after.n = 1")
    p.processor("no", "error", condition="after.n = 2")
    bench.to(p).dead_letter_queue(window=0)
    result = bench.run(p)
    assert bench.ids() == ids[:1]
    assert [x["record"] for x in bench.dead()] == ids[2:]
    assert result["destinations"]["out"] | {"produced": 0} == {
        "delivered": 1,
        "filtered": 1,
        "dead_lettered": 1,
        "discarded": 0,
        "produced": 0,
    }
    assert bench.rows("SELECT read, acked FROM lane") == [(3, 3)]
    assert bench.run(p)["sources"]["in"]["read"] == 0


@pytest.mark.contract("C2", safeguard="gate")
def test_a_processor_error_is_one_dead_letter_or_a_stop(bench: Bench) -> None:
    ids = bench.issue(lines=10)
    p = bench.pipeline().processor("no", "error", condition="after.n = 4", message="four")
    bench.to(p)
    error = bench.fails(p)
    assert error.code == "gate.closed"
    assert "four" in error.what
    assert bench.ids() == ids[:4]
    assert bench.dead() == []
    assert bench.rows("SELECT state, json_extract(record, '$.error') FROM nack") == [("held", "four")]
    p.dead_letter_queue(window=0)
    bench.run(p)
    assert bench.ids() == [i for i in ids if i != ids[4]]
    assert [x["record"] for x in bench.dead()] == [ids[4]]
    assert bench.rows("SELECT state FROM nack") == [("open",)]
    faults.install(off=["gate"])
    control = Bench(bench.root / "control", bench.spark)
    control.issue(lines=10)
    other = control.pipeline().processor("no", "error", condition="after.n = 4")
    control.run(control.to(other))


@pytest.mark.contract("C2", "S11", safeguard="split")
def test_a_closed_gate_delivers_and_acks_what_came_before_and_goes_on_at_the_record(bench: Bench) -> None:
    ids = bench.issue(files=3, lines=10)
    p = bench.pipeline().processor("no", "error", condition="after.id = 'f00001:6'")
    bench.to(p, "one", "two")
    for _ in range(2):  # the second start stops at the same record again
        error = bench.fails(p)
        assert error.code == "gate.closed"
        assert bench.ids("one") == bench.ids("two") == ids[:16]
        assert bench.rows("SELECT read, acked FROM lane") == [(16, 16)]
    p.dead_letter_queue(window=0)
    bench.run(p)
    assert bench.ids("one") == bench.ids("two") == [i for i in ids if i != "f00001:6"]
    assert bench.rows("SELECT read, acked FROM lane") == [(30, 30)]
    parents = bench.rows("SELECT batch, state, parent, reason FROM snapshot ORDER BY batch")
    assert parents == [(1, "split", None, None), (2, "done", 1, "gate"), (3, "done", 1, "gate")]
    faults.install(off=["split"])
    control = Bench(bench.root / "control", bench.spark)
    control.issue(lines=10)
    other = control.pipeline().processor("no", "error", condition="after.n = 6")
    assert control.fails(control.to(other)).code == "gate.closed"
    assert control.ids() == []  # what came before is not delivered


# -- the dead letter --------------------------------------------------------------------------------------------------------


def test_a_dead_letter_holds_what_was_given_its_form_the_error_the_node_and_the_destination(bench: Bench) -> None:
    bench.issue(lines=3)
    p = bench.pipeline().processor("tag", "field.set", field=".Payload.After.tag", value="t")
    p.processor("no", "error", condition="after.n = 1", message="one is bad")
    bench.run(bench.to(p, "one", "two").dead_letter_queue(window=0))
    [letter] = bench.dead()
    path = bench.root / "in" / "f00000.txt"
    given, form = json.loads(letter["given"]), json.loads(letter["form"])
    assert given["after"] == {"text": '{"id": "f00000:1", "n": 1}'}
    assert given["metadata"] == {"penstock.file": str(path)}
    assert form["after"] == {"value": {"id": "f00000:1", "n": 1, "tag": "t"}}
    assert (letter["error"], letter["node"], letter["destination"]) == ("one is bad", "no", "")
    assert letter["position"] == f"{path}#1".encode()
    assert letter["at"] > 1_700_000_000_000
    assert bench.rows("SELECT id FROM nack") == [(letter["id"],)]


def test_a_payload_that_is_not_utf_8_is_kept_byte_for_byte_in_its_dead_letter(bench: Bench) -> None:
    (bench.root / "in").mkdir(parents=True)
    (bench.root / "in" / "a.txt").write_bytes(b'{"id": 1}\n\xff\xfe{\n')
    p = bench.to(bench.pipeline(settle="0s")).dead_letter_queue(window=0)
    bench.run(p)
    [row] = _letters(bench.state)
    assert json.loads(row["given"])["after"] == {"base64": "//57"}
    assert "JSON" in row["error"]


def _letters(state: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return [r for path in (state / "dead-letters").glob("*/*.parquet") for r in pq.read_table(path).to_pylist()]


@pytest.mark.contract(
    "S7", reason="nothing is kept, which is what is checked; the state folder's own letter is the evidence"
)
def test_a_queue_that_logs_and_drops_lets_the_pipeline_go_on(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    ids = bench.issue(lines=10)
    for name, plugin in (("logged", "log"), ("dropped", "blackhole")):
        b = Bench(bench.root / name, bench.spark)
        b.issue(lines=10)
        p = b.pipeline().processor("no", "error", condition="after.n in (2, 5)", message="no")
        with caplog.at_level("INFO", logger="penstock.log"):
            caplog.clear()
            result = b.run(b.to(p).dead_letter_queue(plugin, window=0))
        assert b.ids() == [i for i in ids if i not in (ids[2], ids[5])]
        assert result["sources"]["in"] == {"read": 10, "acked": 10}
        lines = [r for r in caplog.records if r.name == "penstock.log"]
        assert len(lines) == (2 if plugin == "log" else 0)


class Broken(NativeDestination[None]):
    """A dead letter queue that is down until a file says otherwise."""

    def __init__(self, up: Path) -> None:
        super().__init__(None, "broken")
        self.up = up

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        assert d.rows is not None
        if not self.up.exists():
            raise Stop("the queue is down", code="test.down")
        return Receipt(d.rows.count())


@pytest.mark.contract("S3", safeguard="dlq-decides")
def test_the_source_is_acked_only_once_the_queue_has_taken_the_dead_letter(bench: Bench) -> None:
    bench.issue(files=2, lines=10)
    p = bench.pipeline(max_files=1).processor("no", "error", condition="after.id = 'f00000:5'")
    bench.to(p).dead_letter_queue(Broken(bench.root / "up"), window=0)
    assert bench.fails(p).code == "test.down"
    assert bench.rows("SELECT acked FROM lane") == [(0,)]
    assert bench.fails(p).code == "test.down"
    assert bench.rows("SELECT acked FROM lane") == [(0,)]
    (bench.root / "up").touch()
    bench.run(p)
    assert bench.rows("SELECT acked FROM lane") == [(20,)]
    assert len(bench.ids()) == 19
    faults.install(off=["dlq-decides"])
    control = Bench(bench.root / "control", bench.spark)
    control.issue(lines=10)
    other = control.pipeline().processor("no", "error", condition="after.n = 5")
    control.run(control.to(other).dead_letter_queue(Broken(bench.root / "never"), window=0))
    assert control.rows("SELECT acked FROM lane") == [(10,)]


def test_a_configured_queue_gets_every_dead_letter_once(bench: Bench) -> None:
    bench.issue(lines=10)
    p = bench.pipeline().processor("no", "error", condition="after.n % 2 = 0")
    bench.to(p).dead_letter_queue("files", window=0, path=bench.root / "queue")
    bench.run(p)
    letters = [json.loads(line) for line in oracle.delivered(bench.root / "queue")]
    assert sorted(json.loads(x["given"]["after"]["text"])["n"] for x in letters) == [0, 2, 4, 6, 8]
    assert {x["node"] for x in letters} == {"no"}


# -- handlers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S4", safeguard="outcome-first")
def test_a_handler_that_raises_stops_the_pipeline_with_nothing_acked(bench: Bench) -> None:
    bench.issue(lines=10)
    seen: list[Outcomes] = []

    def handler(o: Outcomes) -> None:
        seen.append(o)
        raise RuntimeError("no")

    def make() -> Pipeline:
        return bench.to(bench.pipeline().processor("some", "filter", condition="after.n < 3"))

    error = bench.fails(make().on_outcome(handler))
    assert error.code == "handler.failed"
    assert (seen[0].records, dict(seen[0].delivered), dict(seen[0].filtered)) == (10, {"out": 7}, {"out": 3})
    assert bench.rows("SELECT acked FROM lane") == [(0,)]
    bench.run(make())
    assert bench.rows("SELECT acked FROM lane") == [(10,)]
    assert len(bench.ids()) == 7
    faults.install(off=["outcome-first"])
    control = Bench(bench.root / "control", bench.spark)
    control.issue(lines=3)
    control.fails(control.to(control.pipeline()).on_outcome(handler))
    assert control.rows("SELECT acked FROM lane") == [(3,)]


# -- the account --------------------------------------------------------------------------------------------------------------


@processor(batch=True)
def loses_a_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(0, batch.num_rows - 1)


@pytest.mark.contract("X2", safeguard="account")
def test_a_processor_that_loses_a_row_makes_the_batch_fail(bench: Bench) -> None:
    bench.issue(lines=10)
    p = Pipeline("p").source("in", "files", path=bench.root / "in").processor("lose", loses_a_row)
    p.destination("out", "files", path=bench.root / "out")
    with pytest.raises(AccountError, match="do not add up"):
        bench.run(p)
    assert bench.ids() == []
    faults.install(off=["account"])
    bench.run(p)
    assert len(bench.ids()) == 9


@processor(batch=True)
def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drops, rejects and changes whole columns; raises on one record."""
    text = batch.column("after").cast(pa.string())
    if "f00000:13" in "".join(text.to_pylist()):
        raise ValueError("thirteen")
    columns = {
        "after": pc.replace_substring(text, '"n"', '"number"'),
        "drop": pc.match_substring(text, '"n": 4}'),
        "reject": pc.if_else(pc.match_substring(text, '"n": 7}'), "seven", pa.scalar(None, pa.string())),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_a_function_of_whole_batches_has_an_outcome_for_every_row(bench: Bench) -> None:
    ids = bench.issue(lines=20)
    p = Pipeline("p").source("in", "files", path=bench.root / "in").processor("batch", by_batch)
    p.destination("out", "files", path=bench.root / "out").dead_letter_queue(window=0)
    result = bench.run(p)
    rows = delivered(bench.root / "out")
    assert [r["id"] for r in rows] == [i for i in ids if i not in (ids[4], ids[7], ids[13])]
    assert all("number" in r for r in rows)
    assert sorted((x["record"], x["error"]) for x in bench.dead()) == [
        ("f00000:13", "ValueError: thirteen"),
        ("f00000:7", "seven"),
    ]
    assert result["destinations"]["out"]["filtered"] == 1


def _split(r: Record) -> Any:
    assert isinstance(r.after, dict)
    if r.after["n"] % 3 == 0:
        return []
    if r.after["n"] % 3 == 1:
        return [r.derive(after={**r.after, "part": k}) for k in range(3)]
    return r


def _second_part_is_bad(r: Record) -> Any:
    assert isinstance(r.after, dict)
    return Reject("second part") if r.after.get("part") == 1 else r


def test_parts_of_a_record_have_an_outcome_each_and_the_account_holds(bench: Bench) -> None:
    bench.issue(lines=9)
    p = bench.pipeline().processor("split", _split).processor("bad", _second_part_is_bad)
    result = bench.run(bench.to(p, "one", "two").dead_letter_queue(window=0))
    for name in ("one", "two"):
        parts = [(r["n"], r.get("part")) for r in delivered(bench.root / name)]
        assert parts == [(1, 0), (1, 2), (2, None), (4, 0), (4, 2), (5, None), (7, 0), (7, 2), (8, None)]
        d = result["destinations"][name]
        assert (d["delivered"], d["filtered"], d["dead_lettered"], d["produced"]) == (9, 3, 3, 6)
    assert sorted((x["record"], x["part"]) for x in bench.dead()) == [(f"f00000:{n}", 2) for n in (1, 4, 7)]


def test_what_text_cannot_hold_is_a_nack_and_not_two_lines(bench: Bench) -> None:
    ids = bench.issue(lines=4)

    def breaks(r: Record) -> Record:
        assert isinstance(r.after, dict)
        if r.after["n"] == 1:
            r.after = b"two\nlines"
        if r.after and isinstance(r.after, dict) and r.after["n"] == 2:
            r.after = None
        return r

    for names in (("out",), ("one", "two")):
        b = Bench(bench.root / "-".join(names), bench.spark)
        b.issue(lines=4)
        p = b.pipeline().processor("breaks", breaks)
        for name in names:
            p.destination(name, "files", path=b.root / name)
        b.run(p.dead_letter_queue(window=0))
        assert b.ids(names[0]) == [ids[0], ids[3]]
        codes = sorted((x["record"], x["code"], x["node"], x["destination"]) for x in b.dead())
        assert codes == [(i, "destination.unfit", ", ".join(names), "") for i in ids[1:3]]
    b = Bench(bench.root / "own", bench.spark)
    b.issue(lines=4)
    p = b.pipeline().destination("one", "files", path=b.root / "one").destination("two", "files", path=b.root / "two")
    b.run(p.processor("breaks", breaks, on="two").dead_letter_queue(window=0))
    assert b.ids("one") == ids
    assert b.ids("two") == [ids[0], ids[3]]
    assert [(x["record"], x["node"], x["destination"]) for x in b.dead()] == [(i, "two", "two") for i in ids[1:3]]


def _as_text(r: Record) -> Record:
    assert isinstance(r.after, dict)
    if r.after["n"] == 1:
        r.after = b"no JSON"
    return r


@processor(batch=True)
def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_open_payloads_are_open_again_behind_another_stage_and_letters_keep_what_was_given(bench: Bench) -> None:
    """Between stages an open payload is text: the next stage, or a destination's own processors, sees an object again."""
    ids = bench.issue(lines=6)
    p = bench.pipeline().processor("text", _as_text).processor("batch", unchanged)
    p.processor("no", "error", condition="after.n = 2").processor("mark", _mark("x"), condition="after.n = 4")
    p.destination("one", "files", path=bench.root / "one").destination("two", "files", path=bench.root / "two")
    p.processor("own", "filter", condition="after.n = 3", on="two").dead_letter_queue(window=0)
    bench.run(p)
    letters = bench.dead()
    assert sorted(str(x["record"]) for x in letters) == [ids[1], ids[2]]
    assert {json.loads(x["given"])["after"]["text"] for x in letters} == {
        '{"id": "f00000:1", "n": 1}',
        '{"id": "f00000:2", "n": 2}',
    }
    assert [r["n"] for r in delivered(bench.root / "one")] == [0, 3, 4, 5]
    assert [r["n"] for r in delivered(bench.root / "two")] == [0, 4, 5]
    assert delivered(bench.root / "two")[1]["marks"] == ["x"]


@pytest.mark.parametrize("result", [None, 5, "text", object()])
def test_a_function_that_returns_something_else_nacks_the_record(bench: Bench, result: object) -> None:
    bench.issue(lines=2)
    p = bench.to(bench.pipeline().processor("odd", _returns(result))).dead_letter_queue(window=0)
    bench.run(p)
    assert {x["code"] for x in bench.dead()} == {"processor.result"}
    assert len(bench.dead()) == 2


def _returns(result: object) -> Any:
    kind = type(result).__name__
    values: dict[str, Any] = {"NoneType": None, "int": 5, "str": "text"}
    return lambda _: values.get(kind, ...)


# -- fan-out --------------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S14", safeguard="materialise")
def test_all_destinations_hold_the_same_values(bench: Bench) -> None:
    ids = bench.issue(files=3, lines=50)
    outs = {n: bench.root / n for n in ("one", "two", "three")}
    bench.run(bench.to(bench.pipeline().processor("stamp", stamp), *outs))
    assert judge(ids, [], [], outs) == []
    faults.install(off=["materialise"])
    control = Bench(bench.root / "control", bench.spark)
    control.issue(lines=20)
    try:
        control.run(control.to(control.pipeline().processor("stamp", stamp), "one", "two"))
    except PenstockError:
        return
    assert judge([], [], [], {n: control.root / n for n in ("one", "two")}) != []


def test_typed_payloads_are_processed_in_columns_and_bad_ones_cost_one_record_each(bench: Bench) -> None:
    (bench.root / "in").mkdir(parents=True)
    lines = ['{"id": "a", "n": 1}', '{"id": "b", "n": "x"}', "nonsense", '{"id": "c", "n": 0}', '{"id": "d", "n": 5}']
    (bench.root / "in" / "a.txt").write_text("\n".join(lines) + "\n")
    p = Pipeline("p").source("in", "files", path=bench.root / "in", settle="0s")
    p.processor("decode", "json.decode", schema="id STRING, n BIGINT")
    p.processor("half", "sql", expression="10 / after.n", field=".Payload.After.half")
    p.processor("big", "filter", condition="after.n = 5")
    p.processor("region", "field.set", field=".Payload.After.region", value="eu")
    p.processor("encode", "json.encode").destination("out", "files", path=bench.root / "out")
    result = bench.run(p.dead_letter_queue(window=0))
    assert delivered(bench.root / "out") == [{"id": "a", "n": 1, "half": 10.0, "region": "eu"}]
    letters = sorted(_letters(bench.state), key=lambda x: x["seq"])
    assert [(x["node"], json.loads(x["given"])["after"]["text"]) for x in letters] == [
        ("decode", lines[1]),
        ("decode", lines[2]),
        ("half", lines[3]),
    ]
    counts = result["destinations"]["out"]
    assert (counts["delivered"], counts["filtered"], counts["dead_lettered"]) == (1, 1, 3)


def test_a_destination_that_cannot_stage_is_refused_where_exactly_once_is_asked_for(bench: Bench) -> None:
    p = Pipeline("p").source("in", "files", path=bench.root)
    p.destination("out", Appender(bench.root / "out", "out"))
    with pytest.raises(ConfigErrors, match="can't deliver exactly once"):
        p.plan()
    p.guarantee("at-least-once").plan()


# -- lanes --------------------------------------------------------------------------------------------------------------------------


class Flaky(FilesSource):
    """Answers at the third try."""

    tries = 0

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        self.tries += 1
        if self.tries < 3:
            raise Retry("not now", code="test.retry")
        return super().available(known, limits)


@pytest.mark.contract(
    "S13", reason="who is restarted and who is stopped is seen in the events; there is nothing to switch off"
)
def test_a_retry_restarts_only_its_lane_and_a_closed_gate_stops_them_all(bench: Bench) -> None:
    from penstock.engine.backoff import Backoff
    from penstock.pipeline import run

    for name in ("a", "b"):
        write_json(bench.root / name, 3, 10)
    flaky = Flaky(FilesSourceSettings(path=str(bench.root / "a")), "a")
    p = Pipeline("p").source("a", flaky).source("b", "files", path=bench.root / "b", batch={"max-files": 1})
    events: list[tuple[str, str]] = []
    run(
        [bench.to(p.processor("decode", "json.decode"))],
        spark=bench.spark,
        state=bench.state,
        report=lambda event, _, source, __: events.append((event, source)),
        backoff=Backoff(first=0.01, tries=5),
    ).raise_for_error()
    assert [e for e in events if e[0] == "retry"] == [("retry", "a")] * 2
    assert len(bench.ids()) == 60

    write_json(bench.root / "a", 1, 10, first=3)
    ids = write_json(bench.root / "b", 50, 2, first=3)
    p = Pipeline("p").source("a", "files", path=bench.root / "a", batch={"max-files": 1})
    p.source("b", "files", path=bench.root / "b", batch={"max-files": 1}).processor("decode", "json.decode")
    bench.to(p).processor("no", "error", condition="after like '%f00003:7%'")
    error = bench.fails(p)
    assert error.code == "gate.closed"
    assert "p/a" in error.where
    assert len(bench.ids()) < 60 + 7 + len(ids)  # b was stopped on its way
    bench.run(p.dead_letter_queue(window=0))
    new = [i for i in bench.ids() if int(i[1:6]) >= 3]
    assert sorted(new) == sorted([*(i for i in ids if i != "f00003:7"), *(f"f00003:{n}" for n in range(10) if n != 7)])


def test_an_unreadable_file_is_one_dead_letter_and_the_others_are_delivered(bench: Bench) -> None:
    ids = bench.issue(files=3, lines=10)
    whole = gzip.compress(b"".join(b'{"id": "gz:%d", "n": %d}\n' % (n, n) for n in range(20_000)))
    (bench.root / "in" / "f00000b.txt.gz").write_bytes(whole[: len(whole) // 2])
    os.utime(bench.root / "in" / "f00000b.txt.gz", (1_700_000_000, 1_700_000_000))
    other = Refusing(bench.root / "other", "other")  # a destination with a manifest of its own kind
    result = bench.run(bench.to(bench.pipeline()).destination("other", other).dead_letter_queue(window=0))
    assert bench.ids() == other.ids() == ids
    [letter] = _letters(bench.state)
    assert letter["code"] == "files.unreadable-file"
    assert "f00000b.txt.gz" in letter["error"]
    assert letter["given"] is None
    assert result["destinations"]["out"]["dead_lettered"] == 1
    assert bench.run(bench.to(bench.pipeline()))["sources"]["in"]["read"] == 0


@pytest.mark.contract("C21", safeguard="trap")
def test_a_condition_that_raises_costs_one_record(bench: Bench) -> None:
    (bench.root / "in").mkdir(parents=True)
    (bench.root / "in" / "a.txt").write_text("1\nx\n3\n")
    for folder, condition in (("raw", "cast(after as int) > 2"), ("open", "cast(after.v as int) > 2")):
        b = Bench(bench.root / folder, bench.spark)
        (b.root / "in").mkdir(parents=True)
        lines = ["1", "x", "3"] if folder == "raw" else ['{"v": "1"}', '{"v": "x"}', '{"v": "3"}']
        (b.root / "in" / "a.txt").write_text("\n".join(lines) + "\n")
        p = Pipeline("p").source("in", "files", path=b.root / "in", settle="0s")
        if folder == "open":
            p.processor("decode", "json.decode")
        p.processor("big", "filter", condition=condition).destination("out", "files", path=b.root / "out")
        result = b.run(p.dead_letter_queue(window=0))
        counts = result["destinations"]["out"]
        assert (counts["delivered"], counts["filtered"], counts["dead_lettered"]) == (1, 1, 1)
        [letter] = _letters(b.state)
        assert json.loads(letter["given"])["after"]["text"] == lines[1]


@pytest.mark.contract("C20", safeguard="settle-first: see test_guarantees")
def test_at_most_once_refuses_the_second_try_of_a_task(bench: Bench) -> None:
    bench.issue(lines=10)
    marker = bench.root / "tried"

    def dies_once(r: Record) -> Record:
        if not marker.exists():
            marker.touch()
            os.abort()
        return r

    p = bench.pipeline().guarantee("at-most-once").processor("dies", dies_once)
    error = bench.fails(bench.to(p))
    assert "second try" in f"{error.what} {error.why}", error
    assert bench.ids() == []
    assert bench.rows("SELECT discarded FROM total") == [(10,)]
    assert bench.run(p)["sources"]["in"]["read"] == 0
