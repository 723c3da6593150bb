"""Stretches of line files, without Spark: whatever the cuts, blocks and tasks, the lines and numbers are Hadoop's."""

from __future__ import annotations

import itertools
import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.connectors.files import lines
from penstock.connectors.files.lines import BOM, ReadLines, Stretch, cut, tasks

BASE = 1000
ALL = ("after", "seq", "position", "metadata")


def reference(data: bytes, block: int) -> list[tuple[bytes, int]]:
    """Every line with its seq, the base left out."""
    text = data.removeprefix(BOM)
    shift, places, result = len(data) - len(text), dict[int, int](), list[tuple[bytes, int]]()
    start = 0
    for line in text.removesuffix(b"\n").split(b"\n") if text else []:
        begin = max((0 if start == 0 else start + shift) - 1, 0) // block * block
        place = places[begin] = places.get(begin, -1) + 1
        result.append((line, begin + (1 if begin else 0) + place))
        start += len(line) + 1
    return result


def run(
    packed: list[tuple[Stretch, ...]], block: int, columns: tuple[str, ...] = ("after", "seq")
) -> list[tuple[object, ...]]:
    """As Spark does it: every task on its own, from a copy of the function."""
    read = pickle.loads(pickle.dumps(ReadLines(tuple(packed), columns, block)))
    rows: list[tuple[object, ...]] = []
    for number in range(len(packed)):
        for batch in read([pa.record_batch({"id": [number]})]):
            batch.validate(full="after" not in columns)
            assert batch.schema.names == list(columns)
            assert 0 < batch.num_rows <= lines.ROWS
            made = [c.cast(pa.binary()) if n == "after" else c for n, c in zip(columns, batch.columns, strict=True)]
            rows += zip(*(c.to_pylist() for c in made), strict=True)
    return rows


def write(folder: Path, data: bytes, name: str = "f") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def read(folder: Path, data: bytes, block: int = lines.BLOCK) -> list[tuple[object, ...]]:
    path = write(folder, data)
    return run(tasks([Stretch(path, 0, len(data), 0, BASE)], 2, block), block)


def expected(data: bytes, block: int = lines.BLOCK) -> list[tuple[bytes, int]]:
    return [(line, BASE + n) for line, n in reference(data, block)]


