"""Hosted destinations under an engine: order, one nack for one bad record, the gate, queues of dead letters, tasks that run twice. In this
process, on real Spark, with real hosts; what arrived is what the connector itself wrote down."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock import record
from penstock.engine.batch import stage
from penstock.engine.batch.materialise import materialise
from penstock.host import kept_rows, sink
from penstock.host.send_rows import SendRows
from penstock.pipeline import Pipeline
from penstock.plugins.standalone import Standalone
from penstock.testing import faults
from penstock_sdk.destination_plugin import DELIVERY, ID
from penstock_sdk.record import record_id
from tests.support import go
from tests.support.hosted_pipelines import Bench, installed, lane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.supervisor import PipelineResult

pytestmark = pytest.mark.spark
ROOM: dict[str, Any] = {"window": 0}
CHAOS = "penstock.connectors.chaos.connector:connector"


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.fixture(params=["class", "program"])
def chaos(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same connector both ways."""
    if request.param == "class":
        return "builtin:chaos"
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    return installed(tmp_path, "chaotic", CHAOS)


@pytest.fixture
def picky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program that refuses what stands in the file `refuse`."""
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    return installed(tmp_path, "picky", "tests.support.picky_destination:connector")


@pytest.fixture
def go_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    return f"standalone:{Standalone().add(go.built()).name}"


@pytest.fixture(params=["engine", "task", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads the rows that are kept: the engine where they are few, one task, or Spark's own plan."""
    monkeypatch.setattr(kept_rows, "FEW", 1 << 30 if request.param == "engine" else -1)
    monkeypatch.setattr(kept_rows, "PARTS", -1 if request.param == "spark" else 64)
    return str(request.param)


def lines(bench: Bench, count: int, files: int = 1, first: int = 1) -> list[str]:
    folder = bench.root / "in"
    folder.mkdir(exist_ok=True)
    made = [str(n) for n in range(first, first + count)]
    size = -(-count // files)
    for i in range(files):
        part = made[i * size : (i + 1) * size]
        (folder / f"f{first:06}-{i:03}.txt").write_text("".join(f"{line}\n" for line in part))
    return made


def pipeline(bench: Bench, plugin: str, **settings: Any) -> Pipeline:
    """From lines in `in` to a hosted `out` that writes a line for each record it gets."""
    p = Pipeline("p").guarantee("at-least-once").source("in", "files", path=bench.root / "in")
    return p.destination("out", plugin, path=bench.root / "out.jsonl", **settings)


def arrived(bench: Bench, name: str = "out") -> list[dict[str, Any]]:
    path = bench.root / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def afters(bench: Bench, name: str = "out") -> list[str]:
    return [str(r["after"]) for r in arrived(bench, name)]


def degraded(result: PipelineResult, code: str) -> None:
    assert result.status == "degraded"
    assert code in str(result.error), f"{result.error}\n{result.trace}"


def refuse(bench: Bench, *texts: str) -> None:
    (bench.root / "refuse").write_text("".join(f"{text}\n" for text in texts))


def picking(bench: Bench, plugin: str, p: Pipeline | None = None, *, rest: bool = True) -> Pipeline:
    p = p or Pipeline("p").guarantee("at-least-once").source("in", "files", path=bench.root / "in")
    settings: dict[str, Any] = {
        "path": bench.root / "out.jsonl",
        "refuse": bench.root / "refuse",
        "rest": str(rest).lower(),
    }
    return p.destination("out", plugin, **settings)


# -- what arrives ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S5", reason="what the connector wrote down is compared with the lines of each file, in order")
@pytest.mark.usefixtures("way")
def test_records_arrive_in_the_order_of_their_files(bench: Bench, chaos: str) -> None:
    every = lines(bench, 12_000, files=7)
    p = pipeline(bench, chaos).processor("same", same).processor("short", "filter", condition="length(after) = 0")
    result = bench.finish(p)
    assert lane(result).delivered == {"out": 12_000}
    found = afters(bench)
    assert sorted(found, key=int) == every
    by_file: dict[str, list[int]] = {}
    for r in arrived(bench):
        by_file.setdefault(r["position"].rpartition("#")[0], []).append(int(r["after"]))
    assert len(by_file) == 7
    assert all(numbers == sorted(numbers) for numbers in by_file.values())


def test_rows_that_lie_in_another_order_are_sorted_before_they_are_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "FEW", -1)
    answers: list[Any] = []
    collect = sink._answers

    def noted(found: DataFrame) -> list[dict[str, Any]]:
        answers.extend(made := collect(found))
        return made

    def turned_round(spark: SparkSession, flow: Any, *more: Any) -> Any:
        return materialise(spark, replace(flow, rows=flow.rows.sortWithinPartitions("seq", ascending=False)), *more)

    monkeypatch.setattr(sink, "_answers", noted)
    monkeypatch.setattr(stage, "materialise", turned_round)
    every = lines(bench, 3_000)
    bench.finish(pipeline(bench, "builtin:chaos"))
    assert answers == [{"unsorted": True}, {}]
    assert afters(bench) == every


