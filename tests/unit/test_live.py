"""The table of a run on a terminal: its lines from views made by hand, and the real thing in a pseudo-terminal, without Spark."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from penstock.cli.frame import Line, Moment, Screen, frame
from penstock.cli.progress import Rates
from penstock.engine.view import Doing, LaneView, PipelineView, View
from penstock.native import Behind


def lane(source: str = "in", **given: Any) -> LaneView:
    made = LaneView(
        source,
        "running",
        Doing("processing batch 3 (1.2 MB)", 6.0),
        12_000,
        11_000,
        {"all": 11_200, "europe": 300},
        {"all": 0, "europe": 10_900},
        {"all": 3, "europe": 2},
        Behind(files=12, bytes=3_100_000),
    )
    return replace(made, **given)


def moment(*pipelines: PipelineView, what: str = "running") -> Moment:
    found = View(Doing(what, 2.0), pipelines)
    return Moment(found, 10.0, 10.0, Rates(), lambda _, each: max(each.dead_lettered.values()))


def texts(m: Moment, width: int = 79, height: int = 23, encoding: str = "utf-8") -> list[str]:
    lines = frame(m, Screen(width, height, encoding))
    assert len(lines) <= height
    assert all(cell_len(line.text) <= width and "\n" not in line.text for line in lines)
    return [line.text for line in lines]


def test_time_passes_before_there_is_anything_to_show() -> None:
    assert texts(moment(what="starting Spark")) == ["10.0 s  starting Spark … 8 s"]


def test_every_connector_has_a_row_and_every_source_says_what_it_does() -> None:
    assert texts(moment(PipelineView("orders", (lane(),)))) == [
        "10.0 s  running (Ctrl-C stops)",
        "              records  records/s            waiting    acked  filtered  dead",
        "orders/in      12,000             12 files (3.1 MB)   11,000               3",
        "  → all        11,200                                                      3",
        "  → europe        300                                           10,900     2",
        "  processing batch 3 (1.2 MB), 4 s",
    ]


def test_what_is_not_known_is_a_dash_and_what_is_zero_is_nothing() -> None:
    shown = texts(moment(PipelineView("p", (lane(behind=None, dead_lettered={"all": 0}, filtered={}),))))
    assert shown[2].split() == ["p/in", "12,000", "–", "11,000"]
    assert "filtered" not in shown[1]
    assert texts(moment(PipelineView("p", (lane(behind=Behind(files=0, bytes=0)),))))[2].split()[2] == "0"


@pytest.mark.parametrize("width", range(1, 100))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    odd = PipelineView("ordersöverwhelming-名前が長い", (lane("ein-langer-name"), lane("b", status="degraded")))
    shown = texts(moment(odd), width)
    if width >= 50:
        assert "12,000" in shown[2]
        assert "processing batch 3" in "".join(shown)


@pytest.mark.parametrize("height", range(1, 40))
def test_no_more_lines_than_the_terminal_has(height: int) -> None:
    many = [PipelineView(f"p{i}", (lane(),)) for i in range(8)]
    shown = texts(moment(*many), height=height)
    for i in range(8):
        named = any(line.startswith(f"p{i}/in") for line in shown)
        assert named or height < 10


def test_of_a_hundred_the_failed_and_the_busy_are_shown_and_the_others_counted() -> None:
    waits = Doing("waiting for input", 0.0)
    lanes = [lane(doing=waits) for _ in range(100)]
    lanes[70] = lane()
    lanes[80] = lane(status="recovering", doing=Doing("trying again in 5 s (try 2)", 9.0))
    lanes[90] = lane(status="degraded")
    shown = texts(moment(*(PipelineView(f"p{i}", (each,)) for i, each in enumerate(lanes))), height=10)
    assert [line.split("/")[0] for line in shown[2:-1]] == ["p0", "p1", "p2", "p3", "p70", "p80", "p90"]
    assert "processing batch" in shown[6]
    assert shown[8].endswith("degraded")
    assert shown[-1] == "and 93 more: 93 waiting for input"


def test_a_terminal_without_our_signs_gets_stand_ins() -> None:
    shown = texts(moment(PipelineView("ü" * 90, (lane(behind=None),))), encoding="ascii")
    assert "".join(shown).isascii()
    assert shown[2].startswith("??????")
    assert shown[3].startswith("  -> all")


def test_an_id_can_not_drive_the_terminal() -> None:
    shown = texts(moment(PipelineView("\x1b[31mred\n[bold]", (lane("\x9b2J"),))))
    assert all(line.isprintable() for line in shown)
    assert "[bold]" in "".join(shown)


def test_a_failure_is_red_and_also_said() -> None:
    lines = frame(moment(PipelineView("p", (lane(status="degraded"),))), Screen(79, 23))
    assert Line("  degraded", "red") in lines


# -- in a terminal --------------------------------------------------------------------------------------------------

CHILD = """
import logging, sys, time
from penstock.cli.face import shown
from penstock.engine.stop import StopSignal
from penstock.engine.view import Doing, LaneView, PipelineView, View
from penstock.secrets import Secrets

class Engine:
    secrets, stop, lanes, asked = Secrets(), StopSignal(), (), 0
    def view(self):
        self.asked += bool(self.lanes)
        return View(Doing("running" if self.lanes else "starting Spark", 0.0), self.lanes)

