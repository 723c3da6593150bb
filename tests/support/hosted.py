"""Cases with a hosted source, `chaos`, whose processes are killed: the engine, the connector's host, the plugin program, or all of them.

A campaign kills until enough kills counted, and looks after each of them: whatever the source has heard is settled is at every destination,
and whatever is at a destination is in the log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.log import Lost, Reader
from tests.support import hosted_oracle
from tests.support.harness import Case, Ended, Gateway, Running
from tests.support.hosted_oracle import Heard

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).with_name("hosted_site")
PATIENCE = 90.0
MARK = "HOSTED_CASE"  # in the environment of everything that a case starts

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: "{plugin}", settings: {settings}, batch: {{max-records: {most}}}}}
"""
DESTINATION = (
    "      - {{id: {name}, type: destination, plugin: files, settings: {{path: {root}/{name}, format: text}}}}\n"
)
PROGRAM = """\
import sys

from penstock.connectors.chaos.connector import connector
from penstock_sdk import serve

sys.exit(serve(connector))
"""


@dataclass(frozen=True)
class Armed:
    """What hosts do; see `hosted_site`. The first `times` of them that reach `kill_at` for the `kill_nth` time die there."""

    kill_at: str = ""
    kill_nth: int = 1
    kill_detail: str = ""  # only where the detail of the point ends so
    times: int = 1
    torn: bool = False  # leaves a part of an entry; at an fsync, half of the file
    power: bool = False  # what was not fsynced is lost, as in a power cut; at K13
    stall: float = 0.0  # seconds that it hangs there before
    off: tuple[str, ...] = ()


@dataclass
class Hosted(Case):
    """From `chaos` to one or more folders of text."""

    records: int = 10
    rate: int = 0
    resend: int = 0
    most: int = 500  # records in a batch
    program: bool = False  # it is a plugin program, not a class in the host
    destinations: tuple[str, ...] = ("out",)
    armed: Armed | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = self.root / "calls"
        self.log = self.state / "logs" / "p.in"
        if self.program:
            self._install()

    def configure(self) -> None:
        settings = {"records": self.records, "rate": self.rate, "resend": self.resend, "batch": 50, "size": 12}
        plugin = "standalone:chaos" if self.program else "builtin:chaos"
        texts = json.dumps({**{k: str(v) for k, v in settings.items()}, "calls": str(self.root / "calls")})
        text = PIPELINE.format(plugin=plugin, settings=texts, most=self.most)
        text += "".join(DESTINATION.format(name=name, root=self.root) for name in self.destinations)
        (self.root / "p.yaml").write_text(text)

    def _install(self) -> None:
        folder = self.root / "program"
        folder.mkdir()
        (folder / "__main__.py").write_text(PROGRAM)
        with self.environment():
            command = [sys.executable, "-m", "penstock.cli.main", "plugins", "install", str(folder)]
            subprocess.run(command, check=True, capture_output=True)

    @contextmanager
    def environment(self) -> Iterator[None]:
        """What its processes inherit. Programs do not; their path is of the case."""
        own = {MARK: str(self.root), "PENSTOCK_PLUGINS": str(self.root / "plugins")}
        if self.armed is not None:
            path = self.root / "armed.json"
            path.write_text(json.dumps(asdict(self.armed)))
            own |= {"HOSTED_ARMED": str(path), "PYTHONPATH": str(SITE)}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    def start(self, **options: Any) -> Running:
        with self.environment():
            return super().start(**options)

    def finish(self, **options: Any) -> Ended:
        """What is left, as fast as it comes. Afterwards no process is there any more."""
        self.rate, self.most = 0, 100_000
        self.configure()
        ended = super().finish(**options)
        until(lambda: not self.processes(), "everything to end", lambda: str(self.processes()))
        return ended

    # -- what it looks like -------------------------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Everything that was started for this case and is there, by its kind."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                around = f"{MARK}={self.root}\0".encode() in (folder / "environ").read_bytes()
                program = f"{self.root}/plugins/".encode() in command
                if command and (around or program):
                    found[int(folder.name)] = "program" if program else _kind(command)
        return found

    def of_kind(self, kind: str) -> list[int]:
        return [pid for pid, found in self.processes().items() if found == kind]

    def heard(self) -> Heard:
        return Heard.of(self.calls)

    @property
    def deaths(self) -> int:
        """Hosts that died as they were told."""
        path = self.root / "deaths"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def resent(self) -> int:
        found: int = json.loads((self.log / "connector.json").read_text())["resent"]
        return found

    def logged(self) -> list[int]:
        """As readers of the log see it, which is what is durable."""
        if not self.log.exists():
            return []
        with Reader(self.log) as reader:
            found = list(reader.read(reader.first))
        assert not any(isinstance(rows, Lost) for rows in found), found
        return [int(record.position) for rows in found if not isinstance(rows, Lost) for record in rows.records()]

    def audit(self) -> list[str]:
        """At any moment, also while it runs: what is looked at first can only have grown in what is looked at later."""
        settled = self.heard().settled
        at = {name: hosted_oracle.numbers(self.root / name) for name in self.destinations}
        logged = set(self.logged())
        faults = []
        for name, found in at.items():
            if early := settled - set(found):
                faults.append(f"{len(early)} are not at {name}, and the source was told so: {sorted(early)[:5]}")
            if unlogged := set(found) - logged:
                faults.append(f"{len(unlogged)} are at {name}, and not in the log: {sorted(unlogged)[:5]}")
        return faults

    def faults(self) -> list[str]:
        """After everything was delivered."""
        found = self.audit()
        for name in self.destinations:
            verdict = hosted_oracle.judge(self.records, self.root / name)
            found += [] if verdict.clean else [f"{name}: {verdict}"]
        logged = self.logged()
        if logged != sorted(set(logged)):
            found.append(f"the log has {len(logged)} records, {len(set(logged))} different ones")
        heard = self.heard()
        if untold := set(range(1, self.records + 1)) - heard.settled:
            found.append(f"{len(untold)} were delivered and the source does not know: {sorted(untold)[:5]}")
        return [*found, *heard.faults(self.resend)]


