"""What a lane makes of an error in a batch. Real ledger, source and destination; only the Spark steps are left out."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.files import source as files
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings, FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine import aside
from penstock.engine import lane as module
from penstock.engine.backoff import Backoff
from penstock.engine.batch.account import Account, Sums
from penstock.engine.batch.admit import Admitted, GateClosed
from penstock.engine.batch.commit import finish
from penstock.engine.batch.context import Target, Work
from penstock.engine.batch.deadletter import Letter, Letters
from penstock.engine.batch.prepare import prepare
from penstock.engine.batch.stage import Part, StagedBatch, StagedTarget
from penstock.engine.classify import SparkDied
from penstock.engine.lane import LaneLoop
from penstock.engine.pace import START
from penstock.engine.stop import StopSignal
from penstock.errors import InputChanged, PenstockError, Retry, TooLarge, UnreadableFile
from penstock.ledger import Attempt, Ledger, Snapshot, State
from penstock.native import Limits, Staged
from penstock.ranges import Known, Range, Ranges
from penstock.testing import faults


@dataclass
class Lane:
    """One lane over one input file, up to the point where Spark would read it."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    on_change: Any = "reread"
    events: list[str] = field(default_factory=list)
    stopped: bool = False  # whether Spark is gone

    def __post_init__(self) -> None:
        (self.root / "in").mkdir()
        self.write("line\n")
        self.ledger = Ledger(self.root / "ledger.db")
        source = FilesSource(FilesSourceSettings(path=str(self.root / "in"), on_change=self.on_change), "in")
        self.destination = FilesDestination(FilesDestinationSettings(path=str(self.root / "out")), "out")
        self.destination.check()
        target = Target(self.destination, "files", {"path": str(self.root / "out")})
        nothing: Any = None
        state = SimpleNamespace(isStopped=lambda: self.stopped)  # all that a lane asks Spark for here
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: state)))
        row = self.ledger.lane("p", "in")
        self.work = Work(row, source, (), {"out": target}, Limits(), spark, self.ledger, nothing, self.root / "state")
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
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-00000").write_text("line\n")
        staged = str((folder / "part-00000").relative_to(self.root / "out"))
        return Staged(1, 5, [{"staged": staged, "name": "p.in-1.txt", "bytes": 5}])

    def batch(self, *, changed: bool, error: BaseException | None, prepared: bool) -> None:
        """Runs one batch whose input changes and which then fails, before or after it is prepared."""

        def run(work: Work, s: Snapshot, attempt: Attempt) -> Account:
            numbers = Account(1, {"out": Sums()}, Letters("in", lambda _: (b"", {})), 0)
            target = StagedTarget(self.stage(s), Part())
            if prepared:
                staged = StagedBatch(None, Part(), {"out": target}, None, work.workdir(s))  # type: ignore[arg-type]
                prepare(work, s, attempt, numbers, Admitted({}, {}, {}), staged)
            if changed:
                self.write("line\nmore\n")
            if error is not None and not prepared:
                raise error
            return numbers

        def hook(point: str, detail: str) -> None:
            if error is not None and point == "fsync" and "receipt.json" in detail:
                raise error

        self.monkeypatch.setattr(module, "compute", run)
        taken = self.loop._take(self.work, self.known)
        assert taken is not None
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


# -- failures that make a batch smaller, or hold it -----------------------------------------------------------------------


def closed_at(lane: Lane, seq: int) -> GateClosed:
    dead = aside.Dead(seq, 0, "check", "processor.rejected", "bad", 1)
    return GateClosed(Letter("in", "", b"place", {}, dead), lane.work.window)


def rows(lane: Lane, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(lane.root / "ledger.db")) as db:
        return db.execute(sql).fetchall()


