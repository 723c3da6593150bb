"""Random histories of a log against a plain model in memory: writer, readers, acks, compaction, kills and power cuts at any point.

The files are real, and lie on a disk that forgets what was not fsynced (tests/support/forgetful.py).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.log import (
    LogDamaged,
    LogError,
    LogUnwritable,
    Lost,
    Mode,
    Offsets,
    Reader,
    Rows,
    Span,
    Writer,
    compact,
    repair,
    verify,
)
from penstock.log.format import HEADER_BYTES, Head
from penstock.log.index import Mark
from penstock.log.offsets import forget, load
from penstock.log.segment import Segment, header
from penstock.testing import faults
from penstock_sdk.record import Record
from tests.support.forgetful import Choose, Forgetful, Killed

pytestmark = pytest.mark.thorough  # left out of the fast loop

NAMESPACES = ["a", "b", "ü.c", ""]
READERS = ["r1", "r2", "r3"]
CI = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
LONG = settings(CI, derandomize=False, print_blob=True)
NEVER = 1e9  # seconds: commits and flushes happen where a rule says so

# How a process ends: killed, or by a power cut of some kind; the seed of that; and whether a writer opens the log at once.
End = tuple[Literal["kill", "forget", "keep", "any"], int, bool]
ENDS = st.tuples(st.sampled_from(["kill", "forget", "keep", "any", "any"]), st.integers(0, 1 << 32), st.booleans())


@dataclass(frozen=True)
class Trouble:
    """At the `at`th point from now the process ends, or an fsync fails, or readers look at what is there just then."""

    at: int
    end: End | Literal["fail", "look"]


def some_trouble(kind: int) -> st.SearchStrategy[Trouble | None]:
    if kind < 6:
        return st.none()
    ends: list[st.SearchStrategy[Any]] = [ENDS, ENDS, st.just("fail"), st.just("look")]
    return st.builds(Trouble, st.integers(0, 5 if kind == 8 else 12), ends[kind - 6])


TROUBLE = st.integers(0, 9).flatmap(some_trouble)


@dataclass(frozen=True)
class Row:
    namespace: str
    phase: str
    body: dict[str, Any]  # has a number of its own, so no two are equal


@dataclass(frozen=True)
class Acks:
    """One reader. `missing`: what compaction had taken, or may have taken, before the reader was known."""

    start: int
    missing: frozenset[int]
    acked: frozenset[int] = frozenset()
    effective: dict[str, int] = field(default_factory=dict)


@dataclass
class Model:
    rows: dict[int, Row] = field(default_factory=dict)  # everything appended that may be there
    durable: int = 0
    gone: set[int] = field(default_factory=set)  # compaction was allowed to take it
    readers: dict[str, Acks] = field(default_factory=dict)  # as the process knows them
    files: list[dict[str, Acks]] = field(default_factory=lambda: [{}])  # what may be on disk; the last is the newest
    number: int = 0

    @property
    def end(self) -> int:
        return max(self.rows, default=-1) + 1

    def body(self, size: int) -> dict[str, Any]:
        self.number += 1
        return {"n": self.number, "text": "x" * size}

    def needed(self, acks: Acks) -> set[int]:
        return {o for o in range(acks.start, self.durable) if o not in acks.acked and o not in acks.missing}


def flat(found: Rows | Lost) -> list[tuple[int, Row]]:
    assert isinstance(found, Rows), found
    if "n" in found.rows.schema.names:
        bodies = found.rows.to_pylist()
    else:
        bodies = [record.after for record in found.records()]
        assert all(record.namespace == (found.namespace or None) for record in found.records())
    made = [Row(found.namespace, found.mode.phase, body) for body in bodies]
    return list(enumerate(made, found.offset))


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        faults.install()
        self.top = Path(tempfile.mkdtemp(prefix="log-machine-"))
        (self.top / "disk").mkdir()
        self.folder = self.top / "disk" / "log"
        self.disk = Forgetful(self.top / "disk", self.at_point)
        faults.install(self.disk.hook)
        self.model = Model()
        self.writer: Writer | None = None
        self.offsets: Offsets | None = None
        self.readers: list[Reader] = []
        self.reading: list[tuple[Iterator[Rows | Lost], int, int]] = []  # with the offset it has come to, and its end
        self.trouble: Trouble | None = None
        self.reached = 0

    def teardown(self) -> None:
        self.let_go()
        self.disk.close()
        faults.install()
        shutil.rmtree(self.top)

    @initialize(
        segment_bytes=st.sampled_from([600, 1000, 3000]),
        zstd=st.booleans(),
        rows=st.lists(st.sampled_from(NAMESPACES), min_size=8, max_size=24),
    )
    def begin(self, segment_bytes: int, zstd: bool, rows: list[str]) -> None:
        self.settings: dict[str, Any] = {"segment_bytes": segment_bytes, "compression": "zstd" if zstd else None}
        self.open(None)
        self.append([(namespace, Mode.COPY, 5) for namespace in rows], True, None)

    # -- trouble ---------------------------------------------------------------------------------------------------

    def at_point(self, point: str, detail: str) -> None:
        trouble = self.trouble
        if trouble is None or (trouble.end == "fail" and point != "fsync"):
            return
        self.reached += 1
        if self.reached <= trouble.at:
            return
        if trouble.end == "look":
            self.trouble = None
            self.look()
        elif trouble.end == "fail":
            self.trouble = None
            raise OSError(errno.EIO, "input/output error")
        else:
            raise Killed(point)

    def look(self) -> None:
        """Readers come and go while others are in the middle of something."""
        limit = self.model.end if self.writer is None else self.writer.durable
        if any(self.folder.glob("*.seg")):
            self.readers.append(Reader(self.folder))
        for reader in self.readers:
            end = reader.end
            assert end <= limit
            self.check([pair for rows in reader.read(0, end) for pair in flat(rows)], 0, end)

    @contextmanager
    def under(self, trouble: Trouble | None) -> Iterator[None]:
        """The process may end in this block."""
        self.trouble, self.reached = trouble, 0
        try:
            yield
        except Killed:
            assert trouble is not None
            assert isinstance(trouble.end, tuple)
            self.ends(trouble.end)
        finally:
            self.trouble = None

    def let_go(self) -> None:
        if self.writer is not None:
            self.writer.abandon()
        self.writer = None
        self.drop_offsets()
        self.reading = []
        while self.readers:
            self.readers.pop().close()

    def drop_offsets(self) -> None:
        """As the end of a process does: without a flush."""
        if self.offsets is not None:
            with self.offsets._lock:
                self.offsets._closed = True
                self.offsets._wake.notify_all()
            if self.offsets._log is not None:
                self.offsets._log.close()
        self.offsets = None

    def ends(self, end: End) -> None:
        kind, seed, again = end
        self.disk.look()
        self.disk.dead = True
        self.let_go()
        if kind == "kill":
            self.disk.kill()
        else:
            choose: dict[str, Choose] = {
                "forget": lambda n: 0,
                "keep": lambda n: n - 1,
                "any": random.Random(seed).randrange,
            }
            self.disk.crash(choose[kind])
        if again:
            self.trouble = None
            self.open(None)

    @rule(end=ENDS)
    def stops_dead(self, end: End) -> None:
        self.ends(end)

    # -- writing ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.writer is None)
    @rule(trouble=TROUBLE)
    def open(self, trouble: Trouble | None) -> None:
        model = self.model
        with self.under(trouble):
            try:
                self.writer = Writer(self.folder, commit_interval=NEVER, **self.settings)
            except (OSError, LogUnwritable):
                return  # nothing is known to be lost, and the next try will tell
            end = self.writer.end
            assert model.durable <= end <= model.end
            assert self.writer.durable == end
            model.rows = {offset: row for offset, row in model.rows.items() if offset < end}
            model.durable = end
            self.trouble = None
            assert verify(self.folder).problems == []
            self.check_everything()

    @precondition(lambda self: self.writer is not None)
    @rule(
        rows=st.lists(
            st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(list(Mode)), st.sampled_from([0, 5, 300])),
            max_size=12,
        ),
        commit=st.booleans(),
        trouble=TROUBLE,
    )
    def append(self, rows: list[tuple[str, Mode, int]], commit: bool, trouble: Trouble | None) -> None:
        made = [Row(namespace, mode.phase, self.model.body(size)) for namespace, mode, size in rows]
        records = [Record(row.body, namespace=row.namespace or None, phase=row.phase) for row in made]
        self.appended(made, lambda writer: writer.append(records), trouble)
        if commit and self.writer is not None:
            self.commit(None)

    @precondition(lambda self: self.writer is not None)
    @rule(
        namespace=st.sampled_from(NAMESPACES),
        mode=st.sampled_from(list(Mode)),
        count=st.integers(0, 30),
        size=st.sampled_from([0, 20]),
        trouble=TROUBLE,
    )
    def append_batch(self, namespace: str, mode: Mode, count: int, size: int, trouble: Trouble | None) -> None:
        made = [Row(namespace, mode.phase, self.model.body(size)) for _ in range(count)]
        schema = pa.schema({"n": pa.int64(), "text": pa.string()})
        batch = pa.RecordBatch.from_pylist([row.body for row in made], schema)
        self.appended(made, lambda writer: writer.append_batch(batch, namespace, mode), trouble)

    def appended(self, made: list[Row], append: Callable[[Writer], range], trouble: Trouble | None) -> None:
        assert self.writer is not None
        model = self.model
        before = model.end
        expected = range(before, before + len(made))
        model.rows |= zip(expected, made, strict=True)
        with self.under(trouble):
            try:
                assert append(self.writer) == expected
            except (LogUnwritable, LogError, OSError) as error:
                got = error.appended if isinstance(error, LogUnwritable) else range(before, self.writer.end)
                assert got.start == before
                assert got.stop == self.writer.end
                model.rows = {offset: row for offset, row in model.rows.items() if offset < self.writer.end}
                if isinstance(error, LogError):
                    self.failed()
                    return
            self.saw(self.writer)

    def failed(self) -> None:
        """The writer has given up after an fsync that failed: what it wrote last may be there or not."""
        assert self.writer is not None
        with pytest.raises(LogError):
            self.writer.append([Record(b"never")])
        self.model.durable = max(self.model.durable, self.writer.durable)
        self.writer.abandon()
        self.writer = None

    def saw(self, writer: Writer) -> None:
        assert self.model.durable <= writer.durable <= writer.end == self.model.end
        self.model.durable = writer.durable

    @precondition(lambda self: self.writer is not None)
    @rule(trouble=TROUBLE)
    def commit(self, trouble: Trouble | None) -> None:
        assert self.writer is not None
        with self.under(trouble):
            try:
                assert self.writer.commit() == self.model.end
            except LogError:
                self.failed()
                return
            self.saw(self.writer)
            assert self.model.durable == self.model.end
            self.trouble = None
            self.check_everything()

    @precondition(lambda self: self.writer is not None)
    @rule(trouble=TROUBLE)
    def close(self, trouble: Trouble | None) -> None:
        assert self.writer is not None
        with self.under(trouble):
            try:
                self.writer.close()
                self.model.durable = self.model.end
            except LogError:
                self.model.durable = max(self.model.durable, self.writer.durable)
            self.writer = None

    # -- reading ---------------------------------------------------------------------------------------------------

    def check(self, found: list[tuple[int, Row]], start: int, end: int) -> set[int]:
        """Every offset once, in order, with what was appended there; nothing is missing that nobody was allowed to take."""
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(start <= offset < end for offset in offsets)
        assert found == [(offset, self.model.rows[offset]) for offset in offsets]
        assert set(range(start, end)) - set(offsets) <= self.model.gone
        return set(offsets)

    def everything(self) -> set[int]:
        """What a reader that has just come finds."""
        with Reader(self.folder) as reader:
            found = [pair for rows in reader.read(0) for pair in flat(rows)]
            return self.check(found, 0, reader.end)

    def check_everything(self) -> None:
        """After a recovery: all that was durable is there, and no reader has lost what it still needs."""
        model = self.model
        with Reader(self.folder) as reader:
            assert reader.end == model.durable
            present = self.everything()
            last = {
                row.namespace: (offset, row) for offset, row in sorted(model.rows.items()) if offset < model.durable
            }
            assert {namespace: flat(rows)[0] for namespace, rows in reader.last().items()} == last
            assert [o for span in reader.spans(0) for o in range(span.offset, span.end)] == sorted(present)
        for file in model.files:
            for acks in file.values():
                assert model.needed(acks) <= present

    @precondition(lambda self: bool(self.model.durable) and len(self.readers) < 3)
    @rule()
    def come(self) -> None:
        self.readers.append(Reader(self.folder))

    @precondition(lambda self: bool(self.readers))
    @rule(data=st.data(), whole=st.booleans())
    def read(self, data: st.DataObject, whole: bool) -> None:
        reader = data.draw(st.sampled_from(self.readers), label="reader")
        end = reader.end
        assert end <= self.model.end  # what survived a power cut is durable, also where nobody was told so
        if self.writer is not None:
            assert end == self.model.durable
        start = 0 if whole else data.draw(st.integers(0, end), label="start")
        to = end if whole else data.draw(st.integers(start, end), label="end")
        wanted = set(NAMESPACES) if whole else data.draw(st.sets(st.sampled_from(NAMESPACES)), label="namespaces")
        found = [pair for rows in reader.read(start, to, namespaces=wanted.__contains__) for pair in flat(rows)]
        if wanted == set(NAMESPACES):
            assert reader.count(start, to) == len(self.check(found, start, to))
        others = {o for o in range(start, to) if self.model.rows[o].namespace not in wanted}
        assert found == [(offset, self.model.rows[offset]) for offset, _ in found]
        assert set(range(start, to)) - {offset for offset, _ in found} <= self.model.gone | others

    @precondition(lambda self: bool(self.readers) and len(self.reading) < 3)
    @rule(data=st.data())
    def begin_reading(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers), label="reader")
        end = reader.end
        start = data.draw(st.integers(0, end), label="start")
        self.reading.append((iter(reader.read(start, end)), start, end))

    @precondition(lambda self: bool(self.reading))
    @rule(data=st.data())
    def read_on(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.reading) - 1), label="which")
        rows, start, end = self.reading[at]
        found = next(rows, None)
        if found is None:
            self.check([], start, end)
            del self.reading[at]
        else:
            self.check(flat(found), start, found.end)
            self.reading[at] = rows, found.end, end

    # -- acks ------------------------------------------------------------------------------------------------------

    def restart_offsets(self) -> Offsets:
        """The file holds one of the states that were written, whole; from now on that one counts."""
        if self.offsets is None:
            self.offsets = Offsets(self.folder, flush_interval=NEVER)
            present = self.everything()
            matching = [file for file in reversed(self.model.files) if self.matches(file, present)]
            assert matching, self.model.files
            self.model.readers = dict(matching[0])
            self.model.files.append(matching[0])
            for name, acks in matching[0].items():
                self.check_acks(name, acks, present)
        return self.offsets

    def matches(self, file: dict[str, Acks], present: set[int]) -> bool:
        states = load(self.folder)
        if states.keys() != file.keys():
            return False
        for name, acks in file.items():
            spans = {offset: Span(offset, 1, self.model.rows[offset].namespace) for offset in present}
            pending = {offset for offset, span in spans.items() if states[name].first_pending(span) is not None}
            if pending != self.pending(acks, present):
                return False
        return True

    def pending(self, acks: Acks, present: set[int]) -> set[int]:
        return {offset for offset in present if offset >= acks.start and offset not in acks.acked}

    def wrote(self, file: dict[str, Acks]) -> None:
        self.model.files = [file]

    @precondition(lambda self: bool(self.model.durable))
    @rule(name=st.sampled_from(READERS), data=st.data(), trouble=TROUBLE)
    def register(self, name: str, data: st.DataObject, trouble: Trouble | None) -> None:
        with Reader(self.folder) as reader:
            start = data.draw(st.integers(0, reader.end), label="start")
        self.registered(name, start, trouble)

    def registered(self, name: str, start: int, trouble: Trouble | None) -> None:
        model, offsets = self.model, self.restart_offsets()
        known = model.files[-1]
        file = known if name in known else {**known, name: Acks(start, frozenset(model.gone))}
        model.files.append(file)
        with self.under(trouble):
            try:
                offsets.register(name, start)
            except LogUnwritable:
                self.drop_offsets()
                return
            model.readers.setdefault(name, file[name])
            self.wrote(file)

    @precondition(lambda self: bool(self.model.durable) and bool(self.model.readers))
    @rule(data=st.data(), bulk=st.booleans(), flush=st.booleans(), from_start=st.booleans())
    def ack(self, data: st.DataObject, bulk: bool, flush: bool, from_start: bool) -> None:
        model, offsets = self.model, self.restart_offsets()
        if not model.readers:
            return
        present = sorted(self.everything())
        if not present:
            return
        name = data.draw(st.sampled_from(sorted(model.readers)), label="reader")
        first = present[0] if from_start else data.draw(st.sampled_from(present), label="first")
        if bulk:
            to = data.draw(st.integers(first, present[-1]), label="to") + 1
            offsets.ack(name, range(first, to))
        else:
            to = first + 1
            offsets.ack(name, first)
        acks = model.readers[name]
        acks = model.readers[name] = replace(acks, acked=acks.acked | set(range(first, to)))
        self.check_acks(name, acks, set(present))
        if flush:
            self.flush(None, False)

    def check_acks(self, name: str, acks: Acks, present: set[int]) -> None:
        assert self.offsets is not None
        model = self.model
        left = self.pending(acks, present)
        assert self.offsets.pending(name) == min(left, default=None)
        assert self.offsets.lag(name) == len(left)
        effective = self.offsets.effective(name)
        for namespace in NAMESPACES:
            of = sorted(o for o in present if o >= acks.start and model.rows[o].namespace == namespace)
            reached = effective.get(namespace, -1)
            assert reached >= acks.effective.get(namespace, -1), "it never goes back"
            assert not [o for o in of if o <= reached and o in left], "a gap holds it"
            assert [o for o in of if o > reached][:1] == [o for o in of if o in left][:1], "nothing else holds it"
        model.readers[name] = replace(acks, effective=effective)

    def all_ack(self, end: int) -> None:
        model, offsets = self.model, self.restart_offsets()
        if not model.readers:
            self.registered("r1", 0, None)
        for name, acks in model.readers.items():
            offsets.ack(name, range(end))
            model.readers[name] = replace(acks, acked=acks.acked | set(range(end)))
        self.flush(None, False)

    @precondition(lambda self: self.offsets is not None)
    @rule(trouble=TROUBLE, close=st.booleans())
    def flush(self, trouble: Trouble | None, close: bool) -> None:
        assert self.offsets is not None
        model = self.model
        present = self.everything()
        for name, acks in model.readers.items():
            self.check_acks(name, acks, present)
        file = {**model.files[-1], **model.readers}
        model.files.append(file)
        with self.under(trouble):
            try:
                if close:
                    self.offsets.close()
                else:
                    self.offsets.flush()
            except LogUnwritable:
                self.drop_offsets()
                return
            self.wrote(file)
            if close:
                self.offsets = None

    @precondition(lambda self: bool(self.model.durable))
    @rule(name=st.sampled_from(READERS), trouble=TROUBLE)
    def forget(self, name: str, trouble: Trouble | None) -> None:
        self.restart_offsets()
        self.drop_offsets()  # of the process that owned it
        model = self.model
        known = model.files[-1]
        file = {other: acks for other, acks in known.items() if other != name}
        model.files.append(file)
        with self.under(trouble):
            try:
                assert forget(self.folder, name) == (name in known)
            except LogUnwritable:
                return
            self.wrote(file)

    # -- compaction ------------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.model.durable))
    @rule(through=st.none() | st.integers(0, 100), trouble=TROUBLE)
    def compact(self, through: int | None, trouble: Trouble | None) -> None:
        """`through`: all readers have acked so many percent of the log before."""
        model = self.model
        if through is not None:
            self.all_ack((max(self.everything(), default=-1) + 1) * through // 100)
        before = self.everything()
        self.restart_offsets()
        file = model.files[-1]
        with Reader(self.folder) as reader:
            active = reader.segments()[-1].header.base
        closed = {offset for offset in before if offset < active}
        last = {model.rows[offset].namespace: offset for offset in sorted(closed)}
        pending = [min(self.pending(acks, before), default=active) for acks in file.values()]
        point = min(pending, default=0)
        model.gone |= {offset for offset in closed if offset < point} - set(last.values())
        with self.under(trouble):
            try:
                done = compact(self.folder)
            except (LogUnwritable, OSError):
                return
            assert done.removed == len(before) - len(self.everything())
            if self.writer is not None:
                self.check_everything()

    @invariant()
    def nothing_is_lost(self) -> None:
        if self.writer is not None:
            assert self.writer.durable >= self.model.durable
            with Reader(self.folder) as reader:
                assert reader.end == self.model.durable


def test_random_histories() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(CI, max_examples=25, stateful_step_count=40))


@pytest.mark.long
def test_many_random_histories() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(LONG, max_examples=5000, stateful_step_count=60))


# -- damage ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Bytes of a segment, and the records that are lost with them."""

    path: Path
    start: int
    end: int
    offsets: range


