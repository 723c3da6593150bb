"""Readers of a log: ranges, filters, tails, what they are given while it is written and compacted, and what opening it costs."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log import (
    Compacted,
    LogError,
    LogLocked,
    Lost,
    Offsets,
    Reader,
    Writer,
    compact,
    format,
    index,
    segment,
)
from penstock.log.format import HEADER_BYTES, Header, Kind, Mode, data_crc, pack_head
from penstock.testing import faults
from tests.support import log_child
from tests.support.log_child import Job, batch, numbered, record

NEVER = 1e9


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    faults.install()
    log_child.end_children()


def filled(folder: Path, count: int = 20, namespaces: str = "a", size: int = 100) -> None:
    """Several segments."""
    with Writer(folder, segment_bytes=600, commit_interval=NEVER) as writer:
        for n in range(count):
            writer.append([record(n, namespaces[n % len(namespaces)], size)])


def acked(folder: Path, *offsets: range) -> None:
    with Offsets(folder) as made:
        made.register("r")
        for some in offsets:
            made.ack("r", some)


# -- ranges -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Records and batches of three namespaces in several segments, and the namespace of each offset."""
    folder = tmp_path_factory.mktemp("mixed") / "log"
    namespaces: list[str] = []
    with Writer(folder, segment_bytes=4000, commit_interval=NEVER) as writer:
        for i in range(40):
            namespace = ["a", "b", ""][i * 7 // 3 % 3]
            first = len(namespaces)
            count = [1, 1, 3, 12, 1][i % 5]
            if i % 2:
                writer.append([record(n, namespace) for n in range(first, first + count)])
            else:
                writer.append_batch(batch(range(first, first + count)), namespace, Mode.COPY)
            namespaces += [namespace] * count
    assert len(segment.bases(folder)) > 3
    return folder, namespaces


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    start=st.integers(-3, 160), end=st.none() | st.integers(0, 170), wanted=st.none() | st.sets(st.sampled_from("ab"))
)
def test_any_range_gives_exactly_its_records(
    mixed: tuple[Path, list[str]], start: int, end: int | None, wanted: set[str] | None
) -> None:
    folder, namespaces = mixed
    offsets = [o for o in range(max(start, 0), len(namespaces)) if end is None or o < end]
    expected = [(o, o) for o in offsets if wanted is None or namespaces[o] in wanted]
    with Reader(folder) as reader:
        found = list(reader.read(start, end, namespaces=None if wanted is None else wanted.__contains__))
        assert wanted is None or {f.namespace for f in found} <= wanted
        assert list(numbered(found)) == expected
        assert reader.count(start, end) == len(offsets)
        spans = list(reader.spans(start, end))
        assert [o for span in spans for o in range(span.offset, span.end)] == offsets
        assert all({namespaces[o] for o in range(s.offset, s.end)} == {s.namespace} for s in spans)


def test_rows_of_one_answer_have_one_namespace_and_mode(mixed: tuple[Path, list[str]]) -> None:
    folder, namespaces = mixed
    with Reader(folder) as reader:
        for found in reader.read(0):
            assert not isinstance(found, Lost)
            assert {namespaces[o] for o in range(found.offset, found.end)} == {found.namespace}
            assert {r.phase for r in found.records()} == {found.mode.phase}


def test_the_last_record_of_each_namespace_is_found_with_and_without_indexes(mixed: tuple[Path, list[str]]) -> None:
    folder, namespaces = mixed
    expected = {name: max(o for o, n in enumerate(namespaces) if n == name) for name in namespaces}
    for _ in range(2):
        with Reader(folder) as reader:
            last = reader.last()
            assert {name: rows.offset for name, rows in last.items()} == expected
            assert {rows.count for rows in last.values()} == {1}
            assert dict(numbered(last.values())) == {o: o for o in expected.values()}
        saved = {p: p.read_bytes() for p in folder.glob("*.index")}
        for path in saved:
            path.unlink()
    for path, content in saved.items():
        path.write_bytes(content)


def test_segments_tile_the_offsets(mixed: tuple[Path, list[str]]) -> None:
    folder, namespaces = mixed
    with Reader(folder) as reader:
        infos = reader.segments()
        assert (reader.first, reader.end) == (0, len(namespaces))
    assert [i.end for i in infos] == [*(i.header.base for i in infos[1:]), len(namespaces)]
    assert [i.active for i in infos] == [False] * (len(infos) - 1) + [True]


def test_a_log_without_a_record_is_an_empty_log(folder: Path) -> None:
    Writer(folder).close()
    with Reader(folder) as reader:
        assert (list(reader.read(0)), list(reader.spans(0)), reader.last(), reader.end) == ([], [], {}, 0)


