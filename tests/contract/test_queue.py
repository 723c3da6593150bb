"""`queue` between pipelines on real Spark: what goes in comes out, in its order and its types, once, whatever is killed."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.queue.destination import QueueDestination
from penstock.connectors.queue.settings import QueueDestinationSettings
from penstock.log import Offsets, Reader, Rows, Writer
from penstock.log import offsets as offset_files
from penstock.native import Delivery, Ordering, Shape
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from penstock_sdk.record import Record
from tests.support import oracle
from tests.support.harness import Case, Gateway, age
from tests.support.hosted_pipelines import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import Engine, PipelineResult

pytestmark = pytest.mark.spark


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def records(queue: Path) -> list[Record]:
    if not any(queue.glob("*.seg")):
        return []
    with Reader(queue) as reader:
        return [one for rows in reader.read(0) if isinstance(rows, Rows) for one in rows.records()]


def aged(path: Path) -> None:
    os.utime(path, (time.time() - 60,) * 2)


def lines(folder: Path, texts: list[str], name: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{text}\n" for text in texts))
    aged(folder / name)
    return folder


def out(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.*")) for line in path.read_text().splitlines()]


# -- what goes through ---------------------------------------------------------------------------------------------------------


def test_two_readers_get_all_of_it_each_and_only_what_is_new(tmp_path: Path, spark: SparkSession) -> None:
    texts = [f"line {n}" for n in range(1000)]
    queue = tmp_path / "orders"
    first = (
        Pipeline("first")
        .source("in", "files", path=lines(tmp_path / "in", texts))
        .destination("out", "queue", path=queue)
    )
    readers = [
        Pipeline(name).source("in", "queue", path=queue).destination("out", "files", path=tmp_path / name)
        for name in ("a", "b")
    ]
    assert finish(readers[0], tmp_path, spark).lanes[0].read == 0  # there is no queue yet
    finish(first, tmp_path, spark)
    for p in readers:
        finish(p, tmp_path, spark)
    lines(tmp_path / "in", ["later"], "b")
    finish(first, tmp_path, spark)
    for p in readers:
        assert finish(p, tmp_path, spark).lanes[0].read == 1
        assert out(tmp_path / p.id) == [*texts, "later"]
    assert {name: state.frontier for name, state in offset_files.load(queue).items()} == {"a:in": 1001, "b:in": 1001}


def test_types_are_kept(tmp_path: Path, spark: SparkSession) -> None:
    at = datetime(2026, 11, 17, 23, 59, 59, 123456, tzinfo=UTC)
    kind = "id BIGINT, `odd name` DECIMAL(38,10), at TIMESTAMP, inner STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, DATE>, raw BINARY"
    rows: list[tuple[Any, ...]] = [
        (
            2**63 - 1,
            Decimal("1234567890123456789012345678.0123456789"),
            at,
            (1, ["a", None]),
            {"k": at.date()},
            b"\xff\0",
        ),
        (None, None, None, None, None, None),
    ]
    spark.createDataFrame(rows, kind).coalesce(1).write.parquet(str(tmp_path / "in"))
    for path in (tmp_path / "in").iterdir():
        aged(path)
    there = Pipeline("there").source("in", "files", path=tmp_path / "in", format="parquet")
    finish(there.destination("out", "queue", path=tmp_path / "q"), tmp_path, spark)
    back = Pipeline("back").source("in", "queue", path=tmp_path / "q")
    finish(back.destination("out", "files", path=tmp_path / "out", format="parquet"), tmp_path, spark)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema.simpleString() == spark.createDataFrame([], kind).schema.simpleString()
    assert sorted(map(str, found.collect())) == sorted(map(str, spark.createDataFrame(rows, kind).collect()))


def test_records_that_differ_go_through_as_they_are(tmp_path: Path, spark: SparkSession) -> None:
    """Namespaces that take turns, operations, keys, metadata, bytes that are no text: what a source has said stays said."""
    given = [
        Record(
            {"n": n} if n % 5 else b"\xff\0" * n,
            before=None if n % 2 else {"was": n},
            key=b"%d" % n if n % 7 else {"k": n},
            operation=("create", "update", "delete", "snapshot")[n % 4],
            namespace=("a", "b")[n % 2] if n < 40 else "c",
            metadata={"own": f"m{n}"},
            timestamp=datetime(2026, 1, 1, 0, 0, n % 60, tzinfo=UTC),
        )
        for n in range(100)
    ]
    with Writer(tmp_path / "one") as log:
        log.append(given)
    p = Pipeline("p").source("in", "queue", path=tmp_path / "one").destination("out", "queue", path=tmp_path / "two")
    finish(p, tmp_path, spark)
    found = records(tmp_path / "two")
    fields = ("after", "before", "key", "operation", "namespace", "timestamp")
    for want, has in zip(given, found, strict=True):
        assert [getattr(has, f) for f in fields] == [getattr(want, f) for f in fields]
        assert has.metadata["own"] == want.metadata["own"]


def test_a_bad_record_of_a_queue_is_a_dead_letter_with_its_offset(tmp_path: Path, spark: SparkSession) -> None:
    with Writer(tmp_path / "q") as log:
        log.append([Record(b'{"n": 1}'), Record(b"no JSON"), Record(b'{"n": 3}')])
    p = (
        Pipeline("p")
        .source("in", "queue", path=tmp_path / "q")
        .processor("decode", "json.decode", field=".Payload.After")
    )
    p.destination("out", "files", path=tmp_path / "out", format="json").dead_letter_queue(window=0)
    assert finish(p, tmp_path, spark).lanes[0].dead_lettered == {"out": 1}
    assert [json.loads(line) for line in out(tmp_path / "out")] == [{"n": 1}, {"n": 3}]


# -- what the log says ---------------------------------------------------------------------------------------------------------


def _delivery(batch: int, rows: Any = None) -> Delivery:
    return Delivery(
        "p",
        "in",
        "out",
        batch,
        f"{batch}".ljust(32, "0"),
        3,
        7,
        1,
        f"a{batch}",
        rows=rows,
        shape=Shape.RAW,
        ordering=Ordering.SOURCE,
    )


def _delivered(folder: Path, spark: SparkSession) -> tuple[QueueDestination, Delivery, Any]:
    made = QueueDestination(QueueDestinationSettings(path=str(folder)), "out")
    made.check()
    d = _delivery(1, spark.createDataFrame([("a",), ("b",)], "after string"))
    staged = made.stage(d)
    kept = folder.with_name("kept")
    shutil.copytree(made._queue.folder, kept)
    made.commit(d, staged, lambda _: False)
    shutil.rmtree(made._queue.folder / "p.in" / d.hash, ignore_errors=True)
    shutil.copytree(kept / "p.in" / d.hash, made._queue.folder / "p.in" / d.hash)  # as if it could not be removed
    return made, d, staged


def _overwrite(folder: Path) -> None:
    """Another delivery has these places now."""
    with Reader(folder) as reader:
        end = reader.end
    shutil.rmtree(folder)
    with Writer(folder) as log:
        log.append([Record(b"other")] * end, "f" * 32 + ":0")
        other = log.log_id
    note = folder.with_name(f".{folder.name}.penstock") / "p.in" / "receipt.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "log": other}))


@pytest.mark.contract("C17", safeguard="read-back")
@pytest.mark.parametrize("off", [(), ("read-back",)])
def test_what_the_log_does_not_have_at_its_place_was_not_delivered(
    tmp_path: Path, spark: SparkSession, off: tuple[str, ...]
) -> None:
    """The hash at the place that was written down decides; the control believes what was written down."""
    out, d, staged = _delivered(tmp_path / "q", spark)
    assert out.find(d) is not None
    _overwrite(tmp_path / "q")
    faults.install(off=off)
    assert (out.find(d) is None) == (not off)
    out.commit(d, staged, lambda _: False)
    assert [r.after for r in records(tmp_path / "q")][2:] == ([b"a", b"b"] if not off else [])


def test_what_every_reader_has_is_taken_away_and_still_counts_as_delivered(tmp_path: Path, spark: SparkSession) -> None:
    out, d, _ = _delivered(tmp_path / "q", spark)
    with Writer(tmp_path / "q", segment_bytes=1000) as log:
        for n in range(20):
            log.append([Record(b"x" * 200, namespace=f"{n % 2}")])
        log.append([Record(b"y", namespace="")])
    with Offsets(tmp_path / "q") as offsets:
        offsets.ack_through("r", 22)
    from penstock.log import compact

    assert compact(tmp_path / "q").removed > 10
    assert len(records(tmp_path / "q")) < 15
    assert out.find(d) is not None


def test_a_queue_that_is_full_makes_its_writer_wait_until_somebody_reads(tmp_path: Path, spark: SparkSession) -> None:
    queue = tmp_path / "q"
    texts = [f"{n:06} " + "x" * 500 for n in range(3000)]
    write = Pipeline("write").source("in", "files", path=lines(tmp_path / "in", texts))
    write.destination("out", "queue", path=queue, max_size="1MiB")
    read = Pipeline("read").source("in", "queue", path=queue, batch={"max-records": 300})
    read.destination("out", "files", path=tmp_path / "out")
    engines: list[Engine] = []

    def stop() -> None:
        until(lambda: len(out(tmp_path / "out")) == len(texts), "all of it")
        engines[0].stop.request()

    watching = threading.Thread(target=stop)
    watching.start()
    run([write, read], once=False, state=tmp_path / "state", spark=spark, started=engines.append).raise_for_error()
    watching.join()
    assert out(tmp_path / "out") == texts
    assert sum(path.stat().st_size for path in queue.glob("*.seg")) <= 1 << 20


# -- kills ---------------------------------------------------------------------------------------------------------------------

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}, batch: {{max-files: 2}}}}
      - {{id: other, type: source, plugin: files, settings: {{path: {root}/other}}, batch: {{max-files: 2}}}}
      - {{id: out, type: destination, plugin: queue, settings: {{path: {root}/q}}}}
  - id: reader
    connectors:
      - {{id: in, type: source, plugin: queue, settings: {{path: {root}/q}}, batch: {{max-records: 30}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
"""


