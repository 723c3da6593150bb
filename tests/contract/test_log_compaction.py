"""Row T18: compaction takes away what no reader needs, and nothing else. The pictures are those of the seed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.log import Compacted, LogDamaged, Lost, Mode, Offsets, Reader, Writer, compact, segment
from penstock.log.format import HEADER_BYTES, Kind, data_crc, pack_head
from penstock.log.offsets import load
from penstock.testing import faults
from tests.support import log_child
from tests.support.log_child import Job, batch, held, numbered, record

OLD = "AABBAABBCACBAACBA"  # offsets 0–16, in the closed segment
NEW = "AABBAABBCAC"  # offsets 17–27, in the active one
NEVER = 1e9


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    faults.install()
    log_child.end_children()


def seed_log(folder: Path) -> None:
    with Writer(folder, commit_interval=NEVER) as writer:
        for n, namespace in enumerate(OLD):
            writer.append([record(n, namespace)])
        writer.commit()
        writer._roll()  # the seed has a segment of exactly 17
        for n, namespace in enumerate(NEW, 17):
            writer.append([record(n, namespace)])
    assert segment.bases(folder) == [0, 17]


def seed_offsets(folder: Path) -> None:
    """The seed's offset log, in its order."""
    with Offsets(folder, flush_interval=NEVER) as offsets:
        offsets.register("c0")
        for namespace, value in zip("AABCABCABC", (1, 8, 1, 3, 13, 12, 9, 26, 23, 27), strict=True):
            offsets.ack_through("c0", value, namespace)
            offsets.flush()


def of_segment(folder: Path, base: int) -> list[tuple[int, str]]:
    with Reader(folder) as reader:
        end = next(info.end for info in reader.segments() if info.header.base == base)
        return [(o, s.namespace) for s in reader.spans(base, end) for o in range(s.offset, s.end)]


def in_segments(folder: Path, namespaces: str = "ab", count: int = 30) -> None:
    """Some ten small segments."""
    with Writer(folder, segment_bytes=700, commit_interval=NEVER) as writer:
        for n in range(count):
            writer.append([record(n, namespaces[n % len(namespaces)], 100)])


def ack(folder: Path, acks: Mapping[str, range]) -> None:
    with Offsets(folder) as offsets:
        for reader, some in acks.items():
            offsets.register(reader)
            offsets.ack(reader, some)


# -- the seed's pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("T18", "T19", safeguard="compaction-last")
def test_the_picture_of_the_seed(folder: Path, tmp_path: Path) -> None:
    seed_log(folder)
    seed_offsets(folder)
    done = compact(folder)
    assert of_segment(folder, 0) == [(14, "C"), (15, "B"), (16, "A")]
    assert of_segment(folder, 17) == list(enumerate(NEW, 17))
    assert held(folder) == [(n, n) for n in range(14, 28)], "offsets and records are unchanged"
    assert dict(load(folder)["c0"].namespaces) == {"A": 26, "B": 23, "C": 27}
    assert (done.point, done.removed) == (24, 14), "24 is the first that c0 has not acked: B"
    assert compact(folder) == Compacted(24), "there is nothing left to do"

    control = tmp_path / "control"
    seed_log(control)
    seed_offsets(control)
    faults.install(off=["compaction-last"])
    compact(control)
    assert of_segment(control, 0) == [], "no key is left in the old segment"


@pytest.mark.contract("T18", safeguard="compaction-hold")
def test_a_reader_that_never_acked_holds_everything(folder: Path, tmp_path: Path) -> None:
    for name, off in (("kept", ()), ("control", ("compaction-hold",))):
        log = tmp_path / name
        seed_log(log)
        seed_offsets(log)
        with Offsets(log) as offsets:
            offsets.register("c1")
        faults.install(off=off)
        done = compact(log)
        faults.install()
        if name == "kept":
            assert done == Compacted(0)
            assert held(log) == [(n, n) for n in range(28)]
        else:
            assert len(held(log)) < 28


