"""The state folder: one engine, versions, epochs, zombies."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.pipeline import Pipeline
from tests.support import oracle
from tests.support.harness import SLOW, Case, Ended

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]


@pytest.mark.contract("X6", safeguard="lock")
def test_a_second_engine_on_one_state_folder_is_refused_by_name(make_case: MakeCase) -> None:
    for name, off, code in (("kept", (), 2), ("control", ("lock",), 0)):
        case = make_case(name)
        case.gateway = None  # the real command line, with its exit code
        case.issue(files=1)
        first = make_case(name).start(stop_at="K2")
        assert first.await_point("K2")
        second = case.run(off=off)
        assert second.returncode == code, second.err
        if code == 2:
            assert f"pid {first.process.pid} on" in second.err
        first.kill(group=False)


@pytest.mark.contract("X6", safeguard="fence")
def test_an_engine_that_was_replaced_delivers_nothing_more(make_case: MakeCase) -> None:
    for name, off in (("kept", ()), ("control", ("fence",))):
        case = make_case(name, max_files=3)
        case.issue(files=3)
        old = case.start(stop_at="K1", off=off)
        assert old.await_point("K1")
        (case.state / "lock").unlink()  # the lock is forced
        case.finish()
        assert case.verdict().clean
        old.signal(signal.SIGCONT)
        ended = old.wait()
        if name == "kept":
            assert ended.returncode == 1
            assert "state.fenced" in ended.summary["error"]
            assert case.verdict().clean, case.verdict()
        else:
            assert case.verdict().duplicated or ended.returncode == 0


@pytest.mark.contract("X7", safeguard="version")
@pytest.mark.parametrize("newer", ["folder", "ledger"])
def test_a_state_folder_of_a_newer_version_is_refused_untouched(make_case: MakeCase, newer: str) -> None:
    case = make_case("case")
    case.gateway = None
    case.issue(files=1)
    make_case("case").finish()
    if newer == "folder":
        (case.state / "VERSION").write_text("penstock state 2\n")
    else:
        db = sqlite3.connect(case.state / "ledger.db")
        db.execute("PRAGMA user_version=99")
        db.close()
    before = _content(case.state)
    refused = case.run()
    assert refused.returncode == 2
    assert "state.version" in refused.err
    assert _content(case.state) == before
    assert make_case("case").run(off=("version",)).returncode == 0


@pytest.mark.contract("X7", reason="version 1 is the first: the golden folder is what every later version has to open")
def test_a_state_folder_of_version_1_is_opened_and_goes_on(case: Case) -> None:
    golden = Path(__file__).parents[1] / "data" / "state-v1"
    shutil.copytree(golden, case.state)
    case.issue(files=2)
    case.finish()
    assert case.verdict().clean
    assert case.rows("SELECT batch, state FROM snapshot WHERE lane = 1 AND batch < 3") == [(1, "done"), (2, "done")]


def _content(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "lock"]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.contract("X3", safeguard="epoch")
def test_a_new_state_folder_starts_a_new_life(make_case: MakeCase) -> None:
    """Everything the source has is delivered again, beside what is there: the ledger that knew of it is gone."""
    for name, off, times in (("kept", (), 2), ("control", ("epoch",), 1)):
        case = make_case(name)
        case.issue(files=1, lines=5)
        case.finish(off=off)
        shutil.rmtree(case.state)
        case.issue(files=1, lines=5)
        case.finish(off=off)
        delivered = oracle.delivered(case.out)
        assert len([line for line in delivered if line.startswith("f00000:")]) == 5 * times
        assert len([line for line in delivered if line.startswith("f00001:")]) == 5


@pytest.mark.contract(
    "X3", reason="without the new epoch the hash would repeat; the hash's own tests show that it counts"
)
def test_a_rewind_delivers_everything_again_once(case: Case) -> None:
    case.issue(files=2, lines=5)
    case.finish()
    Pipeline.from_file(case.root / "p.yaml").rewind(state=case.state)
    case.finish()
    case.finish()
    assert sorted(oracle.delivered(case.out)) == sorted(2 * [f"{i}:{'x' * 20}" for i in case.issued])
    assert len(case.rows("SELECT DISTINCT hash FROM delivery")) == 4


@pytest.mark.contract("X5", safeguard="attempt-names")
def test_tasks_of_a_dead_attempt_do_no_harm(make_case: MakeCase) -> None:
    """Only the Python process is killed, while a task is writing; the JVM and the task live on under the next engine. That does
    not try its plan first: it would wait for the dead one's job to end."""
    case, second = _after_a_dead_attempt(make_case, "kept")
    assert second.returncode == 0, second.out + second.err
    assert case.verdict().clean, case.verdict()


def test_without_a_name_of_its_own_an_attempt_meets_the_files_of_a_dead_one(make_case: MakeCase) -> None:
    """The control. Whether they meet depends on which of the two jobs Spark gives the cores to, so there is more than one try."""
    for number in range(8):
        case, second = _after_a_dead_attempt(make_case, f"control-{number}", "attempt-names")
        if second.returncode != 0 or not case.verdict().clean:
            return
    pytest.fail("eight attempts wrote among the files of a dead one, and all of them came out clean")


def _after_a_dead_attempt(make_case: MakeCase, name: str, *off: str) -> tuple[Case, Ended]:
    off = ("rehearse", *off)
    case = make_case(name, max_files=24, processors=SLOW)
    case.issue(files=24, lines=80)
    first = case.start(off=off)
    assert first.await_point("stage")
    until = time.monotonic() + 30
    while time.monotonic() < until and not _writing(case.out):
        time.sleep(0.01)
    first.kill(group=False)
    return case, case.run(off=off)


def _writing(out: Path) -> bool:
    try:
        return any(_size(p) > 0 for p in out.rglob("part-*"))
    except OSError:  # a folder went away while it was looked through
        return False


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
