"""The writer of a log: offsets, group commit, the lock, trouble with the disk, and the end of it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.log import LogError, LogFull, LogLocked, LogUnwritable, Offsets, Reader, Rows, Writer
from penstock.log.writer import FEW
from penstock.testing import faults
from tests.support import log_child
from tests.support.log_child import Job, batch, held, record

NEVER = 1e9


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    faults.install()
    log_child.end_children()


def full_at(wanted: str, detail: str = "") -> Callable[[str, str], None]:
    """A disk that refuses at a point."""

    def hook(point: str, found: str) -> None:
        if point == wanted and detail in found:
            raise OSError(errno.ENOSPC, "No space left on device")

    return hook


class Gate:
    """Stops the fsync of a segment until it is let through."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.fsyncs = 0

    def hook(self, point: str, detail: str) -> None:
        if point == "K13":
            self.fsyncs += 1
            self.reached.set()
            assert self.open.wait(30)


# -- offsets and commits ----------------------------------------------------------------------------------------------------


def test_offsets_go_on_over_appends_batches_and_restarts(folder: Path) -> None:
    with Writer(folder) as writer:
        assert writer.append([record(0), record(1)]) == range(2)
        assert writer.append_batch(batch([2, 3, 4]), "b") == range(2, 5)
        assert writer.append([record(n) for n in range(5, 5 + FEW)]) == range(5, 5 + FEW)
        end = writer.end
    with Writer(folder) as writer:
        assert writer.end == writer.durable == end
        assert writer.append([record(end)]) == range(end, end + 1)
    assert held(folder) == [(n, n) for n in range(end + 1)]


def test_nothing_is_appended_by_an_empty_append(folder: Path) -> None:
    with Writer(folder) as writer:
        size = writer.size
        assert writer.append([]) == range(0)
        assert writer.append_batch(batch([])) == range(0)
        assert (writer.end, writer.size) == (0, size)


def test_an_append_is_durable_and_seen_only_after_its_fsync(folder: Path) -> None:
    gate = Gate()
    with Writer(folder, commit_interval=0.001) as writer, Reader(folder) as reader:
        faults.install(gate.hook)
        writer.append([record(0)])
        assert gate.reached.wait(30)
        writer.append([record(1)])
        assert (writer.end, writer.durable, reader.end) == (2, 0, 0)
        assert list(reader.read(0)) == []
        assert not writer.wait(1, timeout=0.01)
        gate.open.set()
        assert writer.wait(2, timeout=30)
        assert (writer.durable, reader.end) == (2, 2)


def test_many_threads_share_fsyncs_and_each_gets_offsets_of_its_own(folder: Path) -> None:
    gate = Gate()
    got: dict[int, range] = {}

    def work(n: int) -> None:
        for i in range(20):
            first = 1000 * n + 10 * i
            got[first] = writer.append([record(m) for m in range(first, first + 3)])
            writer.wait(got[first].stop)

    with Writer(folder, commit_interval=0.005, segment_bytes=20_000) as writer:
        gate.open.set()
        faults.install(gate.hook)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.durable == writer.end == 8 * 20 * 3
    expected = {offset: first + i for first, offsets in got.items() for i, offset in enumerate(offsets)}
    assert held(folder) == sorted(expected.items())
    assert gate.fsyncs < 160, "less than one for each append"


def test_commit_bytes_bring_the_fsync_forward(folder: Path) -> None:
    with Writer(folder, commit_interval=NEVER, commit_bytes=5000) as writer:
        end = writer.append([record(0)]).stop
        assert not writer.wait(end, timeout=0.05)
        end = writer.append([record(1, size=6000)]).stop
        assert writer.wait(end, timeout=30)


def test_commit_covers_what_was_appended_before_it_though_an_fsync_runs_already(folder: Path) -> None:
    gate = Gate()
    with Writer(folder, commit_interval=0.001) as writer:
        faults.install(gate.hook)
        writer.append([record(0)])
        assert gate.reached.wait(30)
        writer.append([record(1)])
        ends: list[int] = []
        thread = threading.Thread(target=lambda: ends.append(writer.commit()))
        thread.start()
        gate.open.set()
        thread.join()
        assert ends == [2]


def test_a_clock_that_steps_back_changes_neither_order_nor_commits(folder: Path) -> None:
    times = iter([5_000_000_000, 4_000_000_000, 0, 6_000_000_000])
    with Writer(folder, clock=lambda: next(times), commit_interval=0.001) as writer:
        for n in range(4):
            assert writer.wait(writer.append([record(n, "ab"[n % 2])]).stop, timeout=30)
        with Reader(folder) as reader:
            assert [found.timestamp for found in reader.read(0) if isinstance(found, Rows)] == [
                5_000_000_000,
                4_000_000_000,
                0,
                6_000_000_000,
            ]
    assert held(folder) == [(n, n) for n in range(4)]