@pytest.mark.contract("S1", reason="the marks of every record's way are looked at")
def test_sources_processors_and_two_hosted_destinations_in_one_pipeline(bench: Bench, chaos: str) -> None:
    lines(bench, 20)
    p = bench.chaos(pipeline(bench, chaos), "pushed", records=20)
    p.destination("two", "builtin:chaos", path=bench.root / "two.jsonl")
    p.processor("odd", "filter", condition="seq % 2 = 0", on="two")
    result = bench.finish(p)
    assert lane(result).delivered == {"out": 20, "two": 10}
    assert lane(result, "pushed").delivered == {"out": 20, "two": 10}
    assert len(arrived(bench)) == 40
    assert len(arrived(bench, "two")) == 20
    assert bench.acks("pushed") == list(range(1, 21))


def test_a_second_run_has_nothing_to_send(bench: Bench, chaos: str) -> None:
    lines(bench, 100)
    bench.finish(pipeline(bench, chaos))
    bench.finish(pipeline(bench, chaos))
    assert len(arrived(bench)) == 100
    lines(bench, 5, first=101)
    bench.finish(pipeline(bench, chaos))
    assert Counter(afters(bench)) == Counter(str(n) for n in range(1, 106))


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_without_an_order_several_tasks_send_and_records_of_a_key_stay_in_order(
    bench: Bench, chaos: str, ordering: str
) -> None:
    lines(bench, 2_000)
    p = Pipeline("p").guarantee("at-least-once").source("in", "files", path=bench.root / "in")
    p.processor("key", by_ten).destination("out", chaos, path=bench.root / "out.jsonl", ordering=ordering)
    bench.finish(p)
    assert Counter(afters(bench)) == Counter(str(n) for n in range(1, 2_001))
    if ordering == "key":
        by_key: dict[str, list[int]] = {}
        for r in arrived(bench):
            by_key.setdefault(r["key"], []).append(int(r["after"]))
        assert len(by_key) == 10
        assert all(numbers == sorted(numbers) for numbers in by_key.values())


def same(r: Any) -> Any:
    return r


def by_ten(r: Any) -> Any:
    return r.derive(key=str(int(r.after) % 10).encode())


@pytest.mark.contract(
    "C8", reason="what the program was told is compared over two lives of its process and with what the SDK says"
)
def test_delivery_and_record_are_named_the_same_at_every_try(bench: Bench, picky: str) -> None:
    lines(bench, 20)
    refuse(bench, "13")
    for _ in range(2):
        degraded(bench.run(picking(bench, picky)), "gate.closed")
    refuse(bench)
    bench.finish(picking(bench, picky))
    found = arrived(bench)
    assert [r["after"] for r in found] == [str(n) for n in range(1, 21)]
    assert len({r["delivery"] for r in found}) == 1
    assert len(found[0]["delivery"]) == 32
    assert [r["id"] for r in found] == [record_id("in", r["position"].encode()) for r in found]


@go.needs_go
def test_a_program_in_another_language_finds_both_in_the_metadata(bench: Bench, go_destination: str) -> None:
    lines(bench, 3)
    bench.finish(pipeline(bench, go_destination))
    metadata = [r["metadata"] for r in arrived(bench)]
    assert len({m[DELIVERY] for m in metadata}) == 1
    positions = [f"{bench.root}/in/f000001-000.txt#{n}".encode() for n in range(3)]
    assert [m[ID] for m in metadata] == [record_id("in", position) for position in positions]


