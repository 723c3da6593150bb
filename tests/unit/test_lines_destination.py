"""`lines` as a destination, from the manifest on: what is appended, once, whatever dies; and that nothing of others is touched."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.connectors.lines import appending
from penstock.connectors.lines.destination import LinesDestination
from penstock.connectors.lines.destination_settings import LinesDestinationSettings
from penstock.errors import AccountError, Stop
from penstock.native import Delivery, DeliveryId, Receipt, Refusal, Staged
from penstock.testing import faults

STEPS = ["begun", "chunk", "appended", "noted"]


class Killed(BaseException):
    pass


@contextmanager
def killed_at(step: str, nth: int = 1) -> Iterator[None]:
    """The process ends there, as far as anybody can tell."""
    seen = []

    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("K6a", step):
            seen.append(detail)
            if len(seen) == nth:
                raise Killed

    faults.install(hook)
    try:
        yield
    finally:
        faults.install()


def made(path: Path) -> LinesDestination:
    found = LinesDestination(LinesDestinationSettings(path=str(path)), "out")
    found.check()
    return found


def delivery(batch: int = 1, lane: str = "in", fence: int = 3) -> DeliveryId:
    return DeliveryId("p", lane, "out", batch, f"{lane}{batch}".ljust(32, "0"), fence, 7)


def stage(out: LinesDestination, d: DeliveryId, *texts: str, attempt: str = "a") -> Staged:
    """What `stage` leaves, made by hand."""
    found = Delivery(**vars(d), attempt=1, attempt_id=attempt)
    folder = out.staging_folder(found)
    folder.mkdir(parents=True)
    paths = [folder / f"part-{n:05}-x.txt" for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return out.adopt(found, paths, sum(t.count("\n") for t in texts), sum(len(t.encode()) for t in texts))


def never(refusal: Refusal) -> bool:
    raise AssertionError(refusal)


def beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.penstock")


def test_deliveries_are_appended_one_behind_the_other(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.txt"
    out = made(path)
    for batch, texts in ((1, ("a\nb\n", "c\n")), (2, ("d\n",)), (3, ())):
        d = delivery(batch)
        s = stage(out, d, *texts)
        before = path.read_text()
        assert out.find(d) is None
        receipt = out.commit(d, s, never)
        assert path.read_text() == before + "".join(texts)
        assert out.find(d) == receipt == Receipt(s.rows, made=(str(path),))
    assert sorted(p.name for p in beside(path).rglob("*")) == ["lock", "p.in", "receipt.json"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_who_dies_at_any_step_is_gone_on_for(
    tmp_path: Path, step: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "CHUNK", 3)
    path = tmp_path / "out.txt"
    path.write_text("not ours\n")
    out, d = made(path), delivery()
    s = stage(out, d, "one\ntwo\n", "three\n")
    with killed_at(step, nth):
        try:
            out.commit(d, s, never)
        except Killed:
            assert path.read_text().startswith("not ours\n")
    again = made(path)
    if again.find(d) is None:
        again.commit(d, s, never)
    assert path.read_text() == "not ours\none\ntwo\nthree\n"
    assert not (beside(path) / "journal.json").exists() or again.find(d) is not None
    later = delivery(2)
    again.commit(later, stage(again, later, "four\n"), never)
    assert path.read_text() == "not ours\none\ntwo\nthree\nfour\n"
    assert not (beside(path) / "journal.json").exists()


def test_recovery_of_a_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "CHUNK", 2)
    path = tmp_path / "out.txt"
    out, d = made(path), delivery()
    s = stage(out, d, "".join(f"{n}\n" for n in range(10)))
    for _ in range(12):
        with killed_at("chunk"):
            try:
                made(path).commit(d, s, never)
            except Killed:
                continue
            break
    assert path.read_text() == "".join(f"{n}\n" for n in range(10))


def test_another_lane_finishes_what_a_dead_one_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write to one file, and whoever comes first after the crash has to."""
    monkeypatch.setattr(appending, "CHUNK", 2)
    path = tmp_path / "out.txt"
    out, first, second = made(path), delivery(1, "in"), delivery(1, "other")
    staged = stage(out, first, "aa\nbb\n")
    with killed_at("chunk", 2), pytest.raises(Killed):
        out.commit(first, staged, never)
    after = made(path)
    after.commit(second, stage(after, second, "cc\n"), never)
    assert path.read_text() == "aa\nbb\ncc\n"
    assert after.find(first) == Receipt(2, made=(str(path),))
    assert after.commit(first, staged, never) == Receipt(2, made=(str(path),))
    assert path.read_text() == "aa\nbb\ncc\n"


