"""What people are shown of what connectors log: no detail, nothing that drives a terminal, and never more than can be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from penstock.cli.chatter import LINES, LONGEST, PAUSE, SAME, Chatter, plain
from penstock.cli.face import Json
from penstock.cli.lines import Lines
from tests.unit.test_live import on_terminal


def test_a_line_names_its_source_and_level() -> None:
    assert Chatter().heard("p/in", "WARN", "slow", 0.0) == "p/in: warn: slow"


@pytest.mark.parametrize("level", ["debug", "trace", "DEBUG"])
def test_detail_is_not_for_people_and_not_counted(level: str) -> None:
    chatter = Chatter()
    assert chatter.heard("p/in", level, "x", 0.0) == ""
    assert chatter.left_out() == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("a\tb\x00c\u202ed\x9b2J", "a bcd2J"),
        ("first\n[ 1.0 s] p/in: done\r\n\n", "first\n    [ 1.0 s] p/in: done"),
        (" \n \x1b[2J", ""),
        ("x" * (LONGEST + 7), "x" * LONGEST + " … (7 characters more)"),
    ],
)
def test_nothing_in_a_text_drives_the_terminal_or_looks_like_a_line_of_ours(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_the_same_text_is_shown_a_few_times_then_once_a_second() -> None:
    chatter = Chatter()
    shown = [now for now in (n / 100 for n in range(1000)) if chatter.heard("p/in", "info", "again", now)]
    assert len(shown) in range(SAME + 8, SAME + 11)
    assert chatter.left_out(PAUSE - 1) == []
    assert chatter.left_out() == [f"p/in: {1000 - len(shown)} more lines of its log not shown; --json has them all"]
    assert chatter.left_out() == []
    assert chatter.heard("p/in", "info", "again", 100.0) != ""  # it has been quiet


def test_texts_that_differ_are_limited_too_and_sources_do_not_share_the_room() -> None:
    chatter = Chatter()
    shown = [n for n in range(10_000) if chatter.heard("p/in", "info", f"record {n}", n / 10_000)]
    assert len(shown) in range(LINES, LINES + 3)
    assert chatter.heard("p/other", "info", "hello", 1.0) == "p/other: info: hello"


def test_a_warning_is_seen_among_any_number_of_other_lines() -> None:
    chatter = Chatter()
    for n in range(1000):
        chatter.heard("p/in", "info", f"{n}", 0.0)
    assert chatter.heard("p/in", "error", "the disk is full", 0.0) == "p/in: error: the disk is full"


def test_how_many_were_left_out_is_said_now_and_then() -> None:
    chatter = Chatter()
    for _ in range(SAME + 1):
        chatter.heard("p/in", "info", "x", 10.0)
    assert chatter.left_out(10.0 + PAUSE / 2) == []
    assert chatter.left_out(10.0 + PAUSE) == ["p/in: 1 more line of its log not shown; --json has them all"]


# -- in a pipe, as JSON, on a terminal ------------------------------------------------------------------------------


def test_a_pipe_gets_the_lines_and_at_the_end_what_was_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    face = Lines()
    for n in range(500):
        face.event("log", "p", "in", {"level": "info" if n % 2 else "debug", "text": "\x1b[1mbusy\x1b[0m"})
    face.say_left_out()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 10
    assert lines[0].endswith("] p/in: info: busy")
    left = 250 - len(lines) + 1
    assert lines[-1].endswith(f"] p/in: {left} more lines of its log not shown; --json has them all")


def test_json_has_every_line_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    face = Json()
    details = {"level": "debug", "text": "\x1b[1mbusy\nmore"}
    for _ in range(100):
        face.event("log", "p", "in", details)
    face.say_left_out()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 100
    assert all(line.isprintable() for line in lines)
    assert json.loads(lines[-1]) == {"event": "log", "pipeline": "p", "source": "in", **details}


CHILD = """
from penstock.cli.face import shown

with shown() as face:
    face.event("log", "p", "in", {"level": "warn", "text": "first\\x1b[2J\\nsecond"})
    face.event("log", "p", "in", {"level": "debug", "text": "detail"})
    for n in range(5000):
        face.event("log", "p", "in", {"level": "info", "text": f"record {n}"})
"""


def test_a_terminal_is_not_flooded(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    code, written = on_terminal([sys.executable, str(script)], tmp_path)
    assert code == 0
    assert "p/in: warn: first\r\n    second\r\n" in written
    assert "detail" not in written
    shown = written.count("p/in: info: record ")
    assert 0 < shown < 200
    assert f"p/in: {5000 - shown:,} more lines of its log not shown" in written
