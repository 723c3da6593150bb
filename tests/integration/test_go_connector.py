"""A connector in another language, written from the .proto files alone: built here and driven over the wire, in both dialects."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_protocol.client import Destination, Source
from penstock_protocol.interfaces import (
    Ack,
    EndOfStream,
    Parameter,
    ParameterType,
    PluginError,
    Validation,
    ValidationType,
)
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import Change, Data, Operation, Record
from penstock_protocol.process import PluginProcess
from penstock_protocol.records import Records
from scripts import protocol
from tests.support import go

Start = Callable[..., PluginProcess]
pytestmark = go.needs_go
WAIT = 30.0


@pytest.fixture(params=[2, 1])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts the connector; it speaks one of the dialects."""
    started: list[PluginProcess] = []

    def make(package: str = ".", **options: Any) -> PluginProcess:
        made = PluginProcess([str(go.built(package))], connector_id="p:c", dialects=[request.param], **options)
        assert made.handshake.dialect == request.param
        started.append(made)
        return made

    yield make
    for process in started:
        process.close()


def _source(process: PluginProcess, position: bytes = b"", **config: str) -> Source:
    source = process.source(WAIT)
    source.configure(config)
    source.open(position)
    return source


def _destination(process: PluginProcess, **config: str) -> Destination:
    destination = process.destination(WAIT)
    destination.configure({name.replace("_", "."): value for name, value in config.items()})
    destination.open()
    return destination


def _read(source: Source, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += source.read(WAIT)
    return found


def _acks(destination: Destination, count: int) -> list[Ack]:
    found: list[Ack] = []
    while len(found) < count:
        found += destination.acks(WAIT)
    return found


def _record(number: int, text: bytes = b"") -> Record:
    after = Data(raw_data=text or b"number %d" % number)
    return Record(position=b"at %d" % number, operation=Operation.OPERATION_CREATE, payload=Change(after=after))


def _write(process: PluginProcess, path: Path, records: list[Record]) -> None:
    destination = _destination(process, path=str(path))
    destination.write(Records.of(records))
    assert _acks(destination, len(records)) == [Ack(record.position) for record in records]
    destination.stop(records[-1].position)
    destination.teardown()
    assert process.close() == 0


def _every_kind() -> list[Record]:
    """Every operation, raw and structured, with and without what may be missing."""
    structured = Data()
    structured.structured_data.update(
        {"name": "Ada <&> é", "n": 1.5, "none": None, "list": [1, {"a": True}], "deep": {"x": ""}}
    )
    raw = Data(raw_data=bytes(range(256)) + b"\n\n")
    return [
        Record(
            position=b"1", operation=Operation.OPERATION_SNAPSHOT, key=Data(raw_data=b"k"), payload=Change(after=raw)
        ),
        Record(position=b"\x00\xff", operation=Operation.OPERATION_CREATE, payload=Change(after=structured)),
        Record(position=b"3", operation=Operation.OPERATION_UPDATE, payload=Change(before=structured, after=raw)),
        Record(
            position=b"4",
            operation=Operation.OPERATION_DELETE,
            metadata={"a": "b", "": "é"},
            key=structured,
            payload=Change(before=raw),
        ),
        Record(position=b"5", operation=Operation.OPERATION_CREATE, payload=Change(after=Data(raw_data=b""))),
        Record(position=b"6", operation=Operation.OPERATION_DELETE),
    ]


@pytest.mark.contract("P11", reason="it shares no code with the host: a message that differs is not understood")
def test_it_says_what_it_is(start: Start) -> None:
    process = start()
    found = process.specify()
    assert (found.name, found.version) == ("go-connector", "v0.1.0")
    assert found.summary
    assert found.description
    assert found.author
    required, above = Validation(ValidationType.REQUIRED), Validation(ValidationType.GREATER_THAN, "0")
    assert set(found.source) == {"path", "batch", "poll"}
    assert set(found.destination) == {"path", "fail.contains", "fail.rest"}
    assert found.source["path"].validations == found.destination["path"].validations == (required,)
    assert found.source["batch"] == Parameter("1000", "Records in a message, at most.", ParameterType.INT, (above,))
    assert all(p.description for p in (*found.source.values(), *found.destination.values()))
    assert process.close() == 0


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({}, "path: is required"),
        ({"path": ""}, "path: is required"),
        ({"path": "x", "pth": "y"}, "pth: no such setting"),
        ({"path": "x", "batch": "many"}, 'batch: "many" is no int'),
        ({"path": "x", "batch": "0"}, "batch: 0 is not greater than 0"),
        ({"path": "x", "poll": "5"}, 'poll: "5" is no duration'),
        ({"batch": "-1", "zz": ""}, "path: is required\nbatch: -1 is not greater than 0\nzz: no such setting"),
    ],
)
def test_bad_settings_are_named(start: Start, config: dict[str, str], what: str) -> None:
    source = start().source(WAIT)
    with pytest.raises(PluginError) as raised:
        source.configure(config)
    assert str(raised.value) == what
    assert not raised.value.gone
    with pytest.raises(PluginError, match="actual connector state is"):
        source.configure({"path": "x"})
    source.teardown()


