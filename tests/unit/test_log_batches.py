"""Records as bytes of the log and back: in batches, alone, and what others put there."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from penstock.errors import Rejected
from penstock.log import arrow, batches
from penstock.log.batches import groups, pack, to_arrow, to_records, unpack
from penstock.log.format import Mode
from penstock.testing import hostile
from penstock_sdk.record import COLLECTION, Record
from tests.unit.test_log_values import OFFSETS, PAYLOADS, same

FIELDS = ("key", "before", "after", "position", "operation", "phase", "timestamp", "metadata")
NOON = datetime(2024, 2, 29, 12, 0, 0, 7, timezone(timedelta(hours=2)))
TEXT = st.text()
PAYLOAD = st.none() | st.binary(max_size=20) | PAYLOADS
# Not the first and last days: an instant of theirs may be in no year that a datetime has, once it is in UTC.
TIMES = st.none() | st.datetimes() | st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=OFFSETS)
RECORDS = st.builds(
    Record,
    PAYLOAD,
    key=PAYLOAD,
    before=PAYLOAD,
    position=st.binary(max_size=8),
    operation=st.sampled_from(["create", "update", "delete", "snapshot"]) | TEXT,
    namespace=st.none() | st.sampled_from(["", "a", "ü"]),
    phase=st.sampled_from(["copy", "sync", "complete"]),
    metadata=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    timestamp=TIMES,
)


def fields(record: Record) -> list[Any]:
    """All that the log keeps. No namespace and an empty one are the same to it."""
    found = {name: getattr(record, name) for name in FIELDS}
    metadata = {k: v for k, v in found.pop("metadata").items() if k != COLLECTION}
    return [record.namespace or "", metadata, *found.values()]


def equal(a: Record, b: Record, *, offsets: bool) -> bool:
    """With `offsets` timestamps have the same offset too, not only the same instant."""
    times = a.timestamp, b.timestamp
    if not offsets and a.timestamp and b.timestamp and a.timestamp.tzinfo and b.timestamp.tzinfo:
        a, b = a.derive(timestamp=None), b.derive(timestamp=None)
    return same(fields(a), fields(b)) and times[0] == times[1]


def through_arrow(records: list[Record], compression: str | None = None) -> list[Record]:
    made: list[Record] = []
    for group in groups(records):
        batch = arrow.read(arrow.write(group.to_arrow(), compression))
        assert batch.num_rows == len(group.records)
        made += to_records(batch, group.namespace, group.mode)
    return made


@given(st.lists(RECORDS, max_size=6), st.sampled_from([None, "zstd"]))
@settings(deadline=None)
def test_any_records_come_back_from_batches(records: list[Record], compression: str | None) -> None:
    made = through_arrow(records, compression)
    assert len(made) == len(records)
    assert all(equal(a, b, offsets=False) for a, b in zip(made, records, strict=True))


@given(RECORDS)
def test_any_record_comes_back_alone(record: Record) -> None:
    assert equal(unpack(pack(record), record.namespace or "", Mode.of(record.phase)), record, offsets=True)


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_groups_are_the_records_in_order_each_of_one_kind(records: list[Record]) -> None:
    made = list(groups(records))
    assert [r for g in made for r in g.records] == records
    for group in made:
        assert {r.namespace or "" for r in group.records} == {group.namespace}
        assert {r.phase for r in group.records} == {group.mode.phase}
        for name in ("key", "before", "after"):
            assert len({type(getattr(r, name)) for r in group.records} - {type(None)}) <= 1


@pytest.mark.parametrize(
    ("records", "sizes"),
    [
        ([], []),
        ([Record(b"a"), Record(b"b"), Record(None), Record(b"c")], [4]),
        ([Record(None), Record({"a": 1}), Record(None), Record(b"a"), Record(None)], [3, 2]),
        ([Record({"a": 1}), Record({"a": b""}), Record({"a": b"x"}), Record({"a": 2})], [1, 2, 1]),
        ([Record(b"a", key=b"k"), Record(b"a", key={"k": 1}), Record(b"a")], [1, 2]),
        ([Record(namespace="a"), Record(namespace="a"), Record(namespace="b"), Record(namespace="a")], [2, 1, 1]),
        ([Record(namespace=None), Record(namespace="")], [2]),
        ([Record(phase="copy"), Record(phase="copy"), Record(phase="complete"), Record()], [2, 1, 1]),
        ([Record(timestamp=NOON), Record(), Record(timestamp=datetime(2024, 1, 1)), Record()], [2, 2]),
    ],
)
def test_a_group_ends_where_namespace_phase_or_shape_change(records: list[Record], sizes: list[int]) -> None:
    assert [len(g.records) for g in groups(records)] == sizes


def test_a_group_ends_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "GROUP_BYTES", 100)
    monkeypatch.setattr(batches, "MAX_RECORD", 300)
    records = [Record(b"x" * n) for n in (40, 40, 40, 200, 10, 90, 1)]
    assert [[len(r.after or b"") for r in g.records] for g in groups(records)] == [[40, 40], [40], [200], [10, 90], [1]]
    with pytest.raises(Rejected, match="301 bytes") as refused:
        next(groups([Record(b"small"), Record(b"x" * 301)]))
    assert refused.value.where == "record 1 of those given"


# -- the columns of a batch --------------------------------------------------------------------------------------------------


def test_columns_have_the_types_of_the_format_and_only_what_is_there() -> None:
    batch = to_arrow([Record(b"a", position=b"p"), Record(None)])
    assert batch.schema == pa.schema([("position", pa.binary()), ("after", pa.binary())])
    full = Record(
        {"a": 1}, key=b"k", before={"a": b""}, operation="update", timestamp=NOON, metadata={"m": "v"}, namespace="n"
    )
    schema = to_arrow([full]).schema
    assert {f.name: f.type for f in schema} == {
        "operation": pa.string(),
        "timestamp": pa.timestamp("us", "UTC"),
        "metadata": pa.map_(pa.string(), pa.string()),
        "key": pa.binary(),
        "before": pa.string(),
        "after": pa.string(),
    }
    assert schema.field("before").metadata == {b"penstock.json": b"extended"}
    assert schema.field("after").metadata is None
    assert to_arrow([full]).column("metadata").to_pylist() == [[("m", "v")]]  # the namespace stands in the entry


def test_records_without_anything_are_counted() -> None:
    batch = to_arrow([Record(), Record(), Record()])
    assert batch.num_rows == 3
    assert [fields(r) for r in to_records(batch, "", Mode.SYNC)] == [fields(Record())] * 3


def test_a_batch_is_of_one_group() -> None:
    for records in ([], [Record(b"a"), Record({"a": 1})]):
        with pytest.raises(ValueError, match="groups"):
            to_arrow(records)


def test_each_record_has_metadata_of_its_own() -> None:
    made = to_records(to_arrow([Record(b"a"), Record(b"b")]), "", Mode.SYNC)
    made[0].metadata["x"] = "y"
    assert made[1].metadata == {}


def test_records_of_hostile_files_come_back() -> None:
    payloads: list[Any] = [data for case in hostile.cases() for data in case.files.values()]
    payloads += [
        dict(payload)
        for case in hostile.cases()
        for outcomes in case.outcomes.values()
        for o in outcomes
        if isinstance(o, hostile.Delivered)
        for payload in (o.payload, o.json)
        if isinstance(payload, dict)
    ]
    names = [n.value for n in hostile.NAMESPACES]
    records = [Record(p, namespace=names[i % len(names)]) for i, p in enumerate(payloads)]
    assert any(isinstance(r.after, dict) for r in records)
    for made in (through_arrow(records), [unpack(pack(r), r.namespace or "", Mode.SYNC) for r in records]):
        assert all(equal(a, b, offsets=True) for a, b in zip(made, records, strict=True))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (Record("text"), "after"),  # type: ignore[arg-type]
        (Record(bytearray(b"x")), "after"),  # type: ignore[arg-type]
        (Record({"a": (1,)}), "after.a"),
        (Record(key={"a": {"b": object()}}), "key.a.b"),
        (Record(position="p"), "position"),  # type: ignore[arg-type]
        (Record(operation=None), "operation"),  # type: ignore[arg-type]
        (Record(operation="\ud800"), "operation"),
        (Record(namespace="\ud800"), "namespace"),
        (Record(namespace=7), "namespace"),  # type: ignore[arg-type]
        (Record(phase="later"), "phase"),
        (Record(timestamp=date(2024, 1, 1)), "timestamp"),  # type: ignore[arg-type]
        (Record(timestamp=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))), "timestamp"),
        (Record(metadata={"a": 1}), "metadata 'a'"),  # type: ignore[dict-item]
        (Record(metadata={"a": None}), "metadata 'a'"),  # type: ignore[dict-item]
        (Record(metadata={1: "a"}), "metadata 1"),  # type: ignore[dict-item]
        (Record(metadata={"a": "\udfff"}), "metadata 'a'"),
        (Record(metadata=[("a", "b")]), "metadata"),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_cant_be_kept_is_refused_before_any_group(record: Record, says: str) -> None:
    good = Record(b"good", metadata={"a": "b"}, timestamp=NOON)
    with pytest.raises(Rejected) as refused:
        next(groups([good, Record({"other": "shape"}), record]))
    assert refused.value.code == "log.value"
    assert refused.value.where == "record 2 of those given"
    assert says in refused.value.what
    assert refused.value.why
    assert refused.value.hint
    with pytest.raises(Rejected):
        pack(record)


# -- batches that others made ------------------------------------------------------------------------------------------------


def test_typed_payloads_keep_their_types() -> None:
    row = {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
        "local": datetime(2024, 2, 29, 1, 2, 3, 4),
        "clock": time(1, 2, 3, 4),
        "took": timedelta(1, 2, 3),
        "price": Decimal("1.50"),
        "data": b"\x00\xff",
        "deep": {"list": [1, None], "names": {"a": 1}},
        "nothing": None,
    }
    kind = pa.struct(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("clock", pa.time64("us")),
            ("took", pa.duration("us")),
            ("price", pa.decimal128(10, 2)),
            ("data", pa.binary()),
            ("deep", pa.struct([("list", pa.list_(pa.int64())), ("names", pa.map_(pa.string(), pa.int64()))])),
            ("nothing", pa.string()),
        ]
    )
    batch = pa.record_batch({"after": pa.array([row, None], kind), "before": pa.array([None, row], kind)})
    first, second = to_records(arrow.read(arrow.write(batch, "zstd")), "n", Mode.COPY)
    assert same(first.after, row)
    assert same(second.before, row)
    assert second.after is None
    assert (first.namespace, first.phase) == ("n", "copy")


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")])
def test_nanoseconds_are_exact_or_refused(kind: pa.DataType) -> None:
    def batch(value: int) -> pa.RecordBatch:
        inner = pa.array([value], pa.int64()).cast(kind)
        listed = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner)
        return pa.record_batch({"after": pa.StructArray.from_arrays([inner, listed], ["a", "b"])})

    (record,) = to_records(batch(5_000), "", Mode.SYNC)
    assert isinstance(record.after, dict)
    assert record.after["a"] == record.after["b"][0]
    assert getattr(record.after["a"], "microsecond", None) == 5 or record.after["a"] == timedelta(microseconds=5)
    with pytest.raises(ValueError, match="after"):
        to_records(batch(5_001), "", Mode.SYNC)


def test_a_timestamp_column_of_another_unit_or_zone_is_the_same_instant() -> None:
    at = datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        batch = pa.record_batch({"timestamp": pa.array([at, None], pa.timestamp(unit, "Europe/Berlin"))})
        assert [r.timestamp for r in to_records(batch, "", Mode.SYNC)] == [at, None]
    odd = pa.record_batch({"timestamp": pa.array([1], pa.timestamp("ns", "UTC"))})
    far = pa.record_batch({"timestamp": pa.array([2**60], pa.timestamp("us", "UTC"))})
    for batch in (odd, far):
        with pytest.raises(ValueError, match="timestamp"):
            to_records(batch, "", Mode.SYNC)


def test_other_forms_of_text_and_binary_are_read() -> None:
    batch = pa.record_batch(
        {
            "operation": pa.array(["update", None]).dictionary_encode(),
            "position": pa.array([b"1", None], pa.large_binary()),
            "key": pa.array([b"abcd", b"efgh"], pa.binary(4)),
            "before": pa.nulls(2),
            "after": pa.array(['{"a":1}', None], pa.large_string()),
            "metadata": pa.array([[("a", "b"), (COLLECTION, "other")], None], pa.map_(pa.string(), pa.string())),
            "colour": pa.array([1, 2]),
        }
    )
    first, second = to_records(arrow.read(arrow.write(batch, None)), "", Mode.COMPLETE)
    assert fields(first) == ["", {"a": "b"}, b"abcd", None, {"a": 1}, b"1", "update", "complete", None]
    assert fields(second) == ["", {}, b"efgh", None, None, b"", "create", "complete", None]
    assert first.metadata == {"a": "b"}  # the entry says which namespace


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("after", pa.array([1]))], "'after' of the batch is int64"),
        ([("operation", pa.array([1]))], "'operation'"),
        ([("position", pa.array(["p"]))], "'position'"),
        ([("timestamp", pa.array([1]))], "'timestamp'"),
        ([("metadata", pa.array(["a"]))], "'metadata'"),
        ([("metadata", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))], "'metadata'"),
        ([("after", pa.array([b"a"])), ("after", pa.array([b"b"]))], "more than once"),
    ],
)
def test_columns_of_a_wrong_type_are_refused_when_written_and_when_read(columns: list[Any], says: str) -> None:
    batch = pa.RecordBatch.from_arrays([c for _, c in columns], names=[n for n, _ in columns])
    with pytest.raises(Rejected, match=says) as refused:
        arrow.write(batch, None)
    assert refused.value.code == "log.batch"
    with pytest.raises(ValueError, match=says):
        to_records(batch, "", Mode.SYNC)


def test_a_batch_that_could_not_be_read_again_is_not_written() -> None:
    wrong = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(Rejected, match="UTF") as refused:
        arrow.write(pa.record_batch({"after": pa.StructArray.from_arrays([wrong], ["v"])}), None)
    assert refused.value.code == "log.batch"


def test_text_that_is_no_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"'after'.*not JSON"):
        to_records(pa.record_batch({"after": ["{"]}), "", Mode.SYNC)


def test_metadata_without_a_text_is_a_value_error() -> None:
    batch = pa.record_batch({"metadata": pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))})
    with pytest.raises(ValueError, match="'metadata'"):
        to_records(batch, "", Mode.SYNC)


# -- one record --------------------------------------------------------------------------------------------------------------


def test_a_packed_record_is_a_map_with_short_names() -> None:
    record = Record(
        {"a": 1}, before={"a": b""}, key=b"k", position=b"p", operation="delete", timestamp=NOON, namespace="n"
    )
    record.metadata["m"] = "v"
    assert msgspec.msgpack.decode(pack(record)) == {
        "p": b"p",
        "o": "delete",
        "t": "2024-02-29T12:00:00.000007+02:00",
        "m": {"m": "v"},
        "k": b"k",
        "b": msgspec.msgpack.Ext(1, b'{"a":{"$binary":""}}'),
        "a": '{"a":1}',
    }
    assert pack(Record()) == b"\x80"


def test_what_a_later_version_adds_is_passed_over() -> None:
    data = msgspec.msgpack.encode({"a": b"x", "zz": [1, {"y": 2}]})
    assert unpack(pa.py_buffer(data), "n", Mode.COPY).after == b"x"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80more",
        b"\x93\x01\x02\x03",
        *(msgspec.msgpack.encode(m) for m in ({"p": "text"}, {"o": 1}, {"t": 1}, {"t": "soon"}, {"m": {"a": 1}})),
        *(msgspec.msgpack.encode({"a": a}) for a in (1, [b"x"], {"a": 1}, "{", "[]", msgspec.msgpack.Ext(2, b"{}"))),
        msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(1, b"\xff")}),
        b"\x81\xa1a" + b"\x91" * 100_000,
    ],
)
def test_bytes_that_are_no_record_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="a record in the log can't be read"):
        unpack(data, "", Mode.SYNC)


# -- Arrow's bytes -----------------------------------------------------------------------------------------------------------


def sample(rows: int = 20) -> pa.RecordBatch:
    return to_arrow([Record(b"%d" % i * 9, position=b"%d" % i, metadata={"a": "ü"}, key={"k": i}) for i in range(rows)])


def dictionaries() -> pa.RecordBatch:
    return pa.record_batch({"operation": pa.array(["update"] * 5).dictionary_encode(), "after": [b"x"] * 5})


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("make", [sample, dictionaries])
def test_any_arrow_reader_reads_it(make: Callable[[], pa.RecordBatch], compression: str | None) -> None:
    batch = make()
    data = arrow.write(batch, compression)
    with ipc.open_stream(data) as stream:
        assert list(stream) == [batch]
    for _ in range(2):  # the second time its schema is known
        assert arrow.read(data).equals(batch, check_metadata=True)


def test_only_the_slice_that_is_given_is_written() -> None:
    batch = sample(1000)
    data = arrow.write(batch.slice(10, 2), None)
    assert data.size < 3000
    assert arrow.read(data) == batch.slice(10, 2)


def test_reading_from_a_mapped_file_copies_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = arrow.write(to_arrow([Record(b"x" * 150, position=b"p") for _ in range(1000)]), None)
    path.write_bytes(bytes(64) + data.to_pybytes() + bytes(64))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        whole = pa.py_buffer(mapped)
        batch = arrow.read(whole.slice(64, data.size))
        buffers = [b for c in batch.columns for b in c.buffers() if b is not None and b.size]
        assert len(buffers) == 4
        assert all(whole.address <= b.address and b.address + b.size <= whole.address + whole.size for b in buffers)
        assert sum(b.size for b in buffers) > 150_000
        del batch, buffers, whole  # or the map can't be closed


def stream_of(*made: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, made[0].schema if made else pa.schema([("after", pa.binary())])) as stream:
        for batch in made:
            stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        os.urandom(500),
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100),
        b"\xff\xff\xff\xff" + bytes(100),
        stream_of(),
        stream_of(sample(), sample()),
        stream_of(dictionaries(), dictionaries()),
        stream_of(sample()) + b"more",
        stream_of(dictionaries()) + b"more",
        stream_of(sample())[:-100],
        stream_of(dictionaries())[:-100],
        stream_of(sample())[:300],
    ],
)
def test_anything_but_one_whole_batch_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"a batch in the log can't be read: ."):
        arrow.read(pa.py_buffer(data))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("make", [sample, dictionaries])
def test_no_changed_byte_does_more_than_a_value_error(
    make: Callable[[], pa.RecordBatch], compression: str | None
) -> None:
    """A checksum stands before this; a batch that was written wrong has a good one."""
    good = arrow.write(make(), compression).to_pybytes()
    refused = 0
    for at in range(len(good)):
        for change in (0x01, 0x80, 0xFF):
            bad = bytearray(good)
            bad[at] ^= change
            try:
                batch = arrow.read(pa.py_buffer(bytes(bad)))
                if batch.num_rows <= 1000:  # the reader compares it with the entry's count before it does this
                    to_records(batch, "", Mode.SYNC)
            except ValueError:
                refused += 1
    assert refused > 100