def stretches(folder: Path) -> list[Stretch]:
    """Headers and entries of a log in which everything is right."""
    made = []
    with Reader(folder) as reader:
        for info in reader.segments():
            opened = Segment(info.path)
            made.append(Stretch(info.path, 0, HEADER_BYTES, range(info.header.base, info.end)))
            for head in opened.walk(Mark(HEADER_BYTES, info.header.base), info.size, None):
                assert isinstance(head, Head)
                made.append(Stretch(info.path, head.position, head.next, range(head.offset, head.end)))
            opened.close()
    return made


@contextmanager
def some_log(plan: list[tuple[str, int, int]], keep_from: int | None) -> Iterator[tuple[Path, dict[int, Row]]]:
    """A closed log of small segments. `keep_from`: compacted, with a reader that has acked everything below."""
    with tempfile.TemporaryDirectory(prefix="log-damage-") as top:
        folder, model = Path(top) / "log", Model()
        with Writer(folder, segment_bytes=1500, commit_interval=NEVER) as writer:
            for namespace, count, size in plan:
                made = [Row(namespace, "sync", model.body(size)) for _ in range(count)]
                offsets = writer.append([Record(row.body, namespace=namespace or None) for row in made])
                model.rows |= zip(offsets, made, strict=True)
                writer.commit()
        if keep_from is not None:
            with Offsets(folder, flush_interval=NEVER) as offsets_of:
                offsets_of.register("r", min(keep_from, model.end))
            compact(folder)
        with Reader(folder) as reader:
            left = {offset for span in reader.spans(0) for offset in range(span.offset, span.end)}
        yield folder, {offset: row for offset, row in model.rows.items() if offset in left}


