"""A record goes over the wire and comes back as it was, or is refused with the name of the field: nothing in between."""

from __future__ import annotations

import base64
import enum
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from math import copysign, inf, nan
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import example, given
from hypothesis import strategies as st

from penstock_protocol.pb.opencdc.v1 import opencdc_pb2 as pb
from penstock_protocol.records import Records
from penstock_sdk import wire
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record
from penstock_sdk.wire import from_records, from_wire, to_records, to_wire

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")

CREATED, PHASE = "opencdc.createdAt", "penstock.phase"
AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
NANOSECONDS = "1772600767000089000"  # the same


def again(record: Record) -> Record:
    """Over the wire as bytes, and back."""
    return from_records(Records(to_records([record]).data), record.source)[0]


def fields(r: Record) -> tuple[Any, ...]:
    return r.operation, r.position, r.metadata, r.namespace, r.phase, r.timestamp, r.key, r.before, r.after


def refusal(record: Record) -> Rejected:
    with pytest.raises(Rejected) as caught:
        to_wire(record)
    with pytest.raises(Rejected) as batch:
        to_records([Record(b"good"), record])
    assert list(batch.value.records) == [1]
    return caught.value


def in_dicts(depth: int, leaf: Any) -> dict[str, Any]:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf  # type: ignore[no-any-return]


def in_lists(depth: int, leaf: Any) -> dict[str, Any]:
    for _ in range(depth):
        leaf = [leaf]
    return {"a": leaf}


# --- a record


@pytest.mark.parametrize(("name", "number"), [("create", 1), ("update", 2), ("delete", 3), ("snapshot", 4)])
def test_operations_have_their_numbers(name: str, number: int) -> None:
    assert to_wire(Record(operation=name)).operation == number
    assert from_wire(pb.Record(operation=number)).operation == name  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["", "upsert", "CREATE", None, 1, ["create"]])
def test_an_operation_that_is_none_does_not_leave(operation: Any) -> None:
    error = refusal(Record(operation=operation))
    assert (error.code, error.where) == ("wire.operation", "operation")
    assert repr(operation) in error.what


@pytest.mark.parametrize("number", [0, 5, 99, -1])
def test_an_operation_that_is_none_does_not_arrive_though_the_go_sdk_lets_it(number: int) -> None:
    message = pb.Record(operation=number)  # type: ignore[arg-type]
    with pytest.raises(Rejected, match=rf"^\[wire.operation\] operation is {number}: "):
        from_wire(message)
    with pytest.raises(Rejected) as batch:
        from_records(Records.of([pb.Record(operation=pb.OPERATION_CREATE), message]))
    assert list(batch.value.records) == [1]


def test_a_record_that_came_is_like_one_that_was_made() -> None:
    made = Record(
        {"a": 1},
        before=b"b",
        key={"k": "x"},
        position=b"\x00p",
        operation="update",
        namespace="orders",
        phase="copy",
        metadata={"m": "ü"},
        timestamp=AT,
        source="in",
    )
    came = again(made)
    assert fields(came)[:2] == ("update", b"\x00p")
    assert came.metadata == {"m": "ü", "opencdc.collection": "orders", CREATED: NANOSECONDS, PHASE: "copy"}
    assert fields(came)[3:] == fields(made)[3:]
    assert (came.id, came.seq, came.part) == (made.id, 0, 0)
    assert made.metadata == {"m": "ü", "opencdc.collection": "orders"}  # untouched


def test_a_record_that_came_has_every_field_that_records_have() -> None:
    """It is made without `Record(…)`: this fails when a record gets a field that `from_wire` does not know of."""

    def there(record: Record) -> set[str]:
        found = set()
        for name in Record.__slots__:
            try:
                object.__getattribute__(record, name)
            except AttributeError:
                continue
            found.add(name)
        return found

    assert there(again(Record())) == there(Record())


def test_the_namespace_stays_in_step() -> None:
    came = again(Record(namespace="a"))
    came.namespace = "b"
    assert to_wire(came).metadata["opencdc.collection"] == "b"
    came.namespace = None
    assert again(came).namespace is None
    came.metadata["opencdc.collection"] = "c"
    assert again(came).namespace == "c"