# -- lines and their numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, found",
    [
        (b"", []),
        (b"\n", [b""]),
        (b"\n\n", [b"", b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\nb\rc\n", [b"a\r", b"b\rc"]),
        (BOM, []),
        (BOM + b"\n", [b""]),
        (BOM + b"a\n" + BOM + b"b", [b"a", BOM + b"b"]),
        (b"\xef\xbb", [b"\xef\xbb"]),
        (b"\xff\xfe\x00\n\xc3", [b"\xff\xfe\x00", b"\xc3"]),
    ],
)
def test_what_a_line_is(tmp_path: Path, data: bytes, found: list[bytes]) -> None:
    assert read(tmp_path, data) == [(line, BASE + n) for n, line in enumerate(found)]


def test_the_reference_numbers_lines_as_documented() -> None:
    """Blocks of 4: line starts [0, 4] are in the first, (4, 8] in the second, whose numbers begin at 5."""
    data = b"a\nb\nc\nd\ne\nf"  # starts 0 2 4 6 8 10
    assert reference(data, 4) == [(b"a", 0), (b"b", 1), (b"c", 2), (b"d", 5), (b"e", 6), (b"f", 9)]


def some_lines() -> st.SearchStrategy[bytes]:
    byte = st.sampled_from([b"\n", b"\n", b"a", b"\r", b"\xff", BOM])
    short = st.lists(byte, max_size=80).map(b"".join)
    long = st.integers(0, 300).map(lambda n: b"x" * n)
    body = st.lists(st.one_of(short, long), max_size=6).map(b"".join)
    return st.tuples(st.sampled_from([b"", BOM]), body).map(b"".join)


@pytest.mark.thorough
@settings(deadline=None, max_examples=400)
@given(
    st.lists(some_lines(), min_size=1, max_size=3),
    st.integers(8, 64),
    st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 200)), min_size=1, max_size=10),
    st.sampled_from([1, 3, 7, 64, 10_000]),
    st.sampled_from([1, 40, 10_000]),
    st.sampled_from([1, 3, 10_000]),
)
@example([b"x" * 100], 8, [(1, 1)], 1, 1, 1)
@example([b"\n" * 17], 8, [(None, 1)], 1, 1, 1)
@example([BOM + b"x" * 6 + b"\n" + b"y"], 8, [(1, 100)], 1, 1, 1)
def test_whatever_the_cuts_all_lines_come_once_in_order_with_their_numbers(
    contents: list[bytes],
    block: int,
    limits: list[tuple[int | None, int]],
    chunk: int,
    share: int,
    rows: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", max(chunk, 3))
        patch.setattr(lines, "TAIL", max(chunk // 2, 3))
        patch.setattr(lines, "TASK_MIN", share)
        patch.setattr(lines, "OPEN_COST", 1)
        patch.setattr(lines, "ROWS", rows)
        stretches, want, limit = [], [], itertools.cycle(limits)
        for n, data in enumerate(contents):
            path, base, start, place = write(Path(folder), data, str(n)), n * 10_000, 0, 0
            while start < len(data):
                most, size = next(limit)
                stop, place_then, count = cut(
                    path, start, place, len(data), max_records=most, max_bytes=size, block=block
                )
                assert start < stop <= len(data)
                assert stop == len(data) or data[stop - 1 : stop] == b"\n"
                assert most is None or count is not None
                assert most is None or count is None or count <= most
                stretch = Stretch(path, start, stop, place, base)
                alone = run([(stretch,)], block)
                assert count is None or count == len(alone)
                stretches.append(stretch)
                start, place = stop, place_then
            want += [(line, base + number) for line, number in reference(data, block)]
        packed = tasks(stretches, 2, block)
        assert run(packed, block) == want
        assert all(task for task in packed)


@settings(deadline=None, max_examples=200)
@given(some_lines(), st.integers(8, 64), st.integers(1, 50), st.integers(1, 100))
def test_a_cut_by_records_has_exactly_as_many_unless_something_ends_sooner(
    data: bytes, block: int, most: int, size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, every = write(Path(folder), data), len(reference(data, block))
        stop, _, count = cut(path, 0, 0, len(data), max_records=most, max_bytes=10**9, block=block)
        assert count == min(most, every)
        assert stop < len(data) or count == every
        by_bytes, place, uncounted = cut(path, 0, 0, len(data), max_records=None, max_bytes=size, block=block)
        assert (place, uncounted) == (0, None)
        both, _, _ = cut(path, 0, 0, len(data), max_records=most, max_bytes=size, block=block)
        assert both == min(stop, by_bytes)


@settings(deadline=None, max_examples=200)
@given(some_lines(), st.integers(8, 64), st.integers(1, 300))
def test_a_cut_by_bytes_is_the_first_line_behind_a_boundary(data: bytes, block: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), data)
        stop, _, _ = cut(path, 0, 0, len(data), max_records=None, max_bytes=size, block=block)
    boundary = max(size // block, 1) * block
    newline = data.find(b"\n", boundary)
    assert stop == (len(data) if newline < 0 else newline + 1)


def test_a_cut_by_bytes_does_not_read_what_is_before_the_boundary(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as f:  # a terabyte of nothing, and two lines
        f.seek(1 << 40)
        f.write(b"end\nnext\n")
    size = path.stat().st_size
    assert cut(str(path), 0, 0, size, max_records=None, max_bytes=1 << 40) == ((1 << 40) + 4, 0, None)


def test_a_line_over_many_blocks_is_read_by_the_task_in_whose_block_it_starts(tmp_path: Path) -> None:
    data = b"a\n" + b"x" * 1000 + b"\nb\n"
    packed = tasks([Stretch(write(tmp_path, data), 0, len(data), 0, BASE)], 1, 64)
    packed = [(part,) for task in packed for part in task]
    by_task = [run([task], 64) for task in packed]
    assert [len(found) for found in by_task] == [2, *[0] * 14, 1]
    assert [row for found in by_task for row in found] == expected(data, 64)


def test_a_file_that_became_shorter_gives_fewer_lines_and_no_other_ones(tmp_path: Path) -> None:
    """What is missing is seen by the evidence, and why by the check after the read."""
    path = write(tmp_path, b"a\nb\n")
    assert run([(Stretch(path, 0, 100, 0, BASE),)], 64) == [(b"a", BASE), (b"b", BASE + 1)]
    assert cut(path, 0, 0, 100, max_records=50, max_bytes=1000)[::2] == (100, 2)


def test_a_file_that_is_gone_or_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        run([(Stretch(str(tmp_path / "gone"), 0, 5, 0, 0),)], 64)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        run([(Stretch(str(tmp_path / "folder"), 0, 5, 0, 0),)], 64)


# -- columns and batches --------------------------------------------------------------------------------------------


def test_every_column_says_where_a_line_stands(tmp_path: Path) -> None:
    one, two = write(tmp_path, b"a\nb\n", "ü #1\n"), write(tmp_path, b"c", "%20")
    packed = tasks([Stretch(one, 0, 4, 0, 70), Stretch(two, 0, 1, 0, 2**62)], 2)
    assert len(packed) == 1
    assert run(packed, lines.BLOCK, ALL) == [
        (b"a", 70, f"{one}#0".encode(), [("penstock.file", one)]),
        (b"b", 71, f"{one}#1".encode(), [("penstock.file", one)]),
        (b"c", 2**62, f"{two}#0".encode(), [("penstock.file", two)]),
    ]
    assert run(packed, lines.BLOCK, ("metadata", "seq"))[0] == ([("penstock.file", one)], 70)
    assert ReadLines((), ALL).ddl == "after string, seq bigint, position binary, metadata map<string,string>"


def test_position_counts_in_the_file_also_behind_the_first_block(tmp_path: Path) -> None:
    data = b"abc\n" * 50
    path = write(tmp_path, data)
    rows = run(tasks([Stretch(path, 0, len(data), 0, BASE)], 2, 64), 64, ("position",))
    assert rows == [(f"{path}#{n}".encode(),) for _, n in reference(data, 64)]


def test_many_small_files_share_a_batch(tmp_path: Path) -> None:
    stretches = [Stretch(write(tmp_path, b"x\ny\n", str(n)), 0, 4, 0, n * 10) for n in range(100)]
    read_ = ReadLines((tuple(stretches),), ("seq",))
    (batch,) = read_([pa.record_batch({"id": [0]})])
    assert batch.column(0).to_pylist() == [n * 10 + k for n in range(100) for k in range(2)]


def test_a_chunk_of_many_lines_becomes_several_batches(tmp_path: Path) -> None:
    data = b"\n" * 25_000
    (task,) = tasks([Stretch(write(tmp_path, data), 0, len(data), 0, 0)], 2)
    batches = list(ReadLines((task,), ALL)([pa.record_batch({"id": [0]})]))
    assert [b.num_rows for b in batches] == [10_000, 10_000, 5_000]
    assert read(tmp_path, data) == expected(data)


def test_a_line_longer_than_arrow_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 100)
    monkeypatch.setattr(lines, "CHUNK", 10)
    with pytest.raises(OSError, match="line of more than 100 bytes"):
        read(tmp_path, b"a\n" + b"x" * 200)


# -- tasks ----------------------------------------------------------------------------------------------------------


def sizes(packed: list[tuple[Stretch, ...]]) -> list[int]:
    return [sum(part.stop - part.start for part in task) for task in packed]


def test_a_large_file_is_a_task_for_each_block() -> None:
    packed = tasks([Stretch("f", 0, 10 * lines.BLOCK, 0, 0)], 2)
    assert [len(task) for task in packed] == [1] * 10
    assert [task[0].start for task in packed] == [0, *(n * lines.BLOCK + 1 for n in range(1, 10))]
    assert packed[-1][-1].stop == 10 * lines.BLOCK


def test_a_stretch_that_begins_inside_a_block_keeps_its_place_there_and_nowhere_else() -> None:
    parts = [p for task in tasks([Stretch("f", 100, 300, 7, 0)], 2, 64) for p in task]
    assert [(p.start, p.stop, p.place) for p in parts] == [(100, 129, 7), (129, 193, 0), (193, 257, 0), (257, 300, 0)]


def test_a_line_that_starts_at_a_boundary_is_of_the_block_before() -> None:
    parts = [p for task in tasks([Stretch("f", 128, 200, 3, 0)], 2, 64) for p in task]
    assert [(p.start, p.stop, p.place) for p in parts] == [(128, 129, 3), (129, 193, 0), (193, 200, 0)]


def test_many_small_files_are_packed_in_order() -> None:
    stretches = [Stretch(str(n), 0, 1024, 0, 0) for n in range(5000)]
    packed = tasks(stretches, 2)
    assert 8 <= len(packed) <= 9
    assert [part for task in packed for part in task] == stretches


def test_a_task_has_at_most_a_block_of_small_files() -> None:
    packed = tasks([Stretch(str(n), 0, 3 * 1024 * 1024, 0, 0) for n in range(1000)], 2)
    assert max(sizes(packed)) <= lines.BLOCK
    assert len(packed) == 48


def test_a_few_small_files_are_one_task() -> None:
    assert len(tasks([Stretch(str(n), 0, 1024, 0, 0) for n in range(20)], 8)) == 1


def test_empty_files_need_no_task() -> None:
    assert tasks([Stretch("f", 0, 0, 0, 0)], 8) == []
    assert tasks([], 8) == []
