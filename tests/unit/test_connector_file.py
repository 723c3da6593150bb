"""`file`: Conduit's meaning, held against what the real one has read and written, and what is different by name."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.file import opencdc
from penstock.connectors.file.connector import connector
from penstock.connectors.file.destination import FileDestination
from penstock.connectors.file.source import FileSource
from penstock_protocol.interfaces import PluginError
from penstock_protocol.process import PluginProcess
from penstock_protocol.records import Records
from penstock_sdk import Batch, Context, Record, Rejected, Stop
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.wire import from_records, to_records
from tests.support import conduit

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")
SERVE = "import sys; from penstock_sdk import serve; from penstock.connectors.file.connector import connector; sys.exit(serve(connector))"


def _source(path: Path, position: bytes | None = None) -> FileSource:
    source = FileSource(FileSource.settings_type.parse({"path": str(path)}), Context())  # type: ignore[arg-type]
    source.open(position, {})
    return source


def _destination(path: Path) -> FileDestination:
    made = FileDestination(FileDestination.settings_type.parse({"path": str(path)}), Context())  # type: ignore[arg-type]
    made.open()
    return made


def _scenarios(name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for text in (RECORDINGS / name).open():
        event = json.loads(text)
        found.setdefault(event["scenario"], []).append(event)
    yield from found.items()


@needs_recordings
def test_the_recorded_records_become_the_recorded_file(tmp_path: Path) -> None:
    compared = 0
    for scenario, events in _scenarios("file_destination.jsonl"):
        texts = [e["text"] for e in events if e["step"] == "result-text"]
        config = next(e["json"]["config"] for e in events if e["step"] == "Configure" and "config" in e.get("json", {}))
        if not texts or config.get("sdk.record.format", "opencdc/json") != "opencdc/json":
            continue
        path = tmp_path / scenario
        if texts[0].startswith("there before"):
            path.write_text("there before, no newline")
        destination = DestinationAdapter(FileDestination)
        destination.configure({**config, "path": str(path)})
        destination.open()
        for e in events:
            if e["method"].endswith("/Run") and e["direction"] == "host→plugin" and "json" in e:
                destination.write(Records(base64.b64decode(e["bytes"])))
        destination.teardown()
        assert path.read_text() == texts[0], scenario
        compared += 1
    assert compared >= 6


@needs_recordings
def test_the_recorded_lines_are_read_as_recorded(tmp_path: Path) -> None:
    compared = 0
    for scenario, events in _scenarios("file_source_hostile.jsonl"):
        expected = [
            (
                base64.b64decode(r["position"]),
                base64.b64decode(r["key"]["raw_data"]),
                base64.b64decode(r["payload"]["after"]["raw_data"]),
            )
            for e in events
            if e["method"].endswith("/Run") and e["direction"] == "plugin→host" and "json" in e
            for r in e["json"]["records"]
        ]
        if not expected or expected[0][1] != b"1":  # a line that was too long to be recorded
            continue
        data, at = b"", 0
        for position, _, line in expected:
            data += line + (b"\n" if int(position) - at > len(line) else b"")
            at = int(position)
        (path := tmp_path / scenario).write_bytes(data)
        source = _source(path)
        found: list[Record] = []
        while len(found) < len(expected):
            found += source.read(100, 1)
        source.close()
        assert [(r.position, r.key, r.after) for r in found] == expected, scenario
        compared += 1
    assert compared >= 10


def test_the_json_is_what_conduit_makes_of_the_record() -> None:
    compared = 0
    for case in conduit.cases("processors"):
        for output in case["result"].get("outputs", []):
            for theirs in output.get("records", [output.get("record")]):
                if (
                    not theirs
                    or "opencdc_json" not in theirs
                    or "$deep" in json.dumps(theirs)
                    or "$time" in json.dumps(theirs)
                    or "$go" in json.dumps(theirs)
                ):
                    continue
                expected = theirs["opencdc_json"].replace(
                    '"metadata":{}', '"metadata":null'
                )  # a wire does not tell them apart
                assert opencdc.line(conduit.record_of(theirs, whole=False)).decode() == expected, case["id"]
                compared += 1
    assert compared > 200


def test_half_a_line_is_sent_at_once_and_the_count_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\nfi")
    source = _source(path)
    found = [*source.read(9, 0), *source.read(9, 0)]
    with path.open("ab") as file:
        file.write(b"ve\n")
    found += source.read(9, 1)
    assert [(r.after, r.position, r.key) for r in found] == [
        (b"one", b"4", b"1"),
        (b"fi", b"6", b"2"),
        (b"ve", b"9", b"3"),
    ]
    path.write_bytes(b"new\n")
    assert [(r.after, r.position, r.key) for r in source.read(9, 1)] == [(b"new", b"4", b"1")]
    source.close()
    again = _source(path, b"9999")  # past the end: Conduit would be silent
    assert [r.after for r in again.read(9, 1)] == [b"new"]
    path.rename(tmp_path / "away")
    path.write_bytes(b"replaced\n")
    assert [r.after for r in again.read(9, 1)] == [b"replaced"]
    again.close()


def test_bad_positions_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="invalid position not-a-number, expected a number"):
        _source(tmp_path / "in", b"not-a-number")
    with pytest.raises(Stop, match="is a directory"):
        _source(tmp_path).read(1, 0)
    with pytest.raises(Stop, match="no such file or directory"):
        _destination(tmp_path / "nodir" / "out")


@pytest.mark.parametrize("torn", [b'{"pos', b'{"position":"cDE=","operation":"cre'])
def test_what_a_crash_left_of_a_line_spoils_no_other(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "out"
    path.write_bytes(b'{"position":"x"}\n' + torn)
    destination = _destination(path)
    with pytest.raises(Rejected, match=r"after.x is nan"):
        destination.write(Batch([Record(b"a", position=b"1"), Record({"x": float("nan")}, position=b"2")]))
    destination.close()
    lines = path.read_bytes().split(b"\n")
    assert lines[1] == torn
    assert json.loads(lines[2])["payload"]["after"] == "YQ=="
    assert lines[3:] == [b""]


def test_formats_that_are_not_made_are_refused() -> None:
    with pytest.raises(PluginError, match=r"sdk.record.format: 'template' is not one of opencdc/json"):
        DestinationAdapter(FileDestination).configure({"path": "x", "sdk.record.format": "template"})


def test_it_runs_as_a_program(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with PluginProcess([sys.executable, "-c", SERVE], connector_id="p:c") as process:
        destination = process.destination()
        destination.configure({"path": str(path)})
        destination.open()
        destination.write(to_records([Record(b"%d" % n, position=b"%d" % n) for n in range(3)]))
        acks = list(destination.acks(10))
        while len(acks) < 3:
            acks += destination.acks(10)
        destination.stop(b"2")
        destination.teardown()
    assert [a.position for a in acks if not a.error] == [b"0", b"1", b"2"]
    with PluginProcess([sys.executable, "-c", SERVE], connector_id="p:c") as process:
        source = process.source()
        source.configure({"path": str(path)})
        source.open(b"")
        found: list[Record] = []
        while len(found) < 3:
            found += from_records(source.read(10))
        source.teardown()
    assert [opencdc.value(r.after) for r in found] == [
        opencdc.value(line) for line in path.read_bytes().split(b"\n")[:3]
    ]
    assert connector.version == "0.1.0"