def test_position_and_metadata_that_were_left_where_they_are_go_over() -> None:
    lazy = Record(b"x", seq=7, namespace="n", locate=lambda seq: (b"at %d" % seq, {"m": "1"}))
    assert fields(again(lazy))[:4] == ("create", b"at 7", {"m": "1", "opencdc.collection": "n"}, "n")


# --- timestamp and phase


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (AT, NANOSECONDS),
        (AT.astimezone(timezone(timedelta(hours=-7, minutes=30))), NANOSECONDS),
        (datetime(1970, 1, 1, tzinfo=UTC), "0"),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "-1000"),
        (datetime(1, 1, 1, tzinfo=UTC), "-62135596800000000000"),
        (datetime.max.replace(tzinfo=UTC), "253402300799999999000"),
    ],
)
def test_a_timestamp_is_nanoseconds_as_text(at: datetime, text: str) -> None:
    assert to_wire(Record(timestamp=at)).metadata[CREATED] == text
    came = again(Record(timestamp=at)).timestamp
    assert came == at
    assert came is not None
    assert came.utcoffset() == timedelta(0)


def test_foreign_nanoseconds_are_kept_until_the_timestamp_changes() -> None:
    text = NANOSECONDS[:-3] + "123"
    came = from_wire(pb.Record(operation=pb.OPERATION_CREATE, metadata={CREATED: text}))
    assert came.timestamp == AT
    assert to_wire(came).metadata[CREATED] == text
    came.timestamp = AT + timedelta(microseconds=1)
    assert to_wire(came).metadata[CREATED] == "1772600767000090000"
    came.timestamp = None  # nothing is known beyond the metadata
    assert to_wire(came).metadata[CREATED] == text


@pytest.mark.parametrize(
    "text", ["", "-", "abc", " 1", "1_000", "1.5", "٣", "9" * 21, "9" * 5000, "-9999999999999999999999"]
)
def test_a_foreign_time_that_is_none_is_left_alone(text: str) -> None:
    message = pb.Record(operation=pb.OPERATION_CREATE, metadata={CREATED: text}, payload={})
    came = from_wire(message)
    assert came.timestamp is None
    assert to_wire(came) == message


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (datetime(2026, 1, 1), "it has no time zone"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "it is in no year from 1 to 9999 in UTC"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "it is in no year from 1 to 9999 in UTC"),
        (date(2026, 1, 1), "a timestamp is a datetime"),
        (1772600767, "a timestamp is a datetime"),
    ],
)
def test_a_timestamp_that_is_no_moment_is_refused(at: Any, why: str) -> None:
    error = refusal(Record(timestamp=at))
    assert (error.code, error.where, error.why) == ("wire.value", "timestamp", why)


def test_a_timestamp_with_nanoseconds_of_its_own_is_refused() -> None:
    class Fine(datetime):
        nanosecond = 5

    assert refusal(Record(timestamp=Fine(2026, 1, 1, tzinfo=UTC))).why == "it has nanoseconds"


def test_only_a_phase_other_than_sync_is_in_the_metadata_and_the_field_decides() -> None:
    assert PHASE not in to_wire(Record()).metadata
    came = again(Record(phase="complete"))
    assert (came.phase, came.metadata) == ("complete", {PHASE: "complete"})
    came.phase = "copy"
    assert again(came).phase == "copy"
    came.phase = "sync"
    assert fields(again(came)) == fields(Record())


# --- payloads


@pytest.mark.parametrize("payload", [None, b"", b"\x00\xff", {}, {"": ""}, {"a": {}, "b": [], "c": [None, [], {}]}])
def test_absent_empty_raw_and_structured_differ(payload: Any) -> None:
    came = again(Record(payload, before=payload, key=payload))
    for got in (came.after, came.before, came.key):
        assert got == payload
        assert type(got) is type(payload)


def test_names_come_back_sorted_because_the_wire_has_no_order() -> None:
    names = [f"n{i * 7919 % 100:02}" for i in range(100)]
    came = again(Record({"a": dict.fromkeys(names)}, metadata=dict.fromkeys(names, "")))
    assert isinstance(came.after, dict)
    assert list(came.after["a"]) == list(came.metadata) == sorted(names)


