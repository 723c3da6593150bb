"""A million records with a thousand bad ones: the processor is mended, everything is replayed, and the engine is killed again and again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.ledger import decisions
from penstock.ledger.look import Wanted
from tests.support.harness import Case, age
from tests.support.oracle import outputs
from tests.support.replaying import mended

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
KILLS = ("K2", "stage", "K6", "K7", "K6a", "K8", "ledger:done", "done")


def _issue(folder: Path, records: int) -> None:
    path = folder / "a.txt"
    with path.open("w") as f:
        f.writelines(f'{{"n": {n}}}\n' for n in range(records))
    age(folder)


def _there(folder: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for path in outputs(folder):
        with path.open() as f:
            found.update(json.loads(line)["n"] for line in f)
    return found


@pytest.mark.contract("C14", "X1", safeguard="replayed-with-done: its control is in tests/contract/test_replay.py")
@pytest.mark.parametrize("records", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_everything_comes_back_once_whatever_is_killed(make_case: MakeCase, records: int) -> None:
    case = make_case("case")
    _issue(case.inp, records)
    pipeline = "tests.support.replaying:million"
    case.finish(pipeline=pipeline)
    bad = [n for n in range(records) if n % 1000 == 7]
    assert case.rows("SELECT state, count(*) FROM nack GROUP BY 1") == [("open", len(bad))]
    mended(case.root).touch()
    assert decisions.replay(case.state / "ledger.db", [Wanted()], "start", {}) == {"p": len(bad)}
    kills = KILLS if records > 20_000 else KILLS[1::3]
    killed = sum(case.run(pipeline=pipeline, kill_at=point).killed for point in kills)
    print(f"{killed} kills; batches: {case.rows('SELECT lane, batch, state, records FROM snapshot ORDER BY 1, 2')}")
    assert killed >= len(kills) // 2
    case.finish(pipeline=pipeline)
    for name in ("one", "two"):
        there = _there(case.root / name)
        assert len(there) == records
        assert max(there.values()) == 1
    assert case.rows("SELECT state, count(*) FROM nack GROUP BY 1") == [("replayed", len(bad))]