@pytest.mark.contract("T18", reason="the control of compaction-hold is above")
def test_without_readers_nothing_goes(folder: Path) -> None:
    seed_log(folder)
    assert compact(folder) == Compacted(None)
    assert held(folder) == [(n, n) for n in range(28)]


@pytest.mark.contract("T18", reason="the control of compaction-hold is above")
def test_the_slowest_reader_decides_and_a_namespace_with_nothing_pending_holds_nothing(folder: Path) -> None:
    in_segments(folder)
    with Offsets(folder) as offsets:
        offsets.ack("fast", range(30))
        offsets.ack("slow", range(13))
        offsets.ack_through("slow", 29, "b")  # 14 is its first pending one
    done = compact(folder)
    assert done.point == 14
    left = [o for o, _ in held(folder)]
    assert left == [12, 13, *range(14, 30)]


# -- entries ----------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("T18", reason="the control of compaction-last is above")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_one_record_in_the_middle_of_a_batch_is_kept(folder: Path, compression: str | None) -> None:
    """The batch of `a` has the point in it, and the last of `b` below the point is in the middle of its batch."""
    with Writer(folder, commit_interval=NEVER, compression=compression) as writer:  # type: ignore[arg-type]
        writer.append_batch(batch(range(10)), "a", Mode.COPY)
        writer.append_batch(batch(range(10, 20)), "b")
        writer.commit()
        writer._roll()
        writer.append_batch(batch(range(20, 25)), "a")
    ack(folder, {"r": range(16)})
    done = compact(folder)
    assert (done.point, done.removed) == (16, 14)
    assert held(folder) == [(n, n) for n in (9, *range(15, 25))]
    with Reader(folder) as reader:
        assert [
            (rows.offset, rows.namespace, rows.mode) for rows in reader.read(0, 16) if not isinstance(rows, Lost)
        ] == [
            (9, "a", Mode.COPY),
            (15, "b", Mode.SYNC),
        ]
    ack(folder, {"r": range(20)})
    compact(folder)
    assert held(folder) == [(n, n) for n in (9, *range(19, 25))]


@pytest.mark.contract("T18", reason="nothing protects a loss but the code that keeps everything above the point")
def test_a_loss_is_held_like_a_record_and_is_never_the_one_that_is_kept(folder: Path) -> None:
    with Writer(folder, commit_interval=NEVER) as writer:
        writer.append([record(0)])
        position = writer.size
    path = folder / segment.name(0)
    seed, data = segment.header(path).seed, b'{"why": "a bad disk"}'
    with path.open("ab") as file:
        file.write(
            pack_head(seed, position, Kind.LOST, 1, 4, 1, 5, Mode.SYNC, b"a", len(data), data_crc(seed, data)) + data
        )
    with Writer(folder, commit_interval=NEVER) as writer:
        writer._roll()
        writer.append([record(5)])
    ack(folder, {"r": range(3)})
    compact(folder)
    with Reader(folder) as reader:
        found = [(f.offset, f.count, isinstance(f, Lost)) for f in reader.read(0)]
    assert found == [(0, 1, False), (3, 2, True), (5, 1, False)], "3 and 4 were not told to the reader yet"
    ack(folder, {"r": range(6)})
    compact(folder)
    with Reader(folder) as reader:
        assert [(f.offset, f.count) for f in reader.read(0)] == [(0, 1), (5, 1)]


@pytest.mark.contract("T18", reason="damage is found by checksums; their control is log-crc")
def test_a_damaged_segment_is_not_compacted_away(folder: Path) -> None:
    in_segments(folder)
    ack(folder, {"r": range(30)})
    path = folder / segment.name(segment.bases(folder)[3])
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogDamaged):
        compact(folder)
    assert path.read_bytes() == content


