"""A damaged log: `verify` names every problem with its place, `repair` marks what is lost and leaves everything else as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log import LogDamaged, LogError, LogLocked, Lost, Offsets, Reader, Writer, compact, repair, verify
from penstock.log.format import HEADER_BYTES
from penstock_sdk.record import Record


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three closed segments and the active one; single records and batches, two namespaces."""
    folder = tmp_path / "log"
    with Writer(folder, segment_bytes=3000) as writer:
        for n in range(12):
            writer.append([_record(n * 11)])
            writer.append([_record(n * 11 + 1 + i, namespace="batch") for i in range(10)])
    assert len(_segments(folder)) >= 4
    return folder


def _record(n: int, namespace: str = "one") -> Record:
    return Record(f"record {n}".encode(), namespace=namespace, position=n.to_bytes(8, "big"))


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def _read(folder: Path, **options: str) -> Iterator[tuple[int, bytes | None]]:
    """Offset and payload; None for what is lost."""
    with Reader(folder, **options) as reader:  # type: ignore[arg-type]
        for found in reader.read(0):
            if isinstance(found, Lost):
                yield from ((offset, None) for offset in range(found.offset, found.end))
            else:
                for n, record in enumerate(found.records()):
                    assert isinstance(record.after, bytes)
                    yield found.offset + n, record.after


def _expected() -> list[tuple[int, bytes | None]]:
    return [(n, f"record {n}".encode()) for n in range(132)]


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _place(folder: Path, offset: int) -> tuple[Path, int, range]:
    """Segment, a byte of the data, and the offsets of the entry that holds this record."""
    with Reader(folder) as reader:
        entry = next(e for e in reader.entries(offset, offset + 1) if not isinstance(e, Lost))
        return entry.segment, entry.head.data, range(entry.head.offset, entry.head.end)


def test_a_good_log_has_no_problem_and_repair_does_nothing(log: Path) -> None:
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    found = verify(log)
    assert (found.problems, found.records, found.segments) == ([], 132, len(_segments(log)))
    done = repair(log)
    assert (done.lost, done.kept, done.cut, done.offsets_reset) == ([], [], 0, False)
    after = {path.name: path.read_bytes() for path in log.iterdir()}
    locks = {"writer.lock", "compaction.lock"}
    assert {n: b for n, b in after.items() if n not in locks} == {n: b for n, b in before.items() if n not in locks}


@pytest.mark.parametrize("offset", [0, 5, 11, 50, 131])
def test_data_that_was_changed_costs_its_own_entry_only(log: Path, offset: int) -> None:
    path, position, lost = _place(log, offset)
    _flip(path, position)
    with pytest.raises(LogDamaged) as raised:
        list(_read(log))
    assert raised.value.offset == lost.start
    problems = verify(log).problems
    assert [(p.file, p.offset, p.count) for p in problems] == [(path, lost.start, len(lost))]

    done = repair(log)
    assert [range(found.offset, found.end) for found in done.lost] == [lost]
    assert [kept.name for kept in done.kept] == [f"{path.name}.damaged"]
    assert list(_read(log)) == [(n, None if n in lost else text) for n, text in _expected()]
    again = verify(log)
    assert (again.problems, again.lost, again.records) == ([], len(lost), 132 - len(lost))
    with Writer(log) as writer:
        assert writer.append([_record(132)]) == range(132, 133)
    assert list(_read(log))[-1] == (132, b"record 132")


def test_a_head_that_was_changed_costs_its_own_entry_only(log: Path) -> None:
    path, position, lost = _place(log, 40)
    _flip(path, position - 30)
    done = repair(log)
    assert [range(found.offset, found.end) for found in done.lost] == [lost]
    assert list(_read(log)) == [(n, None if n in lost else text) for n, text in _expected()]


@pytest.mark.parametrize("which", [0, 1, -2, -1])
def test_a_damaged_header_is_made_anew(log: Path, which: int) -> None:
    path = _segments(log)[which]
    for position in range(HEADER_BYTES):
        whole = path.read_bytes()
        _flip(path, position)
        assert [problem.file for problem in verify(log).problems] == [path], position
        done = repair(log)
        assert done.lost == [], position
        assert list(_read(log)) == _expected(), position
        assert verify(log).problems == []
        for kept in done.kept:
            kept.unlink()
        path.write_bytes(whole)


def test_a_header_of_a_compacted_segment_is_made_anew(log: Path) -> None:
    with Offsets(log) as offsets:
        offsets.ack_through("c0", 60)
    compact(log)
    before = list(_read(log))
    _flip(_segments(log)[0], 12)
    assert verify(log).problems
    repair(log)
    assert list(_read(log)) == before


def test_the_only_segment_gets_its_header_back_too(tmp_path: Path) -> None:
    with Writer(tmp_path / "log") as writer:
        writer.append([_record(0), _record(1)])
    path = _segments(tmp_path / "log")[0]
    for position in (0, 8, 30, 60):  # not in the id, which only the index has then
        whole = path.read_bytes()
        _flip(path, position)
        repair(tmp_path / "log")
        assert [text for _, text in _read(tmp_path / "log")] == [b"record 0", b"record 1"]
        path.write_bytes(whole)
    _flip(path, 45)
    repair(tmp_path / "log")
    assert [text for _, text in _read(tmp_path / "log")] == [b"record 0", b"record 1"]


