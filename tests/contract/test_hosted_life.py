"""The life of a hosted source: which calls it gets, in which order and dialect, where it is opened; and what becomes of payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.connectors.queue.rows import COLUMNS, Kind, Stretch, kinds
from penstock.host.log_rows import RemoteRows
from penstock.host.remote import Host
from penstock.host.source_host import SourceHost
from penstock.host.spec import SourceSpec
from penstock.log import Lost, Reader
from penstock.pipeline import Pipeline
from penstock.plugins import registry
from penstock.plugins.names import PluginName
from penstock.plugins.standalone import Standalone
from penstock_protocol.process import PluginProcess
from penstock_sdk import Connector, Record, Settings, Source
from tests.support import go
from tests.support.hosted_pipelines import Bench, Telling, installed, lane, remaining, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAOS = "penstock.connectors.chaos.connector:connector"


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Bench:
    return Bench(tmp_path, spark)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugins folder of its own, which the hosts find as well."""
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    return tmp_path


def _upto(n: int) -> list[int]:
    return list(range(1, n + 1))


# -- calls -------------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.contract("P6", reason="the source has written its calls down; their order is compared")
def test_a_source_gets_its_calls_in_order_and_what_it_drains_is_delivered_and_acked(
    bench: Bench, plugins: Path
) -> None:
    """Its second read is tried again, its fifth waits for an ack that comes meanwhile, and a stop finds what it has fetched."""
    plugin = installed(plugins, "fetching", "tests.support.fetching_source:connector")
    p = bench.to(bench.chaos(Pipeline("p"), plugin=plugin), format="json")
    run = bench.start(p)
    run.until(lambda: len(bench.acks()) == 14, "its acks")
    assert remaining(run.stop()) == 0
    calls = bench.calls()
    methods = [call["method"] for call in calls if call["method"] != "ack"]
    assert methods == [
        *("open", "read", "retry"),
        *["read"] * 3,
        "waits",
        *["read"] * 10,
        *["drain"] * 3,
        "close",
    ]
    assert [call["acked"] for call in calls if call["method"] == "waits"] == [True]
    assert [call["count"] for call in calls if call["method"] == "drain"] == [3, 3, 0]
    assert bench.numbers() == bench.acks() == _upto(20)
    assert [call["method"] for call in calls][-2:] == ["ack", "close"]
    run = bench.start(p)
    run.until(lambda: len(bench.opened()) == 2, "the second start")
    run.stop()
    assert bench.opened() == [None, "20"]


# -- dialects ------------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.contract("P2", reason="what arrived from each is compared with what the connector gives without a program")
def test_connectors_of_both_dialects_and_of_none_run_in_one_pipeline(bench: Bench, plugins: Path) -> None:
    names = {"own": "chaos"}
    for dialect, name in ((1, "older"), (2, "newer")):
        names[name] = installed(plugins, name, CHAOS, PLUGIN_PROTOCOL_VERSIONS=str(dialect))
        found = Standalone().find(PluginName.parse(names[name]))
        assert found is not None
        with PluginProcess(found._command(), connector_id="p:c") as process:
            assert process.handshake.dialect == dialect
    p = Pipeline("p")
    for id, plugin in names.items():
        bench.chaos(p, id, plugin, records=200, resend=3)
    bench.finish(bench.to(p, format="json"))
    more = Pipeline("p")
    for id, plugin in names.items():
        bench.chaos(more, id, plugin, records=250, resend=3)
    bench.finish(bench.to(more, format="json"))
    arrived = {id: [n for name, n in bench.files() if name.startswith(f"p.{id}-")] for id in names}
    assert arrived == {id: _upto(250) for id in names}
    told = {
        id: [call["method"] for call in bench.calls(id) if call["method"] in ("open", "drain", "close")] for id in names
    }
    assert told == {id: ["open", "drain", "close"] * 2 for id in names}
    assert {id: bench.opened(id) for id in names} == {id: [None, "200"] for id in names}
    assert {id: bench.acks(id) for id in names} == {id: [*_upto(200), *range(198, 251)] for id in names}
    lives = {id: [call["method"] for call in bench.calls(id, "created", "updated")] for id in names}
    assert lives == {id: ["created", "updated"] for id in names}


@pytest.mark.spark
@go.needs_go
@pytest.mark.contract(
    "P2", reason="what arrived from a connector in another language is compared with what it was given"
)
def test_a_connector_in_go_runs_in_a_pipeline(bench: Bench, plugins: Path) -> None:
    locked = Standalone().add(go.built())
    lines = [{"payload": {"after": {"structuredData": {"n": n}}}, "operation": "OPERATION_CREATE"} for n in _upto(500)]
    (bench.root / "given").write_text("".join(json.dumps(line) + "\n" for line in lines[:300]))
    p = Pipeline("p").source("in", f"standalone:{locked.name}", path=bench.root / "given")
    bench.finish(bench.to(p, format="json"))
    with (bench.root / "given").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines[300:]))
    result = bench.finish(p)
    assert lane(result).read == lane(result).acked == 200
    assert bench.numbers() == _upto(500)


