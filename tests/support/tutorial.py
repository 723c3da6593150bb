"""Types a page of the tutorial into a shell, block by block, as a reader would.

    ```sh                          is typed; it has to succeed, or end as `<!-- exit: 1 -->` above it says
    ```text                        is what the block before it shows: these lines, in this order. `…` stands for any lines
    <!-- file: NAME -->            the block below is put into this file
    <!-- change: NAME -->          the diff below is made in this file

`ID` in a command is the first id that was shown before it. Numbers that differ from run to run (seconds, rates, ids, times) may
differ.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.pages import Block, blocks

TIMEOUT = 400
_VARIES = [
    (re.compile(r"\b[0-9.]+ ?s\b"), "# s"),
    (re.compile(r" \([0-9]:[0-9]{2}:[0-9]{2}\)"), ""),  # what pytest adds after a minute
    (re.compile(r",? *[0-9,.]+ records/s"), ""),  # shown of fast runs alone
    (re.compile(r"\b[0-9a-f]{8,}\b"), "#"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[ T][0-9:.]+Z?"), "#"),
    (re.compile(r"  +"), " "),
]


class Reader:
    """Someone who follows a page in an empty folder. `typed` counts what was run."""

    def __init__(self, folder: Path) -> None:
        self._home = folder
        self._folder = folder
        self._shown = ""
        self.typed = 0

    def follow(self, page: Path) -> None:
        for block in blocks(page):
            what, _, value = block.note.partition(": ")
            if what == "file":
                (self._folder / value).write_text(block.text)
            elif what == "change":
                self._change(block, self._folder / value)
            elif block.kind == "sh":
                self._type(block, int(value) if what == "exit" else 0)
            elif block.kind == "text":
                missing = next_missing(block.text, self._shown)
                assert missing is None, f"{block.where}: {missing!r} is not shown by\n{self._shown}"

    def _type(self, block: Block, expected: int) -> None:
        """Into a file, not a pipe: what a killed engine leaves behind may hold a pipe open."""
        output, where = self._home / ".output", self._home / ".folder"
        shown_id = re.search(r"\b[0-9a-f]{12,}\b", self._shown)
        text = re.sub(r"\bID\b", shown_id[0] if shown_id else "ID", block.text)
        script = f"trap 'pwd > {where}' EXIT\nset -e\n{text}"
        with output.open("w") as to:
            ended = subprocess.run(
                ["bash", "-c", script],
                cwd=self._folder,
                env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=to,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
            )
        self._shown = output.read_text()
        self.typed += 1
        assert ended.returncode == expected, f"{block.where} ended with {ended.returncode}:\n{self._shown}"
        self._folder = Path(where.read_text().strip())

    def _change(self, block: Block, file: Path) -> None:
        before, after = changed(block.text)
        text = file.read_text()
        assert text.count(before) == 1, f"{block.where}: found {text.count(before)} times in {file.name}:\n{before}"
        file.write_text(text.replace(before, after))


def changed(diff: str) -> tuple[str, str]:
    """The lines that a diff finds, and those that it leaves."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    return before, "".join(line[1:] for line in lines if not line.startswith("-"))


def next_missing(wanted: str, shown: str) -> str | None:
    """The first line that is wanted and does not come, in this order."""
    there = iter(_lines(shown))
    for line in _lines(wanted):
        if line not in ("…", "[…]") and line not in there:
            return line
    return None


def _lines(text: str) -> list[str]:
    for pattern, mark in _VARIES:
        text = pattern.sub(mark, text)
    return [line.strip() for line in text.splitlines() if line.strip()]
