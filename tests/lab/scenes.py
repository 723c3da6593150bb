"""Pipelines that are broken and must come back: a folder, records that are issued, destinations that are looked at."""

from __future__ import annotations

import gzip
import json
import os
import random
import secrets
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab import oracle
from tests.lab.oracle import Account, Tally, Verdict
from tests.support.harness import Case, Gateway, Running
from tests.support.kafka import Broker, create_topic
from tests.support.postgres import Server

SEGMENT = 8192  # bytes: a queue rolls every few batches
OLD = 1_700_000_000  # seconds; files are older than the time in which they settle


@dataclass
class Sink:
    """A destination as its pipeline file has it, and what is in it."""

    name: str
    kind: str
    root: Path
    servers: Servers
    key: str = field(default_factory=lambda: "s" + secrets.token_hex(6))
    raw: bool = False  # lines as they are, not records with a column
    ordered: bool = True

    def __post_init__(self) -> None:
        self.ordered = self.kind not in ("postgres", "delta")  # a table has no order
        if self.kind == "kafka":
            create_topic(self.servers.broker.servers, self.key, 2)

    @property
    def place(self) -> Path:
        return self.root / self.name

    def connector(self) -> dict[str, Any]:
        text = {"format": "text" if self.raw else "json"}
        makes: dict[str, Callable[[], dict[str, Any]]] = {
            "files": lambda: {"path": str(self.place), **text},
            "lines": lambda: {"path": str(self.place), **text},
            "queue": lambda: {"path": str(self.place)},
            "delta": lambda: {"path": str(self.place)},
            "postgres": self._postgres,
            "kafka": lambda: {"servers": self.servers.broker.servers, "topic": self.key, "format": "payload"},
        }
        return {"id": self.name, "type": "destination", "plugin": self.kind, "settings": makes[self.kind]()}

    def _postgres(self) -> dict[str, Any]:
        url = self.servers.database.url
        return {"url": url, "table": self.key, "bookkeeping": "penstock_lab", "create": True}

    def chains(self) -> oracle.Chains:
        if self.kind == "postgres":
            return oracle.in_postgres(self.servers.database.url, self.key)
        if self.kind == "kafka":
            return oracle.in_kafka(self.servers.broker.servers, self.key)
        read = {"files": oracle.in_files, "lines": oracle.in_file, "queue": oracle.in_queue, "delta": oracle.in_delta}
        return read[self.kind](self.place)


class Servers:
    """Started when they are first asked for."""

    def __init__(self) -> None:
        self._database: Server | None = None
        self._broker: Broker | None = None

    @property
    def database(self) -> Server:
        self._database = self._database or Server()
        return self._database

    @property
    def broker(self) -> Broker:
        self._broker = self._broker or Broker()
        return self._broker

    def close(self) -> None:
        if self._broker is not None:
            self._broker.stop()


FUNCTION = '''\
import os
import random
import signal
from pathlib import Path

from penstock import Record, Reject, processor

ORDER = Path(__file__).with_name("kill")


@processor
def passes(r: Record) -> Record | Reject:
    """Kills whom the file says, once: the engine, or the process that this runs in. Of what has luck it refuses some, each time others."""
    mine = ORDER.with_name(f"kill-{os.getpid()}")
    try:
        ORDER.rename(mine)
    except FileNotFoundError:
        pass  # there is none, or another worker was faster
    else:
        os.kill(int(mine.read_text() or os.getpid()), signal.SIGKILL)
    if ":luck:" in str(r.after) and random.random() < 0.3:
        return Reject("no luck")
    return r
'''


