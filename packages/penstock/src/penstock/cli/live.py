"""A run on a terminal: a table that is drawn anew several times a second, and lines above it that stay. Gone at the end.

The cursor stays visible: whatever ends the process, `kill -9` too, the terminal is as it was.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Any

from rich import live
from rich.console import Console, Group
from rich.text import Text

from penstock.cli.face import Face
from penstock.cli.frame import Line, Moment, Screen, frame
from penstock.cli.interrupts import Interrupts
from penstock.cli.printer import encodable, folded, printable
from penstock.cli.progress import Rates, idle, lanes, stamp
from penstock.engine.view import LaneView, View

DRAWN = 0.25  # seconds between two drawings
CALM = 1.0  # the same while all wait for input
SHARE = 20  # asking the engine may take this part of the time: many lanes are asked less often
SLOWEST = 3.0
WAITING = 1000  # lines that may wait to be written above the table; then whoever writes, waits


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002 - rich's own hides it
        return False


class Live(Face):
    def __init__(self, interrupts: Interrupts | None = None) -> None:
        super().__init__(interrupts)
        self._console = _Console(
            file=sys.stderr, force_terminal=True, force_interactive=True, markup=False, highlight=False, emoji=False
        )
        self._live = live.Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, vertical_overflow="crop"
        )
        self._encoding = sys.stderr.encoding or "ascii"
        self._terminal = sys.stderr.fileno()
        self._lines: deque[str] = deque()
        self._drawing = threading.RLock()
        self._rates = Rates()
        self._dead: Counter[tuple[str, str]] = Counter()
        self._seen: View = super().view()
        self._ask_at = self._draw_at = 0.0
        self._size = (0, 0)

    # -- told -------------------------------------------------------------------------------------------------------

    def keep(self, text: str) -> None:
        line = f"{stamp(time.monotonic() - self.began)} {text}"
        self.log(folded(line, shutil.get_terminal_size().columns))  # what is logged is data, and left as it is

    def log(self, text: str) -> None:
        self._lines.append(encodable(printable(text), self._encoding))
        if len(self._lines) > WAITING:
            self._write_lines()

    def event(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        if event == "batch":
            self._dead[pipeline, source] += details.get("dead_lettered", 0)
        if event != "starting":  # the first line of the table says it
            super().event(event, pipeline, source, details)

    # -- shown ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._draw(time.monotonic())
        self._live.start()
        self._live.refresh()

    def close(self) -> None:
        with self._drawing, suppress(OSError):
            self._write_lines()
            self._live.stop()

    def tick(self, now: float) -> None:
        if self._in_background():
            return
        if self._lines:
            self._write_lines()
        if now >= self._draw_at and self._settled():
            self._draw_at = now + (CALM if self._calm() else DRAWN)
            self._draw(now)
            self._live.refresh()

    def _in_background(self) -> bool:
        """After Ctrl-Z and `bg`: somebody else writes to the terminal now."""
        try:
            return os.tcgetpgrp(self._terminal) != os.getpgrp()
        except OSError:
            return False

    def _settled(self) -> bool:
        """False while the size of the terminal changes: what is drawn meanwhile stays behind as rubbish."""
        size, self._size = self._size, self._console.size
        return size in (self._size, (0, 0))

    def _calm(self) -> bool:
        return bool(self._seen.pipelines) and all(idle(lane) for _, lane in lanes(self._seen))

    def _draw(self, now: float) -> None:
        width, height = self._console.size
        m = Moment(self._view(now), now, now - self.began, self._rates, self._dead_of)
        lines = frame(m, Screen(max(1, width - 1), max(1, height - 1), self._encoding))
        self._live.update(Group(*map(_text, lines)))

    def _view(self, now: float) -> View:
        """The engine's, asked as often as it is cheap."""
        if now >= self._ask_at or self.engine is None:
            self._seen = self.view()
            self._rates.note(self._seen, now)
            self._ask_at = now + min(SLOWEST, SHARE * (time.monotonic() - now))
        return self._seen

    def _dead_of(self, pipeline: str, lane: LaneView) -> int:
        """What the batches have said; one that was only finished said nothing, but its destinations know."""
        return max(self._dead[pipeline, lane.source], *lane.dead_lettered.values(), 0)

    def _write_lines(self) -> None:
        with self._drawing:
            taken = [self._lines.popleft() for _ in range(len(self._lines))]
            with suppress(OSError):  # a terminal that is gone is no reason to stop moving records
                if taken:
                    self._console.print(Text("\n".join(taken)), soft_wrap=True)


def _text(line: Line) -> Text:
    return Text(line.text, style=line.style, no_wrap=True, overflow="crop")
