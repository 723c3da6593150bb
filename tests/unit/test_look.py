"""Looking at a ledger changes nothing and disturbs nobody, and says what is there: beside an engine, after a kill, in a copy."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from penstock.engine.frontier import frontier
from penstock.errors import LedgerError, UsageError
from penstock.ledger import Kind, NackState, Prepared
from penstock.ledger.look import LaneView, Share, Verdict, View, Wanted, look
from tests.support.states import State, bytes_of, letter

WRITER = """
import sys
from pathlib import Path
from tests.support.states import State, letter
state = State(Path(sys.argv[1]))
print("open", flush=True)
for n, line in enumerate(sys.stdin):
    state.batch(10, [letter(100 * n)])
    print("written", flush=True)
"""


class Writer:
    """An engine's ledger in a process of its own, which writes a batch when it is told to."""

    def __init__(self, path: Path) -> None:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", WRITER, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._line() == "open"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def write(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self._line() == "written"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "state")
    yield made
    made.kill()


def read(path: Path) -> int:
    """How many records the one lane has read."""
    [lane] = look(path, lambda view: view.lanes())
    return lane.read


def lane_of(path: Path) -> LaneView:
    [lane] = look(path, lambda view: view.lanes())
    return lane


def share_of(path: Path, destination: str = "out") -> Share:
    return next(s for s in lane_of(path).shares if s.destination == destination)


# -- nothing is changed ---------------------------------------------------------------------------------------------


def test_a_closed_ledger_is_left_as_it_was(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.batch(10, [letter(3)])
    state.close()
    before = bytes_of(tmp_path)
    assert read(tmp_path / "ledger.db") == 10
    assert bytes_of(tmp_path) == before


def test_sqlite_alone_would_leave_files_behind(tmp_path: Path) -> None:
    """The control of the test above."""
    state = State(tmp_path)
    state.close()
    before = bytes_of(tmp_path)
    db = sqlite3.connect(f"file:{tmp_path}/ledger.db?mode=ro", uri=True)
    db.execute("SELECT * FROM lane").fetchall()
    db.close()
    assert set(bytes_of(tmp_path)) - set(before) == {"ledger.db-wal", "ledger.db-shm"}


def test_an_engine_goes_on_beside_those_who_look(writer: Writer, tmp_path: Path) -> None:
    ledger = tmp_path / "state" / "ledger.db"
    for n in range(1, 6):
        writer.write()
        before = bytes_of(tmp_path)
        assert read(ledger) == 10 * n
        assert bytes_of(tmp_path) == before


def test_a_writer_does_not_wait_for_one_who_looks_and_what_is_seen_does_not_change(state: State) -> None:
    state.batch(10)

    def question(view: View) -> tuple[int, int]:
        before = view.lanes()[0].read
        state.batch(5)
        return before, view.lanes()[0].read

    assert look(state.ledger.path, question) == (10, 10)
    assert read(state.ledger.path) == 15


def test_what_a_killed_engine_wrote_is_seen_and_left_to_recovery(writer: Writer, tmp_path: Path) -> None:
    writer.write()
    writer.kill()
    path = tmp_path / "state"
    assert (path / "ledger.db-wal").stat().st_size > 0
    before = bytes_of(path)
    assert read(path / "ledger.db") == 10
    assert bytes_of(path) == before
    again = State(path)
    again.batch(5)
    assert again.ledger.totals(1).read == 15
    again.close()


def test_a_copy_without_the_index_of_the_log_is_read_with_its_log(writer: Writer, tmp_path: Path) -> None:
    writer.write()
    writer.kill()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copyfile(tmp_path / "state" / name, copy / name)
    before = bytes_of(copy)
    assert read(copy / "ledger.db") == 10
    assert bytes_of(copy) == before


def test_an_engine_may_start_and_stop_while_somebody_looks(tmp_path: Path) -> None:
    """Without the files of a running engine nothing holds it off; the question is asked again."""
    state = State(tmp_path)
    state.batch(10)
    state.close()
    asked: list[int] = []

    def question(view: View) -> int:
        asked.append(view.lanes()[0].read)
        if len(asked) == 1:
            engine = State(tmp_path)
            engine.batch(5)
            engine.close()
        return asked[-1]

    assert look(tmp_path / "ledger.db", question) == 15
    assert asked == [10, 15]


def test_an_engine_that_starts_meanwhile_is_seen_as_well(tmp_path: Path) -> None:
    State(tmp_path).close()
    engines: list[State] = []

    def question(view: View) -> int:
        if not engines:
            engines.append(State(tmp_path))
            engines[0].batch(5)
        return len(view.lanes())

    assert look(tmp_path / "ledger.db", question) == 1
    engines[0].close()


def _locks_of_this_process(path: Path) -> list[list[str]]:
    inode = str(path.stat().st_ino)
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sorted(
        row[1:] for row in rows if str(os.getpid()) in row and any(cell.endswith(f":{inode}") for cell in row)
    )


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="shown by Linux")
def test_an_engine_in_the_same_process_keeps_its_locks(state: State) -> None:
    """The kernel drops a process's locks on a file when any handle of it is closed."""
    before = _locks_of_this_process(state.ledger.path)
    assert before
    look(state.ledger.path, lambda view: view.lanes())
    assert _locks_of_this_process(state.ledger.path) == before