def test_a_check_is_configure_and_teardown(start: Start, tmp_path: Path) -> None:
    for role in ("source", "destination"):
        process = start()
        plugin = getattr(process, role)(WAIT)
        plugin.configure({"path": str(tmp_path / "none")})
        plugin.teardown()
        plugin.teardown()  # always allowed
        assert process.close() == 0
    assert list(tmp_path.iterdir()) == []


def test_calls_out_of_order_are_refused_and_teardown_is_not(start: Start) -> None:
    source = start().source(WAIT)
    with pytest.raises(
        PluginError, match=r'expected connector state \["Configured"\], actual connector state is "Initial"'
    ):
        source.open(b"")
    source.teardown()
    destination = start().destination(WAIT)
    with pytest.raises(
        PluginError, match=r'expected connector state \["Configured"\], actual connector state is "Initial"'
    ):
        destination.open()
    destination.teardown()
    with pytest.raises(PluginError, match='"TornDown"'):
        destination.configure({"path": "x"})


def test_lifecycle_calls_are_answered_in_any_state(start: Start) -> None:
    source = start().source(WAIT)
    source.on_created({"path": "x"})
    source.on_updated({"path": "x"}, {"path": "y"})
    source.on_deleted({"path": "y"})
    source.configure({"path": "y"})


@pytest.mark.contract("P11", reason="it shares no code with the host: a message that differs is not understood")
def test_what_was_written_is_read_back_whole(start: Start, tmp_path: Path) -> None:
    written = _every_kind()
    _write(start(), tmp_path / "kept", written)
    source = _source(start(), path=str(tmp_path / "kept"))
    found = _read(source, len(written))
    assert len({record.position for record in found}) == len(written)
    for before, after in zip(written, found, strict=True):
        after.position = before.position
        assert after == before
    assert len(source.read(0)) == 0


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_it_goes_on_right_after_any_position(start: Start, tmp_path: Path, batch: int) -> None:
    path = tmp_path / "kept"
    _write(start(), path, [_record(n) for n in range(10)])
    source = _source(start(), path=str(path), batch=str(batch))
    positions = [record.position for record in _read(source, 10)]
    source.ack(positions[:5])
    source.teardown()
    for place in (0, 4, 9):
        rest = _source(start(), positions[place], path=str(path), poll="1ms")
        found = _read(rest, 9 - place)
        assert [record.position for record in found] == positions[place + 1 :]
        assert len(rest.read(0)) == 0
        rest.teardown()


@pytest.mark.parametrize(("position", "what"), [(b"x", "is not one of this source"), (b"99999", "behind its end")])
def test_a_position_of_something_else_is_refused(start: Start, tmp_path: Path, position: bytes, what: str) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(PluginError, match=what):
        _source(start(), position, path=str(tmp_path / "kept"))


