"""The loop of a hosted source: into the log once, acks back in order and at most once, resends recognised, a stop that drains."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.chaos.connector import connector as chaos
from penstock.errors import Stop
from penstock.host.resends import Resends
from penstock.host.source_loop import SourceLoop
from penstock.host.unacked import Unacked
from penstock.log import Lost, Offsets, Reader, Writer
from penstock_protocol.interfaces import SourcePlugin
from penstock_protocol.process import PluginProcess
from penstock_sdk import Record, Settings, Source
from penstock_sdk.source_plugin import SourceAdapter

PATIENCE = 30.0


def _logged(folder: Path) -> list[bytes]:
    with Reader(folder) as reader:
        rows = list(reader.read(0))
    assert not any(isinstance(r, Lost) for r in rows)
    return [record.position for r in rows if not isinstance(r, Lost) for record in r.records()]


def _chaos(position: bytes = b"", **settings: Any) -> SourceAdapter:
    assert chaos.source is not None
    made = SourceAdapter(chaos.source)
    made.configure({name: str(value) for name, value in settings.items()})
    made.open(position)
    return made


class Told(Source[Settings]):
    """Gives what the test puts there, and keeps the acks."""

    given: list[list[Record]]
    acks: list[bytes]
    rest: list[Record]

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if self.given:
            return self.given.pop(0)
        self.context.stopping.wait(0.01)
        return []

    def ack(self, positions: Sequence[bytes]) -> None:
        self.acks += positions

    def drain(self) -> Sequence[Record]:
        found, self.rest[:] = list(self.rest), []
        return found


@pytest.fixture
def told() -> type[Told]:
    Told.given, Told.acks, Told.rest = [], [], []
    return Told


def _opened(kind: type[Source[Settings]]) -> SourceAdapter:
    made = SourceAdapter(kind)
    made.configure({})
    made.open(b"")
    return made


def _records(*positions: int) -> list[Record]:
    return [Record({"n": n}, position=b"%d" % n) for n in positions]


def _soon(holds: Callable[[], bool]) -> None:
    """Acks are sent by a thread of their own."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Running:
    """A loop in a thread of its own."""

    def __init__(self, source: SourcePlugin, writer: Writer, resends: Resends | None = None) -> None:
        self.loop = SourceLoop(source, writer, Resends() if resends is None else resends)
        self.error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=[body]) for body in (self.loop.run, self.loop.send_acks)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as e:
            self.error = self.error or e

    def until(self, **wanted: int) -> None:
        with self.loop._changed:
            assert self.loop._changed.wait_for(
                lambda: all(getattr(self.loop, f"_{name}") >= n for name, n in wanted.items()), PATIENCE
            )

    def end(self) -> None:
        reading, acking = self._threads
        reading.join(PATIENCE)
        self.loop.end_acks()
        acking.join(PATIENCE)
        assert not reading.is_alive()
        assert not acking.is_alive()


def test_records_are_logged_in_order_and_acked_when_they_are_settled(told: type[Told], tmp_path: Path) -> None:
    told.given = [_records(1, 2, 3), _records(4), _records(5, 6)]
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.until(read=6)
        assert told.acks == []
        run.loop.acked(2, {})
        _soon(lambda: told.acks == [b"1", b"2"])
        run.loop.acked(1, {})  # late news
        run.loop.acked(5, {})
        _soon(lambda: told.acks == [b"1", b"2", b"3", b"4", b"5"])
        run.loop.stop()
        assert run.loop.wait_drained(PATIENCE)
        run.loop.acked(6, {})
        run.end()
        assert run.error is None
        _soon(lambda: told.acks == [b"1", b"2", b"3", b"4", b"5", b"6"])
        assert run.loop.counts().ended
    assert _logged(tmp_path / "log") == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_what_comes_again_is_not_logged_twice_and_acked_in_its_place(told: type[Told], tmp_path: Path) -> None:
    told.given = [_records(1, 2, 3), _records(2, 3, 4), _records(5)]
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.until(read=7)
        assert run.loop.counts().resent == 2
        run.loop.acked(2, {})  # 1 and 2: the second 2 stands behind 3, which is not settled
        _soon(lambda: told.acks == [b"1", b"2"])
        run.loop.acked(4, {})
        _soon(lambda: told.acks == [b"1", b"2", b"3", b"2", b"3", b"4"])
        run.loop.stop()
        run.loop.acked(5, {})
        run.end()
    assert _logged(tmp_path / "log") == [b"1", b"2", b"3", b"4", b"5"]


def test_what_is_settled_already_is_acked_as_soon_as_it_comes_again(told: type[Told], tmp_path: Path) -> None:
    told.given = [_records(1, 2)]
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.until(read=2)
        run.loop.acked(2, {})
        told.given.append(_records(1, 2))
        run.until(read=4)
        run.loop.stop()
        run.end()
        _soon(lambda: told.acks == [b"1", b"2", b"1", b"2"])


def test_after_a_stop_what_was_fetched_is_logged_and_acked(told: type[Told], tmp_path: Path) -> None:
    told.given, told.rest = [_records(1)], _records(2, 3)
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.until(read=1)
        run.loop.stop()
        assert run.loop.wait_drained(PATIENCE)
        with Reader(tmp_path / "log") as reader:
            assert reader.end == 3  # and durable
        assert not run.loop.counts().ended
        run.loop.acked(3, {})
        run.end()
        _soon(lambda: told.acks == [b"1", b"2", b"3"])