def test_the_fence_stays(state: State) -> None:
    look(state.ledger.path, lambda view: view.lanes())
    state.batch(1)  # would be refused by a higher fence


# -- what can't be looked at ----------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    before = bytes_of(path.parent)
    with pytest.raises((UsageError, LedgerError)) as caught:
        look(path, lambda view: view.lanes())
    assert bytes_of(path.parent) == before
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize("version, code", [(1, "state.older"), (99, "state.version")])
def test_a_ledger_of_another_version_is_not_touched(tmp_path: Path, version: int, code: str) -> None:
    db = sqlite3.connect(tmp_path / "ledger.db")
    db.executescript(resources.files("penstock.ledger.migrations").joinpath("0001_core.sql").read_text())
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA user_version={version}")
    db.close()
    assert refused(tmp_path / "ledger.db") == code


@pytest.mark.parametrize(
    "content, code",
    [
        (b"", "state.empty"),
        (b"no database, " * 1000, "ledger.read"),
        (b"SQLite format 3\0" + b"x" * 5000, "ledger.read"),
    ],
)
def test_a_file_that_is_no_ledger_is_said_to_be_none(tmp_path: Path, content: bytes, code: str) -> None:
    (tmp_path / "ledger.db").write_bytes(content)
    assert refused(tmp_path / "ledger.db") == code


def test_a_damaged_ledger_is_said_to_be_damaged(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.batch(10, [letter(n) for n in range(50)])
    state.close()
    file = tmp_path / "ledger.db"
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * (file.stat().st_size - 4096))
    assert refused(file) == "ledger.read"


def test_a_ledger_that_is_not_there_or_not_begun_is_empty(tmp_path: Path) -> None:
    assert refused(tmp_path / "ledger.db") == "state.empty"
    sqlite3.connect(tmp_path / "ledger.db").execute("PRAGMA journal_mode=WAL").close()
    assert refused(tmp_path / "ledger.db") == "state.empty"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_ledger_that_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    State(tmp_path).close()
    (tmp_path / "ledger.db").chmod(0)
    with pytest.raises(UsageError) as caught:
        look(tmp_path / "ledger.db", lambda view: view.lanes())
    assert caught.value.code == "state.unreadable"


# -- lanes and what came of their records ---------------------------------------------------------------------------


def test_a_lane_is_shown_with_its_numbers(state: State) -> None:
    state.batch(10, [letter(3), letter(4)], filtered=1)
    state.hold(letter(100))
    lane = lane_of(state.ledger.path)
    assert (lane.name, lane.read, lane.acked, lane.unfinished) == ("orders/in", 10, 10, 1)
    assert lane.nacks == {NackState.OPEN: 2, NackState.HELD: 1}
    assert lane.last is not None


def test_a_lane_that_has_done_nothing_is_shown(state: State) -> None:
    state.ledger.lane("orders", "in")
    lane = lane_of(state.ledger.path)
    assert (lane.read, lane.last, lane.shares, lane.nacks) == (0, None, [], {})


def test_an_account_adds_up(state: State) -> None:
    state.batch(10, [letter(3)], filtered=2, produced=3)
    share = share_of(state.ledger.path)
    assert (share.came, share.produced, share.delivered, share.filtered, share.dead_lettered) == (10, 3, 10, 2, 1)
    assert share.verdict is Verdict.ADDS_UP


def test_an_account_adds_up_in_the_middle_of_a_commit(state: State) -> None:
    """One destination is done with a batch, the other is not: the lane has not counted it yet."""
    state.batch(10, destinations=("a", "b"))
    state.batch(5, destinations=("a", "b"), done=["a"])
    shares = {s.destination: s for s in lane_of(state.ledger.path).shares}
    assert {name: (s.came, s.delivered, s.verdict) for name, s in shares.items()} == {
        "a": (15, 15, Verdict.ADDS_UP),
        "b": (10, 10, Verdict.ADDS_UP),
    }


def test_a_destination_that_came_later_adds_up_without_what_was_before(state: State) -> None:
    state.batch(10)
    state.batch(5, destinations=("out", "new"))
    share = share_of(state.ledger.path, "new")
    assert (share.verdict, share.came, share.read) == (Verdict.JOINED, 5, 15)
    assert share_of(state.ledger.path).verdict is Verdict.ADDS_UP


def test_a_batch_that_was_lost_counts_as_discarded(state: State) -> None:
    s = state.ledger.take_and_settle(state.ledger.lane("orders", "in"), state.take().ranges, (), frontier)[0]
    state.ledger.lost(s, 7, ["out"])
    share = share_of(state.ledger.path)
    assert (share.read, share.discarded, share.verdict) == (7, 7, Verdict.ADDS_UP)


