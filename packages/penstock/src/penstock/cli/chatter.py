"""What connectors in a process of their own log, as far as people are shown it. Programs get all of it (`--json`).

Fine detail is left out. A connector that says the same again and again, or more than anybody can read, does not push everything else off
the terminal: what is left out is counted, and the count is said. Called by any thread of the engine, and by the face's own.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

DETAIL = ("debug", "trace")  # levels that are not for people
GRAVE = ("warn", "error", "fatal", "panic")  # have room of their own: what is chatty does not hide them
SAME = 3  # times that a text is shown at once; then once a second
LINES = 20  # texts of a source that are shown at once
PER_SECOND = 2.0  # and after that
PAUSE = 5.0  # seconds between two counts of what was left out
LONGEST = 2000  # characters of a text
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass
class Room:
    """So many at once; then so many per second."""

    most: float
    per_second: float
    left: float = -1.0
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.left = self.most if self.left < 0 else min(self.most, self.left + (now - self.at) * self.per_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def full(self, now: float) -> bool:
        return self.left + (now - self.at) * self.per_second >= self.most


@dataclass
class _Lane:
    plain: Room = field(default_factory=lambda: Room(LINES, PER_SECOND))
    grave: Room = field(default_factory=lambda: Room(LINES, PER_SECOND))
    texts: dict[tuple[str, str], Room] = field(default_factory=dict)  # level and text of what was shown lately
    left_out: int = 0
    said: float = 0.0  # when it was last said how many were left out, or began to be left out


class Chatter:
    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()

    def heard(self, name: str, level: str, text: str, now: float) -> str:
        """What is shown of it, "" for nothing. `name` is the source's, with its pipeline."""
        level, text = plain(level).lower(), plain(text)
        if level in DETAIL or not text:
            return ""
        with self._lock:
            lane = self._lanes.setdefault(name, _Lane())
            if not self._room(lane, level, text, now):
                if not lane.left_out:
                    lane.said = now
                lane.left_out += 1
                return ""
        return f"{name}: {level}: {text}"

    def _room(self, lane: _Lane, level: str, text: str, now: float) -> bool:
        for key in [key for key, room in lane.texts.items() if room.full(now)]:
            del lane.texts[key]
        same = lane.texts.get((level, text), Room(SAME, 1.0))
        if not same.take(now) or not (lane.grave if level in GRAVE else lane.plain).take(now):
            return False
        lane.texts[level, text] = same
        return True

    def left_out(self, now: float | None = None) -> list[str]:
        """What is to be said of lines that were not shown; without a time, now and for all of them."""
        found = []
        with self._lock:
            for name, lane in self._lanes.items():
                if lane.left_out and (now is None or now - lane.said >= PAUSE):
                    lines = "line" if lane.left_out == 1 else "lines"
                    found.append(f"{name}: {lane.left_out:,} more {lines} of its log not shown; --json has them all")
                    lane.left_out = 0
        return found


def plain(text: str) -> str:
    """Nothing that could drive a terminal, and no line that could be taken for one of ours: what follows the first is set in."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … ({len(text) - LONGEST:,} characters more)"
    lines = _ESCAPES.sub("", text).replace("\t", " ").splitlines()
    return "\n    ".join("".join(c for c in line if c.isprintable()).rstrip() for line in lines).strip()
