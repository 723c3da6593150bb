"""`penstock pipelines` as people and programs use it, and how it is told whether an engine is running: without touching the lock."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.shown import ago, when
from penstock.cli.state import engine
from penstock.engine.frontier import frontier
from penstock.engine.lock import StateFolder
from tests.support.states import State, bytes_of, letter, penstock, terminal

HOLDER = """
import sys
from pathlib import Path
from tests.support.states import State
state = State(Path(sys.argv[1]))
state.take()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / ".penstock")
    yield made
    made.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An engine's lock and ledger in a process of their own."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / ".penstock")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield child
        child.kill()


def said(folder: Path, *arguments: str) -> str:
    ended = penstock(folder, "pipelines", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# -- list -----------------------------------------------------------------------------------------------------------


def test_a_list_has_a_line_for_each_source(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(3)], filtered=2)
    state.hold(letter(100))
    state.source = "other"
    state.batch(1234, destinations=("out", "eu"))
    ended = penstock(tmp_path, "pipelines", "list")
    assert ended.returncode == 0
    header, *lines = [line.split()[:7] for line in ended.stdout.splitlines()]
    assert header == ["PIPELINE/SOURCE", "READ", "ACKED", "DELIVERED", "DEAD", "HELD", "UNFINISHED"]
    assert lines == [
        ["orders/in", "10", "10", "7", "1", "1", "1"],
        ["orders/other", "1,234", "1,234", "2,468", "0", "0", "0"],
    ]
    assert "DELIVERED is the sum over the destinations." in ended.stderr
    assert "penstock pipelines show ID" in ended.stderr


def test_programs_get_a_line_for_each_source(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(3)], filtered=2)
    found = json.loads(said(tmp_path, "list", "--json"))
    assert found.pop("last") > 0
    assert found.pop("engine")["pid"] == os.getpid()
    assert found == {
        "pipeline": "orders",
        "source": "in",
        "read": 10,
        "acked": 10,
        "destinations": {
            "out": {
                "read": 10,
                "produced": 0,
                "delivered": 7,
                "filtered": 2,
                "dead_lettered": 1,
                "discarded": 0,
                "account": "adds-up",
            }
        },
        "dead_letters": {"open": 1, "held": 0, "replayed": 0, "dropped": 0},
        "unfinished": 0,
        "error": None,
        "status": None,
        "stopped_by": None,
    }


def test_a_ledger_without_a_pipeline_is_no_error(state: State, tmp_path: Path) -> None:
    ended = penstock(tmp_path, "pipelines", "list")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No pipeline has read anything yet" in ended.stderr
    assert state.path.exists()


def test_a_list_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    state = State(tmp_path / ".penstock", "a-pipeline-with-a-very-long-name", "and-a-source-with-one")
    state.batch(123_456_789_012, [letter(n) for n in range(20)])
    state.close()
    lines = terminal(tmp_path, "pipelines", "list").split("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert "123.5G" in lines[1]
    assert "ago" in lines[1]
    assert "123,456,789,012" in said(tmp_path, "list")  # a pipe has no width


# -- show -----------------------------------------------------------------------------------------------------------


def test_the_account_of_each_destination_is_written_out(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(3), letter(4, "eu")], ("out", "eu"), filtered=2, produced=1)
    text = said(tmp_path, "show", "orders")
    assert "source in: 10 read, 10 acked" in text
    assert "  → eu: 10 read + 1 produced = 7 delivered + 2 filtered + 2 dead-lettered\n" in text
    assert "  → out: 10 read + 1 produced = 8 delivered + 2 filtered + 1 dead-lettered\n" in text
    assert "  it adds up\n" in text
    assert "penstock dlq list --pipeline orders --source in" in text
    assert "unfinished batches: none" in text
    assert "last batches" in text


def test_an_account_that_does_not_add_up_says_so(state: State, tmp_path: Path) -> None:
    state.batch(10)
    db = sqlite3.connect(state.ledger.path, isolation_level=None)
    db.execute("UPDATE total SET delivered = 9")
    db.close()
    text = said(tmp_path, "show", "orders")
    assert "10 read ≠ 9 delivered + 0 filtered" in text
    assert "it does NOT add up: 1 too few" in text
    [source] = json.loads(said(tmp_path, "show", "orders", "--json"))["sources"]
    assert source["destinations"]["out"]["account"] == "wrong"


def test_a_destination_that_came_later_is_explained(state: State, tmp_path: Path) -> None:
    state.batch(10)
    state.batch(5, destinations=("new", "out"))
    text = said(tmp_path, "show", "orders")
    assert "→ new: 5 read = 5 delivered" in text
    assert "new: it adds up; 10 more were read while it was not a destination" in text


