"""`kafka` as a source on real Spark and a real broker: exact ranges, gaps in offsets, records that are gone, kills of engine and broker."""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import record
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.source_settings import KafkaSourceSettings
from penstock.errors import InputChanged, PenstockError, Retry, Stop
from penstock.native import Known, Limits, Ranges, Surroundings
from penstock.pipeline import Pipeline, run
from penstock.testing import faults
from tests.support import kafka, oracle
from tests.support.harness import Gateway
from tests.support.kafka_cases import PAD, FromKafka, issue, topic, with_package

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.engine.supervisor import Engine, PipelineResult

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    return with_package(spark)


@pytest.fixture
def servers() -> str:
    return kafka.broker().servers


def given(name: str, **settings: Any) -> dict[str, Any]:
    what = {} if "pattern" in settings else {"topics": name}
    begin = {} if "readFromBeginning" in settings else {"start": "earliest"}
    return {"servers": kafka.broker().servers, "discover": "100ms", "poll": "20ms", **what, **begin, **settings}


def source(tmp_path: Path, name: str, *, once: Any = False, **settings: Any) -> KafkaSource:
    made = KafkaSource(KafkaSourceSettings.model_validate(given(name, **settings)), "in")
    made.start(Surroundings("p", tmp_path / "own", ("out",), lambda *_: None, once=once, idle=0.1))
    return made


def pipeline(
    tmp_path: Path, name: str, batch: dict[str, Any] | None = None, *, form: Any = "text", **settings: Any
) -> Pipeline:
    p = Pipeline("p").source("in", "kafka", batch=batch, **given(name, **settings))
    return p.destination("out", "files", path=tmp_path / "out", format=form)


def ran(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).pipelines[0]


def finish(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).raise_for_error().pipelines[0]