@pytest.mark.parametrize("made", ["missing", "empty", "other", "file"])
def test_what_is_no_log_is_refused_and_left_alone(folder: Path, made: str) -> None:
    if made in ("empty", "other"):
        folder.mkdir()
    if made == "other":
        (folder / "notes.txt").write_text("mine")
    if made == "file":
        folder.write_text("mine")
    with pytest.raises(LogError) as error:
        Reader(folder)
    assert error.value.code == "log.missing"
    assert folder.exists() == (made != "missing")


# -- while it is written and compacted --------------------------------------------------------------------------------------


def test_a_tail_is_followed_over_rolls_and_compactions(folder: Path) -> None:
    Writer(folder).close()
    stop = threading.Event()

    def work() -> None:
        with Writer(folder, segment_bytes=2000, commit_interval=0.001) as writer:
            for n in range(400):
                writer.append([record(n, "ab"[n % 2], 50)])
        stop.set()

    seen: list[tuple[int, int]] = []
    with Reader(folder) as reader, Offsets(folder, flush_interval=NEVER) as offsets:
        thread = threading.Thread(target=work)
        thread.start()
        for found in reader.follow(0, stop=stop.is_set, poll=0.001):
            seen += numbered([found])
            offsets.ack("r", range(found.offset, found.end))
            if len(seen) % 5 == 0:
                offsets.flush()
                compact(folder)
        thread.join()
    assert seen == [(n, n) for n in range(400)]


