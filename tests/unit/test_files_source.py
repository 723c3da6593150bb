"""`files` as a source, without Spark: what it offers, how it cuts, what it says of changed files, what it does after the ack."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files import lines as line_files
from penstock.connectors.files import places
from penstock.connectors.files import source as module
from penstock.connectors.files.listing import Entry
from penstock.connectors.files.opening import COMPRESSED
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import OTHER_CODECS, FilesSource
from penstock.errors import InputChanged, Stop
from penstock.ranges import Known, Limits, Range, Ranges
from penstock.testing import faults

MONTH = 30 * 86400.0


@pytest.fixture(autouse=True)
def _lists_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.0)
    monkeypatch.setattr(module, "LISTING_SHARE", float("inf"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def write(path: Path, text: str = "line\n", *, age: float = 600) -> Path:
    path.write_text(text)
    then = time.time() - age
    os.utime(path, (then, then))
    return path


class Lane:
    """A source and what its ledger would know, without either Spark or ledger."""

    def __init__(self, path: Path, limits: Limits | None = None, **settings: Any) -> None:
        self.settings = {"path": str(path), "settle": 60.0, **settings}
        self.limits = limits or Limits()
        self.known = Known({}, 0, set())
        self.start()

    def start(self) -> None:
        """A new process: what the source had in memory is gone."""
        self.source = FilesSource(FilesSourceSettings(**self.settings), "in")

    def take(self) -> Ranges:
        ranges = self.source.available(self.known, self.limits)
        assert ranges is not None
        self.known.took(ranges)
        return ranges

    def finish(self, *, told: bool = True) -> Ranges:
        """Takes a batch and acks it; without `told` the process dies before the source hears of it."""
        ranges = self.take()
        gone = tuple(self.source.acked(ranges)) if told else ()
        self.known.settled(replace(ranges, forget=gone))
        return ranges

    def nothing(self) -> bool:
        return self.source.available(self.known, self.limits) is None


def names(ranges: Ranges | list[Range]) -> list[str]:
    return [Path(r.strand).name for r in ranges]


def listed(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- what is offered ------------------------------------------------------------------------------------------------


def test_a_range_is_the_whole_file_with_its_real_position(folder: Path) -> None:
    path = write(folder / "a.txt", "12345")
    ranges = Lane(folder).take()
    mtime = path.stat().st_mtime_ns
    assert list(ranges) == [Range(str(path), {"size": 5, "mtime": mtime, "from": 0, "to": 5}, 0, 5)]
    assert ranges.next_seq == 7
    assert Ranges.from_json(ranges.to_json()) == ranges


def test_a_file_is_offered_once(folder: Path) -> None:
    write(folder / "a.txt")
    lane = Lane(folder)
    lane.take()
    assert lane.nothing()
    lane.start()
    assert lane.nothing()
    write(folder / "b.txt")
    assert names(lane.take()) == ["b.txt"]


def test_an_empty_folder_offers_nothing_and_a_young_file_is_waited_for(folder: Path) -> None:
    lane = Lane(folder)
    assert lane.nothing()
    assert lane.source.idle()
    (folder / "young.txt").write_text("x")
    assert lane.nothing()
    assert not lane.source.idle()


def test_offering_changes_nothing_until_it_is_taken(folder: Path) -> None:
    write(folder / "a.txt")
    lane = Lane(folder)
    first = lane.source.available(lane.known, lane.limits)
    assert lane.known == Known({}, 0, set())
    assert lane.source.available(lane.known, lane.limits) == first


def test_a_relative_path_is_made_absolute_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "a.txt")
    monkeypatch.chdir(folder.parent)
    lane = Lane(Path("in"))
    monkeypatch.chdir("/")
    assert [r.strand for r in lane.take()] == [str(folder / "a.txt")]


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
def test_an_old_file_that_arrives_late_is_new(folder: Path) -> None:
    write(folder / "today.txt", age=100)
    lane = Lane(folder)
    lane.finish()
    write(folder / "a-month-ago.txt", age=MONTH)
    write(folder / "before-1970.txt", age=time.time() + 86400)
    assert names(lane.finish()) == ["before-1970.txt", "a-month-ago.txt"]
    assert lane.nothing()


# -- limits ---------------------------------------------------------------------------------------------------------


def test_a_batch_has_at_most_max_files(folder: Path) -> None:
    for n in range(5):
        write(folder / f"{n}", age=600 - n)
    lane = Lane(folder, Limits(max_files=2))
    assert [names(lane.finish()) for _ in range(3)] == [["0", "1"], ["2", "3"], ["4"]]
    assert lane.nothing()


def test_a_batch_has_at_most_max_bytes(folder: Path) -> None:
    for n, size in enumerate([4, 6, 1, 9, 2]):
        write(folder / f"{n}", "x" * size, age=600 - n)
    lane = Lane(folder, Limits(max_bytes=10))
    assert [names(lane.finish()) for _ in range(3)] == [["0", "1"], ["2", "3"], ["4"]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_one_file_over_max_bytes_goes_alone(folder: Path, suffix: str) -> None:
    for n, size in enumerate([1, 100, 1]):
        write(folder / f"{n}{suffix}", "x" * size, age=600 - n)
    lane = Lane(folder, Limits(max_bytes=10))
    assert [names(lane.finish()) for _ in range(3)] == [[f"{n}{suffix}"] for n in range(3)]


def small_blocks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(line_files, "BLOCK", block)
    monkeypatch.setattr(line_files, "cut", partial(line_files.cut, block=block))


def pieces(ranges: Ranges) -> list[tuple[str, int, int]]:
    return [(Path(r.strand).name, r.position["from"], r.position["to"]) for r in ranges]


def test_a_large_file_of_lines_is_taken_in_pieces_of_about_max_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 16)
    write(folder / "a", "123\n" * 12, age=601)
    write(folder / "b", "x\n")
    lane = Lane(folder, Limits(max_bytes=16))
    taken = [lane.finish() for _ in range(3)]
    assert [pieces(r) for r in taken] == [[("a", 0, 20)], [("a", 20, 36)], [("a", 36, 48), ("b", 0, 2)]]
    assert [r.full for r in taken] == [True, True, False]
    assert lane.nothing()
    first, second, third = (r[0] for r in taken)
    assert first.base == second.base == third.base == 0  # seq is a function of the file alone
    assert taken[-1][-1].base == 50
    assert [r.size for r in (first, second, third)] == [20, 16, 12]
    assert (first.position["next"], second.position["place"]) == (0, 0)


def test_a_compressed_file_is_never_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 16)
    for suffix in (".gz", ".zst"):
        write(folder / f"a{suffix}", "123\n" * 12)
    lane = Lane(folder, Limits(max_bytes=16, max_records=1))
    assert [pieces(lane.finish()) for _ in range(2)] == [[("a.gz", 0, 48)], [("a.zst", 0, 48)]]
    assert lane.nothing()


def test_a_file_of_csv_with_line_breaks_is_never_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 16)
    write(folder / "a.csv", "a,b\n" + "1,2\n" * 12)
    for multi_line, ends in ((True, 52), (False, 8)):
        lane = Lane(folder, Limits(max_records=2), format="csv", multi_line=multi_line)
        assert pieces(lane.finish()) == [("a.csv", 0, ends)]


def test_a_batch_has_at_most_max_records_of_lines_that_can_be_counted(folder: Path) -> None:
    write(folder / "a", "1\n2\n3\n", age=602)
    write(folder / "b", "4\n5", age=601)
    write(folder / "c", "6\n")
    lane = Lane(folder, Limits(max_records=2))
    taken = [lane.finish() for _ in range(3)]
    assert [pieces(r) for r in taken] == [[("a", 0, 4)], [("a", 4, 6), ("b", 0, 2)], [("b", 2, 3), ("c", 0, 2)]]
    assert [[r.base for r in t] for t in taken] == [[0], [0, 8], [8, 13]]
    assert taken[0][0].position["next"] == taken[1][0].position["place"] == 2
    assert [lane.source.count(r) for r in taken] == [2, 2, 2]
    assert lane.nothing()


def test_where_a_piece_ends_survives_a_restart(folder: Path) -> None:
    write(folder / "a", "1\n2\n3\n", age=601)
    write(folder / "b", "4\n")
    for restart in (False, True):
        lane = Lane(folder, Limits(max_records=1))
        taken = []
        for _ in range(4):
            taken.append(Ranges.from_json(lane.finish().to_json()))
            if restart:
                lane.start()
        assert [pieces(r) for r in taken] == [[("a", 0, 2)], [("a", 2, 4)], [("a", 4, 6)], [("b", 0, 2)]]
        assert [r[0].position.get("place", 0) for r in taken] == [0, 1, 2, 0]
        assert lane.nothing()


def test_what_was_begun_goes_on_before_older_files_that_came_since(folder: Path) -> None:
    write(folder / "b", "1\n2\n")
    lane = Lane(folder, Limits(max_records=1))
    lane.finish()
    write(folder / "a", "0\n", age=MONTH)
    lane.start()
    assert [pieces(lane.finish()) for _ in range(2)] == [[("b", 2, 4)], [("a", 0, 2)]]


def test_lines_of_a_piece_have_to_be_every_byte_of_it(folder: Path) -> None:
    write(folder / "a", "\ufeff1\n22\n333")
    lane = Lane(folder, Limits(max_records=1))
    for size in (2, 3, 4):  # the byte order mark is no part of a line, and the last one is given its end
        ranges = lane.finish()
        lane.source.verify(ranges, 1, {"bytes": size})
        for given in (size - 1, size + 1):
            with pytest.raises(Stop):
                lane.source.verify(ranges, 1, {"bytes": given})


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_changed_while_it_was_read_in_pieces_stops_the_pipeline(folder: Path, restart: bool) -> None:
    write(folder / "a", "1\n2\n")
    lane = Lane(folder, Limits(max_records=1))
    lane.finish()
    write(folder / "a", "1\n2\n3\n", age=300)
    if restart:
        lane.start()
    with pytest.raises(Stop) as caught:
        for _ in range(2):  # the first look may find only that it is not what was listed
            assert lane.source.available(lane.known, lane.limits) is None
    assert caught.value.code == "files.changed"


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_changed_while_it_was_read_in_pieces_is_read_whole_again(folder: Path, restart: bool) -> None:
    write(folder / "a", "1\n2\n")
    lane = Lane(folder, Limits(max_records=1), on_change="reread")
    first = lane.finish()
    write(folder / "a", "x\ny\nz\n", age=300)
    if restart:
        lane.start()
    if (ranges := lane.source.available(lane.known, lane.limits)) is None:
        ranges = lane.source.available(lane.known, lane.limits)  # it was still listed as it was
    assert ranges is not None
    assert pieces(ranges) == [("a", 0, 2)]
    assert ranges[0].base == first.next_seq
    lane.known.took(ranges)
    assert [pieces(lane.take()) for _ in range(2)] == [[("a", 2, 4)], [("a", 4, 6)]]
    assert lane.nothing()


@pytest.mark.parametrize("after_ack", ["move", "delete"])
@pytest.mark.parametrize("told", [True, False])
def test_a_file_is_put_away_only_with_its_last_piece(folder: Path, tmp_path: Path, after_ack: str, told: bool) -> None:
    write(folder / "a", "1\n2\n3\n")
    moves = {"move_to": str(tmp_path / "done")} if after_ack == "move" else {}
    lane = Lane(folder, Limits(max_records=1), after_ack=after_ack, **moves)
    lane.source.check()
    for _ in range(2):
        lane.finish(told=told)
        lane.start()  # what a crash has left is put away at the next start
    assert listed(folder) == ["a"]
    lane.finish(told=told)
    lane.start()
    assert lane.nothing()
    assert listed(folder) == []


def test_a_batch_says_whether_there_is_room_for_more(folder: Path) -> None:
    for n in range(3):
        write(folder / f"{n}", "1\n2\n", age=600 - n)

    def full(**limits: Any) -> list[bool]:
        lane, found = Lane(folder, Limits(**limits)), []
        while (ranges := lane.source.available(lane.known, lane.limits)) is not None:
            lane.known.took(ranges)
            found.append(ranges.full)
        return found

    assert full() == [False]
    assert full(max_files=2) == [True, False]
    assert full(max_bytes=9) == [True, False]
    assert full(max_records=4) == [True, False]
    assert full(max_records=5) == [True, False]


def test_a_batch_that_meets_a_limit_exactly_is_full(folder: Path) -> None:
    """Nothing more fits into it: it must not wait out `max-delay`."""
    for n in range(2):
        write(folder / f"{n}", "1\n2\n", age=600 - n)
    for limits in (Limits(max_files=2), Limits(max_bytes=8), Limits(max_records=4)):
        assert Lane(folder, limits).take().full, limits


def test_a_large_folder_is_listed_once_for_many_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        write(folder / f"{n}", age=600 - n)
    lane, looks = Lane(folder, Limits(max_files=2)), list[str]()
    settled = lane.source._listing.settled

    def counted() -> list[Entry]:
        looks.append("look")
        return settled()

    monkeypatch.setattr(lane.source._listing, "settled", counted)
    taken = [names(lane.finish()) for _ in range(3)]
    assert (taken, len(looks)) == ([["0", "1"], ["2", "3"], ["4", "5"]], 1)
    assert lane.nothing()
    assert len(looks) == 2


@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_a_file_that_is_no_longer_what_was_listed_is_not_taken_as_it_was(folder: Path, how: str) -> None:
    for n in range(3):
        write(folder / f"{n}", age=600 - n)
    lane = Lane(folder, Limits(max_files=1))
    lane.finish()
    if how == "changed":
        write(folder / "1", "another\nfile\n", age=300)
    else:
        (folder / "1").unlink()
    taken = []
    for _ in range(3):
        if (ranges := lane.source.available(lane.known, lane.limits)) is not None:
            lane.known.took(ranges)
            taken += [(Path(r.strand).name, r.size) for r in ranges]
    assert taken == [("2", 5), ("1", 13)] if how == "changed" else taken == [("2", 5)]


def test_a_run_does_not_end_while_a_file_that_was_listed_has_changed_since(folder: Path) -> None:
    """`run --once` asks `idle` when there is nothing: what is being written now is worth waiting for."""
    for n in range(2):
        write(folder / f"{n}", age=600 - n)
    lane = Lane(folder, Limits(max_files=1))
    lane.finish()
    (folder / "1").write_text("another\nfile\n")
    assert lane.nothing()
    assert not lane.source.idle()


def test_only_files_of_one_header_are_in_one_batch(folder: Path) -> None:
    for n, header in enumerate(["a,b", "a,b", "b,a", "a,b"]):
        write(folder / f"{n}.csv", f"{header}\n1,2\n", age=600 - n)
    lane = Lane(folder, format="csv")
    taken = [lane.finish() for _ in range(3)]
    assert [names(t) for t in taken] == [["0.csv", "1.csv"], ["2.csv"], ["3.csv"]]
    assert [t.full for t in taken] == [True, True, False]
    assert lane.nothing()


def test_a_file_that_can_not_be_read_is_alone_in_its_batch(folder: Path) -> None:
    for n, text in enumerate(["a,b\n", "a,a\n", "a,a\n", "a,b\n"]):
        write(folder / f"{n}.csv", text, age=600 - n)
    lane = Lane(folder, format="csv")
    assert [names(lane.finish()) for _ in range(4)] == [[f"{n}.csv"] for n in range(4)]
    assert lane.nothing()


def test_a_file_of_parquet_promises_its_rows(folder: Path) -> None:
    for n, rows in enumerate([3, 0, 2]):
        path = folder / f"{n}.parquet"
        pq.write_table(pa.table({"a": pa.array(range(rows), pa.int64())}), path)
        os.utime(path, (n, n))
    lane = Lane(folder, format="parquet")
    ranges = lane.finish()
    assert names(ranges) == ["0.parquet", "1.parquet", "2.parquet"]
    assert [r.position["rows"] for r in ranges] == [3, 0, 2]
    assert [r.base for r in ranges] == [0, 5, 7]
    assert lane.source.promised(ranges) == lane.source.count(ranges) == 5


def test_max_records_counts_rows_of_parquet_and_cuts_no_file(folder: Path) -> None:
    for n, rows in enumerate([2, 2, 1, 9, 1]):
        path = folder / f"{n}.parquet"
        pq.write_table(pa.table({"a": pa.array(range(rows), pa.int64())}), path)
        os.utime(path, (n, n))
    lane = Lane(folder, Limits(max_records=4), format="parquet")
    taken = [lane.finish() for _ in range(4)]
    assert [names(t) for t in taken] == [["0.parquet", "1.parquet"], ["2.parquet"], ["3.parquet"], ["4.parquet"]]


def test_bases_leave_room_for_every_record_a_file_can_hold(folder: Path) -> None:
    write(folder / "plain", "x" * 10, age=603)
    write(folder / "empty", "", age=602)
    write(folder / "packed.gz", "x" * 10, age=601)
    write(folder / "last", "x", age=600)
    ranges = Lane(folder).take()
    assert [r.base for r in ranges] == [0, 12, 14, 14 + 10 * 1032 + 2]
    assert ranges.next_seq == 14 + 10 * 1032 + 2 + 3


def test_zstd_may_hold_more_records_than_gzip(folder: Path) -> None:
    write(folder / "packed.zst", "x" * 10, age=601)
    write(folder / "last", "x", age=600)
    assert [r.base for r in Lane(folder).take()] == [0, 10 * 65536 + 2]


def test_a_batch_starts_behind_all_earlier_ones(folder: Path) -> None:
    write(folder / "a", "x" * 10)
    lane = Lane(folder)
    first = lane.finish()
    write(folder / "b")
    assert lane.finish()[0].base == first.next_seq == 12


@pytest.mark.parametrize("suffix", OTHER_CODECS)
def test_a_compression_that_is_not_supported_is_refused_by_name(folder: Path, suffix: str) -> None:
    write(folder / f"a.txt{suffix}")
    with pytest.raises(Stop) as caught:
        Lane(folder).take()
    assert caught.value.code == "files.codec"
    assert str(folder / f"a.txt{suffix}") in caught.value.what


def test_the_codecs_of_hadoop_are_all_accounted_for() -> None:
    assert {".bz2", ".lz4", ".snappy", ".deflate"} <= set(OTHER_CODECS)
    assert not {".gz", ".zst"} & set(OTHER_CODECS)
    assert set(COMPRESSED) == {".gz", ".zst"}
    assert set(COMPRESSED) == set(places.RATIO)


# -- files that changed after they were taken -----------------------------------------------------------------------


def changes(folder: Path, how: str) -> None:
    write(folder / "a", {"grown": "longer\n", "shrunk": "", "touched": "line\n", "same size": "LINE\n"}[how], age=300)


HOW = ["grown", "shrunk", "touched", "same size"]


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("acked", [True, False])
def test_a_file_that_changed_after_it_was_read_stops_the_pipeline(folder: Path, how: str, acked: bool) -> None:
    write(folder / "a")
    lane = Lane(folder)
    _ = lane.finish() if acked else lane.take()
    changes(folder, how)
    with pytest.raises(Stop) as caught:
        lane.take()
    assert caught.value.code == "files.changed"
    assert str(folder / "a") in caught.value.what


@pytest.mark.parametrize("how", HOW)
def test_a_changed_file_is_ignored_where_that_was_asked_for(folder: Path, how: str) -> None:
    write(folder / "a")
    lane = Lane(folder, on_change="ignore")
    lane.finish()
    changes(folder, how)
    assert lane.nothing()
    write(folder / "b")
    assert names(lane.take()) == ["b"]


@pytest.mark.parametrize("how", HOW)
def test_a_changed_file_is_read_again_where_that_was_asked_for(folder: Path, how: str) -> None:
    path = write(folder / "a")
    lane = Lane(folder, on_change="reread")
    first = lane.finish()
    changes(folder, how)
    [again] = lane.finish()
    stat = path.stat()
    assert again.position == {"size": stat.st_size, "mtime": stat.st_mtime_ns, "from": 0, "to": stat.st_size}
    assert again.base == first.next_seq
    assert lane.nothing()


# -- the check around the read --------------------------------------------------------------------------------------


@pytest.mark.contract("T23", safeguard="unchanged")
@pytest.mark.parametrize("how", [*HOW, "deleted", "a folder now"])
def test_a_file_that_changed_since_the_snapshot_is_found_by_name(folder: Path, how: str) -> None:
    write(folder / "a")
    write(folder / "b")
    lane = Lane(folder)
    ranges = lane.take()
    lane.source.recheck(ranges)
    if how in HOW:
        changes(folder, how)
    else:
        (folder / "a").unlink()
        if how == "a folder now":
            (folder / "a").mkdir()
    with pytest.raises(InputChanged) as caught:
        lane.source.recheck(ranges)
    assert caught.value.code == "files.changed"
    assert str(folder / "a") in caught.value.what
    assert not caught.value.reread
    faults.install(off=["unchanged"])
    lane.source.recheck(ranges)


@pytest.mark.parametrize("on_change, reread", [("stop", False), ("ignore", False), ("reread", True)])
def test_only_reread_gives_a_changed_snapshot_up(folder: Path, on_change: str, reread: bool) -> None:
    write(folder / "a")
    lane = Lane(folder, on_change=on_change)
    ranges = lane.take()
    changes(folder, "grown")
    with pytest.raises(InputChanged) as caught:
        lane.source.recheck(ranges)
    assert caught.value.reread is reread


@pytest.mark.parametrize(
    "text, read",
    [("a\nb\n", [4]), ("a\nb", [4]), ("", [0]), ("\n\n", [2]), ("\ufeffa\n", [2]), ("\ufeff", [0])],
)
def test_what_was_read_has_to_be_every_byte_of_the_files(folder: Path, text: str, read: list[int]) -> None:
    """`read` is what lines and their ends add up to; Spark leaves a BOM out and gives the last line its end."""
    write(folder / "a", text)
    lane = Lane(folder)
    ranges = lane.take()
    for given in range(8):
        if given in read:
            lane.source.verify(ranges, 1, {"bytes": given})
        else:
            with pytest.raises(Stop) as caught:
                lane.source.verify(ranges, 1, {"bytes": given})
            assert caught.value.code == "files.incomplete"


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_what_a_compressed_file_holds_is_not_guessed(folder: Path, suffix: str) -> None:
    write(folder / f"a{suffix}", "x" * 10)
    lane = Lane(folder)
    lane.source.verify(lane.take(), 5, {"bytes": 99})


# -- counting what is left ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, lines", [("", 0), ("\n", 1), ("a", 1), ("a\nb", 2), ("a\nb\n", 2), ("a\r\n\r\n\n", 3)])
def test_lines_left_are_counted(folder: Path, text: str, lines: int) -> None:
    write(folder / "a", "one\n", age=601)
    (folder / "b").write_bytes(text.encode())
    os.utime(folder / "b", (0, 0))
    lane = Lane(folder)
    assert lane.source.count(lane.take()) == 1 + lines


@pytest.mark.parametrize("header, counts", [(True, [1, 2, 1]), (False, [2, 2, 1])])
def test_a_header_is_no_record_that_is_left(folder: Path, header: bool, counts: list[int]) -> None:
    write(folder / "a.csv", "1,2\n" * 5)
    lane = Lane(folder, Limits(max_records=2), format="csv", header=header)
    assert [lane.source.count(lane.take()) for _ in range(3)] == counts


def test_a_long_line_over_several_reads_is_one(folder: Path) -> None:
    write(folder / "a", "x" * (3 << 20) + "\n" + "y" * (1 << 20))
    lane = Lane(folder)
    assert lane.source.count(lane.take()) == 2


def test_what_would_take_long_or_is_gone_is_not_counted(folder: Path) -> None:
    lane = Lane(folder)
    path = write(folder / "a")
    ranges = lane.take()
    big = Ranges((*ranges, Range(str(path), {}, 0, module.COUNT_LIMIT)))
    assert lane.source.count(big) is None
    assert lane.source.count(Ranges((Range(f"{path}.gz", {}, 0, 1),))) is None
    path.unlink()
    assert lane.source.count(ranges) is None


# -- after the ack --------------------------------------------------------------------------------------------------


def test_a_file_stays_where_it_is_by_default(folder: Path) -> None:
    write(folder / "a")
    Lane(folder).finish()
    assert listed(folder) == ["a"]


def test_a_file_is_deleted_after_the_ack_and_not_before(folder: Path) -> None:
    write(folder / "a")
    write(folder / "b")
    lane = Lane(folder, after_ack="delete")
    ranges = lane.take()
    assert listed(folder) == ["a", "b"]
    lane.known.settled(ranges)
    lane.source.acked(Ranges(ranges[:1]))
    assert listed(folder) == ["b"]
    lane.source.acked(ranges)
    assert listed(folder) == []
    assert lane.nothing()


def test_a_file_is_moved_after_the_ack_with_all_it_holds(folder: Path, tmp_path: Path) -> None:
    write(folder / "a", "content")
    lane = Lane(folder, after_ack="move", move_to=str(tmp_path / "done" / "here"))
    lane.source.check()
    lane.finish()
    assert listed(folder) == []
    assert (tmp_path / "done" / "here" / "a").read_text() == "content"


def test_a_moved_file_never_replaces_another(folder: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    lane = Lane(folder, after_ack="move", move_to=str(done), on_change="reread")
    lane.source.check()
    (done / "a.1").mkdir()
    for n in range(4):
        write(folder / "a", f"{n}", age=600 - n)
        lane.finish()
    assert listed(folder) == []
    assert {p.name: p.read_text() for p in done.iterdir() if p.is_file()} == {
        "a": "0",
        "a.2": "1",
        "a.3": "2",
        "a.4": "3",
    }


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("after_ack", ["move", "delete"])
def test_a_file_that_changed_since_it_was_read_is_not_put_away(
    folder: Path, tmp_path: Path, how: str, after_ack: str
) -> None:
    write(folder / "a")
    lane = Lane(folder, after_ack=after_ack, move_to=str(tmp_path / "done") if after_ack == "move" else None)
    lane.source.check()
    ranges = lane.take()
    changes(folder, how)
    now = (folder / "a").read_text()
    lane.source.acked(ranges)
    assert (folder / "a").read_text() == now
    lane.start()
    lane.known.settled(ranges)
    with pytest.raises(Stop):
        lane.take()
    assert (folder / "a").read_text() == now


@pytest.mark.parametrize("after_ack", ["keep", "move", "delete"])
def test_a_file_that_somebody_else_took_away_is_no_error(folder: Path, tmp_path: Path, after_ack: str) -> None:
    write(folder / "a")
    lane = Lane(folder, after_ack=after_ack, move_to=str(tmp_path / "done") if after_ack == "move" else None)
    lane.source.check()
    ranges = lane.take()
    (folder / "a").unlink()
    lane.source.acked(ranges)


def test_a_file_that_can_not_be_put_away_stops_and_is_still_there(folder: Path, tmp_path: Path) -> None:
    write(folder / "a")
    (tmp_path / "done").write_text("a file where the folder should be")
    lane = Lane(folder, after_ack="move", move_to=str(tmp_path / "done"))
    with pytest.raises(Stop) as caught:
        lane.finish()
    assert caught.value.code == "files.after-ack"
    assert str(folder / "a") in caught.value.what
    assert listed(folder) == ["a"]


@pytest.mark.parametrize("after_ack", ["move", "delete"])
def test_what_a_crash_left_is_put_away_at_the_next_start(folder: Path, tmp_path: Path, after_ack: str) -> None:
    write(folder / "acked", age=601)
    write(folder / "pending")
    lane = Lane(
        folder,
        Limits(max_files=1),
        after_ack=after_ack,
        move_to=str(tmp_path / "done") if after_ack == "move" else None,
    )
    lane.source.check()
    lane.finish(told=False)
    lane.take()
    assert listed(folder) == ["acked", "pending"]
    lane.start()
    assert lane.nothing()
    assert listed(folder) == ["pending"]
    if after_ack == "move":
        assert listed(tmp_path / "done") == ["acked"]


def test_a_file_that_appears_under_the_name_of_an_acked_one_is_not_tidied_away(folder: Path) -> None:
    write(folder / "a")
    lane = Lane(folder, after_ack="delete", on_change="reread")
    lane.finish()
    write(folder / "a", "another file\n")
    lane.start()
    assert names(lane.take()) == ["a"]
    assert listed(folder) == ["a"]


# -- forgetting -----------------------------------------------------------------------------------------------------


def test_what_is_known_of_an_acked_file_that_is_gone_is_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.files.source.FORGET_AFTER", 0.0)
    for name in ("gone", "kept"):
        write(folder / name)
    lane = Lane(folder)
    lane.finish()
    (folder / "gone").unlink()
    write(folder / "new")
    assert lane.finish().forget == (str(folder / "gone"),)
    assert set(lane.known.strands) == {str(folder / n) for n in ("kept", "new")}
    write(folder / "gone", "a new file under an old name\n")
    assert names(lane.finish()) == ["gone"]


def test_files_that_were_away_for_a_moment_and_are_back_unchanged_are_not_read_again(folder: Path) -> None:
    """A mount that was lost looks like an empty folder, until it is there again."""
    for name in ("a", "b"):
        write(folder / name)
    lane = Lane(folder)
    lane.finish()
    os.rename(folder, folder.with_name("mount"))
    folder.mkdir()
    assert lane.nothing()
    folder.rmdir()
    os.rename(folder.with_name("mount"), folder)
    assert lane.nothing()


def test_an_unfinished_file_that_is_gone_is_not_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGET_AFTER", 0.0)
    write(folder / "gone")
    lane = Lane(folder)
    lane.take()
    (folder / "gone").unlink()
    write(folder / "new")
    assert lane.take().forget == ()
    assert str(folder / "gone") in lane.known.strands


def test_a_name_may_be_used_again_once_its_file_was_put_away(folder: Path) -> None:
    write(folder / "today.csv", "monday\n")
    lane = Lane(folder, after_ack="delete")
    lane.finish()
    assert lane.nothing()
    assert listed(folder) == []
    write(folder / "today.csv", "tuesday's\n")
    assert names(lane.finish()) == ["today.csv"]


def test_a_name_may_be_used_again_at_the_next_start_once_its_file_was_put_away(folder: Path) -> None:
    """`run --once` every night over a file that always has the same name."""
    write(folder / "today.csv", "monday\n")
    lane = Lane(folder, after_ack="delete")
    lane.finish()
    assert lane.nothing()
    lane.start()
    write(folder / "today.csv", "tuesday's\n")
    assert names(lane.finish()) == ["today.csv"]


def test_a_file_that_has_only_just_gone_is_not_forgotten_yet(folder: Path) -> None:
    write(folder / "gone")
    lane = Lane(folder)
    lane.finish()
    (folder / "gone").unlink()
    write(folder / "new")
    assert lane.finish().forget == ()


ALWAYS_NEW = "bug: a file that was gone once counts as another file at every later change too"


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
def test_a_file_that_was_away_and_came_back_unchanged_still_must_not_change(folder: Path) -> None:
    write(folder / "a")
    lane = Lane(folder)
    lane.finish()
    os.rename(folder / "a", folder / ".away")
    assert lane.nothing()
    os.rename(folder / ".away", folder / "a")
    assert lane.nothing()
    changes(folder, "grown")
    with pytest.raises(Stop):
        lane.source.available(lane.known, lane.limits)


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
def test_another_file_of_an_old_name_must_not_change_after_it_was_read_either(folder: Path) -> None:
    write(folder / "a")
    lane = Lane(folder)
    lane.finish()
    (folder / "a").unlink()
    assert lane.nothing()
    write(folder / "a", "another file\n")
    assert names(lane.finish()) == ["a"]
    changes(folder, "grown")
    with pytest.raises(Stop):
        lane.source.available(lane.known, lane.limits)


def test_another_file_of_an_old_name_is_offered_until_it_is_taken(folder: Path) -> None:
    """A batch that is not full is offered again and again while it waits for more (`max-delay`)."""
    write(folder / "a")
    lane = Lane(folder)
    lane.finish()
    (folder / "a").unlink()
    assert lane.nothing()
    write(folder / "a", "another file\n")
    first = lane.source.available(lane.known, lane.limits)
    assert first is not None
    assert lane.source.available(lane.known, lane.limits) == first
    assert names(lane.finish()) == ["a"]


@pytest.mark.contract("T22", reason="there is no watermark that could be switched off")
def test_a_known_file_that_is_just_being_changed_is_not_forgotten(folder: Path) -> None:
    write(folder / "a")
    lane = Lane(folder)
    lane.finish()
    write(folder / "a", "line\nmore\n", age=0)  # not settled yet
    write(folder / "b")
    assert lane.finish().forget == ()
    write(folder / "a", "line\nmore\n", age=120)
    with pytest.raises(Stop):
        lane.take()


@pytest.mark.contract("T23", safeguard="settle")
def test_a_known_file_from_the_future_is_not_taken_twice(folder: Path) -> None:
    write(folder / "a", age=-86400)
    lane = Lane(folder, settle=0.05)
    taken: list[str] = []
    until = time.monotonic() + 20
    while taken != ["a"]:
        assert time.monotonic() < until
        if ranges := lane.source.available(lane.known, lane.limits):
            lane.known.took(ranges)
            lane.known.settled(ranges)
            taken += names(ranges)
        time.sleep(0.01)
    write(folder / "b")
    assert lane.finish().forget == ()


# -- before Spark starts --------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(Stop) as caught:
        Lane(tmp_path / "no").source.check()
    assert caught.value.code == "files.missing"
    assert str(tmp_path / "no") in caught.value.what


def test_a_move_to_that_can_not_be_made_is_said_before_anything_starts(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Stop):
        Lane(folder, after_ack="move", move_to=str(tmp_path / "file" / "done")).source.check()


def test_a_move_to_that_is_the_source_itself_is_refused(folder: Path) -> None:
    write(folder / "a")
    lane = Lane(folder, after_ack="move", move_to=str(folder))
    with pytest.raises(Stop):
        lane.source.check()


@pytest.mark.parametrize("after_ack", ["move", "delete"])
def test_one_file_that_was_put_away_leaves_nothing_to_do(folder: Path, tmp_path: Path, after_ack: str) -> None:
    path = write(folder / "a")
    lane = Lane(path, after_ack=after_ack, move_to=str(tmp_path / "done") if after_ack == "move" else None)
    lane.source.check()
    lane.finish()
    assert lane.nothing()
