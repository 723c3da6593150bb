"""`kafka` as a destination on real Spark and a real broker: what readers of committed records see, whatever is killed."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from penstock.connectors.kafka import destination as module
from penstock.connectors.kafka.destination import KafkaDestination
from penstock.connectors.kafka.destination_settings import KafkaDestinationSettings
from penstock.errors import Retry, Stop
from penstock.native import Delivery, DeliveryId, Receipt, Refusal, Shape, Staged
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from penstock.testing.exactly_once import ExactlyOnceTests
from tests.support import kafka
from tests.support.harness import Case, Gateway, age

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.supervisor import PipelineResult

pytestmark = pytest.mark.spark

COLUMNS = "seq long, part int, operation string, key binary, after binary"


def topic(partitions: int = 1, **config: Any) -> str:
    return kafka.create_topic(kafka.broker().servers, "t" + secrets.token_hex(6), partitions, **config)


def made(place: Path, name: str, **settings: Any) -> KafkaDestination:
    given = {"servers": kafka.broker().servers, "topic": name, "format": "payload", **settings}
    out = KafkaDestination(KafkaDestinationSettings.model_validate(given), "out")
    out.place = place
    return out


class Keeping(KafkaDestination):
    """What it has staged can't be removed."""

    def discard(self, d: DeliveryId) -> None:
        pass


def keeping(place: Path, name: str) -> KafkaDestination:
    out = Keeping(made(place, name).settings, "out")
    out.place = place
    return out


def values(name: str, servers: str = "") -> list[str]:
    return [(m.value or b"").decode() for m in kafka.read_committed(servers or kafka.broker().servers, name)]


class TestKit(ExactlyOnceTests):
    fences = True

    @pytest.fixture(autouse=True)
    def _with_topic(self) -> None:
        self.topic = topic()

    def destination(self) -> KafkaDestination:
        return made(self.folder / "place", self.topic)

    def rows(self, texts: Sequence[str]) -> DataFrame:
        return self.spark.createDataFrame([(n, 0, "create", None, t.encode()) for n, t in enumerate(texts)], COLUMNS)

    def visible(self) -> Sequence[str]:
        return values(self.topic)

    def left(self) -> Sequence[str]:
        return [str(p) for p in (self.folder / "place").glob("*/*/*")]


class TestKitInTasks(TestKit):
    """The same, where Spark's tasks write. Points inside them are not reached."""

    @pytest.fixture(autouse=True)
    def _in_tasks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "FEW", -1)


# -- one delivery ------------------------------------------------------------------------------------------------------------------------


def _delivery(rows: Any, batch: int = 1, fence: int = 3, bases: tuple[int, ...] = ()) -> Delivery:
    more: dict[str, Any] = {"rows": rows, "shape": Shape.RAW, "bases": bases}
    return Delivery("p", "in", "out", batch, f"{batch}".ljust(32, "0"), fence, 7, 1, f"a{batch}", **more)


def _rows(spark: SparkSession, texts: Sequence[str], keys: Sequence[str | None] | None = None) -> DataFrame:
    keyed = [k.encode() if k is not None else None for k in keys or [None] * len(texts)]
    given = [(n, 0, "create", keyed[n], text.encode()) for n, text in enumerate(texts)]
    return spark.createDataFrame(given, COLUMNS)


def _never(refusal: Refusal) -> bool:
    raise AssertionError(refusal)


@dataclass
class Steps:
    """Lets a thread wait at a step of a commit, the first time that it gets there."""

    step: str
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, point: str, detail: str) -> None:
        if (point, detail) == ("K6a", self.step) and not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(60)


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    faults.install()


