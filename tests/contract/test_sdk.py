"""Connectors that are written with the SDK: answers, the least that one has to have, both ways to run it, and what it needs installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock_protocol.interfaces import Ack, EndOfStream, PluginError
from penstock_protocol.process import PluginProcess
from penstock_sdk import Acks, Batch, Connector, Destination, Record, Rejected, Settings, Source
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.testing import Inside, Setup, run
from penstock_sdk.wire import from_records, to_records
from tests.support import sdk_program

ROOT = Path(__file__).parents[2]


def _records(count: int, first: int = 0) -> list[Record]:
    return [Record({"n": n}, position=b"%d" % n) for n in range(first, first + count)]


# -- answers --------------------------------------------------------------------------------------------------------


class Later(Destination[Settings]):
    """Keeps what it is given; the test answers."""

    held: list[Acks]

    def open(self) -> None:
        type(self).held = []

    def write_async(self, batch: Batch, acks: Acks) -> None:
        self.held.append(acks)


def _opened(kind: type[Destination[Any]]) -> DestinationAdapter:
    made = DestinationAdapter(kind)
    made.configure({})
    made.open()
    return made


@pytest.mark.contract("P7", reason="each answer is given by the test, and what comes of it is looked at")
def test_answers_reach_the_host_in_the_order_of_the_records_whatever_order_they_are_given_in() -> None:
    made = _opened(Later)
    made.write(to_records(_records(3)))
    made.write(to_records(_records(2, 3)))
    first, second = Later.held
    second.ok(1)
    second.reject(0, "three is bad")
    first.ok(2)
    assert made.acks(0.01) == []
    first.ok(0)
    assert made.acks(1) == [Ack(b"0")]
    first.reject(1, "")
    assert made.acks(1) == [Ack(b"1", "refused"), Ack(b"2"), Ack(b"3", "three is bad"), Ack(b"4")]
    made.stop(b"4")
    with pytest.raises(EndOfStream):
        made.acks(1)
    made.teardown()


@pytest.mark.contract("P7", reason="each answer is given by the test, and what comes of it is looked at")
def test_a_second_answer_raises_and_changes_nothing() -> None:
    made = _opened(Later)
    made.write(to_records(_records(1)))
    Later.held[0].ok(0)
    with pytest.raises(RuntimeError, match="answered before"):
        Later.held[0].ok(0)
    with pytest.raises(RuntimeError, match="answered before"):
        Later.held[0].reject(0, "no")
    assert made.acks(1) == [Ack(b"0")]


@pytest.mark.contract("P7", reason="what was never answered is left out by the test")
def test_answers_that_are_missing_keep_it_from_a_clean_end_and_are_counted() -> None:
    made = _opened(Later)
    made.write(to_records(_records(3)))
    Later.held[0].ok(0)
    with pytest.raises(PluginError, match="2 records were taken and never answered"):
        made.stop(b"2")
    assert made.acks(1) == [Ack(b"0")]  # the stream does not end well: the others may still be answered
    assert made.acks(0.01) == []


@pytest.mark.contract("P7", reason="the calls are written down")
def test_the_calls_of_a_destination_are_configure_open_write_flush_close() -> None:
    told: list[str] = []

    class Told(Destination[Settings]):
        def open(self) -> None:
            told.append("open")

        def write(self, batch: Batch) -> None:
            told.append(f"write {len(batch)}")
            raise Rejected({1: "odd"})

        def flush(self) -> None:
            told.append("flush")

        def close(self) -> None:
            told.append("close")

    made = _opened(Told)
    made.write(to_records(_records(3)))
    assert made.acks(1) == [Ack(b"0"), Ack(b"1", "odd"), Ack(b"2")]
    made.stop(b"2")
    made.teardown()
    assert told == ["open", "write 3", "flush", "close"]


# -- the least ------------------------------------------------------------------------------------------------------


class Least(Source[Settings]):
    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        return [Record(b"again and again", position=b"1")] if not hasattr(self, "_done") and self._once() else []

    def _once(self) -> bool:
        self._done = True
        return True


@pytest.mark.contract("T14", reason="the writes are counted: there is nothing to switch off")
@pytest.mark.parametrize("k", [0, 1, 5, 10])
def test_one_bad_record_among_many_is_found_by_halves_in_few_writes(k: int) -> None:
    sizes: list[int] = []
    kept: list[bytes] = []

    class Whole(Destination[Settings]):
        """Says only that something of a batch is bad."""

        def write(self, batch: Batch) -> None:
            sizes.append(len(batch))
            if any(r.after == b"bad" for r in batch):
                raise Rejected("something in it is bad")
            kept.extend(bytes(r.after) for r in batch)  # type: ignore[arg-type]

    n = 2**k
    for bad in {0, n // 2, n - 1}:
        sizes.clear()
        kept.clear()
        adapter = _opened(Whole)
        acks = adapter.deliver(Batch([Record(b"bad" if i == bad else b"%d" % i) for i in range(n)], ""))
        assert [acks.answered(i) or "" for i in range(n)].count("") == n - 1
        assert acks.answered(bad)
        assert kept == [b"%d" % i for i in range(n) if i != bad]
        assert len(sizes) <= 2 * k + 1


class LeastOut(Destination[Settings]):
    def write(self, batch: Batch) -> None: ...


@pytest.mark.contract("P8", reason="the connector has nothing but read and write; every call of the protocol is made")
def test_a_connector_with_the_least_of_methods_answers_every_call() -> None:
    for adapter in (SourceAdapter(Least), DestinationAdapter(LeastOut)):
        adapter.on_created({})
        adapter.on_updated({}, {})
        adapter.on_deleted({})
        adapter.configure({})
    source, destination = SourceAdapter(Least), DestinationAdapter(LeastOut)
    source.configure({})
    source.open(b"")
    (record,) = from_records(source.read(1))
    destination.configure({})
    destination.open()
    destination.write(to_records([record]))
    assert destination.acks(1) == [Ack(b"1")]
    source.ack([b"1"])
    destination.stop(b"1")
    destination.teardown()
    source.stop()
    source.teardown()


@pytest.mark.contract("P8", reason="the kit makes every call that there is")
def test_the_kit_finds_nothing_wrong_with_the_least() -> None:
    class Given(Setup):
        def __init__(self, _: Path) -> None: ...

        def destination_settings(self) -> Mapping[str, str]:
            return {}

    results = list(run(Inside(Connector("least", "0.1.0", "Nothing more.", destination=LeastOut)), Given))
    assert [r.check.name for r in results if r.state == "failed"] == []
    assert sum(r.state == "passed" for r in results) > 10


@pytest.mark.contract("P8", reason="a base class without a method would show")
def test_every_call_of_the_protocol_has_an_answer_in_the_base_classes() -> None:
    for base, needed in ((Source, {"read"}), (Destination, {"write"})):
        methods = {n for n in vars(base) if not n.startswith("_") and callable(getattr(base, n))} - needed
        tree = ast.parse(Path(sys.modules[base.__module__].__file__ or "").read_text())
        raising = {
            f.name
            for c in ast.walk(tree)
            if isinstance(c, ast.ClassDef) and c.name == base.__name__
            for f in c.body
            if isinstance(f, ast.FunctionDef) and any(isinstance(n, ast.Raise) for n in ast.walk(f))
        }
        assert raising - needed <= {"write_async", "settings_type"}, raising
        assert {"open", "close", "created", "updated", "deleted"} <= methods


# -- both ways ------------------------------------------------------------------------------------------------------


def _life(source: Any, destination: Any, folder: Path) -> tuple[list[Any], list[Ack], str, str]:
    """Everything that a connector does, from the first call to the last: what was read, answered and written down."""
    source.configure({"journal": str(folder / "journal"), "count": "7"})
    destination.configure({"path": str(folder / "kept")})
    source.on_created({"journal": str(folder / "journal")})
    source.open(b"1")
    destination.open()
    read: list[Record] = []
    answers: list[Ack] = []
    while len(read) < 6:
        found = source.read(5)
        records = from_records(found)
        if records:
            read += records
            destination.write(found)
            while len(answers) < len(read):
                answers += destination.acks(5)
            source.ack([record.position for record in records])
    assert source.stop() == read[-1].position
    destination.stop(read[-1].position)
    for each in (source, destination):
        each.teardown()
    shown = [(r.position, r.operation, r.namespace, r.after, r.key, dict(r.metadata)) for r in read]
    return shown, answers, (folder / "journal").read_text(), (folder / "kept").read_text()


@pytest.mark.contract("P9", reason="the two lives are compared")
def test_one_connector_both_ways_has_the_same_life(tmp_path: Path) -> None:
    lives = {}
    for way in ("built in", "program"):
        folder = tmp_path / way
        folder.mkdir()
        if way == "built in":
            lives[way] = _life(SourceAdapter(sdk_program.Count), DestinationAdapter(sdk_program.Keep), folder)
            continue
        command, environment = [sys.executable, sdk_program.__file__], {"PYTHONPATH": str(ROOT)}
        with (
            PluginProcess(command, connector_id="p:s", environment=environment) as one,
            PluginProcess(command, connector_id="p:d", environment=environment) as other,
        ):
            lives[way] = _life(one.source(), other.destination(), folder)
    # one by one or several at once: acks may be grouped in any way
    grouped = [re.sub(r"\back ", "", journal).split() for _, _, journal, _ in lives.values()]
    assert grouped[0] == grouped[1]
    read, answers, _, kept = lives["built in"]
    assert (read, answers, kept) == (lives["program"][0], lives["program"][1], lives["program"][3])
    assert len(lives["program"][0]) == 6
    assert lives["program"][1][3] == Ack(b"5", "five is refused")


@pytest.mark.contract("P9", reason="making one would leave a trace")
def test_source_and_destination_are_made_when_they_are_needed(tmp_path: Path) -> None:
    made: list[str] = []

    class Noticed(Source[Settings]):
        def __init__(self, *arguments: Any) -> None:
            made.append("source")
            super().__init__(*arguments)

    connector = Connector("noticed", "0.1.0", "Notices.", source=Noticed)
    connector.specification()
    adapter = SourceAdapter(Noticed)
    adapter.configure({})
    assert made == []
    adapter.open(b"")
    assert made == ["source"]


@pytest.mark.contract("P9", reason="the call is made of a program that has not the role")
def test_a_role_that_is_missing_is_said(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom dataclasses import replace\nfrom penstock_sdk import serve\n"
        "from tests.support.sdk_program import SYNC\nsys.exit(serve(replace(SYNC, destination=None)))\n"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    with PluginProcess([sys.executable, str(program)], connector_id="p:c", environment=environment) as process:
        assert not process.specify().destination
        with pytest.raises(PluginError, match="does not have this role"):
            process.destination().configure({})


# -- what it needs --------------------------------------------------------------------------------------------------

ALONE = """
import sys
ALLOWED = {"penstock_sdk", "penstock_protocol", "grpc", "google", "typing_extensions"}
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r} in this test", name=name)
sys.meta_path.insert(0, Only())
import importlib, pkgutil
import penstock_sdk, penstock_protocol
for package in (penstock_sdk, penstock_protocol):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name != "penstock_sdk.testing.author":  # that one is for pytest
            importlib.import_module(module.name)
from penstock_sdk.testing import Inside, Setup, run
from penstock_sdk import Connector, Record, Settings, Source
class One(Source[Settings]):
    def read(self, max_records, timeout):
        return []
results = list(run(Inside(Connector("one", "0.1.0", "One.", source=One)), lambda _: Setup()))
assert not [r for r in results if r.state == "failed"]
print(len(sys.modules))
"""


@pytest.mark.contract("P10", reason="every import of anything else is refused in the child")
def test_every_module_of_sdk_and_protocol_works_without_anything_else() -> None:
    ended = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 100


@pytest.mark.contract("P10", reason="what the packages ask for is written in their own files")
def test_the_packages_ask_for_nothing_else() -> None:
    def asked(package: str) -> set[str]:
        project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
        return {re.split(r"[\s<>=!~;\[(]", text)[0] for text in project["dependencies"]}

    assert asked("penstock-sdk") == {"penstock-protocol"}
    assert asked("penstock-protocol") == {"grpcio", "protobuf"}
