"""Hostile input with the default gate: the pipeline stops at the first bad record, says which and what to do, has delivered
what comes before it and nothing behind it; and with `window-size: 0` it goes on from there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import hostile
from penstock.testing import hostile_judge as judge
from penstock.testing.hostile import Case, Delivered, Nacked, Unreadable
from tests.contract.test_hostile import Lot, fine, lots, run_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# One of each kind, and those where something good stands before or behind the bad.
STOPPED = (
    "text-too-large",
    "json-cut-off",
    "json-no-objects",
    "json-invalid-utf8",
    "json-deep",
    "json-schema-bigint",
    "csv-ragged",
    "csv-unclosed",
    "csv-invalid-utf8",
    "csv-header-twice",
    "csv-schema-bigint",
    "csv-multi-ragged",
    "csv-packed",
    "parquet-damaged",
)


def before_the_first_bad(case: Case) -> tuple[list[Any], str, int | None]:
    """What is delivered, and the file and place of what is not; files come in the order of their times."""
    delivered: list[Any] = []
    first = 1 if case.format == "csv" else 0  # the header has place 0
    for name, outcomes in case.outcomes.items():
        for place, outcome in enumerate(outcomes, first):
            if isinstance(outcome, Nacked | Unreadable):
                return delivered, name, place if isinstance(outcome, Nacked) else None
            if isinstance(outcome, Delivered):
                delivered.append(judge.frozen(outcome.payload))
    raise AssertionError(f"{case.name} has nothing bad")


def held_back(lot: Lot, result: dict[str, Any]) -> list[str]:
    """What is wrong with a stop."""
    [case] = lot.cases
    expected, name, place = before_the_first_bad(case)
    found = [f"{case.name}: not stopped"] if not result["error"] else []
    where = f"{name}#{place}" if place is not None else name
    error = result["error"] or ""
    found += [
        f"{case.name}: the error does not say {w!r}: {error}" for w in (where, "dead-letter-queue") if w not in error
    ]
    payloads = judge.payloads_of(lot.root / "same", lot.format)
    if case.format == "json" and "schema" in case.settings:
        payloads = [judge.parsed(line) for line in payloads]
    there = Counter(map(judge.frozen, payloads))
    if there != Counter(expected):
        found.append(f"{case.name}: delivered {judge.shown(there)}, not {judge.shown(expected)}")
    return found


@pytest.mark.contract(
    "X2", "C14", reason="the gate's own control is in test_outcomes.py; this is the same over every format"
)
def test_the_default_gate_stops_at_the_bad_record_and_goes_on_with_room(tmp_path: Path, spark: SparkSession) -> None:
    chosen = [c for c in hostile.cases() if c.name in STOPPED]
    assert len(chosen) == len(STOPPED)
    made = lots(tmp_path, chosen, each=True)
    results = run_all(made, spark, tmp_path / "state", window=1, alone=True)
    fine([w for lot in made for w in held_back(lot, results[lot.root.name])])
    again = run_all(made, spark, tmp_path / "state", window=0, alone=True)
    fine([f"{lot.cases[0].name}: {e}" for lot in made if (e := again[lot.root.name]["error"])])
    for lot in made:  # the summary of the second run has what was left
        parts = [r[lot.root.name] for r in (results, again)]
        again[lot.root.name]["sources"]["in"]["read"] = sum(p["sources"]["in"]["read"] for p in parts)
        for name, counts in again[lot.root.name]["destinations"].items():
            earlier = results[lot.root.name]["destinations"].get(name, {})
            counts.update({k: n + earlier.get(k, 0) for k, n in counts.items()})
    fine([w for lot in made for w in lot.wrong(again[lot.root.name], tmp_path / "state")])