# -- where it is opened ----------------------------------------------------------------------------------------------------------


class Remembers(Source[Settings]):
    """Two namespaces in turn; keeps what it is opened with."""

    opened: list[tuple[bytes | None, dict[str, Any]]]

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self.opened.append((position, {name: r.after for name, r in last.items()}))
        self._at = int(position or b"0")
        self._end = self._at + 5

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if self._at == self._end:
            self.context.stopping.wait(timeout)
            return []
        self._at += 1
        name = "even" if self._at % 2 == 0 else "odd"
        return [Record({"n": self._at}, position=b"%d" % self._at, namespace=name)]


def _logged(host: SourceHost, end: int) -> bool:
    return host.status().end == end


REMEMBERS = Connector("remembers", "1.0.0", "Keeps what it is opened with.", Remembers)


@pytest.mark.contract("T6", reason="what `open` was given is compared with the end of the log")
def test_a_source_is_opened_with_its_last_position_and_the_last_record_of_each_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Remembers.opened = []
    entry = EntryPoint("remembers", f"{__name__}:REMEMBERS", registry.GROUP)
    monkeypatch.setattr(registry, "_offered", lambda: {"remembers": [entry]})
    monkeypatch.setattr(registry, "_loaded", lambda _: REMEMBERS)
    for end in (5, 10, 15):
        host = SourceHost(SourceSpec("p:in", "remembers", {}, str(tmp_path / "log"), {}), lambda *_: None)
        host.open()
        until(partial(_logged, host, end), "its records")
        host.close()
    assert Remembers.opened == [
        (None, {}),
        (b"5", {"odd": {"n": 5}, "even": {"n": 4}}),
        (b"10", {"odd": {"n": 9}, "even": {"n": 10}}),
    ]


@pytest.mark.spark
@pytest.mark.contract(
    "T6", reason="the position that the source was opened with is compared with the last record of the log"
)
def test_after_a_fatal_error_behind_it_a_source_is_opened_where_its_log_ends(bench: Bench) -> None:
    """Half of the log was delivered: the position is that of its last record, and everything before it comes first."""
    p = bench.chaos(Pipeline("p"), records=80, batch={"max-records": 20})
    bench.run(p.destination("out", Telling(bench, fail_at=3)))
    assert len(bench.numbers()) == 40
    p = bench.chaos(Pipeline("p"), records=120, batch={"max-records": 20})
    bench.finish(p.destination("out", Telling(bench)))
    assert bench.opened() == [None, "80"]
    assert bench.numbers() == _upto(120)


@pytest.mark.spark
@pytest.mark.contract(
    "T12", reason="commits of each destination and the call of `open` are in one list, in their order"
)
def test_each_destination_gets_what_it_lacks_before_the_source_is_opened(bench: Bench) -> None:
    """One has 13 records, the other 12, and the log 15."""

    def pipeline(fail_at: int) -> Pipeline:
        p = bench.chaos(Pipeline("p"), records=15, batch={"max-records": 1})
        p.destination("has", Telling(bench, "has"))
        return p.destination("lacks", Telling(bench, "lacks", fail_at=fail_at))

    result = bench.run(pipeline(13))
    assert result.status == "degraded"
    assert (bench.numbers("has"), bench.numbers("lacks")) == (_upto(13), _upto(12))
    with Reader(bench.log()) as reader:
        assert reader.end == 15
    done = len(bench.calls())
    bench.finish(pipeline(0))
    assert bench.numbers("has") == bench.numbers("lacks") == _upto(15)
    later = bench.calls()[done:]
    committed = [call["destination"] for call in later if call["method"] == "commit"]
    assert (committed.count("has"), committed.count("lacks")) == (2, 3)
    methods = [call["method"] for call in later if call["method"] in ("commit", "open", "ack")]
    assert methods == [*["commit"] * 5, "open"]
    assert bench.opened() == [None, "15"]


# -- moments of its life -----------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_source_hears_once_that_it_is_new_and_once_that_its_settings_are(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(bench.root / "in.calls"))

    def moments() -> list[str]:
        return [call["method"] for call in bench.calls("in", "created", "updated", "deleted", "open")]

    for records, heard in (
        (10, ["created", "open"]),
        (10, ["created", "open", "open"]),
        (20, ["created", "open", "open", "updated", "open"]),
        (20, ["created", "open", "open", "updated", "open", "open"]),
    ):
        bench.finish(bench.pipeline(records=records, calls="${CALLS}"), idle=0.3)
        assert moments() == heard
        kept = json.loads((bench.log() / "connector.json").read_text())
        assert kept["settings"] == {"records": str(records), "calls": "${CALLS}"}
    (updated,) = bench.calls("in", "updated")
    assert updated["before"]["records"] == "10"
    assert updated["before"]["calls"] == str(bench.root / "in.calls")
    assert bench.numbers() == _upto(20)
    everything = [f for f in bench.state.rglob("*") if f.is_file()]
    assert not [f for f in everything if str(bench.root / "in.calls").encode() in f.read_bytes()]