def test_stop_names_the_last_record_that_is_sent(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    _write(start(), path, [_record(n) for n in range(10)])
    source = _source(start(), path=str(path), batch="3")
    found = _read(source, 1)
    last = source.stop()
    while found[-1].position != last:
        found += source.read(WAIT)
    source.ack([record.position for record in found])  # acks are still taken
    source.teardown()  # the stream is ended by us, and ends well
    with pytest.raises(EndOfStream):
        source.read(WAIT)


def test_a_source_with_nothing_to_read_stops_at_once(start: Start, tmp_path: Path) -> None:
    process = start()
    source = _source(process, path=str(tmp_path / "comes-later"), poll="10m")
    assert len(source.read(0)) == 0
    assert source.stop() == b""
    source.teardown()
    assert process.close() == 0


def test_teardown_ends_a_stream_that_is_open(start: Start, tmp_path: Path) -> None:
    _write(start(), tmp_path / "kept", [_record(1)])
    source = _source(start(), path=str(tmp_path / "kept"), poll="10m")
    _read(source, 1)  # the stream runs
    source._call("Teardown")
    with pytest.raises(EndOfStream):
        source.read(WAIT)


def test_a_line_that_is_no_record_is_told_after_those_before_it(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    _write(start(), path, [_record(1), _record(2)])
    size = path.stat().st_size
    with path.open("a") as file:
        file.write("hello\n")
    source = _source(start(), path=str(path))
    assert len(_read(source, 2)) == 2
    with pytest.raises(PluginError, match=f"read plugin error: .*kept: the line at byte {size} is no record"):
        while True:
            source.read(WAIT)


def test_each_refused_record_is_named_in_its_place(start: Start, tmp_path: Path) -> None:
    destination = _destination(start(), path=str(tmp_path / "kept"), fail_contains="bad")
    impossible = _record(2)
    impossible.payload.after.structured_data.update({"n": float("nan")})
    records = [_record(0), _record(1, b"a bad one"), impossible, _record(3), _record(4, b"bad too"), _record(5)]
    destination.write(Records.of(records))
    found = _acks(destination, 6)
    assert [ack.position for ack in found] == [record.position for record in records]
    assert [bool(ack.error) for ack in found] == [False, True, True, False, True, False]
    assert found[1].error == 'it contains "bad"'
    assert len((tmp_path / "kept").read_text().splitlines()) == 3
    destination.write(Records.of([_record(6)]))  # the stream goes on
    assert _acks(destination, 1) == [Ack(b"at 6")]


def test_a_line_that_was_half_written_is_cut_off(start: Start, tmp_path: Path) -> None:
    path, said = tmp_path / "kept", list[tuple[str, str]]()
    _write(start(), path, [_record(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"position":' + b"x" * 100_000)
    _write(start(log=lambda level, text: said.append((level, text))), path, [_record(2)])
    assert path.read_bytes().startswith(whole)
    assert len(_read(_source(start(), path=str(path)), 2)) == 2
    assert any(level == "warn" and "half written" in text for level, text in said)


@pytest.mark.contract("P11", reason="it shares no code with the host: a message that differs is not understood")
def test_many_records_are_passed_on_as_bytes(start: Start, tmp_path: Path) -> None:
    count, path = 50_000, tmp_path / "kept"
    source = start("./bench").source(WAIT)
    source.configure({"count": str(count)})
    source.open(b"")
    destination = _destination(start(), path=str(path))
    acked: list[bytes] = []

    def answer() -> None:
        while len(acked) < count:
            found = destination.acks(WAIT)
            assert not any(ack.error for ack in found)
            acked.extend(ack.position for ack in found)
            source.ack([ack.position for ack in found])

    thread = threading.Thread(target=answer)
    thread.start()
    sent = 0
    while sent < count:
        records = source.read(WAIT)
        destination.write(records)
        sent += len(records)
    thread.join()
    assert acked == [b"%d" % n for n in range(1, count + 1)]
    assert source.stop() == b"%d" % count
    destination.stop(b"%d" % count)
    source.teardown()
    destination.teardown()
    with path.open("rb") as file:
        assert sum(1 for _ in file) == count


def test_a_source_hears_of_an_ack_that_is_out_of_order(start: Start) -> None:
    source = start("./bench").source(WAIT)
    source.configure({})
    source.open(b"")
    source.ack([b"2"])
    with pytest.raises(PluginError, match='ack plugin error: position "2" was acknowledged where 1 is next'):
        while True:
            source.read(WAIT)


def test_a_connector_that_is_killed_is_gone(start: Start, tmp_path: Path) -> None:
    process = start()
    source = _source(process, path=str(tmp_path / "comes-later"))
    os.kill(process.process.pid, signal.SIGKILL)
    with pytest.raises(PluginError) as raised:
        while True:
            source.read(WAIT)
    assert raised.value.gone
    assert process.close() == -signal.SIGKILL


def test_large_records_need_the_limit_that_they_are_given(start: Start, tmp_path: Path) -> None:
    large = _record(1, b"x" * (5 << 20))
    destination = _destination(start(), path=str(tmp_path / "kept"))
    destination.write(Records.of([large]))
    with pytest.raises(PluginError, match="larger than max"):
        while True:
            destination.acks(WAIT)
    process = start(max_message=16 << 20)
    _write(process, tmp_path / "kept", [large, _record(2)])
    found = _read(_source(start(), path=str(tmp_path / "kept")), 2)
    assert [record.payload for record in found] == [large.payload, _record(2).payload]


def test_it_does_not_serve_without_a_host() -> None:
    ended = subprocess.run([go.built()], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "|" not in ended.stdout


# -- the sources ----------------------------------------------------------------------------------------------------------


def test_the_example_is_what_the_template_makes() -> None:
    made = protocol.rendered("go-connector")
    there = {path.relative_to(go.EXAMPLE) for path in go.EXAMPLE.rglob("*") if path.is_file()}
    own = {path for path in there if path.parts[0] == "bench"}
    assert there - own - {Path("go-connector")} == set(made)
    for path, content in made.items():
        assert (go.EXAMPLE / path).read_bytes() == content, f"{path}: change it in the template, then make protocol"


def test_the_generated_go_code_is_fresh() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools, which make setup installs")
    made = protocol.made_go()
    there = {path.relative_to(protocol.GO_TARGET) for path in protocol.GO_TARGET.rglob("*") if path.is_file()}
    assert there == set(made)
    for path, text in made.items():
        assert (protocol.GO_TARGET / path).read_text() == text, f"{path}: make protocol"


def test_a_connector_of_any_name_is_well_formed(tmp_path: Path) -> None:
    for path, content in protocol.rendered("a-name").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    assert (tmp_path / ".gitignore").read_text() == "/a-name\n"
    subprocess.run(["go", "vet", "./..."], cwd=tmp_path, check=True)
    subprocess.run(["go", "vet", "./..."], cwd=go.EXAMPLE, check=True)
    gofmt = shutil.which("gofmt")
    assert gofmt is not None
    ended = subprocess.run([gofmt, "-l", tmp_path, go.EXAMPLE], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