@pytest.mark.contract("C17", safeguard="read-back")
@pytest.mark.parametrize("off", [(), ("read-back",)])
def test_what_kafka_does_not_have_at_its_place_was_not_delivered(
    tmp_path: Path, spark: SparkSession, off: tuple[str, ...]
) -> None:
    """The hash at the place that was written down decides; the control believes what was written down."""
    name = topic()
    out = keeping(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = out.stage(d)
    out.commit(d, staged, _never)
    assert out.find(d) is not None
    servers = kafka.broker().servers
    kafka.delete_topic(servers, name)
    kafka.create_topic(servers, name)
    kafka.produce(servers, name, [(None, b"other", [("penstock.hash", b"f" * 32), ("penstock.id", b"0")])] * 5)
    faults.install(off=off)
    assert (out.find(d) is None) == (not off)
    if not off:
        out.commit(d, staged, _never)
        assert values(name)[5:] == ["a", "b"]


def test_what_retention_has_taken_away_still_counts_as_delivered(tmp_path: Path, spark: SparkSession) -> None:
    name = topic()
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    out.commit(d, out.stage(d), _never)
    a = kafka.admin(kafka.broker().servers)
    for future in a.delete_records([TopicPartition(name, 0, 2)]).values():
        future.result(30)
    assert out.find(d) is not None


def test_of_a_delivery_that_is_half_there_only_the_rest_is_written(tmp_path: Path, spark: SparkSession) -> None:
    """One of two writers had come to its end, and others write to the topic as well."""
    name = topic(2)
    servers = kafka.broker().servers
    kafka.produce(servers, name, [b"before"], partition=1)
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, [f"{n}" for n in range(100)]).repartitionByRange(2, "seq"), bases=(0, 50))
    staged = replace_few(out, d)
    assert len(staged.manifest["writers"]) == 2
    out._tries[d.destination] = out._book(d).take(d)
    assert out._publish(d, staged, again=False).write(1).there == 50
    kafka.produce(servers, name, [b"between"], partition=0)
    receipt = made(tmp_path, name).commit(d, staged, _never)
    assert receipt.written == 100
    assert sorted(values(name)) == sorted(["before", "between", *(f"{n}" for n in range(100))])


def replace_few(out: KafkaDestination, d: Delivery) -> Staged:
    """Staged for several writers, and written in this process."""
    before, module.FEW = module.FEW, -1
    try:
        staged = out.stage(d)
    finally:
        module.FEW = before
    return replace(staged, manifest={**staged.manifest, "few": True})


@pytest.mark.contract("X5", safeguard="kafka-tail")
@pytest.mark.parametrize("off", [(), ("kafka-tail",)])
def test_a_task_that_runs_twice_writes_once(tmp_path: Path, spark: SparkSession, off: tuple[str, ...]) -> None:
    name = topic()
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = out.stage(d)
    out._tries[d.destination] = out._book(d).take(d)
    publish = out._publish(d, staged, again=False)
    faults.install(off=off)
    for _ in range(2):
        assert publish.write(0).there == 2
    assert values(name) == ["a", "b"] * (2 if off else 1)