def test_what_is_absent_is_none() -> None:
    came = from_wire(pb.Record(operation=pb.OPERATION_CREATE))
    assert (came.key, came.before, came.after) == (None, None, None)
    empty = pb.Change(before=pb.Data(), after=pb.Data(structured_data=Struct(fields={"a": Value()})))
    came = from_wire(pb.Record(operation=pb.OPERATION_CREATE, key=pb.Data(), payload=empty))
    assert (came.key, came.before, came.after) == (None, None, {"a": None})


@pytest.mark.parametrize("number", [0, 1, -1, 2**53, -(2**53), 1.5, 1e300, 5e-324, float(2**53 + 2), -(2.0**60)])
def test_numbers_come_back_as_they_were(number: float) -> None:
    came = again(Record({"n": number})).after
    assert came == {"n": number}
    assert type(came["n"]) is type(number)


def test_a_whole_float_comes_back_as_an_int_but_minus_zero_does_not() -> None:
    came = again(Record({"one": 1.0, "zero": 0.0, "minus": -0.0, "most": 2.0**53})).after
    assert isinstance(came, dict)
    assert [type(came[name]) for name in ("one", "zero", "most", "minus")] == [int, int, int, float]
    assert copysign(1, came["minus"]) == -1


def test_a_subclass_comes_back_as_what_it_is_equal_to() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Size(enum.IntEnum):
        BIG = 3

    made: dict[str, Any] = {"c": Colour.RED, "s": Size.BIG, "o": OrderedDict(x=[1]), Colour.RED: True}
    came = again(Record(made)).after
    assert came == made
    assert isinstance(came, dict)
    assert [type(value) for _, value in sorted(came.items())] == [str, dict, bool, int]


@pytest.mark.contract(
    "P15", reason="what a double or a struct cannot hold has no other way over; the round trip tries it"
)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (2**53 + 1, "int"),
        (-(2**53) - 1, "int"),
        (10**400, "int"),
        (b"x", "bytes"),
        (bytearray(b"x"), "bytearray"),
        (AT, "datetime.datetime"),
        (date(2026, 1, 1), "datetime.date"),
        (time(1, 2), "datetime.time"),
        (timedelta(1), "datetime.timedelta"),
        (Decimal("1.10"), "decimal.Decimal"),
        (uuid.UUID(int=1), "uuid.UUID"),
        (nan, "float"),
        (inf, "float"),
        (-inf, "float"),
        ((1, 2), "tuple"),
        ({1}, "set"),
        (1j, "complex"),
        ("\ud800", "str"),
        ("ok \udfff", "str"),
    ],
)
def test_what_would_not_come_back_as_it_was_is_refused_by_name(value: Any, kind: str) -> None:
    for place in ("after", "before", "key"):
        made: dict[str, Any] = {place: {"ok": 1, "order": {"lines": [0, {"unit price": value}]}}}
        error = refusal(Record(**made))
        path = f"{place}.order.lines[1]['unit price']"
        assert (error.code, error.where) == ("wire.value", path)
        assert error.what == f"{path} is a value that does not go over the wire: {kind}"
        assert error.why
        assert "raw bytes" in error.hint


@pytest.mark.parametrize(
    ("key", "where"),
    [
        (1, "after.a[1]"),
        (None, "after.a[None]"),
        (b"k", "after.a[b'k']"),
        ("\ud800", "after.a['\\ud800']"),
        (("x" * 500,), "after.a[('" + "x" * 77 + "…]"),
    ],
)
def test_a_key_that_is_no_text_is_refused_by_name(key: Any, where: str) -> None:
    assert refusal(Record({"a": {key: 1}})).where == where


