"""Kill point K15: compaction is killed or loses its power at each rename, each removal and each fsync. Run again it gives what it would
have given at once, and at no moment a record that somebody needs is missing, or is there twice.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log import LogError, Offsets, Reader, Writer, compact, index, segment
from penstock.testing import faults
from tests.support import log_child
from tests.support.forgetful import Choose, Forgetful, Killed
from tests.support.log_child import Job, batch, held, record

pytestmark = pytest.mark.crash

NEVER = 1e9
COUNT, ACKED = 60, 50
NAMES = "abc"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed segments with records and batches, most of it acked."""
    folder = tmp_path_factory.mktemp("prepared") / "log"
    with Writer(folder, segment_bytes=1800, commit_interval=NEVER) as writer:
        for n in range(0, COUNT, 5):
            writer.append([record(m, NAMES[m % 3], 60) for m in (n, n + 1)])
            writer.append_batch(batch([n + 2, n + 3, n + 4]), NAMES[n % 3])
    assert len(segment.bases(folder)) > 5
    acked(folder, ACKED)
    return folder


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    faults.install()
    log_child.end_children()


def acked(folder: Path, end: int) -> None:
    with Offsets(folder) as offsets:
        offsets.register("r")
        offsets.ack("r", range(end))


def expected(prepared: Path, tmp_path: Path) -> list[tuple[int, int]]:
    """What is left by a compaction that nothing disturbs."""
    shutil.copytree(prepared, tmp_path / "undisturbed")
    compact(tmp_path / "undisturbed")
    return held(tmp_path / "undisturbed")


def whole(folder: Path) -> list[tuple[int, int]]:
    """Everything pending is there, nothing twice; each number stands at its offset."""
    found = held(folder)
    assert found == sorted(set(found))
    assert all(offset == n for offset, n in found)
    assert [o for o, _ in found if o >= ACKED] == list(range(ACKED, COUNT))
    with Reader(folder) as reader:
        assert [o for s in reader.spans(0) for o in range(s.offset, s.end)] == [o for o, _ in found]
        assert len(reader.last()) == 3
    return found


def ways() -> Iterator[tuple[str, Choose | None]]:
    yield "kill", None
    yield "forget", lambda n: 0
    yield "keep", lambda n: n - 1
    for seed in range(8):
        yield f"any {seed}", random.Random(seed).randrange


class Disk:
    """A copy of the log on a disk that forgets."""

    def __init__(self, prepared: Path, root: Path) -> None:
        root.mkdir()
        self.folder = root / "log"
        shutil.copytree(prepared, self.folder)
        self.at = self.reached = 0
        self.points: list[str] = []
        self.disk = Forgetful(root, self._point)

    def _point(self, point: str, detail: str) -> None:
        self.reached += 1
        self.points.append(f"{point} {''.join(Path(detail).suffixes)}")
        if self.reached == self.at:
            raise Killed(point)

    def compact(self, at: int, choose: Choose | None, off: tuple[str, ...] = ()) -> bool:
        """True if it ended at the `at`th point."""
        self.at, self.reached = at, 0
        faults.install(self.disk.hook, off)
        try:
            compact(self.folder)
        except Killed:
            return True
        else:
            return False
        finally:
            faults.install()
            if choose is None:
                self.disk.kill()
            else:
                self.disk.crash(choose)


@pytest.mark.contract("T18", safeguard="compaction-cover")
def test_a_compaction_that_ends_anywhere_is_finished_by_the_next(prepared: Path, tmp_path: Path) -> None:
    undisturbed = expected(prepared, tmp_path)
    points: set[str] = set()
    for way, choose in ways():
        for at in range(1, 200):
            made = Disk(prepared, tmp_path / f"{way} {at}")
            died = made.compact(at, choose)
            points |= set(made.points)
            found = whole(made.folder)
            assert set(undisturbed) <= set(found), (way, at)
            with Writer(made.folder) as writer:
                assert writer.end == COUNT
            compact(made.folder)
            assert whole(made.folder) == undisturbed, (way, at)
            assert not list(made.folder.glob("*.compact"))
            made.disk.close()
            if not died:
                break
    assert {"K15 .compact", "K15 .index.compact", "K15 .seg", "K15 .index", "fsync .compact", "fsync "} <= points


