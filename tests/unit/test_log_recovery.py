"""What a writer finds when it opens a log after a crash: a torn tail is cut off, at whatever byte; damage never is."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from penstock.log import LogDamaged, LogError, Lost, Reader, Writer, index, segment
from penstock.log.format import HEADER_BYTES
from penstock.testing import faults
from tests.support.log_child import batch, held, record

pytestmark = pytest.mark.thorough  # left out of the fast loop

NEVER = 1e9
Append = Callable[[Writer], range]

ENTRIES: dict[str, tuple[Append, Literal["zstd"] | None]] = {
    "record": (lambda writer: writer.append([record(3, "ü")]), None),
    "batch": (lambda writer: writer.append_batch(batch([3, 4, 5]), "b"), None),
    "zstd": (lambda writer: writer.append_batch(batch([3, 4, 5], size=200), "b"), "zstd"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    faults.install()


def active(folder: Path) -> Path:
    return folder / segment.name(segment.bases(folder)[-1])


def put_back(folder: Path, saved: dict[str, bytes]) -> None:
    """New files: one that is cut and written again waits for the disk, which takes most of the time here."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in saved.items():
        (folder / name).write_bytes(content)


def written(folder: Path, append: Append, compression: Literal["zstd"] | None = None) -> tuple[int, int]:
    """Three durable records and an entry that is not; returns where that begins and ends."""
    writer = Writer(folder, commit_interval=NEVER, compression=compression)
    writer.append([record(0)])
    writer.append_batch(batch([1, 2]), "b")
    writer.commit()
    before = active(folder).stat().st_size
    append(writer)
    writer.abandon()
    return before, active(folder).stat().st_size


def goes_on(folder: Path, **settings: Any) -> None:
    """The next append has the next offset, and is there after one more restart."""
    with Writer(folder, **settings) as writer:
        end = writer.end
        assert writer.append([record(end)]) == range(end, end + 1)
    with Writer(folder) as writer:
        assert writer.recovered.cut == 0
        assert writer.end == end + 1
    assert held(folder) == [(n, n) for n in range(end + 1)]


