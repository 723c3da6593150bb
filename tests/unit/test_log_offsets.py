"""Readers' offsets: against a model of plain sets, and every way the file can be shared, lost, damaged or refused by the disk."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log.acked import MAX_RANGES, OffsetSet
from penstock.log.errors import LogDamaged, LogError, LogUnwritable, LogVersion
from penstock.log.format import Span
from penstock.log.offsets import Offsets, ReaderState, compaction_point, forget, load
from penstock.log.reader import Lost, Reader
from penstock.log.repair import repair
from penstock.log.writer import Writer
from penstock.testing import faults
from penstock_sdk.record import Record

NEVER = 1e9


@dataclass
class FakeLog:
    """Offsets with their namespaces; some may be gone."""

    records: dict[int, str] = field(default_factory=dict)
    end: int = 0
    scans: int = 0

    def append(self, namespace: str, count: int = 1) -> range:
        new = range(self.end, self.end + count)
        self.records.update(dict.fromkeys(new, namespace))
        self.end += count
        return new

    def spans(self, start: int = 0, end: int | None = None) -> Iterator[Span]:
        self.scans += 1
        run: list[int] = []
        for offset in [o for o in self.records if o >= start and (end is None or o < end)]:
            if run and (offset != run[-1] + 1 or self.records[offset] != self.records[run[0]] or len(run) == 3):
                yield Span(run[0], len(run), self.records[run[0]])
                run = []
            run.append(offset)
        if run:
            yield Span(run[0], len(run), self.records[run[0]])


def log_of(namespaces: str) -> FakeLog:
    log = FakeLog()
    for namespace in namespaces:
        log.append(namespace)
    return log


def offsets_of(folder: Path, log: FakeLog, **options: float) -> Offsets:
    return Offsets(folder, spans=log.spans, flush_interval=options.get("flush_interval", NEVER))


def fail_at(path: Path) -> None:
    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("fsync", str(path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    faults.install(hook)


def await_(condition: Callable[[], bool], timeout: float = 60) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


# -- the set of offsets -----------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(0, 40), st.integers(4090, 4100), st.integers(8185, 8200), st.integers(0, 13000))


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS)), st.lists(NUMBERS), NUMBERS, NUMBERS)
def test_a_set_of_offsets_is_a_set(ranges: list[tuple[int, int]], single: list[int], start: int, end: int) -> None:
    made, model = OffsetSet(), set(single)
    for low, high in ranges:
        made.add_range(low, high)
        model.update(range(low, high))
    for offset in single:
        made.add(offset)
    assert made.count(start, end) == sum(start <= o < end for o in model)
    assert made.first_missing(start, end) == next(
        (o for o in range(start, end) if o not in model), end if start < end else min(start, end)
    )
    told = list(made.ranges(start))
    assert {o for low, high in told for o in range(low, high)} == {o for o in model if o >= start}
    assert all(a[1] < b[0] for a, b in pairwise(told))
    made.drop_below(start)
    assert list(made.ranges(start)) == told


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097])
@pytest.mark.parametrize("length", [1, 4094, 4095, 4096, 4097, 8191, 8192, 8193])
def test_a_range_ends_exactly_where_it_ends(start: int, length: int) -> None:
    made = OffsetSet()
    made.add_range(start, start + length)
    assert list(made.ranges(0)) == [(start, start + length)]
    assert made.count(0, 20_000) == length
    assert made.first_missing(start, 20_000) == start + length
    assert (start + length - 1 in made, start + length in made, start - 1 in made) == (True, False, False)


# -- against a model --------------------------------------------------------------------------------------------------


@dataclass
class ModelReader:
    start: int
    acked: set[int] = field(default_factory=set)
    effective: dict[str, int] = field(default_factory=dict)

    def settle(self, log: FakeLog) -> None:
        stopped = set()
        for offset in sorted(o for o in log.records if o >= self.start):
            namespace = log.records[offset]
            if offset not in self.acked:
                stopped.add(namespace)
            if namespace not in stopped:
                self.effective[namespace] = max(offset, self.effective.get(namespace, -1))

    def pending(self, log: FakeLog) -> list[int]:
        return sorted(o for o in log.records if o >= self.start and o not in self.acked)


NAMES = st.sampled_from(["one", "two", "three"])
SPACES = st.sampled_from(["A", "B", "C"])
WHERE = st.floats(0, 1, exclude_max=True)


class Machine(RuleBasedStateMachine):
    """Appends, acks, restarts, crashes and compaction. A crash goes back to what was flushed, in model and file."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.log = FakeLog()
        self.readers: dict[str, ModelReader] = {}
        self.durable: dict[str, ModelReader] = {}
        self.offsets = offsets_of(self.folder, self.log)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _reader(self, name: str) -> ModelReader:
        if name not in self.readers:
            self._register(name, 0)
        return self.readers[name]

    def _register(self, name: str, start: int) -> None:
        if name not in self.readers:
            self.readers[name] = ModelReader(start)
            self.durable[name] = copy.deepcopy(self.readers[name])

    @rule(name=NAMES, where=st.floats(0, 1))
    def register(self, name: str, where: float) -> None:
        start = int(where * self.log.end)
        self.offsets.register(name, start)
        self._register(name, start)

    @rule(namespace=SPACES, count=st.integers(1, 5))
    def append(self, namespace: str, count: int) -> None:
        self.log.append(namespace, count)

    @precondition(lambda self: self.log.end)
    @rule(name=NAMES, where=WHERE, many=st.integers(0, 12), step=st.sampled_from([1, 1, 2, 3]), bulk=st.integers(0, 2))
    def ack(self, name: str, where: float, many: int, step: int, bulk: int) -> None:
        low = int(where * self.log.end)
        wanted = range(low, min(low + many, self.log.end), step)
        self._reader(name).acked.update(wanted)
        self.readers[name].settle(self.log)
        if bulk == 0:
            self.offsets.ack(name, wanted)
        elif bulk == 1:
            self.offsets.ack(name, reversed(wanted))
        else:
            self.offsets.ack(name, [])
            for offset in reversed(wanted):
                self.offsets.ack(name, offset)

    @precondition(lambda self: self.log.end)
    @rule(name=NAMES, where=WHERE, namespace=st.one_of(st.none(), SPACES))
    def ack_through(self, name: str, where: float, namespace: str | None) -> None:
        offset = int(where * self.log.end)
        self.offsets.ack_through(name, offset, namespace)
        reader = self._reader(name)
        reader.acked |= {o for o, n in self.log.records.items() if o <= offset and namespace in (None, n)}
        reader.settle(self.log)

    @rule(name=NAMES, beyond=st.integers(0, 3))
    def ack_too_far(self, name: str, beyond: int) -> None:
        if name in self.readers and self.readers[name].start <= self.log.end + beyond:
            with pytest.raises(LogError):
                self.offsets.ack(name, [*range(self.log.end), self.log.end + beyond])

    @rule()
    def flush(self) -> None:
        self.offsets.flush()
        self.durable = copy.deepcopy(self.readers)

    @rule()
    def restart(self) -> None:
        self.offsets.close()
        self.durable = copy.deepcopy(self.readers)
        self._open()

    @rule()
    def crash(self) -> None:
        self.offsets._dirty.clear()  # it has nothing to write any more, and its thread ends
        self.offsets.close()
        self.readers = copy.deepcopy(self.durable)
        self._open()

    def _open(self) -> None:
        self.offsets = offsets_of(self.folder, self.log)
        for name in list(self.readers)[:2]:  # the last one is only looked at, as a process that doesn't own it would
            self.offsets.register(name)

    @rule()
    def compact(self) -> None:
        states = load(self.folder)
        point = compaction_point(states, self.log.spans(), self.log.end)
        assert (point is None) == (not self.readers)
        if point is None:
            return
        pending = [o for reader in self.durable.values() for o in reader.pending(self.log)]
        assert point == min(pending, default=self.log.end)
        last = {namespace: offset for offset, namespace in sorted(self.log.records.items())}
        for offset, namespace in list(self.log.records.items()):
            if offset < point and last[namespace] != offset:
                del self.log.records[offset]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "folder"):
            return
        for name, reader in self.readers.items():
            owned = name in self.offsets._readers
            expected = reader if owned else self.durable[name]
            pending = expected.pending(self.log)
            assert self.offsets.effective(name) == expected.effective
            assert self.offsets.lag(name) == len(pending)
            assert self.offsets.pending(name) == (pending[0] if pending else None)