@pytest.mark.contract("P15", reason="what the program got is compared with what the file has, value by value")
def test_typed_values_of_a_pipeline_reach_a_program_as_they_are(bench: Bench, picky: str) -> None:
    given = {"n": 2**60 + 1, "d": "12345678901234567890.0123456789", "t": "1969-07-20", "s": "ü"}
    (bench.root / "in").mkdir()
    (bench.root / "in" / "a.jsonl").write_text(json.dumps(given) + "\n")
    p = Pipeline("p").guarantee("at-least-once").source("in", "files", path=bench.root / "in")
    p.processor("decode", "json.decode", schema="n BIGINT, d DECIMAL(38,10), t DATE, s STRING")
    bench.finish(picking(bench, picky, p))
    [found] = arrived(bench)
    assert json.loads(found["after"]) == {
        "n": 2**60 + 1,
        "d": "Decimal('12345678901234567890.0123456789')",
        "t": "datetime.date(1969, 7, 20)",
        "s": "ü",
    }


# -- one bad record ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("P14", "S2", safeguard="tail-again")
@pytest.mark.parametrize("rest", ["true", "false"])
def test_a_go_destination_that_fails_one_of_a_thousand_costs_one_nack(
    bench: Bench, go_destination: str, rest: str
) -> None:
    every = [f"<{n}>" for n in range(1, 1_001)]
    (bench.root / "in").mkdir()
    (bench.root / "in" / "a.txt").write_text("\n".join(every) + "\n")
    p = pipeline(bench, go_destination, **{"fail.contains": "<500>", "fail.rest": rest})
    result = bench.finish(p.dead_letter_queue(**ROOM))
    assert lane(result).delivered == {"out": 999}
    assert lane(result).dead_lettered == {"out": 1}
    assert _raw(bench) == [line for line in every if line != "<500>"]
    assert bench.rows("SELECT destination, node, code, state FROM nack") == [
        ("out", "out", "destination.refused", "open")
    ]


def _raw(bench: Bench) -> list[str]:
    import base64

    return [base64.b64decode(r["payload"]["after"]["rawData"]).decode() for r in arrived(bench)]


def test_without_sending_the_tail_again_its_records_are_nacked_too(bench: Bench, go_destination: str) -> None:
    """The control of P14. The host is another process: there the safeguard is off, too."""
    lines(bench, 150, first=1000)
    p = pipeline(bench, go_destination, **{"fail.contains": "1050", "fail.rest": "true"})
    with _host_without("tail-again", bench):
        result = bench.finish(p.dead_letter_queue(**ROOM))
    assert lane(result).dead_lettered["out"] > 1


@pytest.mark.contract("T10", "S2", reason="with room the rest is delivered and the one dead-lettered")
@pytest.mark.parametrize("rest", [True, False])
def test_with_room_refused_records_are_dead_letters_of_that_destination_alone(
    bench: Bench, picky: str, rest: bool
) -> None:
    every = lines(bench, 1_000, files=3)
    bad = [str(n) for n in range(100, 1_001, 100)]
    refuse(bench, *bad)
    p = picking(bench, picky, rest=rest).dead_letter_queue(**ROOM)
    p.destination("files", "files", path=bench.root / "files")
    result = bench.finish(p)
    assert lane(result).dead_lettered == {"out": 10, "files": 0}
    assert lane(result).delivered == {"out": 990, "files": 1_000}
    assert lane(result).acked == 1_000
    assert bench.rows("SELECT destination, state FROM nack") == [("out", "open")] * 10
    assert sorted(afters(bench), key=int) == [n for n in every if n not in bad]
    texts = [json.loads(text)["after"]["text"] for (text,) in _letters(bench)]
    assert sorted(texts, key=int) == bad


def _letters(bench: Bench) -> list[tuple[str]]:
    import pyarrow.dataset as ds

    return [(row["given"],) for row in ds.dataset(bench.state / "dead-letters").to_table().to_pylist()]


