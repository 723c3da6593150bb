"""Records of one input file stay in order everywhere, whatever processors there are and however it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Pipeline
from penstock.pipeline import run
from tests.support import oracle
from tests.support.harness import Case, Gateway
from tests.support.outcomes import judge, write_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
PIPELINE = "tests.support.outcomes:every_kind"


def _in_order(case: Case, gateway: Gateway, files: int, lines: int) -> None:
    ids = write_json(case.inp, files, lines)
    case.gateway = None  # a JVM of its own, on other cores each time
    assert case.run(pipeline=PIPELINE, kill_at="K6", kill_nth=3, kill_group=True, cores=1).killed
    assert case.run(pipeline=PIPELINE, kill_at="K6a", kill_nth=5, kill_group=True, cores=4).killed
    case.gateway = gateway
    case.finish(pipeline=PIPELINE)
    drop = {i for i in ids if i.endswith(":13")}
    for name, filtered in (("one", drop), ("two", drop | {i for i in ids if i.endswith(":17")})):
        assert judge(ids, filtered, [], {name: case.root / name}) == []
    shared = set(ids) - drop - {i for i in ids if i.endswith(":17")}
    rows = [{r["id"]: r for r in _rows(case.root / name) if r["id"] in shared} for name in ("one", "two")]
    assert rows[0] == rows[1]


def _rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in oracle.delivered(folder)]


@pytest.mark.contract("S5", reason="order is a matter of names and partitions, not of a safeguard")
def test_every_kind_of_processor_keeps_the_order_of_each_file(make_case: MakeCase, gateway: Gateway) -> None:
    _in_order(make_case("case"), gateway, files=60, lines=300)


@pytest.mark.long
@pytest.mark.contract("S5", reason="the same with a million records")
def test_a_million_records_in_two_hundred_files_stay_in_order(make_case: MakeCase, gateway: Gateway) -> None:
    _in_order(make_case("case"), gateway, files=200, lines=5000)


@pytest.mark.contract("S5", reason="blocks of one file are read by several tasks, and sorted by size when read again")
@pytest.mark.parametrize("destinations", [1, 2])
def test_the_blocks_of_a_large_file_stay_in_order(tmp_path: Path, spark: SparkSession, destinations: int) -> None:
    """200 MB in one file: three blocks, of which the processed ones have other sizes than they had."""
    source = tmp_path / "in"
    source.mkdir()
    with (source / "a.txt").open("w") as f:
        for n in range(20_000):
            f.write(json.dumps({"id": n, "pad": "x" * 10_000 if n % 7 else ""}) + "\n")
    os.utime(source / "a.txt", (1_700_000_000,) * 2)
    p = Pipeline("p").source("in", "files", path=source).processor("decode", "json.decode")
    p.processor("small", "filter", condition="after.id > 5000 and after.id < 9000 and after.id % 2 = 0")
    p.processor("encode", "json.encode")
    names = [f"out{n}" for n in range(destinations)]
    for name in names:
        p.destination(name, "files", path=tmp_path / name)
    run([p], spark=spark, state=tmp_path / "state").raise_for_error()
    expected = [n for n in range(20_000) if not (5000 < n < 9000 and n % 2 == 0)]
    for name in names:
        assert [json.loads(line)["id"] for line in oracle.delivered(tmp_path / name)] == expected
        assert len(oracle.outputs(tmp_path / name)) == 3