Machine.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)
TestMachine = Machine.TestCase


# -- what is acked ----------------------------------------------------------------------------------------------------


def test_a_gap_holds_its_namespace_and_no_other(tmp_path: Path) -> None:
    offsets = offsets_of(tmp_path, log_of("AABBAB"))
    offsets.ack("r", [0, 2, 3, 4, 5])
    assert offsets.effective("r") == {"A": 0, "B": 5}
    assert (offsets.pending("r"), offsets.lag("r")) == (1, 1)
    offsets.ack("r", 1)
    assert offsets.effective("r") == {"A": 4, "B": 5}
    assert (offsets.pending("r"), offsets.lag("r")) == (None, 0)


def test_an_ack_of_something_that_is_not_in_the_log_is_refused_as_a_whole(tmp_path: Path) -> None:
    log = log_of("AAA")
    offsets = offsets_of(tmp_path, log)
    attempts: list[Callable[[], None]] = [
        partial(offsets.ack, "r", [0, 3]),
        partial(offsets.ack, "r", 3),
        partial(offsets.ack_through, "r", 3),
    ]
    for attempt in attempts:
        with pytest.raises(LogError, match=r"offset 3 .* ends before 3") as refused:
            attempt()
        assert refused.value.code == "log.ack-beyond-end"
    assert offsets.lag("r") == 3
    log.append("A")
    offsets.ack("r", [0, 3])
    assert offsets.lag("r") == 2


