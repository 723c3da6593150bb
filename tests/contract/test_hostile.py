"""Hostile input (`penstock.testing.hostile`) through every format: each record ends as its case says, and the account holds.

All cases run once, in a few pipelines of one engine: a lot is the cases that a source can read with the same settings. What
is there afterwards is read with plain tools (`hostile_judge`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline import Pipeline, run
from penstock.testing import faults, hostile
from penstock.testing import hostile_judge as judge
from penstock.testing.hostile import Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = {"text": "text", "json": "text", "csv": "json", "parquet": "json"}  # the format of the other destination


@dataclass
class Lot:
    """Cases that one source can read, in folders of their own below `in`."""

    root: Path
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        for case in self.cases:
            hostile.write(case, self.root / "in" / case.name)

    @property
    def format(self) -> str:
        return self.cases[0].format

    @property
    def folders(self) -> dict[Path, Case]:
        return {self.root / "in" / case.name: case for case in self.cases}

    def pipeline(self, *, window: int = 0, max_files: int | None = None, alone: bool = False) -> Pipeline:
        first = self.cases[0]
        settings = {k.replace("-", "_"): v for k, v in first.settings.items()}
        batch = {**first.batch, **({"max-files": max_files} if max_files else {})}
        p = Pipeline(self.root.name).source(
            "in",
            "files",
            path=self.root / "in",
            format=self.format,
            recursive=True,
            settle="100ms",
            batch=batch,
            **settings,
        )
        p.destination("same", "files", path=self.root / "same", format=self.format)
        if not alone:
            more = {"compression": "gzip"} if SECOND[self.format] == "text" else {}
            p.destination("other", "files", path=self.root / "other", format=self._second(), **more)
        return p.dead_letter_queue("files", window=window, path=self.root / "queue", format="json")

    def _second(self) -> str:
        return "json" if "schema" in self.cases[0].settings else SECOND[self.format]

    def wrong(self, result: dict[str, Any], state: Path) -> list[str]:
        """At each destination, and in the queue."""
        if result["error"]:
            return [result["error"]]
        letters = judge.letters_of(state, self.root.name)
        found = []
        for name, counts in result["destinations"].items():
            if name not in ("same", "other"):
                continue
            format = self.format if name == "same" else self._second()
            payloads = judge.payloads_of(self.root / name, format)
            if format == "json" and ("schema" in self.cases[0].settings or self.format != "json"):
                payloads = [judge.parsed(line) for line in payloads]
            at: judge.At = "json" if format == "json" and self.format != "json" else "same"
            own = [x for x in letters if x["destination"] in ("", name)]
            said = {"read": result["sources"]["in"]["read"], **counts}
            found += [f"{name}: {w}" for w in judge.judge(self.folders, at, payloads, own, said)]
            found += [f"{name}: {w}" for w in judge.out_of_order(self.cases, at, payloads)]
        queued = sorted(judge.parsed(line)["id"] for line in judge.payloads_of(self.root / "queue", "json"))
        if queued != sorted(x["id"] for x in letters):
            found.append(f"the queue holds {len(queued)} dead letters, the state folder {len(letters)}")
        return found


def lots(root: Path, cases: Iterable[Case], *, each: bool = False) -> list[Lot]:
    groups: dict[Any, list[Case]] = {}
    for case in cases:
        damaged = any(isinstance(o, hostile.Unreadable) for found in case.outcomes.values() for o in found)
        key = (
            case.format,
            tuple(case.settings.items()),
            tuple(case.batch.items()),
            damaged,
        )  # cut out of small batches
        groups.setdefault(case.name if each else key, []).append(case)
    return [Lot(root / f"{group[0].format}{i}", tuple(group)) for i, group in enumerate(groups.values())]


def run_all(lots: Iterable[Lot], spark: SparkSession, state: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """All of them in one engine; the summary by pipeline."""
    summary = run([lot.pipeline(**options) for lot in lots], spark=spark, state=state)
    return {p["id"]: p for p in summary.to_json()["pipelines"]}


def fine(wrong: list[str]) -> None:
    assert not wrong, "\n".join(wrong)


NARROW = tuple(c for c in hostile.cases() if "5000" not in c.name)
WIDE = tuple(
    c for c in hostile.cases() if "5000" in c.name and c.format != "csv"
)  # that one takes a minute: with the long ones


@pytest.mark.contract(
    "X2", "C14", "S5", "T23", "C21", reason="outcomes are compared one by one; nothing is switched off"
)
@pytest.mark.parametrize("format", ["text", "json", "csv", "parquet"])
def test_every_record_of_every_case_ends_as_it_is_stated(tmp_path: Path, spark: SparkSession, format: str) -> None:
    made = lots(tmp_path, (c for c in NARROW if c.format == format))
    results = run_all(made, spark, tmp_path / "state")
    fine([w for lot in made for w in lot.wrong(results[lot.root.name], tmp_path / "state")])


@pytest.mark.contract("X2", reason="outcomes are compared one by one; nothing is switched off")
def test_five_thousand_columns_arrive(tmp_path: Path, spark: SparkSession) -> None:
    made = lots(tmp_path, WIDE)
    results = run_all(made, spark, tmp_path / "state", alone=True)
    fine([w for lot in made for w in lot.wrong(results[lot.root.name], tmp_path / "state")])


@pytest.mark.long
@pytest.mark.contract("X2", reason="outcomes are compared one by one; nothing is switched off")
def test_every_case_alone_ends_as_it_is_stated(tmp_path: Path, spark: SparkSession) -> None:
    """With one destination, and one file in a batch: other ways through the engine."""
    cases = hostile.cases(long=True)
    wrong = []
    for i in range(0, len(cases), 12):
        made = lots(tmp_path / str(i), cases[i : i + 12], each=True)
        results = run_all(made, spark, tmp_path / str(i) / "state", max_files=1, alone=True)
        wrong += [w for lot in made for w in lot.wrong(results[lot.root.name], tmp_path / str(i) / "state")]
    fine(wrong)


# -- a file that changes under the reader ---------------------------------------------------------------------------------------

CHANGING = ("text-crlf", "json-crlf", "csv-crlf", "csv-multi-bom", "parquet-plain")


@pytest.mark.contract("T23", reason="the control is in test_files.py; this is the same over every format")
@pytest.mark.parametrize(("change", "point"), [("deleted", "K2"), ("grown", "K2"), ("grown", "K6"), ("replaced", "K6")])
def test_a_file_that_changes_while_it_is_read_fails_its_batch_by_name(
    tmp_path: Path, spark: SparkSession, change: str, point: str
) -> None:
    """At K2 it is listed and not read, at K6 it is read and not prepared. Put back as it was, it is delivered."""
    made = lots(tmp_path, (c for c in hostile.cases() if c.name in CHANGING), each=True)
    paths = [next((lot.root / "in" / lot.cases[0].name).iterdir()) for lot in made]
    contents = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    def change_all() -> None:
        for path in paths:
            hostile.CHANGES[change](path)

    all_there = threading.Barrier(len(made), action=change_all)

    def hook(reached: str, _: str) -> None:
        if reached == point:
            all_there.wait(120)

    faults.install(hook)
    results = run_all(made, spark, tmp_path / "state")
    faults.install()
    for lot, path in zip(made, paths, strict=True):
        assert f"{path.name} changed after it was taken" in results[lot.root.name]["error"]
        assert judge.files_of(lot.root / "same") == judge.files_of(lot.root / "other") == []
    for path, (content, time) in contents.items():
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
    results = run_all(made, spark, tmp_path / "state")
    fine([w for lot in made for w in lot.wrong(results[lot.root.name], tmp_path / "state")])
