"""A run in a pipe or a log file: a line per source every few seconds, while something changes.

A log may be kept for days. So the pauses grow from seconds to a minute, and a source that waits for input says so once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock.cli import printer
from penstock.cli.face import Face
from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import Rates, idle, lane_line, lanes, lasting, same_counts, stamp, total_line
from penstock.engine.view import LaneView, View

PAUSE = 5.0  # seconds between two looks, at first
LONGEST = 60.0
SPARSER = 20  # the pause is this part of the time that has passed
HEARTBEAT = 6  # pauses after which also what has not changed is said, while it is at work
MOST = 10  # sources with lines of their own; more have one together


@dataclass
class _Last:
    counts: tuple[object, ...] = ()
    idle: bool = False
    at: float = 0.0


class Lines(Face):
    def __init__(self, interrupts: Interrupts | None = None) -> None:
        super().__init__(interrupts)
        self._rates = Rates()
        self._next = self.began
        self._said_at = self.began
        self._first = True  # the first batch is said at once
        self._last: dict[tuple[str, str], _Last] = {}

    def keep(self, text: str) -> None:
        printer.err(f"{stamp(time.monotonic() - self.began)} {text}")

    def event(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        super().event(event, pipeline, source, details)
        if event == "batch" and self._first:
            self._first, self._next = False, 0.0

    def tick(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + self.pause(now)
        view = self.view()
        self._rates.note(view, now)
        if view.pipelines:
            for line in self.due(view, now):
                self.keep(line)
        else:
            self._next = now  # nothing is read yet: looking costs nothing
            self._still(view, now)

    def _still(self, view: View, now: float) -> None:
        """A start that takes long is seen to go on."""
        if now - max(self._said_at, view.doing.since) >= HEARTBEAT * self.pause(now):
            self._said_at = now
            self.keep(f"{view.doing.what} …, {lasting(now - view.doing.since)}")

    def pause(self, now: float) -> float:
        return min(LONGEST, max(PAUSE, (now - self.began) / SPARSER))

    def due(self, view: View, now: float) -> list[str]:
        """What is worth a line now."""
        found = list(lanes(view))
        due = [(p, lane) for p, lane in found if self._is_due(p, lane, now)]
        if len(found) > MOST:
            return [total_line(view, self._rates, now)] if due else []
        rate = self._rates.of
        return [lane_line(p, lane, rate((p, lane.source), now, idle=idle(lane)), now) for p, lane in due]

    def _is_due(self, pipeline: str, lane: LaneView, now: float) -> bool:
        """A change of the numbers; the beginning of a wait; a sign of life of what is at work for long."""
        counts, waits = same_counts(lane), idle(lane)
        nothing_yet = not lane.read and lane.status == "running"
        last = self._last.setdefault((pipeline, lane.source), _Last(counts if nothing_yet else (), at=now))
        silent = waits or lane.status in ("stopped", "degraded")
        changed = counts != last.counts or (waits and not last.idle)
        if not changed and (silent or now - last.at < HEARTBEAT * self.pause(now)):
            return False
        self._last[pipeline, lane.source] = _Last(counts, waits, now)
        return True