def skipping(folder: Path) -> tuple[dict[int, Row], set[int]]:
    """What can be read, and what is said to be lost."""
    rows: dict[int, Row] = {}
    lost: set[int] = set()
    with Reader(folder, on_damage="skip") as reader:
        for found in reader.read(0):
            given = set(range(found.offset, found.end))
            assert not given & (rows.keys() | lost), "no offset twice"
            if isinstance(found, Lost):
                lost |= given
            else:
                rows |= flat(found)
    return rows, lost


PLANS = st.lists(
    st.tuples(st.sampled_from(NAMESPACES), st.integers(1, 12), st.sampled_from([0, 40, 200])), min_size=1, max_size=12
)


def damaged(data: st.DataObject, folder: Path) -> tuple[Stretch, set[int]]:
    """Flips a bit or cuts a segment short. Returns where, and all offsets that are lost by it."""
    found = stretches(folder)
    hit = data.draw(st.sampled_from(found), label="stretch")
    at = data.draw(st.integers(hit.start, hit.end - 1), label="byte")
    border = at == hit.start > 0 and header(hit.path).holes  # compaction left gaps: this looks like one of them
    if not border and data.draw(st.integers(0, 3), label="cut it there") == 0:
        os.truncate(hit.path, at)
        lost = [other for other in found if other.path == hit.path and other.end > at]
        return hit, {offset for other in lost for offset in other.offsets}
    content = bytearray(hit.path.read_bytes())
    content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    hit.path.write_bytes(content)
    return hit, set(hit.offsets)


