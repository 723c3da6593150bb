"""Rows of the contract about one batch: snapshot, attempt, delivery, recovery. Real children, really killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.harness import Case

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]


@pytest.mark.contract("C5", safeguard="one-snapshot and receipt: either alone is enough")
def test_a_delivery_that_is_committed_but_not_done_is_not_made_again(make_case: MakeCase) -> None:
    kept, control = make_case("kept"), make_case("control")
    for case, off in ((kept, ()), (control, ("one-snapshot", "receipt"))):
        case.issue(files=3)
        for nth in (1, 1, 1):
            assert case.run(kill_at="K8", kill_nth=nth, off=off).killed
        case.run(off=off)
    assert kept.verdict().clean, kept.verdict()
    assert control.verdict().duplicated


@pytest.mark.contract("C6", reason="the row itself is looked at; without it there is nothing to compare")
def test_the_positions_of_every_input_are_written_before_anything_is_read(make_case: MakeCase) -> None:
    case = make_case("case", max_files=3)
    case.issue(files=3)
    assert case.run(kill_at="K2").killed
    [(ranges,)] = case.rows("SELECT ranges FROM snapshot")
    taken = {strand: position for strand, position, _, _ in json.loads(ranges)["ranges"]}
    assert {Path(p).name for p in taken} == {p.name for p in case.inp.iterdir()}
    for strand, position in taken.items():
        stat = Path(strand).stat()
        assert position == {"size": stat.st_size, "mtime": stat.st_mtime_ns, "from": 0, "to": stat.st_size}
    assert not oracle.outputs(case.out)


@pytest.mark.contract(
    "C8", reason="the pure function has its own tests; here the same batch meets other code and processes"
)
def test_a_batch_keeps_its_hash_over_attempts_processes_and_changed_code(case: Case) -> None:
    case.issue(files=1)
    hashes = set()
    (case.root / "loses.py").write_text("def one(batch):\n    return batch.slice(1)\n")
    for n in range(4):  # two of the four fail instead of dying: three deaths would have the batch cut
        keeps = f"{{id: p{n}, plugin: filter, condition: \"after like 'nothing {n}%'\"}}"
        loses = f'{{id: p{n}, plugin: python, settings: {{function: "loses:one", batch: "true"}}}}'
        case.processors = f"    processors: [{keeps if n % 2 == 0 else loses}]"
        case.configure()
        ended = case.run(kill_at="K6" if n % 2 == 0 else None)
        assert ended.killed == (n % 2 == 0), ended.err
        hashes |= {p.name for p in (case.out / "_penstock" / "p.in").iterdir() if p.is_dir()}
    case.processors = ""
    case.configure()
    case.finish()
    [(stored,)] = case.rows("SELECT hash FROM delivery")
    assert hashes == {stored}
    assert [p.stem.rsplit("-", 1)[1] for p in oracle.outputs(case.out)] == [str(stored)[:12]]
    assert case.rows("SELECT count(*) FROM snapshot") == [(1,)]
    assert case.rows("SELECT max(number) FROM attempt") == [(5,)]
    assert case.verdict().clean


@pytest.mark.contract("C11", safeguard="staging")
@pytest.mark.parametrize("point", ["K6", "K7", "K6a"])
def test_nothing_is_visible_that_was_not_prepared_nor_half_a_file(make_case: MakeCase, point: str) -> None:
    kept, control = make_case("kept", max_files=3), make_case("control", max_files=3)
    for case, off in ((kept, ()), (control, ("staging",))):
        case.issue(files=3)
        assert case.run(kill_at=point, off=off).killed
    assert _unprepared(kept) == []
    if point == "K6":
        assert _unprepared(control) != []
    kept.finish()
    assert kept.verdict().clean, kept.verdict()
    assert all(name.split("-")[-1].startswith(hash_[:12]) for name, hash_ in _made(kept))


def _unprepared(case: Case) -> list[str]:
    """Visible files that no prepared manifest names, or that have another size than it says."""
    manifest: dict[str, int] = {}
    for (staged,) in case.rows("SELECT staged FROM delivery"):
        manifest |= {f["name"]: f["bytes"] for f in json.loads(staged)["manifest"]}
    return [p.name for p in oracle.outputs(case.out) if manifest.get(p.name) != p.stat().st_size]


def _made(case: Case) -> list[tuple[str, str]]:
    rows = case.rows("SELECT receipt, hash FROM delivery")
    return [(name, hash_) for receipt, hash_ in rows for name in json.loads(receipt)["made"]]


@pytest.mark.contract("C12", safeguard="roll-forward")
def test_prepared_work_is_rolled_forward_and_never_computed_again(make_case: MakeCase) -> None:
    staged = {}
    for name, off in (("kept", ()), ("control", ("roll-forward",))):
        case = make_case(name)
        case.issue(files=1)
        assert case.run(kill_at="K7").killed
        assert case.rows("SELECT state FROM snapshot") == [("prepared",)]
        assert not oracle.outputs(case.out)
        ended = case.run(off=off)
        staged[name] = ended.counts.get("stage", 0)
        if name == "kept":
            assert ended.returncode == 0, ended.err
            assert case.verdict().clean
    assert staged == {"kept": 0, "control": 1}


@pytest.mark.contract("C13", safeguard="roll-forward")
def test_a_batch_that_yields_nothing_is_recorded_and_not_run_again(make_case: MakeCase) -> None:
    jobs = {}
    for name, off in (("kept", ()), ("control", ("roll-forward",))):
        case = make_case(name, processors="    processors: [{id: all, plugin: filter}]")
        case.issue(files=10, lines=100)
        first = case.run(kill_at="K7", kill_nth=10)
        assert first.killed
        second = case.run(off=off)
        jobs[name] = first.counts["stage"] + second.counts.get("stage", 0)
        if name == "kept":
            assert second.returncode == 0, second.err
            assert case.rows("SELECT count(*), max(number) FROM attempt") == [(10, 1)]
            assert case.rows("SELECT delivered, filtered FROM total") == [(0, 1000)]
            assert case.rows("SELECT read, acked FROM lane") == [(1000, 1000)]
            assert not oracle.outputs(case.out)
    assert jobs == {"kept": 10, "control": 11}


ENDINGS = {
    "none": None,
    "snapshot": "K2",
    "staged, not prepared": "K6",
    "prepared, output absent": "K7",
    "prepared, output half there": "K6a",
    "prepared, output there": "K8",
    "done, not acked": "done",
}


@pytest.mark.contract("C16", safeguard="one-snapshot")
@pytest.mark.parametrize("ending", ENDINGS)
def test_recovery_ends_every_ending_the_same_way_also_when_it_is_killed(make_case: MakeCase, ending: str) -> None:
    case = make_case("case", max_files=2)
    case.issue(files=4)
    point = ENDINGS[ending]
    if point is not None:
        assert case.run(kill_at=point).killed
    unfinished = case.rows("SELECT count(*) FROM snapshot WHERE state <> 'done'") if point else [(0,)]
    ended = case.run(kill_at="K11")
    assert ended.killed == (unfinished != [(0,)]), ended.err
    case.finish()
    assert case.verdict().clean, case.verdict()
    assert case.rows("SELECT batch, state FROM snapshot ORDER BY batch") == [(1, "done"), (2, "done")]
    assert case.finish().counts.get("stage", 0) == 0


def test_a_prepared_delivery_whose_files_were_taken_away_since_is_done(case: Case) -> None:
    """A consumer may move files as soon as they appear; recovery asks the receipt, and never delivers twice."""
    case.issue(files=1)
    assert case.run(kill_at="K8").killed
    [taken] = oracle.outputs(case.out)
    taken.rename(case.root / "taken.txt")
    case.finish()
    assert oracle.outputs(case.out) == []


@pytest.mark.contract("C11", safeguard="receipt")
def test_the_receipt_says_that_a_delivery_is_there_when_its_files_no_longer_are(make_case: MakeCase) -> None:
    for name, off, code in (("kept", (), 0), ("control", ("receipt",), 1)):
        case = make_case(name)
        case.issue(files=1)
        assert case.run(kill_at="K8").killed
        [taken] = oracle.outputs(case.out)
        taken.unlink()
        assert case.run(off=off).returncode == code