@dataclass
class Chained(Case):
    """Two lanes into a queue, and a pipeline that reads it into a folder."""

    def configure(self) -> None:
        (self.root / "other").mkdir(exist_ok=True)
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root))

    def issue(self, files: int, lines: int = 20) -> None:
        super().issue(files, lines)
        self.issued += oracle.write_inputs(self.root / "other", files, lines, first=500)
        age(self.root / "other")

    def queued(self) -> list[str]:
        return [r.after.decode().rpartition(":")[0] for r in records(self.root / "q") if isinstance(r.after, bytes)]

    def faults(self) -> list[str]:
        """Of the queue and of the folder: whatever is there twice, or missing, or in another order than it came."""
        read = [line.rpartition(":")[0] for line in out(self.root / "out")]
        faults = []
        for what, found in (("queue", self.queued()), ("folder", read)):
            if sorted(found) != sorted(self.issued):
                faults.append(f"{what}: {len(found)} lines of {len(self.issued)}")
            for file in {line.partition(":")[0] for line in found}:
                own = [line for line in found if line.startswith(f"{file}:")]
                if own != sorted(own, key=lambda line: int(line.partition(":")[2])):
                    faults.append(f"{what}: those of {file} are in another order")
        return faults


@pytest.fixture
def case(tmp_path: Path, gateway: Gateway) -> Chained:
    made = Chained(tmp_path / "case", gateway)
    made.issue(files=4)
    return made


