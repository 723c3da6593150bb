"""References to a field of a record, with Conduit's rules: what is read, what is written, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Record
from penstock.plan.reference import PAYLOAD, RECORD, BadReference, Reference


@pytest.mark.parametrize(
    "text, root, path",
    [
        (".Payload.After", "after", ()),
        (".payload.after", "after", ()),
        (".payload.After.X", "after", ("X",)),  # each word of the fixed part may begin with a small letter
        (".Payload.after.X", "after", ("X",)),
        (".metadata.x", "metadata", ("x",)),
        (".operation", "operation", ()),
        ("$.Payload.After.x", "after", ("x",)),
        ("..Key.x", "key", ("x",)),
        ('.Payload["After"].x', "after", ("x",)),
        ('.Payload.After.a["b"].c', "after", ("a", "b", "c")),
        ('.Payload.After["a.b"]["c d"]', "after", ("a.b", "c d")),
        ('.Payload.After[""]', "after", ("",)),
        (r'.Payload.After["a\"b"]', "after", (r"a\"b",)),  # Conduit keeps the backslash
        (r'.Payload.After["\x"]', "after", (r"\x",)),
        (".Payload.After._1é世", "after", ("_1é世",)),
        (".Payload.After.٣", "after", ("٣",)),  # a digit, but none of 0 to 9
        (".Payload.Before.x.y", "before", ("x", "y")),
        (".Key", "key", ()),
        (".Key.id", "key", ("id",)),
        (".Metadata.x", "metadata", ("x",)),
        ('.Metadata["opencdc.collection"]', "metadata", ("opencdc.collection",)),
        (".Operation", "operation", ()),
        (".Position", "position", ()),
        ("after", "after", ()),
        ("after.x.y", "after", ("x", "y")),
        ("AFTER.x", "after", ("x",)),
        ("key.x", "key", ("x",)),
        ('after["a b"]["c.d"].e', "after", ("a b", "c.d", "e")),
        (r'after["a\"b"]', "after", ('a"b',)),
        (r'after["a\\"]', "after", ("a\\",)),
        (r'after["\\\""]', "after", ('\\"',)),
        ('after[""]', "after", ("",)),
        ("after.a-b.ü", "after", ("a-b", "ü")),
        ("after.0", "after", ("0",)),
        ("metadata.k", "metadata", ("k",)),
        ("namespace", "metadata", ("opencdc.collection",)),
    ],
)
def test_a_reference_is_a_column_and_a_way_into_it(text: str, root: str, path: tuple[str, ...]) -> None:
    assert Reference.parse(text) == Reference(root, path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "x",
        "payload.after",
        ".Payload",
        ".Payload.Aftr",
        ".Payload.AfterX",
        "afterx.y",
        ".Keys",
        " after",
        "after ",
        "after.",
        "after..x",
        "after.x.",
        "after[",
        "after[]",
        "after[0]",  # lists have no indexes
        "after.x[1]",
        "after['x']",  # double quotes only
        'after["x',
        'after["x"',
        'after["x"]y',
        'after."x"',
        "after.x]",
        ".Source",
        "seq",
        "$",
        "$x",
        "$..Key",
        "$ .Key",
        "..",
        '.["Key"]',
        ".PAYLOAD.After",
        ".Payload.AFTER",
        '.Payload["after"]',
        ".Payload.After.1",
        ".Payload.After.a-b",
        ".Payload.After.a b",
        ".Payload.After.x ",
        " .Payload.After.x",
        ".Payload.After.",
        ".Payload.After..x",
        '.Payload.After.["x"]',
        ".Payload.After['x']",
        '.Payload.After[ "x"]',
        '.Payload.After["x"',
        '.Payload.After["x\\"]',
        '.Payload.After["x\ny"]',
        '.Payload.After["x"]y',
        ".Payload.After.x]",
        ".Payload.After.²",
        ".Payload.After.½x",
        ".Payload.After.x\u0301",  # an accent of its own is no letter
        ".Metadata.a.b",
        "metadata.a.b",
        ".Operation.x",
        ".Position.x",
        "operation.x",
        "Payload.After.x",
    ],
)
def test_what_is_no_reference_is_refused_with_words_that_begin_with_must(text: str) -> None:
    with pytest.raises(BadReference) as caught:
        Reference.parse(text)
    assert str(caught.value).startswith("must")


def test_the_refusal_says_from_where_on_it_can_not_be_read() -> None:
    with pytest.raises(BadReference, match=r"'after\.x\[0\]' can't be read from '\[0\]' on"):
        Reference.parse("after.x[0]")


@pytest.mark.parametrize("text", ["", ".", "$"])
def test_the_record_and_both_payloads_are_references_where_they_are_asked_for(text: str) -> None:
    assert Reference.parse(text, whole=True) == Reference(RECORD, ())
    assert Reference.parse(".payload", whole=True) == Reference(PAYLOAD, ())
    with pytest.raises(BadReference):
        Reference.parse(text)


def test_a_key_of_the_metadata_with_points_in_it_is_written_in_brackets() -> None:
    with pytest.raises(BadReference, match=r'\.Metadata\["opencdc\.collection"\]'):
        Reference.parse(".Metadata.opencdc.collection")


def get(text: str, r: Record) -> Any:
    return Reference.parse(text).get(r)


def test_a_field_is_found_in_each_place() -> None:
    r = Record({"x": {"y": 1}}, before={"b": None}, key=b"k", metadata={"m": "1"}, operation="update", position=b"p")
    assert get("after.x.y", r) == 1
    assert get("after", r) is r.after
    assert get("before.b", r) is None
    assert get("key", r) == b"k"
    assert get(".Metadata.m", r) == "1"
    assert get(".Operation", r) == "update"
    assert get(".Position", r) == b"p"


@pytest.mark.parametrize("after", [None, {}, {"x": None}, {"x": {}}, {"x": {"y": None}}])
def test_what_is_missing_on_the_way_is_nothing(after: Any) -> None:
    assert get("after.x.y.z", Record(after)) is None


@pytest.mark.parametrize("after", [b"raw", {"x": 1}, {"x": "text"}, {"x": []}, {"x": {"y": [1]}}])
def test_a_way_through_something_that_is_no_object_is_an_error(after: Any) -> None:
    with pytest.raises(TypeError, match=r"after\.x\.y\.z can't be found"):
        get("after.x.y.z", Record(after))


@pytest.mark.parametrize(
    "before, after",
    [
        (None, {"x": {"y": "v"}}),  # on an absent payload it makes structured data
        ({}, {"x": {"y": "v"}}),
        ({"x": None}, {"x": {"y": "v"}}),  # below null too
        ({"x": {"y": 1, "z": 2}, "a": 3}, {"x": {"y": "v", "z": 2}, "a": 3}),
    ],
)
def test_setting_makes_what_is_missing_on_the_way_and_keeps_the_rest(before: Any, after: Any) -> None:
    r = Record(before)
    Reference.parse("after.x.y").set(r, "v")
    assert r.after == after


@pytest.mark.parametrize("payload", [b"raw", "text", 5, [], {"x": 1}, {"x": "t"}, {"x": []}])
def test_setting_below_a_scalar_is_an_error_and_changes_nothing(payload: Any) -> None:
    r = Record(payload)
    before = repr(payload)
    with pytest.raises(TypeError, match="can't be set"):
        Reference.parse("after.x.y").set(r, "v")
    assert repr(r.after) == before


def test_each_place_can_be_set() -> None:
    r = Record(b"a", metadata={"m": "1"})
    for text, value in (
        (".Key", b"k"),
        ("before.x", 1),
        (".Metadata.n", "2"),
        (".Operation", "delete"),
        ("after", b""),
    ):
        Reference.parse(text).set(r, value)
    assert (r.key, r.before, r.metadata, r.operation, r.after) == (b"k", {"x": 1}, {"m": "1", "n": "2"}, "delete", b"")


def test_put_changes_an_object_in_place_and_makes_one_where_there_is_none() -> None:
    payload: dict[str, Any] = {"a": 1}
    assert Reference.parse("after.b").put(payload, 2) is payload
    assert payload == {"a": 1, "b": 2}
    assert Reference.parse("after.b").put(None, 2) == {"b": 2}


def test_setting_metadata_keeps_the_place_that_was_not_asked_for_yet() -> None:
    r = Record(b"", seq=7, locate=lambda seq: (b"#%d" % seq, {"file": "f"}))
    Reference.parse(".Metadata.x").set(r, "1")
    assert (r.position, r.metadata) == (b"#7", {"file": "f", "x": "1"})


def test_a_reference_reads_as_it_is_shown() -> None:
    assert str(Reference.parse(".Payload.After.x.y")) == "after.x.y"