def test_a_reader_begins_at_its_start_and_keeps_its_state_when_it_is_registered_again(tmp_path: Path) -> None:
    log = log_of("AAAA")
    offsets = offsets_of(tmp_path, log)
    offsets.register("r", 2)
    assert load(tmp_path)["r"].frontier == 2  # on disk when `register` has returned
    assert (offsets.pending("r"), offsets.lag("r")) == (2, 2)
    for known in (offsets, offsets_of(tmp_path, log)):
        known.register("r", 4)
        known.register("r")
        assert known.pending("r") == 2


def test_a_reader_from_further_down_does_not_disturb_the_others(tmp_path: Path) -> None:
    log = log_of("ABABABAB")
    offsets = offsets_of(tmp_path, log)
    offsets.ack("high", range(6))
    offsets.flush()  # what is known of the log is cut off below 6
    offsets.ack("high", 7)
    offsets.ack("high", 6)
    offsets.register("low", 1)
    assert offsets.effective("high") == {"A": 6, "B": 7}  # before the log is read from further down
    assert (offsets.pending("low"), offsets.lag("low")) == (1, 7)
    offsets.ack("low", [1, 3])
    assert offsets.effective("low") == {"B": 3}
    assert offsets.effective("high") == {"A": 6, "B": 7}
    assert offsets.pending("high") is None


def test_an_unknown_reader_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    offsets = offsets_of(tmp_path, log_of("A"))
    offsets.register("known")
    for ask in (offsets.effective, offsets.pending, offsets.lag):
        with pytest.raises(LogError, match=r"no reader other\n.*known"):
            ask("other")


def test_the_log_is_not_scanned_for_each_ack(tmp_path: Path) -> None:
    log = log_of("AB" * 500)
    offsets = offsets_of(tmp_path, log)
    for offset in range(1000):
        offsets.ack("r", offset)
    assert log.scans == 1
    offsets.flush()
    assert not offsets._known.namespaces  # nothing is pending, nothing is remembered


def test_memory_and_file_hold_only_what_lies_beyond_the_frontier(tmp_path: Path) -> None:
    log = log_of("A" * 13_000)
    with offsets_of(tmp_path, log) as offsets:
        for offset in reversed(range(13_000)):
            offsets.ack("r", offset)
        offsets.flush()
        assert len(offsets._readers["r"].beyond._pages) <= 1
    assert load(tmp_path)["r"] == ReaderState(13_000, {"A": 12_999})