@dataclass
class Scene(Case):
    """From files through a filter, a processor that refuses some, and perhaps a function, to one or more destinations."""

    kinds: Sequence[str] = ("files",)
    servers: Servers = field(default_factory=Servers)
    seed: int = 0
    raw: bool = False
    python: bool = False
    delete: bool = False  # files that are acked are deleted
    chained: bool = False  # the destination is a queue, and another pipeline brings it to where it is looked at
    tally: Tally = field(default_factory=Tally)
    files: int = 0
    off: tuple[str, ...] = ()  # safeguards that every life lacks
    broken: str = ""  # every life is that build

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.root.mkdir(parents=True, exist_ok=True)
        self.sinks = [
            Sink(f"{kind}{n}", kind, self.root, self.servers, raw=self.raw) for n, kind in enumerate(self.kinds)
        ]
        super().__post_init__()

    @property
    def queue(self) -> Path:
        return self.root / "queue"

    @property
    def queues(self) -> bool:
        return self.chained or "queue" in self.kinds

    def configure(self) -> None:
        column = "after" if self.raw else "after.line"
        typed = {} if self.raw else {"format": "csv", "header": False, "schema": "line STRING"}
        processors: list[dict[str, Any]] = [
            {"id": "some", "plugin": "filter", "condition": f"{column} LIKE '%:drop:%'"},
            {"id": "bad", "plugin": "error", "condition": f"{column} LIKE '%:bad:%'"},
        ]
        if self.python:
            (self.root / "functions.py").write_text(FUNCTION)
            settings = {"function": "functions:passes", "path": str(self.root)}
            processors.insert(1, {"id": "f", "plugin": "python", "settings": settings})
        source = {
            "id": "in",
            "type": "source",
            "plugin": "files",
            "settings": {"path": str(self.inp), **typed, **({"after-ack": "delete"} if self.delete else {})},
            "batch": {"max-files": 2},
        }
        first = [sink.connector() for sink in self.sinks]
        pipelines: list[dict[str, Any]] = []
        if self.chained:
            settings = {"path": str(self.queue)}
            queue = {
                "id": "in",
                "type": "source",
                "plugin": "queue",
                "settings": settings,
                "batch": {"max-records": 30},
            }
            pipelines = [{"id": "second", "connectors": [queue, *first]}]
            first = [{"id": "queue", "type": "destination", "plugin": "queue", "settings": settings}]
        pipeline = {
            "id": "p",
            "dead-letter-queue": {"window-size": 0},
            "connectors": [source, *first],
            "processors": processors,
        }
        document = {"version": "2.2", "pipelines": [pipeline, *pipelines]}
        (self.root / "p.yaml").write_text(json.dumps(document, indent=1))

    def start(self, **options: Any) -> Running:
        more = {**({"broken": self.broken} if self.broken else {}), **({"segment": SEGMENT} if self.queues else {})}
        if more:
            options["inside_given"] = {**options.get("inside_given", {}), **more}
        if "inside_given" in options:
            options["inside"] = "tests.lab.inside:Trouble"
        return super().start(off=self.off, **options)

    # -- what is given to it ---------------------------------------------------------------------------------------------------------------

    def issue(self, files: int = 1, lines: int = 20) -> None:
        for _ in range(files):
            n = self.chance.randrange(1, lines)
            self.write([self._fate(self.chance.random()) for _ in range(n)])

    def _fate(self, x: float) -> str:
        return "bad" if x < 0.03 else "drop" if x < 0.2 else "luck" if x > 0.9 and self.python else "go"

    def write(self, fates: Sequence[str], *, cut: bool = False) -> Path:
        """A file. One that is cut off can't be read: it counts as one record, which is bad."""
        strand = f"f{self.files:05d}"
        lines = self.tally.issue(strand, ["bad"] if cut else fates)
        text = "".join(f"{line}\n" for line in lines).encode()
        path = self.inp / f"{strand}.txt"
        if cut:
            packed = gzip.compress(random.Random(1).randbytes(4000).hex().encode())
            text, path = packed[: len(packed) // 2], self.inp / f"{strand}.txt.gz"
        aside = self.root / "aside"
        aside.write_bytes(text)
        os.utime(aside, (OLD + self.files,) * 2)
        aside.rename(path)
        self.files += 1
        return path

    # -- what there is ---------------------------------------------------------------------------------------------------------------------

    def look(self, *, ended: bool = False) -> dict[str, Verdict]:
        account = Account.of(self.state, "p")
        there = {path.name.partition(".")[0] for path in self.inp.iterdir()}
        gone = {f"f{n:05d}" for n in range(self.files)} - there
        between = {
            line.rsplit(":", 2)[0] for chain in oracle.in_queue(self.queue) for line in chain
        }  # has been taken on
        found = {}
        for sink in self.sinks:
            name = "queue" if self.chained else sink.name
            try:
                letters, chains = oracle.dead_letters(self.state, name), sink.chains()
            except (ValueError, KeyError, struct.error) as e:  # rubbish where records were
                found[sink.name] = Verdict(corrupted=[str(e)[:300]])
                continue
            found[sink.name] = oracle.judge(
                self.tally,
                chains,
                letters,
                account,
                name,
                gone=gone,
                between=between,
                ordered=sink.ordered,
                ended=ended,
            )
        return found


SCENES: dict[str, dict[str, Any]] = {
    "files": {"kinds": ("files",), "raw": True},
    "lines": {"kinds": ("lines",)},
    "postgres": {"kinds": ("postgres",)},
    "queue": {"kinds": ("queue",), "python": True},
    "delta": {"kinds": ("delta",)},
    "kafka": {"kinds": ("kafka",)},
    "three": {"kinds": ("files", "lines", "files"), "python": True, "raw": True},
    "mixed": {"kinds": ("files", "postgres", "queue")},
    "deleting": {"kinds": ("files",), "delete": True},
    "chained": {"kinds": ("files",), "chained": True},
}


def scene(name: str, root: Path, gateway: Gateway, servers: Servers, seed: int) -> Scene:
    return Scene(root, gateway, servers=servers, seed=seed, **SCENES[name])