def test_many_lanes_append_at_the_same_time_and_each_delivery_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def write(lane: str) -> None:
        out = made(path)
        for batch in range(10):
            d = delivery(batch, lane)
            out.commit(d, stage(out, d, *(f"{lane} {batch} {i}\n" for i in range(5))), never)

    threads = [threading.Thread(target=write, args=[f"lane{n}"]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 200
    for n in range(4):
        own = [line for line in lines if line.startswith(f"lane{n} ")]
        assert own == [f"lane{n} {batch} {i}" for batch in range(10) for i in range(5)]
    whole = [lines[i : i + 5] for i in range(0, 200, 5)]
    assert all(len({line.rpartition(" ")[0] for line in found}) == 1 for found in whole)


def test_a_file_that_ends_without_a_line_break_gets_one_first(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("by hand")
    out, d = made(path), delivery()
    s = stage(out, d, "ours\n")
    with killed_at("chunk"), pytest.raises(Killed):
        out.commit(d, s, never)
    made(path).commit(d, s, never)
    assert path.read_text() == "by hand\nours\n"


# -- what others do to the file ----------------------------------------------------------------------------------------------


def begun(path: Path, chunks: int) -> tuple[DeliveryId, Staged]:
    """A delivery of which so many bytes are appended."""
    out, d = made(path), delivery()
    s = stage(out, d, "abcdef\n")
    with killed_at("chunk", chunks) if chunks else killed_at("begun"), pytest.raises(Killed):
        out.commit(d, s, never)
    return d, s


@pytest.fixture(autouse=True)
def _bytewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "CHUNK", 1)


@pytest.mark.contract("T21", reason="the files are compared byte by byte before and after")
@pytest.mark.parametrize("chunks", [0, 3])
@pytest.mark.parametrize("what", ["rotated", "replaced", "removed", "truncated", "changed", "appended"])
def test_nothing_of_others_is_touched_when_the_file_has_changed_before_recovery(
    tmp_path: Path, what: str, chunks: int
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("before\n")
    d, s = begun(path, chunks)
    old = path.read_bytes()
    match what:
        case "rotated":
            path.rename(tmp_path / "out.txt.1")
        case "replaced":
            path.rename(tmp_path / "out.txt.1")
            path.write_text("before\nsomebody else's\n")
        case "removed":
            path.unlink()
        case "truncated":
            os.truncate(path, 3)
        case "changed":
            path.write_bytes(b"BEFORE\n" + old[7:])
        case "appended":
            with path.open("ab") as file:
                file.write(b"by hand\n")
    there = {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    with pytest.raises(Stop) as stopped:
        made_again(path).commit(d, s, never)
    assert stopped.value.code == "lines.changed"
    assert str(path) in str(stopped.value)
    assert {p: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == there
    if what == "rotated":  # put back, it goes on
        (tmp_path / "out.txt.1").rename(path)
        made(path).commit(d, s, never)
        assert path.read_text() == "before\nabcdef\n"


def made_again(path: Path) -> LinesDestination:
    """Without `check`, which makes the file."""
    return LinesDestination(LinesDestinationSettings(path=str(path)), "out")


@pytest.mark.contract("T21", reason="the file is compared byte by byte before and after")
def test_what_is_appended_by_hand_behind_a_whole_delivery_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    d, s = begun(path, 7)
    with path.open("ab") as file:
        file.write(b"by hand\n")
    made(path).commit(d, s, never)
    assert path.read_text() == "abcdef\nby hand\n"


@pytest.mark.contract("T21", reason="the files are read")
def test_a_file_that_is_rotated_between_two_deliveries_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    out = made(path)
    for batch in (1, 2):
        d = delivery(batch)
        out.commit(d, stage(out, d, f"{batch}\n"), never)
        path.rename(tmp_path / f"out.txt.{batch}")
    assert (tmp_path / "out.txt.1").read_text() == "1\n"
    assert (tmp_path / "out.txt.2").read_text() == "2\n"


def test_a_file_that_was_rotated_after_the_note_was_written_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    out, d = made(path), delivery()
    s = stage(out, d, "a\n")
    with killed_at("noted"), pytest.raises(Killed):
        out.commit(d, s, never)
    path.rename(tmp_path / "out.txt.1")
    later = delivery(2)
    after = made(path)
    after.commit(later, stage(after, later, "b\n"), never)
    assert path.read_text() == "b\n"


def test_without_its_journal_the_whole_delivery_goes_into_the_file_as_it_is(tmp_path: Path) -> None:
    """As the error says."""
    path = tmp_path / "out.txt"
    d, s = begun(path, 3)
    path.rename(tmp_path / "out.txt.1")
    out = made(path)
    with pytest.raises(Stop, match=r"journal\.json"):
        out.commit(d, s, never)
    (beside(path) / "journal.json").unlink()
    out.commit(d, s, never)
    assert path.read_text() == "abcdef\n"
    assert (tmp_path / "out.txt.1").read_text() == "abc"


# -- what else can be wrong --------------------------------------------------------------------------------------------------


def test_staged_lines_that_are_gone_or_shorter_are_said(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    out, d = made(path), delivery()
    s = stage(out, d, "a\n", "b\n")
    part = beside(path) / s.manifest[1][0]
    for harm in (lambda: os.truncate(part, 1), part.unlink):
        harm()
        with pytest.raises(Stop, match="as it was staged"):
            out.commit(d, s, never)
        assert path.read_text() == ""


def test_lines_that_do_not_add_up_are_not_prepared(tmp_path: Path) -> None:
    out, d = made(tmp_path / "out.txt"), delivery()
    found = Delivery(**vars(d), attempt=1, attempt_id="a")
    folder = out.staging_folder(found)
    folder.mkdir()
    (folder / "part-00000-x.txt").write_text("a\n")
    with pytest.raises(AccountError, match="2 lines of 4 bytes went in; 1 lines of 2 bytes are staged"):
        out.adopt(found, [folder / "part-00000-x.txt"], 2, 4)


@pytest.mark.contract("X6", safeguard="fence")
def test_an_engine_that_was_replaced_appends_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    out, newer, older = made(path), delivery(2, fence=4), delivery(1, fence=3)
    s = stage(out, older, "old\n")
    out.commit(newer, stage(out, newer, "new\n"), never)
    with pytest.raises(Stop, match="A newer engine has taken over"):
        out.commit(older, s, never)
    assert path.read_text() == "new\n"
    faults.install(off=("fence",))
    try:
        out.commit(older, s, never)
    finally:
        faults.install()
    assert path.read_text() == "new\nold\n", "the control"


def test_what_was_staged_and_never_committed_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    out, d, other = made(path), delivery(1), delivery(1, "other")
    for attempt in ("a", "b"):
        stage(out, d, "x\n", attempt=attempt)
    s = stage(out, other, "y\n")
    for _ in range(2):
        out.discard(d)
    out.commit(other, s, never)
    assert path.read_text() == "y\n"
    assert not (beside(path) / "p.in").exists() or not list((beside(path) / "p.in").iterdir())


def test_a_path_that_cannot_be_written_is_said_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "out.txt", tmp_path):
        with pytest.raises(Stop) as stopped:
            made(path)
        assert stopped.value.code == "lines.not-writable"


def test_a_journal_of_another_version_is_left_alone(tmp_path: Path) -> None:
    d, s = begun(tmp_path / "out.txt", 2)
    journal = beside(tmp_path / "out.txt") / "journal.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "version": 2}))
    with pytest.raises(Stop, match="another version"):
        made(tmp_path / "out.txt").commit(d, s, never)
    assert (tmp_path / "out.txt").read_text() == "ab"
