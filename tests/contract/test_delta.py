"""`delta` in pipelines: killed at every step, checked by what the table's own log says. One Spark with Delta serves the whole file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import delta
from tests.support.harness import Case, Gateway

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
        batch: {{max-files: 2}}
      - id: out
        type: destination
        plugin: delta
        settings: {{path: {root}/out{more}}}
"""

# Of a MERGE what is not the same code as for an append.
CHECKS = "not TestUpsert or last_change or merge_of or shows_all or any_step or without_records"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with delta.server(tmp_path_factory.mktemp("delta")) as found:
        yield found


@dataclass
class Rows(Case):
    more: str = ""

    def configure(self) -> None:
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root, more=self.more))

    def found(self) -> list[str]:
        return sorted(line.rpartition(":")[0] for line in delta.rows(self.out, "line"))

    def left(self) -> list[str]:
        return delta.staged(self.out)


@pytest.fixture
def case(tmp_path: Path, gateway: Gateway) -> Rows:
    made = Rows(tmp_path / "case", gateway)
    made.issue(files=2)
    return made


@pytest.mark.contract("T10", safeguard="delta-rules")
def test_the_kit_and_all_that_needs_delta_in_its_own_process(gateway: Gateway) -> None:
    """The conformance kit for `append`, what differs of it for `upsert`, types, schemas, keys, names, rules, others that write."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/support/delta_inside.py",
        "-k",
        CHECKS,
    ]
    env = {**os.environ, "PENSTOCK_DELTA": json.dumps(gateway)}
    ended = subprocess.run(command, cwd=delta.ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]


@pytest.mark.crash
@pytest.mark.contract("C11", "C12", "C15", "C16", "C19", "X1", safeguard="receipt")
@pytest.mark.parametrize(
    ("point", "nth", "more"),
    [
        ("K6", 1, ""),  # staged, and a dead attempt is left
        ("K6a", 2, ""),  # prepared, and the table not touched
        ("K6a", 3, ""),  # the table has the commit, and the ledger does not know
        ("K6a", 3, ", mode: upsert, key: line"),
    ],
)
def test_who_is_killed_at_a_step_of_a_delivery_is_gone_on_for(case: Rows, point: str, nth: int, more: str) -> None:
    case.more = more
    case.configure()
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    there = nth == 3
    assert case.found() == (sorted(case.issued) if there else [])
    assert case.left()
    assert case.finish().summary["sources"]["in"]["acked"] == len(case.issued)
    assert case.found() == sorted(case.issued)
    assert case.left() == []


@pytest.mark.crash
def test_without_a_look_at_what_is_there_rows_come_twice(case: Rows) -> None:
    """The control."""
    off = ("receipt", "delta-note")
    assert case.run(kill_at="K6a", kill_nth=3, off=off).killed
    case.finish(off=off)
    assert len(case.found()) > len(case.issued)


@pytest.mark.usefixtures("gateway")  # which says so where the package can't be had
def test_the_command_line_fetches_delta_and_fills_a_table(tmp_path: Path) -> None:
    """With a Spark of its own: the package is resolved, and the table is as another start has left it."""
    case = Rows(tmp_path / "case")
    case.issue(files=1)
    events = [json.loads(line) for line in case.finish().out.splitlines()]
    assert case.found() == sorted(case.issued)
    assert [e["event"] for e in events].count("batch") == 1
