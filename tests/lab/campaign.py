"""Blow after blow to one pipeline, and a look at everything after each of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.lab import blows
from tests.lab.scenes import Scene

# The steps that a campaign has to have hit, as the last point that was reached; what is said is what was missed.
STEPS = {
    "ledger:lane": "K1 before the snapshot",
    "K1": "K1 before the snapshot",
    "ledger:snapshot": "K1 before the snapshot",
    "K2": "K2 before the read",
    "ledger:attempt": "K2 before the read",
    "K3": "K3 before the split",
    "ledger:split": "K3 before the split",
    "K4": "K4 after the split",
    "materialise": "materialise (K7a: its tasks live on)",
    "stage": "stage (K7a: its tasks live on)",
    "K6": "K6 staged",
    "prepare": "prepare",
    "ledger:prepare": "prepare",
    "K9": "K9 dead letters",
    "K10": "K10 nothing staged",
    "K10a": "K10 nothing staged",
    "K7": "K7 prepared",
    "commit": "K7 prepared",
    "K6a": "K6a inside the commit (K17)",
    "send": "K7 prepared",
    "sent": "K8 committed (K18)",
    "K8": "K8 committed (K18)",
    "ledger:done": "K8 committed (K18)",
    "done": "done",
    "ack": "ack",
    "acked": "between batches",
    "K11": "K11 recovery",
    "K12": "K12 append to a log",
    "K13": "K13 fsync of a log pending",
    "K14": "K14 segment roll",
    "K15": "K15 compaction",
}


@dataclass
class Found:
    """What a campaign has come to."""

    scene: str
    seed: int
    destinations: tuple[str, ...]
    blows: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    clock: int = 0  # kills of an engine whose clock stepped, too
    uncounted: int = 0
    lives: int = 0
    records: int = 0
    repeated: int = 0  # at a destination that may be given a record twice
    faults: Counter[str] = field(default_factory=Counter)
    stories: list[str] = field(default_factory=list)  # what was found, and after which blow
    seconds: float = 0

    @property
    def kills(self) -> int:
        return self.blows.total()

    @property
    def clean(self) -> bool:
        return not self.faults and not self.stories


STUCK = "does not go on"  # by itself, though nothing hinders it
Say = Callable[[str], None]


def harass(
    scene: Scene,
    name: str,
    kills: int,
    *,
    draw: Callable[[Scene], blows.Blow] = blows.draw,
    off: tuple[str, ...] = (),
    broken: str = "",
    until_red: bool = False,
    say: Say = lambda _: None,
) -> Found:
    """Until so many blows have counted; then to the end. `off` and `broken`: what every life lacks."""
    scene.off, scene.broken = off, broken
    found = Found(name, scene.seed, tuple(scene.kinds))
    began = time.monotonic()
    while found.kills < kills and found.lives < 3 * kills + 10 and (found.clean or not until_red):
        blow = draw(scene)
        found.lives += 1
        try:
            struck = blows.deal(scene, blow)
        except (AssertionError, TimeoutError) as e:
            found.faults[STUCK] += 1
            found.stories.append(f"blow {found.lives} ({blow.what}): {str(e)[-1500:]}")
            break
        if blow.strike is None and struck.ended.returncode > 0 and not blow.may_fail:
            found.faults[STUCK] += 1
            found.stories.append(
                f"blow {found.lives} ({blow.what}): {struck.ended.out[-1500:]}{struck.ended.err[-500:]}"
            )
            break
        if struck.counted:
            found.blows[struck.what] += 1
            found.clock += blow.clock
            if blow.kills:
                step = STEPS.get(struck.step, struck.step)
                found.steps[step.partition(" (K7a")[0] if blow.alone else step] += 1  # its tasks died with it
        else:
            found.uncounted += 1
        if found.lives % 5 == 0 or struck.counted:
            _look(scene, found, f"{struck.what}, after {struck.step or 'the start'}")
        say(f"{name}: {found.kills}/{kills} {struck.what} → {struck.step} {struck.seconds:.1f} s")
    if found.clean or (not until_red and STUCK not in found.faults):
        ended = scene.run()
        if scene.chained:  # the second pipeline may have looked before the first had delivered
            ended = scene.run()
        if ended.returncode != 0:
            found.faults[STUCK] += 1
            found.stories.append(f"the last run ended with {ended.returncode}: {ended.out[-1500:]}{ended.err[-1500:]}")
        _look(scene, found, "the end", ended=True)
    found.records = len(scene.tally.fates)
    found.seconds = time.monotonic() - began
    return found


def _look(scene: Scene, found: Found, when: str, *, ended: bool = False) -> None:
    for name, verdict in scene.look(ended=ended).items():
        if verdict.clean:
            continue
        story = f"{name}: {verdict}"
        if not any(known.endswith(story) for known in found.stories):
            found.stories.append(f"blow {found.lives} ({when}): {story}")
            found.faults += verdict.counts()