@pytest.mark.contract("T10", "T15", "S9", safeguard="gate")
def test_without_room_nothing_behind_a_refused_record_arrives_and_it_goes_on_there(bench: Bench, picky: str) -> None:
    """A log-backed lane: what came before is delivered and acked, the record is held with its payload."""

    def made() -> Pipeline:
        p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=60, size=12)
        return picking(bench, picky, p)

    refuse(bench, "000000000014")
    for _ in range(2):
        degraded(bench.run(made()), "gate.closed")
        assert bench.acks() == list(range(1, 14))
        assert [int(n) for n in afters(bench)] == list(range(1, 14))
        [(state, kept)] = bench.rows("SELECT state, record FROM nack")
        assert state == "held"
        assert "000000000014" in str(kept)
    refuse(bench)
    bench.finish(made())
    assert [int(n) for n in afters(bench)] == list(range(1, 61))
    assert bench.rows("SELECT count(*) FROM nack") == [(0,)]


@pytest.mark.contract("T16", reason="what is not sent is counted where it would have arrived")
def test_a_record_that_closed_the_gate_is_skipped_by_its_offset_and_never_sent(bench: Bench, picky: str) -> None:
    from click.testing import CliRunner

    from penstock.cli.main import cli

    def made() -> Pipeline:
        p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=60, size=12)
        return picking(bench, picky, p)

    refuse(bench, "000000000014")
    degraded(bench.run(made()), "gate.closed")
    refuse(bench)  # it would be taken now
    done = CliRunner().invoke(
        cli, ["pipelines", "skip", "p", "--offset", "13", "--reason", "sent twice", "--state", str(bench.state)]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    bench.finish(made())
    assert [int(n) for n in afters(bench)] == [n for n in range(1, 61) if n != 14]
    assert bench.rows("SELECT read, acked FROM lane") == [(60, 60)]
    assert bench.rows("SELECT state, code FROM nack") == [("dropped", "record.skipped")]


def test_a_stopped_delivery_goes_on_with_a_wider_gate(bench: Bench, picky: str) -> None:
    lines(bench, 60)
    refuse(bench, "14", "20")
    degraded(bench.run(picking(bench, picky)), "gate.closed")
    result = bench.finish(picking(bench, picky).dead_letter_queue(**ROOM))
    assert afters(bench) == [str(n) for n in range(1, 61) if n not in (14, 20)]
    assert lane(result).dead_lettered == {"out": 2}


def test_what_a_connector_wrote_behind_the_record_that_closed_the_gate_is_not_sent_again(bench: Bench) -> None:
    """A class of the SDK refuses single records: the others of the batch are durable."""
    lines(bench, 90)
    degraded(bench.run(pipeline(bench, "builtin:chaos", reject="50")), "gate.closed")
    first = afters(bench)
    assert "50" not in first
    bench.finish(pipeline(bench, "builtin:chaos"))
    assert Counter(afters(bench)) == Counter(str(n) for n in range(1, 91))


@pytest.mark.contract("S11", reason="where the ring closes is told by what has arrived")
def test_a_ring_of_refusals_closes_by_their_places_among_all_records(bench: Bench, picky: str) -> None:
    """Two nacks in ten records are one too many; ten apart they are not."""
    lines(bench, 60)
    refuse(bench, "5", "15", "30", "36", "50")
    p = picking(bench, picky).dead_letter_queue(window=10, threshold=1)
    degraded(bench.run(p), "gate.closed")
    assert afters(bench) == [str(n) for n in range(1, 36) if n not in (5, 15, 30)]


# -- dead letter queues ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S3", safeguard="dlq-decides")
def test_a_hosted_queue_gets_the_dead_letters_and_while_it_refuses_nothing_is_acked(bench: Bench, picky: str) -> None:
    def made() -> Pipeline:
        p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=30)
        bench.to(p, format="json").processor("bad", "error", condition="after.n = 7", message="seven")
        settings: dict[str, Any] = {"path": bench.root / "queue.jsonl", "refuse": bench.root / "refuse", "all": "true"}
        return p.dead_letter_queue(picky, window=0, **settings)

    refuse(bench, "anything")
    for _ in range(2):
        degraded(bench.run(made()), "dlq.refused")
        assert bench.acks() == []
        assert arrived(bench, "queue") == []
    refuse(bench)
    bench.finish(made())
    [letter] = arrived(bench, "queue")
    assert "seven" in json.dumps(letter)
    assert len(bench.numbers()) == 29
    assert bench.opened()[-1] == "30"


