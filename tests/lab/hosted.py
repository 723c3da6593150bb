"""Lanes whose connectors are in processes of their own: the campaign of `tests.support.hosted`, with hosts that die at points of their log.

Their records are numbers. What the source was told is in a file of its own, so acks are looked at singly: in order, each once, and only of
what is there.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.campaign import STEPS, Found
from tests.support.harness import Gateway
from tests.support.hosted import Armed, Campaign, Hosted, until
from tests.support.through import Through

SCENES: dict[str, dict[str, Any]] = {
    "host": {"targets": ("engine", "host", "all")},
    "program": {
        "program": True,
        "destinations": ("out", "two", "three"),
        "targets": ("engine", "host", "program", "all"),
    },
    "plugin": {"through": True, "program": True, "targets": ("engine", "host", "program", "all")},
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
}


class Arming(Campaign):
    """In three of ten lives of the engine the host dies at a point of its log, too."""

    def _engine(self) -> None:
        before = self.case.deaths
        what = ""
        self.case.armed = None
        if self._chance.random() < 0.3:
            armed, what = self._chance.choice(ARMED)
            self.case.armed = Armed(**{**vars(armed), "times": before + 1})
        super()._engine()
        if died := self.case.deaths - before:
            self.tally.kills[what] += died
            self._look()


def harass(
    name: str, root: Path, gateway: Gateway, kills: int, seed: int, say: Callable[[str], None] = lambda _: None
) -> Found:
    """At least so many kills, a look after each, and the rest of the records."""
    options = dict(SCENES[name])
    targets = options.pop("targets")
    through = options.pop("through", False)
    make: Callable[..., Hosted] = Through if through else Hosted
    case = make(root, gateway, records=2000 * kills + 5000, rate=400, **options)
    began = time.monotonic()
    campaign = Arming(case, kills, seed, targets=targets)
    if through:
        campaign.named = ("K7", "send", "sent", "K8", "done")
    tally = campaign.run()
    found = Found(name, seed, ("plugin",) if through else ("files",) * len(case.destinations))
    for what, n in tally.kills.items():
        point = what.rpartition(" at ")[2] if what.startswith("engine at ") else ""
        found.blows[point or WHAT.get(what, what)] += n
        at = next((name for name in ("K12", "K13") if name in what), point)
        if at in STEPS:
            found.steps[STEPS[at]] += n
    found.lives = case.runs
    faults = list(tally.faults)
    case.armed = None
    if tally.ended is not None:
        faults.append(f"an engine ended by itself, with {tally.ended.returncode}: {tally.ended.err[-1500:]}")
    else:
        until(lambda: not case.of_kind("host"), "hosts to end", lambda: str(case.processes()))
        case.records = max([1, *case.logged(), *case.heard().settled])  # it need not go on to the end
        case.finish(**({"arguments": ("--once", "--idle", "1")} if through else {}))
        case.records = max(case.logged())  # a host that was killed had written more than it could say was durable
        faults += case.faults()
        if isinstance(case, Through):
            found.repeated = case.duplicates()
            if found.repeated > found.kills * case.at_once:
                faults.append(f"{found.repeated} duplicated, more than was under way")
    found.stories = faults
    found.faults = Counter(kind_of(fault) for fault in faults)
    found.records = case.records
    found.seconds = time.monotonic() - began
    say(f"{name}: {found.kills} kills in {found.seconds:.0f} s")
    return found


def kind_of(fault: str) -> str:
    return next((kind for words, kind in KINDS.items() if re.search(words, fault)), "other")
