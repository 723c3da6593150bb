"""`penstock reconcile` as people and programs use it, on what `files`, `lines` and `queue` have really written: it agrees, and after plain
damage it says what is wrong. No Spark."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.frontier import frontier
from penstock.ledger import TargetRef
from penstock.native import DeliveryId, Finding, Witnessed
from penstock.reconcile import reconcile
from penstock.secrets import Secrets
from tests.support.reconciled import Delivered, findings, never, said
from tests.support.states import bytes_of, penstock

Make = Callable[..., Delivered]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Delivered] = []

    def build(plugin: str = "files", **settings: str) -> Delivered:
        settings = settings or {"path": str(tmp_path / {"files": "out", "lines": "out.txt", "queue": "q"}[plugin])}
        made.append(Delivered(tmp_path / ".penstock", plugin, settings))
        return made[-1]

    yield build
    for state in made:
        state.close()


def no_spark(*_: Any) -> Any:
    raise AssertionError("Spark is not needed")


# -- files ------------------------------------------------------------------------------------------------------------------------


def test_what_was_delivered_agrees_and_nothing_is_changed(make: Make, tmp_path: Path) -> None:
    state = make()
    for n in range(3):
        state.delivered(f"a{n}", f"b{n}", filtered=1)
    before = bytes_of(tmp_path)
    text = said(tmp_path, 0)
    assert "out: 9 read = 6 delivered + 3 filtered" in text
    assert "3 ranges of 1 strand: no gap, no overlap" in text
    assert "→ out (files), 3 deliveries\n    agrees     batches 1 to 3\n" in text
    assert text.endswith("nothing disagrees\n")
    assert bytes_of(tmp_path) == before


def test_a_file_that_is_gone_or_has_another_size_is_named(make: Make, tmp_path: Path) -> None:
    state = make()
    for n in range(3):
        state.delivered(f"line {n}")
    first, second, _ = sorted((tmp_path / "out").glob("*.txt"))
    first.unlink()
    second.write_text("")
    text = said(tmp_path, 1)
    assert f"MISSING    batch 1: {first.name} is not there" in text
    assert f"DIFFERS    batch 2: {second.name} has 0 bytes, and 7 were written" in text
    assert "agrees     batch 3" in text
    assert text.endswith("2 things do NOT agree\n")


def test_a_file_that_nobody_has_delivered_is_named(make: Make, tmp_path: Path) -> None:
    make().delivered("a")
    stray = tmp_path / "out" / "orders.in-000000000001-00000-bbbbbbbbbbbb.txt"
    stray.write_text("b\n")
    (tmp_path / "out" / "orders.other-000000000001-00000-bbbbbbbbbbbb.txt").write_text("another source's\n")
    assert findings(tmp_path, 1) == [("agrees", 1), ("extra", 1)]
    stray.rename(tmp_path / "out" / "orders.in-000000000001-00001-01aaaaaaaaaa.txt")  # a name of the delivery itself
    assert findings(tmp_path, 1) == [("extra", 1)]


def test_without_its_receipt_the_newest_is_in_doubt(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a")
    state.delivered("b")
    receipt = tmp_path / "out" / "_penstock" / "orders.in" / "receipt.json"
    receipt.write_text("{")
    assert findings(tmp_path, 1) == [("agrees", 1), ("differs", 2)]
    receipt.unlink()
    assert findings(tmp_path, 1) == [("agrees", 1), ("missing", 2)]


def test_a_folder_that_is_gone_is_said_once(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a")
    state.delivered("b")
    shutil.rmtree(tmp_path / "out")
    assert findings(tmp_path, 1) == [("missing", None)]


def test_a_batch_under_way_is_no_disagreement(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a")
    s, d, staged = state.prepared("b")
    assert findings(tmp_path, 0) == [("agrees", 1), ("waiting", 2)]
    assert "unfinished batch 2 is prepared, not yet at out" in said(tmp_path, 0)
    receipt = state.destination().commit(d, staged, never)
    assert findings(tmp_path, 0) == [("agrees", 1), ("visible", 2)]
    state.ledger.done(s, "out", receipt.to_json(), receipt.written, frontier)
    assert findings(tmp_path, 0) == [("agrees", 1), ("agrees", 2)]


def test_an_engine_that_goes_on_meanwhile_is_no_disagreement(make: Make, tmp_path: Path, monkeypatch: Any) -> None:
    """Between the look at the ledger and the question the engine delivers a batch: the receipt is of a delivery nobody knew."""
    from penstock.connectors.files.destination import FilesDestination

    state = make()
    state.delivered("a")
    asked: list[int] = []
    original = FilesDestination.witness

    def witness(self: FilesDestination, given: list[Witnessed], known: list[DeliveryId]) -> Iterator[Finding]:
        asked.append(len(given))
        if len(asked) < 3:
            state.delivered(f"more {len(asked)}")
        return original(self, given, known)

    monkeypatch.setattr(FilesDestination, "witness", witness)
    [report] = reconcile(state.folder.ledger, state.path, "orders", Secrets(), no_spark)
    assert asked == [1, 2, 3]
    assert report.wrong == 0
    next((tmp_path / "out").glob("*01-00000*")).unlink()
    asked.clear()
    [report] = reconcile(state.folder.ledger, state.path, "orders", Secrets(), no_spark)
    assert report.wrong == 1  # and what is really wrong is still said


def test_settings_that_have_changed_since_are_those_of_each_batch(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a")
    state.ref = replace(state.ref, settings={"path": str(tmp_path / "elsewhere")})
    state.delivered("b")
    assert said(tmp_path, 0).count("→ out (files), 1 delivery\n") == 2
    state.ref = replace(state.ref, settings={"path": str(tmp_path / "out"), "compression": "none"})
    state.delivered("c")  # to the same folder as the first one
    text = said(tmp_path, 0)
    assert text.count("→ out (files), 1 delivery\n") == 3


def test_rows_of_the_ledger_that_do_not_add_up_are_found(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a", "b")
    state.delivered("c")
    state.close()
    with sqlite3.connect(state.folder.ledger) as db:
        db.execute("UPDATE snapshot SET records = 3 WHERE batch = 1")
        db.execute("UPDATE total SET delivered = 9")
    text = said(tmp_path, 1)
    assert "DIFFERS    batch 1: out: 3 records came, and 2 have an outcome" in text
    assert "DIFFERS    out: 3 read ≠ 9 delivered" in text


# -- lines ------------------------------------------------------------------------------------------------------------------------


def test_the_file_of_lines_has_the_last_delivery_where_its_receipt_says(make: Make, tmp_path: Path) -> None:
    state = make("lines")
    state.delivered("a")
    state.delivered("b", "c")
    before = bytes_of(tmp_path)
    assert findings(tmp_path, 0) == [("agrees", 2)]
    assert bytes_of(tmp_path) == before
    with (tmp_path / "out.txt").open("a") as file:
        file.write("of somebody else\n")
    assert findings(tmp_path, 0) == [("agrees", 2)]


def test_a_file_of_lines_that_was_harmed_is_found(make: Make, tmp_path: Path) -> None:
    state = make("lines")
    state.delivered("a")
    state.delivered("b", "c")
    path = tmp_path / "out.txt"
    os.truncate(path, 3)
    assert "has 3 bytes, and it ends at byte 6" in said(tmp_path, 1)
    path.write_text("a\nb\nX\n")  # the same file: another one would have another inode
    assert findings(tmp_path, 1) == [("differs", 2)]
    path.unlink()
    assert findings(tmp_path, 1) == [("missing", 2)]


def test_a_file_of_lines_that_was_rotated_is_found_again(make: Make, tmp_path: Path) -> None:
    state = make("lines")
    state.delivered("a")
    (tmp_path / "out.txt").rename(tmp_path / "out.txt.1")
    assert findings(tmp_path, 0) == [("agrees", 1)]
    (tmp_path / "out.txt").write_text("")
    assert findings(tmp_path, 0) == [("agrees", 1)]
    (tmp_path / "out.txt.1").rename(tmp_path / "out.txt.1.gz")
    os.link(tmp_path / "out.txt", tmp_path / "keep")  # so that its inode is not given away
    (tmp_path / "out.txt.1.gz").unlink()
    (tmp_path / "out.txt.1.gz").write_text("packed")
    assert findings(tmp_path, 0) == []  # nobody can tell


# -- queue ------------------------------------------------------------------------------------------------------------------------


def test_a_queue_has_the_last_delivery_where_its_receipt_says(make: Make, tmp_path: Path) -> None:
    state = make("queue")
    state.delivered("a")
    state.delivered("b", "c")
    before = bytes_of(tmp_path)
    assert findings(tmp_path, 0) == [("agrees", 2)]
    assert bytes_of(tmp_path) == before


def test_a_queue_that_was_harmed_is_found(make: Make, tmp_path: Path) -> None:
    state = make("queue")
    state.delivered("a")
    older = tmp_path / "older"
    shutil.copytree(tmp_path / "q", older)
    state.delivered("b", "c")
    shutil.rmtree(tmp_path / "q")
    shutil.copytree(older, tmp_path / "q")  # put back from a copy
    assert "the log ends at offset 1, and it ends at 3" in said(tmp_path, 1)
    shutil.rmtree(tmp_path / "q")
    assert findings(tmp_path, 1) == [("differs", 2)]


# -- what can't be asked ----------------------------------------------------------------------------------------------------------


def test_a_variable_that_is_not_set_is_said_and_the_others_are_asked(make: Make, tmp_path: Path) -> None:
    state = make()
    state.delivered("a")
    state.ref = TargetRef("out", "files", {"path": "${NOWHERE_TO_GO}"})
    os.environ["NOWHERE_TO_GO"] = str(tmp_path / "hidden-place")
    try:
        state.delivered("b")
    finally:
        del os.environ["NOWHERE_TO_GO"]
    text = said(tmp_path, 0)
    assert "NOT ASKED" in text
    assert "NOWHERE_TO_GO" in text
    assert "agrees     batch 1" in text
    assert text.endswith("nothing disagrees; 1 destination could not be asked\n")
    found = said(tmp_path, 0, NOWHERE_TO_GO=str(tmp_path / "hidden-place"))
    assert "could not be asked" not in found


def test_values_that_came_by_reference_are_never_shown(make: Make, tmp_path: Path) -> None:
    os.environ["SECRET_FOLDER"] = place = str(tmp_path / "very-secret")
    try:
        state = make(path="${SECRET_FOLDER}")
        state.delivered("a")
    finally:
        del os.environ["SECRET_FOLDER"]
    shutil.rmtree(place)
    ended = penstock(tmp_path, "reconcile", "orders", SECRET_FOLDER=place)
    assert ended.returncode == 1
    assert "very-secret" not in ended.stdout + ended.stderr
    assert "the folder ${SECRET_FOLDER} is not there" in ended.stdout
    path = tmp_path / "a-file"
    path.write_text("")
    ended = penstock(tmp_path, "reconcile", "orders", "--json", SECRET_FOLDER=f"{path}/very-secret")
    assert "very-secret" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("plugin", ["log", "blackhole", "a.program:Destination"])
def test_a_destination_that_can_t_say_is_named_with_the_numbers_of_the_ledger(
    make: Make, tmp_path: Path, plugin: str
) -> None:
    state = make()
    state.delivered("a", "b")
    state.close()
    with sqlite3.connect(state.folder.ledger) as db:
        db.execute("UPDATE delivery SET plugin = ?, settings = '{}'", [plugin])
    text = said(tmp_path, 0)
    assert "out: 2 read = 2 delivered" in text
    assert "unknown" in text
    assert "asked" in text


def test_a_path_that_depends_on_where_one_stands_is_told(make: Make, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    make(path="./out").delivered("a")
    assert said(tmp_path, 0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended = penstock(elsewhere, "reconcile", "orders", "--state", "../.penstock")
    assert ended.returncode == 1
    assert f"its path, ./out, is taken from the folder in which this was started: {elsewhere}" in ended.stdout


# -- the command ------------------------------------------------------------------------------------------------------------------


def test_programs_get_one_object(make: Make, tmp_path: Path) -> None:
    make().delivered("a")
    found = json.loads(penstock(tmp_path, "reconcile", "orders", "--json").stdout)
    assert found["wrong"] == found["not_asked"] == 0
    [source] = found["sources"]
    assert source["batches"] == [1]
    assert source["destinations"] == [
        {
            "destination": "out",
            "plugin": "files",
            "kind": "destination",
            "deliveries": 1,
            "findings": [{"answer": "agrees", "wrong": False, "batch": 1, "text": ""}],
            "error": None,
        }
    ]


def test_a_pipeline_that_is_not_known_is_bad_usage(make: Make, tmp_path: Path) -> None:
    make().delivered("a")
    ended = penstock(tmp_path, "reconcile", "order")
    assert ended.returncode == 2
    assert "did you mean 'orders'?" in ended.stderr
    assert penstock(tmp_path, "reconcile").returncode == 2


def test_a_state_folder_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    assert penstock(tmp_path, "reconcile", "orders").returncode == 2