@pytest.mark.contract("S3", reason="the queue has what the destination refused, and the source is acked")
def test_what_a_hosted_destination_refuses_goes_to_a_hosted_queue(bench: Bench, chaos: str) -> None:
    lines(bench, 100)
    p = pipeline(bench, chaos, reject="40")
    p.dead_letter_queue(chaos, window=0, path=str(bench.root / "queue.jsonl"))
    result = bench.finish(p)
    assert lane(result).dead_lettered == {"out": 2}
    assert len(arrived(bench, "queue")) == 2
    assert len(arrived(bench)) == 98


def test_at_most_once_refused_records_are_dead_letters_and_nothing_is_sent_twice(bench: Bench, chaos: str) -> None:
    lines(bench, 100)
    p = Pipeline("p").guarantee("at-most-once").source("in", "files", path=bench.root / "in")
    p.destination("out", chaos, path=bench.root / "out.jsonl", reject="40").dead_letter_queue(**ROOM)
    result = bench.finish(p)
    assert lane(result).delivered == {"out": 98}
    assert lane(result).dead_lettered == {"out": 2}
    assert len(afters(bench)) == 98


@pytest.mark.contract("S4", safeguard="outcome-first")
def test_a_handler_that_raises_keeps_the_ack_back_and_nothing_is_sent_twice(bench: Bench) -> None:
    def made() -> Pipeline:
        p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=20, size=12)
        return p.destination("out", "builtin:chaos", path=bench.root / "out.jsonl")

    def fails(_: Any) -> None:
        raise RuntimeError("no, thank you")

    degraded(bench.run(made().on_outcome(fails)), "no, thank you")
    assert bench.acks() == []
    assert len(arrived(bench)) == 20
    bench.finish(made())
    assert len(arrived(bench)) == 20
    assert bench.opened()[-1] == "20"


# -- tasks that run twice ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("P12", safeguard="newest-attempt")
@pytest.mark.usefixtures("way")
def test_a_task_that_runs_twice_while_the_first_is_alive_writes_each_record_once(
    bench: Bench, chaos: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = lines(bench, 3_000)
    monkeypatch.setattr("penstock.host.sink.SendRows", Twice)
    result = bench.finish(pipeline(bench, chaos))
    assert lane(result).delivered == {"out": 3_000}
    assert afters(bench) == every


class Twice(SendRows):
    """Every task sends its rows by two attempts at once; the older one begins first, and both have all of them."""

    def send(self, partition: int, attempt: int, batches: Iterator[pa.RecordBatch]) -> str | None:
        every = [part for batch in batches for part in _small(batch)]
        begun, answers = threading.Event(), {}

        def older() -> None:
            answers["older"] = super(Twice, self).send(partition, attempt * 2, _noting(every, begun))

        thread = threading.Thread(target=older)
        thread.start()
        begun.wait(60)
        newest = super().send(partition, attempt * 2 + 1, iter(every))
        thread.join()
        return newest


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, 100):
        yield batch.slice(start, 100)


def _noting(every: list[pa.RecordBatch], begun: threading.Event) -> Iterator[pa.RecordBatch]:
    for i, batch in enumerate(every):
        if i == 3:
            begun.set()
        yield batch
    begun.set()


def test_what_tasks_send_has_all_that_a_host_needs() -> None:
    """A task of another machine gets this by pickle."""
    import pickle

    made = SendRows("grpc://127.0.0.1:1", "token", {"name": "n"})
    assert pickle.loads(pickle.dumps(made)) == made
    assert record.SEQ == "seq"


# -- the same with each safeguard off ----------------------------------------------------------------------------------------


def test_without_the_gate_what_is_behind_a_refused_record_arrives(bench: Bench, picky: str) -> None:
    lines(bench, 60)
    refuse(bench, "14")
    with _host_without("gate", bench):
        bench.run(picking(bench, picky))
    assert "15" in afters(bench)


def test_without_its_word_a_hosted_queue_that_refuses_does_not_hold_acks_back(bench: Bench, picky: str) -> None:
    p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=30)
    bench.to(p, format="json").processor("bad", "error", condition="after.n = 7", message="seven")
    p.dead_letter_queue(picky, window=0, path=bench.root / "queue.jsonl", refuse=bench.root / "refuse", all="true")
    refuse(bench, "anything")
    with _host_without("dlq-decides", bench):
        bench.run(p)
    assert bench.opened()
    assert bench.acks()
    assert arrived(bench, "queue") == []


