"""`penstock log` beside a process that writes, rolls and compacts the same log all the time: nobody notices anybody."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.log import Offsets, Reader, Writer
from penstock_sdk.record import Record
from tests.support.states import penstock

pytestmark = pytest.mark.thorough  # left out of the fast loop

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
NAMESPACES = 3

# Appends, acks and compacts until its stdin is closed. Says so when the first segments were rolled and compacted.
WRITER = f"""
import select, sys
from pathlib import Path
from penstock.log import Compacted, LogLocked, Offsets, Writer, compact
from penstock_sdk.record import Record

folder, n, told = Path(sys.argv[1]), 0, False
with Writer(folder, segment_bytes=4000) as writer, Offsets(folder, flush_interval=0.01) as offsets:
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(5):
            writer.append([Record({{"n": n}}, namespace=f"n{{n % {NAMESPACES}}}")])
            n += 1
        writer.append([Record({{"n": n + i}}, namespace=f"n{{n % {NAMESPACES}}}") for i in range(10)])
        n += 10
        if writer.commit() % 300 == 0:
            offsets.ack("own", range(n - 150))
            offsets.flush()
            try:
                done = compact(folder)
            except LogLocked:  # the command is at it
                done = Compacted()
            if done.removed and not told:
                print("compacted", flush=True)
                told = True
print(n, flush=True)
"""


class Running:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline() == "compacted\n"

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def stop(self) -> int:
        """How many it has written."""
        said, _ = self._child.communicate(timeout=60)
        assert self._child.returncode == 0
        return int(said)

    def kill(self) -> None:
        if self.alive:
            self._child.kill()
            self._child.wait()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path / ".penstock" / "logs" / "busy")
    yield made
    made.kill()


def _check(lines: list[dict[str, object]]) -> None:
    """Every record is what was appended at its offset, in order, none twice."""
    found = [line["offset"] for line in lines]
    assert found == sorted(set(found))  # type: ignore[type-var]
    for line in lines:
        assert "lost" not in line
        assert line["after"] == {"value": {"n": line["offset"]}}


def test_looking_works_while_the_log_is_written_rolled_and_compacted(tmp_path: Path, running: Running) -> None:
    ends = []
    for _ in range(4):
        ended = penstock(tmp_path, "log", "show", "busy", "--from", "0", "--json")
        assert ended.returncode == 0, ended.stderr
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        _check(lines)
        assert {line["namespace"] for line in lines} == {f"n{i}" for i in range(NAMESPACES)}
        ends.append(lines[-1]["offset"])
        for arguments in (["list", "--json"], ["offsets", "busy", "--json"], ["verify", "--json"], ["show", "busy"]):
            ended = penstock(tmp_path, "log", *arguments)
            assert ended.returncode == 0, ended.stderr
    assert ends == sorted(set(ends)), "the writer has gone on meanwhile"
    assert running.alive
    total = running.stop()
    with Reader(running.folder) as reader:
        assert reader.end == total


def test_changes_beside_a_writer_are_made_or_refused(tmp_path: Path, running: Running) -> None:
    ended = penstock(tmp_path, "log", "repair", "busy")
    assert ended.returncode == 2
    assert "[log.locked]" in ended.stderr
    assert "is being written by another process" in ended.stderr
    with Offsets(running.folder) as offsets:
        offsets.register("gone")
    assert "forgot gone" in penstock(tmp_path, "log", "forget", "busy", "gone").stdout
    ended = penstock(tmp_path, "log", "compact", "busy")
    # The writer compacts as well, and only one may do so at a time.
    assert ended.returncode == 0 or "is being compacted by another process" in ended.stderr
    assert running.alive
    running.stop()
    assert "busy: good." in penstock(tmp_path, "log", "verify").stdout


# -- follow -----------------------------------------------------------------------------------------------------------


@contextmanager
def _following(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [PENSTOCK, "log", "show", *arguments, "--follow"]
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background are deaf to Ctrl-C
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_follow_gives_every_record_once_over_segments_and_compaction(tmp_path: Path, running: Running) -> None:
    with Reader(running.folder) as reader:
        start = reader.end
        before = reader.bases()
    with Offsets(running.folder) as offsets:
        offsets.register("hold", start)  # else compaction may take away what was not shown yet, and rightly so
    with _following(tmp_path, "busy", "--from", str(start), "--json") as child:
        lines = [json.loads(_line(child)) for _ in range(3000)]
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)  # what it was writing just then is read, or it could not end
        assert child.returncode == 0
    _check(lines)
    assert [line["offset"] for line in lines] == list(range(start, start + 3000))
    assert running.alive
    with Reader(running.folder) as reader:
        assert len([base for base in reader.bases() if base > max(before)]) > 3, "segments were rolled meanwhile"


@pytest.mark.parametrize("more", [[], ["--full"], ["--json"]])
def test_follow_shows_what_is_appended_at_once_and_ends_with_ctrl_c(tmp_path: Path, more: list[str]) -> None:
    with Writer(tmp_path / "log") as writer:
        writer.append([Record(b"first")])
        writer.commit()
        with _following(tmp_path, "./log", *more) as child:
            for text in ("first", "second", "third"):
                if text != "first":
                    writer.append([Record(text.encode())])
                    writer.commit()
                while text not in _line(child):
                    assert child.poll() is None
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")


def test_follow_ends_at_to(tmp_path: Path) -> None:
    with Writer(tmp_path / "log") as writer:
        writer.append([Record(b"one")])
        writer.commit()
        with _following(tmp_path, "./log", "--to", "2", "--json") as child:
            assert json.loads(_line(child))["offset"] == 0
            for text in (b"two", b"three", b"four"):
                writer.append([Record(text)])
            writer.commit()
            said, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert [json.loads(line)["offset"] for line in said.splitlines()] == [1, 2]


def test_follow_ends_when_nobody_listens_even_if_nothing_is_appended(tmp_path: Path) -> None:
    with Writer(tmp_path / "log") as writer:
        writer.append([Record(b"one")])
        writer.commit()
        with _following(tmp_path, "./log") as child:
            assert "OFFSET" in _line(child)
            assert child.stdout is not None
            child.stdout.close()
            assert child.wait(timeout=60) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_looking_needs_no_folder_that_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with Writer(folder) as writer:
        writer.append([Record(b"one")])
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    try:
        for command in ("show", "offsets", "verify"):
            assert penstock(tmp_path, "log", command, "./log").returncode == 0
        for command in ("repair", "compact"):
            ended = penstock(tmp_path, "log", command, "./log")
            assert ended.returncode == 2
            assert re.search(r"\[log\.un(readable|writable)\]", ended.stderr)
    finally:
        folder.chmod(0o700)
