"""Writing to the terminal: the one way for every command. What a command was asked for goes to stdout, progress and errors to
stderr. Nothing that is written can drive the terminal, fail for want of a character, or stop a run whose reader has gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

import click

from penstock.errors import PenstockError

_LABEL = re.compile(r" *(at|why|do): ")
_WRITING = threading.Lock()  # a line is written whole, whoever else writes
_ASCII = str.maketrans({"…": "...", "–": "-", "→": "->", "·": "-", "\N{REPLACEMENT CHARACTER}": "?"})


def colour(text: str, name: str, stream: TextIO) -> str:
    """`text` in a colour of click's, where `stream` is a terminal that wants any (https://no-color.org)."""
    wanted = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, fg=name) if wanted else text


def out(text: str) -> None:
    """What a command was asked for, for people."""
    write(sys.stdout, text)


def out_json(value: Any) -> None:
    """The same for programs: one line. What a terminal would act on, or can't show, is escaped: nothing is changed."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not text.isprintable() or encodable(text, sys.stdout.encoding) != text:
        text = "".join(c if c.isprintable() and c.isascii() else json.dumps(c)[1:-1] for c in text)
    write(sys.stdout, text)


def err(text: str) -> None:
    """Progress and errors. A terminal that is gone, or a log on a full disk, is no reason to stop moving records either."""
    with suppress(OSError):
        write(sys.stderr, folded(text, shutil.get_terminal_size().columns) if sys.stderr.isatty() else text)


def folded(text: str, width: int) -> str:
    """Long lines broken between words, and set in below what they belong to. A line of a file with a caret below it is cut."""
    lines = text.split("\n")
    shown: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if len(line) <= width:
            shown.append(line)
        elif following.strip() == "^" and len(following) < width:
            shown.append(line[: width - 1] + "…")
        else:
            label = _LABEL.match(line)
            indent = " " * (len(label[0]) if label else len(line) - len(line.lstrip()) + 2)
            shown += textwrap.wrap(
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(shown)


def columns(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Rows under each other, each column as wide as its widest. On a terminal a line is cut at its width."""
    shown = [[printable(cell).replace("\n", " ") for cell in row] for row in ([header, *rows] if header else rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*shown, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in shown]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(line if width is None or len(line) <= width else line[: width - 1] + "…" for line in lines)


def print_error(error: PenstockError) -> None:
    err(str(error))


def printable(text: str) -> str:
    """Nothing from a file name or a record may drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def encodable(text: str, encoding: str | None) -> str:
    """`text` in characters that a stream of this encoding has: our own signs have stand-ins, of others `?` is left."""
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    return text


def write(stream: TextIO, text: str) -> None:
    """One line or several, whole. A reader that has gone away (`… | head`) is no reason to stop moving records."""
    try:
        with _WRITING:
            stream.write(encodable(printable(text), stream.encoding) + "\n")
            stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