def test_segments_that_count_twice_double_their_records(prepared: Path, tmp_path: Path) -> None:
    """The control of `compaction-cover`: killed before the first removal."""
    folder = killed_before("K15 .seg", prepared, tmp_path)
    assert _from_everywhere(folder) == {o for o, _ in whole(folder)}
    faults.install(off=["compaction-cover"])
    try:
        harmed = _from_everywhere(folder)
    except LogError:
        return  # what was taken away is there again, and looks like damage
    faults.install()
    assert harmed > {o for o, _ in whole(folder)}


def _from_everywhere(folder: Path) -> set[int]:
    """What readers get that begin at any offset: it must not depend on where they begin."""
    with Reader(folder) as reader:
        return {o for start in range(COUNT) for o, _ in log_child.numbered(reader.read(start, start + 5))}


def killed_before(point: str, prepared: Path, tmp_path: Path) -> Path:
    probe = Disk(prepared, tmp_path / "probe")
    probe.compact(0, None)
    probe.disk.close()
    made = Disk(prepared, tmp_path / "made")
    assert made.compact(probe.points.index(point) + 1, None)
    made.disk.close()
    return made.folder


def test_an_index_whose_segment_is_gone_goes_with_the_next_compaction(prepared: Path, tmp_path: Path) -> None:
    folder = killed_before("K15 .index", prepared, tmp_path)
    compact(folder)
    assert {path.stem for path in folder.glob("*.index")} == {path.stem for path in folder.glob("*.seg")}


def test_an_index_that_outlives_its_segment_is_never_believed_for_another(prepared: Path, tmp_path: Path) -> None:
    """Two compactions that lose their power: of the first only the index has reached its place, of the second only the segment."""
    large = tmp_path / "large"
    with Writer(large, segment_bytes=300_000, commit_interval=NEVER) as writer:
        for n in range(60):
            writer.append([record(n, NAMES[n % 3], 12_000)])
    first = tmp_path / "first"
    shutil.copytree(large, first)
    acked(first, 5)
    compact(first)
    second = tmp_path / "second"
    shutil.copytree(large, second)
    acked(second, 9)
    compact(second)
    name = segment.name(0)
    mixed = tmp_path / "mixed"
    shutil.copytree(second, mixed)
    shutil.copy(index.path_of(first / name), index.path_of(mixed / name))
    with Reader(mixed) as reader:
        for start in range(60):
            found = list(log_child.numbered(reader.read(start)))
            assert [o for o, _ in found if o >= 9] == list(range(max(start, 9), 60)), start
        assert {name: rows.offset for name, rows in reader.last().items()} == {"a": 57, "b": 58, "c": 59}


@pytest.mark.contract("T18", safeguard="compaction-cover")
@pytest.mark.parametrize("point", ["K15:.index.compact", "K15:.seg", "K15:.index", "fsync:.compact", "fsync:log"])
def test_a_compaction_that_is_really_killed(prepared: Path, tmp_path: Path, point: str) -> None:
    undisturbed = expected(prepared, tmp_path)
    for nth in (1, 2):
        folder = tmp_path / f"{nth}" / "log"
        shutil.copytree(prepared, folder)
        # Beside a writer that goes on, and a reader that was there before.
        with Writer(folder, commit_interval=NEVER) as writer, Reader(folder) as reader:
            rows = reader.read(ACKED)
            ended = log_child.run(Job(str(folder), "compact", kill_at=point, kill_nth=nth))
            assert ended.killed or ended.returncode == 0, ended.err
            assert [o for o, _ in log_child.numbered(rows)] == list(range(ACKED, COUNT))
            whole(folder)
            writer.append([record(COUNT)])
        compact(folder)
        assert held(folder) == [*undisturbed, (COUNT, COUNT)]


def test_a_reader_whose_segments_were_replaced_twice_reads_the_newest(prepared: Path, tmp_path: Path) -> None:
    """A file's number may be used again by the one that takes its place."""
    folder = tmp_path / "log"
    shutil.copytree(prepared, folder)
    with Reader(folder) as reader:
        list(reader.spans(0))
        reader.close()
        for end in (20, 30, 40, ACKED):
            with Offsets(folder) as offsets:
                offsets.ack("r", range(end))
            compact(folder)
        covers = {base: reader._covers(base) for base in segment.bases(folder)}
        assert covers == {base: segment.header(folder / segment.name(base)).covers for base in segment.bases(folder)}
        assert [o for o, _ in log_child.numbered(reader.read(ACKED))] == list(range(ACKED, COUNT))
