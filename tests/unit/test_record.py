"""The record as user code sees it: copies, what is made only when asked for, and ids that must never change."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from penstock_sdk.record import DROP, Drop, Record, Reject, record_id


@pytest.mark.parametrize(
    "source, position, part, expected",
    [
        ("in", b"", 0, "de63aa55e86363ec83959f40d281a723"),
        ("in", b"/data/a.txt#17", 0, "33adb2961744c857c7d5cf1c86f2ff56"),
        ("in", b"/data/a.txt#17", 1, "5898dfcd54b2fdd2de91524844d222de"),
        ("ü", b"\x00\xff", 2**31 - 1, "d61f9be59c747f5e523f7c33fa706f34"),
    ],
)
def test_an_id_is_what_it_always_was(source: str, position: bytes, part: int, expected: str) -> None:
    """Golden: idempotent code out there has stored these."""
    assert record_id(source, position, part) == expected
    assert Record(source=source, position=position, part=part).id == expected


def test_ids_of_different_records_differ_however_their_parts_are_cut() -> None:
    names = [("a", b"bc", 0), ("ab", b"c", 0), ("abc", b"", 0), ("", b"abc", 0), ("a", b"bc", 1), ("a", b"b", 99)]
    assert len({record_id(*n) for n in names}) == len(names)


def test_an_id_does_not_depend_on_seq_or_payload() -> None:
    a = Record(b"x", source="s", position=b"p", seq=1)
    assert a.id == Record(b"y", source="s", position=b"p", seq=2, operation="update").id


def test_a_record_has_defaults() -> None:
    r = Record()
    assert (r.after, r.before, r.key, r.position, r.metadata, r.namespace, r.timestamp) == (
        None,
        None,
        None,
        b"",
        {},
        None,
        None,
    )
    assert (r.operation, r.phase, r.source, r.seq, r.part) == ("create", "sync", "", 0, 0)


def test_two_records_share_no_metadata() -> None:
    one, other = Record(), Record()
    one.metadata["a"] = "1"
    assert other.metadata == {}


def test_a_copy_has_the_changes_and_shares_only_payloads() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    after = {"x": [1]}
    r = Record(
        after, before=b"b", key=b"k", position=b"p", operation="update", namespace="n", phase="copy",
        metadata={"m": "1", "opencdc.collection": "n"}, timestamp=at, source="s", seq=5, part=2,
    )  # fmt: skip
    copy = r.derive(key=b"new", operation="delete")
    assert (copy.key, copy.operation) == (b"new", "delete")
    assert (r.key, r.operation) == (b"k", "update")
    for name in ("before", "position", "namespace", "phase", "timestamp", "source", "seq", "part", "id"):
        assert getattr(copy, name) == getattr(r, name)
    copy.metadata["m"] = "2"
    assert r.metadata == {"m": "1", "opencdc.collection": "n"}
    assert copy.after is after


def test_a_copy_with_other_metadata_keeps_its_position() -> None:
    r = Record(b"", seq=3, locate=lambda seq: (b"#%d" % seq, {"file": "f"}))
    copy = r.derive(metadata={"a": "b"})
    assert (copy.position, copy.metadata) == (b"#3", {"a": "b"})
    assert r.metadata == {"file": "f"}


@pytest.mark.parametrize("name", ["nothing", "afterr", "position", "id"])
def test_a_copy_with_a_field_that_can_not_be_set_is_an_error(name: str) -> None:
    with pytest.raises(AttributeError):
        Record().derive(**{name: b"x"})


def test_a_typing_mistake_in_a_field_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Record().aftr = b"x"  # type: ignore[attr-defined]


def test_the_place_is_looked_up_once_and_only_when_asked_for() -> None:
    asked: list[int] = []

    def locate(seq: int) -> tuple[bytes, dict[str, str]]:
        asked.append(seq)
        return b"#%d" % seq, {"file": "f"}

    r = Record(b"a", seq=9, locate=locate)
    copy = r.derive(after=b"b")
    assert "9" in repr(r)
    assert asked == []
    assert (r.position, r.metadata, r.position) == (b"#9", {"file": "f"}, b"#9")
    assert asked == [9]
    assert copy.metadata == {"file": "f"}
    assert asked == [9, 9]
    copy.metadata["x"] = "1"
    assert r.metadata == {"file": "f"}


def test_metadata_that_was_set_is_not_overwritten_by_the_look_up() -> None:
    r = Record(b"a", seq=9, locate=lambda seq: (b"p", {"file": "f"}))
    r.metadata = {"mine": "1"}
    assert (r.position, r.metadata) == (b"p", {"mine": "1"})


def test_the_id_of_a_record_whose_place_is_elsewhere_is_the_same() -> None:
    r = Record(b"a", source="in", seq=17, locate=lambda seq: (f"/data/a.txt#{seq}".encode(), {}))
    assert r.id == record_id("in", b"/data/a.txt#17")


def test_a_reject_has_a_reason_and_a_code() -> None:
    assert (Reject("why").reason, Reject("why").code) == ("why", "processor.rejected")
    assert Reject("why", "x.y").code == "x.y"


def test_drop_reads_as_what_it_is() -> None:
    assert repr(DROP) == "DROP"
    assert isinstance(DROP, Drop)


def test_drop_is_one_object_in_every_process() -> None:
    """A processor in a notebook is sent to Spark by value, with the DROP it refers to."""
    assert pickle.loads(pickle.dumps(DROP)) is DROP


def test_a_record_survives_pickle() -> None:
    r = pickle.loads(pickle.dumps(Record({"a": 1}, position=b"p", metadata={"m": "1"}, seq=3)))
    assert (r.after, r.position, r.metadata, r.seq) == ({"a": 1}, b"p", {"m": "1"}, 3)


def test_the_namespace_is_a_key_of_the_metadata_both_ways() -> None:
    given = {"m": "1"}
    r = Record(b"a", namespace="n", metadata=given)
    assert r.metadata == {"m": "1", "opencdc.collection": "n"}
    assert given == {"m": "1"}
    r.metadata["opencdc.collection"] = "x"
    assert r.namespace == "x"
    r.namespace = "y"
    assert r.metadata["opencdc.collection"] == "y"
    r.namespace = None
    assert "opencdc.collection" not in r.metadata
    r.metadata = {"opencdc.collection": "z"}
    assert [r.namespace] == ["z"]
    assert r.derive(namespace="w").metadata == {"opencdc.collection": "w"}
    assert Record(b"a", metadata={"opencdc.collection": "z"}).namespace == "z"


def test_the_namespace_of_a_located_record_joins_its_metadata_when_that_is_asked_for() -> None:
    r = Record(b"a", namespace="n", seq=7, locate=lambda seq: (b"%d" % seq, {"at": str(seq)}))
    assert r.namespace == "n"
    assert r.metadata == {"at": "7", "opencdc.collection": "n"}
    other = Record(b"a", seq=7, locate=lambda seq: (b"%d" % seq, {"opencdc.collection": "there"}))
    assert (other.metadata, other.namespace) == ({"opencdc.collection": "there"}, "there")
