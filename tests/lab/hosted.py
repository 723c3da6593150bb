"""Lanes whose connectors are in processes of their own: the campaign of `tests.support.hosted`, with hosts that die at points of their log.

Their records are numbers. What the source was told is in a file of its own, so acks are looked at singly: in order, each once, and only of
what is there.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.lab.campaign import STEPS, STUCK, Found
from tests.support import hosted_oracle
from tests.support.harness import Gateway
from tests.support.hosted import Armed, Campaign, Hosted, until
from tests.support.through import Through

SCENES: dict[str, dict[str, Any]] = {
    "host": {"resend": 200, "targets": ("engine", "host", "all")},  # more than its log has lost
    "program": {
        "program": True,
        "destinations": ("out", "two", "three"),
        "targets": ("engine", "host", "program", "all"),
    },
    "plugin": {
        "through": True,
        "program": True,
        "at_once": 25,
        "rules": "slow:50ms",  # it has written, and not answered: most kills are in there
        "targets": ("engine", "engine", "host", "program", "all"),
    },
}
# What a host of a source may be told to do: each time it is started anew, until it has done so once.
ARMED = (
    (Armed("K12", kill_nth=5, torn=True), "host, K12 append torn"),
    (Armed("K13", kill_nth=5), "host, K13 fsync pending"),
    (Armed("K13", kill_nth=5, power=True, stall=0.3), "host, K13 power cut"),
)
WHAT = {
    "engine": "any moment",
    "host": "a connector's host",
    "program": "a plugin program",
    "all": "engine, hosts and programs at once",
}
KINDS = {
    "ended by itself|waited for": STUCK,
    "missing": "missing",
    "duplicated": "duplicated",
    "there twice": "duplicated",
    "invented": "invented",
    "reordered": "reordered",
    "another order": "reordered",
    "the source was told so": "wrongly acked",
    "the source does not know": "wrongly acked",
    "heard": "wrongly acked",
    "acked": "wrongly acked",
    "Lost": "corrupted",
}


class Arming(Campaign):
    """In three of ten lives of the engine the host dies at a point of its log, too. Where a safeguard is off the first fault ends it."""

    _looked = (0, 0)  # kills and duplicates

    def _engine(self) -> None:
        before = self.case.deaths
        armed, what = Armed(), ""
        if self._chance.random() < (0.6 if self.off else 0.3):
            armed, what = self._chance.choice(ARMED)
        armed = replace(armed, times=before + 1, off=self.off)
        self.case.armed = armed if what or self.off else None
        super()._engine()
        if died := self.case.deaths - before:
            self.tally.kills[what] += died
            self._look()

    def _look(self) -> None:
        super()._look()
        self.tally.faults += self.repeated()

    def repeated(self) -> list[str]:
        """Nothing is anywhere twice; a destination at least once may have been sent a batch again when somebody was killed."""
        case = self.case
        if isinstance(case, Through):
            before, self._looked = self._looked, (self.tally.counted + case.deaths, case.duplicates())
            kills, found = (now - then for now, then in zip(self._looked, before, strict=True))
            bound = (kills + 1) * case.at_once  # of the kill before, too: what it hit may have been sent again since
            return (
                [f"{found} duplicated by {kills} kills, more than {bound} that were under way"] if found > bound else []
            )
        at = {name: hosted_oracle.numbers(case.root / name) for name in case.destinations}
        return [
            f"{len(found) - len(set(found))} duplicated at {n}"
            for n, found in at.items()
            if len(set(found)) < len(found)
        ]

    def _goes_on(self) -> bool:
        return super()._goes_on() and not (self.off and self.tally.faults)


def harass(
    name: str,
    root: Path,
    gateway: Gateway,
    kills: int,
    seed: int,
    *,
    off: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Found:
    """At least so many kills, a look after each, and the rest of the records."""
    options = dict(SCENES[name])
    targets = options.pop("targets")
    through = options.pop("through", False)
    make: Callable[..., Hosted] = Through if through else Hosted
    case = make(root, gateway, records=2000 * kills + 5000, rate=400, **options)
    began = time.monotonic()
    campaign = Arming(case, kills, seed, targets=targets, off=off)
    if through:
        campaign.named, campaign.begun = ("K7", "send", "sent", "K8", "done"), "send"
    found = Found(name, seed, ("plugin",) if through else ("files",) * len(case.destinations))
    try:
        faults = _to_the_end(campaign, off)
    except (AssertionError, TimeoutError) as e:
        faults = [*campaign.tally.faults, str(e)[-1500:]]
    for what, n in campaign.tally.kills.items():
        point = what.rpartition(" at ")[2] if what.startswith("engine at ") else ""
        found.blows[point or WHAT.get(what, what)] += n
        at = next((name for name in ("K12", "K13") if name in what), point)
        if at in STEPS:
            found.steps[STEPS[at]] += n
    found.lives = case.runs
    found.repeated = case.duplicates() if isinstance(case, Through) else 0
    found.stories = faults
    found.faults = Counter(kind_of(fault) for fault in faults)
    found.records = max(case.heard().settled, default=0)
    found.seconds = time.monotonic() - began
    say(f"{name}: {found.kills} kills in {found.seconds:.0f} s")
    return found


def _to_the_end(campaign: Arming, off: tuple[str, ...]) -> list[str]:
    """What is wrong, after all kills and with all that the log has delivered."""
    tally, case = campaign.run(), campaign.case
    if tally.ended is not None:
        return [
            *tally.faults,
            f"an engine ended by itself, with {tally.ended.returncode}: {tally.ended.out[-1500:]}{tally.ended.err[-500:]}",
        ]
    if tally.faults and off:
        return tally.faults
    case.armed = Armed(off=off) if off else None
    until(lambda: not case.of_kind("host"), "hosts to end", lambda: str(case.processes()))
    case.records = max([1, *case.logged(), *case.heard().settled])  # it need not go on to the end
    case.finish(off=off, **({"arguments": ("--once", "--idle", "1")} if isinstance(case, Through) else {}))
    case.records = max(case.logged())  # a host that was killed had written more than it could say was durable
    return [*tally.faults, *case.faults(), *campaign.repeated()]


def kind_of(fault: str) -> str:
    return next((kind for words, kind in KINDS.items() if re.search(words, fault)), "other")