@pytest.mark.parametrize("fill", ["nothing", "zeros", "garbage", "half zeros"])
@pytest.mark.parametrize("kind", ENTRIES)
@pytest.mark.parametrize("without", ["", "index"])
def test_an_entry_that_was_torn_at_any_byte_is_cut_off(folder: Path, kind: str, fill: str, without: str) -> None:
    """`fill`: what stands where the missing bytes should: the file had grown, its blocks were never written."""
    append, compression = ENTRIES[kind]
    start, end = written(folder, append, compression)
    path = active(folder)
    whole = path.read_bytes()
    saved = {p.name: p.read_bytes() for p in folder.iterdir()}
    noise = random.Random(7)
    faults.install(off=["fsync"])  # the machine lives on, and this opens a log a thousand times
    for cut in range(start, end):
        put_back(folder, saved)
        if without:
            index.path_of(path).unlink()
        missing = end - cut
        rest = {
            "nothing": b"",
            "zeros": bytes(missing),
            "garbage": noise.randbytes(missing),
            "half zeros": bytes(missing // 2),
        }[fill]
        if whole[cut : cut + len(rest)] == rest and len(rest) == missing:
            continue  # that is the whole entry: its last bytes are zeros
        path.unlink()
        path.write_bytes(whole[:cut] + rest)
        with Writer(folder) as writer:
            assert writer.recovered.cut == cut - start + len(rest), cut
            assert (writer.end, writer.durable) == (3, 3)
            assert path.stat().st_size == start
            assert writer.append([record(3)]) == range(3, 4)
        assert held(folder) == [(n, n) for n in range(4)], cut


def test_a_tail_that_is_not_cut_off_makes_what_follows_unreadable(folder: Path) -> None:
    """The control: with `log-cut` off, at most of the bytes."""
    _, end = written(folder, ENTRIES["record"][0])
    os.truncate(active(folder), end - 5)
    faults.install(off=["log-cut"])
    with Writer(folder) as writer:
        writer.append([record(3)])
    with pytest.raises(LogDamaged):
        held(folder)


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_whole_entry_that_was_never_fsynced_stays(folder: Path, kind: str) -> None:
    append, compression = ENTRIES[kind]
    written(folder, append, compression)
    with Reader(folder) as reader:
        assert reader.end == 3, "nobody has seen it yet"
    with Writer(folder) as writer:
        assert writer.recovered.cut == 0
        end = writer.end
    assert end == (4 if kind == "record" else 6)
    goes_on(folder)


def test_of_several_torn_entries_the_first_decides(folder: Path) -> None:
    """Blocks reach the disk in any order: a later entry may be whole where an earlier one is not."""

    def several(writer: Writer) -> range:
        for n in range(3, 8):
            writer.append([record(n, size=100)])
        return range(0)

    start, end = written(folder, several)
    path = active(folder)
    size = (end - start) // 5
    with path.open("r+b") as file:
        file.seek(start + 2 * size + 70)
        file.write(bytes(40))
    with Writer(folder) as writer:
        assert writer.end == 5
        assert writer.recovered.cut == 3 * size
    goes_on(folder)


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\x8cPLE" * 1000, b"\x8cPLE" + b"\xff" * 500, b"\x8c"])
def test_anything_after_the_last_entry_is_cut_off(folder: Path, tail: bytes) -> None:
    written(folder, ENTRIES["record"][0])
    with active(folder).open("ab") as file:
        file.write(tail)
    with Writer(folder) as writer:
        assert writer.recovered.cut == len(tail)
        assert writer.end == 4
    goes_on(folder)


def test_an_entry_of_another_log_is_no_entry(folder: Path, tmp_path: Path) -> None:
    written(folder, ENTRIES["record"][0])
    start, end = written(tmp_path / "other", ENTRIES["record"][0])
    foreign = active(tmp_path / "other").read_bytes()[start:end]
    os.truncate(active(folder), start)
    with active(folder).open("ab") as file:
        file.write(foreign)
    with Writer(folder) as writer:
        assert (writer.end, writer.recovered.cut) == (3, len(foreign))


# -- damage -----------------------------------------------------------------------------------------------------------------


def three_commits(folder: Path) -> list[int]:
    """Returns where each entry begins, and the end."""
    places = [HEADER_BYTES]
    with Writer(folder, commit_interval=NEVER) as writer:
        for n in range(3):
            writer.append([record(n)])
            writer.commit()
            places.append(writer.size)
    return places


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.parametrize("without", ["", "index"])
def test_a_flipped_bit_in_what_was_durable_is_damage_and_nothing_is_cut(folder: Path, without: str) -> None:
    """Without the index the last entry is the only one that nothing says anything about."""
    places = three_commits(folder)
    path = active(folder)
    saved = {p.name: p.read_bytes() for p in folder.iterdir()}
    faults.install(off=["fsync"])
    for at in range(HEADER_BYTES, places[2] if without else places[3]):
        put_back(folder, saved)
        if without:
            index.path_of(path).unlink()
        flip(path, at, at % 8)
        before = path.read_bytes()
        with pytest.raises(LogDamaged) as error:
            Writer(folder)
        entry = max(i for i in range(3) if places[i] <= at)
        assert (error.value.offset, error.value.position) == (entry, places[entry])
        assert path.read_bytes() == before
        # The lock is free again, and whoever accepts the loss goes on with the offsets that follow.
        with Writer(folder, on_damage="skip") as writer:
            assert (writer.end, writer.recovered.cut) == (3, 0)
            assert [d.offset for d in writer.recovered.lost] == [entry]
            writer.append([record(3)])
        with Reader(folder, on_damage="skip") as reader:
            found = list(reader.read(0))
            lost = [(f.offset, f.count) for f in found if isinstance(f, Lost)]
            assert lost == [(entry, 1)]
            assert [o for f in found if not isinstance(f, Lost) for o in range(f.offset, f.end)] == [
                n for n in range(4) if n != entry
            ]


@pytest.mark.parametrize("without", ["", "index"])
def test_without_evidence_durable_records_vanish_silently(folder: Path, without: str) -> None:
    """The control: with `log-evidence` off."""
    places = three_commits(folder)
    flip(active(folder), places[1] + 50)
    if without:
        index.path_of(active(folder)).unlink()
    faults.install(off=["log-evidence"])
    with Writer(folder) as writer:
        assert writer.end == 1
    assert held(folder) == [(0, 0)]


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_segment_that_lost_its_durable_end_is_damage(folder: Path, cut: int) -> None:
    places = three_commits(folder)
    os.truncate(active(folder), places[3] - cut)
    with pytest.raises(LogDamaged):
        Writer(folder)


def test_damage_and_a_torn_tail_are_told_apart_in_one_segment(folder: Path) -> None:
    places = three_commits(folder)
    writer = Writer(folder, commit_interval=NEVER)
    writer.append([record(3)])
    writer.abandon()
    os.truncate(active(folder), active(folder).stat().st_size - 3)
    flip(active(folder), places[1] + 50)
    with Writer(folder, on_damage="skip") as writer:
        assert writer.end == 3
        assert writer.recovered.cut > 0
        assert [(d.offset, d.end) for d in writer.recovered.lost] == [(1, 2)]
        assert writer.append([record(3)]) == range(3, 4)


# -- the index --------------------------------------------------------------------------------------------------------------


def test_an_index_that_is_cut_or_rubbish_at_any_byte_changes_nothing(folder: Path) -> None:
    with Writer(folder, commit_interval=NEVER) as writer:
        for n in range(6):
            writer.append([record(n, "ab"[n % 2], 40_000)])
            writer.commit()
    path = index.path_of(active(folder))
    whole = path.read_bytes()
    assert len(whole) > 200, "it has points"
    faults.install(off=["fsync"])
    for cut in range(len(whole)):
        for content in (whole[:cut], whole[:cut] + bytes([whole[cut] ^ 0x10]) + whole[cut + 1 :]):
            path.unlink()
            path.write_bytes(content)
            with Reader(folder) as reader:
                assert reader.count(0) in range(7)
            with Writer(folder) as writer:
                assert (writer.end, writer.recovered.cut) == (6, 0), cut
            with Reader(folder) as reader:
                assert reader.count(0) == 6
                assert {k: v.offset for k, v in reader.last().items()} == {"a": 4, "b": 5}


def test_an_index_of_another_segment_or_log_is_not_believed(folder: Path, tmp_path: Path) -> None:
    three_commits(folder)
    with Writer(tmp_path / "other", commit_interval=NEVER) as writer:
        writer.append([record(0)])
    shutil.copy(index.path_of(active(tmp_path / "other")), index.path_of(active(folder)))
    assert held(folder) == [(0, 0), (1, 1), (2, 2)]
    with Writer(folder) as writer:
        assert writer.end == 3


def test_a_reader_before_the_recovery_takes_a_torn_tail_for_no_damage(folder: Path) -> None:
    """A power cut can take the index away, and leave the head of an entry without its data."""
    _, end = written(folder, lambda writer: writer.append([record(3, size=500)]))
    index.path_of(active(folder)).unlink()
    with active(folder).open("r+b") as file:
        file.seek(end - 100)
        file.write(bytes(100))
    assert held(folder) == [(0, 0), (1, 1), (2, 2)]


# -- folders ----------------------------------------------------------------------------------------------------------------


def test_what_a_crash_has_left_half_made_is_removed(folder: Path) -> None:
    three_commits(folder)
    (folder / f"{3:020d}.new").write_bytes(b"PENST")
    with Writer(folder) as writer:
        assert writer.end == 3
    assert not list(folder.glob("*.new"))


def test_a_segment_without_a_whole_header_is_damage(folder: Path) -> None:
    three_commits(folder)
    for content in (b"", b"PENSTLOG", bytes(64)):
        active(folder).write_bytes(content)
        with pytest.raises(LogDamaged):
            Writer(folder)
        with pytest.raises(LogError):
            held(folder)
