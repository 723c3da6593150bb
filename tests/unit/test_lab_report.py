"""The page of the laboratory says what was found, what was missed, and what was not found out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.lab import controls, hosted, report, work
from tests.lab.__main__ import labour
from tests.lab.campaign import STEPS, Found
from tests.lab.report import Control


def _found(**more: object) -> Found:
    given = {
        "blows": Counter(K7=3, **{"power cut": 1}),
        "steps": Counter({"K7 prepared": 3}),
        "lives": 5,
        "records": 90,
    }
    return Found("files", 1, ("files",), **{**given, **more})  # type: ignore[arg-type]


def test_kills_are_counted_by_destination_by_step_and_by_kind() -> None:
    page = report.page("make crash N=4 SEED=1", [_found(), _found()], [], 2)
    assert "`make crash N=4 SEED=1`: 8 kills and 10 starts in 2 minutes, 180 records, no fault." in page
    assert "| `files` | 8 | 10 | 180 | 0 |" in page
    assert "| K7 prepared | 6 | 6 |" in page
    assert "| killed at a named point | 6 | 6 |" in page
    assert "| power cut | 2 | 2 |" in page


def test_a_step_that_was_missed_is_named() -> None:
    page = report.page("", [_found()], [], 1)
    assert "Steps that no kill has hit: " in page
    assert "K9 dead letters" in page
    whole = _found(steps=Counter(STEPS.values()))
    assert "Every step was hit." in report.page("", [whole], [], 1)


def test_every_kill_point_of_the_contract_is_counted_and_one_that_was_missed_is_named() -> None:
    blows = Counter({"K5 user code kills the engine": 2, "K7": 3, "host, K12 append torn": 1})
    steps = Counter({"K7 prepared": 3, "K12 append to a log": 1})
    page = report.page("", [_found(blows=blows, steps=steps)], [], 1)
    assert "K4 0, K5 2, K6 0, K6a 0, K7 3, K7a 0" in page
    assert "K12 1," in page, "the step and what was done to reach it are one kill"
    assert "**Not hit: K1, K2, K3, K4, K6, K6a, K7a, K8" in page
    assert "K20" not in page
    everything = Counter(dict.fromkeys(report.POINTS, 1))
    assert "Every one was hit." in report.page("", [_found(steps=everything, blows=everything)], [], 1)


def test_a_worker_that_ends_is_a_fault_of_its_piece_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    pieces = work.pieces(2, 1, ["files", "lines"])
    found = dict(labour(pieces, tmp_path, 1))
    assert found.keys() == set(pieces)
    assert all(f.faults == Counter(other=1) and "log.txt" in f.stories[0] for f in found.values())


def test_a_fault_is_told_with_its_story() -> None:
    page = report.page("", [_found(faults=Counter(missing=2), stories=["blow 3: files0: 2 missing"])], [], 1)
    assert "**faults: 2 missing**" in page
    assert "- files, seed 1: blow 3: files0: 2 missing" in page


def test_a_control_is_red_by_what_was_lost_and_not_by_an_error_of_the_laboratory() -> None:
    lost = Control("a", "files", _found(faults=Counter(missing=2), stories=["lost"]))
    failed = Control("b", "files", _found(faults=Counter(other=1), stories=["the campaign itself failed"]))
    clean = Control("c", "files", _found())
    test = Control("d", "", None, "tests/x.py")
    assert [report.red(c) for c in (lost, failed, clean, test)] == [True, False, False, True]
    page = report.page("", [], [lost, failed, clean, test], 1)
    assert "| a | files | found after 4 kills: missing |" in page
    assert "| c | files | **not found in 4 kills** |" in page
    assert "red in tests/x.py" in page


def test_every_scene_gets_kills_and_a_seed_of_its_own() -> None:
    pieces = work.pieces(1000, 7)
    assert {p.scene for p in pieces} == set(work.SHARES) == set(report.WHERE)
    assert abs(sum(p.kills for p in pieces) - 1000) < 15
    assert len({p.seed for p in pieces}) == len(pieces)
    assert pieces == work.pieces(1000, 7) != work.pieces(1000, 8)
    assert {p.scene for p in work.pieces(20, 7, ["kafka"])} == {"kafka"}
    assert all(p.kills for p in work.pieces(5, 7))


def test_every_safeguard_is_missed_here_or_has_a_control_among_the_tests() -> None:
    assert all(controls.others().values())


def test_what_a_worker_found_comes_back_as_it_was() -> None:
    found = _found(faults=Counter(missing=1), stories=["x"])
    assert work.from_json(work.to_json(found)) == found


def test_what_a_hosted_campaign_says_is_of_a_kind_of_the_page() -> None:
    said = {
        'an engine ended by itself, with 1: {"acked": 5, "error": "[log.damaged]"}': "does not go on",
        "waited for hosts to end": "does not go on",
        "3 are not at out, and the source was told so: [1, 2, 3]": "wrongly acked",
        "75 duplicated by 1 kills, more than 50 that were under way": "duplicated",
        "out: 2 missing": "missing",
        "something else": "other",
    }
    assert {words: hosted.kind_of(words) for words in said} == said
    assert set(hosted.KINDS.values()) <= set(report.FAULTS)
