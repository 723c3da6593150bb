"""A commit that is interrupted anywhere, any number of times, with consumers taking files away in between."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.native import DeliveryId, Receipt, Refusal, Staged
from penstock.testing import faults

D = DeliveryId("p", "in", "out", 5, "f" * 32, fence=1, epoch=7)


def never(refusal: Refusal) -> bool:
    raise AssertionError(f"a folder of text refuses nothing in commit: {refusal}")


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


class Folder:
    """An output folder with one prepared delivery, and a consumer who takes files as they appear."""

    def __init__(self, root: Path, files: int) -> None:
        self.root = root
        staging = root / "_penstock" / "p.in" / D.hash / "attempt"
        staging.mkdir(parents=True)
        manifest = []
        for n in range(files):
            (staging / f"part-{n:05d}").write_text(f"text {n}")
            staged = f"_penstock/p.in/{D.hash}/attempt/part-{n:05d}"
            manifest.append({"staged": staged, "name": f"p.in-{n}.txt", "bytes": 6})
        self.staged = Staged(files, 6 * files, manifest)
        self.consumed: list[str] = []

    def commit(self, die_at: int | None) -> Receipt | None:
        """As recovery does it, in a new process. Dies at the n-th point, if there are as many."""
        reached = 0

        def hook(point: str, detail: str) -> None:
            nonlocal reached
            reached += 1
            if reached == die_at:
                raise Killed(point)

        destination = FilesDestination(FilesDestinationSettings(path=str(self.root)), "out")
        faults.install(hook)
        try:
            return destination.find(D) or destination.commit(D, self.staged, never)
        except Killed:
            return None
        finally:
            faults.install()

    def visible(self) -> list[Path]:
        return sorted(p for p in self.root.iterdir() if p.is_file())

    def consume(self, chosen: list[bool]) -> None:
        for path, taken in zip(self.visible(), chosen, strict=False):
            if taken:
                self.consumed.append(path.read_text())
                path.unlink()

    def delivered(self) -> Counter[str]:
        return Counter([*self.consumed, *(p.read_text() for p in self.visible())])


kills = st.lists(st.tuples(st.integers(1, 9), st.lists(st.booleans(), max_size=5)), max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), kills)
def test_every_file_is_delivered_once_however_often_the_commit_was_interrupted(
    files: int, interruptions: list[tuple[int, list[bool]]]
) -> None:
    root = Path(tempfile.mkdtemp(prefix="publish-"))
    try:
        folder = Folder(root, files)
        for die_at, consumed in interruptions:
            folder.commit(die_at)
            assert max(folder.delivered().values(), default=1) == 1
            folder.consume(consumed)
        receipt = folder.commit(None)
        assert folder.delivered() == Counter(f"text {n}" for n in range(files))
        assert receipt == Receipt(files, made=tuple(f"p.in-{n}.txt" for n in range(files)))
        assert folder.commit(None) == receipt
        assert folder.delivered() == Counter(f"text {n}" for n in range(files))
    finally:
        shutil.rmtree(root)


def test_an_interruption_after_each_rename_in_turn_costs_nothing(tmp_path: Path) -> None:
    points = 0
    for die_at in range(1, 12):
        folder = Folder(tmp_path / str(die_at), 4)
        if folder.commit(die_at) is None:
            points += 1
            if die_at <= 4:  # K6a comes after each rename
                assert len(folder.visible()) == die_at
        folder.commit(None)
        assert folder.delivered() == Counter(f"text {n}" for n in range(4))
    assert points >= 6  # four renames, the folder's fsync, the receipt's
