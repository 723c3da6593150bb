"""What of `kafka` as a destination needs neither Spark nor a broker: settings, who writes what, the book, the forms of records."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.connectors.kafka.book import Book
from penstock.connectors.kafka.destination_settings import KafkaDestinationSettings
from penstock.connectors.kafka.messages import Form, read
from penstock.connectors.kafka.sharing import Part, shares
from penstock.connectors.kafka.topics import TOPIC_KEY, TopicOf
from penstock.connectors.kafka.writing import Outcome
from penstock.errors import Stop
from penstock.native import DeliveryId, Receipt, Refusal
from penstock.native import Record as NativeRecord
from penstock.testing import faults
from tests.support.forgetful import Forgetful

SERVERS = {"servers": "h:9092"}


def made(**given: Any) -> KafkaDestinationSettings:
    return KafkaDestinationSettings.model_validate({**SERVERS, **given})


# -- settings ----------------------------------------------------------------------------------------------------------------------------


def test_without_more_the_namespace_is_the_topic_and_whole_records_are_written() -> None:
    s = made()
    assert (s.fixed, s.by_namespace, s.format, s.compression, s.batch_bytes) == (
        None,
        True,
        "opencdc",
        "snappy",
        1_000_012,
    )
    assert made(topic="orders").fixed == "orders"
    assert not made(topic="{{ .Payload.After.to }}").by_namespace


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "no name"}, "must be the name of a topic"),
        ({"topic": ".."}, "must be the name of a topic"),
        ({"topic": "x" * 250}, "must be the name of a topic"),
        ({"topic": "{{ .Payload.After"}, "must be a template"),
        ({"acks": "one"}, "must have `acks: all`"),
        ({"deliveryTimeout": "10m"}, "must not have a `deliveryTimeout` above"),
        ({"batchBytes": "10"}, "greater than or equal"),
        ({"typo": "x"}, "Extra inputs"),
    ],
)
def test_what_can_never_work_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        made(**given)


# -- who writes what ---------------------------------------------------------------------------------------------------------------------


def test_files_of_a_strand_stay_together_in_their_order_and_others_are_spread() -> None:
    a1, a2 = Part("a1", 10, 0, 9), Part("a2", 10, 10, 19)
    b, c = Part("b", 5, 100, 104), Part("c", 5, 200, 204)
    assert shares([a1, a2, b, c], [0, 100, 200], 2) == [[a1, a2], [b, c]]
    assert shares([a1, a2, b, c], [], 8) == [[a1, a2, b, c]]
    assert shares([], [0], 2) == []
    across = Part("x", 1, 15, 150)  # a file that holds the end of one and the beginning of another
    assert shares([a1, b, across, c], [0, 100, 200], 8) == [[a1, b, across], [c]]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60), st.integers(0, 50)), max_size=12), st.integers(1, 5))
def test_every_file_has_one_writer_and_no_strand_has_two(found: list[tuple[int, int, int]], writers: int) -> None:
    bases = list(range(0, 500, 50))
    parts = [Part(f"{i}", rows, low, low + width) for i, (low, width, rows) in enumerate(found)]
    given = shares(parts, bases, writers)
    assert sorted(p.name for share in given for p in share) == sorted(p.name for p in parts if p.rows)
    assert len(given) <= writers
    owner: dict[int, int] = {}
    for n, share in enumerate(given):
        for part in share:
            for strand in range(part.low // 50, part.high // 50 + 1):
                assert owner.setdefault(strand, n) == n
        strands = {s for p in share for s in range(p.low // 50, p.high // 50 + 1)}
        for strand in strands:
            names = [int(p.name) for p in share if p.low // 50 <= strand <= p.high // 50]
            assert names == sorted(names)


# -- the book ----------------------------------------------------------------------------------------------------------------------------


def _delivery(fence: int = 3, epoch: int = 7, batch: int = 1) -> DeliveryId:
    return DeliveryId("p", "in", "out", batch, f"{batch}".ljust(32, "0"), fence, epoch)


def test_only_the_newest_try_may_write_and_an_older_engine_gets_none(tmp_path: Path) -> None:
    book = Book(tmp_path / "lane")
    first = book.take(_delivery())
    assert book.is_newest(first)
    second = book.take(_delivery(fence=4))
    assert not book.is_newest(first)
    assert book.is_newest(second)
    with pytest.raises(Stop, match="newer engine"):
        book.take(_delivery(fence=3))
    assert book.is_newest(second)
    assert book.is_newest(book.take(_delivery(fence=1, epoch=8)))  # another state folder's


def test_without_their_safeguards_they_would_write(tmp_path: Path) -> None:
    book = Book(tmp_path / "lane")
    first = book.take(_delivery(fence=4))
    faults.install(off=("fence", "kafka-fence"))
    try:
        book.take(_delivery(fence=3))
        assert book.is_newest(first)
    finally:
        faults.install()


def test_a_note_says_where_the_last_delivery_is_and_half_of_one_says_nothing(tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.take(_delivery())
    assert book.noted(_delivery()) is None
    receipt = Receipt(2, made=("t",), refused=(Refusal(5, 0, "too large", "kafka.too-large"),))
    book.note(_delivery(), receipt, [("t", 1, 17)])
    assert book.noted(_delivery()) == (receipt, [("t", 1, 17)])
    assert book.noted(_delivery(batch=2)) is None
    (tmp_path / "last.json").write_bytes(b'{"vers')
    assert book.noted(_delivery()) is None


def test_a_note_survives_a_power_cut(tmp_path: Path) -> None:
    """What was staged is removed behind it: without both nobody could tell what Kafka has."""
    for seed in range(20):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = Forgetful(root)
        faults.install(disk.hook)
        try:
            book = Book(root)
            book.take(_delivery())
            book.note(_delivery(), Receipt(2, made=("t",)), [("t", 1, 17)])
        finally:
            faults.install()
        disk.crash(random.Random(seed).randrange)
        assert Book(root).noted(_delivery()) is not None


def test_a_book_of_another_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "writer.json").write_text(json.dumps({"version": 2}))
    with pytest.raises(Stop, match="another version"):
        Book(tmp_path).take(_delivery())


def test_an_outcome_goes_through_json() -> None:
    o = Outcome(3, 5, ("t", 0, 7), (Refusal(1, 2, "w", "kafka.topic"),))
    assert Outcome.from_json(o.to_json()) == o


# -- records -----------------------------------------------------------------------------------------------------------------------------

_WHEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def _file(folder: Path, **columns: Any) -> Path:
    n = len(next(iter(columns.values())))
    base = {"seq": pa.array(range(n), pa.int64()), "part": pa.array([0] * n, pa.int32()), "operation": ["create"] * n}
    pq.write_table(pa.table({**base, "key": pa.nulls(n, pa.binary()), **columns}), folder / "part-0")
    return folder


def _form(*columns: str, **more: Any) -> Form:
    given: dict[str, Any] = {
        "topic": "t",
        "by": None,
        "opencdc": False,
        "headers": False,
        "raw": ("after", "key"),
        **more,
    }
    return Form(columns=("seq", "part", "operation", "key", *columns), **given)


def test_a_delete_is_a_tombstone_and_parts_have_ids_of_their_own(tmp_path: Path) -> None:
    part = pa.array([0, 0, 1], pa.int32())
    _file(
        tmp_path, after=[b"a", b"b", b"c"], operation=["create", "delete", "update"], seq=pa.array([5, 6, 6]), part=part
    )
    [m] = read(tmp_path, ["part-0"], _form("after"))
    assert (m.values, m.ids, m.keys, m.topics) == ([b"a", None, b"c"], [b"5", b"6", b"6.1"], None, "t")


def test_headers_of_the_source_get_their_names_back_and_ours_are_not_doubled(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.string())
    entries = {
        "kafka.header.x": "1",
        "kafka.header.penstock.hash": "f",
        "kafka.headers": "[]",
        "own": "2",
        TOPIC_KEY: "u",
    }
    _file(tmp_path, after=[b"a"], metadata=pa.array([list(entries.items())], kind))
    [m] = read(tmp_path, ["part-0"], _form("after", "metadata", headers=True, topic=None, by="metadata"))
    assert m.headers == [[("x", b"1"), ("own", b"2")]]
    assert m.topics == ["u"]


def test_whole_records_are_as_conduit_writes_them(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.string())
    _file(
        tmp_path,
        after=['{"b": 1, "a": "<"}', "no object", '{"n": 9007199254740993}'],
        key=[b"k", None, b"\xff"],
        metadata=pa.array([[("m", "1")], None, []], kind),
        timestamp=[_WHEN] * 3,
        namespace=["n", None, None],
        phase=["sync"] * 3,
        position=[b"p", b"q", b"r"],
    )
    names = ("after", "metadata", "timestamp", "namespace", "phase", "position")
    [m] = read(tmp_path, ["part-0"], _form(*names, opencdc=True, raw=("key",)))
    first = '{"position":"cA==","operation":"create","metadata":{"m":"1","opencdc.collection":"n","opencdc.createdAt":'
    assert m.values[0].decode() == (
        first + '"1767323045678000000"},"key":"aw==","payload":{"before":null,"after":{"a":"\\u003c","b":1}}}'
    )
    assert json.loads(m.values[1])["payload"]["after"] == "bm8gb2JqZWN0"
    assert b"9007199254740993" in m.values[2]


def test_a_template_is_evaluated_for_each_record() -> None:
    p = TopicOf.of("{{ .Metadata.to }}-{{ .Operation }}", "out")
    r = NativeRecord(b"", metadata={"to": "x"})
    assert p.apply(r).metadata[TOPIC_KEY] == "x-create"