@pytest.mark.parametrize(
    ("given_fields", "where"),
    [
        ({"position": "1"}, "position"),
        ({"position": None}, "position"),
        ({"position": bytearray(b"1")}, "position"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": b"x"}}, "metadata.a"),
        ({"metadata": {1: "x"}}, "metadata[1]"),
        ({"metadata": {"a b": "\ud800"}}, "metadata['a b']"),
        ({"metadata": {"\ud800": "a"}}, "metadata['\\ud800']"),
        ({"metadata": OrderedDict(a="x")}, "metadata"),
        ({"metadata": [("a", "x")]}, "metadata"),
        ({"namespace": 5}, "metadata['opencdc.collection']"),
        ({"phase": None}, "phase"),
        ({"phase": "\ud800"}, "phase"),
        ({"after": "text"}, "after"),
        ({"before": ["list"]}, "before"),
        ({"key": bytearray(b"x")}, "key"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(given_fields: dict[str, Any], where: str) -> None:
    error = refusal(Record(**given_fields))
    assert (error.code, error.where) == ("wire.value", where)


def test_no_value_is_in_what_is_said() -> None:
    error = refusal(Record({"card": [b"4111-1111"]}))
    with pytest.raises(Rejected) as batch:
        to_records([Record({"card": [b"4111-1111"]})])
    assert "4111" not in str(error) + str(batch.value)


def test_a_failure_to_find_what_was_left_elsewhere_is_not_the_records_fault() -> None:
    def gone(seq: int) -> Any:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        to_wire(Record(b"x", locate=gone))


@pytest.mark.parametrize(("nested", "most"), [(in_dicts, 32), (in_lists, 47)])
def test_the_deepest_there_is_goes_over(nested: Any, most: int) -> None:
    deepest = nested(most, 1)
    assert fields(again(Record(deepest, before=deepest, key=deepest)))[6:] == (deepest,) * 3
    error = refusal(Record(nested(most + 1, 1)))
    assert error.why.startswith("it is nested deeper than parsers go")
    assert error.where.startswith(("after.a.a", "after.a[0]"))


def test_exactly_what_the_parser_refuses_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [in_dicts(dicts, in_lists(lists, 1)) for dicts in range(33) for lists in range(48)]
    made += [in_lists(lists, in_dicts(dicts, 1)) for dicts in range(33) for lists in range(48)]

    def refused(after: dict[str, Any], error: type[Exception]) -> bool:
        try:
            return not list(Records(to_records([Record(after)]).data))
        except error:
            return True

    before = [refused(after, Rejected) for after in made]
    monkeypatch.setattr(wire, "DEEPEST", 10_000)
    assert before == [refused(after, DecodeError) for after in made]
    assert set(before) == {False, True}


def test_a_payload_that_holds_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = [loop]
    assert refusal(Record(loop)).code == "wire.value"


# --- several


def test_records_keep_their_order_and_none_is_none() -> None:
    made = [Record(b"%d" % i, position=b"p%d" % i) for i in range(50)]
    assert [r.position for r in from_records(to_records(made))] == [r.position for r in made]
    assert to_records([]).data == b""
    assert from_records(Records(b"")) == []


def test_every_refused_record_of_a_batch_is_named_with_its_field() -> None:
    with pytest.raises(Rejected) as caught:
        to_records([Record({"a": b""}), Record(b""), Record(operation="x"), Record(position="p")])  # type: ignore[arg-type]
    assert {i: text.split()[0] for i, text in caught.value.records.items()} == {
        0: "after.a",
        2: "operation",
        3: "position",
    }


# --- whatever there is


texts = st.text(max_size=5)
good = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.none() | st.binary(max_size=9) | st.dictionaries(texts, good, max_size=5)
moments = st.datetimes(timezones=st.just(UTC) | st.timezones()).filter(lambda t: 1 < t.year < 9999)
records = st.builds(
    Record,
    payloads,
    before=payloads,
    key=payloads,
    position=st.binary(max_size=9),
    operation=st.sampled_from(["create", "update", "delete", "snapshot"]),
    namespace=st.none() | texts,
    phase=st.sampled_from(["copy", "sync", "complete"]),
    metadata=st.dictionaries(texts | st.just(PHASE), texts, max_size=3),
    timestamp=st.none() | moments,
)


def exact(made: Any, came: Any) -> bool:
    """Equal, and of the same types but for the one stated change."""
    if type(made) is float and made.is_integer() and abs(made) <= 2**53 and copysign(1, made) * (made or 1) > 0:
        return type(came) is int and came == made
    if type(made) is not type(came):
        return False
    if isinstance(made, dict):
        return made.keys() == came.keys() and all(exact(made[key], came[key]) for key in made)
    if isinstance(made, list):
        return len(made) == len(came) and all(map(exact, made, came))
    return bool(made == came)


@given(records)
@example(Record({"a": [1.0, 0.0, -0.0, -1.0, 2.0**53]}))
def test_what_is_accepted_comes_back_as_it_was(made: Record) -> None:
    came = again(made)
    assert exact([made.after, made.before, made.key], [came.after, came.before, came.key])
    assert fields(came)[:2] == fields(made)[:2]
    assert (came.namespace, came.phase) == (made.namespace, made.phase)
    # In an hour that the clocks leave out a datetime is equal to none of another zone.
    assert came.timestamp == (made.timestamp and made.timestamp.astimezone(UTC))
    ours = {CREATED, PHASE}
    assert {k: v for k, v in came.metadata.items() if k not in ours} == {
        k: v for k, v in made.metadata.items() if k not in ours
    }
    assert to_wire(came) == to_wire(made)


odd = st.recursive(
    good
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3)  # surrogates too
    | st.sampled_from([b"", AT, date(2026, 1, 1), Decimal(1), uuid.UUID(int=1), (), {1}, object(), int, ..., 1j]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(st.characters(), max_size=2) | st.integers() | st.none(), inner, max_size=3)
        | st.builds(in_dicts, st.integers(0, 40), inner)
        | st.builds(in_lists, st.integers(0, 60), inner)
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("after", "before", "key", "operation", "position", "phase"), odd),
            "timestamp": odd | st.datetimes(),
            "metadata": odd | st.dictionaries(odd.filter(lambda v: isinstance(v, str | int | None)), odd, max_size=2),
        },
    )
)
def test_anything_else_is_rejected_and_raises_nothing_else(given_fields: dict[str, Any]) -> None:
    made = Record(**given_fields)
    try:
        came = again(made)
    except Rejected:
        return
    assert exact([made.after, made.before, made.key], [came.after, came.before, came.key])
    assert fields(came)[:2] == fields(made)[:2]
    assert came.phase == made.phase
    assert came.timestamp == made.timestamp or made.timestamp is None