@pytest.mark.crash
@pytest.mark.contract("C11", "C12", "C16", "X1", safeguard="queue-tail")
@pytest.mark.parametrize(("point", "nth"), [("K6a", 1), ("K6a", 2), ("K6a", 3), ("K8", 2)])
def test_who_is_killed_at_a_step_of_a_delivery_is_gone_on_for(case: Chained, point: str, nth: int) -> None:
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    for _ in range(2):  # the reader may have ended before the writers had
        case.finish()
    assert not case.faults(), case.faults()


@pytest.mark.crash
def test_without_a_look_at_what_is_there_records_come_twice(case: Chained) -> None:
    """The control."""
    assert case.run(kill_at="K6a", kill_nth=3, off=("queue-tail",)).killed
    case.finish(off=("queue-tail",))
    assert len(case.queued()) > len(case.issued)


@pytest.mark.crash
@pytest.mark.contract("C16", reason="queue and folder are read after a kill in the recovery of a kill")
def test_a_kill_in_the_recovery_of_a_recovery(case: Chained) -> None:
    assert case.run(kill_at="K6a", kill_nth=2).killed
    for point, nth in (("K11", 1), ("K6a", 1), ("K6a", 2)):
        ended = case.run(kill_at=point, kill_nth=nth)
        assert ended.killed or ended.returncode == 0
    for _ in range(2):
        case.finish()
    assert not case.faults(), case.faults()