def _kind(command: bytes) -> str:
    arguments = command.split(b"\0")
    kinds = {b"penstock.host": "host", b"penstock.testing.child": "engine"}
    return next((kind for name, kind in kinds.items() if name in arguments), "spark")


def until(true: Callable[[], object], what: str, more: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what}: {more()}")
        time.sleep(0.01)


# -- campaigns ----------------------------------------------------------------------------------------------------------------

# Points that each batch reaches; the short steps are hardly ever hit by chance.
NAMED = ["K1", "stage", "K6", "ledger:prepare", "K7", "K8", "ledger:done", "done", "ack", "acked"]


@dataclass
class Tally:
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)  # seen after a kill
    ended: Ended | None = None  # an engine that ended by itself

    @property
    def counted(self) -> int:
        return self.kills.total()

    def __str__(self) -> str:
        ended = "" if self.ended is None else f"; ended by itself: {self.ended.out[-500:]}{self.ended.err[-1500:]}"
        return f"{self.counted} kills {dict(self.kills)}; {self.faults or 'no fault'}{ended}"


@dataclass
class Campaign:
    """Kills that are drawn from `seed`. A kill counts when there was something to hit: a batch was taken in that life of the engine."""

    case: Hosted
    kills: int
    seed: int
    targets: Sequence[str] = ("engine", "host", "all")
    named: Sequence[str] = tuple(NAMED)
    begun: str = "K2"  # what it is killed after
    off: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)

    def run(self) -> Tally:
        self._chance = random.Random(self.seed)
        while self._goes_on():
            self._engine()
        return self.tally

    def _goes_on(self) -> bool:
        return self.tally.counted < self.kills and self.tally.ended is None

    def _engine(self) -> None:
        """One life of the engine. Its end is decided at its start: a point, or some moment after some kills of others."""
        chance = self._chance
        target = chance.choice(self.targets)
        point = chance.choice(list(self.named)) if self.named and target == "engine" and chance.random() < 0.6 else None
        running = self.case.start(
            cores=chance.choice([1, 2, 4]), arguments=(), kill_at=point, kill_nth=chance.choice([1, 2]), off=self.off
        )
        if point is not None:
            self._count(f"engine at {point}", running.wait())
            return
        seen = 0
        while running.await_point(self.begun, times=seen + chance.choice([1, 2, 3])):
            time.sleep(chance.random() * 0.5)
            seen = running.reached(self.begun)
            if target in ("engine", "all"):
                break
            if hit := self.case.of_kind(target):
                os.kill(hit[0], signal.SIGKILL)
                until(lambda pid=hit[0]: pid not in self.case.processes(), f"{target} to be gone")  # type: ignore[misc]
                self.tally.kills[target] += 1
                self._look()
            if self.tally.counted >= self.kills:
                break
            again = chance.random() < 0.2
            target = chance.choice(self.targets)
            if again:  # as soon as everything is there again: the source may not be open yet
                until(lambda: self.case.of_kind("host") or running.process.poll() is not None, "another host")
                seen -= 3
        if target == "all":
            for pid in self.case.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif running.process.poll() is None:
            os.kill(running.process.pid, signal.SIGKILL)
        self._count("all" if target == "all" else "engine", running.wait())

    def _count(self, kind: str, ended: Ended) -> None:
        if not ended.killed:
            self.tally.ended = ended
            return
        self.tally.kills[kind] += 1
        self._look()

    def _look(self) -> None:
        self.tally.faults += self.case.audit()


def harass(root: Path, gateway: Gateway | None, *, kills: int, seed: int, **options: Any) -> tuple[Hosted, Tally]:
    """A campaign, and the rest of the records. `options`: of the case, and of the campaign."""
    own = {name: options.pop(name) for name in ("targets", "named", "off") if name in options}
    case = Hosted(root, gateway, **options)
    tally = Campaign(case, kills, seed, **own).run()
    if tally.ended is None:
        case.finish(off=own.get("off", ()))
    return case, tally
