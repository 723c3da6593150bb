"""How `files` cuts batches, over random folders: every line once, in order, within the limits, with room for its records."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files import lines
from penstock.connectors.files import source as module
from penstock.connectors.files.listing import Entry
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.ranges import Known, Limits, Range, Ranges

RATIO = {".gz": 1032, ".zst": 65536}  # gzip packs at most so many bytes into one

# -- files that are not cut: smaller than a block, or compressed ----------------------------------------------------------

small = st.one_of(st.integers(0, 30), st.integers(0, lines.BLOCK))
any_size = st.one_of(st.integers(0, 30), st.integers(0, 10**12))
files = st.lists(
    st.one_of(
        st.tuples(small, st.sampled_from([".txt", ""])),
        st.tuples(any_size, st.sampled_from([".gz", ".zst"])),
    ),
    min_size=1,
    max_size=12,
)
aims = st.one_of(st.none(), st.integers(1, 80))
limits = st.builds(Limits, max_bytes=st.integers(1, 60), max_files=st.integers(1, 5), aim=aims)


def _entries(given_files: list[tuple[int, str]]) -> list[Entry]:
    return [Entry(f"/in/{n}{suffix}", size, n) for n, (size, suffix) in enumerate(given_files)]


def _batches(entries: list[Entry], limit: Limits, first_seq: int = 0, *, restart: bool = False) -> list[Ranges]:
    """As `available` does it, batch after batch, with the source's own cutting. With `restart` each in a new process."""
    source = FilesSource(FilesSourceSettings(path="/in"), "in")
    known = Known({}, first_seq, set())
    batches: list[Ranges] = []
    source._backlog.extend(entries)
    with pytest.MonkeyPatch.context() as patch:
        if entries[0].path.startswith("/in/"):  # there are no such files
            patch.setattr(module, "_unchanged", lambda _: True)
        while source._backlog:
            cut, full = source._cut(known, limit)
            assert cut, "a batch without anything"
            made = Ranges(tuple(cut), max(r.base + _most(r) for r in cut), full=full)
            assert full or not source._backlog, "it is not full, and there is more"
            known.took(made)
            batches.append(Ranges.from_json(made.to_json()))
            if restart:
                source = FilesSource(FilesSourceSettings(path="/in"), "in")
                source._backlog.extend(e for e in entries if source._is_new(e, known))
    assert not any(source._is_new(e, known) for e in entries)
    return batches


def _most(r: Range) -> int:
    """No text of so many bytes has more lines."""
    return int(r.position["size"]) * RATIO.get(Path(r.strand).suffix, 1) + 2


@settings(deadline=None)
@given(files, limits)
def test_every_file_is_in_one_batch_in_order(given_files: list[tuple[int, str]], limit: Limits) -> None:
    entries = _entries(given_files)
    ranges = [r for batch in _batches(entries, limit) for r in batch]
    assert [(r.strand, r.position["from"], r.position["to"], r.size) for r in ranges] == [
        (e.path, 0, e.size, e.size) for e in entries
    ]


@settings(deadline=None)
@given(files, limits)
def test_a_batch_keeps_its_limits_or_is_one_file(given_files: list[tuple[int, str]], limit: Limits) -> None:
    for batch in _batches(_entries(given_files), limit):
        assert 1 <= len(batch) <= limit.max_files
        assert batch.size <= limit.bytes or len(batch) == 1


@settings(deadline=None)
@given(files, limits)
def test_a_batch_is_cut_only_where_the_next_file_would_not_fit(
    given_files: list[tuple[int, str]], limit: Limits
) -> None:
    """Full to the last byte is full: a file of nothing need not come behind that."""
    batches = _batches(_entries(given_files), limit)
    for batch, following in itertools.pairwise(batches):
        full = len(batch) == limit.max_files or batch.size >= limit.bytes
        assert full or batch.size + following[0].size > limit.bytes


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


# -- files of lines that are cut inside -----------------------------------------------------------------------------------

line = st.one_of(st.integers(0, 6), st.integers(0, 60)).map(lambda n: b"x" * n + b"\n")
content = st.tuples(st.lists(line, max_size=12).map(b"".join), st.sampled_from([b"", b"end"])).map(b"".join)
contents = st.lists(content, min_size=1, max_size=4)
blocks = st.integers(8, 48)
cutting = st.builds(
    Limits,
    max_records=st.one_of(st.none(), st.integers(1, 6)),
    max_bytes=st.integers(1, 120),
    max_files=st.integers(1, 3),
    aim=aims,
)
NO_OTHER = {"max_bytes": 1 << 40, "max_files": 1 << 40}


