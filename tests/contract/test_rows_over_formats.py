"""Rows of the contract that were shown on lines of text, again over every format of `files`."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import Stop
from penstock.native import Delivery, NativeDestination, Receipt, Refuse
from penstock.testing import faults
from penstock_sdk.record import Record
from tests.contract.test_formats import numbers, read, write
from tests.support.harness import Case

pytestmark = pytest.mark.spark

FORMATS = ["json", "csv", "parquet"]
TYPES = "id BIGINT, name STRING, price DOUBLE"
MakeCase = Callable[..., Case]


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    yield
    faults.install()


def rows(low: int, high: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i}", "price": i / 4} for i in range(low, high)]


def ids(folder: Path) -> list[int]:
    return [int(r["id"]) for r in read(folder)]


def pipeline(tmp_path: Path, format: str, **settings: Any) -> Pipeline:
    typed: dict[str, Any] = {} if format == "parquet" else {"schema": TYPES}
    p = Pipeline("p").source(
        "in", "files", path=tmp_path / "in", format=format, **typed, **{"settle": "0s", **settings}
    )
    return p.destination("out", "files", path=tmp_path / "out", format=format)


@pytest.mark.contract("T22", reason="files are known by name, size and time: there is no watermark to switch off")
@pytest.mark.parametrize("format", FORMATS)
def test_a_late_old_file_is_read_and_a_changed_one_reported(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write(format, tmp_path / "in", rows(0, 3), "new")
    pipeline(tmp_path, format).run(spark, state=tmp_path / "state")
    old = write(format, tmp_path / "in", rows(3, 6), "old")
    os.utime(old, (time.time() - 30 * 86400,) * 2)
    pipeline(tmp_path, format).run(spark, state=tmp_path / "state")
    assert sorted(ids(tmp_path / "out")) == list(range(6))
    write(format, tmp_path / "in", rows(3, 9), "old")
    with pytest.raises(Stop, match=r"old.* has changed after it was read"):
        pipeline(tmp_path, format).run(spark, state=tmp_path / "state")


@pytest.mark.contract("T23", safeguard="unchanged: see test_files.py, this is the same over every format")
@pytest.mark.parametrize("how", ["gone", "grown", "replaced"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_changes_before_it_is_read_fails_its_batch(
    spark: SparkSession, tmp_path: Path, format: str, how: str
) -> None:
    path = write(format, tmp_path / "in", rows(0, 5))
    before = path.stat()

    def change(point: str, detail: str) -> None:
        if point != "K2" or not path.exists() or path.stat().st_mtime_ns != before.st_mtime_ns:
            return
        if how == "gone":
            path.unlink()
        else:
            write(format, tmp_path / "in", rows(0, 9) if how == "grown" else rows(5, 10))

    faults.install(hook=change)
    with pytest.raises(Stop, match="changed after it was taken"):
        pipeline(tmp_path, format).run(spark, state=tmp_path / "state")
    assert ids(tmp_path / "out") == []


@pytest.mark.contract("C21", safeguard="trap: see test_trap.py, this is the same over every format")
@pytest.mark.parametrize("format", FORMATS)
def test_an_expression_that_raises_costs_one_record(spark: SparkSession, tmp_path: Path, format: str) -> None:
    write(format, tmp_path / "in", rows(0, 10))
    p = pipeline(tmp_path, format).dead_letter_queue(window=0)
    p.processor("condition", "filter", condition="10 / (after.id - 3) > 1000")
    p.processor("value", "sql", expression="10 div (after.id - 5)", field=".Payload.After.price")
    assert numbers(p.run(spark, state=tmp_path / "state")) == (10, 8, 0, 2)
    assert ids(tmp_path / "out") == [i for i in range(10) if i not in (3, 5)]


def stamp(r: Record) -> Record:
    r.after["price"] = random.random()  # type: ignore[index]
    return r


def three_formats(folder: str) -> list[Pipeline]:
    root = Path(folder)
    p = Pipeline("p").source("in", "files", path=root / "in", format="json", settle="0s", batch={"max-files": 1})
    p.processor("stamp", stamp)
    for format in FORMATS:
        schema = {} if format == "json" else {"schema": TYPES}
        p.destination(format, "files", path=root / format, format=format, **schema)
    return [p]


@pytest.mark.contract("S14", safeguard="materialise, roll-forward: see test_guarantees.py")
@pytest.mark.parametrize("point", ["materialise", "K6", "K6a", "ledger:done"])
def test_destinations_of_every_format_hold_the_same_values(make_case: MakeCase, point: str) -> None:
    case = make_case("formats")
    for n in range(3):
        write("json", case.inp, rows(n * 10, n * 10 + 10), f"f{n}")
    assert case.run(pipeline=f"{__name__}:three_formats", kill_at=point, kill_nth=2).killed
    case.finish(pipeline=f"{__name__}:three_formats")
    found = {format: {int(r["id"]): float(r["price"]) for r in read(case.root / format)} for format in FORMATS}
    assert sorted(found["json"]) == list(range(30))
    assert found["json"] == found["csv"] == found["parquet"]
    assert all(len(read(case.root / format)) == 30 for format in FORMATS)


def parted(folder: str) -> list[Pipeline]:
    """Cut inside files, into folders by value, packed."""
    root = Path(folder)
    p = Pipeline("p").source("in", "files", path=root / "in", format="csv", schema=TYPES, settle="0s",
                             batch={"max-records": 8})  # fmt: skip
    p.destination("out", "files", path=root / "out" / "{after.name}", format="csv", compression="gzip")
    return [p.destination("all", "files", path=root / "all", format="parquet")]


@pytest.mark.contract(
    "S6", "C4", reason="the safeguards are those of test_named_points.py; this is other ways of writing"
)
@pytest.mark.parametrize("point", ["K2", "K6", "K7", "K6a", "K8"])
def test_a_kill_harms_neither_parts_nor_folders_nor_packed_files(make_case: MakeCase, point: str) -> None:
    case = make_case("parted")
    for n in range(2):
        write("csv", case.inp, [{**r, "name": f"n{r['id'] % 3}"} for r in rows(n * 20, n * 20 + 20)], f"f{n}")
    assert case.run(pipeline=f"{__name__}:parted", kill_at=point, kill_nth=2).killed
    assert case.run(pipeline=f"{__name__}:parted", kill_at=point, kill_nth=1).killed
    case.finish(pipeline=f"{__name__}:parted")
    assert ids(case.root / "all") == list(range(40))
    for name in range(3):
        assert ids(case.root / "out" / f"n{name}") == [i for i in range(40) if i % 3 == name]


class Slow(NativeDestination[None]):
    """Takes a batch, and lets the test look while it holds it."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(None, "slow")
        self._look = look

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        assert d.rows is not None
        self._look()
        return Receipt(d.rows.count())


@pytest.mark.contract("S10", reason="a batch at a time is how a lane is made; there is nothing to switch off")
@pytest.mark.parametrize("format", ["text", *FORMATS])
def test_a_source_is_read_no_faster_than_its_slowest_destination(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    for n in range(4):
        if format == "text":
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / "in" / f"{n}.txt").write_text(f"{n}\n" * 5)
        else:
            write(format, tmp_path / "in", rows(n * 5, n * 5 + 5), f"{n}")
    taken: list[int] = []
    held: list[int] = []

    def count(point: str, detail: str) -> None:
        if point == "K2":
            taken.append(len(taken))

    p = Pipeline("p").guarantee("at-least-once")
    p.source("in", "files", path=tmp_path / "in", format=format, settle="0s", batch={"max-files": 1})
    p.destination("slow", Slow(lambda: held.append(len(taken))))
    faults.install(hook=count)
    p.run(spark, state=tmp_path / "state")
    assert held == [1, 2, 3, 4]  # while a batch is being written no further one is even taken
