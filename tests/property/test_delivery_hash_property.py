"""The delivery hash over random and over very many inputs: equal exactly when what it names is equal."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges

pytestmark = pytest.mark.contract("C8", reason="pure function; taking a part out of it is what the property tries")

# Few letters and numbers, so that two draws are often equal, nearly equal, or the same letters with other borders.
ids = st.text('ab.",\\', max_size=3)
numbers = st.integers(0, 2)
positions = st.fixed_dictionaries({"size": numbers, "mtime": numbers, "from": numbers, "to": numbers})
ranges = st.builds(Range, ids, positions, st.integers(0, 9), st.integers(0, 9))
Named = tuple[str, str, int, str, list[Range]]
deliveries = st.tuples(ids, ids, numbers, ids, st.lists(ranges, max_size=3))


def _hash(d: Named) -> str:
    return delivery_hash(d[0], d[1], d[2], d[3], Ranges(tuple(d[4])))


def _identity(d: Named) -> object:
    """What the hash has to name, without any encoding: the ranges as a bag of real positions."""
    return d[:4], Counter((r.strand, tuple(sorted(r.position.items()))) for r in d[4])


@given(deliveries, deliveries)
@settings(max_examples=300, deadline=None)
def test_two_deliveries_have_one_hash_exactly_when_they_are_the_same(one: Named, other: Named) -> None:
    assert (_hash(one) == _hash(other)) == (_identity(one) == _identity(other))


@given(deliveries, st.data())
@settings(max_examples=300, deadline=None)
def test_a_change_of_any_one_part_changes_the_hash(delivery: Named, data: st.DataObject) -> None:
    other: list[object] = list(delivery)
    part = data.draw(st.integers(0, 4), label="part")
    other[part] = data.draw((ids, ids, numbers, ids, st.lists(ranges, max_size=3))[part], label="instead")
    changed: Named = tuple(other)  # type: ignore[assignment]
    assert (_hash(changed) == _hash(delivery)) == (_identity(changed) == _identity(delivery))


@settings(deadline=None)
@given(st.text('ab.",\\', min_size=1, max_size=5), st.data())
def test_a_border_moved_between_two_ids_changes_the_hash(text: str, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2, unique=True), label="borders")
    for between in (_pipeline_and_lane, _lane_and_destination, _strand_and_key):
        assert _hash(between(text[:one], text[one:])) != _hash(between(text[:other], text[other:]))


def _pipeline_and_lane(left: str, right: str) -> Named:
    return left, right, 1, "d", []


def _lane_and_destination(left: str, right: str) -> Named:
    return "p", left, 1, right, []


def _strand_and_key(left: str, right: str) -> Named:
    return "p", "l", 1, "d", [Range(left, {right: 1})]


@settings(deadline=None)
@given(st.lists(ranges, max_size=5), st.randoms(use_true_random=False))
def test_shuffled_ranges_keep_the_hash(given_ranges: list[Range], chance: object) -> None:
    shuffled = list(given_ranges)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _hash(("p", "l", 1, "d", shuffled)) == _hash(("p", "l", 1, "d", given_ranges))


def _snapshots(count: int) -> Iterator[Named]:
    """Different snapshots that lie close together: each part in turn differs from its neighbour by one."""
    for n in itertools.islice(itertools.count(), count):
        low, high = n % 10, n // 10
        parts = [0] * 10
        parts[low] = high  # high > 0 in one of ten places
        if high == 0:
            parts = [0] * 9 + [-1 - low]
        position = {"size": parts[0], "mtime": parts[1], "from": parts[2], "to": parts[3]}
        first = Range(f"/in/{parts[4]}.txt", position)
        second = Range("/in/second.txt", {"size": 0, "mtime": 0, "from": 0, "to": parts[5]})
        yield f"p{parts[6]}", f"l{parts[7]}", parts[8], f"d{parts[9]}", [first, second]


@pytest.mark.thorough
def test_two_hundred_thousand_different_snapshots_have_as_many_hashes() -> None:
    assert len({_hash(d) for d in _snapshots(200_000)}) == 200_000


@pytest.mark.long
def test_a_million_different_snapshots_have_as_many_hashes() -> None:
    assert len({_hash(d) for d in _snapshots(1_000_000)}) == 1_000_000