def check_damage(plan: list[tuple[str, int, int]], keep_from: int | None, data: st.DataObject) -> None:
    with some_log(plan, keep_from) as (folder, rows):
        assert skipping(folder) == (rows, set())
        assert verify(folder).problems == []
        end = max(rows) + 1
        hit, lost = damaged(data, folder)
        lost &= rows.keys()

        # Stop: everything before the damage, then an error that names it.
        before: dict[int, Row] = {}
        with pytest.raises(LogDamaged) as raised, Reader(folder) as reader:
            for found in reader.read(0):
                before |= flat(found)
        assert before == {offset: row for offset, row in rows.items() if offset in before}
        assert raised.value.segment == hit.path
        if lost:
            assert raised.value.offset <= min(lost)
            assert not [offset for offset in rows if raised.value.offset <= offset < min(lost)]

        if hit.start == 0 and hit.path == max(folder.glob("*.seg")):
            return  # how far the log went is not known without the header of its last segment: repair has tests of its own

        # Skip: everything else, and a stub for each record that is gone.
        kept, stubs = skipping(folder)
        assert kept == {offset: row for offset, row in rows.items() if offset not in lost}
        assert lost <= stubs
        assert not stubs & kept.keys()

        problems = [p for p in verify(folder).problems if p.file == hit.path]
        assert problems
        told = {offset for p in problems if p.offset is not None for offset in range(p.offset, p.offset + p.count)}
        assert lost <= told
        assert not told & kept.keys()

        # A writer never cuts off what was durable, and gives no offset a second time.
        try:
            with Writer(folder, on_damage="stop") as writer:
                assert writer.end >= end
        except LogDamaged:
            pass
        assert skipping(folder) == (kept, stubs)

        repair(folder)
        assert verify(folder).problems == []
        again, marked = skipping(folder)
        assert again == {offset: row for offset, row in rows.items() if offset in again}
        assert kept.keys() <= again.keys(), "under a header that is damaged it finds more"
        assert rows.keys() <= again.keys() | marked
        with Writer(folder) as writer:
            assert writer.end >= end