def test_a_tail_of_many_entries_costs_their_number_not_its_square(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    real = format.read_head

    def counting(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(segment, "read_head", counting)
    faults.install(off=["fsync"])
    with Writer(folder, commit_interval=NEVER) as writer, Reader(folder) as reader:
        rows = reader.follow(0, stop=lambda: False)
        for n in range(300):
            writer.append([record(n)])
            writer.commit()
            assert list(numbered([next(rows)])) == [(n, n)]
    assert reads < 300 * 20


def test_a_reader_that_opens_a_segment_while_it_is_replaced_sees_the_old_or_the_new(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the header of the one with the bytes of the other."""
    filled(folder)
    acked(folder, range(20))
    real = segment.header
    done: list[Compacted] = []

    def slow(path: Path) -> Header:
        found = real(path)
        monkeypatch.undo()
        done.append(compact(folder))
        return found

    monkeypatch.setattr(segment, "header", slow)
    made = segment.Segment(folder / segment.name(0))
    monkeypatch.undo()
    if not done:  # it does not ask by name: nothing to come between
        compact(folder)
    walked = list(made.walk(index.Mark(HEADER_BYTES, 0), made.size, None))
    assert not [step for step in walked if isinstance(step, segment.Damage)], walked


def test_the_last_records_are_found_while_segments_are_merged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(folder, namespaces="abc")
    acked(folder, range(20))
    with Reader(folder) as reader:
        real = reader._segment
        done: list[Compacted] = []

        def first(base: int) -> segment.Segment:
            if not done:
                done.append(compact(folder))
            return real(base)

        monkeypatch.setattr(reader, "_segment", first)
        assert {name: rows.offset for name, rows in reader.last().items()} == {"a": 18, "b": 19, "c": 17}
        assert done[0].segments > 0


def test_a_segment_is_read_only_as_far_as_it_is_durable_from_its_first_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that looks at a new segment before its index is there."""
    with Writer(folder, segment_bytes=600, commit_interval=NEVER) as writer:
        writer.append([record(0, size=300)])
        real = index.open_slots
        looked: list[int] = []

        def look(point: str, detail: str) -> None:
            """At each step of the roll, readers look for the index; what they find is what they go by."""
            if point in ("K14", "fsync"):
                for base in segment.bases(folder):
                    path = folder / segment.name(base)
                    if base and real(index.path_of(path), segment.header(path)) is None:
                        looked.append(base)

        faults.install(look)
        writer.append([record(1, size=300)])
        faults.install()
        assert looked == [], "a segment had its name before its index was there"


def test_a_new_reader_holds_what_it_was_promised_though_compaction_runs(folder: Path) -> None:
    filled(folder)
    acked(folder, range(20))
    promised: list[int] = []

    def come(point: str, detail: str) -> None:
        if point == "fsync" and detail.endswith(".compact") and not promised:
            promised.append(0)
            with Offsets(folder) as offsets:
                offsets.register("late")
                promised[0] = offsets.lag("late")

    faults.install(come)
    compact(folder)
    faults.install()
    with Offsets(folder) as offsets:
        assert offsets.lag("late") == promised[0] == 20
    assert not list(folder.glob("*.compact"))  # given up, and nothing is left of it


def test_a_reader_in_another_process_sees_every_record_once_and_only_durable_ones(folder: Path) -> None:
    with Writer(folder, segment_bytes=3000, commit_interval=NEVER) as writer:
        child = log_child.start(Job(str(folder), "follow", count=199))
        assert child.stdout is not None
        lines = [child.stdout.readline()]
        for n in range(200):
            writer.append([record(n)])
            if n % 7 == 6:
                writer.commit()
        writer.commit()
        ended = log_child.ended(child, lines)
    assert ended.said("saw") == [[n, n] for n in range(200)], ended.err


def test_two_compactions_at_once_are_refused(folder: Path) -> None:
    filled(folder)
    acked(folder, range(20))
    refused: list[str] = []

    def hook(point: str, detail: str) -> None:
        if point == "K15" and not refused:
            with pytest.raises(LogLocked) as error:
                compact(folder)
            refused.append(error.value.code)

    faults.install(hook)
    assert compact(folder).removed > 0
    assert refused == ["log.locked"]


# -- what is lost -----------------------------------------------------------------------------------------------------------


def with_a_loss(folder: Path) -> None:
    """Offset 0 is there, 1 and 2 were lost and are accounted for."""
    with Writer(folder, commit_interval=NEVER) as writer:
        writer.append([record(0)])
        position = writer.size
    path = folder / segment.name(0)
    seed = segment.header(path).seed
    data = b'{"why": "a bad disk"}'
    with path.open("ab") as file:
        file.write(pack_head(seed, position, Kind.LOST, 1, 2, 1, 5, Mode.SYNC, b"a", len(data), data_crc(seed, data)))
        file.write(data)


@pytest.mark.parametrize("without", ["", "index"])
def test_an_accounted_loss_is_told_and_is_never_the_last_record(folder: Path, without: str) -> None:
    with_a_loss(folder)
    Writer(folder).close()
    if without:
        index.path_of(folder / segment.name(0)).unlink()
    with Reader(folder) as reader:
        found = list(reader.read(0))
        assert [(f.offset, f.count, isinstance(f, Lost)) for f in found] == [(0, 1, False), (1, 2, True)]
        assert [(span.offset, span.count, span.lost) for span in reader.spans(0)] == [(0, 1, False), (1, 2, True)]
        assert {name: rows.offset for name, rows in reader.last().items()} == {"a": 0}


# -- what opening costs -----------------------------------------------------------------------------------------------------


def test_a_log_of_10_gib_is_opened_by_reading_its_tail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse files: ten segments of eight entries each, which are 128 MiB of zeros. Counts what is read, not how long that takes."""
    faults.install(off=["fsync"])  # 10 GiB of nothing
    huge = 128 << 20
    with Writer(folder) as writer:
        header = Header(bytes.fromhex(writer.log_id), 0)
    zeros = bytes(1 << 20)
    crc = header.seed
    for _ in range(huge >> 20):
        crc = google_crc32c.extend(crc, zeros)
    end = 0
    for _ in range(10):
        made = Header(header.log_id, end)
        path = folder / segment.name(end)
        with path.open("wb") as file:
            file.write(made.pack())
            position, names, base = HEADER_BYTES, {}, end
            for _ in range(8):
                head = pack_head(made.seed, position, Kind.RECORD, end, 1, base, 5, Mode.SYNC, b"a", huge, crc)
                file.seek(position)
                file.write(head)
                names["a"] = index.Place(position, end)
                position += len(head) + huge
                end += 1
            file.truncate(position)
        points = index.IndexFile(index.path_of(path), made)
        points.point(index.Mark(position, end), names)
        points.durable(index.Mark(position, end))
        points.close()
    assert sum(p.stat().st_size for p in folder.glob("*.seg")) > 10 << 30

    checked: list[int] = []
    real = segment.Segment.data

    def data(self: segment.Segment, head: object) -> object:
        checked.append(1)
        return real(self, head)  # type: ignore[arg-type]

    monkeypatch.setattr(segment.Segment, "data", data)
    began, faulted = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    with Writer(folder) as writer:
        opened = time.monotonic()
        assert (writer.end, writer.recovered.cut) == (end, 0)
        with Reader(folder) as reader:
            assert reader.end == end
            assert reader.count(end - 1) == 1
    now = resource.getrusage(resource.RUSAGE_SELF)
    print(f"opened in {1000 * (opened - began):.0f} ms, read {1000 * (time.monotonic() - opened):.0f} ms")
    assert checked == [], "no payload was read"
    pages = now.ru_majflt + now.ru_minflt - faulted.ru_majflt - faulted.ru_minflt
    assert pages < 5000, "20 MiB at most were touched"
    for path in folder.iterdir():
        path.unlink()
