"""What a run shows while it goes on: nothing, JSON lines, lines every few seconds, or a live table. `shown` chooses.

Made first thing by `run`, `run --dry-run` and `test`, before anything heavy is imported, so that time is seen to pass. Events
come from any thread of the engine; what a face shows by itself comes from a thread of its own.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.cli import printer
from penstock.cli.chatter import Chatter
from penstock.cli.events import said
from penstock.cli.interrupts import Interrupts
from penstock.engine.view import Doing, View
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from penstock.engine.supervisor import Engine

TICK = 0.1
LOGGER = "penstock"  # what the engine and its connectors log to


class Face:
    """Shows nothing itself. `event`, `log` and `doing` may be called from any thread."""

    def __init__(self, interrupts: Interrupts | None = None) -> None:
        self.began = time.monotonic()
        self.secrets = Secrets()  # what nobody may log
        self.engine: Engine | None = None
        self.interrupts = interrupts or Interrupts()
        self.alone = True  # one pipeline: its error is not said before the summary that follows at once
        self.lossy = False  # some pipeline is at most once: nothing is promised about what is cut off
        self._doing = Doing("checking", self.began)
        self._heard = 0  # signals that something was said about
        self._chatter = Chatter()

    # -- told by the command and the engine -------------------------------------------------------------------------

    def doing(self, what: str) -> None:
        """What goes on before there is an engine to ask."""
        self._doing = Doing(what, time.monotonic())

    def started(self, engine: Engine) -> None:
        """The engine is there: it is asked from now on, and stopped by signals."""
        self.secrets = engine.secrets
        self.engine = engine
        self.interrupts.stops(engine)

    def event(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        if text := self._said(event, pipeline, source, details):
            self.keep(text)

    def log(self, text: str) -> None:
        """What a connector logs: written as it is, also beside JSON."""
        printer.err(text)

    def _said(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> str:
        if event == "degraded" and self.alone:
            return ""
        if event == "log":
            return self._chatter.heard(f"{pipeline}/{source}", details["level"], details["text"], time.monotonic())
        text = said(event, pipeline, source, details)
        return f"{text}; nothing is lost" if event == "stopping" and "\n" in text and not self.lossy else text

    # -- shown ------------------------------------------------------------------------------------------------------

    def view(self) -> View:
        return View(self._doing) if self.engine is None else self.engine.view()

    def keep(self, text: str) -> None:
        """Shows a line that stays."""

    def open(self) -> None:
        """Begins to show."""

    def tick(self, now: float) -> None:
        """Called every `TICK` seconds by the face's own thread."""

    def close(self) -> None:
        """Leaves the terminal as it was. May be called twice."""

    def cut_off(self) -> str:
        """What an interruption that leaves no summary has cut off."""
        if self.engine is None:
            return "stopped"
        if not self.interrupts.begun:
            return "stopped before anything was read"
        return "stopped at once" if self.lossy else "stopped at once; nothing is lost"

    def say_left_out(self, now: float | None = None) -> None:
        """How much of what connectors have logged was not shown. Without a time: at the end."""
        for text in self._chatter.left_out(now):
            self.keep(text)

    def say_signals(self) -> None:
        """The engine says what it waits for; here is said what it can't: that a signal was heard while it starts, or again."""
        count, begun = self.interrupts.count, self.interrupts.begun
        if count == self._heard or self.engine is None:
            return
        self._heard = count
        if count > 1:
            self.keep("stopping at once")
        elif not begun:
            self.keep("stopping: nothing was read yet; Ctrl-C again stops at once")


class Json(Face):
    """One line per event, on stdout."""

    def event(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        printer.out_json({"event": event, "pipeline": pipeline, "source": source, **details})


@contextmanager
def shown(*, as_json: bool = False, quiet: bool = False) -> Iterator[Face]:
    """A face for as long as something runs. Signals are caught, and the log is taken, as long as it is there."""
    interrupts = Interrupts()
    face = Face(interrupts) if quiet else Json(interrupts) if as_json else _for_people(interrupts)
    log = _Log(face)
    ended = threading.Event()
    ticker = threading.Thread(target=_ticking, args=(face, ended), name="penstock-face", daemon=True)
    try:
        interrupts.catch()
        log.take()
        face.open()
        ticker.start()
        yield face
    except KeyboardInterrupt:
        face.keep(face.cut_off())
        raise
    except Exception as e:  # what ends a run as a whole holds no secret either
        face.secrets.clean_chain(e, traceback.format_exc())
        raise
    finally:
        ended.set()
        if ticker.ident is not None:
            ticker.join()
        face.say_left_out()
        face.close()
        log.leave()
        interrupts.restore()


def _ticking(face: Face, ended: threading.Event) -> None:
    """Whatever is wrong with what is shown, a terminal that is gone for one: records are moved nevertheless."""
    while not ended.wait(TICK):
        with suppress(Exception):
            face.say_signals()
            face.say_left_out(time.monotonic())
            face.tick(time.monotonic())


def _for_people(interrupts: Interrupts) -> Face:
    if not _on_terminal():
        from penstock.cli.lines import Lines

        return Lines(interrupts)
    from penstock.cli.live import Live

    return Live(interrupts)


def _on_terminal() -> bool:
    """Whether there is a terminal to draw on: not for a job in the background, which would draw over the next command."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # a terminal, but not the one that controls us
        return True


class _Log(logging.Handler):
    """What the engine and its connectors log, a line each."""

    def __init__(self, face: Face) -> None:
        super().__init__()
        self._face = face
        self._before: tuple[int, bool] = (logging.NOTSET, True)

    def take(self) -> None:
        logger = logging.getLogger(LOGGER)
        self._before = (logger.level, logger.propagate)
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def leave(self) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        logger.level, logger.propagate = self._before

    def emit(self, record: logging.LogRecord) -> None:
        self._face.log(self._face.secrets.hide(record.getMessage()).replace("\n", "\\n"))
