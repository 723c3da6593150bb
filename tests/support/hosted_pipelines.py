"""Pipelines from hosted sources, inside the test's process: what `chaos` was told, what arrived, and destinations that can be held up."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.chaos.calls import append
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.engine.backoff import Backoff
from penstock.native import DeliveryId, Receipt, Refuse, Staged, Stop
from penstock.pipeline import Pipeline, run
from penstock.plugins.standalone import Standalone
from penstock.summary import Summary
from tests.support import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import Engine, LaneResult, PipelineResult

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
IDLE = 1.5  # seconds after which a run that ends by itself does so
QUICK = Backoff(first=0.01, tries=100)

PROGRAM = """#!{python}
import os, sys
os.environ.update({environment!r})
sys.path.insert(0, {root!r})
from dataclasses import replace
from {module} import {attribute} as connector
from penstock_sdk import serve
sys.exit(serve(replace(connector, name={name!r}, version="1.0.0")))
"""


def until(condition: Callable[[], Any], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


class Bench:
    """A folder with the state, the calls of each source in a file of its id, and the output of each destination in a folder of its id."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark = root, spark

    @property
    def state(self) -> Path:
        return self.root / "state"

    def log(self, source: str = "in", pipeline: str = "p") -> Path:
        return self.state / "logs" / f"{pipeline}.{source}"

    def chaos(self, p: Pipeline, id: str = "in", plugin: str = "chaos", **settings: Any) -> Pipeline:
        return p.source(id, plugin, **{"calls": self.root / f"{id}.calls", **settings})

    def pipeline(self, *, to: str = "json", **settings: Any) -> Pipeline:
        """From `in` to `out`."""
        return self.to(self.chaos(Pipeline("p"), **settings), format=to)

    def to(self, p: Pipeline, id: str = "out", **settings: Any) -> Pipeline:
        return p.destination(id, "files", path=self.root / id, **settings)

    def run(self, *pipelines: Pipeline, **options: Any) -> PipelineResult:
        """Until no source gives anything any more, or it fails. The first pipeline's result."""
        return self._run(pipelines, **options).pipelines[0]

    def finish(self, p: Pipeline, **options: Any) -> PipelineResult:
        """The same; it must end well."""
        return self._run([p], **options).raise_for_error().pipelines[0]

    def _run(self, pipelines: Any, **options: Any) -> Summary:
        given: dict[str, Any] = {"idle": IDLE, "backoff": QUICK, **options}
        return run(list(pipelines), spark=self.spark, state=self.state, **given)

    def start(self, p: Pipeline, **options: Any) -> Running:
        """Without an end unless told otherwise, in a thread."""
        return Running(lambda started: self._run([p], started=started, **{"once": False, **options}))

    # -- what happened -------------------------------------------------------------------------------------------------------

    def calls(self, source: str = "in", *methods: str) -> list[dict[str, Any]]:
        """In the order in which they were made; a last line that is being written is left out."""
        path = self.root / f"{source}.calls"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        made = [json.loads(line) for line in lines if line.endswith("\n")]
        return [call for call in made if not methods or call["method"] in methods]

    def acks(self, source: str = "in") -> list[int]:
        return [int(p) for call in self.calls(source, "ack") for p in call["positions"]]

    def opened(self, source: str = "in") -> list[str | None]:
        """With which positions."""
        return [call["position"] for call in self.calls(source, "open")]

    def read(self, source: str = "in") -> int:
        return sum(call["count"] for call in self.calls(source, "read"))

    def numbers(self, destination: str = "out") -> list[int]:
        return [n for _, n in self.files(destination)]

    def files(self, destination: str = "out") -> list[tuple[str, int]]:
        """File and number of every record that arrived, in order."""
        files = sorted(f for f in (self.root / destination).glob("*") if f.suffix in (".json", ".jsonl", ".txt"))
        return [(f.name, _number(line)) for f in files for line in f.read_text().splitlines()]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return oracle.rows(self.state, sql)


def _number(line: str) -> int:
    """Of a record of `chaos`, whichever way it is written."""
    found = json.loads(line) if line.startswith("{") else int(line)
    return int(found["n"] if isinstance(found, dict) else found)


class Running:
    """An engine in a thread of its own."""

    def __init__(self, body: Callable[[Callable[[Engine], None]], Summary]) -> None:
        self._engine: Engine | None = None
        self._summary: Summary | None = None
        self._error: BaseException | None = None
        self._body = body
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._summary = self._body(self._started)
        except BaseException as e:
            self._error = e

    def _started(self, engine: Engine) -> None:
        self._engine = engine

    def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        def seen() -> bool:
            ended = not self._thread.is_alive()
            return bool(condition()) or ended

        until(seen, what)
        assert condition(), f"{what} did not happen before it ended: {self._error or self._summary}"

    def request_stop(self) -> None:
        self.until(lambda: self._engine is not None)
        assert self._engine is not None
        self._engine.stop.request()

    def result(self) -> PipelineResult:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the engine did not end"
        if self._error is not None:
            raise self._error
        assert self._summary is not None
        return self._summary.pipelines[0]

    def stop(self) -> PipelineResult:
        self.request_stop()
        return self.result()


def lane(result: PipelineResult, source: str = "in") -> LaneResult:
    return next(found for found in result.lanes if found.source == source)


def remaining(result: PipelineResult, source: str = "in") -> int | None:
    """How many records a run said it has left."""
    found = lane(result, source).remaining
    return 0 if found is None else found.records


class Telling(FilesDestination):
    """Writes its commits down beside the calls of the source; waits for `gate`, takes `seconds`, and fails at commit `fail_at`."""

    def __init__(
        self,
        bench: Bench,
        id: str = "out",
        *,
        seconds: float = 0.0,
        fail_at: int = 0,
        format: str = "json",
        calls: str = "in",
    ) -> None:
        super().__init__(FilesDestinationSettings(path=str(bench.root / id), format=format), id)
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self._calls = bench.root / f"{calls}.calls"
        self._seconds, self._fail_at, self._commits = seconds, fail_at, 0

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        self._commits += 1
        if self._commits == self._fail_at:
            raise Stop(f"{self.destination_id} was told to fail")
        self.waiting.set()
        assert self.gate.wait(PATIENCE)
        time.sleep(self._seconds)
        receipt = super().commit(d, s, refuse)
        append(self._calls, [{"method": "commit", "destination": self.destination_id, "count": receipt.written}])
        return receipt


def installed(folder: Path, name: str, connector: str, **environment: str) -> str:
    """A connector written with the SDK, `module:attribute`, as a program in the plugins folder. Returns what a file calls it."""
    module, _, attribute = connector.partition(":")
    path = folder / f"{name}-program"
    given = {"python": sys.executable, "environment": environment, "root": str(ROOT), "name": name}
    path.write_text(PROGRAM.format(module=module, attribute=attribute, **given))
    path.chmod(0o755)
    Standalone().add(path)
    return f"standalone:{name}"