@pytest.mark.spark
def test_a_trial_is_not_heard_of(bench: Bench) -> None:
    bench.finish(bench.pipeline(), lifecycle=False)
    assert bench.calls("in", "created") == []
    assert not (bench.log() / "connector.json").exists()


@pytest.mark.spark
def test_another_plugin_under_the_same_id_is_refused(bench: Bench, plugins: Path) -> None:
    bench.finish(bench.pipeline())
    other = installed(plugins, "other", CHAOS)
    result = bench.run(bench.pipeline(plugin=other))
    assert "host.other-plugin" in str(result.error)
    assert bench.opened() == [None]


# -- the end of a run ----------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_run_that_ends_by_itself_does_so_when_nothing_has_come_for_a_while(bench: Bench) -> None:
    """The third read takes longer than the run waits. The stop ends it, and what it gives then is delivered, too."""
    p = bench.pipeline(records=40, read="slow:300s at 3")
    bench.finish(p, idle=1.0)
    assert bench.numbers() == bench.acks() == _upto(30)
    assert bench.calls()[-1]["method"] == "close"
    bench.finish(bench.pipeline(records=40))
    assert bench.numbers() == _upto(40)


@pytest.mark.spark
def test_a_source_that_waits_for_room_in_its_log_is_not_idle(bench: Bench) -> None:
    """The log holds less than what there is, and each commit takes longer than a source may be silent."""
    slow = Telling(bench, seconds=2.0, format="text")
    slow.gate.clear()
    p = bench.chaos(Pipeline("p"), records=2500, size=1000, read="slow:1s at 2", log={"max-size": "1MiB"})
    run = bench.start(p.destination("out", slow), once=True, idle=1.0)
    run.until(lambda: bench.read() > 900, "a full log")
    slow.gate.set()
    assert run.result().error is None
    assert len(bench.numbers()) == len(bench.acks()) == 2500


# -- payloads --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(("size", "form"), [(0, "json"), (8, "text")])
def test_structured_and_raw_payloads_arrive(bench: Bench, size: int, form: str) -> None:
    bench.finish(bench.pipeline(to=form, records=25, size=size))
    (file,) = (bench.root / "out").glob("p.in-*")
    expected = [json.dumps({"n": n}, separators=(",", ":")) if size == 0 else f"{n:08}" for n in _upto(25)]
    assert file.read_text().splitlines() == expected


@pytest.mark.spark
@pytest.mark.parametrize(
    ("settings", "form", "says"),
    [
        ({"plugin": "omit", "fields": ".Payload.After.x"}, "text", "put json.decode before it"),
        ({"plugin": "filter", "condition": "after.n = 1"}, "text", "put json.decode before it"),
        ({}, "parquet", "json.decode"),
    ],
)
def test_a_pipeline_that_can_not_work_on_raw_payloads_says_so_when_they_come(
    bench: Bench, settings: dict[str, str], form: str, says: str
) -> None:
    p = bench.pipeline(to=form, records=5, size=8)
    if settings:
        p.processor("x", **settings)
    result = bench.run(p)
    assert result.status == "degraded"
    assert result.error is not None
    assert result.error.code == "batch.shape"
    assert says in result.error.hint
    assert remaining(result) == 5
    assert bench.acks() == []
    bench.finish(bench.pipeline(to="text", records=5, size=8))
    assert bench.numbers() == _upto(5)


# -- the way of the rows ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    made: list[Host] = []
    yield made
    for host in made:
        host.kill()


@pytest.mark.parametrize("size", [0, 12])
def test_rows_from_the_host_are_the_rows_of_the_folder(tmp_path: Path, hosts: list[Host], size: int) -> None:
    folder = tmp_path / "log"
    settings = {"records": "5000", "size": str(size)}
    host = Host(lambda tokens: SourceSpec("p:in", "chaos", settings, str(folder), tokens), lambda *_: None)
    hosts.append(host)
    host.open()
    until(lambda: host.status().end == 5000, "all of it")
    kind = Kind()
    with Reader(folder) as reader:
        for rows in reader.read(0):
            assert not isinstance(rows, Lost)
            for _, one in kinds(rows):
                joined = kind.joined(one)
                assert joined is not None
                kind = joined
    stretches = (Stretch(0, 1777, 100), Stretch(1777, 5000, 100))
    here = RemoteRows(str(folder), host.ready.log_id, stretches, COLUMNS, kind)
    there = RemoteRows(
        str(tmp_path / "nowhere"),
        host.ready.log_id,
        stretches,
        COLUMNS,
        kind,
        address=host.address,
        token=host.token("read"),
    )
    numbers = [pa.RecordBatch.from_pydict({"id": [0, 1]})]
    tables = [pa.Table.from_batches(rows(iter(numbers))).combine_chunks() for rows in (here, there)]
    assert tables[0].equals(tables[1])
    assert tables[0].column("seq").to_pylist() == list(range(100, 5100))
    assert tables[0].column("position").to_pylist() == [b"%d" % n for n in _upto(5000)]