@pytest.mark.contract("S11", safeguard="split")
def test_a_gate_that_closed_inside_a_batch_cuts_it_before_the_record_and_holds_that(lane: Lane) -> None:
    lane.write("a\nb\nc\n")
    base = 0  # of the first file that a lane ever takes
    lane.batch(changed=False, error=closed_at(lane, base + 1), prepared=False)
    halves = [(s.ranges[0].low, s.ranges[0].high) for s in lane.ledger.unfinished(lane.work.lane.key)]
    assert halves == [(None, base + 1), (base + 1, None)]
    assert rows(lane, "SELECT seq, state FROM nack") == [(base + 1, "held")]
    assert rows(lane, "SELECT batch, state FROM snapshot WHERE batch = 1") == [(1, "split")]
    assert not list((lane.root / "out" / "_penstock").rglob("part-*"))


def test_without_the_split_the_batch_stays_whole(lane: Lane) -> None:
    base = 0  # of the first file that a lane ever takes
    faults.install(off=["split"])
    lane.monkeypatch.setattr(faults, "install", lambda *_, **__: None)  # the batch would switch it on again
    with pytest.raises(GateClosed):
        lane.batch(changed=False, error=closed_at(lane, base), prepared=False)
    lane.monkeypatch.undo()
    assert lane.states == [State.OPEN]
    assert rows(lane, "SELECT count(*) FROM nack") == [(0,)]


def test_a_gate_that_closed_at_the_first_record_holds_it_and_cuts_nothing(lane: Lane) -> None:
    base = 0  # of the first file that a lane ever takes
    lane.batch(changed=False, error=closed_at(lane, base), prepared=False)
    assert lane.states == [State.OPEN]
    assert rows(lane, "SELECT seq, state FROM nack") == [(base, "held")]


def test_a_file_that_can_not_be_read_is_cut_out_of_its_batch(lane: Lane) -> None:
    for name in ("b", "c"):
        path = lane.root / "in" / name
        path.write_text("x\n")
        os.utime(path, (time.time() - 600, time.time() - 600))
    bad = str(lane.root / "in" / "b")
    lane.batch(changed=False, error=UnreadableFile(bad, "unexpected end"), prepared=False)
    halves = [[Path(r.strand).name for r in s.ranges] for s in lane.ledger.unfinished(lane.work.lane.key)]
    assert sorted(name for half in halves for name in half) == ["a", "b", "c"]
    assert len(halves) == 2
    assert all(s.reason == "unreadable" for s in lane.ledger.unfinished(lane.work.lane.key))


def test_without_isolation_an_unreadable_file_stops_the_lane(lane: Lane) -> None:
    faults.install(off=["isolate"])
    lane.monkeypatch.setattr(faults, "install", lambda *_, **__: None)
    with pytest.raises(UnreadableFile):
        lane.batch(changed=False, error=UnreadableFile(str(lane.root / "in" / "a"), "no"), prepared=False)
    lane.monkeypatch.undo()
    assert lane.states == [State.OPEN]


def test_a_job_that_failed_because_spark_was_shut_down_says_so_and_keeps_its_batch(lane: Lane) -> None:
    lane.stopped = True
    with pytest.raises(SparkDied):
        lane.batch(changed=False, error=ValueError("x"), prepared=False)
    assert lane.states == [State.OPEN]


def test_a_batch_with_a_record_that_is_too_large_is_run_again_so_that_it_becomes_a_nack(lane: Lane) -> None:
    runs: list[tuple[int, int, bool]] = []

    def run(work: Work, s: Snapshot, attempt: Attempt) -> Account:
        runs.append((s.batch, attempt.number, work.refuse_large))
        if not work.refuse_large:
            raise TooLarge("A record has 99 bytes", code="record.too-large")
        numbers = Account(1, {"out": Sums()}, Letters("in", lambda _: (b"", {})), 0)
        staged = StagedBatch(None, Part(), {"out": StagedTarget(lane.stage(s), Part())}, None, work.workdir(s))  # type: ignore[arg-type]
        prepare(work, s, attempt, numbers, Admitted({}, {}, {}), staged)
        return numbers

    lane.monkeypatch.setattr(module, "compute", run)
    taken = lane.loop._take(lane.work, lane.known)
    assert taken is not None
    lane.loop._batch(lane.work, lane.known, *taken)
    assert runs == [(1, 1, False), (1, 2, True)]
    assert lane.states == []
    assert lane.delivered == ["line\n"]
    assert not lane.work.refuse_large  # the next batch is read without looking first