def test_a_stop_before_any_record_ends_it(told: type[Told], tmp_path: Path) -> None:
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.loop.stop()
        assert run.loop.wait_drained(PATIENCE)
        run.end()
        assert run.error is None


def test_an_error_of_the_source_ends_the_loop_with_its_words(told: type[Told], tmp_path: Path) -> None:
    with Writer(tmp_path / "log") as writer:
        run = Running(_chaos(records=10, batch=2, read="fail after 2"), writer)
        run.end()
        assert run.error is not None
        assert run.loop.counts().logged == 4
        assert run.loop.wait_drained(PATIENCE)


def test_a_record_that_no_log_can_hold_stops_it_by_its_position(told: type[Told], tmp_path: Path) -> None:
    told.given = [_records(1), [Record({"x": object()}, position=b"bad")]]
    with Writer(tmp_path / "log") as writer:
        run = Running(_opened(told), writer)
        run.end()
        assert isinstance(run.error, Stop)
        assert "b'bad'" in str(run.error)
    assert _logged(tmp_path / "log") == [b"1"]


def test_twenty_starts_of_a_source_that_always_sends_its_last_thousand_again(tmp_path: Path) -> None:
    """Each time it is opened right after what is in the log, and dies without a word."""
    folder, resent, chance = tmp_path / "log", 0, random.Random(7)
    for start in range(20):
        with Writer(folder) as writer:
            with Reader(folder) as reader:
                resends = Resends.of(reader)
                last = _logged(folder)[-1] if reader.end else b""
            source = _chaos(last, records=10_000_000, batch=chance.randint(50, 700), resend=1000)
            run = Running(source, writer, resends)
            run.until(read=chance.randint(200, 1500))
            run.loop.acked(chance.randint(0, writer.end), {})
            source.teardown()  # read raises: it is not open
            run.end()
            resent += resends.count
        positions = _logged(folder)
        assert len(positions) == len(set(positions)), start
    numbers = [int(p) for p in _logged(folder)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert resent > 0


def test_a_full_log_stops_the_reading_until_there_is_room(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Writer(folder, max_bytes=400_000) as writer, Offsets(folder) as offsets:
        offsets.register("lane")
        source = _chaos(records=2000, size=1000, batch=50)
        run = Running(source, writer)
        for _ in range(40):
            end = writer.commit()
            if run.loop.counts().read == 2000:
                break
            assert writer.size <= 400_000
            if end:
                run.loop.acked(end, {})
                offsets.ack_through("lane", end - 1)
                offsets.flush()  # the writer compacts by itself
            with run.loop._changed:
                run.loop._changed.wait(0.2)
        run.until(read=2000)
        run.loop.stop()
        run.loop.acked(writer.end, {})
        run.end()
        assert run.error is None
        assert run.loop.counts().logged == 2000


@pytest.mark.parametrize("dialect", [1, 2])
def test_a_program_in_each_dialect(tmp_path: Path, dialect: int) -> None:
    command = [sys.executable, "-m", "penstock.connectors.chaos.connector"]
    with (
        PluginProcess(command, connector_id="p:c", dialects=[dialect]) as process,
        Writer(tmp_path / "log") as writer,
    ):
        source = process.source(PATIENCE)
        source.configure({"records": "300", "calls": str(tmp_path / "calls")})
        source.open(b"")
        run = Running(source, writer)
        run.until(read=300)
        run.loop.stop()
        assert run.loop.wait_drained(PATIENCE)
        run.loop.acked(300, {})
        run.end()
        assert run.error is None
        source.teardown()
    assert [int(p) for p in _logged(tmp_path / "log")] == list(range(1, 301))
    acked = [line for line in (tmp_path / "calls").read_text().splitlines() if '"ack"' in line]
    assert acked


def test_the_window_forgets_what_is_far_back_and_keeps_what_came_again() -> None:
    made = Resends(3)
    made.remember([b"a", b"b", b"c"], range(0, 3))
    made.remember([b"d"], range(3, 4))
    assert [made.offset(p) for p in (b"a", b"b", b"c", b"d")] == [None, 1, 2, 3]
    made.remember([b"b"], range(4, 5))  # it was not recognised: it is a new record with an old position
    assert [made.offset(p) for p in (b"b", b"c", b"d")] == [4, 2, 3]
    made.remember([b"e"], range(5, 6))
    assert [made.offset(p) for p in (b"b", b"c", b"d", b"e")] == [4, None, 3, 5]


def test_nothing_is_acked_before_what_came_before_it() -> None:
    waiting = Unacked()
    waiting.add([0, 1, 0, 2], [b"a", b"b", b"a", b"c"])
    waiting.add(range(3, 6), [b"d", b"e", b"f"])
    assert waiting.has(1)
    assert waiting.through(1, 10) == [([0], [b"a"])]
    assert not waiting.has(1)
    assert waiting.through(1, 10) == []
    assert len(waiting) == 6
    assert waiting.through(5, 2) == [([1, 0], [b"b", b"a"])]
    assert waiting.through(5, 10) == [([2], [b"c"]), (range(3, 5), [b"d", b"e"])]
    assert waiting.through(6, 10) == [(range(5, 6), [b"f"])]
    assert len(waiting) == 0
