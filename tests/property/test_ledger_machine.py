"""Random histories of a ledger against a small model in memory, with restarts, zombies and failed writes in between."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.engine.frontier import frontier
from penstock.errors import Fenced, LedgerError, UsageError
from penstock.ledger import Lane, Ledger, Prepared, Snapshot, State, Totals
from penstock.ranges import Range, Ranges
from penstock.testing import faults

STRANDS = ["a", "b", "c", "d"]
DESTINATIONS = ["one", "two"]


@dataclass
class Batch:
    number: int
    epoch: int
    ranges: Ranges
    state: State = State.OPEN
    records: int = 0
    filtered: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    attempts: int = 1


@dataclass
class Model:
    """What the ledger has to say. Plain Python, no thought given to speed."""

    epoch: int
    next_seq: int = 0
    acked_batch: int = 0
    read: int = 0
    acked: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    strands: dict[str, tuple[Range, int]] = field(default_factory=dict)

    def unfinished(self) -> list[Batch]:
        return [b for b in self.batches if b.state in (State.OPEN, State.PREPARED)]

    def advance(self) -> list[Ranges]:
        settled = []
        for b in self.batches[self.acked_batch :]:
            if b.state in (State.OPEN, State.PREPARED):
                break
            self.acked_batch = b.number
            if b.state is State.DONE:
                settled.append(b.ranges)
                self.acked += b.records
        return settled


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        faults.install()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-machine-"))
        self.ledger = Ledger(self.folder / "ledger.db")
        self.told: list[int] = []  # bases of all ranges acked so far, in the order of the acks
        self.taken = 0

    def teardown(self) -> None:
        faults.install()
        self.ledger.close()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        self.model = Model(self.lane().epoch)

    def lane(self) -> Lane:
        return self.ledger.lane("p", "in")

    def row(self, b: Batch) -> Snapshot:
        return next(s for s in self.ledger.unfinished(self.lane().key) if s.batch == b.number)

    def pick(self, data: st.DataObject, state: State) -> Batch:
        return data.draw(st.sampled_from([b for b in self.model.batches if b.state is state]), label="batch")

    def any(self, state: State) -> bool:
        return any(b.state is state for b in self.model.batches)

    # -- the steps of a batch --------------------------------------------------------------------------------------

    @rule(
        names=st.lists(st.sampled_from(STRANDS), min_size=1, max_size=3, unique=True),
        forget=st.lists(st.sampled_from(STRANDS), max_size=2, unique=True),
        seq=st.integers(0, 50),
    )
    def take(self, names: list[str], forget: list[str], seq: int) -> None:
        self.taken += 1
        given = Ranges(tuple(Range(n, {"size": seq}, self.taken) for n in names), seq, tuple(forget))
        s, attempt = self.ledger.take(self.lane(), given)
        b = Batch(len(self.model.batches) + 1, self.model.epoch, given)
        assert (s.batch, s.epoch, s.state, s.ranges) == (b.number, b.epoch, State.OPEN, given)
        assert attempt.number == 1
        self.model.batches.append(b)
        for name in forget:
            self.model.strands.pop(name, None)
        self.model.strands |= {r.strand: (r, b.number) for r in given}
        self.model.next_seq = max(self.model.next_seq, seq)

    @precondition(lambda self: self.any(State.OPEN))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        b = self.pick(data, State.OPEN)
        b.attempts += 1
        assert self.ledger.retry(self.row(b)).number == b.attempts

    @precondition(lambda self: self.any(State.OPEN))
    @rule(data=st.data(), to=st.sets(st.sampled_from(DESTINATIONS), min_size=1), filtered=st.integers(0, 3))
    def prepare(self, data: st.DataObject, to: set[str], filtered: int) -> None:
        b = self.pick(data, State.OPEN)
        b.records, b.filtered = 10 + filtered, dict.fromkeys(to, filtered)
        self.ledger.prepare(self.row(b), b.records, [Prepared(d, d, "files", {}, {}, filtered) for d in sorted(to)])
        b.state = State.PREPARED

    @precondition(lambda self: self.any(State.PREPARED))
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        b = self.pick(data, State.PREPARED)
        destination = data.draw(st.sampled_from(sorted(b.filtered)), label="destination")
        settled = self.ledger.done(self.row(b), destination, {"by": destination}, 10, frontier)
        expected: list[Ranges] = []
        if destination not in b.done:
            b.done.add(destination)
            for counts, n in ((self.model.delivered, 10), (self.model.filtered, b.filtered[destination])):
                counts[destination] = counts.get(destination, 0) + n
        if b.done == set(b.filtered):
            b.state = State.DONE
            self.model.read += b.records
            expected = self.model.advance()
        assert settled == expected
        self.told += [r.base for one in settled for r in one]

    @precondition(lambda self: self.any(State.OPEN))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        b = self.pick(data, State.OPEN)
        self.ledger.drop(self.row(b))
        b.state = State.DROPPED
        self.model.strands = {n: known for n, known in self.model.strands.items() if known[1] != b.number}

    @rule()
    def rewind(self) -> None:
        if self.model.unfinished():
            with pytest.raises(UsageError):
                self.ledger.rewind("p", "in")
            return
        self.ledger.rewind("p", "in")
        self.model.strands = {}
        self.model.epoch += 1

    # -- trouble ---------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.ledger.path)

    @rule()
    def replace(self) -> None:
        """A new engine while the old one lives on; the old one tries once more."""
        old, self.ledger = self.ledger, Ledger(self.ledger.path)
        with pytest.raises(Fenced):
            old.take(self.lane(), Ranges((Range("zombie", {}),), 999))
        old.close()

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A write that fails at its very end, then a restart."""

        def hook(point: str, detail: str) -> None:
            if point == "ledger":
                raise sqlite3.OperationalError("disk I/O error")

        lane = self.lane()
        faults.install(hook)
        with pytest.raises(LedgerError):
            if self.any(State.PREPARED):
                b = self.pick(data, State.PREPARED)
                self.ledger.done(self.row(b), next(iter(b.filtered)), {}, 10, frontier)
            elif self.any(State.OPEN):
                self.ledger.prepare(self.row(self.pick(data, State.OPEN)), 3, [Prepared("one", "h", "x", {}, {}, 0)])
            else:
                self.ledger.take(lane, Ranges((Range("never", {}),), 999))
        faults.install()
        with pytest.raises(LedgerError):
            self.ledger.take(lane, Ranges((Range("never", {}),), 999))
        self.restart()

    # -- what has to hold ------------------------------------------------------------------------------------------

    @invariant()
    def says_what_the_model_says(self) -> None:
        lane, model = self.lane(), self.model
        assert (lane.epoch, lane.next_batch) == (model.epoch, len(model.batches) + 1)
        assert (lane.acked_batch, lane.known.next_seq) == (model.acked_batch, model.next_seq)
        assert lane.known.strands == {name: r for name, (r, _) in model.strands.items()}
        assert lane.known.acked == {name for name, (_, batch) in model.strands.items() if batch <= model.acked_batch}
        unfinished = [(s.batch, s.epoch, s.state, s.ranges) for s in self.ledger.unfinished(lane.key)]
        assert unfinished == [(b.number, b.epoch, b.state, b.ranges) for b in model.unfinished()]
        totals = Totals(model.read, model.acked, model.delivered, model.filtered)
        assert self.ledger.totals(lane.key) == totals

    @invariant()
    def acks_come_in_order_and_once(self) -> None:
        assert self.told == sorted(self.told)
        expected = [r.base for b in self.model.batches[: self.model.acked_batch] for r in b.ranges if b.done]
        assert self.told == expected


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
