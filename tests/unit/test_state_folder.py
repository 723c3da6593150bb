"""The state folder: one engine at a time, free as soon as its process is gone, and never opened by an older Penstock."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from penstock.engine.lock import STATE_VERSION, StateFolder
from penstock.errors import UsageError
from penstock.testing import faults

HOLDER = """
import sys
from pathlib import Path
from penstock.engine.lock import StateFolder
folder = StateFolder(Path(sys.argv[1]))
folder.open()
print("open", flush=True)
sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """A child that has the folder open until its stdin closes or it is killed."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    return child


def refused(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        StateFolder(path).open()
    return caught.value


def listing(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


def test_a_new_folder_is_made_with_its_parents_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "deep" / "state")
    folder.open()
    assert (folder.path / "VERSION").read_text() == f"penstock state {STATE_VERSION}\n"
    assert folder.path.stat().st_mode & 0o077 == 0
    assert folder.ledger == folder.path / "ledger.db"
    folder.close()


@pytest.mark.contract("X6", safeguard="lock")
def test_a_second_engine_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.open()
    error = refused(folder.path)
    assert error.code == "state.locked"
    found = re.fullmatch(r"pid (\d+) on (.+), started (.+)", error.why)
    assert found is not None
    assert (int(found[1]), found[2]) == (os.getpid(), socket.gethostname())
    assert datetime.fromisoformat(found[3]).tzinfo is not None
    assert refused(folder.path).why == error.why  # being refused changes nothing
    folder.close()


@pytest.mark.contract("X6", safeguard="lock")
def test_without_the_lock_two_engines_have_one_folder(tmp_path: Path) -> None:
    folder, second = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "state")
    folder.open()
    faults.install(off=["lock"])
    second.open()
    second.close()
    folder.close()


def test_a_closed_folder_may_be_opened_again_also_after_closing_twice(tmp_path: Path) -> None:
    for _ in range(3):
        folder = StateFolder(tmp_path / "state")
        folder.open()
        folder.close()
        folder.close()


@pytest.mark.contract("X6", safeguard="lock")
def test_the_lock_is_free_as_soon_as_its_process_was_killed(tmp_path: Path) -> None:
    child = hold(tmp_path / "state")
    try:
        assert f"pid {child.pid} on" in refused(tmp_path / "state").why
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    folder = StateFolder(tmp_path / "state")
    folder.open()
    assert f"pid {os.getpid()} on" in refused(folder.path).why
    folder.close()


def test_a_lock_file_that_says_nothing_does_not_hide_that_the_folder_is_in_use(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.open()
    (folder.path / "lock").write_text("")
    assert refused(folder.path).code == "state.locked"
    folder.close()


@pytest.mark.contract("X7", safeguard="version")
@pytest.mark.parametrize(
    "version", [f"penstock state {STATE_VERSION + 1}\n", "penstock state 1.5\n", "", "something else\n"]
)
def test_a_folder_of_a_newer_or_unknown_version_is_refused_untouched(tmp_path: Path, version: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "VERSION").write_text(version)
    before = listing(state)
    assert refused(state).code == "state.version"
    assert listing(state) == before
    faults.install(off=["version"])
    folder = StateFolder(state)
    folder.open()
    folder.close()
    assert listing(state) != before


@pytest.mark.parametrize("below", ["state", "deep/er/state"])
def test_a_path_below_a_regular_file_is_refused_by_name(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("here")
    error = refused(tmp_path / "file" / below)
    assert error.code == "state.unusable"
    assert str(tmp_path / "file") in error.what
    assert (tmp_path / "file").read_text() == "here"


def test_a_path_that_is_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("here")
    assert refused(tmp_path / "state").code == "state.unusable"
    assert (tmp_path / "state").read_text() == "here"


@pytest.mark.parametrize("name", ["VERSION", "lock", ".VERSION.tmp"])
def test_a_folder_whose_files_can_not_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "state" / name).mkdir(parents=True)
    assert refused(tmp_path / "state").code == "state.unusable"


def test_a_folder_that_was_refused_is_not_left_locked(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    in_the_way = folder.path / ".VERSION.tmp"
    in_the_way.mkdir(parents=True)
    with pytest.raises(UsageError):
        folder.open()
    in_the_way.rmdir()
    second = StateFolder(folder.path)
    second.open()
    second.close()


def test_a_version_that_is_no_text_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "VERSION").write_bytes(b"\xff\xfe")
    assert refused(state).code == "state.version"
