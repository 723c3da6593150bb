"""A record that kills the process every time costs one dead letter, not the pipeline."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import Case, age
from tests.support.outcomes import dead, delivered, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
BAD = "f00000:4321"

PLAIN = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
    dead-letter-queue: {{window-size: 0}}
"""

HEAP = (
    PLAIN
    + """\
    processors:
      - id: eat
        plugin: filter
        condition: "after like '%{bad}\\"%' and length(repeat(after, 60000000)) = 7"
"""
)


@pytest.mark.contract("S16", safeguard="isolate")
@pytest.mark.parametrize("lines", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_record_that_aborts_the_python_worker_is_isolated(make_case: MakeCase, lines: int) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 1, lines)
    bad = lines * 4 // 10 + 21
    (case.root / "bad.txt").write_text(f"f00000:{bad}")
    ended = case.finish(pipeline="tests.support.outcomes:aborting")
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i != f"f00000:{bad}"]
    [letter] = _letters(case)
    assert letter["code"] == "batch.killed"
    assert letter["given"] is None
    assert str(letter["position"]).endswith(f"f00000.txt#{bad}'")
    assert ended.summary["destinations"]["out"]["dead_lettered"] == 1
    assert case.rows("SELECT read, acked FROM lane") == [(lines, lines)]

    control = make_case("control")
    write_json(control.inp, 1, lines)
    (control.root / "bad.txt").write_text(f"f00000:{bad}")
    ended = control.run(pipeline="tests.support.outcomes:aborting", off=("isolate",))
    assert ended.returncode == 1
    assert "spark.worker-died" in ended.summary["error"]
    assert delivered(control.root / "out") == []


@pytest.mark.contract("S16", "T23", reason="the same file is one dead letter without kills")
def test_a_file_that_cannot_be_read_is_a_dead_letter_also_when_it_was_killed_three_times(make_case: MakeCase) -> None:
    """Then it looks like a batch that kills, and is read to find its middle."""
    case = make_case("case")
    (case.root / "p.yaml").write_text(PLAIN.format(root=case.root))
    packed = gzip.compress(random.Random(1).randbytes(4000).hex().encode())
    (case.inp / "a.txt.gz").write_bytes(packed[: len(packed) // 2])
    age(case.inp)
    for _ in range(3):
        assert case.run(kill_at="stage").killed
    case.finish()
    assert [letter["code"] for letter in _letters(case)] == ["files.unreadable-file"]
    assert case.rows("SELECT read, acked FROM lane") == [(1, 1)]


def _letters(case: Case) -> list[dict[str, object]]:
    return dead(case.state)


def _exhausts_the_heap(case: Case, lines: int, bad: str) -> None:
    """The JVM dies, the engine ends with exit 1 and names the batch; after three deaths the batch is cut."""
    ids = write_json(case.inp, 1, lines)
    (case.root / "p.yaml").write_text(HEAP.format(root=case.root, bad=bad))
    deaths = 0
    while (ended := case.run(arguments=("--once", "--conf", "spark.driver.memory=700m"))).returncode != 0:
        deaths += 1
        assert "spark.died" in ended.out or "spark.died" in ended.err, ended.out + ended.err
        assert deaths < 40
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i != bad]
    [letter] = _letters(case)
    assert letter["code"] == "batch.killed"
    assert deaths >= 3


@pytest.mark.contract("S16", safeguard="isolate")
def test_a_record_that_exhausts_the_heap_is_isolated(tmp_path: Path) -> None:
    _exhausts_the_heap(Case(tmp_path / "case"), 4, "f00000:2")


@pytest.mark.long
@pytest.mark.contract("S16", safeguard="isolate")
def test_a_record_of_ten_thousand_that_exhausts_the_heap_is_isolated(tmp_path: Path) -> None:
    _exhausts_the_heap(Case(tmp_path / "case"), 10_000, BAD)


@pytest.mark.contract("S16", safeguard="gate")
def test_a_record_that_kills_goes_through_the_gate_like_any_other(make_case: MakeCase) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 1, 100)
    (case.root / "bad.txt").write_text("f00000:43")
    ended = case.run(pipeline="tests.support.outcomes:aborting_without_room")
    assert ended.returncode == 1
    assert "gate.closed" in ended.summary["error"]
    assert [r["id"] for r in delivered(case.root / "out")] == ids[:43]
    assert [n for (n,) in case.rows("SELECT state FROM nack")] == ["held"]
    case.finish(pipeline="tests.support.outcomes:aborting")
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i != "f00000:43"]


@pytest.mark.parametrize("point", ["K3", "K4", "K9"])
def test_deaths_while_a_batch_is_cut_cost_nothing(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    ids = write_json(case.inp, 2, 16)
    (case.root / "bad.txt").write_text("f00000:11")
    for nth in (1, 2):
        case.run(pipeline="tests.support.outcomes:aborting", kill_at=point, kill_nth=nth)
    case.finish(pipeline="tests.support.outcomes:aborting")
    assert [r["id"] for r in delivered(case.root / "out")] == [i for i in ids if i != "f00000:11"]
    assert len(_letters(case)) == 1