# -- how large a batch is, and when it is taken ----------------------------------------------------------------------------


class Clock:
    """The lane's own; files settle by the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


def waiting(lane: Lane, *, once: bool = False, **limits: Any) -> LaneLoop:
    work = replace(lane.work, limits=replace(lane.work.limits, **limits))
    return LaneLoop(work, StopSignal(), lambda *_: None, once=once, backoff=Backoff(), tag="t")


def offered(*, full: bool) -> Ranges:
    return Ranges((Range("a", {}, 0, 1),), 1, full=full)


def test_a_batch_that_is_not_full_waits_until_max_delay_has_passed(lane: Lane) -> None:
    clock, loop = Clock(lane.monkeypatch), waiting(lane, max_delay=10.0)
    for passed in (0.0, 5.0, 4.999):
        clock.now += passed
        assert not loop._enough(offered(full=False))
    clock.now += 0.001
    assert loop._enough(offered(full=False))


def test_a_full_batch_waits_for_nothing(lane: Lane) -> None:
    Clock(lane.monkeypatch)
    assert waiting(lane, max_delay=10.0)._enough(offered(full=True))


def test_without_max_delay_and_with_once_nothing_waits(lane: Lane) -> None:
    Clock(lane.monkeypatch)
    assert waiting(lane)._enough(offered(full=False))
    assert waiting(lane, once=True, max_delay=10.0)._enough(offered(full=False))


def test_a_batch_that_waits_is_not_written_down_and_has_what_came_in_the_meantime(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "POLL", 0.0)
    monkeypatch.setattr(files, "LISTING_SHARE", float("inf"))
    clock, loop = Clock(lane.monkeypatch), waiting(lane, max_delay=10.0)
    assert loop._take(loop._work, lane.known) is None
    assert lane.states == []
    assert lane.known.strands == {}
    path = lane.root / "in" / "b"
    path.write_text("x\n")
    os.utime(path, (time.time() - 100, time.time() - 100))
    clock.now += 10.0
    taken = loop._take(loop._work, lane.known)
    assert taken is not None
    assert [Path(r.strand).name for r in taken[0].ranges] == ["a", "b"]
    assert lane.states == [State.OPEN]


def test_each_batch_waits_for_itself(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that one has waited is not the next one's."""
    monkeypatch.setattr(files, "POLL", 0.0)
    monkeypatch.setattr(files, "LISTING_SHARE", float("inf"))
    clock, loop = Clock(lane.monkeypatch), waiting(lane, max_delay=10.0)
    assert loop._take(loop._work, lane.known) is None
    clock.now += 10.0
    assert loop._take(loop._work, lane.known) is not None
    path = lane.root / "in" / "b"
    path.write_text("x\n")
    os.utime(path, (time.time() - 100, time.time() - 100))
    assert loop._take(loop._work, lane.known) is None
    clock.now += 9.0
    assert loop._take(loop._work, lane.known) is None
    clock.now += 1.0
    assert loop._take(loop._work, lane.known) is not None


def test_a_source_is_asked_for_as_much_as_the_pace_allows_and_for_no_more_than_max_bytes(lane: Lane) -> None:
    asked: list[Limits] = []
    lane.monkeypatch.setattr(
        lane.work.source, "available", lambda known, limits: asked.append(limits)
    )  # which is None: there is nothing
    loop = waiting(lane, max_bytes=10**9, max_records=7, max_files=3)
    loop._take(loop._work, lane.known)
    loop._pace.note(10**6, 10.0)
    loop._take(loop._work, lane.known)
    loop = waiting(lane, max_bytes=1000)
    loop._take(loop._work, lane.known)
    assert [(a.bytes, a.max_bytes) for a in asked] == [(START, 10**9), (5 * 10**5, 10**9), (1000, 1000)]
    assert [(a.max_records, a.max_files) for a in asked] == [(7, 3), (7, 3), (None, 1000)]