@contextmanager
def _folder(data: list[bytes], block: int) -> Iterator[list[Entry]]:
    """Files with these contents, where blocks are small."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        patch.setattr(lines, "cut", partial(lines.cut, block=block))
        entries = []
        for n, held in enumerate(data):
            path = Path(folder, str(n))
            path.write_bytes(held)
            entries.append(Entry(str(path), len(held), path.stat().st_mtime_ns))
        yield entries


def _read(r: Range, block: int) -> list[tuple[bytes, int]]:
    """The records of a range: line and seq."""
    at = r.position
    stretch = lines.Stretch(r.strand, at["from"], at["to"], at.get("place", 0), r.base)
    read = lines.ReadLines(((stretch,),), ("after", "seq"), block=block)
    rows: list[tuple[bytes, int]] = []
    for batch in read([pa.record_batch({"id": [0]})]):
        rows += zip(batch.column(0).cast(pa.binary()).to_pylist(), batch.column(1).to_pylist(), strict=True)
    return rows


def _lines(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n") if data else []


@settings(deadline=None)
@given(contents, blocks, cutting, st.booleans())
def test_every_line_is_in_one_batch_in_order_and_its_seq_is_its_own(
    data: list[bytes], block: int, limit: Limits, restart: bool
) -> None:
    with _folder(data, block) as entries:
        ranges = [r for batch in _batches(entries, limit, restart=restart) for r in batch]
        rows = [row for r in ranges for row in _read(r, block)]
        whole = [_read(Range(r.strand, {**r.position, "from": 0, "place": 0, "to": r.position["size"]}, r.base), block)
                 for r in ranges if r.position["from"] == 0]  # fmt: skip
    assert [text for text, _ in rows] == [text for held in data for text in _lines(held)]
    assert rows == [row for file in whole for row in file]  # where it was cut makes no difference
    seqs = [seq for _, seq in rows]
    assert seqs == sorted(set(seqs))
    for path, of_file in itertools.groupby(ranges, key=lambda r: r.strand):
        parts = list(of_file)
        held = data[int(Path(path).name)]
        assert [p.position["from"] for p in parts] == [0, *(p.position["to"] for p in parts[:-1])]
        assert parts[-1].position["to"] == len(held)
        assert all(held[p.position["to"] - 1 : p.position["to"]] == b"\n" for p in parts[:-1])
        assert [p.size for p in parts] == [p.position["to"] - p.position["from"] for p in parts]


@settings(deadline=None)
@given(contents, blocks, cutting)
def test_a_batch_of_lines_keeps_its_limits(data: list[bytes], block: int, limit: Limits) -> None:
    """More than `max-bytes`, or a block where that is more, only up to the end of the line that passes it."""
    with _folder(data, block) as entries:
        for batch in _batches(entries, limit):
            assert 1 <= len(batch) <= limit.max_files
            n = sum(len(_read(r, block)) for r in batch)
            assert limit.max_records is None or n <= limit.max_records
            if batch.size > limit.max_bytes:
                [r] = batch
                held = data[int(Path(r.strand).name)]
                most = r.position["from"] + max(limit.max_bytes, block)
                assert b"\n" not in held[most : r.position["to"] - 1]


@settings(deadline=None)
@given(contents, blocks, st.integers(1, 6))
def test_batches_that_only_max_records_cuts_have_exactly_so_many(data: list[bytes], block: int, most: int) -> None:
    with _folder(data, block) as entries:
        counts = [sum(len(_read(r, block)) for r in batch) for batch in _batches(entries, Limits(most, **NO_OTHER))]
    total = sum(len(_lines(held)) for held in data)
    assert [n for n in counts if n] == [most] * (total // most) + ([total % most] if total % most else [])


@settings(deadline=None)
@given(contents, blocks, cutting)
def test_what_is_left_is_counted_and_weighed_piece_by_piece(data: list[bytes], block: int, limit: Limits) -> None:
    source = FilesSource(FilesSourceSettings(path="/in"), "in")
    with _folder(data, block) as entries:
        for batch in _batches(entries, limit):
            rows = [row for r in batch for row in _read(r, block)]
            assert source.count(batch) == len(rows)
            source.verify(batch, len(rows), {"bytes": sum(len(text) + 1 for text, _ in rows)})
