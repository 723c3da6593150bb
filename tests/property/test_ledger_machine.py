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
from penstock.ledger import Lane, Ledger, Nack, NackState, Prepared, Snapshot, State, Totals
from penstock.ranges import Range, Ranges
from penstock.testing import faults

STRANDS = ["a", "b", "c", "d"]
DESTINATIONS = ["one", "two"]
WIDTH = 4  # records of every range, one per seq


@dataclass(eq=False)
class Batch:
    number: int
    epoch: int
    ranges: Ranges
    state: State = State.OPEN
    records: int = 0
    filtered: dict[str, int] = field(default_factory=dict)
    nacked: int = 0
    done: set[str] = field(default_factory=set)
    attempts: int = 1
    parent: int | None = None
    acked_to: int | None = None

    def seqs(self) -> list[int]:
        return seqs(self.ranges)


@dataclass
class Model:
    """What the ledger has to say. Plain Python, no thought given to speed."""

    epoch: int
    next_seq: int = 0
    next_batch: int = 1
    acked_batch: int = 0
    read: int = 0
    acked: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    nacked: dict[str, int] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)  # in the order of their numbers
    strands: dict[str, tuple[Range, Batch]] = field(default_factory=dict)
    nacks: set[int] = field(default_factory=set)  # seqs
    rings: dict[str, str] = field(default_factory=dict)
    held: tuple[int, Batch, str] | None = None  # seq, its batch, and the delivery that stopped there ("" = unprepared)

    def unfinished(self) -> list[Batch]:
        return [b for b in self.batches if b.state in (State.OPEN, State.PREPARED)]

    def number(self) -> int:
        self.next_batch += 1
        return self.next_batch - 1

    def advance(self) -> list[list[int]]:
        """What is acked: the seqs of every batch that counts."""
        settled = []
        for b in self.batches:
            if b.number <= self.acked_batch:
                continue
            if b.state in (State.OPEN, State.PREPARED):
                break
            self.acked_batch = b.number
            if b.state is State.DONE:
                settled.append([seq for seq in b.seqs() if b.acked_to is None or seq >= b.acked_to])
                self.acked += b.records
        return settled


def seqs(ranges: Ranges) -> list[int]:
    """The records of a batch, in order."""
    return [
        seq
        for r in ranges
        for seq in range(r.base, r.base + WIDTH)
        if (r.low is None or r.low <= seq) and (r.high is None or seq < r.high)
    ]


