"""Cases from a hosted source to a hosted destination, whose processes are killed. The destination, `chaos`, writes down what it gets; the
tally is read from that file alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.hosted import Hosted

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    guarantee: at-least-once
    connectors:
      - {{id: in, type: source, plugin: "{source}", settings: {given}, batch: {{max-records: {most}}}}}
      - {{id: out, type: destination, plugin: "{to}", settings: {taken}, batch: {{max-records: {at_once}}}}}
"""


@dataclass
class Through(Hosted):
    """`program`: both ends are plugin programs, not classes in their hosts."""

    at_once: int = 100  # records that the destination is sent at once
    rules: str = ""  # what its `answer` does: it has written then, and not answered

    def configure(self) -> None:
        given = {"records": self.records, "rate": self.rate, "resend": self.resend, "batch": 50, "size": 12}
        given_ = {**{k: str(v) for k, v in given.items()}, "calls": str(self.root / "calls")}
        taken = {"path": str(self.root / "out.jsonl"), **({"answer": self.rules} if self.rules else {})}
        plugin = "standalone:chaos" if self.program else "builtin:chaos"
        text = PIPELINE.format(
            source=plugin,
            to=plugin,
            given=json.dumps(given_),
            taken=json.dumps(taken),
            most=self.most,
            at_once=self.at_once,
        )
        (self.root / "p.yaml").write_text(text)

    def arrived(self) -> list[int]:
        return numbers(self.root / "out.jsonl")

    def audit(self) -> list[str]:
        settled = self.heard().settled
        found = set(self.arrived())
        logged = set(self.logged())
        faults = []
        if early := settled - found:
            faults.append(f"{len(early)} have not arrived, and the source was told so: {sorted(early)[:5]}")
        if unlogged := found - logged:
            faults.append(f"{len(unlogged)} have arrived, and are not in the log: {sorted(unlogged)[:5]}")
        return faults

    def faults(self) -> list[str]:
        found, every = self.arrived(), range(1, self.records + 1)
        faults = [] if set(found) == set(every) else [f"{len(set(every) ^ set(found))} are missing or invented"]
        first = list(dict.fromkeys(found))
        if first != sorted(first):
            faults.append("they came for the first time in another order than they were given in")
        return faults

    def duplicates(self) -> int:
        return sum(n - 1 for n in Counter(self.arrived()).values())


def numbers(path: Path) -> list[int]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(json.loads(line)["after"]) for line in lines]
