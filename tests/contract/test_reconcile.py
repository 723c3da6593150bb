"""`penstock reconcile` on what a real pipeline has delivered to every destination that can be asked: all of it agrees, also right after a
kill; and each one that is harmed by plain means is found, and no other. One Spark with Delta serves the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support import delta, kafka, kafka_cases, postgres
from tests.support.harness import Case, Gateway
from tests.support.states import penstock

pytestmark = pytest.mark.spark

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - id: in
        type: source
        plugin: files
        settings: {{path: {root}/in, format: csv, header: false, schema: line STRING}}
        batch: {{max-files: 1}}
      - {{id: files, type: destination, plugin: files, settings: {{path: {root}/out, format: json}}}}
      - {{id: rows, type: destination, plugin: files, settings: {{path: {root}/rows, format: parquet}}}}
      - {{id: lines, type: destination, plugin: lines, settings: {{path: {root}/out.txt, format: json}}}}
      - {{id: queue, type: destination, plugin: queue, settings: {{path: {root}/q}}}}
      - id: postgres
        type: destination
        plugin: postgres
        settings: {{url: "${{RECONCILE_URL}}", table: {table}, bookkeeping: b{table}, create: true}}
      - {{id: delta, type: destination, plugin: delta, settings: {{path: {root}/table}}}}
      - id: kafka
        type: destination
        plugin: kafka
        settings: {{servers: "{servers}", topic: {topic}, format: payload}}
      - {{id: nowhere, type: destination, plugin: blackhole}}
"""
ASKED = ("files", "rows", "lines", "queue", "postgres", "delta", "kafka")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with delta.server(tmp_path_factory.mktemp("delta")) as found:
        yield found


@dataclass
class Everywhere(Case):
    topic: str = ""

    def configure(self) -> None:
        self.topic = self.topic or kafka_cases.topic(2)
        given = {"root": self.root, "table": self.table, "servers": kafka.broker().servers, "topic": self.topic}
        (self.root / "p.yaml").write_text(PIPELINE.format(**given))

    @property
    def table(self) -> str:
        return f"reconciled{os.getpid()}"

    def reconciled(self, code: int) -> dict[str, list[dict[str, Any]]]:
        """Destination → its findings."""
        ended = penstock(self.root, "reconcile", "p", "--json", "--state", str(self.state))
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert os.environ["RECONCILE_URL"] not in ended.stdout + ended.stderr
        [source] = json.loads(ended.stdout)["sources"]
        assert [f for what in ("account", "ranges", "numbers") for f in source[what] if f["answer"] != "agrees"] == []
        assert [d["error"] for d in source["destinations"] if d["error"]] == []
        return {d["destination"]: d["findings"] for d in source["destinations"]}

    def newest(self, code: int, batch: int) -> dict[str, str]:
        """Destination → what it says of a batch."""
        found = self.reconciled(code)
        return {name: f["answer"] for name in ASKED for f in found[name] if f["batch"] == batch}

    def wrong(self) -> dict[str, list[str]]:
        """Destinations of which something is wrong."""
        found = {name: [f["text"] for f in told if f["wrong"]] for name, told in self.reconciled(1).items()}
        return {name: told for name, told in found.items() if told}


def test_everything_agrees_until_it_is_harmed(
    tmp_path: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONCILE_URL", postgres.url())
    case = Everywhere(tmp_path / "case", gateway)
    case.issue(files=2, lines=20)
    case.finish()
    assert case.newest(0, 2) == dict.fromkeys(ASKED, "agrees")
    assert {
        name: f["answer"] for name in ("files", "rows", "delta") for f in case.reconciled(0)[name]
    } == dict.fromkeys(("files", "rows", "delta"), "agrees")

    case.issue(files=1, lines=20)
    assert case.run(kill_at="K8").killed  # every destination has it, and the ledger knows of none
    assert case.newest(0, 3) == dict.fromkeys(ASKED, "visible")
    assert case.newest(0, 2)["files"] == "agrees"
    case.finish()
    assert case.newest(0, 3) == dict.fromkeys(ASKED, "agrees")

    note = next((case.state / "places").rglob("last.json"))  # it saves time, and is not the truth
    note.rename(note.with_name("aside"))
    assert case.newest(0, 3)["kafka"] == "agrees"
    note.with_name("aside").rename(note)

    harmed: dict[str, str] = {}
    for harms in ROUNDS:
        for name, (harm, words) in harms.items():
            harm(case)
            harmed[name] = words
        found = case.wrong()
        assert found.keys() == harmed.keys()
        for name, words in harmed.items():
            assert words in found[name][-1], (name, found[name])


def _overwrite_a_file(case: Everywhere) -> None:
    path = sorted((case.root / "rows").glob("*.parquet"))[0]
    path.write_bytes(bytes(path.stat().st_size))  # as large as it was


def _truncate_the_log(case: Everywhere) -> None:
    path = sorted((case.root / "q").glob("*.seg"))[-1]
    os.truncate(path, path.stat().st_size // 2)


def _delete_a_data_file(case: Everywhere) -> None:
    """One that the log names: Delta leaves out those without rows."""
    commits = sorted((case.root / "table" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    (case.root / "table" / unquote(next(a["add"]["path"] for a in actions if "add" in a))).unlink()


def _delete_the_last_commit(case: Everywhere) -> None:
    sorted((case.root / "table" / "_delta_log").glob("*.json"))[-1].unlink()


Harm = tuple[Callable[[Everywhere], object], str]
ROUNDS: list[dict[str, Harm]] = [
    {
        "files": (lambda case: sorted(case.out.glob("*.json*"))[0].unlink(), "is not there"),
        "queue": (_truncate_the_log, "is damaged at offset"),
        "postgres": (lambda case: postgres.run(f"TRUNCATE {case.table}"), "has 0 rows, and 20 were written"),
        "delta": (_delete_a_data_file, "of commit 1: "),
    },
    {
        "files": (lambda case: shutil.rmtree(case.out), "the folder"),
        "rows": (_overwrite_a_file, "can't be read"),
        "lines": (lambda case: os.truncate(case.root / "out.txt", 10), "has 10 bytes, and it ends at byte"),
        "postgres": (lambda case: postgres.run(f"DELETE FROM b{case.table}.delivery"), "delivery is not there"),
        "delta": (_delete_the_last_commit, "the table has no commit of it"),
        "kafka": (lambda case: kafka.delete_topic(kafka.broker().servers, case.topic), "not where they were written"),
    },
]