def until(condition):
    while not condition():
        time.sleep(0.01)

def main():
  engine = Engine()
  with shown() as face:
      face.alone = False
      face.started(engine)
      if "wait" in sys.argv:
          print("READY", file=sys.stderr, flush=True)
          until(lambda: engine.stop.forced)
      face.event("recovery", "p", "in", {"batch": 2, "state": "open", "action": "run-again"})
      face.event("batch", "p", "in", {"batch": 2, "dead_lettered": 0})
      logging.getLogger("penstock.log").info("[bold]a record[/bold] " + "x" * 100 + "\\x1b[2J")
      lane = LaneView("in", "running", Doing("processing batch 3 (1.2 MB)", time.monotonic()), 7, 7, {"out": 7})
      engine.lanes = (PipelineView("p", (lane,)),)
      until(lambda: engine.asked)
      if "fail" in sys.argv:
          raise SystemExit("failed")
  print("the end", file=sys.stderr)

try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
"""


def in_terminal(tmp_path: Path, *arguments: str, press: str = "", **environment: str) -> tuple[int, str]:
    """Runs CHILD on a terminal."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return on_terminal([sys.executable, str(script), *arguments], tmp_path, press, **environment)


def on_terminal(command: list[str], folder: Path, press: str = "", **environment: str) -> tuple[int, str]:
    """Runs a command on a terminal of 80 columns, with a Ctrl-C at every appearance of `press`. Returns exit code and what was
    written."""
    pid, terminal = pty.fork()
    if pid == 0:
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")}
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.chdir(folder)
        os.execve(command[0], command, {**env, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment})
    written, pressed = b"", 0
    while data := _read(terminal):
        written += data
        while press and len(re.findall(press.encode(), written)) > pressed:
            os.write(terminal, b"\x03")
            pressed += 1
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""


def test_lines_stay_above_a_table_that_vanishes(tmp_path: Path) -> None:
    code, written = in_terminal(tmp_path)
    assert code == 0
    assert "0.0 s  checking …" in written
    assert "p/in: recovery: batch 2 was begun and not delivered; it runs again\r\n" in written
    assert "[bold]a record[/bold] " + "x" * 100 + "\N{REPLACEMENT CHARACTER}[2J\r\n" in written
    assert "processing batch 3 (1.2 MB)" in written
    assert "batch 2 " not in written.replace("batch 2 was begun", "")
    last = written.rpartition("\x1b[2K")[2]
    assert last.strip() == "the end"


def test_the_cursor_is_never_hidden_so_that_no_death_can_leave_it_so(tmp_path: Path) -> None:
    for arguments in ([], ["fail"]):
        code, written = in_terminal(tmp_path, *arguments)
        assert code == (1 if arguments else 0)
        assert "\x1b[?25l" not in written
        assert not re.search(r"\x1b\[\?\d+[hl]", written.replace("\x1b[?25h", ""))


def test_no_colour_is_used_where_none_is_wanted(tmp_path: Path) -> None:
    _, written = in_terminal(tmp_path, NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3[0-7]", written)


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    code, written = in_terminal(tmp_path, TERM="dumb")
    assert code == 0
    assert "\x1b" not in written
    assert re.search(r"\[ +\d\.\d s\] p/in: 7 read, 7 delivered; processing batch 3", written)


def test_ctrl_c_while_spark_starts_is_answered_and_again_is_at_once(tmp_path: Path) -> None:
    code, written = in_terminal(tmp_path, "wait", press="READY|Ctrl-C again stops at once")
    assert code == 130
    assert written.count("stopping: nothing was read yet; Ctrl-C again stops at once\r\n") == 1
    assert written.count("stopped before anything was read\r\n") == 1
    assert "Traceback" not in written


def test_a_pipe_gets_lines_with_the_time_in_front(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    ended = subprocess.run([sys.executable, str(tmp_path / "child.py")], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    assert "\x1b" not in ended.stderr
    assert re.search(
        r"^\[ +\d\.\d s\] p/in: recovery: batch 2 was begun and not delivered; it runs again$",
        ended.stderr,
        re.MULTILINE,
    )
    assert ended.stderr.endswith("the end\n")


def test_a_job_in_the_background_does_not_draw_over_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    wrapper = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], process_group=0).returncode)"
    command = [sys.executable, "-c", wrapper, sys.executable, str(tmp_path / "child.py")]
    code, written = on_terminal(command, tmp_path)
    assert code == 0
    assert "p/in: recovery" in written
    assert "\x1b" not in written


def test_the_real_command_shows_that_it_begins_and_an_error_is_all_that_is_left(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 2.2\npipelines: [{id: p, conectors: []}]\n")
    penstock = str(Path(sys.executable).with_name("penstock"))
    code, written = on_terminal([penstock, "run", "p.yaml"], tmp_path)
    assert code == 2
    assert re.search(r"\d\.\d s  checking", written)
    assert written.rpartition("\x1b[2K")[2].startswith("[config.")
    assert "Traceback" not in written


def test_help_does_not_load_what_draws_the_table(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "run", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0
    assert "penstock.cli.face" in ended.stderr
    assert "rich" not in ended.stderr