def test_what_the_ledger_no_longer_knows_is_said_not_to_be_known(state: State) -> None:
    state.batch(10)
    state.ledger.keep(state.ledger.lane("orders", "in").key, 5)
    for _ in range(6):
        state.batch(1, destinations=("out", "new"))
    assert share_of(state.ledger.path, "new").verdict is Verdict.UNKNOWN
    assert share_of(state.ledger.path).verdict is Verdict.ADDS_UP


@pytest.mark.parametrize("changed", [1, -1])
def test_an_account_that_does_not_add_up_is_said_to_be_wrong(state: State, changed: int) -> None:
    state.batch(10)
    db = sqlite3.connect(state.ledger.path, isolation_level=None)
    db.execute("UPDATE total SET delivered = delivered + ?", (changed,))
    db.close()
    assert share_of(state.ledger.path).verdict is Verdict.WRONG


# -- batches --------------------------------------------------------------------------------------------------------


def test_unfinished_batches_have_their_attempts_and_the_last_error(state: State) -> None:
    state.batch(10)
    s = state.take()
    state.ledger.failed(s, state.ledger.retry(s), "first")
    state.ledger.retry(s)
    [b] = look(state.ledger.path, lambda view: view.unfinished(1))
    assert (b.batch, b.state, b.records, b.attempts, b.error, b.running) == (2, "open", None, 3, "first", True)


def test_a_prepared_batch_says_who_does_not_have_it(state: State) -> None:
    state.batch(10, destinations=("a", "b"), done=["b"])
    [b] = look(state.ledger.path, lambda view: view.unfinished(1))
    assert (b.state, b.records, b.waits_for) == ("prepared", 10, ("a",))


def test_settled_batches_come_newest_first(state: State) -> None:
    for n in range(1, 5):
        state.batch(n)
    state.take()
    last = look(state.ledger.path, lambda view: view.last_batches(1, 3))
    assert [(b.batch, b.records) for b in last] == [(4, 4), (3, 3), (2, 2)]


def test_what_a_person_gave_up_is_shown(state: State) -> None:
    s = state.batch(10, done=[])
    state.ledger.abandon(s, "out", "orders", 10, frontier)
    [decision] = look(state.ledger.path, lambda view: view.decisions("orders"))
    assert decision.what == "abandon"
    assert decision.detail == {"batch": 1, "destination": "out", "records": 10}
    assert look(state.ledger.path, lambda view: view.decisions("other")) == []


# -- dead letters ---------------------------------------------------------------------------------------------------


def test_dead_letters_come_lane_by_lane_in_record_order(tmp_path: Path) -> None:
    for pipeline in ("b", "a"):
        state = State(tmp_path, pipeline)
        state.batch(10, [letter(5, "out"), letter(4), letter(5, "all")], ("out", "all"))
        state.close()
    letters = look(tmp_path / "ledger.db", lambda view: view.letters(Wanted(), 5))
    found = [(x.pipeline, x.nack.seq, x.nack.destination) for x in letters]
    assert found == [("a", 4, ""), ("a", 5, "all"), ("a", 5, "out"), ("b", 4, ""), ("b", 5, "all")]


@pytest.mark.parametrize(
    "wanted, seqs",
    [
        (Wanted(), [1, 2, 100]),
        (Wanted(pipeline="orders", source="in"), [1, 2, 100]),
        (Wanted(pipeline="other"), []),
        (Wanted(source="other"), []),
        (Wanted(code="x.y"), [2]),
        (Wanted(state=NackState.HELD), [100]),
        (Wanted(state=NackState.OPEN, code="json.invalid"), [1]),
    ],
)
def test_dead_letters_are_found_by_what_they_have(state: State, wanted: Wanted, seqs: list[int]) -> None:
    state.batch(10, [letter(1), letter(2, code="x.y")])
    state.hold(letter(100))
    assert [x.nack.seq for x in look(state.ledger.path, lambda view: view.letters(wanted, 50))] == seqs
    assert sum(look(state.ledger.path, lambda view: view.states(wanted)).values()) == len(seqs)


def test_an_id_is_as_short_as_the_others_allow(state: State) -> None:
    from dataclasses import replace

    s = state.take()
    ids = ["aaaa00000000", "aaaa00010000", "bbbb00000000"]
    nacks = [replace(letter(n).nack(), id=id_) for n, id_ in enumerate(ids)]
    state.ledger.prepare(s, 3, [Prepared("out", "h", "files", {}, {}, 0, kind=Kind.DESTINATION)], nacks)

    def short(*of: str) -> int:
        return look(state.ledger.path, lambda view: view.short(of, 4))

    assert short("bbbb00000000") == 4
    assert short("aaaa00000000") == 8  # the other one counts, shown or not
    assert short() == 4
    assert look(state.ledger.path, lambda view: view.ids("aaaa", 10)) == ids[:2]
    assert look(state.ledger.path, lambda view: view.ids("", 10)) == ids


def test_the_folder_of_a_state_folder_may_have_any_name(tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%20 ü&mode=rwc"
    state = State(odd)
    state.batch(3)
    state.close()
    assert read(odd / "ledger.db") == 3
