"""Where a batch is cut: which half every range goes to, and what the halves are called."""

from __future__ import annotations

import json

import pytest

from penstock.plan.hashing import delivery_hash
from penstock.ranges import Known, Range, Ranges

A = Range("a", {"from": 0, "to": 9}, base=10, size=9)  # records 10, 11, … below 20
B = Range("b", {"from": 0, "to": 9}, base=20, size=9)
C = Range("c", {"from": 0, "to": 9}, base=40, size=9)


def cut(r: Range, low: int | None, high: int | None) -> Range:
    return Range(r.strand, r.position, r.base, r.size, low, high)


def hash_of(*items: Range) -> str:
    return delivery_hash("p", "l", 1, "d", Ranges(items))


@pytest.mark.parametrize(
    ("at", "before", "after"),
    [
        (0, (), (A, B, C)),
        (10, (), (A, B, C)),
        (11, (cut(A, None, 11),), (cut(A, 11, None), B, C)),
        (20, (A,), (B, C)),
        (25, (A, cut(B, None, 25)), (cut(B, 25, None), C)),
        (40, (A, B), (C,)),
        (41, (A, B, cut(C, None, 41)), (cut(C, 41, None),)),
    ],
)
def test_at_most_one_range_is_cut_in_two(at: int, before: tuple[Range, ...], after: tuple[Range, ...]) -> None:
    for listed in ((A, B, C), (C, A, B)):  # a source may list its ranges in any order
        assert Ranges(listed, next_seq=50).split(at) == (Ranges(before, 50), Ranges(after, 50))


def test_a_half_is_cut_again_inside_its_own_borders() -> None:
    middle = Ranges((cut(B, 22, 28),))
    assert middle.split(25) == (Ranges((cut(B, 22, 25),)), Ranges((cut(B, 25, 28),)))
    for at in (10, 20, 21, 22):
        assert middle.split(at) == (Ranges(()), middle)
    for at in (28, 29, 99):
        assert middle.split(at) == (middle, Ranges(()))


def test_two_stretches_of_one_strand_stay_apart() -> None:
    low, high = cut(B, None, 25), cut(B, 25, None)
    assert Ranges((low, high)).split(25) == (Ranges((low,)), Ranges((high,)))


def test_nothing_splits_into_nothing() -> None:
    assert Ranges((), 50).split(25) == (Ranges((), 50), Ranges((), 50))


def test_an_uncut_range_is_written_as_it_always_was() -> None:
    assert A.to_json() == ["a", {"from": 0, "to": 9}, 10, 9]
    assert Ranges((A,), 50).to_json() == '{"next_seq":50,"ranges":[["a",{"from":0,"to":9},10,9]]}'
    assert not A.cut
    assert not Ranges((A, B)).cut


def test_a_range_written_before_there_were_splits_is_read_uncut() -> None:
    assert Ranges.from_json('{"next_seq":50,"ranges":[["a",{"from":0,"to":9},10,9]]}') == Ranges((A,), 50)


def test_a_cut_range_is_written_with_its_borders() -> None:
    for low, high in ((11, None), (None, 15), (11, 15)):
        one = cut(A, low, high)
        assert one.cut
        assert Ranges((one, B)).cut
        assert one.to_json() == ["a", {"from": 0, "to": 9}, 10, 9, low, high]
        assert Range.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_cut_goes_into_the_hash_relative_to_the_base() -> None:
    """The base is this ledger's own number; the same stretch of the same file has one name everywhere."""
    moved = Range("a", A.position, 110, 9, 112, 115)
    assert hash_of(moved) == hash_of(cut(A, 12, 15))
    different = [hash_of(cut(A, low, high)) for low, high in ((None, None), (12, None), (None, 12), (12, 15), (11, 15))]
    assert len(set(different)) == 5


def test_a_strand_is_acked_only_with_the_half_that_ends_it() -> None:
    known = Known({"a": A, "b": B}, 50, set())
    first, second = Ranges((A, B)).split(25)
    known.settled(first)
    assert known.acked == {"a"}
    known.settled(second)
    assert known.acked == {"a", "b"}
