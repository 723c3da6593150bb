"""A log whose writer is killed, whose machine loses its power, or whose disk is full: K12, K13, K14 and K21.

What a commit returned for is there afterwards, once and in its place; what a reader has seen is never gone.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.log import LogError, LogUnwritable, Offsets, Reader, Writer, compact, segment
from penstock.testing import faults
from penstock_sdk.record import Record
from tests.support import log_child
from tests.support.forgetful import Choose, Forgetful, Killed
from tests.support.log_child import Job, batch, held, record

pytestmark = pytest.mark.crash

NEVER = 1e9
CHOICES: dict[str, Choose] = {"forget": lambda n: 0, "keep": lambda n: n - 1}


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    faults.install()
    log_child.end_children()


def ways() -> Iterator[tuple[str, Choose | None]]:
    """How a process ends: killed, or by a power cut that forgets all, nothing, or anything that it may."""
    yield "kill", None
    yield from CHOICES.items()
    for seed in range(6):
        yield f"any {seed}", random.Random(seed).randrange


class Machine:
    """A process on a disk that forgets; it ends at the `at`th point that it reaches."""

    def __init__(self, root: Path, at: int, off: tuple[str, ...] = ()) -> None:
        root.mkdir()
        self.folder = root / "log"
        self.at, self.reached, self.last = at, 0, ""
        self.off = off
        self.disk = Forgetful(root, self._point)

    def _point(self, point: str, detail: str) -> None:
        self.reached += 1
        if self.reached == self.at:
            self.last = f"{point} {Path(detail).suffix or detail}"
            raise Killed(point)

    def run(self, work: Callable[[Path], None], choose: Choose | None) -> bool:
        """True if it ended on the way. Afterwards the folder is what is left of it."""
        faults.install(self.disk.hook, self.off)
        died = False
        try:
            work(self.folder)
        except Killed:
            died = True
        finally:
            faults.install()
        if choose is None:
            self.disk.kill()
        else:
            self.disk.crash(choose)
        self.disk.close()
        return died


# -- K13, K14: every point, killed or without power -------------------------------------------------------------------------


def every_point(
    tmp_path: Path, make: Callable[[], Appending], off: tuple[str, ...] = ()
) -> Iterator[tuple[Appending, Machine, str]]:
    for way, choose in ways():
        for at in range(1, 1000):
            machine = Machine(tmp_path / f"{way} {at}", at, off)
            work = make()
            died = machine.run(work, choose)
            if work.writer is not None:
                work.writer.abandon()
            yield work, machine, f"{way} at {machine.last}"
            if not died:
                break
        else:
            raise AssertionError("it never ends")


class Appending:
    """Appends, commits and rolls, and remembers what it was promised."""

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self.appended = 0
        self.durable = 0
        self.seen = 0

    def __call__(self, folder: Path) -> None:
        self.writer = Writer(folder, segment_bytes=1200, commit_interval=NEVER)
        reader = Reader(folder)
        for n in range(0, 14, 2):
            self.appended = n + 2
            if n % 4:
                self.writer.append([record(n, size=150), record(n + 1, "b")])
            else:
                self.writer.append_batch(batch([n, n + 1]), "b")
            self.look(reader)
            if n % 3:
                self.durable = self.writer.commit()
                self.look(reader)
        self.writer.close()
        self.durable = self.appended

    def look(self, reader: Reader) -> None:
        self.seen = max(self.seen, reader.end)


def after(work: Appending, folder: Path) -> int:
    """Everything promised or seen is there, nothing is doubled, reordered or invented, and the log goes on."""
    with Writer(folder, segment_bytes=1200) as writer:
        end = writer.end
        assert max(work.durable, work.seen) <= end <= work.appended
        assert held(folder) == [(n, n) for n in range(end)]
        assert writer.append([record(end, size=400)]) == range(end, end + 1)
    assert held(folder) == [(n, n) for n in range(end + 1)]
    return end


def test_what_was_committed_or_seen_survives_a_kill_or_a_power_cut_at_any_point(tmp_path: Path) -> None:
    died: set[str] = set()
    for work, machine, how in every_point(tmp_path, Appending):
        died.add(machine.last)
        try:
            after(work, machine.folder)
        except Exception as error:
            raise AssertionError(how) from error
    assert {"K12 .seg", "K13 .seg", "K14 synced", "K14 created", "K14 renamed", "fsync .index", "fsync .new"} <= died


def test_without_fsync_a_power_cut_takes_what_was_committed(tmp_path: Path) -> None:
    """The control."""
    harm = 0
    for work, machine, _ in every_point(tmp_path, Appending, off=("fsync",)):
        try:
            after(work, machine.folder)
        except (AssertionError, LogError):
            harm += 1
    assert harm > 5


def test_readers_that_see_more_than_what_is_durable_see_what_is_gone_later(tmp_path: Path) -> None:
    """The control of `log-durable`."""
    harm = 0
    for work, machine, _ in every_point(tmp_path, Appending, off=("log-durable",)):
        try:
            after(work, machine.folder)
        except (AssertionError, LogError):
            harm += 1
    assert harm > 0


def test_the_machine_dies_during_the_recovery_too(tmp_path: Path) -> None:
    """A torn tail, and an end at each point of the start that cuts it."""
    for way, choose in ways():
        for at in range(1, 100):
            machine = Machine(tmp_path / f"{way} {at}", at)
            with Writer(machine.folder, commit_interval=NEVER) as writer:
                writer.append([record(0), record(1)])
                writer.commit()
                writer.append([record(2, size=900)])
                writer.abandon()
            path = machine.folder / segment.name(0)
            path.write_bytes(path.read_bytes()[:-40])
            machine.disk.close()
            machine.disk = Forgetful(machine.folder.parent, machine._point)
            died = machine.run(lambda folder: Writer(folder).abandon(), choose)
            with Writer(machine.folder) as writer:
                assert writer.append([record(2)]) == range(2, 3)
            assert held(machine.folder) == [(0, 0), (1, 1), (2, 2)], (way, at)
            if not died:
                break


# -- real processes and SIGKILL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", ["K12", "K13", "K14:synced", "K14:created", "K14:renamed", "fsync:.seg", "fsync:.new", "fsync:.index"]
)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_killed_writer_loses_nothing_that_it_was_promised(tmp_path: Path, point: str, nth: int) -> None:
    folder = tmp_path / "log"
    job = Job(str(folder), "append", count=20, size=150, every=2, settings={"segment_bytes": 1000})
    first = log_child.run(Job(**{**vars(job), "kill_at": point, "kill_nth": nth}))
    assert first.killed, first.err
    promised = first.acknowledged
    done = max((n for n, _ in first.said("appended")), default=-1) + 1
    second = log_child.run(job)
    assert second.returncode == 0, second.err
    (end, cut), *_ = second.said("open")
    assert cut == 0
    assert len(promised) <= end <= done + 1
    found = dict(held(folder))
    assert promised.items() <= found.items()
    assert list(found) == list(range(end + 20))
    assert [found[o] for o in range(end)] == list(range(end))
    assert [found[o] for o in range(end, end + 20)] == list(range(20))


def test_a_write_that_the_kernel_cut_in_the_middle_is_undone_or_cut_off(tmp_path: Path) -> None:
    """A limit on the size of files: a real write of a part, at many sizes; then the process is killed."""
    for number, limit in enumerate(range(300, 900, 23)):
        folder = tmp_path / f"{number}"
        first = log_child.run(Job(str(folder), "append", count=20, size=100, every=1, file_bytes=limit))
        assert first.killed, first.err
        assert len(first.said("refused")) == 1
        with Writer(folder) as writer:
            assert writer.recovered.cut == 0, "it was undone at once"
            assert writer.end == len(first.said("appended"))
            writer.append([record(writer.end)])
        assert held(folder) == [(n, n) for n in range(writer.end)]


# -- K21: a disk that is full -----------------------------------------------------------------------------------------------


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def tried(writer: Writer, records: list[Record]) -> range:
    """What was appended, all or a part."""
    try:
        return writer.append(records)
    except LogUnwritable as refused:
        return refused.appended


def ballast(disk: Path, leave: int) -> Path:
    """Fills the disk but for so many blocks."""
    file = disk / "ballast"
    stat = os.statvfs(disk)
    file.write_bytes(bytes(max(0, (stat.f_bavail - leave) * stat.f_frsize)))
    return file


@pytest.mark.parametrize("leave", range(12))
def test_a_disk_that_is_full_at_any_moment_costs_nothing_and_the_writer_goes_on(tmp_path: Path, leave: int) -> None:
    with small_disk(tmp_path / "disk", "512k") as disk:
        folder = disk / "log"
        with Writer(folder, segment_bytes=9000, commit_interval=NEVER) as writer:
            writer.append([record(0, size=3000)])
            writer.commit()
            file = ballast(disk, leave)
            n, refused = 1, 0
            while n < 40:
                numbers = range(n, n + 3)
                got = tried(writer, [record(m, size=2500 if m % 5 else 10) for m in numbers])
                assert got == range(n, writer.end)
                n = writer.end
                if len(got) < 3:
                    refused += 1
                    n += len(tried(writer, [record(n, size=10)]))  # a small one may fit where a large one does not
                    assert writer.commit() == n
                    assert held(folder) == [(m, m) for m in range(n)]
                    if refused == 2:
                        file.unlink()
            assert writer.commit() == n
            assert held(folder) == [(m, m) for m in range(n)]
        assert refused == 2
        with Writer(folder) as writer:
            assert (writer.end, writer.recovered.cut) == (n, 0)
        assert held(folder) == [(m, m) for m in range(n)]


@pytest.mark.parametrize("leave", range(4))
def test_a_log_is_opened_on_a_full_disk_or_refused_and_is_whole_later(tmp_path: Path, leave: int) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        folder = disk / "log"
        with Writer(folder, commit_interval=NEVER) as writer:
            writer.append([record(n, size=1000) for n in range(5)])
        for index in folder.glob("*.index"):
            index.unlink()
        file = ballast(disk, leave)
        try:
            Writer(folder).close()
        except LogUnwritable:
            pass
        file.unlink()
        with Writer(folder) as writer:
            writer.append([record(5)])
        assert held(folder) == [(n, n) for n in range(6)]


@pytest.mark.parametrize("leave", range(6))
def test_a_compaction_or_a_flush_on_a_full_disk_leaves_everything_as_it_was(tmp_path: Path, leave: int) -> None:
    with small_disk(tmp_path / "disk", "512k") as disk:
        folder = disk / "log"
        names = "abcdefghijklmnop"
        with Writer(folder, segment_bytes=9000, commit_interval=NEVER) as writer:
            for n in range(40):
                writer.append([record(n, names[n % 16], 1500)])
        offsets = Offsets(folder, flush_interval=NEVER)
        offsets.ack("r", range(40))
        offsets.flush()
        file = ballast(disk, leave)
        refused: list[Any] = []
        try:
            compact(folder)
        except LogUnwritable as error:
            refused.append(error)
        left = held(folder)
        assert {o for o, _ in left} >= set(range(24, 40))
        assert len(left) == (40 if refused else len(left))
        assert not list(folder.glob("*.compact")), "what was half made takes the space that others need"
        try:
            offsets.ack("other", range(10))
            offsets.flush()
        except LogUnwritable:
            pass
        file.unlink()
        offsets.ack("other", range(10))
        offsets.close()
        compact(folder)
        assert {o for o, _ in held(folder)} >= set(range(24, 40))
        with Offsets(folder) as again:
            assert again.pending("r") is None
            assert again.lag("other") == len([o for o, _ in held(folder) if o >= 10])