def test_records_that_are_lost_at_the_end_of_a_log_can_be_acked(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append([Record(b"x" * 100, namespace="A") for _ in range(3)])
    segment = tmp_path / f"{0:020}.seg"
    content = bytearray(segment.read_bytes())
    content[content.rindex(b"x" * 100)] ^= 1
    segment.write_bytes(content)
    assert [lost.offset for lost in repair(tmp_path).lost] == [2]
    with Offsets(tmp_path) as offsets:
        offsets.ack("r", [0, 1])
        assert offsets.pending("r") == 2  # until somebody has accounted for it
        offsets.ack("r", 2)
        assert offsets.pending("r") is None
        assert offsets.effective("r") == {"A": 2}
        with pytest.raises(LogError):
            offsets.ack("r", 3)


def test_a_log_that_ends_before_what_was_acked_is_damaged(tmp_path: Path) -> None:
    """Put back from an older copy, say: the acks vouch for what was durable."""
    with Writer(tmp_path) as writer:
        writer.append([Record(b"one"), Record(b"two")])
        writer.commit()
        older = (tmp_path / f"{0:020}.seg").read_bytes()
        writer.append([Record(b"three")])
        writer.commit()
        with Offsets(tmp_path) as offsets:
            offsets.ack_through("r", 2)
    (tmp_path / f"{0:020}.seg").write_bytes(older)
    (tmp_path / f"{0:020}.index").unlink()
    with pytest.raises(LogDamaged, match="at offset 2"):
        Writer(tmp_path)
    with Writer(tmp_path, on_damage="skip") as writer:
        assert writer.append([Record(b"four")]) == range(3, 4)
    found = list(Reader(tmp_path, on_damage="skip").read(0))
    assert [(f.offset, f.count, isinstance(f, Lost)) for f in found] == [(0, 2, False), (2, 1, True), (3, 1, False)]


def test_a_reader_is_never_registered_beyond_what_is_durable(tmp_path: Path) -> None:
    writer = Writer(tmp_path, commit_interval=3600)
    writer.append([Record(b"one")])
    writer.commit()
    writer.append([Record(b"two")])
    with Offsets(tmp_path) as offsets:
        offsets.register("r", writer.end)
        assert load(tmp_path)["r"].frontier == 1
    writer.close()


def test_acks_from_several_threads_are_all_there(tmp_path: Path) -> None:
    log = log_of("A" * 4000)
    with Offsets(tmp_path, spans=log.spans, flush_interval=0.001) as offsets:

        def work_on(first: int) -> None:
            for offset in range(first, 4000, 4):
                offsets.ack("r", offset)

        work = [threading.Thread(target=work_on, args=(n,)) for n in range(4)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert offsets.lag("r") == 0
    assert load(tmp_path)["r"] == ReaderState(4000, {"A": 3999})


# -- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_can_be_read_with_plain_tools(tmp_path: Path) -> None:
    with offsets_of(tmp_path, log_of("AABBA")) as offsets:
        offsets.ack("r", [0, 2, 3])
    head, body = (tmp_path / "offsets").read_bytes().split(b"\n", 1)
    assert head == b"penstock-offsets 1 %08x" % google_crc32c.value(body)
    told = json.loads(body)
    assert told["r"].pop("updated").endswith("+00:00")
    assert told == {"r": {"frontier": 1, "namespaces": {"A": 0, "B": 3}, "ranges": [[2, 4]]}}


def test_a_missing_file_means_no_readers(tmp_path: Path) -> None:
    assert load(tmp_path) == {}
    assert compaction_point({}, [], 7) is None


def written(folder: Path) -> bytes:
    with offsets_of(folder, log_of("ABABAB")) as offsets:
        offsets.ack("r", [0, 3, 4])
    return (folder / "offsets").read_bytes()


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    good = written(tmp_path)
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (tmp_path / "offsets").write_bytes(bad)
        with pytest.raises((LogDamaged, LogVersion)):
            load(tmp_path)


def test_every_torn_file_is_found_and_left_as_it_is(tmp_path: Path) -> None:
    good = written(tmp_path)
    for length in range(len(good)):
        (tmp_path / "offsets").write_bytes(good[:length])
        with pytest.raises(LogDamaged, match="penstock log repair"):
            load(tmp_path)
    offsets = offsets_of(tmp_path, log_of("A"))
    with pytest.raises(LogDamaged):
        offsets.register("other")
    with pytest.raises(LogDamaged):
        forget(tmp_path, "r")
    assert (tmp_path / "offsets").read_bytes() == good[:-1]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"r": 1}', b'{"r": {"frontier": "x", "namespaces": {}}}', b'"\xff"'])
def test_a_file_that_says_something_else_is_damaged(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "offsets").write_bytes(b"penstock-offsets 1 %08x\n" % google_crc32c.value(body) + body)
    with pytest.raises(LogDamaged) as damaged:
        load(tmp_path)
    assert damaged.value.code == "log.offsets-damaged"


def test_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    newer = written(tmp_path).replace(b"offsets 1 ", b"offsets 2 ")
    (tmp_path / "offsets").write_bytes(newer)
    for attempt in (lambda: load(tmp_path), lambda: forget(tmp_path, "r"), lambda: Offsets(tmp_path).register("n")):
        with pytest.raises(LogVersion):
            attempt()
    assert (tmp_path / "offsets").read_bytes() == newer


def test_the_file_holds_a_thousand_ranges_and_the_rest_is_redelivered(tmp_path: Path) -> None:
    log = log_of("A" * 5000)
    with offsets_of(tmp_path, log) as offsets:
        offsets.ack("r", range(1, 5000, 2))
        assert offsets.lag("r") == 2500
    again = offsets_of(tmp_path, log)
    again.register("r")
    assert again.lag("r") == 5000 - MAX_RANGES
    again.ack("r", range(0, 5000, 2))
    assert again.pending("r") == 2 * MAX_RANGES + 1
    again.ack("r", range(1, 5000, 2))
    assert again.effective("r") == {"A": 4999}


# -- flushing ---------------------------------------------------------------------------------------------------------


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    log = log_of("AAA")
    offsets = offsets_of(tmp_path, log)
    offsets.ack("r", [0, 1])
    offsets.flush()
    fsyncs: list[str] = []
    faults.install(lambda point, detail: fsyncs.append(detail) if point == "fsync" else None)
    offsets.flush()
    offsets.register("r")
    offsets.ack("r", 0)  # an old one
    offsets.ack_through("r", 1)
    offsets.flush()
    offsets.close()
    assert fsyncs == []
    assert not forget(tmp_path, "nobody")
    assert fsyncs == []


def test_a_flush_happens_by_itself_after_the_interval(tmp_path: Path) -> None:
    now = [100.0]
    offsets = Offsets(tmp_path, spans=log_of("AAA").spans, flush_interval=5, clock=lambda: now[0])
    offsets.ack("r", 0)
    now[0] += 4.9
    offsets.ack("r", 1)
    assert load(tmp_path)["r"].frontier == 0
    now[0] += 0.2
    await_(lambda: load(tmp_path)["r"].frontier == 2)
    offsets.close()


def test_what_a_full_disk_refuses_is_told_at_the_next_ack_and_written_later(tmp_path: Path) -> None:
    log = log_of("A" * 10)
    offsets = Offsets(tmp_path, spans=log.spans, flush_interval=0.001)
    offsets.register("r")
    fail_at(tmp_path / ".offsets.tmp")
    offsets.ack("r", 0)
    await_(lambda: offsets._error is not None)
    with pytest.raises(LogUnwritable, match="No space left"):
        offsets.ack("r", 1)
    with pytest.raises(LogUnwritable):
        offsets.flush()
    assert load(tmp_path)["r"].frontier == 0
    assert offsets.effective("r") == {"A": 1}  # the ack that raised counts all the same
    with pytest.raises(LogUnwritable):
        offsets.close()
    faults.install()
    offsets.close()
    assert load(tmp_path)["r"] == ReaderState(2, {"A": 1})


def test_after_the_disk_has_room_again_the_flusher_goes_on_by_itself(tmp_path: Path) -> None:
    offsets = Offsets(tmp_path, spans=log_of("AA").spans, flush_interval=0.001)
    offsets.register("r")
    fail_at(tmp_path / ".offsets.tmp")
    offsets.ack("r", 0)
    await_(lambda: offsets._error is not None)
    faults.install()
    await_(lambda: offsets._error is None)
    assert load(tmp_path)["r"].frontier == 1
    offsets.ack("r", 1)  # nothing was lost, so there is nothing to tell
    offsets.close()


def test_a_file_whose_name_may_not_be_on_disk_is_written_again(tmp_path: Path) -> None:
    offsets = offsets_of(tmp_path, log_of("AA"))
    offsets.ack("r", 0)
    fail_at(tmp_path)  # the new file has its name, but the folder could not be fsynced
    with pytest.raises(LogUnwritable):
        offsets.flush()
    assert load(tmp_path)["r"].frontier == 1
    fsyncs: list[str] = []
    faults.install(lambda point, detail: fsyncs.append(detail) if point == "fsync" else None)
    offsets.flush()
    assert fsyncs[-1] == str(tmp_path)


def test_a_reader_that_a_killed_process_registered_is_on_disk_when_register_returns(tmp_path: Path) -> None:
    log = log_of("AA")
    offsets_of(tmp_path, log).register("r")
    fsyncs: list[str] = []
    faults.install(lambda point, detail: fsyncs.append(detail) if point == "fsync" else None)
    offsets_of(tmp_path, log).register("r")
    assert fsyncs == [str(tmp_path / ".offsets.tmp"), str(tmp_path)]


def test_closed_offsets_take_no_acks(tmp_path: Path) -> None:
    offsets = offsets_of(tmp_path, log_of("AA"))
    offsets.ack("r", 0)
    offsets.close()
    offsets.close()
    with pytest.raises(ValueError, match="closed"):
        offsets.ack("r", 1)


# -- sharing the file -------------------------------------------------------------------------------------------------


def test_two_processes_with_readers_of_their_own_do_not_undo_each_other(tmp_path: Path) -> None:
    log = log_of("A" * 10)
    one, two = offsets_of(tmp_path, log), offsets_of(tmp_path, log)
    one.ack("one", 0)
    two.ack("two", [0, 1])
    two.flush()
    one.flush()
    one.ack("one", 1)
    one.flush()
    two.ack("two", 2)
    two.flush()
    assert {name: state.frontier for name, state in load(tmp_path).items()} == {"one": 2, "two": 3}
    assert one.effective("two") == {"A": 2}  # what the file says
    assert (one.pending("two"), one.lag("two")) == (3, 7)


def test_an_older_state_never_replaces_a_newer_one(tmp_path: Path) -> None:
    log = log_of("AB" * 5)
    old, new = offsets_of(tmp_path, log), offsets_of(tmp_path, log)
    old.ack("r", [0, 9])
    new.register("r")
    new.ack("r", range(6))
    new.flush()
    old.flush()
    assert load(tmp_path)["r"] == ReaderState(6, {"A": 4, "B": 5}, ((9, 10),))
    assert old.effective("r") == {"A": 4, "B": 5}  # it learns of the other when it writes
    assert old.pending("r") == 6


def test_a_reader_that_is_forgotten_beside_a_running_process_stays_forgotten_unless_it_acks(tmp_path: Path) -> None:
    log = log_of("A" * 10)
    offsets = offsets_of(tmp_path, log)
    offsets.ack("idle", 0)
    offsets.ack("busy", 0)
    offsets.flush()
    assert forget(tmp_path, "idle")
    assert not forget(tmp_path, "idle")
    offsets.ack("busy", 1)
    offsets.flush()
    assert list(load(tmp_path)) == ["busy"]
    forget(tmp_path, "busy")
    offsets.ack("busy", 2)
    offsets.flush()
    assert load(tmp_path)["busy"] == ReaderState(3, {"A": 2})
    offsets.ack("idle", 1)  # begins anew
    assert offsets.pending("idle") == 0


PROCESS = """
import sys
from pathlib import Path
from penstock.log.format import Span
from penstock.log.offsets import Offsets

folder, reader, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Offsets(folder, spans=lambda start, end: [Span(0, count, "A")], flush_interval=0.0001) as offsets:
    for offset in range(count):
        offsets.ack(reader, offset)
        if offset % 10 == 0:
            offsets.flush()
"""


def test_real_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    count = 300
    children = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), f"reader-{n}", str(count)]) for n in range(3)
    ]
    offsets = Offsets(tmp_path)
    for n in range(50):  # registered and forgotten between their writes
        offsets.register(f"passing-{n}")
        assert forget(tmp_path, f"passing-{n}")
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert load(tmp_path) == {f"reader-{n}": ReaderState(count, {"A": count - 1}) for n in range(3)}


