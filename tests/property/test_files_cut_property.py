"""How `files` cuts batches, over random folders: every file once, in order, within the limits, with room for its records."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files.listing import Entry
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.ranges import Known, Limits, Range, Ranges

sizes = st.one_of(st.integers(0, 30), st.integers(0, 10**12))
files = st.lists(st.tuples(sizes, st.sampled_from([".txt", "", ".gz"])), min_size=1, max_size=12)
limits = st.builds(Limits, max_bytes=st.integers(1, 60), max_files=st.integers(1, 5))


def _entries(given_files: list[tuple[int, str]]) -> list[Entry]:
    return [Entry(f"/in/{n}{suffix}", size, n) for n, (size, suffix) in enumerate(given_files)]


def _batches(entries: list[Entry], limit: Limits, first_seq: int = 0) -> list[Ranges]:
    """As `available` does it, batch after batch, with the source's own cutting."""
    source = FilesSource(FilesSourceSettings(path="/in"), "in")
    known = Known({}, first_seq, set())
    batches = []
    while new := [e for e in entries if source._is_new(e, known)]:
        cut = source._cut(new, known.next_seq, limit)
        made = Ranges(tuple(cut), cut[-1].base + _most(cut[-1]))
        known.took(made)
        batches.append(made)
    return batches


def _most(r: Range) -> int:
    """No text of so many bytes has more lines; gzip packs at most 1032 bytes into one."""
    return (r.size * 1032 if r.strand.endswith(".gz") else r.size) + 2


@settings(deadline=None)
@given(files, limits)
def test_every_file_is_in_one_batch_in_order(given_files: list[tuple[int, str]], limit: Limits) -> None:
    entries = _entries(given_files)
    assert [r.strand for batch in _batches(entries, limit) for r in batch] == [e.path for e in entries]


@settings(deadline=None)
@given(files, limits)
def test_a_batch_keeps_its_limits_or_is_one_file(given_files: list[tuple[int, str]], limit: Limits) -> None:
    for batch in _batches(_entries(given_files), limit):
        assert 1 <= len(batch) <= limit.max_files
        assert batch.size <= limit.max_bytes or len(batch) == 1


@settings(deadline=None)
@given(files, limits)
def test_a_batch_is_cut_only_where_the_next_file_would_not_fit(
    given_files: list[tuple[int, str]], limit: Limits
) -> None:
    batches = _batches(_entries(given_files), limit)
    for batch, following in itertools.pairwise(batches):
        assert len(batch) == limit.max_files or batch.size + following[0].size > limit.max_bytes


@settings(deadline=None)
@given(files, limits, st.integers(0, 2**40))
def test_bases_never_overlap(given_files: list[tuple[int, str]], limit: Limits, first_seq: int) -> None:
    ranges = [r for batch in _batches(_entries(given_files), limit, first_seq) for r in batch]
    free = first_seq
    for r in ranges:
        assert r.base >= free
        free = r.base + _most(r)


@settings(deadline=None)
@given(files, limits, limits)
def test_a_range_does_not_depend_on_how_the_batches_were_cut(
    given_files: list[tuple[int, str]], one: Limits, other: Limits
) -> None:
    entries = _entries(given_files)
    assert [r for b in _batches(entries, one) for r in b] == [r for b in _batches(entries, other) for r in b]
