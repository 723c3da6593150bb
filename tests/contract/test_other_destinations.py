"""What holds for `files` holds for `lines`, `queue`, `postgres` and `kafka`: epochs, nacks of the attempt that was prepared, tasks of a
dead one. And what they keep for themselves does not grow."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.log import Reader, Rows
from tests.support import kafka, kafka_cases, postgres
from tests.support.harness import SLOW, Case, Gateway

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KINDS = ("lines", "queue", "postgres", "kafka")
PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    dead-letter-queue: {{window-size: 0}}
    connectors:
      - id: in
        type: source
        plugin: files
        settings: {{path: {root}/in, format: csv, header: false, schema: after STRING}}
        batch: {{max-files: {max_files}}}
      - {{id: out, type: destination, plugin: {kind}, settings: {settings}}}
{processors}"""


@dataclass
class There(Case):
    kind: str = ""
    topic: str = ""

    def configure(self) -> None:
        if self.kind == "kafka":
            self.topic = self.topic or kafka_cases.topic(2)
            settings = f'{{servers: "{kafka.broker().servers}", topic: {self.topic}, format: payload}}'
        elif self.kind == "postgres":
            table = f"table: {self.table}, bookkeeping: b{self.table}"
            settings = f'{{url: "{postgres.url()}", {table}, create: true}}'
        else:
            settings = {"lines": f"{{path: {self.root}/out.txt, format: json}}", "queue": f"{{path: {self.root}/q}}"}[
                self.kind
            ]
        given = {"kind": self.kind, "settings": settings, "max_files": self.max_files, "processors": self.processors}
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root, **given))

    @property
    def table(self) -> str:
        return f"t{os.getpid()}_{self.root.parent.name}_{self.root.name}".lower().replace("-", "_")[-50:]

    def found(self) -> Counter[str]:
        """Who each record is."""
        return Counter(line.rpartition(":")[0] for line in self._lines())

    def _lines(self) -> list[str]:
        if self.kind == "lines":
            return [line.split('"')[3] for line in (self.root / "out.txt").read_text().splitlines()]
        if self.kind == "postgres":
            return [line for (line,) in postgres.rows(f"SELECT after FROM {self.table}")]
        if self.kind == "kafka":
            there = kafka.read_committed(kafka.broker().servers, self.topic)
            return [json.loads(m.value or b"")["after"] for m in there]
        with Reader(self.root / "q") as reader:
            records = [r for rows in reader.read(0) if isinstance(rows, Rows) for r in rows.records()]
        return [r.after["after"] for r in records if isinstance(r.after, dict)]

    def kept(self) -> list[str]:
        """What the destination has for itself."""
        if self.kind == "postgres":
            tables = postgres.rows("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", f"b{self.table}")
            counts = [(name, postgres.rows(f"SELECT count(*) FROM b{self.table}.{name}")[0][0]) for (name,) in tables]
            return [f"{name}: {n}" for name, n in counts]
        if self.kind == "kafka":
            return sorted(str(path.relative_to(self.state)) for path in (self.state / "places").rglob("*"))
        beside = self.root / {"lines": ".out.txt.penstock", "queue": ".q.penstock"}[self.kind]
        return sorted(str(path.relative_to(beside)) for path in beside.rglob("*"))


Make = Callable[..., There]


@pytest.fixture
def make(tmp_path: Path, gateway: Gateway) -> Make:
    def made(kind: str, **options: object) -> There:
        return There(tmp_path / kind, gateway, kind=kind, **options)  # type: ignore[arg-type]

    return made


@pytest.mark.contract(
    "X3", reason="the control is that of `files`: the epoch is in the hash, which destinations only compare"
)
@pytest.mark.contract("C15", reason="what the destination keeps is listed after one batch and after several")
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_state_folder_starts_a_new_life_and_bookkeeping_does_not_grow(make: Make, kind: str) -> None:
    case = make(kind, max_files=2)
    case.issue(files=1, lines=5)
    case.finish()
    kept = case.kept()
    case.issue(files=3, lines=5)
    case.finish()
    assert case.kept() == kept
    shutil.rmtree(case.state)
    case.issue(files=1, lines=5)
    case.finish()
    assert case.found() == Counter({i: 1 if i.startswith("f00004:") else 2 for i in case.issued})
    assert case.kept() == kept


ERROR = "    processors: [{id: bad, plugin: error, condition: \"after.after LIKE 'f00000:5:%'\"}]"


@pytest.mark.contract(
    "X4", reason="the control is that of `files`: nacks are kept by the ledger, whatever the destination"
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_delivery_keeps_the_nacks_of_the_attempt_that_was_prepared(make: Make, kind: str, reverse: bool) -> None:
    case = make(kind, processors="" if reverse else ERROR)
    case.issue(files=1, lines=10)
    assert case.run(kill_at="K8").killed
    case.processors = ERROR if reverse else ""
    case.configure()
    case.finish()
    bad = [i for i in case.issued if i == "f00000:5"]
    assert case.found() == Counter(i for i in case.issued if reverse or i not in bad)
    assert case.rows("SELECT count(*) FROM nack") == [(0 if reverse else len(bad),)]


@pytest.mark.contract(
    "X5", "X2", reason="the control is that of `files`; here each destination's own staging is written by two at once"
)
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_a_dead_attempt_do_no_harm(make: Make, kind: str) -> None:
    case = make(kind, max_files=12, processors=SLOW.replace("after", "after.after"))
    case.issue(files=12, lines=60)
    first = case.start(off=("rehearse",))
    assert first.await_point("stage")
    time.sleep(0.5)  # its tasks have begun
    first.kill(group=False)
    second = case.finish(off=("rehearse",))
    assert case.found() == Counter(case.issued)
    assert second.summary["sources"]["in"]["acked"] == len(case.issued)
