"""What a person sees: the real command in a terminal of 80 columns and in a pipe, compared with a file in `tests/golden`.

`make golden` writes the files anew. What differs from run to run (folders, times, process ids) is replaced by a word.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

FOLDER = Path(__file__).parents[1] / "golden"
PENSTOCK = Path(sys.executable).with_name("penstock")
COLUMNS, ROWS = 80, 60
PATIENCE = 300.0
CASE = "/tmp/some-case"

_WORDS = (
    (re.compile(r"\[ *(\d+\.\d s|[\d:]+)\]"), "[N s]"),
    (re.compile(r"\b(\d+\.\d s|\d+ min \d\d s)\b"), "N s"),
    (re.compile(r"\bprocess \d+\b|\bpid \d+\b"), "process PID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?( UTC)?"), "TIME"),
    (re.compile(r"\bon \S+, started\b"), "on MACHINE, started"),
    (re.compile(r"\b[\d,]+ records/s\b"), "N records/s"),
    (re.compile(r"\b[0-9a-f]{12,32}\b"), "ID"),
)

# How far it is, every few seconds: which of them are there depends on the machine.
_PROGRESS = re.compile(r"\[N s\] \S+/\S+: ([\d,]+ read|nothing read yet)")


def in_a_pipe(folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
    ended = subprocess.run(
        [str(PENSTOCK), *arguments],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
    )
    return ended.stdout.decode(), ended.returncode


def in_a_terminal(
    folder: Path, arguments: Sequence[str], env: Mapping[str, str], program: str = str(PENSTOCK)
) -> tuple[str, int]:
    """What is on the screen, and has gone out of it at the top, when the command has ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [program, *arguments],
        cwd=folder,
        env={**env, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
    stream = pyte.ByteStream(screen)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            seen = os.read(ours, 65536)
        except OSError:  # the other end is closed: it has ended
            break
        if not seen:
            break
        stream.feed(seen)
    os.close(ours)
    code = process.wait(30)
    above = ["".join(line[x].data for x in range(COLUMNS)) for line in screen.history.top]
    lines = [line.rstrip() for line in (*above, *screen.display)]
    return "\n".join(lines).rstrip() + "\n", code


def compare(name: str, folder: Path, arguments: Sequence[str], said: str, code: int) -> None:
    """Against the golden file of that name, or into it."""
    text = f"$ penstock {shlex.join(arguments)}\n{settled(said, folder)}exit {code}\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("PENSTOCK_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return
    assert file.exists(), f"{file.name} is missing: run `make golden`"
    wanted = file.read_text()
    difference = "\n".join(difflib.unified_diff(wanted.splitlines(), text.splitlines(), lineterm=""))
    assert text == wanted, f"if that is what it should say now, run `make golden`:\n{difference}"


def settled(said: str, folder: Path) -> str:
    """The folder's name is as long as the word for it, so that lines are folded at the same place."""
    assert len(str(folder)) == len(CASE)
    said = said.replace("\r\n", "\n").replace(str(folder), CASE)
    for pattern, word in _WORDS:
        said = pattern.sub(word, said)
    lines = [line for line in said.splitlines() if not _PROGRESS.match(line)]
    return "".join(line + "\n" for line in lines)