def test_nothing_left_of_a_segment_is_said_and_accounted_for(log: Path) -> None:
    first, second, third = _segments(log)[:3]
    second.write_bytes(os.urandom(second.stat().st_size))
    lost = range(int(second.name[:20]), int(third.name[:20]))
    done = repair(log)
    assert [range(found.offset, found.end) for found in done.lost] == [lost]
    assert list(_read(log)) == [(n, None if n in lost else text) for n, text in _expected()]
    assert verify(log).problems == []
    assert first.exists()


@pytest.mark.parametrize("which", [0, 1])
def test_a_segment_that_was_removed_is_missed_and_accounted_for(log: Path, which: int) -> None:
    path, following = _segments(log)[which : which + 2]
    path.unlink()
    lost = range(int(path.name[:20]), int(following.name[:20]))
    with pytest.raises(LogDamaged, match=f"at offset {lost.start}"):
        list(_read(log))
    assert [n for n, text in _read(log, on_damage="skip") if text is None] == list(lost)
    assert sum(problem.count for problem in verify(log).problems) == len(lost)
    repair(log)
    assert list(_read(log)) == [(n, None if n in lost else text) for n, text in _expected()]
    assert verify(log).problems == []


def test_the_end_of_a_closed_segment_that_was_cut_off_is_missed(log: Path) -> None:
    path, following = _segments(log)[:2]
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(LogDamaged):
        list(_read(log))
    done = repair(log)
    assert [found.end for found in done.lost] == [int(following.name[:20])]
    assert len(list(_read(log))) == 132


def test_a_segment_of_another_log_is_refused(log: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "other", segment_bytes=3000) as writer:
        writer.append([_record(n) for n in range(200)])
    path = _segments(log)[1]
    other = _segments(tmp_path / "other")[0]
    header = bytearray(other.read_bytes())
    path.write_bytes(header)
    assert [problem.file for problem in verify(log).problems] == [path]
    with pytest.raises(LogDamaged):
        list(_read(log))


def test_offsets_that_can_not_be_read_are_set_aside(log: Path) -> None:
    with Offsets(log) as offsets:
        offsets.ack_through("c0", 60)
    _flip(log / "offsets", 60)
    assert [problem.file.name for problem in verify(log).problems] == ["offsets"]
    done = repair(log)
    assert done.offsets_reset
    assert verify(log).problems == []
    assert compact(log).removed == 0  # nobody is known, so everything is kept


def test_an_index_that_is_wrong_is_found_and_made_anew(log: Path) -> None:
    path = _segments(log)[0].with_suffix(".index")
    path.write_bytes(_segments(log)[1].with_suffix(".index").read_bytes())
    assert [problem.file for problem in verify(log).problems] == [path]
    assert list(_read(log)) == _expected()  # and is not believed
    repair(log)
    assert verify(log).problems == []


def test_a_log_that_is_being_written_is_not_repaired(log: Path) -> None:
    with Writer(log), pytest.raises(LogLocked, match="is being written"):
        repair(log)


def test_a_folder_that_is_no_log_is_not_made_one(tmp_path: Path) -> None:
    for act in (verify, repair, compact, Reader):
        with pytest.raises(LogError) as raised:
            act(tmp_path / "nothing")
        assert raised.value.code == "log.missing"
    assert list(tmp_path.iterdir()) == []


def test_verify_beside_a_writer_and_a_compaction_finds_nothing(log: Path) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\n"
            "from penstock.log import Offsets, Writer, compact\n"
            "from penstock_sdk.record import Record\n"
            "folder = pathlib.Path(sys.argv[1])\n"
            "with Writer(folder, segment_bytes=3000) as writer, Offsets(folder) as offsets:\n"
            "    print('ready', flush=True)\n"
            "    while True:\n"
            "        writer.append([Record(b'x' * 100)] * 20)\n"
            "        offsets.ack_through('c0', writer.commit() - 30)\n"
            "        offsets.flush()\n"
            "        compact(folder)\n",
            str(log),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        for _ in range(20):
            assert verify(log).problems == []
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()
    assert verify(log).problems == []


def test_segments_with_each_others_names_are_named_and_nothing_is_guessed(log: Path) -> None:
    one, two = _segments(log)[:2]
    one_bytes, two_bytes = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_bytes)
    two.write_bytes(one_bytes)
    with pytest.raises(LogError) as raised:
        repair(log)
    assert raised.value.code == "log.misnamed"
    assert two.name in raised.value.hint
    assert (one.read_bytes(), two.read_bytes()) == (two_bytes, one_bytes)


def test_the_active_segment_is_missed_too(log: Path) -> None:
    active = _segments(log)[-1]
    base = int(active.name[:20])
    active.unlink()
    for act in (Reader, Writer):
        with pytest.raises(LogDamaged) as raised:
            act(log)
        assert raised.value.offset == base
    assert [(p.file, p.offset, p.count) for p in verify(log).problems] == [(active, base, 132 - base)]
    repair(log)
    assert verify(log).problems == []
    assert list(_read(log)) == [(n, text if n < base else None) for n, text in _expected()]
    with Writer(log) as writer:
        assert writer.append([_record(132)]) == range(132, 133)  # no offset is given twice


def test_a_slot_of_the_index_that_is_damaged_is_told(log: Path) -> None:
    path = _segments(log)[-1].with_suffix(".index")
    whole = path.read_bytes()
    for position in range(64, 128):
        if any(whole[64 + (position - 64) // 32 * 32 :][:32]):
            _flip(path, position)
            assert [problem.file for problem in verify(log).problems] == [path], position
            path.write_bytes(whole)
