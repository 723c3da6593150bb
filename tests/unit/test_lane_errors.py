"""What a lane makes of an error in a batch. Real ledger, source and destination; only the Spark steps are left out."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings, FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine import lane as module
from penstock.engine.backoff import Backoff
from penstock.engine.batch.commit import finish
from penstock.engine.batch.context import Target, Work
from penstock.engine.batch.prepare import prepare
from penstock.engine.batch.run import Counts
from penstock.engine.batch.snapshot import take
from penstock.engine.lane import LaneLoop
from penstock.engine.stop import StopSignal
from penstock.errors import InputChanged, PenstockError, Retry
from penstock.ledger import Attempt, Ledger, Snapshot, State
from penstock.native import Limits, Staged
from penstock.ranges import Known
from penstock.testing import faults


@dataclass
class Lane:
    """One lane over one input file, up to the point where Spark would read it."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    on_change: Any = "reread"
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "in").mkdir()
        self.write("line\n")
        self.ledger = Ledger(self.root / "ledger.db")
        source = FilesSource(FilesSourceSettings(path=str(self.root / "in"), on_change=self.on_change), "in")
        self.destination = FilesDestination(FilesDestinationSettings(path=str(self.root / "out")), "out")
        self.destination.check()
        target = Target(self.destination, "files", {"path": str(self.root / "out")})
        nothing: Any = None
        row = self.ledger.lane("p", "in")
        self.work = Work(row, source, (), {"out": target}, Limits(), nothing, self.ledger, nothing)
        self.known: Known = row.known
        self.loop = LaneLoop(
            self.work, StopSignal(), lambda e, _: self.events.append(e), once=True, backoff=Backoff(), tag="t"
        )

    def write(self, text: str) -> None:
        path = self.root / "in" / "a"
        path.write_text(text)
        then = time.time() - 600 + len(text)
        os.utime(path, (then, then))

    def stage(self, s: Snapshot) -> Staged:
        d = self.work.delivery_id(s, "out")
        folder = self.root / "out" / "_penstock" / "p.in" / d.hash / "attempt"
        folder.mkdir(parents=True)
        (folder / "part-00000").write_text("line\n")
        staged = str((folder / "part-00000").relative_to(self.root / "out"))
        return Staged(1, 5, [{"staged": staged, "name": "p.in-1.txt", "bytes": 5}])

    def batch(self, *, changed: bool, error: BaseException | None, prepared: bool) -> None:
        """Runs one batch whose input changes and which then fails, before or after it is prepared."""

        def run(work: Work, s: Snapshot, attempt: Attempt) -> Counts:
            staged = self.stage(s)
            if prepared:
                prepare(work, s, 1, 0, {"out": staged})
            if changed:
                self.write("line\nmore\n")
            if error is not None and not prepared:
                raise error
            return Counts(1, 0)

        def hook(point: str, detail: str) -> None:
            if error is not None and point == "fsync" and "receipt.json" in detail:
                raise error

        self.monkeypatch.setattr(module, "compute", run)
        taken = take(self.work, self.known)
        assert taken is not None
        self.known.took(taken[0].ranges)
        faults.install(hook)
        self.loop._batch(self.work, self.known, *taken)

    @property
    def states(self) -> list[State]:
        return [s.state for s in self.ledger.unfinished(self.work.lane.key)]

    @property
    def delivered(self) -> list[str]:
        return [p.read_text() for p in (self.root / "out").iterdir() if p.is_file()]


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lane]:
    made = Lane(tmp_path, monkeypatch)
    yield made
    made.ledger.close()


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_job_that_failed_because_its_input_changed_gives_the_snapshot_up_where_that_was_asked_for(lane: Lane) -> None:
    lane.batch(changed=True, error=ValueError("what Spark says then"), prepared=False)
    assert lane.events == ["snapshot", "reread"]
    assert lane.states == []
    assert lane.known.strands == lane.ledger.lane("p", "in").known.strands == {}
    assert not list((lane.root / "out" / "_penstock").rglob("part-*"))


def test_a_job_that_failed_because_its_input_changed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane(tmp_path, monkeypatch, on_change="stop")
    with pytest.raises(InputChanged) as caught:
        lane.batch(changed=True, error=ValueError("what Spark says then"), prepared=False)
    assert caught.value.where == "p/in, batch 1"
    assert lane.states == [State.OPEN]
    assert list(lane.known.strands) == [str(tmp_path / "in" / "a")]
    lane.ledger.close()


def test_a_job_that_failed_for_another_reason_keeps_its_snapshot_and_its_batch_is_named(lane: Lane) -> None:
    with pytest.raises(PenstockError) as caught:
        lane.batch(changed=False, error=ValueError("x"), prepared=False)
    assert (caught.value.code, caught.value.where) == ("engine.unexpected", "p/in, batch 1")
    assert lane.states == [State.OPEN]


def test_a_full_disk_after_prepare_is_tried_again_and_loses_nothing(lane: Lane) -> None:
    with pytest.raises(Retry):
        lane.batch(changed=False, error=FULL, prepared=True)
    assert lane.states == [State.PREPARED]
    faults.install()
    [s] = lane.ledger.unfinished(lane.work.lane.key)
    assert finish(lane.work, s) == [s.ranges]
    assert lane.delivered == ["line\n"]


@pytest.mark.contract("C12", safeguard="roll-forward")
def test_prepared_work_is_never_given_up_because_its_input_changed_since(lane: Lane) -> None:
    with pytest.raises(Retry):
        lane.batch(changed=True, error=FULL, prepared=True)
    assert lane.states == [State.PREPARED]
    assert list(lane.known.strands) == [str(lane.root / "in" / "a")]
    assert lane.known.strands == lane.ledger.lane("p", "in").known.strands