def nack(seq: int, destination: str = "", state: NackState = NackState.OPEN) -> Nack:
    return Nack(seq, 0, destination, f"id {seq}", b"", "node", "code", "error", 0, state)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        faults.install()
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-machine-"))
        self.ledger = Ledger(self.folder / "ledger.db")
        self.told: list[int] = []  # seqs of all records acked so far, in the order of the acks
        self.expected: list[int] = []  # the same by the model
        self.base = 0

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

    def splittable(self) -> list[Batch]:
        """Unprepared, of more than one record, and nothing behind it has come farther: a lane works in order."""
        found: list[Batch] = []
        for b in reversed(self.model.batches):
            if b.state in (State.PREPARED, State.DONE):
                break
            if b.state is State.OPEN and len(b.seqs()) > 1:
                found.append(b)
        return found

    def late(self) -> bool:
        """A delivery has stopped at a record: its lane prepares nothing else until that is over."""
        return self.model.held is not None and self.model.held[2] != ""

    def tell(self, settled: list[Ranges], expected: list[list[int]]) -> None:
        assert [seqs(ranges) for ranges in settled] == expected
        self.told += [seq for ranges in settled for seq in seqs(ranges)]
        self.expected += [seq for one in expected for seq in one]

    # -- the steps of a batch --------------------------------------------------------------------------------------

    @rule(
        names=st.lists(st.sampled_from(STRANDS), min_size=1, max_size=3, unique=True),
        forget=st.lists(st.sampled_from(STRANDS), max_size=2, unique=True),
        seq=st.integers(0, 50),
    )
    def take(self, names: list[str], forget: list[str], seq: int) -> None:
        items = tuple(Range(n, {"size": seq}, self.base + WIDTH * i) for i, n in enumerate(names))
        self.base += WIDTH * len(names)
        given = Ranges(items, seq, tuple(forget))
        s, attempt = self.ledger.take(self.lane(), given)
        b = Batch(self.model.number(), self.model.epoch, given)
        assert (s.batch, s.epoch, s.state, s.ranges) == (b.number, b.epoch, State.OPEN, given)
        assert attempt.number == 1
        self.model.batches.append(b)
        for name in forget:
            self.model.strands.pop(name, None)
        self.model.strands |= {r.strand: (r, b) for r in given}
        self.model.next_seq = max(self.model.next_seq, seq)

    @precondition(lambda self: self.any(State.OPEN))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        b = self.pick(data, State.OPEN)
        b.attempts += 1
        assert self.ledger.retry(self.row(b)).number == b.attempts

    @precondition(lambda self: bool(self.splittable()))
    @rule(data=st.data(), hold=st.booleans())
    def split(self, data: st.DataObject, hold: bool) -> None:
        b = data.draw(st.sampled_from(self.splittable()), label="batch")
        at = data.draw(st.sampled_from(b.seqs()[1:]), label="at")
        if self.model.held and self.model.held[1] is b:
            self.model.held = None
        hold = hold and self.model.held is None
        halves = self.ledger.split(
            self.row(b), *b.ranges.split(at), "gate", nack(at, state=NackState.HELD) if hold else None
        )
        model = self.model
        b.state = State.SPLIT
        waiting = [x for x in model.batches if x.state is State.OPEN and x.number > b.number]
        made = [
            Batch(model.number(), b.epoch, half, attempts=0, parent=b.number)
            for half in b.ranges.split(at)  # how ranges are split has tests of its own
        ]
        for x in waiting:
            x.number = model.number()
        model.batches = [x for x in model.batches if x not in waiting] + made + waiting
        for half in made:
            for r in half.ranges:
                known, taken = model.strands.get(r.strand, (r, None))
                if taken is b or taken in made:
                    model.strands[r.strand] = (known, half)
        if hold:
            model.held = (at, made[1], "")
        assert [(s.batch, s.parent, s.ranges) for s in halves] == [(x.number, x.parent, x.ranges) for x in made]

    @precondition(lambda self: self.any(State.OPEN) and not self.late())
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        b = self.model.held[1] if self.model.held else self.pick(data, State.OPEN)
        self.ledger.hold(self.row(b), nack(b.seqs()[0], state=NackState.HELD))
        self.model.held = (b.seqs()[0], b, "")

    @precondition(lambda self: self.any(State.OPEN) and not self.late())
    @rule(
        data=st.data(),
        to=st.sets(st.sampled_from(DESTINATIONS), min_size=1),
        filtered=st.integers(0, 3),
        ring=st.sampled_from(["[]", "[1]", "[2,7]"]),
    )
    def prepare(self, data: st.DataObject, to: set[str], filtered: int, ring: str) -> None:
        b = self.pick(data, State.OPEN)
        bad = data.draw(st.sets(st.sampled_from(b.seqs())), label="nacks")
        b.records, b.filtered = 10 + filtered + len(bad), dict.fromkeys(to, filtered)
        deliveries = [Prepared(d, d, "files", {}, {}, filtered, nacked=len(bad)) for d in sorted(to)]
        self.ledger.prepare(self.row(b), b.records, deliveries, (nack(seq) for seq in bad), dict.fromkeys(to, ring))
        b.state = State.PREPARED
        b.nacked = len(bad)
        self.model.nacks |= bad
        self.model.rings |= dict.fromkeys(to, ring)
        if self.model.held and self.model.held[1] is b:
            self.model.held = None

    @precondition(lambda self: self.any(State.PREPARED))
    @rule(data=st.data(), settle=st.booleans())
    def done(self, data: st.DataObject, settle: bool) -> None:
        b = self.pick(data, State.PREPARED)
        destination = data.draw(st.sampled_from(sorted(b.filtered)), label="destination")
        settled = self.ledger.done(self.row(b), destination, {"by": destination}, 10, frontier, settle=settle)
        model = self.model
        expected: list[list[int]] = []
        if destination not in b.done:
            b.done.add(destination)
            counted = ((model.delivered, 10), (model.filtered, b.filtered[destination]), (model.nacked, b.nacked))
            for counts, n in counted:
                counts[destination] = counts.get(destination, 0) + n
            if model.held and model.held[1:] == (b, destination):
                model.held = None
        if b.done == set(b.filtered):
            b.state = State.DONE
            model.read += b.records
            expected = model.advance() if settle else []
        self.tell(settled, expected)

    @rule()
    def advance(self) -> None:
        self.tell(self.ledger.advance(self.lane().key, frontier), self.model.advance())

    @precondition(lambda self: self.any(State.PREPARED) and (self.late() or self.model.held is None))
    @rule(data=st.data())
    def stop_inside(self, data: st.DataObject) -> None:
        """A delivery meets a record that closes its gate; or meets the next one, farther on."""
        self.advance()  # a lane that starts raises its frontier before anything else
        model = self.model
        if model.held:
            _, b, destination = model.held
        else:
            b = self.pick(data, State.PREPARED)
            destination = data.draw(st.sampled_from(sorted(set(b.filtered) - b.done)), label="destination")
        acked_to = -1 if b.acked_to is None else b.acked_to
        at = data.draw(st.sampled_from([seq for seq in b.seqs() if seq >= acked_to]), label="at")
        held = nack(at, destination, NackState.HELD)
        may = self.ledger.hold_delivery(self.row(b), destination, held, at, {"seq": at})
        model.held = (at, b, destination)
        expected: list[int] = []
        if model.unfinished()[0] is b and b.done == set(b.filtered) - {destination} and at > acked_to:
            expected = [seq for seq in b.seqs() if acked_to <= seq < at]
            b.acked_to = at
        self.tell([may] if may else [], [expected] if expected else [])

    @precondition(lambda self: self.any(State.OPEN))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        b = self.pick(data, State.OPEN)
        self.ledger.drop(self.row(b))
        if self.model.held and self.model.held[1] is b:
            self.model.held = None
        b.state = State.DROPPED
        self.model.strands = {n: known for n, known in self.model.strands.items() if known[1] is not b}

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
        assert (lane.epoch, lane.next_batch) == (model.epoch, model.next_batch)
        assert (lane.acked_batch, lane.known.next_seq) == (model.acked_batch, model.next_seq)
        assert lane.known.strands == {name: r for name, (r, _) in model.strands.items()}
        assert lane.known.acked == {name for name, (_, b) in model.strands.items() if b.number <= model.acked_batch}
        unfinished = [
            (s.batch, s.epoch, s.state, s.ranges, s.parent, s.acked_to) for s in self.ledger.unfinished(lane.key)
        ]
        assert unfinished == [(b.number, b.epoch, b.state, b.ranges, b.parent, b.acked_to) for b in model.unfinished()]
        nothing = dict.fromkeys(model.delivered, 0)
        totals = Totals(model.read, model.acked, model.delivered, model.filtered, model.nacked, nothing, nothing)
        assert self.ledger.totals(lane.key) == totals

    @invariant()
    def remembers_dead_letters_and_rings(self) -> None:
        lane, model = self.lane().key, self.model
        assert {n.seq for n in self.ledger.nacks(lane, NackState.OPEN)} == model.nacks
        held = [(n.seq, n.batch, n.destination) for n in self.ledger.nacks(lane, NackState.HELD)]
        assert [h[0] for h in held] == ([] if model.held is None else [model.held[0]])
        if self.late() and model.held:
            assert held == [(model.held[0], model.held[1].number, model.held[2])]
        assert self.ledger.rings(lane) == model.rings

    @invariant()
    def numbers_are_in_the_order_of_records(self) -> None:
        found = [seq for s in self.ledger.unfinished(self.lane().key) for seq in seqs(s.ranges)]
        assert found == sorted(set(found))

    @invariant()
    def acks_come_in_order_and_once(self) -> None:
        assert self.told == sorted(set(self.told))
        counted = [seq for b in self.model.batches if b.state is State.DONE for seq in b.seqs()]
        assert set(self.told) <= set(counted) | {
            seq for b in self.model.unfinished() if b.acked_to is not None for seq in b.seqs() if seq < b.acked_to
        }
        settled = [b for b in self.model.batches if b.number <= self.model.acked_batch and b.state is State.DONE]
        assert set(self.told) >= {seq for b in settled for seq in b.seqs()}
        assert self.told == self.expected


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