# -- the lock ---------------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_the_first_is_and_gets_the_log_when_that_is_killed(folder: Path) -> None:
    child = log_child.start(Job(str(folder), "hold"))
    assert child.stdout is not None
    assert child.stdout.readline() == "ready 0\n"
    with pytest.raises(LogLocked) as error:
        Writer(folder)
    assert f"pid {child.pid} on" in str(error.value)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with Writer(folder) as writer:
        assert writer.append([record(0)]) == range(1)


def test_a_second_writer_in_the_same_process_is_refused_and_without_the_lock_both_write_the_same_offsets(
    folder: Path,
) -> None:
    with Writer(folder) as writer:
        with pytest.raises(LogLocked):
            Writer(folder)
        faults.install(off=["lock"])
        other = Writer(folder)
        assert writer.append([record(0)]) == other.append([record(1)]), "the control: one offset, two records"
        other.abandon()


# -- a disk that fails ------------------------------------------------------------------------------------------------------


def test_after_a_failed_fsync_the_writer_gives_up_and_the_next_one_goes_on(folder: Path) -> None:
    writer = Writer(folder, commit_interval=NEVER)
    writer.append([record(0)])
    writer.commit()
    writer.append([record(1)])
    faults.install(full_at("fsync"))
    with pytest.raises(LogError) as error:
        writer.commit()
    assert error.value.code == "log.failed"
    faults.install()
    for call in (lambda: writer.append([record(2)]), writer.commit, lambda: writer.wait(2)):
        with pytest.raises(LogError):
            call()
    assert writer.durable == 1
    with pytest.raises(LogError):
        writer.close()
    with Writer(folder) as writer:
        assert writer.append([record(writer.end)]).start in (1, 2)
    assert held(folder) == [(n, n) for n in range(writer.end)]


def test_closing_says_so_if_something_did_not_become_durable(folder: Path) -> None:
    """The fsync that failed was the writer's own: nobody else would ever hear of it."""
    writer = Writer(folder, commit_interval=0.001)
    faults.install(full_at("fsync"))
    writer.append([record(0)])
    writer._committer.join(30)
    faults.install()
    with pytest.raises(LogError) as error:
        writer.close()
    assert error.value.code == "log.failed"
    Writer(folder).close()  # the lock is free all the same


@pytest.mark.parametrize(
    ("point", "detail"),
    [("fsync", ".index"), ("fsync", ".new"), ("K14", "created")],
)
def test_a_roll_that_fails_at_any_step_loses_nothing_that_is_appended_after_it(
    folder: Path, point: str, detail: str
) -> None:
    """The next record is small enough for the old segment."""
    with Writer(folder, segment_bytes=2000, commit_interval=NEVER) as writer:
        writer.append([record(0, size=800)])
        faults.install(full_at(point, detail))
        with pytest.raises(LogUnwritable) as error:
            writer.append([record(1, size=1800)])
        assert error.value.appended == range(1, 1)
        faults.install()
        assert writer.append([record(1)]) == range(1, 2)
        assert writer.commit() == 2
        assert held(folder) == [(0, 0), (1, 1)]
    with Writer(folder, segment_bytes=2000) as writer:
        assert writer.end == 2
        writer.append([record(2, size=1800)])
    assert held(folder) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("folder_fsync", [False, True])
def test_a_roll_that_fails_after_its_rename_ends_the_writer_and_loses_nothing(folder: Path, folder_fsync: bool) -> None:
    """The new segment may be on disk or not: nothing goes into either of them."""
    writer = Writer(folder, segment_bytes=2000, commit_interval=NEVER)
    writer.append([record(0, size=800)])
    if folder_fsync:
        faults.install(lambda p, d: full_at("fsync")(p, d) if d == str(folder) else None)
    else:
        faults.install(full_at("K14", "renamed"))
    for size in (1800, 10):
        with pytest.raises(LogError) as error:
            writer.append([record(1, size=size)])
        assert error.value.code == "log.failed"
        faults.install()
    writer.abandon()
    with Writer(folder, segment_bytes=2000) as writer:
        assert writer.append([record(1)]) == range(1, 2)
    assert held(folder) == [(0, 0), (1, 1)]


