"""Answers of a program: the expected ones are compared as bytes, others looked into."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.host import joining
from penstock.host.joining import BYTES
from penstock.host.link import _Sent
from penstock.host.messages import acks_of
from penstock.host.outgoing import MESSAGE, Messages
from penstock_protocol.interfaces import Ack
from penstock_protocol.pb.connector.v2.destination_pb2 import Destination

Response = Destination.Run.Response


def message(*acks: tuple[bytes, str]) -> bytes:
    return bytes(Response(acks=[Response.Ack(position=p, error=e) for p, e in acks]).SerializeToString())


def sent(positions: Sequence[bytes]) -> _Sent:
    return _Sent(positions, b"".join(acks_of(pa.array(positions, pa.binary())).to_pylist()))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=200), st.just(b"x" * 20_000)), max_size=20))
def test_what_is_expected_is_what_protobuf_writes(positions: list[bytes | None]) -> None:
    found = acks_of(pa.array(positions, pa.binary())).to_pylist()
    assert b"".join(found) == message(*((p or b"", "") for p in positions))
    assert found == [message((p or b"", "")) for p in positions]


@pytest.mark.parametrize("pieces", [[5], [1, 1, 1, 1, 1], [2, 3], [4, 1]])
def test_answers_as_they_are_expected_need_no_look(pieces: list[int]) -> None:
    positions = [b"p%d" % i for i in range(5)]
    found = sent(positions)
    ends = list(itertools.accumulate(pieces))
    for start, end in zip([0, *ends], ends, strict=False):
        assert not found.done.is_set()
        assert found.take_all(message(*((p, "") for p in positions[start:end])))
    assert found.done.is_set()
    assert found.answers == [""] * 5


def test_behind_good_answers_others_are_looked_into() -> None:
    positions = [b"p%d" % i for i in range(5)]
    found = sent(positions)
    assert found.take_all(message((b"p0", ""), (b"p1", "")))
    bad = message((b"p2", "no"))
    assert not found.take_all(bad)
    assert found.take(Ack(b"p2", "no"))
    assert not found.take_all(message((b"p3", ""))), "from now on one by one"
    for p in (b"p4", b"p3"):
        assert found.take(Ack(p, ""))
    assert found.done.is_set()
    assert found.answers == ["", "", "no", "", ""]


def test_an_answer_that_was_given_already_is_not_taken_again() -> None:
    found = sent([b"a", b"b"])
    assert found.take_all(message((b"a", "")))
    assert not found.take_all(message((b"a", "")))
    assert not found.take(Ack(b"a", ""))
    assert found.take(Ack(b"b", ""))


def test_records_with_the_same_position_are_answered_in_their_order() -> None:
    found = sent([b"a", b"a", b"a"])
    assert found.take_all(message((b"a", "")))
    for error in ("", "no"):
        assert found.take(Ack(b"a", error))
    assert found.answers == ["", "", "no"]


# -- messages ----------------------------------------------------------------------------------------------------------------


def messages(sizes: Sequence[int], bad: Sequence[int] = ()) -> Messages:
    data = pa.array([b"x" * n for n in sizes], BYTES)
    acks = pa.array([b"%d" % i for i in range(len(sizes))], BYTES)
    positions = [b"%d" % i for i in range(len(sizes))]
    return Messages([(i, 0) for i in range(len(sizes))], positions, data, acks, {i: f"bad {i}" for i in bad})


def test_a_batch_is_not_larger_than_a_message_unless_a_record_is() -> None:
    half = MESSAGE // 2
    found = messages([10, half, half, MESSAGE * 2, 5, 5])
    assert found.end(0, 1000) == 2
    assert found.end(2, 1000) == 3
    assert found.end(3, 1000) == 4
    assert found.end(4, 1000) == 6
    assert found.end(4, 1) == 5


def test_a_batch_ends_before_a_record_that_cannot_be_sent() -> None:
    found = messages([1] * 10, bad=[3, 4])
    assert found.end(0, 1000) == 3
    assert [found.unfit(i) for i in (2, 3, 4, 5)] == [None, "bad 3", "bad 4", None]
    rest = found.part(4, 8)
    assert (rest.unfit(0), rest.unfit(1)) == ("bad 4", None)
    assert rest.end(1, 1000) == 4
    chosen = found.only([0, 4, 9])
    assert [chosen.unfit(i) for i in range(3)] == [None, "bad 4", None]
    assert chosen.positions == [b"0", b"4", b"9"]


def test_the_bytes_of_a_part_are_those_of_its_records() -> None:
    found = messages([1, 2, 3, 4])
    assert found.data == b"x" * 10
    assert found.part(1, 3).data == b"x" * 5
    assert found.part(1, 3).acks == b"12"
    assert found.part(1, 4).part(1, 2).acks == b"2"
    assert found.only([0, 3]).data == b"x" * 5


@given(st.lists(st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152]), min_size=1, max_size=4))
def test_lengths_of_any_size_are_written_as_protobuf_writes_them(sizes: list[int]) -> None:
    column = joining.column(pa.array([b"y" * n for n in sizes], pa.binary()))
    found = joining.joined(joining.field(b"\x0a", column), len(sizes)).to_pylist()
    assert found == [b"\x0a" + joining.varint(n) + b"y" * n for n in sizes]
    assert list(joining.field(b"\x0a", column).size) == [len(one) for one in found]
