"""What `penstock pipelines show` says of the log of a hosted source: from logs and ledgers that are made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.frontier import frontier
from penstock.host.memory import FILE, Memory
from penstock.ledger import Prepared
from penstock.log import Offsets, Reader, Writer
from penstock.log.reader import Entry
from penstock.log.segment import SUFFIX
from penstock.ranges import Range, Ranges
from penstock_sdk.record import Record
from tests.support.states import State, bytes_of, penstock, terminal


class Hosted(State):
    """A state folder with the log of the source `in`; `out` and `eu` read it."""

    def __init__(self, path: Path, pipeline: str = "orders") -> None:
        super().__init__(path, pipeline)
        self.log = path / "logs" / f"{pipeline.replace('.', '%2E')}.in"

    def append(self, n: int) -> None:
        with Writer(self.log) as writer:
            writer.append([Record(b"x" * 20, position=b"%d" % i) for i in range(n)])

    def taken(self, start: int, end: int, *, done: bool = True) -> None:
        """A batch of these offsets."""
        with Reader(self.log) as reader:
            log = reader.log_id
        ranges = Ranges((Range(log, {"from": start, "to": end, "after": "raw"}, start, 100),), end)
        s, _ = self.ledger.take(self.ledger.lane(self.pipeline, self.source), ranges)
        if done:
            self.ledger.prepare(s, end - start, [Prepared("out", f"hash {start}", "files", {}, {}, 0)], [])
            self.ledger.done(s, "out", {}, end - start, frontier)

    def acked(self, **through: int) -> None:
        with Offsets(self.log) as offsets:
            for name, end in through.items():
                offsets.register(name)
                if end:
                    offsets.ack_through(name, end - 1)

    def remember(self, resent: int) -> None:
        Memory(self.pipeline, "in", "builtin:chaos", {"token": "${TOKEN}"}, resent).save(self.log)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path / ".penstock")
    yield made
    made.close()


def said(folder: Path) -> str:
    ended = penstock(folder, "pipelines", "show", "orders")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def log(folder: Path) -> dict[str, Any]:
    ended = penstock(folder, "pipelines", "show", "orders", "--json")
    assert ended.returncode == 0, ended.stderr
    [source] = json.loads(ended.stdout)["sources"]
    found: dict[str, Any] = source["log"]
    return found


def test_a_log_is_shown_with_how_far_batches_and_destinations_are(state: Hosted, tmp_path: Path) -> None:
    state.append(100)
    state.taken(0, 60)
    state.taken(60, 70, done=False)
    state.acked(out=60, eu=25)
    state.remember(1234)
    before = bytes_of(tmp_path)
    text = said(tmp_path)
    assert "  log orders.in: " in text
    assert ", offsets 0–99, last written " in text
    assert "    behind: 30 records that no batch has taken\n" in text
    assert "    → eu: 75 records of it not settled\n" in text
    assert "    → out: 40 records of it not settled\n" in text
    assert "    sent again by the source: 1,234 records, not logged twice\n" in text
    found = log(tmp_path)
    assert found.pop("last_write") > 1_700_000_000_000
    assert found.pop("bytes") > 2000
    assert found == {
        "name": "orders.in",
        "first": 0,
        "end": 100,
        "taken": 70,
        "behind": 30,
        "unacked": {"out": 40, "eu": 75},
        "unacked_exact": True,
        "resent": 1234,
        "errors": [],
    }
    assert bytes_of(tmp_path) == before


def test_a_log_that_is_done_has_little_to_say(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 10)
    state.acked(out=10)
    state.remember(0)
    text = said(tmp_path)
    assert "    behind: nothing\n\n  unfinished batches: none" in text
    assert "sent again" not in text


def test_nothing_was_taken_yet(state: Hosted, tmp_path: Path) -> None:
    state.ledger.lane("orders", "in")
    state.append(3)
    assert "behind: 3 records that no batch has taken" in said(tmp_path)
    found = log(tmp_path)
    assert (found["taken"], found["behind"], found["unacked"], found["resent"]) == (None, 3, {}, None)


def test_a_log_without_a_record(state: Hosted, tmp_path: Path) -> None:
    state.ledger.lane("orders", "in")
    state.append(0)
    assert "bytes, no records yet\n    behind: nothing\n" in said(tmp_path)


def test_a_source_without_a_log_says_nothing_of_one(state: Hosted, tmp_path: Path) -> None:
    state.batch(10)
    assert " log " not in said(tmp_path)
    assert log(tmp_path) is None


def test_a_pipeline_with_a_dot_has_its_log_too(tmp_path: Path) -> None:
    state = Hosted(tmp_path / ".penstock", "a.b")
    state.append(5)
    state.taken(0, 5)
    state.close()
    assert "log a%2Eb.in: " in penstock(tmp_path, "pipelines", "show", "a.b").stdout


# -- what is wrong with it ------------------------------------------------------------------------------------------


def test_a_log_that_is_missing_hides_nothing_else(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 10)
    for path in state.log.iterdir():
        path.unlink()
    for _ in range(2):
        text = said(tmp_path)
        assert (
            "  log orders.in: there is none at .penstock/logs/orders.in; that of a queue is where the queue is\n"
            in text
        )
        assert "    batches have taken it up to offset 9\n" in text
        assert "→ out: 10 read = 10 delivered" in text
        assert "last batches" in text
        found = log(tmp_path)
        assert (found["bytes"], found["end"], found["taken"], found["behind"]) == (None, None, 10, None)
        if state.log.exists():
            state.log.rmdir()


def test_a_new_log_in_the_place_of_another_was_not_taken(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 10)
    for path in state.log.iterdir():
        path.unlink()
    state.append(4)
    assert "behind: 4 records that no batch has taken" in said(tmp_path)


def test_a_damaged_log_hides_nothing_else(state: Hosted, tmp_path: Path) -> None:
    for _ in range(3):
        state.append(10)
    state.taken(0, 5)
    state.acked(out=5)
    with Reader(state.log) as reader:
        *_, last = reader.entries(0)
        assert isinstance(last, Entry)
        segment, place = last.segment, last.head.position
    data = bytearray(segment.read_bytes())
    data[place + 12] ^= 0xFF
    segment.write_bytes(data)
    text = said(tmp_path)
    assert "behind: 25 records" in text
    assert "is damaged at offset 20" in text
    assert "look at: penstock log verify orders.in\n" in text
    assert "last batches" in text
    [error] = log(tmp_path)["errors"]
    assert error["code"] == "log.damaged"


@pytest.mark.parametrize("rubbish", [b"", b"rubbish"])
def test_a_log_whose_header_is_damaged_is_said_in_a_line(state: Hosted, tmp_path: Path, rubbish: bytes) -> None:
    state.append(10)
    state.taken(0, 10)
    [segment] = state.log.glob(f"*{SUFFIX}")
    segment.write_bytes(rubbish)
    text = said(tmp_path)
    assert "log orders.in: it can't be read\n" in text
    assert "penstock log verify orders.in" in text
    assert "last batches" in text
    assert log(tmp_path)["errors"][0]["code"] == "log.damaged"


def test_offsets_that_are_damaged_leave_the_rest(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 4)
    state.acked(out=4)
    (state.log / "offsets").write_bytes(b"rubbish")
    text = said(tmp_path)
    assert "behind: 6 records" in text
    assert "[log.offsets-damaged]" in text
    assert log(tmp_path)["unacked"] == {}


def test_what_is_remembered_of_a_connector_may_be_damaged(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 4)
    (state.log / FILE).write_text("{")
    text = said(tmp_path)
    assert "behind: 6 records" in text
    assert "What is remembered of a connector can't be read" in text
    assert "[host.memory]" in text
    assert log(tmp_path)["resent"] is None


def test_a_log_that_ends_before_what_was_taken_is_suspicious(state: Hosted, tmp_path: Path) -> None:
    state.append(10)
    state.taken(0, 20)
    text = said(tmp_path)
    assert "behind: nothing" in text
    assert "batches have taken offsets up to 19: was it put back from an older copy?" in text


def test_it_fits_a_terminal_of_80_columns(state: Hosted, tmp_path: Path) -> None:
    state.append(10_000)
    state.taken(0, 4)
    state.acked(out=4)
    state.remember(123_456_789)
    assert max(map(len, terminal(tmp_path, "pipelines", "show", "orders").splitlines())) <= 80
