"""The messages on the wire are the ones that public connectors and their host have sent: every recorded one is understood, none is
changed.

The recordings are not part of the project; where they are missing, that is said and the tests are skipped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from penstock_protocol.dialects import DIALECTS
from penstock_protocol.pb.connutils.v1 import schema_service_pb2
from penstock_protocol.records import Records
from scripts import protocol

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
# Sent on purpose: a message that is cut off, one with text that is no UTF-8, a number that JSON lacks.
BAD = {("bad_cases.jsonl", 167), ("bad_cases.jsonl", 844), ("bad_cases.jsonl", 866), ("bad_cases.jsonl", 886)}

needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")


def _events() -> Iterator[tuple[tuple[str, int], dict[str, Any], type[Message]]]:
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for line in path.open():
            event = json.loads(line)
            if "bytes" in event and "json" in event and (kind := _kind(event)) is not None:
                yield (path.name, event["n"]), event, kind


def _kind(event: dict[str, Any]) -> type[Message] | None:
    _, service, call = event["method"].split("/")
    asks = event["direction"] == "host→plugin"
    if service == "connutils.v1.SchemaService":  # there the plugin asks
        found: type[Message] = getattr(schema_service_pb2, call + ("Response" if asks else "Request"))
        return found
    if not service.startswith("connector."):
        return None
    dialect = DIALECTS[int(service[len("connector.v")])]
    role = getattr(dialect, service.rsplit(".", 1)[1].removesuffix("Plugin"))
    message = dialect.message(role, "Open" if call == "Start" else call)
    return message.Request if asks else message.Response  # type: ignore[no-any-return]


@needs_recordings
def test_every_recorded_message_is_understood_and_made_again() -> None:
    good = 0
    for name, event, kind in _events():
        data = base64.b64decode(event["bytes"])
        if name in BAD:
            with pytest.raises((DecodeError, json_format.SerializeToJsonError)):
                json_format.MessageToDict(kind.FromString(data), preserving_proto_field_name=True)
            continue
        message = kind.FromString(data)
        assert json_format.MessageToDict(message, preserving_proto_field_name=True) == event["json"], name
        made = kind.FromString(json_format.ParseDict(event["json"], kind()).SerializeToString())
        assert json_format.MessageToDict(made, preserving_proto_field_name=True) == event["json"], name
        good += 1
    assert good > 2000


@needs_recordings
def test_records_of_both_dialects_are_the_same_bytes_to_pass_on() -> None:
    passed = 0
    for name, event, kind in _events():
        if (
            event["method"].endswith("/Run")
            and name not in BAD
            and ("record" in event["json"] or "records" in event["json"])
        ):
            data = base64.b64decode(event["bytes"])
            message: Any = kind.FromString(data)
            expected = [message.record] if "record" in event["json"] else list(message.records)
            assert list(Records(data)) == expected, name
            assert [one for part in Records(data).single() for one in part] == expected, name
            passed += 1
    assert passed > 100


@needs_recordings
def test_every_recorded_specification_is_read_and_written() -> None:
    seen = set()
    for name, event, _ in _events():
        if event["method"].endswith("/Specify") and event["direction"] == "plugin→host":
            dialect = DIALECTS[int(event["method"][len("/connector.v")])]
            response = dialect.Specifier.Specify.Response
            specification = dialect.specification(response.FromString(base64.b64decode(event["bytes"])))
            assert specification.name, name
            again = dialect.specification(response.FromString(dialect.specify(specification).SerializeToString()))
            assert again == specification, name
            seen.add((dialect.number, specification.name))
    assert {number for number, _ in seen} == {1, 2}
    assert len(seen) >= 10


def test_the_generated_code_is_fresh() -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools, which make setup installs")
    made = protocol.made()
    on_disk = {
        path.relative_to(protocol.TARGET) for path in protocol.TARGET.rglob("*.py*") if "__pycache__" not in str(path)
    }
    assert on_disk == set(made)
    for path, text in made.items():
        assert (protocol.TARGET / path).read_text() == text, f"{path}: make protocol"