def check_index_damage(plan: list[tuple[str, int, int]], data: st.DataObject) -> None:
    with some_log(plan, None) as (folder, rows):
        path = data.draw(st.sampled_from(sorted(folder.glob("*.index"))), label="index")
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1), label="byte")
        content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        path.write_bytes(content)
        found, lost = skipping(folder)
        assert not lost
        assert found == {offset: row for offset, row in rows.items() if offset in found}
        with Writer(folder) as writer:
            assert writer.end == max(rows) + 1
            assert skipping(folder) == (rows, set())
            with Reader(folder) as reader:
                last = {row.namespace: (offset, row) for offset, row in sorted(rows.items())}
                assert {namespace: flat(one)[0] for namespace, one in reader.last().items()} == last


DAMAGE = given(plan=PLANS, keep_from=st.none() | st.integers(0, 60), data=st.data())
INDEX_DAMAGE = given(plan=PLANS, data=st.data())


def test_damage_is_reported_where_it_is_and_costs_nothing_else() -> None:
    settings(CI, max_examples=40)(DAMAGE(check_damage))()


def test_a_flipped_bit_in_an_index_costs_no_record() -> None:
    settings(CI, max_examples=40)(INDEX_DAMAGE(check_index_damage))()


@pytest.mark.long
def test_damage_anywhere() -> None:
    settings(LONG, max_examples=5000)(DAMAGE(check_damage))()
    settings(LONG, max_examples=2000)(INDEX_DAMAGE(check_index_damage))()