def test_without_outcomes_first_a_handler_that_raises_comes_too_late(bench: Bench) -> None:
    def fails(_: Any) -> None:
        raise RuntimeError("no, thank you")

    p = bench.chaos(Pipeline("p").guarantee("at-least-once"), records=20, size=12)
    p.destination("out", "builtin:chaos", path=bench.root / "out.jsonl").on_outcome(fails)
    with _host_without("outcome-first", bench):
        bench.run(p)
    assert bench.acks() or bench.rows("SELECT acked FROM lane") != [(0,)]


def test_without_serving_the_newest_attempt_alone_records_are_written_twice(
    bench: Bench, chaos: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(bench, 3_000)
    monkeypatch.setattr("penstock.host.sink.SendRows", Twice)
    with _host_without("newest-attempt", bench):
        bench.run(pipeline(bench, chaos))
    assert len(afters(bench)) > 3_000


# -- support -----------------------------------------------------------------------------------------------------------------


class _host_without:  # noqa: N801 - used as a context
    """Hosts that are started meanwhile have a safeguard off; see `hosted_site`."""

    def __init__(self, safeguard: str, bench: Bench) -> None:
        self._armed = bench.root / "armed.json"
        self._safeguard = safeguard
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        from dataclasses import asdict

        from tests.support.hosted import SITE, Armed

        self._armed.write_text(json.dumps(asdict(Armed(off=(self._safeguard,)))))
        self._patch.setenv("HOSTED_ARMED", str(self._armed))
        self._patch.setenv("PYTHONPATH", str(SITE))
        faults.install(off=[self._safeguard])

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        faults.install()


# -- before anything runs ----------------------------------------------------------------------------------------------------

FILE = """\
version: "2.2"
pipelines:
  - id: p
    guarantee: at-least-once
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - id: out
        type: destination
        plugin: {plugin}
        settings:
          path: {root}/out.jsonl
          calls: {root}/out.calls
          settings: fail
"""


@pytest.mark.contract("P3", reason="the calls that the program wrote down, and the error with its place, are looked at")
def test_a_run_asks_programs_about_their_settings_and_says_what_they_say_at_its_line(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.config import ConfigErrors

    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    path = tmp_path / "p.yaml"
    path.write_text(FILE.format(root=tmp_path, plugin=installed(tmp_path, "chaotic", CHAOS)))
    lines(bench, 3)
    p = Pipeline.from_file(path)
    assert bench.calls("out") == []  # a file that is looked at starts nothing
    with pytest.raises(ConfigErrors, match=r"chaotic says: chaos: settings was told to fail") as found:
        bench.run(p)
    assert f"{path}:13:21" in str(found.value)
    [call] = bench.calls("out")
    assert call["method"] == "settings"
    assert not Path(f"/proc/{call['pid']}").exists()
    assert not bench.state.exists()


def test_an_ordering_is_for_destinations_in_a_process_of_their_own(bench: Bench) -> None:
    p = Pipeline("p").source("in", "files", path=bench.root / "in")
    p.destination("out", "files", path=bench.root / "out", ordering="none")
    assert [found.code for found in p.problems()] == ["config.no-ordering"]


@pytest.mark.contract("S17", reason="what arrived, and where, is looked at")
def test_a_wrong_setting_that_is_corrected_holds_nothing_up(bench: Bench) -> None:
    """Nothing of the batch was sent with the old one. What is under way is finished as it was begun."""
    lines(bench, 5)
    p = Pipeline("p").guarantee("at-least-once").source("in", "files", path=bench.root / "in")
    degraded(bench.run(p.destination("out", "builtin:chaos", open="fail")), "chaos: open was told to fail")
    bench.finish(pipeline(bench, "builtin:chaos"))
    assert afters(bench) == ["1", "2", "3", "4", "5"]


def test_a_host_that_is_gone_is_an_answer_of_the_task() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1), pa.nulls(1)], names=["seq", "key", "before"])
    answer = SendRows("grpc://127.0.0.1:1", "token", {"name": "n"}).send(0, 0, iter([rows]))
    assert answer is not None
    assert "gone" in json.loads(answer)
