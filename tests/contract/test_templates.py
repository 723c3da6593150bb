"""What `penstock init` makes does what it says: its tests pass, and a run has exactly these numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import testblocks
from penstock.cli.init import TEMPLATES
from penstock.pipeline import Pipeline
from tests.support import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Numbers:
    read: int
    destinations: dict[str, tuple[int, int]]  # delivered and filtered
    dead: tuple[tuple[str, str, str], ...]  # node, code and reason of each dead letter


NUMBERS = {
    "orders": Numbers(
        12, {"out": (9, 2)}, (("decode", "json.invalid", "the payload is not JSON: Input data was truncated"),)
    ),
    "csv": Numbers(8, {"out": (6, 1)}, (("in", "schema.mismatch", "quantity"),)),
    "lines": Numbers(
        10, {"all": (7, 2), "errors": (2, 7)}, (("dated", "expect.failed", "a line begins with date and time"),)
    ),
    "python": Numbers(8, {"out": (6, 1)}, (("clean", "signup.email", "'dev at example.com' is no e-mail address"),)),
    "generator": Numbers(50, {"shown": (37, 13)}, ()),
}


# The orders that people are shown first.
TOTALS = {
    "o-01": 39.8,
    "o-02": 180,
    "o-04": 19.9,
    "o-05": 97.5,
    "o-06": 75.25,
    "o-08": 52.5,
    "o-09": 180,
    "o-11": 90,
    "o-12": 99.5,
}


def _init(folder: Path, name: str) -> Path:
    command = [str(Path(sys.executable).with_name("penstock")), "init", str(folder / name), "--template", name]
    subprocess.run(command, check=True, capture_output=True)
    return folder / name


def test_every_template_has_its_numbers_here() -> None:
    assert set(NUMBERS) == set(TEMPLATES)


def test_the_tests_of_every_template_pass_and_leave_nothing_behind(tmp_path: Path, spark: SparkSession) -> None:
    files = [_init(tmp_path, name) / "pipeline.yaml" for name in TEMPLATES]
    before = _files(tmp_path)
    verdicts = testblocks.run(Pipeline.from_files(files), spark=spark)
    assert [(v.pipeline, v.test, v.failures) for v in verdicts if not v.ok] == []
    assert len({v.pipeline for v in verdicts}) == len(TEMPLATES)
    assert {f for f in _files(tmp_path) if "__pycache__" not in f} == before


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_run_of_a_template_has_exactly_these_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, spark: SparkSession
) -> None:
    made = _init(tmp_path, name)
    monkeypatch.chdir(made)
    numbers = NUMBERS[name]
    [ran] = Pipeline.from_file("pipeline.yaml").run(spark).to_json()["pipelines"]
    assert [(s["read"], s["acked"]) for s in ran["sources"].values()] == [(numbers.read, numbers.read)]
    found = {i: (d["delivered"], d["filtered"]) for i, d in ran["destinations"].items()}
    assert found == numbers.destinations
    assert {d["dead_lettered"] for d in ran["destinations"].values()} == {len(numbers.dead)}
    nacks = oracle.rows(made / ".penstock", "SELECT node, code, error FROM nack")
    for (node, code, error), (wanted_node, wanted_code, part) in zip(nacks, numbers.dead, strict=True):
        assert (node, code) == (wanted_node, wanted_code)
        assert part in str(error)
    assert _outputs(made) == {i: n for i, (n, _) in numbers.destinations.items() if i != "shown"}
    if name == "orders":
        [file] = (made / "out").glob("*.txt")
        orders = [json.loads(line) for line in file.read_text().splitlines()]
        assert {order["id"]: order["total"] for order in orders} == TOTALS
    written = {Path(f).parts[0] for f in _files(made)} - {Path(f).parts[0] for f in TEMPLATES[name].files}
    ignored = (made / ".gitignore").read_text().split()
    assert written <= {entry.rstrip("/") for entry in ignored}  # and so nothing that a run makes is shown by git


def _outputs(folder: Path) -> dict[str, int]:
    """How many records each destination holds, counted with no help of Penstock's."""
    found: dict[str, int] = {}
    for path in (folder / "out").rglob("*"):
        if path.is_file() and "_penstock" not in path.parts:
            destination = path.parent.name
            found[destination] = found.get(destination, 0) + _count(path)
    return found


def _count(path: Path) -> int:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        rows: int = pq.ParquetFile(path).metadata.num_rows
        return rows
    return len(path.read_text().splitlines())


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
