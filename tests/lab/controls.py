"""What the laboratory must find when it is broken on purpose, and where.

A safeguard may need a fault that the laboratory does not have (a second engine, a log that was damaged). Those have a control among the
tests; `elsewhere` finds it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from penstock.testing.faults import SAFEGUARDS
from tests.lab import blows
from tests.lab.blows import Blow
from tests.lab.scenes import Scene

TESTS = Path(__file__).parents[1]
KILLS = 50  # within which each has to be found
BUILDS = {"no fsync": "files", "ack early": "deleting", "stage again": "lines"}
# The scene in which each safeguard is missed. Two with a plus cover for each other: one alone hides that the other is off.
OFF = {
    "one-snapshot+receipt": "files",
    "roll-forward": "files",
    "fsync": "files",
    "unchanged": "files",
    "lines-note": "lines",
    "receipt+postgres-note": "postgres",
    "receipt+delta-note": "delta",
    "queue-tail": "queue",
    "kafka-tail": "kafka",
}

# What is done half of the time, besides everything else: what the safeguard is about, so that 50 kills are enough whatever the seed is.
ABOUT = {
    "no fsync": "power cut",
    "ack early": "K6",
    "stage again": "K7",
    "one-snapshot+receipt": "K8",
    "roll-forward": "K7",
    "fsync": "power cut",
    "unchanged": "changed input",
    "lines-note": "K6a",
    "receipt+postgres-note": "K8",
    "receipt+delta-note": "K8",
    "queue-tail": "K6a",
    "kafka-tail": "K6a",
}


def draw(scene: Scene, name: str) -> Blow:
    about = ABOUT[name]
    if scene.chance.random() < 0.5:
        return blows.draw(scene)
    if about == "power cut":
        return blows.power_cut(scene)
    if about == "changed input":
        return blows.changed_input(scene)
    nths = [n for point, n in blows.points(scene) if point == about]
    return blows.named(about, scene.chance.choice(nths), scene.chance)


@cache
def _lines() -> list[tuple[str, str]]:
    """Of all tests, those that may switch something off: with the file."""
    return [
        (line, str(path.relative_to(TESTS.parent)))
        for path in sorted(TESTS.glob("*/test_*.py"))
        for line in path.read_text().splitlines()
        if "off" in line or "safeguard" in line
    ]


def elsewhere(safeguard: str) -> str:
    """A test that switches it off, or names it as that of its row."""
    quoted = re.compile(rf"[\"']{re.escape(safeguard)}[\"']")
    found = [("off" not in line, file) for line, file in _lines() if quoted.search(line)]
    return min(found)[1] if found else ""


def others() -> dict[str, str]:
    here = {name for names in OFF for name in names.split("+")}
    return {name: elsewhere(name) for name in SAFEGUARDS if name not in here}