def refused(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PenstockError:
    error = ran(p, tmp_path, spark).error
    assert error is not None
    return error


def lines(tmp_path: Path) -> list[str]:
    return oracle.delivered(tmp_path / "out")


def nothing() -> Known:
    return Known({}, 0, set())


def taken(s: KafkaSource, known: Known, **limits: Any) -> Ranges:
    found = s.available(known, Limits(**limits))
    assert found is not None
    known.took(found)
    return found


def rows_of(spark: SparkSession, s: KafkaSource, ranges: Ranges) -> list[Row]:
    """As another process would read them, from what the ledger keeps."""
    from penstock.engine import session

    return s.frame(session.for_lane(spark), Ranges.from_json(ranges.to_json()), record.COLUMNS).collect()


def until(condition: Callable[[], Any], timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def running(p: Pipeline, tmp_path: Path, spark: SparkSession) -> Iterator[list[PipelineResult]]:
    """A run in the background, stopped at the end; its result is in the list then."""
    engines: list[Engine] = []
    results: list[PipelineResult] = []

    def work() -> None:
        results.append(run([p], once=False, state=tmp_path / "state", spark=spark, started=engines.append).pipelines[0])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield results
    finally:
        until(lambda: engines or not thread.is_alive())
        for engine in engines:
            engine.stop.request()
        thread.join(120)


# -- what is read ------------------------------------------------------------------------------------------------------------------------


def test_what_kafka_has_arrives_once_and_a_second_run_reads_only_what_is_new(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    name = topic(3)
    ids = [i for p in range(3) for i in issue(servers, name, p, 0, 50)]
    p = pipeline(tmp_path, name)
    assert finish(p, tmp_path, spark).lanes[0].read == 150
    assert oracle.judge(ids, tmp_path / "out").clean
    assert finish(p, tmp_path, spark).lanes[0].read == 0
    ids += issue(servers, name, 1, 50, 60)
    assert finish(p, tmp_path, spark).lanes[0].read == 10
    assert oracle.judge(ids, tmp_path / "out").clean
    assert kafka.committed(servers, "penstock.p.in", name) == {0: 50, 1: 60, 2: 50}


def test_a_record_is_what_conduit_makes_of_it_and_nothing_of_its_headers_is_lost(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    name = topic()
    twice: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", b"\xff"), ("a", b"2"), ("n", None)]
    kafka.produce(
        servers,
        name,
        [
            (b"k\xff", b"v\x00\xfe", [("plain", "ä".encode())], 1_700_000_000_123),
            (None, None, twice, 1_700_000_000_124),
            (b"k", b"", None, 1_700_000_000_125),
        ],
    )
    s = source(tmp_path, name)
    ranges = taken(s, nothing())
    first, second, third = rows_of(spark, s, ranges)
    assert ranges[0].position["topic"] == name
    assert [r.seq for r in (first, second, third)] == [0, 1, 2]
    assert bytes(first.position) == f"{name}/0/0".encode()
    assert first.namespace == name
    assert bytes(first.key) == b"k\xff"
    assert first.timestamp.timestamp() == pytest.approx(1_700_000_000.123, abs=1e-4)
    common = {"opencdc.collection": name}
    assert first.metadata == {**common, "opencdc.createdAt": "1700000000123000000", "kafka.header.plain": "ä"}
    assert second.after is None
    assert second.key is None
    full = [[k, base64.b64encode(v).decode() if v is not None else None] for k, v in twice]
    assert json.loads(second.metadata["kafka.headers"]) == [{"key": k, "value": v} for k, v in full]
    assert second.metadata["kafka.header.a"] == "2"
    assert "kafka.header.b" not in second.metadata
    assert third.after == ""
    assert third.metadata == {**common, "opencdc.createdAt": "1700000000125000000"}
    kept = s.frame(spark, ranges, {record.AFTER}).selectExpr("cast(after as binary) b").collect()
    assert bytes(kept[0].b) == b"v\x00\xfe"  # bytes that are no text stay as they are


def test_a_record_without_a_value_is_a_delete_where_asked(tmp_path: Path, spark: SparkSession, servers: str) -> None:
    name = topic()
    kafka.produce(servers, name, [(b"k", b"v"), (b"k", None)])
    s = source(tmp_path, name, tombstones="delete")
    assert [(r.operation, r.after) for r in rows_of(spark, s, taken(s, nothing()))] == [
        ("create", "v"),
        ("delete", None),
    ]


@pytest.mark.contract("S5", reason="every record's seq and position is compared with what a plain client reads")
def test_rows_seqs_and_positions_are_equal_whatever_else_is_in_the_batch(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    names = sorted([topic(3), topic(2)])
    for n, name in enumerate(names):
        for p in range(3 - n):
            issue(servers, name, p, 0, 30 + 7 * p)
    s = source(tmp_path, ",".join(names))
    known = nothing()
    whole = taken(s, known)
    seen = {(bytes(r.position), r.seq) for r in rows_of(spark, s, whole)}
    assert {p for p, _ in seen} == {
        f"{name}/{m.partition}/{m.offset}".encode() for name in names for m in kafka.read_committed(servers, name)
    }
    assert len({seq for _, seq in seen}) == len(seen)
    first = next(seq for p, seq in seen if p == f"{names[1]}/1/5".encode())
    for half in whole.split(first):
        assert {(bytes(r.position), r.seq) for r in rows_of(spark, s, half)} <= seen
    low, high = whole.split(first)
    assert sum(len(rows_of(spark, s, half)) for half in (low, high)) == len(seen)


@pytest.mark.contract("S5", reason="the output is compared with what was issued, partition by partition")
def test_order_holds_per_partition_over_batches_restarts_and_cores(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, servers: str
) -> None:
    case = made_case(tmp_path, gateway, partitions=5, per=100, batch=60)
    ended = case.run(kill_at="K7", kill_nth=3)
    assert ended.killed
    case.issue_more(20)
    case.finish(cores=1)
    assert case.verdict().clean, str(case.verdict())


def test_a_batch_is_shared_fairly_by_partitions(tmp_path: Path, spark: SparkSession, servers: str) -> None:
    name = topic(3)
    for p, n in enumerate((100, 10, 100)):
        issue(servers, name, p, 0, n)
    s = source(tmp_path, name)
    known = nothing()
    first = taken(s, known, max_records=60)
    assert [(r.strand, r.position["to"]) for r in first] == [(f"{name}/0", 25), (f"{name}/1", 10), (f"{name}/2", 25)]
    second = taken(s, known, max_records=60)
    assert [(r.position["from"], r.position["to"]) for r in second] == [(25, 55), (25, 55)]
    behind = s.behind()
    assert behind is not None
    assert behind.records == 90


# -- where reading begins ----------------------------------------------------------------------------------------------------------------


def test_latest_is_where_the_first_start_was_also_if_it_is_killed_before_it_has_read_anything(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    """What comes between two starts is never left out. Conduit's default."""
    name = topic(2)
    issue(servers, name, 0, 0, 10)
    p = pipeline(tmp_path, name, readFromBeginning="false")
    assert finish(p, tmp_path, spark).lanes[0].read == 0
    ids = issue(servers, name, 0, 10, 15) + issue(servers, name, 1, 0, 5)
    assert finish(p, tmp_path, spark).lanes[0].read == 10
    assert oracle.judge(ids, tmp_path / "out").clean


def test_a_start_by_timestamp_or_by_offsets(tmp_path: Path, spark: SparkSession, servers: str) -> None:
    name = topic(2)
    kafka.produce(servers, name, [(None, b"a%d" % n, None, 1_700_000_000_000 + n * 1000) for n in range(10)], 0)
    kafka.produce(servers, name, [(None, b"b", None, 1_600_000_000_000)], 1)
    s = source(tmp_path / "t", name, start="timestamp", **{"start-timestamp": "2023-11-14T22:13:25.500Z"})
    [r] = taken(s, nothing())
    assert (r.strand, r.position["from"], r.position["to"]) == (f"{name}/0", 6, 10)
    s = source(tmp_path / "o", name, start="offsets", **{"start-offsets": f"{name}/0=8, {name}/1=0"})
    assert [(r.position["from"], r.position["to"]) for r in taken(s, nothing())] == [(8, 10), (0, 1)]
    for text, said in (
        (f"{name}/0=8", f"{name}/1 have no offset"),
        (f"{name}/0=8,{name}/1=0,{name}/7=1", f"no {name}/7"),
    ):
        s = source(tmp_path / "bad", name, start="offsets", **{"start-offsets": text})
        with pytest.raises(Stop, match="start-offsets") as caught:
            s.available(nothing(), Limits())
        assert said in caught.value.why
    s = source(tmp_path / "high", name, start="offsets", **{"start-offsets": f"{name}/0=80, {name}/1=0"})
    with pytest.raises(Stop, match="ends before the offset to begin with") as caught:
        s.available(nothing(), Limits())
    assert caught.value.code == "kafka.backwards"


def test_new_partitions_and_topics_are_found_while_running_and_read_from_their_first_record(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    prefix = "n" + secrets.token_hex(5)
    kafka.create_topic(servers, f"{prefix}.a")
    ids = issue(servers, f"{prefix}.a", 0, 0, 5)
    p = pipeline(tmp_path, "", pattern=rf"{prefix}\..*", readFromBeginning="true")
    with running(p, tmp_path, spark) as results:
        until(lambda: len(lines(tmp_path)) == 5)
        kafka.create_topic(servers, f"{prefix}.b", 2)
        ids += issue(servers, f"{prefix}.b", 1, 0, 5)
        kafka.add_partitions(servers, f"{prefix}.a", 3)
        ids += issue(servers, f"{prefix}.a", 2, 0, 5)
        until(lambda: len(lines(tmp_path)) == 15 or results)
    assert [r.error for r in results] == [None]
    assert oracle.judge(ids, tmp_path / "out").clean


def test_once_ends_with_what_was_there_when_it_began(tmp_path: Path, spark: SparkSession, servers: str) -> None:
    name = topic(2)
    issue(servers, name, 0, 0, 20)
    s = source(tmp_path, name, once=True)
    known = nothing()
    taken(s, known, max_records=15)
    issue(servers, name, 0, 20, 30)
    issue(servers, name, 1, 0, 10)
    assert taken(s, known)[0].position["to"] == 20
    assert s.available(known, Limits()) is None
    assert s.idle()


# -- gaps --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S6", reason="what is delivered is compared with what a plain client reads")
def test_only_committed_records_of_transactions_are_read_and_an_open_one_is_waited_for(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    name = topic(2)
    p = kafka.transactional(servers, name)
    issued: list[str] = []
    for n in range(8):
        ids = [f"p0:{n * 10 + i}" for i in range(10)]
        p.begin_transaction()
        kafka.send(p, name, [f"{i}:{PAD}".encode() for i in ids], 0)
        if n % 3 == 1:
            p.flush()
            p.abort_transaction(30)
        else:
            p.commit_transaction(30)
            issued += ids
    p.begin_transaction()
    kafka.send(p, name, [f"p0:{n}:{PAD}".encode() for n in range(100, 110)], 0)
    p.flush()
    flow = pipeline(tmp_path, name, {"max-records": 7})  # also batches with nothing but what was aborted
    assert finish(flow, tmp_path, spark).lanes[0].read == len(issued)
    assert oracle.judge(issued, tmp_path / "out").clean
    assert finish(flow, tmp_path, spark).lanes[0].read == 0
    p.commit_transaction(30)
    issued += [f"p0:{n}" for n in range(100, 110)]
    assert finish(flow, tmp_path, spark).lanes[0].read == 10
    assert oracle.judge(issued, tmp_path / "out").clean
    assert [m.value.decode() for m in kafka.read_committed(servers, name) if m.value] == lines(tmp_path)


def test_a_compacted_topic_is_read_with_its_gaps(tmp_path: Path, spark: SparkSession, servers: str) -> None:
    name = topic(
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.01,
        segment_ms=100,
        min_compaction_lag_ms=0,
        segment_bytes=1 << 20,
    )
    for n in range(20):
        kafka.produce(servers, name, [(b"k%d" % (i % 5), b"%d.%d" % (n, i)) for i in range(20)])
        time.sleep(0.06)
    until(lambda: len(kafka.read_committed(servers, name)) < 300)
    kafka.configure_topic(servers, name, cleanup_policy="delete")  # from here on it stays as it is
    time.sleep(1)
    there = kafka.read_committed(servers, name)
    read = finish(pipeline(tmp_path, name, {"max-records": 33}), tmp_path, spark).lanes[0].read
    assert read == len(there) < there[-1].offset + 1
    assert lines(tmp_path) == [(m.value or b"").decode() for m in there]


def test_a_dead_letter_behind_a_gap_names_its_offset_and_a_closed_gate_splits_there(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    """Ordinals, splits and held records rest on seqs, which have the same gaps as offsets."""
    name = topic(2)
    p = kafka.transactional(servers, name)
    for n in range(4):
        p.begin_transaction()
        kafka.send(p, name, [json.dumps({"n": n * 5 + i}).encode() for i in range(5)], 0)
        p.commit_transaction(30)
    kafka.produce(servers, name, [b'{"n": 100}'], 1)
    bad = [m for m in kafka.read_committed(servers, name) if m.value == b'{"n": 13}']
    flow = pipeline(tmp_path, name).processor("decode", "json.decode", field=".Payload.After")
    flow = flow.processor("no", "error", condition="after.n = 13", message="no").processor(
        "enc", "json.encode", field=".Payload.After"
    )
    result = ran(flow, tmp_path, spark)
    assert result.error is not None
    assert result.lanes[0].read == 13
    assert [json.loads(line)["n"] for line in lines(tmp_path)] == list(range(13))
    [(seq, held)] = oracle.rows(tmp_path / "state", "SELECT seq, record FROM nack WHERE state = 'held'")
    assert seq == bad[0].offset == 15
    assert json.loads(str(held))["given"]["position"]["text"] == f"{name}/0/15"


# -- what kafka no longer has ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("S6", "T23", safeguard="unchanged")
@pytest.mark.parametrize("off", [(), ("unchanged",)])
def test_records_that_retention_took_stop_the_pipeline_with_their_offsets(
    tmp_path: Path, spark: SparkSession, servers: str, off: tuple[str, ...]
) -> None:
    """Between two runs. Without the look nobody says a word, and the records are missing."""
    name = topic(2)
    for p in range(2):
        issue(servers, name, p, 0, 10)
    flow = pipeline(tmp_path, name)
    finish(flow, tmp_path, spark)
    issue(servers, name, 1, 10, 20)
    kafka.delete_records(servers, name, {1: 17})
    faults.install(off=off)
    if off:
        result = ran(flow, tmp_path, spark)
        assert result.error is None or result.error.code != "kafka.lost"
        return
    error = refused(flow, tmp_path, spark)
    assert error.code == "kafka.lost"
    assert f"{name}/1" in error.what
    assert "offset 10 is the next to be read, and the first that is there is 17: 7 offsets are gone" in error.why
    assert "start: earliest" in error.hint
    assert len(lines(tmp_path)) == 20
    assert refused(flow, tmp_path, spark).code == "kafka.lost"  # and it stays


def test_records_that_go_between_snapshot_and_read_stop_the_batch(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    name = topic()
    issue(servers, name, 0, 0, 50)
    flow = pipeline(tmp_path, name)
    faults.install(lambda point, _: kafka.delete_records(servers, name, {0: 20}) if point == "K2" else None)
    error = refused(flow, tmp_path, spark)
    assert error.code == "kafka.lost"
    assert not lines(tmp_path)


def test_records_that_go_while_they_are_read_are_seen_after_the_read(tmp_path: Path, servers: str) -> None:
    name = topic()
    issue(servers, name, 0, 0, 50)
    s = source(tmp_path, name)
    ranges = taken(s, nothing())
    s.recheck(ranges)
    kafka.delete_records(servers, name, {0: 1})
    with pytest.raises(Stop, match="deleted before they were read"):
        s.recheck(ranges)
    low, high = ranges.split(ranges[0].base + 10)
    s.recheck(high)  # what is gone is not in this half
    with pytest.raises(Stop):
        s.recheck(low)


def test_a_topic_that_is_deleted_or_made_anew_stops_the_pipeline(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    name = topic()
    issue(servers, name, 0, 0, 10)
    s = source(tmp_path, name)
    known = nothing()
    ranges = taken(s, known)
    kafka.delete_topic(servers, name)
    with pytest.raises(Stop, match=f"The topic '{name}' is gone") as caught:
        s.recheck(ranges)
    assert caught.value.code == "kafka.gone"
    time.sleep(0.15)
    with pytest.raises(Stop, match="is gone") as caught:
        s.available(known, Limits())
    assert f"{name}/0 was read up to offset 10" in caught.value.why
    kafka.create_topic(servers, name)
    issue(servers, name, 0, 0, 20)  # more than was read: offsets alone do not tell
    for _ in range(2):
        with pytest.raises(Stop, match="deleted and made anew") as caught:
            s.available(known, Limits())
        assert caught.value.code == "kafka.recreated"
    with pytest.raises(Stop, match="made anew"):
        s.recheck(ranges)


def test_a_partition_that_is_shorter_is_looked_at_again_before_that_is_believed(
    tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker says for a moment after it was killed; and as one says that was put back from an older copy."""
    name = topic()
    issue(servers, name, 0, 0, 10)
    s, known = source(tmp_path, name), nothing()
    ranges = taken(s, known)
    now = [time.monotonic()]
    monkeypatch.setattr("penstock.connectors.kafka.source.clock", lambda: now[0])
    cluster = s._asked()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "ends", lambda places: dict.fromkeys(places, 4))
        with pytest.raises(Retry, match="looked at again"):
            s.available(known, Limits())
        with pytest.raises(Retry, match="looked at again"):
            s.recheck(ranges)
        now[0] += 6
        with pytest.raises(InputChanged, match="ends before what was read") as caught:
            s.available(known, Limits())
        assert caught.value.code == "kafka.backwards"
    assert s.available(known, Limits()) is None
    s.recheck(ranges)


def test_another_cluster_is_not_taken_for_the_same_one(tmp_path: Path, servers: str) -> None:
    name = topic()
    issue(servers, name, 0, 0, 10)
    s = source(tmp_path, name)
    known = nothing()
    [r] = taken(s, known)
    other = type(r)(r.strand, {**r.position, "cluster": "another"}, r.base, r.size)
    known.took(Ranges((other,), known.next_seq))
    s.start(s.around)  # type: ignore[arg-type]
    with pytest.raises(Stop, match="another cluster") as caught:
        s.available(known, Limits())
    assert caught.value.code == "kafka.other-cluster"


def test_what_can_not_be_reached_or_is_unknown_is_said_with_what_to_do(tmp_path: Path, servers: str) -> None:
    name = topic()
    with pytest.raises(Stop, match="has no topic") as stopped:
        source(tmp_path, f"{name}x").check()
    assert stopped.value.code == "kafka.unknown-topic"
    assert stopped.value.hint == f"did you mean '{name}'?"
    with pytest.raises(Retry, match="can't be reached") as retried:
        source(tmp_path, name, servers="127.0.0.1:1").check()
    assert retried.value.code == "kafka.connection"
    assert "127.0.0.1:1" in retried.value.what
    source(tmp_path, name).check()


def test_users_who_are_not_let_in_are_told_so_and_others_read(tmp_path: Path, spark: SparkSession) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = f'{module} required username="admin" password="x" user_me="se\\"cret";'
    plain = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_plaintext.plain.sasl.jaas.config": users}
    broker = kafka.Broker(settings=plain, listeners="SASL_PLAINTEXT")
    try:
        sasl: dict[str, Any] = {"servers": broker.servers, "saslMechanism": "PLAIN", "saslUsername": "me"}
        client: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "me",
            "sasl_password": 'se"cret',
        }
        admin = kafka.admin(broker.servers, **client)
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        kafka.produce(broker.servers, "t", [b"one", b"two"], **client)
        with pytest.raises(Stop, match="does not let us in") as caught:
            source(tmp_path, "t", **sasl, saslPassword="wrong").check()
        assert caught.value.code == "kafka.access"
        assert "wrong" not in str(caught.value)
        p = pipeline(tmp_path, "t", **sasl, saslPassword='se"cret')
        assert finish(p, tmp_path, spark).lanes[0].read == 2
        assert lines(tmp_path) == ["one", "two"]
    finally:
        broker.stop()


# -- kills -------------------------------------------------------------------------------------------------------------------------------

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: kafka
        settings: {{servers: "{servers}", topics: {topic}, start: earliest, poll: 20ms, discover: 200ms, groupID: g-{topic}}}
        batch: {{max-records: {batch}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: text}}}}
{processors}"""


class Topics(FromKafka):
    def configure(self) -> None:
        text = PIPELINE.format(
            root=self.root, servers=self.servers, topic=self.topic, batch=self.batch, processors=self.processors
        )
        (self.root / "p.yaml").write_text(text)


def made_case(
    tmp_path: Path,
    gateway: Gateway,
    *,
    name: str = "case",
    partitions: int = 3,
    per: int = 40,
    batch: int = 40,
    servers: str = "",
) -> Topics:
    servers = servers or kafka.broker().servers
    case = Topics(
        tmp_path / name, gateway, servers=servers, topic=topic(partitions, servers), partitions=partitions, batch=batch
    )
    case.issue_more(per)
    return case


@pytest.mark.crash
@pytest.mark.contract("C4", "C5", "S6", "X1", reason="every id is compared with what was issued after every kill")
@pytest.mark.parametrize(
    ("point", "nth"), [("K1", 2), ("K2", 2), ("K6", 2), ("K7", 1), ("K6a", 2), ("K8", 2), ("done", 1), ("acked", 1)]
)
def test_who_is_killed_is_gone_on_for_with_the_same_records(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, point: str, nth: int
) -> None:
    case = made_case(tmp_path, gateway)
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    case.issue_more(10)
    case.finish()
    assert case.verdict().clean, str(case.verdict())
    assert kafka.committed(case.servers, f"g-{case.topic}", case.topic) == case.counts


@pytest.mark.crash
@pytest.mark.contract("C5", safeguard="one-snapshot and receipt: either alone is enough")
def test_a_delivery_that_is_committed_but_not_done_is_not_made_again(
    tmp_path: Path, spark: SparkSession, gateway: Gateway
) -> None:
    found = {}
    for name, off in (("kept", ()), ("control", ("one-snapshot", "receipt"))):
        case = made_case(tmp_path, gateway, name=name)
        for _ in range(2):
            assert case.run(kill_at="K8", off=off).killed
        case.run(off=off)
        found[name] = case.verdict()
    assert found["kept"].clean, str(found["kept"])
    assert found["control"].duplicated


@pytest.mark.crash
@pytest.mark.contract("C6", "C7", "C8", reason="the ledger's rows are compared before and after the retries")
def test_the_ranges_are_written_before_anything_is_read_and_stay_over_attempts(
    tmp_path: Path, spark: SparkSession, gateway: Gateway
) -> None:
    case = made_case(tmp_path, gateway, batch=30)
    assert case.run(kill_at="K2").killed
    [(_, text)] = case.rows("SELECT batch, ranges FROM snapshot")
    ranges = Ranges.from_json(str(text))
    assert [(r.strand, r.position["from"], r.position["to"]) for r in ranges] == [
        (f"{case.topic}/{p}", 0, 10) for p in range(3)
    ]
    assert {tuple(r.position) for r in ranges} == {("cluster", "topic", "id", "partition", "from", "to")}
    case.issue_more(5)
    assert case.run(kill_at="K6").killed
    assert case.run(kill_at="K6").killed
    assert case.rows("SELECT ranges FROM snapshot") == [(text,)]
    [(attempts,)] = case.rows("SELECT count(*) FROM attempt")
    assert attempts == 3
    case.finish()
    assert case.verdict().clean, str(case.verdict())
    hashes = [row[0] for row in case.rows("SELECT hash FROM delivery")]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.crash
@pytest.mark.contract("S9", reason="offsets of the group are looked at over restarts: they never go back")
def test_the_group_is_told_after_the_ack_and_never_asked(tmp_path: Path, spark: SparkSession, gateway: Gateway) -> None:
    case = made_case(tmp_path, gateway, partitions=1, per=60, batch=20)
    group = f"g-{case.topic}"
    assert case.run(kill_at="K8").killed
    assert kafka.committed(case.servers, group, case.topic) == {}  # delivered, not acked
    assert case.run(kill_at="K2").killed  # of the second batch
    assert kafka.committed(case.servers, group, case.topic).get(0, 0) <= 20
    case.finish()
    assert kafka.committed(case.servers, group, case.topic) == {0: 60}
    admin = kafka.admin(case.servers)
    admin.delete_consumer_groups([group])[group].result(30)
    case.issue_more(5)
    case.finish()  # it went on by the ledger
    assert case.verdict().clean, str(case.verdict())
    assert kafka.committed(case.servers, group, case.topic) == {0: 65}


def test_a_group_that_can_not_be_written_is_a_warning_and_stops_nothing(
    tmp_path: Path, spark: SparkSession, servers: str
) -> None:
    """Somebody else is a member of the group: Kafka refuses offsets from outside."""
    from confluent_kafka import Consumer

    name, group = topic(), "g" + secrets.token_hex(5)
    issue(servers, name, 0, 0, 10)
    member = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    member.subscribe([name])
    until(lambda: [member.poll(0.1), member.assignment()][1])
    said: list[str] = []
    s = source(tmp_path, name, groupID=group)
    s.around = Surroundings(
        "p", tmp_path / "own", ("out",), lambda level, text: said.append(f"{level} {text}"), once=False, idle=0.1
    )
    try:
        known = nothing()
        s.acked(taken(s, known))
        s.close()
    finally:
        member.close()
    assert len(said) == 1
    assert said[0].startswith(f"warn the offsets of the group {group!r} can't be written")


@pytest.mark.crash
@pytest.mark.contract("C4", "X1", reason="every id is compared with what was issued after the broker was killed")
def test_a_broker_that_is_killed_and_comes_back_costs_nothing_but_time(tmp_path: Path, spark: SparkSession) -> None:
    broker = kafka.Broker()
    try:
        name = topic(2, broker.servers)
        ids = [i for p in range(2) for i in issue(broker.servers, name, p, 0, 100)]
        p = pipeline(tmp_path, name, {"max-records": 40}, servers=broker.servers)
        with running(p, tmp_path, spark) as results:
            until(lambda: len(lines(tmp_path)) >= 80)
            broker.kill()
            time.sleep(1.0)
            broker.start()
            ids += [i for q in range(2) for i in issue(broker.servers, name, q, 100, 120)]
            until(lambda: len(lines(tmp_path)) >= 240 or results, 120)
        assert [r.error for r in results] == [None]
        assert oracle.judge(ids, tmp_path / "out").clean, str(oracle.judge(ids, tmp_path / "out"))
    finally:
        broker.stop()


def test_what_a_stop_leaves_is_counted_without_the_gaps(tmp_path: Path, servers: str) -> None:
    name = topic()
    p = kafka.transactional(servers, name)
    for n in range(3):
        p.begin_transaction()
        kafka.send(p, name, [b"%d.%d" % (n, i) for i in range(4)], 0)
        p.flush()
        p.commit_transaction(30) if n != 1 else p.abort_transaction(30)
    s = source(tmp_path, name)
    ranges = taken(s, nothing())
    assert sum(r.position["to"] - r.position["from"] for r in ranges) == 15
    assert s.count(ranges) == 8
    low, high = ranges.split(ranges[0].base + 2)
    assert (s.count(low), s.count(high)) == (2, 6)
