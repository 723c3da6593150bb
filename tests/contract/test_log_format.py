"""What a log keeps on disk: segments of a size, only whole records, and not one flipped bit, cut or strange file that goes unnoticed."""

from __future__ import annotations

import inspect
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.log import LogDamaged, Lost, Reader, Rows, Writer, batches
from penstock.log.verify import verify
from penstock.testing import faults
from penstock_sdk.record import Record
from scripts import golden_log
from tests.support import log_decoder

pytestmark = pytest.mark.thorough  # left out of the fast loop

MB = 1 << 20
LOG_ID = bytes(range(100, 116))


# -- segments --------------------------------------------------------------------------------------------------------------


def _ten_megabytes(writer: Writer, way: str) -> int:
    """Returns how many records these are."""
    if way == "batches":
        batch = batches.to_arrow([Record(os.urandom(150)) for _ in range(1000)])
        return sum(len(writer.append_batch(batch, "n")) for _ in range(10 * MB // 150_000))
    return sum(len(writer.append([Record(os.urandom(1000))] * 7)) for _ in range(10 * MB // 7_000))


@pytest.mark.contract("T17", reason="a size that is configured: there is nothing to switch off")
@pytest.mark.parametrize("way", ["batches", "single records"])
def test_ten_megabytes_in_segments_of_one_are_ten_or_eleven_files_of_whole_records(tmp_path: Path, way: str) -> None:
    with Writer(tmp_path, segment_bytes=MB) as writer:
        written = _ten_megabytes(writer, way)
    files = sorted(tmp_path.glob("*.seg"))
    assert len(files) in (10, 11)
    assert all(file.stat().st_size <= MB + 150 for file in files)
    end = 0
    for file in files:
        assert int(file.stem) == end
        for offset, count, *_ in log_decoder.decode(file.read_bytes()):
            assert offset == end
            end += count
    assert end == written
    assert sum(rows.count for rows in Reader(tmp_path).read(0)) == written


@pytest.mark.contract("T17", reason="a size that is configured: there is nothing to switch off")
def test_a_record_that_is_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    records = [Record(b"small"), Record(os.urandom(3 * MB)), Record(b"small again")]
    with Writer(tmp_path, segment_bytes=MB) as writer:
        for record in records:
            writer.append([record])
        writer.append([Record(os.urandom(3 * MB // 8)) for _ in range(8)])  # as a batch, it is cut
    files = sorted(tmp_path.glob("*.seg"))
    sizes = [file.stat().st_size for file in files]
    assert [int(f.stem) for f in files[:3]] == [0, 1, 2]
    assert 3 * MB < sizes[1] < 3 * MB + 200
    assert all(size <= MB + 200 for size in (sizes[0], *sizes[2:]))
    found = [r for rows in Reader(tmp_path).read(0) if isinstance(rows, Rows) for r in rows.records()]
    assert [r.after for r in found[:3]] == [r.after for r in records]
    assert len(found) == 11


@pytest.mark.contract("T17", reason="a size that is configured: there is nothing to switch off")
def test_a_segment_has_one_gibibyte_unless_told_otherwise() -> None:
    assert inspect.signature(Writer).parameters["segment_bytes"].default == 1 << 30


# -- a log with every kind of entry ----------------------------------------------------------------------------------------


@dataclass
class Log:
    """Three segments by hand; the middle one, which is harmed, has every kind of entry."""

    folder: Path
    places: list[tuple[int, int, golden_log.Entry]] = field(default_factory=list)  # from, to, in the middle segment

    def __post_init__(self) -> None:
        self.folder.mkdir()
        b = [Record(b"b1", namespace="b"), Record(b"b2", namespace="b")]
        middle = [
            *golden_log.entries(2, [Record(b"raw", namespace="a", key=b"k")]),
            *golden_log.entries(3, b, batch=True),
            golden_log.Entry(golden_log.LOST, 5, 3, b"gone", b"a"),
            *golden_log.entries(8, b, batch=True, compression="zstd"),
            *golden_log.entries(10, [Record({"open": 1}, phase="complete")]),
        ]
        first = list(golden_log.entries(0, [Record(b"x"), Record(b"y")]))
        last = list(golden_log.entries(11, [Record(b"z", namespace="b")]))
        for base, entries in ((0, first), (2, middle), (11, last)):
            made = golden_log.header(2, LOG_ID, base)
            for entry in entries:
                packed = golden_log.packed(2, LOG_ID, len(made), entry)
                if base == 2:
                    self.places.append((len(made), len(made) + len(packed), entry))
                made += packed
            (self.folder / f"{base:020d}.seg").write_bytes(made)
        self.middle = self.folder / f"{2:020d}.seg"

    def at(self, position: int) -> golden_log.Entry | None:
        """The entry with this byte; None: the header."""
        return next((entry for start, end, entry in self.places if start <= position < end), None)


def _read(folder: Path) -> tuple[dict[int, Any], dict[int, str]]:
    """With `skip`: the rows and the lost by offset. The account has to hold: nothing twice, and everything from 0 to the end."""
    rows: dict[int, Any] = {}
    lost: dict[int, str] = {}
    expected = 0
    for found in Reader(folder, on_damage="skip").read(0):
        assert found.offset == expected
        expected = found.end
        if isinstance(found, Lost):
            lost.update(dict.fromkeys(range(found.offset, found.end), found.why))
        else:
            kind = (found.namespace, found.mode, found.timestamp)
            rows.update(enumerate(((kind, row) for row in found.rows.to_pylist()), found.offset))
    return rows, lost


def _stop(folder: Path) -> LogDamaged | None:
    """What reading everything raises."""
    try:
        for found in Reader(folder).read(0):
            assert found.count
    except LogDamaged as damaged:
        return damaged
    return None


def _flips(file: Path) -> Iterator[tuple[int, int]]:
    """Every bit of a file, flipped one at a time."""
    content = file.read_bytes()
    fd = os.open(file, os.O_RDWR)
    try:
        for position, byte in enumerate(content):
            for bit in range(8):
                os.pwrite(fd, bytes([byte ^ 1 << bit]), position)
                yield position, bit
            os.pwrite(fd, bytes([byte]), position)
    finally:
        os.close(fd)


def _strangers_verdict(file: Path) -> bool:
    try:
        list(log_decoder.decode(file.read_bytes()))
    except (ValueError, struct.error):
        return False
    return True


# -- flipped bits ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.contract("T20", safeguard="log-crc")
def test_every_single_flipped_bit_is_found_named_and_costs_only_its_own_records(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    whole, told = _read(log.folder)
    assert len(whole) + len(told) == 12
    assert _stop(log.folder) is None
    assert _strangers_verdict(log.middle)
    wrong: list[str] = []
    for position, bit in _flips(log.middle):
        where = f"byte {position}, bit {bit}"
        entry = log.at(position)
        harmed = range(2, 11) if entry is None else range(entry.offset, entry.offset + entry.count)
        raised = _stop(log.folder)
        rows, lost = _read(log.folder)
        if entry is not None and entry.kind == golden_log.LOST and position >= _data(log, entry):
            # Why they are lost can't be read any more. That they are lost is known, and raises nothing.
            if raised is not None or any("checksum" not in lost[o] for o in harmed):
                wrong.append(f"{where}: the reason was believed")
        elif raised is None or (raised.segment, raised.offset) != (log.middle, harmed[0]):
            wrong.append(f"{where}: {raised!r}")
        if rows != {o: row for o, row in whole.items() if o not in harmed} or lost.keys() != told.keys() | set(harmed):
            wrong.append(f"{where}: lost {sorted(lost)}")
        if _strangers_verdict(log.middle):
            wrong.append(f"{where}: the decoder did not notice")
    assert wrong == []
    assert _read(log.folder) == (whole, told)


def _data(log: Log, entry: golden_log.Entry) -> int:
    return next(end for _, end, e in log.places if e is entry) - len(entry.data)


@pytest.mark.contract("T20", safeguard="log-crc")
def test_without_checksums_a_flipped_bit_is_another_record(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    content = log.middle.read_bytes()
    log.middle.write_bytes(content.replace(b"raw", b"rAw"))
    damaged = _stop(log.folder)
    assert damaged is not None
    assert (damaged.offset, damaged.count) == (2, 1)
    faults.install(off=("log-crc",))
    assert _stop(log.folder) is None
    assert _read(log.folder)[0][2][1]["after"] == b"rAw"


@pytest.mark.contract("T20", reason="the control is above")
def test_a_flipped_bit_in_the_active_segment_is_never_taken_for_a_torn_tail(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Writer(folder) as writer:
        for i in range(3):
            writer.append([Record(b"r%d" % i, namespace="a"), Record({"i": i})])
        writer.append([Record(b"b", namespace="b") for _ in range(8)])
    file = folder / f"{0:020d}.seg"
    whole, size = _read(folder)[0], file.stat().st_size
    assert len(whole) == 14
    for position, bit in _flips(file):
        if bit != position % 8:
            continue  # one in each byte: opening for writing costs an fsync
        damaged = _stop(folder)
        assert damaged is not None, position
        with pytest.raises(LogDamaged) as raised:
            Writer(folder)
        assert (raised.value.offset, raised.value.position) == (damaged.offset, damaged.position)
        assert file.stat().st_size == size
        if position >= 64:
            rows, lost = _read(folder)
            assert lost
            assert rows == {o: row for o, row in whole.items() if o not in lost}
            assert rows.keys() | lost.keys() == set(range(14))
    with Writer(folder) as writer:
        assert (writer.recovered.cut, writer.recovered.lost, writer.end) == (0, [], 14)


@pytest.mark.thorough
@pytest.mark.contract("T20", reason="an index is derived: without it everything is found by reading")
def test_a_flipped_bit_in_an_index_changes_nothing_that_a_writer_or_reader_finds(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Writer(folder, segment_bytes=400) as writer:
        for i in range(12):
            writer.append([Record(b"r%d" % i, namespace=f"n{i % 3}")])
            writer.commit()
    whole, _ = _read(folder)
    assert len(whole) == 12
    closed, *_, active = sorted(folder.glob("*.index"))
    for _ in _flips(closed):
        assert _read(folder) == (whole, {})
        assert {name: rows.offset for name, rows in Reader(folder).last().items()} == {"n0": 9, "n1": 10, "n2": 11}
    for position, bit in _flips(active):
        rows, lost = _read(folder)  # of two slots the older one may count: less is seen, until a writer comes
        assert not lost
        assert rows.items() <= whole.items()
        if bit == position % 8:
            content = active.read_bytes()
            with Writer(folder) as writer:
                assert (writer.end, writer.recovered.cut) == (12, 0)
            assert _read(folder) == (whole, {})
            active.write_bytes(content)


# -- cut, gone, swapped, strange -------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.contract("T20", reason="nothing but the tiling of offsets finds it, which has no switch")
def test_a_closed_segment_that_is_cut_anywhere_loses_exactly_what_is_gone(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    content = log.middle.read_bytes()
    whole, told = _read(log.folder)
    for length in range(len(content)):
        log.middle.write_bytes(content[:length])
        gone = min((e.offset for _, end, e in log.places if end > length), default=11) if length >= 64 else 2
        damaged = _stop(log.folder)
        assert damaged is not None
        assert (damaged.segment, damaged.offset) == (log.middle, gone)
        rows, lost = _read(log.folder)
        assert lost.keys() == {o for o in told if o < gone} | set(range(gone, 11))
        assert rows == {o: row for o, row in whole.items() if o not in lost}


def _delete(log: Log) -> None:
    log.middle.unlink()


def _delete_first(log: Log) -> None:
    (log.folder / f"{0:020d}.seg").unlink()


def _swap(log: Log) -> None:
    first = log.folder / f"{0:020d}.seg"
    content = first.read_bytes()
    first.write_bytes(log.middle.read_bytes())
    log.middle.write_bytes(content)


def _foreign(log: Log) -> None:
    """Of another log, and right in itself."""
    other = bytes(16)
    entries = [e for _, _, e in log.places]
    log.middle.write_bytes(golden_log.segment(golden_log.header(2, other, 2), other, entries))


@pytest.mark.contract("T20", reason="names, log ids and the tiling of offsets find it, which have no switch")
@pytest.mark.parametrize(
    "harm, lost", [(_delete, range(2, 11)), (_delete_first, range(2)), (_swap, range(11)), (_foreign, range(2, 11))]
)
def test_a_segment_that_is_gone_swapped_or_of_another_log_is_found(
    tmp_path: Path, harm: Callable[[Log], None], lost: range
) -> None:
    log = Log(tmp_path / "log")
    whole, told = _read(log.folder)
    harm(log)
    damaged = _stop(log.folder)
    assert damaged is not None
    assert damaged.offset == lost[0]
    assert {p.offset for p in verify(log.folder).problems if p.count} >= {lost[0]}
    rows, missing = _read(log.folder)
    assert missing.keys() == set(lost) | told.keys()
    assert rows == {o: row for o, row in whole.items() if o not in missing}


@pytest.mark.contract("T20", reason="the tiling of offsets finds it, which has no switch")
def test_an_offset_that_stands_in_two_segments_is_found_and_never_given_twice(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    whole, _ = _read(log.folder)
    first = [*golden_log.entries(0, [Record(b"x"), Record(b"y"), Record(b"an older life of 2", namespace="a")])]
    head = golden_log.header(2, LOG_ID, 0)
    (log.folder / f"{0:020d}.seg").write_bytes(golden_log.segment(head, LOG_ID, first))
    damaged = _stop(log.folder)
    assert damaged is not None
    assert damaged.segment == log.folder / f"{0:020d}.seg"
    assert verify(log.folder).problems
    assert _read(log.folder)[0] == whole


UNDECODABLE = {
    "record": golden_log.Entry(golden_log.RECORD, 1, 1, b"\xc1"),
    "batch": golden_log.Entry(golden_log.BATCH, 1, 1, b"no stream"),
    "count": golden_log.Entry(golden_log.BATCH, 1, 1, next(golden_log.entries(1, [Record()] * 2, batch=True)).data),
    "kind": golden_log.Entry(9, 1, 1, b""),
    "mode": golden_log.Entry(golden_log.RECORD, 1, 1, b"\x80", mode=9),
    "key": golden_log.Entry(golden_log.RECORD, 1, 1, b"\x80", key=b"\xff"),
}


@pytest.mark.contract("T20", reason="no checksum finds it: it was written so")
@pytest.mark.parametrize("entry", UNDECODABLE.values(), ids=UNDECODABLE.keys())
def test_what_was_written_wrong_costs_its_own_records_as_any_damage_does(
    tmp_path: Path, entry: golden_log.Entry
) -> None:
    before, (after,) = golden_log.entries(0, [Record(b"before")]), golden_log.entries(2, [Record(b"after")])
    head = golden_log.header(2, LOG_ID, 0)
    after = replace(after, durable=2)  # it vouches for what stands before it
    (tmp_path / f"{0:020d}.seg").write_bytes(golden_log.segment(head, LOG_ID, [*before, entry, after]))
    damaged = _stop(tmp_path)
    assert damaged is not None
    assert damaged.offset == 1
    assert [(p.offset, p.count) for p in verify(tmp_path).problems] == [(1, 1)]
    rows, lost = _read(tmp_path)
    assert rows.keys() == {0, 2}
    assert lost.keys() == {1}


@pytest.mark.contract("T20", safeguard="log-crc")
def test_a_log_inside_a_payload_is_never_taken_for_the_log_around_it(tmp_path: Path) -> None:
    with Writer(tmp_path / "inner") as inner:
        inner.append([Record(b"inner %d" % i, namespace=f"n{i % 2}") for i in range(40)])
    with Writer(tmp_path / "outer") as outer:
        outer.append([Record(b"before")])
        outer.append([Record((tmp_path / "inner" / f"{0:020d}.seg").read_bytes())])
        outer.append([Record(b"between")])
        own = (tmp_path / "outer" / f"{0:020d}.seg").read_bytes()
        outer.append([Record(own)])
        outer.append([Record(b"after")])
    file = tmp_path / "outer" / f"{0:020d}.seg"
    starts = [start for start, _ in _entries(file)]
    for harmed in (1, 3):
        for byte in range(
            starts[harmed], starts[harmed] + 57
        ):  # of the head: then the way to the next entry is unknown
            content = bytearray(file.read_bytes())
            content[byte] ^= 0x10
            copy = Path(shutil.copytree(file.parent, tmp_path / f"{harmed}-{byte}"))
            (copy / file.name).write_bytes(content)
            rows, lost = _read(copy)
            assert lost.keys() == {harmed}
            assert [row["after"] for _, (_, row) in sorted(rows.items()) if len(row["after"]) < 10] == [
                b"before",
                b"between",
                b"after",
            ]
    content = bytearray(file.read_bytes())
    content[starts[1]] ^= 1  # the magic: without a checksum, nothing else would say that it is no entry
    file.write_bytes(content)
    assert _read(file.parent)[1].keys() == {1}
    faults.install(off=("log-crc",))
    taken = [r for r in Reader(file.parent, on_damage="skip").read(0) if isinstance(r, Rows)]
    assert any(b"inner" in (row["after"] or b"") for r in taken for row in r.rows.to_pylist())


def _entries(file: Path) -> list[tuple[int, int]]:
    """Where each begins, and its offset."""
    content, made, at = file.read_bytes(), [], 64
    for offset, _, kind, _, _, key, data in log_decoder.decode(content):
        assert kind == 0
        made.append((at, offset))
        at += 28 + 29 + len(key) + len(data)
    return made


@pytest.mark.contract("T20", reason="the sum of what is read and what is lost is the promise itself")
def test_with_skip_what_is_read_and_what_is_lost_are_together_what_was_appended(tmp_path: Path) -> None:
    with Writer(tmp_path, segment_bytes=30_000) as writer:
        for i in range(20):
            writer.append_batch(pa.record_batch({"after": [os.urandom(20) for _ in range(100)]}), f"n{i % 3}")
            writer.append([Record(b"single", namespace="s")])
        end = writer.end
    files = sorted(tmp_path.glob("*.seg"))
    assert len(files) > 2
    for n, file in enumerate(files):
        content = bytearray(file.read_bytes())
        for place in range(200 + 137 * n, len(content), 5_000):
            content[place] ^= 0x40
        file.write_bytes(content)
    rows, lost = _read(tmp_path)
    assert len(lost) > 300
    assert rows.keys() | lost.keys() == set(range(end))
    assert not rows.keys() & lost.keys()
    stubs = [found for found in Reader(tmp_path, on_damage="skip").read(0) if isinstance(found, Lost)]
    assert sum(stub.count for stub in stubs) == len(lost)
    assert all(stub.why and stub.segment in files and stub.position >= 64 for stub in stubs)
    assert sum(p.count for p in verify(tmp_path).problems) == len(lost)