@pytest.mark.contract("X5", "X6", safeguard="kafka-fence")
@pytest.mark.parametrize("off", [(), ("kafka-fence", "kafka-tail")])
def test_a_writer_that_comes_back_after_it_was_replaced_writes_nothing(
    tmp_path: Path, spark: SparkSession, off: tuple[str, ...]
) -> None:
    """It had not asked Kafka for its id yet when another engine has finished what it was to write."""
    name = topic()
    older, newer = made(tmp_path, name), keeping(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = older.stage(d)
    older._tries[d.destination] = older._book(d).take(d)
    publish = older._publish(d, staged, again=False)
    newer.commit(replace(d, fence=4), staged, _never)
    faults.install(off=off)
    outcome = publish.write(0)
    if off:
        assert values(name) == ["a", "b", "a", "b"]
    else:
        assert outcome.failed is not None
        assert outcome.failed.kind == "fenced"
        assert values(name) == ["a", "b"]
        with pytest.raises(Stop, match="newer engine"):
            older.commit(d, staged, _never)


@pytest.mark.contract(
    "X5", "X6", reason="the topic is read after a writer was overtaken at each step of its transaction"
)
@pytest.mark.parametrize("step", ["fenced", "read", "written", "committed"])
def test_a_writer_that_is_overtaken_at_a_step_does_no_harm(tmp_path: Path, spark: SparkSession, step: str) -> None:
    name = topic()
    older, newer = made(tmp_path, name), keeping(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = older.stage(d)
    older._tries[d.destination] = older._book(d).take(d)
    publish = older._publish(d, staged, again=False)
    steps = Steps(step)
    faults.install(steps)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(publish.write(0)))
    thread.start()
    assert steps.reached.wait(60)
    assert newer.commit(replace(d, fence=4), staged, _never).written == 2
    steps.go.set()
    thread.join()
    assert (ended[0].failed is None) == (step == "committed")
    assert values(name) == ["a", "b"]


def test_another_s_open_transaction_is_waited_for(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its first record nobody can see what is committed."""
    monkeypatch.setattr("penstock.connectors.kafka.tail.PATIENCE", 1.0)
    name = topic()
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = out.stage(d)
    other = kafka.transactional(kafka.broker().servers, secrets.token_hex(4))
    other.begin_transaction()
    kafka.send(other, name, [b"x"])
    other.flush(10)
    again = made(tmp_path, name)
    with pytest.raises(Retry, match="can't be seen"):
        again.commit(d, staged, _never)
    other.abort_transaction(10)
    again.commit(d, staged, _never)
    assert values(name) == ["a", "b"]


# -- what is refused ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Refusals:
    most: int = 100
    found: list[Refusal] = field(default_factory=list)

    def __call__(self, refusal: Refusal) -> bool:
        self.found = [r for r in self.found if (r.seq, r.part) != (refusal.seq, refusal.part)] + [refusal]
        return len(self.found) <= self.most


@pytest.mark.parametrize("limits", ["known", "not known"])
def test_a_record_that_is_too_large_costs_itself_alone(
    tmp_path: Path, spark: SparkSession, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the topic may be asked for its limit or not: then the servers say it of all that is sent with such a record."""
    from penstock.connectors.kafka.target import Target
    from penstock.connectors.kafka.writing import Limits

    name = topic(max_message_bytes=20_000, compression_type="producer")
    if limits == "not known":
        monkeypatch.setattr(Target, "limits", lambda _, topics: dict.fromkeys(topics, Limits()))
    texts = [f"{n}" for n in range(300)]
    texts[100] = secrets.token_hex(30_000)
    texts[200] = secrets.token_hex(30_000)
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, texts))
    refused = Refusals()
    receipt = out.commit(d, out.stage(d), refused)
    assert [(r.seq, r.code) for r in receipt.refused] == [(100, "kafka.too-large"), (200, "kafka.too-large")]
    assert receipt.written == 298
    assert values(name) == [text for n, text in enumerate(texts) if n not in (100, 200)]
    assert made(tmp_path, name).find(d) == receipt


def test_what_is_larger_than_batch_bytes_is_refused_by_the_client(tmp_path: Path, spark: SparkSession) -> None:
    name = topic()
    out = made(tmp_path, name, batchBytes="10000")
    d = _delivery(_rows(spark, ["a", secrets.token_hex(10_000), "b"]))
    receipt = out.commit(d, out.stage(d), Refusals())
    assert [(r.seq, r.code) for r in receipt.refused] == [(1, "kafka.too-large")]
    assert values(name) == ["a", "b"]


