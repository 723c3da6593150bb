"""Rows as records of the SDK and as messages of the connector protocol: the same records either way, and as protobuf would write them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import record
from penstock.host.arrow_avro import NoForm, avro_of
from penstock.host.messages import Wire, encoded, is_raw
from penstock.host.outgoing import Entries, Lane, Messages, Unfit, records_of
from penstock.record import Shape
from penstock_protocol.records import Records
from penstock_protocol.schemas import Schemas
from penstock_sdk import Record, avro
from penstock_sdk.destination_plugin import DELIVERY, ID, PART, SOURCE
from penstock_sdk.record import COLLECTION, record_id
from penstock_sdk.schemas import Decoder
from penstock_sdk.wire import CREATED, from_records, to_wire

TIME = datetime(2026, 11, 17, 10, 0, 0, 123456, tzinfo=UTC)
MAP = pa.map_(pa.string(), pa.string())


def rows(n: int = 3, after: Any = None, **columns: Any) -> pa.RecordBatch:
    made = {
        record.SEQ: pa.array(range(n), pa.int64()),
        record.PART: pa.array([0] * n, pa.int32()),
        record.POSITION: pa.array([b"p%d" % i for i in range(n)], pa.binary()),
        record.OPERATION: pa.array(["create"] * n),
        record.NAMESPACE: pa.nulls(n, pa.string()),
        record.PHASE: pa.array(["sync"] * n),
        record.TIMESTAMP: pa.array([TIME] * n, pa.timestamp("us", tz="UTC")),
        record.METADATA: pa.array([[("a", "1")]] * n, MAP),
        record.KEY: pa.nulls(n, pa.binary()),
        record.BEFORE: pa.nulls(n, pa.binary()),
        record.AFTER: pa.array([b"line %d" % i for i in range(n)], pa.binary()) if after is None else after,
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def lane(shape: Shape = Shape.RAW) -> Lane:
    return Lane("in", shape, "d" * 32)


def wire(most: int = 1 << 20) -> tuple[Wire, Decoder]:
    schemas = Schemas(avro.check)
    return Wire(schemas, "p:out", most), Decoder(schemas)


def sent(batch: pa.RecordBatch, shape: Shape = Shape.RAW, most: int = 1 << 20) -> list[Any]:
    """What a program gets, decoded, or why it does not."""
    made, decoder = wire(most)
    found: list[Any] = []
    for item in made(batch, lane(shape)).items:
        if isinstance(item, Unfit):
            found.append(item.why)
            continue
        assert isinstance(item, bytes)
        (one,) = from_records(Records(item))
        decoder.decode(one)
        found.append(one)
    return found


def test_a_raw_record_is_written_as_protobuf_writes_it() -> None:
    batch = rows(
        4,
        key=pa.array([b"k", None, b"", b"k" * 5000], pa.binary()),
        before=pa.array([b"b", None, b"", None], pa.binary()),
        after=pa.array([b"", b"x" * 200, None, b"x" * 70_000], pa.binary()),
        operation=pa.array(["create", "update", "delete", "snapshot"]),
        namespace=pa.array(["t", "t", "u", "u"]),
    )
    made, _ = wire()
    for i, item in enumerate(made(batch, lane()).items):
        assert isinstance(item, bytes)
        (one,) = from_records(Records(item))
        assert to_wire(one).SerializeToString(deterministic=True) == _again(item)
        for name in ("key", "before", "after", "operation", "position"):
            assert getattr(one, name) == batch.column(name)[i].as_py(), name
        assert one.namespace == batch.column("namespace")[i].as_py()
        assert one.timestamp == TIME


def _again(item: bytes) -> bytes:
    (message,) = Records(item)
    return bytes(message.SerializeToString(deterministic=True))


def test_what_a_task_has_made_messages_of_is_what_the_host_would_have_made() -> None:
    batch = rows(3, key=pa.array([b"k", None, b""], pa.binary()), namespace=pa.array(["t", None, "u"]))
    assert is_raw(batch, Shape.RAW)
    made, _ = wire()
    by_the_task, by_the_host = made(encoded(batch, lane()), lane()), made(batch, lane())
    assert isinstance(by_the_task, Messages)
    assert isinstance(by_the_host, Messages)
    for name in ("places", "positions", "items", "data", "acks"):
        assert getattr(by_the_task, name) == getattr(by_the_host, name), name
    assert not is_raw(batch, Shape.OPEN)
    assert not is_raw(rows(1, key=pa.array(['{"a": 1}'])), Shape.RAW)  # an object


def test_who_a_record_is_and_which_delivery_it_belongs_to_is_in_the_metadata() -> None:
    batch = rows(2, part=pa.array([0, 1], pa.int32()), position=pa.array([b"p", b"p"], pa.binary()))
    first, second = sent(batch)
    assert first.metadata[DELIVERY] == "d" * 32
    assert first.metadata[SOURCE] == "in"
    assert [r.metadata[ID] for r in (first, second)] == [record_id("in", b"p", part) for part in (0, 1)]
    assert (first.metadata[PART], second.metadata[PART]) == ("0", "1")
    assert first.metadata["a"] == "1"
    assert first.metadata[CREATED] == "1794909600123456000"


def test_a_record_without_parts_has_no_part() -> None:
    assert PART not in sent(rows(1))[0].metadata


def test_records_in_this_process_are_the_same_as_in_a_program() -> None:
    batch = rows(
        3,
        key=pa.array([b"k", None, b"x"], pa.binary()),
        namespace=pa.array(["t", None, "u"]),
        operation=pa.array(["create", "update", "delete"]),
        metadata=pa.array([[("a", "1")], [], [("b", "2"), ("a", "3")]], MAP),
    )
    direct = records_of(batch, lane()).items
    for one, other in zip(direct, sent(batch), strict=True):
        assert isinstance(one, Record)
        for name in ("position", "after", "before", "key", "operation", "namespace", "timestamp", "phase"):
            assert getattr(one, name) == getattr(other, name), name
        theirs = {k: v for k, v in other.metadata.items() if not k.startswith("penstock.") and k != CREATED}
        assert one.metadata == theirs
        assert one.id == other.metadata[ID]


def test_an_author_may_have_columns_as_they_came() -> None:
    """With the types of the pipeline, without a detour over Python; open payloads, which are text here, as what records hold."""
    found = records_of(rows(3), lane())
    columns = found.part(1, 3).columns
    assert columns is not None
    assert columns().column("after").to_pylist() == [r.after for r in found.part(1, 3).items]
    assert columns().schema.field("after").type == pa.binary()
    columns = records_of(rows(2, pa.array([{"a": 1}, {"a": 2}])), lane(Shape.TYPED)).only([1]).columns
    assert columns is not None
    assert columns().column("after").to_pylist() == [{"a": 2}]
    assert records_of(rows(1, pa.array(['{"a": 1}'])), lane(Shape.OPEN)).columns is None


def test_a_record_of_the_author_is_his_own() -> None:
    first, second = records_of(rows(2), lane()).items
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    first.metadata["x"] = "y"
    first.namespace = "z"
    assert "x" not in second.metadata
    assert second.namespace is None


def test_open_payloads_are_structured_and_what_does_not_fit_goes_as_avro() -> None:
    texts = ['{"n": 1, "t": "x", "l": [1, null]}', f'{{"n": {2**60}}}', "no object", '{"d": 0.1234567890123456789}']
    plain, large, raw, exact = sent(rows(4, pa.array(texts)), Shape.OPEN)
    assert plain.after == {"n": 1, "t": "x", "l": [1, None]}
    assert large.after == {"n": 2**60}
    assert raw.after == b"no object"
    assert exact.after == {"d": Decimal("0.1234567890123456789")}


TYPED = {
    "i": (pa.int32(), 7),
    "l": (pa.int64(), 2**60),
    "f": (pa.float64(), 0.1),
    "b": (pa.bool_(), True),
    "s": (pa.string(), "ü"),
    "y": (pa.binary(), b"\x00\xff"),
    "d": (pa.date32(), date(1969, 7, 20)),
    "t": (pa.timestamp("us", tz="UTC"), TIME),
    "n": (pa.timestamp("us"), TIME.replace(tzinfo=None)),
    "c": (pa.decimal128(38, 10), Decimal("12345678901234567890.0123456789")),
    "a": (pa.list_(pa.int64()), [1, None, 2**60]),
    "m": (pa.map_(pa.string(), pa.int64()), {"k": 1}),
    "r": (pa.struct([("x", pa.int64())]), {"x": None}),
}


def typed(*values: Any) -> pa.Array:
    return pa.array(values, pa.struct([(name, kind) for name, (kind, _) in TYPED.items()]))


@pytest.mark.contract("P15", reason="the values themselves are compared")
def test_typed_payloads_go_as_avro_with_every_value_as_it_was() -> None:
    values = {name: value for name, (_, value) in TYPED.items()}
    first, empty, none = sent(rows(3, typed(values, dict.fromkeys(TYPED), None)), Shape.TYPED)
    assert first.after == values
    assert [type(first.after[name]) for name in "cdt"] == [Decimal, date, datetime]
    assert empty.after == dict.fromkeys(TYPED)
    assert none.after is None
    assert first.metadata["opencdc.payload.schema.subject"] == "p:out:payload"
    assert "opencdc.payload.schema.subject" not in none.metadata


@pytest.mark.contract("P15", reason="the values themselves are compared")
@pytest.mark.parametrize("kind", [pa.duration("us"), pa.map_(pa.int32(), pa.string())])
def test_a_field_that_has_no_form_on_the_way_is_a_nack_that_names_it(kind: pa.DataType) -> None:
    after = pa.array([{"x": 1, "odd": None}], pa.struct([("x", pa.int64()), ("odd", kind)]))
    (why,) = sent(rows(1, after), Shape.TYPED)
    assert why.startswith("after.odd can't be sent: it is")


def test_a_name_that_avro_has_not_is_a_nack_that_names_it() -> None:
    with pytest.raises(NoForm, match=r"a b can't be sent"):
        avro_of(pa.struct([("a b", pa.int64())]))


def test_a_record_that_is_larger_than_a_message_is_a_nack_with_its_size() -> None:
    small, large = sent(rows(2, pa.array([b"x", b"x" * 5000], pa.binary())), most=4096)
    assert small.after == b"x"
    assert large.startswith("it has 5,")
    assert large.endswith("and the connector takes 4,096 at most")


def test_years_that_python_has_not_cost_their_record() -> None:
    after = pa.array([{"t": 2**60}, {"t": 0}], pa.struct([("t", pa.int64())])).cast(
        pa.struct([("t", pa.timestamp("us"))])
    )
    bad, good = sent(rows(2, after), Shape.TYPED)
    assert bad.startswith("after can't be sent")
    assert good.after == {"t": datetime(1970, 1, 1)}


@pytest.mark.parametrize(
    "maps",
    [
        [[], []],
        [None, [("a", "1")]],
        [[("a", "1")], [("a", "1")]],
        [[("a", "1"), ("b", "x")], [("a", "1"), ("b", "y")]],
        [[("a", "1")], [("b", "1")]],
        [[("a", "1")], [("a", "1"), ("b", "2")]],
        [[("a", None)], [("a", "1")]],
    ],
)
def test_metadata_are_what_they_are_however_they_differ(maps: list[Any]) -> None:
    column = pa.array([[("z", "z")], *maps, [("z", "z")]], MAP).slice(1, len(maps))
    found = Entries.of(column)
    assert [found.row(i) for i in range(2)] == [{k: v for k, v in row or () if v is not None} for row in maps]
    found.put(COLLECTION, ["t", None])
    assert [found.row(i).get(COLLECTION) for i in range(2)] == ["t", None]
