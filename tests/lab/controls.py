"""What the laboratory must find when it is broken on purpose, and where.

A safeguard may need a fault that the laboratory does not have (a second engine, a log that was damaged). Those have a control among the
tests; `elsewhere` finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from penstock.testing.faults import SAFEGUARDS
from tests.lab import blows
from tests.lab.blows import Blow
from tests.lab.scenes import Scene

TESTS = Path(__file__).parents[1]
KILLS = 50  # within which each has to be found


@dataclass(frozen=True)
class Control:
    """The scene in which it is missed, and what is done half of the time besides everything else: what it is about, so that 50 kills are
    enough whatever the seed is. Hosted scenes draw their own."""

    scene: str
    about: str = ""


POWER, CHANGED, BAD = "power cut", "changed input", "K7 with bad records"
BUILDS = {
    "no fsync": Control("files", POWER),
    "ack early": Control("deleting", "K6"),
    "stage again": Control("lines", "K7"),
}
# Two with a plus cover for each other: one alone hides that the other is off.
OFF = {
    "one-snapshot+receipt": Control("files", "K8"),
    "roll-forward": Control("files", "K7"),
    "nacks-with-prepare": Control("files", BAD),
    "fsync": Control("files", POWER),
    "unchanged": Control("files", CHANGED),
    "isolate": Control("files", "K3"),
    "materialise": Control("three"),
    "lines-note": Control("lines", "K6a"),
    "receipt+postgres-note": Control("postgres", "K8"),
    "receipt+delta-note": Control("delta", "K8"),
    "queue-tail": Control("queue", "K6a"),
    "compaction-hold": Control("chained", "K15"),
    "kafka-tail": Control("kafka", "K6a"),
    "log-cut": Control("host"),
    "resend": Control("host"),
    "ack-after-commit": Control("host"),
    "open-when-settled": Control("host"),
    "high-water": Control("plugin"),
}


def draw(scene: Scene, name: str) -> Blow:
    about = (BUILDS | OFF)[name].about
    if not about or scene.chance.random() < 0.5:
        return blows.draw(scene)
    if about == POWER:
        return blows.power_cut(scene)
    if about == CHANGED:
        return blows.changed_input(scene)
    if about == BAD:
        return replace(blows.named("K7", 1, scene.chance), prepare=blows.needed("K9"))
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