def test_a_point_that_cannot_be_written_costs_no_namespace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it should have named is in the next one: the last record of every namespace is found all the same."""
    monkeypatch.setattr("penstock.log.index.EVERY", 1)
    refused: list[int] = []
    write = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at >= 128 and not refused:
            refused.append(at)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with Writer(folder, commit_interval=NEVER) as writer:
        for n, name in enumerate("abc"):
            writer.append([record(n, name)])
            writer.commit()
    assert refused
    assert {name: rows.offset for name, rows in Reader(folder).last().items()} == {"a": 0, "b": 1, "c": 2}


def test_an_index_that_cannot_be_written_ends_the_writer_and_nobody_waits_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(folder, commit_interval=0.001)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    assert writer._index is not None
    monkeypatch.setattr(writer._index, "durable", refuse)
    with pytest.raises(LogError):
        writer.wait(writer.append([record(0)]).stop, timeout=30)
    with pytest.raises(LogError):
        writer.close()


# -- a bounded log ----------------------------------------------------------------------------------------------------------


def test_a_full_log_is_an_error_that_says_what_was_appended(folder: Path) -> None:
    with Writer(folder, max_bytes=8000, when_full="error") as writer:
        with pytest.raises(LogFull) as error:
            writer.append([record(n, "ab"[n % 2], 1000) for n in range(20)])
        fitted = error.value.appended
        assert 4 <= len(fitted) < 8
        assert writer.end == fitted.stop
        assert writer.size <= 8000
        writer.commit()
        assert held(folder) == [(n, n) for n in fitted]
        with Offsets(folder) as offsets:
            offsets.ack("r", fitted)
        assert writer.append([record(99, "a", 1000)]) == range(fitted.stop, fitted.stop + 1)
    assert held(folder)[-1] == (fitted.stop, 99)


def test_a_blocked_append_goes_on_when_another_thread_acks(folder: Path) -> None:
    with Writer(folder, max_bytes=8000, commit_interval=0.001) as writer, Offsets(folder, flush_interval=0) as offsets:
        offsets.register("r")
        got: list[range] = []
        thread = threading.Thread(
            target=lambda: got.append(writer.append([record(n, "ab"[n % 2], 1000) for n in range(20)]))
        )
        thread.start()
        seen: list[tuple[int, int]] = []
        with Reader(folder) as reader:
            stop = threading.Event()
            for found in reader.follow(0, stop=stop.is_set):
                seen += log_child.numbered([found])
                offsets.ack("r", range(found.offset, found.end))
                offsets.flush()
                if found.end == 20:
                    stop.set()
        thread.join(30)
        assert got == [range(20)]
        assert seen == [(n, n) for n in range(20)]
        assert writer.size <= 8000


def test_an_entry_that_can_never_fit_is_an_error_even_for_a_log_that_blocks(folder: Path) -> None:
    with Writer(folder, max_bytes=8000) as writer:
        writer.append([record(0)])
        with pytest.raises(LogFull) as error:
            writer.append([record(1), record(2, size=9000)])
        assert error.value.appended == range(1, 2)
        writer.append([record(2)])
    assert held(folder) == [(0, 0), (1, 1), (2, 2)]


def test_closing_ends_an_append_that_is_blocked(folder: Path) -> None:
    writer = Writer(folder, max_bytes=8000, commit_interval=0.001)
    errors: list[Exception] = []

    def work() -> None:
        try:
            writer.append([record(n, "ab"[n % 2], 1000) for n in range(20)])
        except LogError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert writer.wait(4, timeout=30)
    writer.close()
    thread.join(30)
    assert [e.code for e in errors if isinstance(e, LogError)] == ["log.closed"]
    with Writer(folder) as again:
        assert held(folder) == [(n, n) for n in range(again.end)]


# -- the end ----------------------------------------------------------------------------------------------------------------


def test_a_closed_writer_refuses_and_closes_again_without_a_word(folder: Path) -> None:
    writer = Writer(folder, commit_interval=NEVER)
    writer.append([record(0)])
    writer.close()
    writer.close()
    for call in (lambda: writer.append([record(1)]), lambda: writer.wait(2)):
        with pytest.raises(LogError) as error:
            call()
        assert error.value.code == "log.closed"
    assert held(folder) == [(0, 0)]


def test_appends_that_race_with_closing_are_in_the_log_or_refused(folder: Path) -> None:
    writer = Writer(folder, commit_interval=0.001)
    got: list[int] = []

    def work() -> None:
        try:
            while True:
                at = writer.append([record(writer.end)])
                if writer.wait(at.stop):
                    got.append(at.start)
        except LogError:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    assert writer.wait(3, timeout=30)
    writer.close()
    thread.join(30)
    with Writer(folder) as again:
        assert held(folder) == [(n, n) for n in range(again.end)]
        assert got == list(range(len(got)))
        assert again.end >= len(got)


def test_no_descriptor_is_left_open(folder: Path) -> None:
    Writer(folder).close()
    before = len(os.listdir("/proc/self/fd"))
    for n in range(3):
        with Writer(folder, segment_bytes=1000) as writer:
            writer.append([record(n, size=900)])
    with Writer(folder), pytest.raises(LogLocked):
        Writer(folder)
    assert len(os.listdir("/proc/self/fd")) == before