# -- killed -----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from penstock.log.format import Span
from penstock.log.offsets import Offsets
from penstock.testing import faults

folder, nth = Path(sys.argv[1]), int(sys.argv[2])
reached = 0

def hook(point, detail):
    global reached
    reached += point == "fsync"
    if reached == nth:
        os.kill(os.getpid(), signal.SIGKILL)

faults.install(hook)
offsets = Offsets(folder, spans=lambda start, end: [Span(0, 100, "A")], flush_interval=1e9)
offsets.register("r")
for offset in range(5):
    offsets.ack("r", offset)
    print("acked", offset, flush=True)
    offsets.flush()
    print("flushed", offset, flush=True)
"""


@pytest.mark.parametrize("nth", range(1, 13))
def test_a_kill_at_any_fsync_leaves_the_state_of_the_last_flush_or_the_one_in_flight(tmp_path: Path, nth: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(nth)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    said = [line.split() for line in ended.stdout.splitlines()]
    acked, flushed = (sum(word == what for word, _ in said) for what in ("acked", "flushed"))
    state = load(tmp_path).get("r")
    if state is None:
        assert (acked, nth) == (0, 1)
    else:
        assert flushed <= state.frontier <= acked
    with offsets_of(tmp_path, log_of("A" * 100)) as again:
        again.ack("r", range(acked))
    assert load(tmp_path)["r"].frontier == acked
    assert sorted(p.name for p in tmp_path.iterdir()) == ["offsets", "offsets.lock"]


# -- how far compaction may go ----------------------------------------------------------------------------------------


def spans(text: str) -> Iterable[Span]:
    return [Span(offset, 1, namespace) for offset, namespace in enumerate(text) if namespace != " "]


@pytest.mark.parametrize(
    "states, expected",
    [
        ({"r": ReaderState(0, {})}, 0),
        ({"r": ReaderState(2, {})}, 2),
        ({"r": ReaderState(0, {"A": 5})}, 1),  # B holds, A does not
        ({"r": ReaderState(0, {"A": 5, "B": 4})}, 6),
        ({"r": ReaderState(1, {}, ((1, 4),))}, 5),  # 4 does not exist
        ({"r": ReaderState(6, {}), "s": ReaderState(1, {"A": 3})}, 1),
        ({"r": ReaderState(6, {}), "s": ReaderState(7, {})}, 6),
        ({"r": ReaderState(8, {})}, 8),
        ({"r": ReaderState(0, {"A": 5, "B": 6, "C": 7})}, 8),
    ],
)
def test_compaction_goes_up_to_the_lowest_record_that_somebody_has_not_acked(
    states: dict[str, ReaderState], expected: int
) -> None:
    assert compaction_point(states, spans("ABBA ABC"), 8) == expected


def test_the_pending_record_may_be_inside_a_batch(tmp_path: Path) -> None:
    states = {"r": ReaderState(3, {"A": 7}, ((8, 10), (12, 20)))}
    assert compaction_point(states, [Span(0, 100, "A")], 100) == 10