# -- merging ----------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("T18", reason="the control of merging is compaction-cover, in tests/crash")
def test_neighbours_are_merged_and_the_indexes_go_with_them(folder: Path) -> None:
    in_segments(folder)
    before = len(segment.bases(folder))
    ack(folder, {"r": range(30)})
    done = compact(folder)
    assert done.segments == before - 2
    assert len(segment.bases(folder)) == 2
    assert len(list(folder.glob("*.index"))) == 2
    assert not list(folder.glob("*.compact"))
    with Reader(folder) as reader:
        assert {name: rows.offset for name, rows in reader.last().items()} == {"a": 28, "b": 29}
    with Writer(folder) as writer:
        assert writer.append([record(30)]) == range(30, 31)


@pytest.mark.contract("T18", reason="without a limit segments would only be larger")
def test_merged_segments_stay_below_their_limit(folder: Path) -> None:
    in_segments(folder, "abcdefgh", 40)
    ack(folder, {"r": range(40)})
    compact(folder, merged_bytes=600)
    sizes = [(folder / segment.name(base)).stat().st_size for base in segment.bases(folder)]
    assert max(sizes) <= 900
    assert [o for o, _ in held(folder)][-8:] == list(range(32, 40))


# -- beside readers and a writer --------------------------------------------------------------------------------------------


@pytest.mark.contract("T18", reason="the control is a reader that does not look again: its segment is gone")
def test_readers_that_were_there_before_read_on(folder: Path) -> None:
    in_segments(folder)
    ack(folder, {"r": range(20)})
    with Reader(folder) as reader:
        rows = reader.read(0)
        seen = list(numbered([next(rows)]))
        compact(folder)
        seen += numbered(rows)
        assert seen[0] == (0, 0)
        assert [o for o, _ in seen if o >= 20] == list(range(20, 30)), "what is pending has no gap"
        assert seen == sorted(set(seen))
        assert [o for o, _ in numbered(reader.read(20))] == list(range(20, 30))


@pytest.mark.contract(
    "T18", reason="loops of readers, a writer and compactions; each safeguard has its control elsewhere"
)
def test_a_reader_sees_no_gap_while_a_writer_and_compactions_run_in_other_processes(folder: Path) -> None:
    count = 300
    Writer(folder).close()
    with Offsets(folder) as offsets:
        offsets.register("r")
    writing = log_child.start(
        Job(
            str(folder),
            "append",
            count=count,
            size=60,
            every=3,
            namespaces=("a", "b", "c"),
            settings={"segment_bytes": 1500},
        )
    )
    seen: list[tuple[int, int]] = []
    stop = threading.Event()
    compactions: list[log_child.Ended] = []

    def compacting() -> None:
        while not stop.is_set():
            compactions.append(log_child.run(Job(str(folder), "compact")))

    thread = threading.Thread(target=compacting)
    thread.start()
    try:
        with Offsets(folder, flush_interval=NEVER) as offsets, Reader(folder) as reader:
            while len(seen) < count:
                start = len(seen)
                with Reader(folder) as fresh:
                    again = list(numbered(fresh.read(start)))
                found = list(numbered(reader.read(start)))
                assert found[: len(again)] == again == [(n, n) for n in range(start, start + len(again))]
                seen += found
                offsets.ack("r", range(start, len(seen)))
                offsets.flush()
                assert {rows.offset for rows in reader.last().values()} <= set(range(len(seen) + count))
    finally:
        stop.set()
        thread.join()
    assert seen == [(n, n) for n in range(count)]
    assert log_child.ended(writing).returncode == 0
    assert [c.err for c in compactions if c.returncode] == []
    assert sum(c.said("compacted")[0][0] for c in compactions) > 0


@pytest.mark.contract("T18", reason="the lock is the kernel's")
def test_a_second_compaction_in_another_process_is_refused(folder: Path) -> None:
    in_segments(folder)
    ack(folder, {"r": range(30)})
    second: list[log_child.Ended] = []

    def hook(point: str, detail: str) -> None:
        if point == "K15" and not second:
            second.append(log_child.run(Job(str(folder), "compact")))

    faults.install(hook)
    assert compact(folder).removed
    assert second[0].returncode != 0
    assert "LogLocked" in second[0].err
