"""Open payloads in the log: what goes in comes out, with its types; what can't is refused and named."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import Rejected
from penstock.log import values
from penstock.log.values import ObjectId

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # also halves of surrogate pairs
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**2040, max_value=2**2060),
    st.floats(),
    ANY_TEXT,
    st.binary(),
    st.dates(),
    st.times(),
    st.times(timezones=OFFSETS),
    st.datetimes(),
    st.datetimes(timezones=OFFSETS),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.binary(min_size=12, max_size=12).map(ObjectId),
)
KEYS = ANY_TEXT | st.sampled_from(["$date", "$map", "$", "$oid", "$text"])
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=8)
PAYLOADS = st.dictionaries(KEYS, VALUES, max_size=4)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types to the last detail: True is not 1, 0.0 is not -0.0, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, Decimal):
        return bool(a.as_tuple() == b.as_tuple())
    if isinstance(a, datetime | time):
        return bool(a == b and a.utcoffset() == b.utcoffset())
    return bool(a == b)


def back(value: dict[str, Any]) -> dict[str, Any]:
    text, extended = values.encode(value)
    text.encode()  # it has UTF-8
    return values.decode(text, extended)


@given(PAYLOADS)
@example({"$date": "2024-01-01"})
@example({"a": {"$date": "2024-01-01"}, "b": b""})
@example({"a": {"$map": []}, "b": b""})
@example({"a": datetime(2000, 1, 1, tzinfo=timezone(timedelta(microseconds=-1)))})
@example({"a": time(1, 2, 3, 4, timezone(timedelta(microseconds=1)))})
@example({"a": "\ud83d\ude00"})
@example({"a": {"\ud800": 1, "b": 2}})
def test_any_payload_comes_back_with_its_types(payload: dict[str, Any]) -> None:
    assert same(back(payload), payload)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
        max_leaves=8,
    )
)
def test_what_plain_json_has_is_plain_json_for_every_reader(value: Any) -> None:
    text, extended = values.encode({"v": value})
    assert not extended
    assert same(json.loads(text), {"v": value})


@pytest.mark.parametrize(
    ("value", "tagged"),
    [
        (date(2024, 2, 29), {"$date": "2024-02-29"}),
        (time(23, 59, 59, 1), {"$time": "23:59:59.000001"}),
        (datetime(2024, 2, 29, 1, 2, 3), {"$datetime": "2024-02-29T01:02:03"}),
        (datetime(1, 1, 1, 0, 0, 0, 5, UTC), {"$datetime": "0001-01-01T00:00:00.000005+00:00"}),
        (timedelta(-1, 2, 3), {"$duration": [-1, 2, 3]}),
        (b"\x00\xff", {"$binary": "AP8="}),
        (Decimal("1.500E+3"), {"$decimal": "1500"}),
        (Decimal("-1.50E-30"), {"$decimal": "-1.50E-30"}),
        (Decimal("sNaN12"), {"$decimal": "sNaN12"}),
        (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
        (ObjectId(bytes(range(12))), {"$oid": "000102030405060708090a0b"}),
        (float("-inf"), {"$float": "-inf"}),
        (float("nan"), {"$float": "nan"}),
        (-(16**600), {"$int": "-0x1" + "0" * 600}),
        ("\ud800", {"$text": "7aCA"}),
    ],
)
def test_the_tags_are_those_of_the_format(value: Any, tagged: dict[str, Any]) -> None:
    text, extended = values.encode({"a": [value], "x": b""})
    assert extended
    assert json.loads(text)["a"] == [tagged]
    assert same(values.decode(text, True)["a"], [value])


def test_a_plain_object_that_looks_like_a_tag_stays_plain() -> None:
    assert values.encode({"$date": "2024-01-01"}) == ('{"$date":"2024-01-01"}', False)


def test_in_extended_json_an_object_that_looks_like_a_tag_is_escaped() -> None:
    payload = {"a": {"$binary": "AP8="}, "b": b"x", "c": {"$x": 1, "$y": 2}}
    text, extended = values.encode(payload)
    assert extended
    assert json.loads(text) == {"a": {"$map": [["$binary", "AP8="]]}, "b": {"$binary": "eA=="}, "c": {"$x": 1, "$y": 2}}
    assert values.decode(text, extended) == payload


def test_integers_of_any_size_are_exact_and_stay_integers() -> None:
    digits = sys.get_int_max_str_digits()
    for number in (2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400, 10 ** (digits + 10), -(10 ** (digits + 10))):
        assert same(back({"n": number}), {"n": number})
    assert same(back({"n": 10.0**22, "m": -0.0}), {"n": 10.0**22, "m": -0.0})


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Word(str):
    pass


class Number(float):
    pass


class Instant(datetime):
    """As pandas.Timestamp: more exact than a datetime."""

    nanosecond = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instant) and super().__eq__(other)

    __hash__ = datetime.__hash__


@pytest.mark.parametrize("extra", [None, b"so that it is extended"])
def test_classes_derived_from_a_kept_one_come_back_as_that_one(extra: bytes | None) -> None:
    given_ = {"a": Colour.RED, "b": Size.LARGE, "c": Word("w"), "d": Number(-0.0), "e": OrderedDict(x=1), "f": extra}
    plain = {"a": "red", "b": 3, "c": "w", "d": -0.0, "e": {"x": 1}, "f": extra}
    assert same(back(given_), plain)


class Foreign:
    """What `bson` calls so."""

    def __init__(self, binary: bytes) -> None:
        self.binary = binary


Foreign.__name__ = "ObjectId"


def test_object_ids_of_other_libraries_are_kept() -> None:
    theirs = Foreign(bytes(12))
    ours = back({"_id": theirs})["_id"]
    assert type(ours) is ObjectId
    assert ours == theirs
    assert theirs == ours
    assert hash(ours) == hash(theirs.binary)
    assert str(ours) == "00" * 12
    assert ours != ObjectId(bytes(11) + b"\1")


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize(
    ("payload", "path", "why"),
    [
        ({"a": {"b": [0, (1,)]}}, "after.a.b[1]", "tuple"),
        ({"a": {1}}, "after.a", "set"),
        ({"a": bytearray(b"x")}, "after.a", "bytearray"),
        ({"a": {1: 2}}, "after.a", "the key 1 of type int"),
        ({"a": {"1": 1, 1: 2}}, "after.a", "the key 1 of type int"),
        ({1: 2}, "after", "the key 1"),
        ({"a": {None: 1}}, "after.a", "NoneType"),
        ({"a": [object()]}, "after.a[0]", "builtins.object"),
        ({"a": enum.Enum("E", "X").X}, "after.a", "E"),  # type: ignore[attr-defined]
        ({"a": Foreign(b"short")}, "after.a", "Foreign"),
        ({"a": Instant(2024, 1, 1)}, "after.a", "with more in it than a datetime has"),
        ({"a": 1j}, "after.a", "complex"),
        (CIRCLE, "after.self.self", "nested more than 200 levels deep"),
    ],
)
def test_what_cant_be_kept_is_refused_and_named(payload: Any, path: str, why: str) -> None:
    with pytest.raises(Rejected) as refused:
        values.encode(payload, "after")
    assert refused.value.code == "log.value"
    assert path in refused.value.what
    assert why in refused.value.why
    assert refused.value.hint
    assert len(str(refused.value)) < 500


def nested(levels: int, leaf: Any) -> dict[str, Any]:
    for _ in range(levels - 1):
        leaf = [leaf]
    return {"a": leaf}


@pytest.mark.parametrize("leaf", [1, b"x"])
def test_nesting_has_a_limit_that_every_reader_can_reach(leaf: Any) -> None:
    assert back(nested(200, leaf)) == nested(200, leaf)
    with pytest.raises(Rejected, match="can't keep a"):
        values.encode(nested(201, leaf))


def test_many_brackets_are_no_nesting() -> None:
    payload = {"a": "[{" * 500, "b": [[] for _ in range(500)]}
    assert values.encode(payload)[1] is False
    assert back(payload) == payload


@pytest.mark.parametrize(
    ("text", "extended", "says"),
    [
        ("", False, "not JSON"),
        ("[1]", False, "list"),
        ('{"a":1}}', False, "not JSON"),
        ('{"a":1e999}', False, "not JSON"),
        ("[" * 100_000, False, "deep"),
        ('{"a":{"$new":1}}', True, "newer Penstock"),
        ('{"a":{"$date":"soon"}}', True, "not extended JSON"),
        ('{"a":{"$date":1}}', True, "$date has a str"),
        ('{"a":{"$binary":"?"}}', True, "not extended JSON"),
        ('{"a":{"$decimal":"x"}}', True, "not extended JSON"),
        ('{"a":{"$duration":[1e300,"x"]}}', True, "not extended JSON"),
        ('{"a":{"$oid":"00"}}', True, "12 bytes"),
        ('{"a":{"$map":[1]}}', True, "not extended JSON"),
        ('{"a":{"$map":[[1,2]]}}', True, "a key is a string"),
        ('{"a":{"$int":"0xg"}}', True, "not extended JSON"),
        ('{"$date":"2024-01-01"}', True, "date"),
    ],
)
def test_text_that_is_no_payload_is_a_value_error(text: str, extended: bool, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("$", r"\$")):
        values.decode(text, extended)


@given(st.text() | PAYLOADS.map(lambda p: json.dumps(p, default=str)), st.booleans())
def test_no_text_raises_anything_but_a_value_error(text: str, extended: bool) -> None:
    try:
        assert isinstance(values.decode(text, extended), dict)
    except ValueError:
        pass
