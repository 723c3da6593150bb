"""Avro: values come back as they were, recorded payloads are read, and bytes that do not fit are refused."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_protocol.records import Records
from penstock_protocol.schemas import Schema, SchemaError, Schemas
from penstock_sdk import avro
from penstock_sdk.avro import AvroError, Duration, compiled
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record
from penstock_sdk.schemas import Decoder, Encoder
from penstock_sdk.wire import from_records, to_records

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")
AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
ALL = {
    "big": 2**63 - 1,
    "bytes": b"\x00\xff",
    "date": date(1, 1, 1),
    "decimal": Decimal("-12345678901234567890.123456789"),
    "dict": {"no avro name!": [1, 2.5, None, "x", {"a": b""}], "b": []},
    "duration": Duration(1, 2, 3),
    "local": datetime(2026, 1, 2, 3, 4, 5, 6),
    "none": None,
    "time": time(23, 59, 59, 999999),
    "timestamp": AT,
    "truth": True,
    "uuid": UUID(int=7),
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.dates()
    | st.uuids()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_ 1"), inner), max_leaves=8
)
payloads = st.dictionaries(st.text("abc_1", min_size=1, max_size=3), values, max_size=4)


def sent(schemas: Schemas, records: list[Record], encoder: Encoder | None = None) -> list[Record]:
    """Over the wire and back."""
    found = from_records(Records(to_records(records, encoder or Encoder(schemas, "p:c")).data))
    for record in found:
        Decoder(schemas).decode(record)
    return found


def typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return [typed(each) for each in value] if isinstance(value, list) else (type(value), value)


def test_every_type_comes_back_as_it_was() -> None:
    record = Record(ALL, before={**ALL, "none": 1}, key={"id": 2**60}, position=b"1", namespace="t")
    found = sent(Schemas(avro.check), [record])[0]
    assert typed(found.after) == typed(ALL)
    assert typed(found.before) == typed({**ALL, "none": 1})
    assert found.key == {"id": 2**60}
    assert found.metadata["opencdc.payload.schema.subject"] == "p:c:t.payload"
    assert found.metadata["opencdc.key.schema.subject"] == "p:c:t.key"
    assert record.after is ALL
    assert list(record.metadata) == ["opencdc.collection"]


@given(st.lists(payloads, min_size=1, max_size=4))
def test_whatever_is_sent_comes_back_or_is_refused_by_name(found: list[dict[str, Any]]) -> None:
    schemas = Schemas(avro.check)
    encoder = Encoder(schemas, "p:c", always=True)
    for payload in found:
        try:
            assert typed(sent(schemas, [Record(payload, position=b"1")], encoder)[0].after) == typed(payload)
        except Rejected as error:
            refused = error.what  # types that no union can hold
            assert "after." in refused or "after[" in refused


def test_a_plain_payload_stays_plain_until_one_of_its_collection_needs_more() -> None:
    schemas = Schemas(avro.check)
    encoder = Encoder(schemas, "p:c")
    plain = to_records([Record({"a": 1}, position=b"1", namespace="x")], encoder)
    assert plain[0].payload.after.WhichOneof("data") == "structured_data"
    batch = [Record({"a": a}, position=b"1", namespace=n) for n, a in [("x", 1), ("y", 1), ("x", AT)]]
    assert [r.payload.after.WhichOneof("data") for r in to_records(batch, encoder)] == [
        "raw_data",
        "structured_data",
        "raw_data",
    ]


def test_ten_thousand_records_keep_one_schema() -> None:
    schemas = Schemas(avro.check)
    encoder = Encoder(schemas, "p:c")
    for first in range(0, 10_000, 1000):
        batch = [
            Record({"n": n if n % 7 else None, "d": Decimal(n) / 8, "at": AT + timedelta(n)}, position=b"%d" % n)
            for n in range(first, first + 1000)
        ]
        to_records(batch, encoder)
    assert schemas.get("p:c:payload", 1).version == 1
    with pytest.raises(SchemaError, match="version not found"):
        schemas.get("p:c:payload", 2)


@pytest.mark.parametrize(
    "value", [2**63, timedelta(1), Decimal("NaN"), (1, 2), [1, AT], "\ud800", object(), {1: AT}, Decimal("1e2000")]
)
def test_what_has_no_form_is_refused_with_the_name_of_the_field(value: Any) -> None:
    with pytest.raises(Rejected, match=r"record 1: after\.f") as caught:
        to_records(
            [Record({"f": AT}, position=b"1"), Record({"f": value}, position=b"2")], Encoder(Schemas(avro.check), "")
        )
    assert list(caught.value.records) == [1]


def test_raw_beside_structured_is_refused_because_the_schema_is_for_both() -> None:
    with pytest.raises(Rejected, match="before"):
        to_records([Record({"f": AT}, before=b"raw", position=b"1")], Encoder(Schemas(avro.check), ""))


def test_numbers_that_are_none_go_as_avro() -> None:
    found = sent(Schemas(avro.check), [Record({"f": nan}, position=b"1")])[0].after
    assert isinstance(found, dict)
    assert found["f"] != found["f"]


def codec(schema: Any) -> avro.Codec:
    return compiled(json.dumps(schema).encode())


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("long", b"\xff" * 10 + b"\x01"),
        ("long", b"\x80"),
        ("int", b"\xff\xff\xff\xff\xff\x01"),
        ("boolean", b"\x02"),
        ("string", b"\x01a"),
        ("string", b"\x04\xff\xfe"),
        (["null", "long"], b"\x01\x02"),
        (["null", "long"], b"\x04"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\x01"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"),
        ({"type": "array", "items": "long"}, b"\x01\x04\x02\x00"),
        ({"type": "map", "values": "long"}, b"\x04\x02a\x02\x02a\x02\x00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, b"\x04\x7f\xff"),
        ({"type": "long", "logicalType": "time-micros"}, b"\x01"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f"),
        ({"type": "string", "logicalType": "uuid"}, b"\x04hi"),
        ("double", b"1234567"),
        ("null", b"\x00"),
    ],
)
def test_bytes_that_do_not_fit_are_errors(schema: Any, data: bytes) -> None:
    with pytest.raises(AvroError):
        codec(schema).decode(data)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "1r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": "a b", "type": "int"}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]},
        ["null", "null"],
        [["null"]],
        [],
        {"type": "fixed", "name": "f", "size": -1},
        3,
        {"type": "array"},
    ],
)
def test_what_is_no_schema_is_an_error(schema: Any) -> None:
    with pytest.raises(ValueError, match="schema"):
        codec(schema)


def test_a_recursive_schema_and_sized_blocks_are_read() -> None:
    fields = [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "node"]}]
    chain = codec({"type": "record", "name": "node", "fields": fields})
    value = {"v": 1, "next": {"v": 2, "next": None}}
    assert chain.decode(chain.encode(value)) == value
    assert codec({"type": "array", "items": "long"}).decode(b"\x03\x04\x02\x04\x00") == [1, 2]


@needs_recordings
def test_the_recorded_payloads_are_read() -> None:
    schemas, found = Schemas(avro.check), []
    with (RECORDINGS / "generator_source.jsonl").open() as lines:
        for event in map(json.loads, lines):
            if event["scenario"] != "generator-v2-structured-schema-extract":
                continue
            if event["step"] == "schema-call" and "bytes" in event["json"]:
                schemas.create(event["json"]["subject"], base64.b64decode(event["json"]["bytes"]))
            if event["step"] == "Run" and "records" in event.get("json", {}):
                found += from_records(Records(base64.b64decode(event["bytes"])))
    for record in found:
        Decoder(schemas).decode(record)
    payloads = [r.after for r in found if isinstance(r.after, dict)]
    assert [p["name"] for p in payloads] == ["incarn", "coerciveness", "systematically"]
    assert [p["b"] for p in payloads] == [False, False, True]
    for record, payload in zip(found, payloads, strict=True):
        assert isinstance(payload["d"], time)
        assert record.timestamp is not None
        assert abs(payload["t"] - record.timestamp) < timedelta(seconds=1)
        encoder = Encoder(schemas, "pipe:conn")  # what we would send is what was sent
        again = to_records([Record(payload, position=b"1")], encoder)[0]
        assert again.metadata["opencdc.payload.schema.version"] == "1"


class _One(Schemas):
    def __init__(self, schema: bytes) -> None:
        super().__init__(avro.check)
        self._schema = schema

    def get(self, subject: str, version: int) -> Schema:
        return Schema(subject, version, 9, self._schema.decode())


@needs_recordings
def test_recorded_bytes_that_do_not_fit_are_refused_here() -> None:
    schema, seen = b"", {}
    with (RECORDINGS / "extra.jsonl").open() as lines:
        for event in map(json.loads, lines):
            if event["step"] == "schema-answer":
                schema = base64.b64decode(event["json"]["schema"]["bytes"])
            if event["scenario"].startswith("avro-") and "records" in event.get("json", {}):
                seen[event["scenario"]] = from_records(Records(base64.b64decode(event["bytes"])))[0]
    assert len(seen) >= 7
    for scenario, record in seen.items():
        before = record.after
        if scenario in ("avro-exact", "avro-extract-disabled"):  # the latter: a setting of that connector
            Decoder(_One(schema)).decode(record)
            assert record.after == {"a": 1, "b": "hi"}
            continue
        if scenario in ("avro-subject-without-version", "avro-schema-but-structured-payload"):
            Decoder(_One(schema)).decode(record)
            assert record.after == before
            continue
        with pytest.raises(Rejected, match="after"):
            Decoder(_One(schema)).decode(record)


def test_only_one_of_subject_and_version_stays_raw() -> None:
    record = Record(b"raw", metadata={"opencdc.payload.schema.subject": "s"})
    Decoder(None).decode(record)
    assert record.after == b"raw"


def test_a_record_without_a_position_says_so() -> None:
    with pytest.raises(ValueError, match="a record has no position"):
        Record(position=None).position  # type: ignore[arg-type] # noqa: B018