messages = st.builds(
    pb.Record,
    operation=st.integers(-1, 6),
    metadata=st.dictionaries(st.sampled_from([CREATED, PHASE, "m"]), texts | st.integers().map(str), max_size=3),
    payload=st.just(pb.Change()),
    key=st.none() | st.just(pb.Data(raw_data=b"")),
)


@given(messages)
def test_a_foreign_message_is_passed_on_as_it_was_or_rejected(message: pb.Record) -> None:
    try:
        came = from_wire(message)
    except Rejected:
        assert message.operation not in range(1, 5)
        return
    assert to_wire(came) == message


# --- what others have sent


def recorded(direction: str, role: str) -> Iterator[tuple[str, Records]]:
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for event in map(json.loads, path.open()):
            run = event["method"].endswith(f".{role}Plugin/Run") and event["direction"] == direction
            if run and event.get("bytes"):
                yield f"{path.name} {event['n']}", Records(base64.b64decode(event["bytes"]))


@needs_recordings
def test_every_record_that_the_go_sdk_sent_is_understood_and_made_again() -> None:
    sent = 0
    for name, batch in recorded("plugin→host", "Source"):
        assert list(to_records(from_records(batch))) == list(batch), name
        sent += len(batch)
    assert sent > 200


@needs_recordings
def test_of_what_a_host_sent_only_what_was_bad_on_purpose_changes_or_is_refused() -> None:
    refused, changed, same = {}, {}, 0
    for name, batch in recorded("host→plugin", "Destination"):
        try:
            came = from_records(batch)
            made = list(to_records(came))
        except Rejected as error:
            refused[name] = " ".join(error.records[0].split()[:3])
        except DecodeError:
            refused[name] = "no message"
        else:
            same += made == list(batch)
            if made != list(batch):
                changed[name] = [(r.key, r.after) for r in came]
    assert refused == {
        "bad_cases.jsonl 756": "operation is 0:",
        "bad_cases.jsonl 778": "operation is 99:",
        "bad_cases.jsonl 844": "after.x is a",  # NaN: it arrives, and is not sent on
        "bad_cases.jsonl 866": "no message",
        "bad_cases.jsonl 886": "no message",
    }
    assert (
        changed
        == {  # no payload, then data and values without their kind: null, and left out or said to be null from here on
            "bad_cases.jsonl 800": [(b"k", None)],
            "bad_cases.jsonl 822": [(None, None)],
            "extra.jsonl 133": [(b"k", {"a": None})],
            "extra.jsonl 158": [(b"k", None)],
        }
    )
    assert same > 50
