"""A file that changes between two runs, with a batch prepared or open: nothing is lost, nothing doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import Case, Ended
from tests.support.outcomes import delivered, write_json

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]


def _file(case: Case, destinations: dict[str, str], processors: str = "") -> None:
    lines = [
        'version: "2.2"',
        "pipelines:",
        "  - id: p",
        "    connectors:",
        f"      - {{id: in, type: source, plugin: files, settings: {{path: {case.inp}}}, batch: {{max-files: 1}}}}",
    ]
    lines += [
        f"      - {{id: {name}, type: destination, plugin: files, settings: {{path: {case.root / folder}}}}}"
        for name, folder in destinations.items()
    ]
    (case.root / "p.yaml").write_text("\n".join([*lines, processors]) + "\n")


def _ids(folder: Path) -> list[str]:
    return [r["id"] for r in delivered(folder)]


def _killed_at(case: Case, point: str) -> list[str]:
    """Two destinations, the first of two batches left at a point."""
    ids = write_json(case.inp, 2, 10)
    _file(case, {"one": "one", "two": "two"})
    assert case.run(kill_at=point).killed
    return ids


def _staged(folder: Path) -> list[Path]:
    return [p for p in folder.glob("_penstock/*/*/**/*") if p.is_file() and p.name != "receipt.json"]


@pytest.mark.contract("S17", safeguard="prepared-settings")
def test_prepared_work_goes_where_it_was_prepared_for_and_new_work_elsewhere(make_case: MakeCase) -> None:
    for name, off in (("kept", ()), ("control", ("prepared-settings",))):
        case = make_case(name)
        ids = _killed_at(case, "K7")
        _file(case, {"one": "one", "two": "elsewhere"})
        ended = case.run(off=off)
        if off:
            assert ended.returncode != 0 or _ids(case.root / "two") != ids[:10]
            continue
        assert ended.returncode == 0, ended.err
        assert _ids(case.root / "one") == ids
        assert _ids(case.root / "two") == ids[:10]
        assert _ids(case.root / "elsewhere") == ids[10:]


@pytest.mark.contract("S17", reason="the refusal is what is shown; both ways out follow")
@pytest.mark.parametrize("way", ["finish", "abandon"])
@pytest.mark.parametrize("change", ["removed", "renamed"])
def test_a_destination_that_is_gone_with_prepared_work_is_an_error_with_two_ways_out(
    make_case: MakeCase, way: str, change: str
) -> None:
    case = make_case("case")
    ids = _killed_at(case, "K7")
    _file(case, {"one": "one"} if change == "removed" else {"one": "one", "other": "two"})
    refused = case.run()
    assert refused.returncode == 1
    assert "state.destination-gone" in refused.summary["error"]
    assert "--finish" in refused.summary["error"]
    assert "--abandon two" in refused.summary["error"]
    options: dict[str, Any] = {"finish": True} if way == "finish" else {"abandon": ("two",)}
    ended: Ended = case.finish(**options)
    assert _ids(case.root / "one") == ids
    expected = ids[:10] if way == "finish" else []
    assert _ids(case.root / "two") == expected + (ids[10:] if change == "renamed" else [])
    audit = case.rows(
        "SELECT what, json_extract(detail, '$.destination'), json_extract(detail, '$.records') FROM audit"
    )
    assert audit == ([] if way == "finish" else [("abandon", "two", 10)])
    counts = case.rows("SELECT delivered, discarded FROM total WHERE destination = 'two'")
    assert counts == [(10, 0) if way == "finish" else (0, 10)]
    assert case.rows("SELECT read, acked FROM lane") == [(20, 20)]
    assert ended.returncode == 0


@pytest.mark.contract("S17", safeguard="one-snapshot: see the campaign")
@pytest.mark.parametrize("point", ["K2", "K6"])
def test_unprepared_work_follows_the_new_file(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    ids = _killed_at(case, point)
    drop = "    processors: [{id: drop, plugin: filter, condition: \"after like '%:3%'\"}]"
    _file(case, {"one": "one", "three": "three"}, drop)
    case.finish()
    expected = [i for i in ids if ":3" not in i]
    assert _ids(case.root / "one") == _ids(case.root / "three") == expected
    assert _ids(case.root / "two") == []
    assert _staged(case.root / "two") == []  # what it had staged is gone too


@pytest.mark.contract("S17", safeguard="roll-forward: see the campaign")
def test_prepared_work_keeps_the_outcome_of_the_processors_it_was_prepared_with(make_case: MakeCase) -> None:
    case = make_case("case")
    ids = _killed_at(case, "K7")
    _file(case, {"one": "one", "two": "two"}, "    processors: [{id: drop, plugin: filter}]")
    case.finish()
    assert _ids(case.root / "one") == _ids(case.root / "two") == ids[:10]
    assert case.rows("SELECT delivered, filtered FROM total") == [(10, 10), (10, 10)]


@pytest.mark.contract("S17", safeguard="roll-forward: see the campaign")
def test_a_destination_that_is_added_starts_with_the_next_batch(make_case: MakeCase) -> None:
    case = make_case("case")
    ids = _killed_at(case, "K7")
    _file(case, {"one": "one", "two": "two", "three": "three"})
    case.finish()
    assert _ids(case.root / "one") == _ids(case.root / "two") == ids
    assert _ids(case.root / "three") == ids[10:]