@pytest.mark.parametrize("limits", ["known", "not known"])
def test_a_topic_that_is_compacted_takes_no_record_without_a_key(
    tmp_path: Path, spark: SparkSession, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.connectors.kafka.target import Target
    from penstock.connectors.kafka.writing import Limits

    if limits == "not known":
        monkeypatch.setattr(Target, "limits", lambda _, topics: dict.fromkeys(topics, Limits()))
    name = topic(cleanup_policy="compact")
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b", "c"], ["1", None, "3"]))
    receipt = out.commit(d, out.stage(d), Refusals())
    assert [(r.seq, r.code) for r in receipt.refused] == [(1, "kafka.refused")]
    assert values(name) == ["a", "c"]


def test_a_gate_that_closes_lets_nothing_behind_it_through_and_goes_on_there_later(
    tmp_path: Path, spark: SparkSession
) -> None:
    name = topic()
    out = made(tmp_path, name, batchBytes="10000")
    texts = ["a", secrets.token_hex(10_000), "b", secrets.token_hex(10_000), "c"]
    d = _delivery(_rows(spark, texts))
    staged = out.stage(d)
    stopped = out.commit(d, staged, Refusals(most=1))
    assert (stopped.stopped_at, [r.seq for r in stopped.refused]) == (3, [1])
    assert values(name) == ["a", "b"]
    assert out.find(d) is None
    receipt = made(tmp_path, name, batchBytes="10000").commit(d, staged, Refusals())
    assert (receipt.written, [r.seq for r in receipt.refused]) == (3, [1, 3])
    assert values(name) == ["a", "b", "c"]


def test_a_topic_that_goes_away_between_staging_and_commit_refuses_its_records(
    tmp_path: Path, spark: SparkSession
) -> None:
    name = topic()
    out = made(tmp_path, name)
    d = _delivery(_rows(spark, ["a", "b"]))
    staged = out.stage(d)
    kafka.delete_topic(kafka.broker().servers, name)
    receipt = out.commit(d, staged, Refusals())
    assert [(r.seq, r.code) for r in receipt.refused] == [(0, "kafka.topic"), (1, "kafka.topic")]
    assert receipt.written == 0


# -- a broker that ends ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["taken", "fenced", "read", "written", "committed"])
def test_a_broker_that_is_killed_at_a_step_of_a_commit(tmp_path: Path, spark: SparkSession, step: str) -> None:
    broker = _own_broker()
    name = kafka.create_topic(broker.servers, "t" + secrets.token_hex(4))
    settings = {"servers": broker.servers, "transactionTimeout": "10s"}
    out = made(tmp_path, name, **settings)
    d = _delivery(_rows(spark, [f"{n}" for n in range(50)]))
    staged = out.stage(d)
    killed = False

    def back() -> None:
        time.sleep(1.0)
        broker.start()
        threading.Event().wait()  # it ends with the thread that has started it

    def kill(point: str, detail: str) -> None:
        nonlocal killed
        if (point, detail) == ("K6a", step) and not killed:
            killed = True
            broker.kill()
            threading.Thread(target=back, daemon=True).start()

    faults.install(kill)
    until = time.monotonic() + 300
    assert _delivered(out, d, staged, until).written == 50
    assert killed
    # A broker that is killed in the very moment may forget to end what it has called committed, until the same writer comes again.
    more = _delivery(_rows(spark, ["more"]), batch=2)
    assert _delivered(out, more, None, until).written == 1
    wanted = [*(f"{n}" for n in range(50)), "more"]
    while (found := values(name, broker.servers)) != wanted:
        assert len(found) < len(wanted), found
        assert time.monotonic() < until, found


def _delivered(out: KafkaDestination, d: Delivery, staged: Staged | None, until: float) -> Receipt:
    """As a lane does it: tried again for as long as it is told to."""
    while True:
        try:
            staged = staged or out.stage(d)
            return out.find(d) or out.commit(d, staged, _never)
        except Retry:
            assert time.monotonic() < until
            time.sleep(0.2)


_OWN: list[kafka.Broker] = []


def _own_broker() -> kafka.Broker:
    if not _OWN:
        _OWN.append(kafka.Broker())
    return _OWN[0]


# -- pipelines ---------------------------------------------------------------------------------------------------------------------------


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def lines(folder: Path, texts: Sequence[str], name: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{text}\n" for text in texts))
    age(folder)
    return folder


@pytest.mark.contract("S5", reason="the topic is read by a plain client and compared file by file")
def test_records_of_a_file_arrive_in_order_in_each_partition(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by tasks, keyed, by several strands that go to the same partitions."""
    monkeypatch.setattr(module, "FEW", -1)
    name = topic(3)
    for n in range(6):
        lines(tmp_path / "in", [json.dumps({"file": n, "n": i}) for i in range(2000)], f"{n}")
    p = Pipeline("p").source("in", "files", path=tmp_path / "in", format="json")
    p.processor("key", "field.set", field=".Key", value="{{ mod .Payload.After.n 7 }}")
    p.destination("out", "kafka", servers=kafka.broker().servers, topic=name, format="payload")
    assert finish(p, tmp_path, spark).lanes[0].delivered == {"out": 12_000}
    found = kafka.read_committed(kafka.broker().servers, name)
    assert len(found) == 12_000
    by: dict[tuple[int, int], list[int]] = {}
    partition_of: dict[bytes | None, set[int]] = {}
    for m in found:
        value = json.loads(m.value or b"")
        by.setdefault((m.partition, value["file"]), []).append(value["n"])
        partition_of.setdefault(m.key, set()).add(m.partition)
    assert all(ns == sorted(ns) for ns in by.values())
    assert all(len(partitions) == 1 for partitions in partition_of.values())


def test_topics_by_namespace_and_by_template(tmp_path: Path, spark: SparkSession) -> None:
    one, two = topic(), topic()
    folder = lines(
        tmp_path / "in", [json.dumps({"to": t, "n": n}) for n, t in enumerate([one, two, one, "no such", "none"])]
    )
    for kind in ("template", "namespace"):
        p = Pipeline(kind).source("in", "files", path=folder, format="json")
        p.processor("d", "field.set", field=".Metadata.to", value="{{ .Payload.After.to }}")
        more: dict[str, Any] = {"topic": "{{ .Payload.After.to }}"} if kind == "template" else {}
        if kind == "namespace":
            p.processor("n", "field.set", field='.Metadata["opencdc.collection"]', value="{{ .Payload.After.to }}")
        p.destination("out", "kafka", servers=kafka.broker().servers, format="payload", headers="metadata", **more)
        p.dead_letter_queue(window=0)
        lane = finish(p, tmp_path, spark).lanes[0]
        assert (lane.delivered, lane.dead_lettered) == ({"out": 3}, {"out": 2})
    found = kafka.read_committed(kafka.broker().servers, one)
    assert [json.loads(m.value or b"")["n"] for m in found] == [0, 2, 0, 2]
    for m in found:
        headers = dict(m.headers)
        assert headers["to"] == one.encode()
        assert "penstock.topic" not in headers
    assert [json.loads(v)["n"] for v in values(two)] == [1, 1]


def test_whole_records_are_written_as_conduit_does(tmp_path: Path, spark: SparkSession) -> None:
    name = topic()
    p = Pipeline("p").source("in", "files", path=lines(tmp_path / "in", ["{}", "<&>"]))
    p.destination("out", "kafka", servers=kafka.broker().servers, topic=name)
    finish(p, tmp_path, spark)
    [first, second] = [json.loads(v) for v in values(name)]
    assert list(first) == ["position", "operation", "metadata", "key", "payload"]
    assert (first["operation"], first["key"], first["payload"]) == ("create", None, {"before": None, "after": "e30="})
    assert second["payload"]["after"] == "PCY+"
    assert int(first["metadata"]["opencdc.createdAt"]) > 1e18


def test_dead_letters_go_to_a_topic(tmp_path: Path, spark: SparkSession) -> None:
    good, dead = topic(), topic()
    p = Pipeline("p").source("in", "files", path=lines(tmp_path / "in", ['{"n": 1}', "no JSON", '{"n": 2}']))
    p.processor("decode", "json.decode", field=".Payload.After")
    servers = kafka.broker().servers
    p.destination("out", "kafka", servers=servers, topic=good, format="payload")
    p.dead_letter_queue("kafka", window=0, servers=servers, topic=dead, format="payload")
    lane = finish(p, tmp_path, spark).lanes[0]
    assert (lane.delivered, lane.dead_lettered) == ({"out": 2}, {"out": 1})
    assert [json.loads(v) for v in values(good)] == [{"n": 1}, {"n": 2}]
    [letter] = values(dead)
    assert "no JSON" in letter or "bm8gSlNPTg" in letter


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_typed_records_are_json_and_deletes_are_tombstones(tmp_path: Path, spark: SparkSession, guarantee: str) -> None:
    name = topic()
    spark.createDataFrame([(1, "a"), (2, None)], "id int, t string").coalesce(1).write.parquet(str(tmp_path / "in"))
    age(tmp_path / "in")
    p = Pipeline("p").guarantee(guarantee).source("in", "files", path=tmp_path / "in", format="parquet")
    p.processor("gone", "field.set", field=".Operation", value="delete", condition="after.id = 2")
    p.destination("out", "kafka", servers=kafka.broker().servers, topic=name, format="payload")
    finish(p, tmp_path, spark)
    found = kafka.read_committed(kafka.broker().servers, name)
    assert [m.value for m in found] == [b'{"id":1,"t":"a"}', None]


# -- kills -------------------------------------------------------------------------------------------------------------------------------

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}, batch: {{max-files: 2}}}}
      - id: out
        type: destination
        plugin: kafka
        settings: {{servers: "{servers}", topic: {topic}, format: payload}}
"""


@dataclass
class ToKafka(Case):
    topic: str = field(default_factory=lambda: topic(2))

    def configure(self) -> None:
        servers = kafka.broker().servers
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root, servers=servers, topic=self.topic))

    def found(self) -> list[str]:
        return [value.rpartition(":")[0] for value in values(self.topic)]

    def faults(self) -> list[str]:
        """Whatever is there twice, missing, or in another order than it came, by partition."""
        found = self.found()
        faults = [] if sorted(found) == sorted(self.issued) else [f"{len(found)} records of {len(self.issued)}"]
        by: dict[tuple[int, str], list[int]] = {}
        for m in kafka.read_committed(kafka.broker().servers, self.topic):
            file, _, n = (m.value or b"").decode().rpartition(":")[0].rpartition(":")
            by.setdefault((m.partition, file), []).append(int(n))
        return faults + [f"{where} in another order" for where, ns in by.items() if ns != sorted(ns)]


@pytest.fixture
def case(tmp_path: Path, gateway: Gateway) -> ToKafka:
    made = ToKafka(tmp_path / "case", gateway)
    made.issue(files=4)
    return made


@pytest.mark.crash
@pytest.mark.contract("C4", "C5", "C11", "C12", "C16", "C19", "X1", safeguard="kafka-tail")
@pytest.mark.parametrize(
    ("point", "nth"),
    [("K6", 1), ("K7", 1), ("K6a", 1), ("K6a", 2), ("K6a", 3), ("K6a", 4), ("K6a", 5), ("K6a", 6), ("K8", 1)],
)
def test_who_is_killed_at_a_step_of_a_delivery_is_gone_on_for(case: ToKafka, point: str, nth: int) -> None:
    """taken, fenced, read, written, committed, noted; and before and behind them."""
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    case.finish()
    assert not case.faults(), case.faults()


@pytest.mark.crash
def test_without_a_look_at_what_is_there_records_come_twice(case: ToKafka) -> None:
    """The control."""
    assert case.run(kill_at="K6a", kill_nth=5, off=("kafka-tail",)).killed
    case.finish(off=("kafka-tail",))
    assert len(case.found()) > len(case.issued)


@pytest.mark.crash
@pytest.mark.contract("C16", reason="the topic is read after a kill in the recovery of a kill")
def test_a_kill_in_the_recovery_of_a_recovery(case: ToKafka) -> None:
    assert case.run(kill_at="K6a", kill_nth=5).killed
    for point, nth in (("K11", 1), ("K6a", 2), ("K6a", 4)):
        ended = case.run(kill_at=point, kill_nth=nth)
        assert ended.killed or ended.returncode == 0
    case.finish()
    assert not case.faults(), case.faults()