def test_what_waits_and_what_was_given_up_is_shown(state: State, tmp_path: Path) -> None:
    given_up = state.batch(7, done=[])
    state.ledger.abandon(given_up, "out", "orders", 7, frontier)
    failing = state.take()
    state.ledger.failed(failing, state.ledger.retry(failing), "\x1b[31mthe disk is full\n  do: free some")
    state.batch(5, destinations=("out", "eu"), done=["eu"])
    held = letter(1000, error="three is not wanted")
    state.hold(held)
    text = said(tmp_path, "show", "orders")
    assert "\x1b" not in text
    assert "3 unfinished batches" in text
    assert "the disk is full" in text
    assert "do: free some" not in text
    assert "not yet at out" in text
    assert "held at decode: three is not wanted" in text
    assert f"penstock dlq show {held.id[:12]}" in text
    assert "abandoned" in text
    assert "batch 1 at out, 7 records discarded" in text
    found = json.loads(said(tmp_path, "show", "orders", "--json"))
    [source] = found["sources"]
    assert [b["batch"] for b in source["unfinished"]] == [2, 3, 4]
    assert source["unfinished"][0]["error"].startswith("\x1b[31mthe disk")
    assert source["unfinished"][1]["waits_for"] == ["out"]
    assert source["held"][0]["id"] == held.id
    assert [(d["what"], d["records"]) for d in found["decisions"]] == [("abandon", 7)]


def test_a_pipeline_fits_a_terminal_of_80_columns(state: State, tmp_path: Path) -> None:
    state.batch(9_999_999, [letter(3)], filtered=1_234_567)
    s = state.take()
    state.ledger.failed(s, state.ledger.retry(s), "a long error " * 50)
    lines = terminal(tmp_path, "pipelines", "show", "orders").splitlines()
    assert max(map(len, lines)) <= 80


def test_an_unknown_pipeline_is_said_with_the_nearest(state: State, tmp_path: Path) -> None:
    state.batch(1)
    for typed, hint in (("ordrs", "did you mean 'orders'?"), ("zzz", "there are: orders")):
        ended = penstock(tmp_path, "pipelines", "show", typed)
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert "[state.unknown-pipeline]" in ended.stderr
        assert hint in ended.stderr


# -- is an engine running? ------------------------------------------------------------------------------------------


def test_a_running_engine_is_seen_and_a_killed_one_is_not(tmp_path: Path, running: subprocess.Popen[str]) -> None:
    before = bytes_of(tmp_path)
    ended = penstock(tmp_path, "pipelines", "list")
    assert f"An engine is running: pid {running.pid}, since " in ended.stderr
    assert "in work" in said(tmp_path, "show", "orders")
    running.kill()
    running.wait()
    assert "No engine is running" in penstock(tmp_path, "pipelines", "list").stderr
    text = said(tmp_path, "show", "orders")
    assert "its process was killed" in text
    assert "the next start goes on with it" in text
    assert bytes_of(tmp_path) == before


def test_a_process_that_got_the_number_of_a_dead_engine_is_no_engine(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.open()
    assert engine(tmp_path).running is True
    folder.close()
    assert str(os.getpid()) in (tmp_path / "lock").read_text()
    assert engine(tmp_path).running is False


@pytest.mark.parametrize(
    "text, running",
    [
        ("", None),
        ("{", None),
        ("[]", None),
        ('{"pid": "x", "machine": "", "started": ""}', None),
        ('{"pid": 1, "machine": "elsewhere", "started": "yesterday"}', None),
    ],
)
def test_what_the_lock_does_not_tell_is_said_not_to_be_known(tmp_path: Path, text: str, running: bool | None) -> None:
    (tmp_path / "lock").write_text(text)
    found = engine(tmp_path)
    assert found.running is running
    assert "not known" in str(found)


def test_a_folder_without_a_lock_has_no_engine(tmp_path: Path) -> None:
    assert engine(tmp_path).running is False


def test_an_engine_that_starts_while_somebody_looks_does_not_notice(tmp_path: Path) -> None:
    stop = threading.Event()
    seen = set()

    def look() -> None:
        while not stop.is_set():
            seen.add(engine(tmp_path).running)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(200):
            folder = StateFolder(tmp_path)
            folder.open()  # raises where the lock is taken
            folder.close()
    finally:
        stop.set()
        looker.join()
    assert seen <= {True, False, None}
    assert seen


# -- small parts ----------------------------------------------------------------------------------------------------


def test_times_are_shown_in_utc() -> None:
    assert when(1_700_000_000_999) == "2023-11-14T22:13:20Z"
    assert when(None) == "never"
    assert when(10**18) == f"{10**18} ms"
    assert ago(None) == "never"
    assert ago(0).endswith(" d ago")
