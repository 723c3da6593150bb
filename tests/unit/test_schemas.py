"""The schema service: what the recordings show, what is refused, and that schemas outlive the process."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from penstock_protocol.pb.connutils.v1 import schema_service_pb2 as pb
from penstock_protocol.schemas import (
    Registry,
    Schema,
    SchemaClient,
    SchemaError,
    Schemas,
    SchemaService,
    StoredSchemas,
    read_schemas,
)
from penstock_sdk import avro

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")
LONG, TEXT = b'"long"', b'"string"'


@pytest.fixture
def service() -> Iterator[SchemaService]:
    with SchemaService(Schemas(avro.check), {"good"}) as made:
        yield made


@pytest.fixture(params=["memory", "file", "client"])
def registry(request: pytest.FixtureRequest, tmp_path: Path, service: SchemaService) -> Iterator[Registry]:
    if request.param == "memory":
        yield Schemas(avro.check)
    elif request.param == "file":
        stored = StoredSchemas(tmp_path / "schemas", avro.check)
        yield stored
        stored.close()
    else:
        client = SchemaClient(service.address, "good")
        yield client
        client.close()


def test_versions_count_in_their_subject_and_ids_over_all(registry: Registry) -> None:
    assert registry.create("a", LONG) == Schema("a", 1, 1, '"long"')
    assert registry.create("b", LONG) == Schema("b", 1, 2, '"long"')
    assert registry.create("a", TEXT) == Schema("a", 2, 3, '"string"')
    assert registry.create("a", LONG) == Schema("a", 1, 1, '"long"')
    assert registry.get("a", 2).data == TEXT


@pytest.mark.parametrize(
    ("subject", "version", "text"),
    [("c", 1, "schema subject not found"), ("a", 2, "schema version not found"), ("a", 0, "schema version not found")],
)
def test_what_is_missing_is_said_in_the_words_that_clients_compare(
    registry: Registry, subject: str, version: int, text: str
) -> None:
    registry.create("a", LONG)
    with pytest.raises(SchemaError) as caught:
        registry.get(subject, version)
    assert (str(caught.value), caught.value.missing) == (text, True)


@pytest.mark.parametrize("bad", [b"", b"nonsense", b"\xff", b'"lang"', b'["null","null"]', b'{"type":"record"}'])
def test_what_is_no_schema_is_refused(registry: Registry, bad: bytes) -> None:
    with pytest.raises(SchemaError, match=r"^invalid schema$"):
        registry.create("a", bad)
    with pytest.raises(SchemaError, match=r"^invalid schema$"):
        registry.create("", LONG)
    assert registry.create("a", LONG).version == 1


@pytest.mark.parametrize("metadata", [(), (("conduit-connector-token", "bad"),)])
def test_without_a_token_nothing_is_told(service: SchemaService, metadata: Any) -> None:
    with grpc.insecure_channel(service.address) as channel:
        call = channel.unary_unary(
            "/connutils.v1.SchemaService/GetSchema",
            pb.GetSchemaRequest.SerializeToString,
            response_deserializer=pb.GetSchemaResponse.FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(pb.GetSchemaRequest(subject="a", version=1), metadata=metadata, timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "conduit-connector-token" in caught.value.details()


def test_a_client_with_the_wrong_token_does_not_take_the_schema_for_missing(service: SchemaService) -> None:
    with pytest.raises(SchemaError, match="not one that this host has given") as caught:
        SchemaClient(service.address, "bad").get("a", 1)
    assert not caught.value.missing


def test_a_client_asks_once_and_says_when_nobody_is_there() -> None:
    with SchemaService(Schemas(avro.check), lambda token: token == "x") as service:
        client = SchemaClient(service.address, "x")
        client.create("a", LONG)
    assert client.get("a", 1) == client.create("a", LONG)
    with pytest.raises(SchemaError, match=rf"schema service at {service.address} gives no answer") as caught:
        client.get("a", 2)
    assert not caught.value.missing


def test_schemas_outlive_the_process_and_a_torn_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "schemas"
    first = StoredSchemas(path, avro.check)
    first.create("a", LONG)
    whole = path.read_bytes()
    first.create("a", TEXT)
    first.close()
    complete = path.read_bytes()
    for size in range(len(complete)):
        path.write_bytes(complete[:size])
        again = StoredSchemas(path, avro.check)
        assert again.create("a", LONG).id == 1
        made = again.create("b", TEXT)
        assert made.id == 2
        assert again.by_id(2) == made
        again.close()
        if size == len(whole):
            assert path.read_bytes().startswith(whole)
        loaded = StoredSchemas(path, avro.check)
        assert loaded.get("b", 1) == made
        loaded.close()


@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_or_newer_file_is_refused_and_left_alone(tmp_path: Path, place: int) -> None:
    path = tmp_path / "schemas"
    stored = StoredSchemas(path, avro.check)
    stored.create("a", LONG)
    stored.create("a", TEXT)
    stored.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[place] = [b'{"format": "penstock schemas", "version": 2}\n', lines[1][:-9] + b"\n"][place]
    path.write_bytes(b"".join(lines))
    with pytest.raises(SchemaError, match=["version 2", "line 2"][place]):
        StoredSchemas(path, avro.check)
    assert path.read_bytes() == b"".join(lines)


@needs_recordings
def test_the_recorded_calls_get_the_recorded_answers() -> None:
    schemas, seen = Schemas(avro.check), 0
    call: dict[str, Any] = {}
    with (RECORDINGS / "generator_source.jsonl").open() as lines, SchemaService(schemas, {"vector-token"}) as service:
        for event in map(json.loads, lines):
            if event["step"] == "schema-call":
                call = event
            if event["step"] != "schema-answer" or "json" not in event:
                continue
            expected, asked = event["json"]["schema"], call["json"]
            client = SchemaClient(service.address, call["metadata"]["conduit-connector-token"])
            if "bytes" in asked:
                found = client.create(asked["subject"], base64.b64decode(asked["bytes"]))
            else:
                found = client.get(asked["subject"], asked["version"])
            client.close()
            assert (found.subject, found.version, found.id) == (
                expected["subject"],
                expected["version"],
                expected["id"],
            )
            assert found.data == base64.b64decode(expected["bytes"])
            seen += 1
    assert seen == 10


def test_a_reader_sees_every_schema_that_is_complete_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "schemas"
    owner = StoredSchemas(path, avro.check)
    ends = [path.stat().st_size]
    for subject, data in [("a", LONG), ("a", TEXT), ("b", LONG)]:
        owner.create(subject, data)
        ends.append(path.stat().st_size)
    complete = path.read_bytes()
    assert [read_schemas(path).by_id(n) for n in (1, 2, 3)] == [owner.by_id(n) for n in (1, 2, 3)]
    owner.close()
    torn = tmp_path / "torn"
    for size in range(len(complete) + 1):
        torn.write_bytes(complete[:size])
        found = read_schemas(torn)
        there = sum(size >= end for end in ends[1:])
        assert [found.by_id(n).id for n in range(1, there + 1)] == list(range(1, there + 1))
        with pytest.raises(SchemaError) as caught:
            found.by_id(there + 1)
        assert caught.value.missing
        assert torn.read_bytes() == complete[:size]
    torn.chmod(0o400)
    assert read_schemas(torn).get("b", 1).data == LONG


def test_a_reader_makes_no_file_and_no_schema(tmp_path: Path) -> None:
    path = tmp_path / "schemas"
    found = read_schemas(path)
    with pytest.raises(SchemaError, match="subject not found") as caught:
        found.get("a", 1)
    assert caught.value.missing
    with pytest.raises(SchemaError, match="only read"):
        found.create("a", LONG)
    assert not path.exists()


def test_a_reader_sees_what_its_owner_adds_later(tmp_path: Path) -> None:
    path = tmp_path / "schemas"
    owner = StoredSchemas(path, avro.check)
    before = read_schemas(path)
    owner.create("a", LONG)
    assert read_schemas(path).get("a", 1) == owner.get("a", 1)
    with pytest.raises(SchemaError, match="subject not found"):
        before.get("a", 1)
    assert owner.create("a", TEXT).version == 2
    owner.close()


def test_a_reader_refuses_what_is_damaged_or_newer(tmp_path: Path) -> None:
    path = tmp_path / "schemas"
    stored = StoredSchemas(path, avro.check)
    stored.create("a", LONG)
    stored.create("a", TEXT)
    stored.close()
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for lines, why in [
        ([first, second[:-9] + b"\n", third], "line 2: it is damaged"),
        ([first, third], ""),  # it would be cut by its owner
        ([first, third, second], "line 2: it is damaged"),
        ([b'{"format": "penstock schemas", "version": 2}\n', second], "version 2"),
        ([b'{"format": "something else"}\n', second], "holds no schemas"),
    ]:
        path.write_bytes(b"".join(lines))
        if why:
            with pytest.raises(SchemaError, match=why):
                read_schemas(path)
        else:
            with pytest.raises(SchemaError, match="subject not found"):
                read_schemas(path).get("a", 1)
