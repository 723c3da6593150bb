"""However often a batch is split, every record is in exactly one of the pieces."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges

WIDTH = 400  # more seqs than any batch below has


@st.composite
def batches(draw: st.DrawFn) -> tuple[Ranges, dict[str, list[int]]]:
    """A batch of up to six strands with stretches of seqs of their own, and the seqs of each strand's records."""
    widths = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    start = draw(st.integers(0, 50))
    bases = list(accumulate(widths, initial=start))
    items, records = [], {}
    for n, (base, width) in enumerate(zip(bases, widths, strict=False)):
        strand = f"s{n}"
        items.append(Range(strand, {"from": 0, "to": width}, base, width))
        seqs = st.sets(st.integers(base, base + width - 1), max_size=8)
        records[strand] = sorted(draw(seqs, label=f"records of {strand}"))
    return Ranges(tuple(draw(st.permutations(items))), bases[-1]), records


def holds(batch: Ranges, records: dict[str, list[int]]) -> list[int]:
    """The records of a batch, read as the engine reads them: what the source gives for a range, without what was cut."""
    return sorted(
        seq
        for r in batch
        for seq in records[r.strand]
        if (r.low is None or r.low <= seq) and (r.high is None or seq < r.high)
    )


def hash_of(batch: Ranges) -> str:
    return delivery_hash("p", "l", 1, "d", batch)


@given(drawn=batches(), at=st.integers(-10, WIDTH))
def test_a_split_puts_every_record_into_the_half_it_belongs_to(
    drawn: tuple[Ranges, dict[str, list[int]]], at: int
) -> None:
    whole, records = drawn
    everything = sorted(seq for seqs in records.values() for seq in seqs)
    before, after = whole.split(at)
    assert holds(before, records) == [seq for seq in everything if seq < at]
    assert holds(after, records) == [seq for seq in everything if seq >= at]
    assert before.next_seq == after.next_seq == whole.next_seq


@given(drawn=batches(), cuts=st.lists(st.integers(-10, WIDTH), max_size=6))
def test_splitting_again_and_again_loses_and_repeats_nothing(
    drawn: tuple[Ranges, dict[str, list[int]]], cuts: list[int]
) -> None:
    """Each cut goes through every piece there is, in any order of cuts, with the ledger's JSON in between."""
    whole, records = drawn
    pieces = [whole]
    for at in cuts:
        pieces = [Ranges.from_json(half.to_json()) for piece in pieces for half in piece.split(at) if half]
    found = [holds(piece, records) for piece in pieces]
    assert [seq for piece in found for seq in piece] == sorted(seq for seqs in records.values() for seq in seqs)
    borders = sorted(set(cuts))
    for piece in found:
        assert len({sum(seq >= border for border in borders) for seq in piece}) <= 1


@given(drawn=batches(), cuts=st.lists(st.integers(0, WIDTH), max_size=3))
def test_a_piece_is_the_same_after_json(drawn: tuple[Ranges, dict[str, list[int]]], cuts: list[int]) -> None:
    piece = drawn[0]
    for n, at in enumerate(cuts):
        piece = piece.split(at)[n % 2] or piece
    restored = Ranges.from_json(piece.to_json())
    assert restored == piece
    assert (restored.to_json(), hash_of(restored)) == (piece.to_json(), hash_of(piece))


@given(drawn=batches(), at=st.integers(0, WIDTH))
def test_the_halves_have_hashes_of_their_own(drawn: tuple[Ranges, dict[str, list[int]]], at: int) -> None:
    whole = drawn[0]
    before, after = whole.split(at)
    assume(before and after)
    assert len({hash_of(whole), hash_of(before), hash_of(after)}) == 3
    assert whole.split(at) == (before, after)  # the same cut has the same names again


@given(drawn=batches(), one=st.integers(0, WIDTH), other=st.integers(0, WIDTH))
def test_no_two_different_cuts_of_a_batch_share_a_hash(
    drawn: tuple[Ranges, dict[str, list[int]]], one: int, other: int
) -> None:
    whole = drawn[0]
    halves = [half for at in (one, other) for half in whole.split(at)]
    for a in halves:
        for b in halves:
            assert (hash_of(a) == hash_of(b)) == (sorted(a, key=str) == sorted(b, key=str))


@given(drawn=batches(), at=st.integers(0, WIDTH))
def test_a_range_that_was_not_cut_keeps_its_identity_and_its_json(
    drawn: tuple[Ranges, dict[str, list[int]]], at: int
) -> None:
    whole = drawn[0]
    for half in whole.split(at):
        for r in half:
            if not r.cut:
                assert r in whole.items
                assert r.identity == [r.strand, dict(r.position)]
                assert r.to_json() == [r.strand, dict(r.position), r.base, r.size]
