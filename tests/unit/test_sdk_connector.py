"""A connector that is written once with the SDK: as a program in both dialects, and in this process, with the same results."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock_protocol import handshake
from penstock_protocol.interfaces import Ack, DestinationPlugin, EndOfStream, PluginError, SourcePlugin
from penstock_protocol.process import PluginProcess
from penstock_protocol.records import Records
from penstock_sdk import Connector, Record, Settings, Source
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records, to_records
from tests.support import sdk_program

ROOT = Path(__file__).parents[2]
Make = Callable[[str], Any]


@pytest.fixture(params=["second", "first", "built in", "second, async", "built in, async"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A source or a destination of the connector, in one of the ways that it can run."""
    way, _, kind = request.param.partition(", ")
    connector: Connector = sdk_program.ASYNC if kind else sdk_program.SYNC
    with ExitStack() as stack:

        def made(role: str) -> Any:
            if way == "built in":
                assert connector.source is not None
                assert connector.destination is not None
                return (
                    SourceAdapter(connector.source) if role == "source" else DestinationAdapter(connector.destination)
                )
            monkeypatch.setattr(handshake, "DIALECTS", (2 if way == "second" else 1,))
            command = [sys.executable, sdk_program.__file__, *([kind] if kind else [])]
            process = PluginProcess(command, connector_id="p:c", environment={"PYTHONPATH": str(ROOT)})
            stack.enter_context(process)
            return process.source() if role == "source" else process.destination()

        yield made


def test_close_waits_for_the_calls_that_run() -> None:
    """`close` is the last call, also when it is torn down in the middle of a read."""
    told: list[str] = []
    reading = threading.Event()

    class Slow(Source[Settings]):
        def read(self, max_records: int, timeout: float) -> list[Record]:
            reading.set()
            self.context.stopping.wait()
            told.append("read has ended")
            return []

        def close(self) -> None:
            told.append("close")

    source = SourceAdapter(Slow)
    source.configure({})
    source.open(b"")
    reader = threading.Thread(target=source.read_records, args=[10.0])
    reader.start()
    assert reading.wait(10)
    source.teardown()
    reader.join()
    assert told == ["read has ended", "close"]


def _read(source: SourcePlugin, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += from_records(source.read(10))
    return found


def test_a_source_reads_resumes_and_is_told_of_every_ack_in_order(make: Make, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    config = {"count": "8", "journal": str(journal)}
    source = make("source")
    source.configure(config)
    source.on_created(config)
    source.open(b"2")
    found = _read(source, 6)
    assert [(r.after, r.position, r.namespace) for r in found] == [
        ({"n": n}, b"%d" % n, "numbers") for n in range(3, 9)
    ]
    source.ack([r.position for r in found[:2]])
    source.ack([r.position for r in found[2:]])
    stopped: list[bytes] = []
    stopping = threading.Thread(target=lambda: stopped.append(source.stop()))  # it waits until reading has ended
    stopping.start()
    with pytest.raises(EndOfStream):
        while True:
            source.read(10)
    stopping.join(30)
    assert stopped == [b"8"]
    source.teardown()
    told = journal.read_text().split("\n")
    assert told[:2] == ["created", "open b'2'"]
    assert " ".join(line.removeprefix("ack ") for line in told if line.startswith("ack")).split() == list("345678")
    assert told[-2:] == ["close", ""]


def test_a_destination_answers_every_record_once_in_order(make: Make, tmp_path: Path) -> None:
    destination: DestinationPlugin = make("destination")
    destination.configure({"path": str(tmp_path / "kept")})
    destination.open()
    for first in (1, 4, 7):
        records = [Record({"n": n}, position=b"%d" % n, namespace="x") for n in range(first, first + 3)]
        destination.write(to_records(records))
    acks: list[Ack] = []
    destination.stop(b"9")
    with pytest.raises(EndOfStream):
        while True:
            acks += destination.acks(10)
    destination.teardown()
    assert [ack.position for ack in acks] == [b"%d" % n for n in range(1, 10)]
    kept = (tmp_path / "kept").read_text().splitlines()
    if kept:  # the one that answers later keeps nothing
        assert [ack.position for ack in acks if ack.error] == [b"5"]
        assert kept == [f"x {{'n': {n}}}" for n in range(1, 10) if n != 5]


def test_bad_settings_are_told_all_at_once(make: Make) -> None:
    with pytest.raises(PluginError) as raised:
        make("source").configure({"count": "-1", "jurnal": "x"})
    assert len(str(raised.value).splitlines()) == 3
    assert "journal" in str(raised.value)


def test_an_error_of_the_author_ends_the_stream_with_its_words(make: Make, tmp_path: Path) -> None:
    source = make("source")
    source.configure({"count": "9", "fail": "6", "journal": str(tmp_path / "journal")})
    source.open(b"")
    with pytest.raises((PluginError, ValueError), match="worn out"):
        while True:
            source.read(10)


def test_calls_out_of_order_are_refused(make: Make, tmp_path: Path) -> None:
    source = make("source")
    with pytest.raises(PluginError, match="has to be configured"):
        source.open(b"")
    source.configure({"journal": str(tmp_path / "journal")})
    with pytest.raises(PluginError, match="configured before"):
        source.configure({"journal": str(tmp_path / "journal")})
    assert source.stop() == b""  # nobody reads: there is nothing to wait for
    source.teardown()
    source.teardown()


def test_an_ack_for_what_is_not_next_is_refused(make: Make, tmp_path: Path) -> None:
    source = make("source")
    source.configure({"journal": str(tmp_path / "journal")})
    source.open(b"")
    _read(source, 3)
    with pytest.raises(PluginError, match=r"b'2' was acknowledged where b'1' is next"):
        source.ack([b"2"])
        while True:
            source.read(10)


def test_the_specification_comes_from_the_settings() -> None:
    specification = sdk_program.SYNC.specification()
    assert set(specification.source) == {"count", "journal", "fail"}
    assert specification.source["count"].default == "10"
    assert specification.destination["path"].description == "The file."


def test_the_sdk_needs_neither_engine_nor_spark_and_declaring_needs_no_grpc() -> None:
    code = (
        "import sys, penstock_sdk\n"
        "print([m for m in ('penstock', 'pyspark', 'grpc', 'google.protobuf', 'pyarrow', 'pydantic') if m in sys.modules])\n"
        "import penstock_sdk.program\n"
        "print([m for m in ('penstock', 'pyspark', 'pyarrow', 'pydantic') if m in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n[]\n"


def test_records_that_are_empty_are_not_written(tmp_path: Path) -> None:
    destination = DestinationAdapter(sdk_program.Keep)
    destination.configure({"path": str(tmp_path / "kept")})
    destination.open()
    destination.write(Records(b""))
    assert destination.acks(0) == []
    destination.teardown()
