"""The disk that forgets (tests/support/forgetful.py), tried on its own: a harness that is too kind would prove nothing."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import fs
from penstock.testing import faults
from tests.support.forgetful import SECTOR, Choose, Forgetful, Killed

Outcomes = set[frozenset[tuple[str, bytes]]]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "root"
    made.mkdir()
    yield made
    faults.install()


def forget(n: int) -> int:
    return 0


def keep(n: int) -> int:
    return n - 1


def crashed(root: Path, work: Callable[[], None], choose: Choose, off: tuple[str, ...] = ()) -> dict[str, bytes]:
    """What is left after `work` and a power cut."""
    disk = Forgetful(root)
    faults.install(disk.hook, off=off)
    work()
    disk.crash(choose)
    disk.close()
    faults.install()
    return held(root)


def held(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def outcomes(
    tmp_path: Path, given: dict[str, bytes], work: Callable[[Path], None], off: tuple[str, ...] = ()
) -> Outcomes:
    """Everything that 300 power cuts leave."""
    found = set()
    for seed in range(300):
        root = tmp_path / f"{seed}"
        root.mkdir()
        for name, content in given.items():
            (root / name).write_bytes(content)

        def here(root: Path = root) -> None:
            work(root)

        found.add(frozenset(crashed(root, here, random.Random(seed).randrange, off).items()))
    return found


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


# -- bytes ----------------------------------------------------------------------------------------------------------


def test_what_was_there_at_first_stays(root: Path) -> None:
    (root / "a").write_bytes(b"old")
    assert crashed(root, lambda: None, forget) == {"a": b"old"}


def test_bytes_that_were_not_fsynced_vanish_and_fsynced_ones_never(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        append(root / "a", b"B" * 700)
        fs.fsync_file(root / "a")
        append(root / "a", b"C" * 2000)

    sure = b"A" * 300 + b"B" * 700
    found = {dict(outcome)["a"] for outcome in outcomes(tmp_path, {"a": b"A" * 300}, work)}
    assert all(content.startswith(sure) and len(content) <= len(sure) + 2000 for content in found)
    tails = {content[len(sure) :] for content in found}
    assert b"" in tails
    assert {t for t in tails if t and t == b"C" * len(t)}, "a part of what was written, in its order"
    assert {t for t in tails if t.rstrip(b"\0").count(b"\0") > 100}, "a sector that is missing in the middle"
    assert {t for t in tails if set(t) - {0, ord("C")}}, "rubbish"


def test_a_file_that_was_never_fsynced_may_be_empty_though_its_name_is_durable(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "a").write_bytes(b"new")
        fs.fsync_folder(root)

    found = outcomes(tmp_path, {}, work)
    assert {frozenset({("a", b"")}), frozenset({("a", b"new")})} <= found
    assert all(dict(outcome).keys() == {"a"} for outcome in found)


def test_what_is_overwritten_in_place_is_old_or_new_by_sector(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        with (root / "a").open("r+b") as file:
            file.write(b"N" * 3 * SECTOR)

    found = {dict(outcome)["a"] for outcome in outcomes(tmp_path, {"a": b"O" * 3 * SECTOR}, work)}
    assert found == {bytes(c for c in combo for _ in range(SECTOR)) for combo in _product(b"ON", 3)}


def _product(of: bytes, n: int) -> list[bytes]:
    return [bytes([c, *rest]) for c in of for rest in (_product(of, n - 1) if n > 1 else [b""])]


def test_a_place_that_was_overwritten_twice_may_hold_what_stood_there_in_between(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        for content in (b"1", b"2", b"3"):
            with (root / "a").open("r+b") as file:
                file.write(content)
            faults.reach("done")

    assert {dict(outcome)["a"] for outcome in outcomes(tmp_path, {"a": b"0"}, work)} == {b"0", b"1", b"2", b"3"}


def test_a_truncation_is_done_or_not_and_done_once_it_was_fsynced(tmp_path: Path) -> None:
    def cut(root: Path) -> None:
        os.truncate(root / "a", 600)

    def cut_for_good(root: Path) -> None:
        cut(root)
        fs.fsync_file(root / "a")

    (tmp_path / "cut").mkdir()
    (tmp_path / "good").mkdir()
    given = b"".join(bytes([i]) * 10 for i in range(200))
    found = outcomes(tmp_path / "cut", {"a": given}, cut)
    assert {dict(outcome)["a"] for outcome in found} == {given, given[:600]}
    found = outcomes(tmp_path / "good", {"a": given}, cut_for_good)
    assert {dict(outcome)["a"] for outcome in found} == {given[:600]}


# -- names ----------------------------------------------------------------------------------------------------------


def test_a_name_that_was_not_fsynced_may_vanish_though_its_bytes_are_durable(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        (root / "a").write_bytes(b"new")
        fs.fsync_file(root / "a")

    assert outcomes(tmp_path, {}, work) == {frozenset(), frozenset({("a", b"new")})}


def test_names_are_forgotten_one_by_one(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        for name in ("b", "c"):
            (root / name).write_bytes(b"")
        (root / "a").unlink()

    found = {"".join(sorted(dict(outcome))) for outcome in outcomes(tmp_path, {"a": b""}, work)}
    assert found == {"a", "ab", "ac", "abc", "", "b", "c", "bc"}


def test_a_name_that_was_removed_may_come_back_until_the_folder_is_fsynced(root: Path) -> None:
    def work() -> None:
        (root / "a").unlink()

    def work_for_good() -> None:
        (root / "a").unlink()
        fs.fsync_folder(root)

    (root / "a").write_bytes(b"old")
    assert crashed(root, work, forget) == {"a": b"old"}
    assert crashed(root, work_for_good, forget) == {}


def test_a_rename_is_done_or_not(tmp_path: Path) -> None:
    found = outcomes(tmp_path, {"a": b"A", "b": b"B"}, lambda root: os.replace(root / "a", root / "b"))
    assert found == {frozenset({("a", b"A"), ("b", b"B")}), frozenset({("b", b"A")})}


def test_changes_of_one_name_are_seen_in_their_order(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        os.replace(root / "a", root / "b")
        faults.reach("done")
        (root / "a").write_bytes(b"")
        faults.reach("done")
        os.replace(root / "b", root / "c")

    found = outcomes(tmp_path, {"a": b"A"}, work)
    states: list[dict[str, bytes]] = [{"a": b"A"}, {"b": b"A"}, {"a": b"", "b": b"A"}, {"a": b"", "c": b"A"}]
    assert found == {frozenset(state.items()) for state in states}


def test_a_folder_that_was_not_fsynced_above_takes_everything_in_it_along(root: Path) -> None:
    def work() -> None:
        (root / "f").mkdir()
        (root / "f" / "a").write_bytes(b"x")
        fs.fsync_file(root / "f" / "a")
        fs.fsync_folder(root / "f")

    assert crashed(root, work, forget) == {}
    assert crashed(root, work, keep) == {"f/a": b"x"}


# -- ends -----------------------------------------------------------------------------------------------------------


def test_an_fsync_at_which_the_process_dies_makes_nothing_durable(root: Path) -> None:
    disk = Forgetful(root, die_at(0))
    faults.install(disk.hook)
    append(root / "a", b"lost")
    with pytest.raises(Killed):
        fs.fsync_file(root / "a")
    disk.crash(forget)
    assert held(root) == {}
    disk.close()


def test_what_a_dead_process_does_is_not_done(root: Path) -> None:
    """Production code has `finally`, a kill has not."""

    (root / "a").write_bytes(b"a")
    disk = Forgetful(root, die_at(0))
    faults.install(disk.hook)
    append(root / "a", b"b")
    with pytest.raises(Killed):
        fs.fsync_folder(root)
    append(root / "a", b"c")
    with pytest.raises(Killed):
        fs.fsync_file(root / "a")
    disk.kill()
    assert held(root) == {"a": b"ab"}
    disk.close()


def test_a_killed_process_leaves_its_bytes_to_a_later_power_cut(root: Path) -> None:
    (root / "a").write_bytes(b"a")
    disk = Forgetful(root)
    faults.install(disk.hook)
    append(root / "a", b"b")
    (root / "new").write_bytes(b"c")
    disk.kill()
    assert held(root) == {"a": b"ab", "new": b"c"}
    fs.fsync_folder(root)
    disk.crash(forget)
    assert held(root) == {"a": b"a", "new": b""}
    disk.close()


def test_a_look_beside_threads_that_rename_and_remove_is_no_fault_of_theirs(root: Path) -> None:
    disk = Forgetful(root)
    ended = threading.Event()

    def work(n: int) -> None:
        while not ended.is_set():
            deep = root / f"{n}" / "a" / "b"
            deep.mkdir(parents=True)
            (deep / "file").write_bytes(b"x")
            (deep / "file").rename(root / f"{n}.out")
            shutil.rmtree(root / f"{n}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            disk.look()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    disk.crash(keep)
    assert set(held(root)) <= {"0.out", "1.out", "0/a/b/file", "1/a/b/file"}
    disk.close()


def test_what_a_power_cut_left_is_durable(root: Path) -> None:
    disk = Forgetful(root)
    faults.install(disk.hook)
    append(root / "a", b"a")
    disk.crash(keep)
    left = held(root)
    disk.crash(forget)
    assert held(root) == left
    disk.close()


def test_a_file_that_replaced_many_is_never_mixed_up_with_them(root: Path) -> None:
    """Inode numbers are used again by the file system as soon as nobody holds them."""
    disk = Forgetful(root)
    faults.install(disk.hook)
    for i in range(200):
        fs.replace(root / "a", b"%d" % i)
        (root / "b").write_bytes(b"never durable")
        (root / "b").unlink()
    disk.crash(forget)
    assert held(root) == {"a": b"199"}
    disk.close()


# -- the one durable operation that everything else is made of -------------------------------------------------------


def die_at(nth: int) -> Callable[[str, str], None]:
    """The process dies at its nth point, from 0."""
    points = iter(range(1000))

    def before(point: str, detail: str) -> None:
        if next(points) == nth:
            raise Killed

    return before


def cuts_in_replace(tmp_path: Path, off: tuple[str, ...] = ()) -> set[bytes]:
    """What a reader finds after a power cut at each fsync of a replacement, or right after it."""
    found = set()
    for seed in range(300):
        rng = random.Random(seed)
        root = tmp_path / f"{seed}"
        root.mkdir()
        (root / "a").write_bytes(b"old" * 300)
        disk = Forgetful(root, die_at(seed % 3))
        faults.install(disk.hook, off=off)
        try:
            fs.replace(root / "a", b"new" * 400)
        except Killed:
            pass
        disk.crash(rng.randrange)
        disk.close()
        found.add((root / "a").read_bytes())
    return found


def test_replace_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    assert cuts_in_replace(tmp_path) == {b"old" * 300, b"new" * 400}


def test_control_replace_without_fsync_leaves_half_a_file(tmp_path: Path) -> None:
    found = cuts_in_replace(tmp_path, off=("fsync",))
    assert found > {b"old" * 300, b"new" * 400}
    assert b"" in found


def test_replace_is_durable_when_it_returns(root: Path) -> None:
    (root / "a").write_bytes(b"old")
    assert crashed(root, lambda: fs.replace(root / "a", b"new"), forget) == {"a": b"new"}


def test_control_without_the_fsync_of_the_folder_the_old_content_comes_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs, "fsync_folder", lambda path: None)
    (root / "a").write_bytes(b"old")
    assert crashed(root, lambda: fs.replace(root / "a", b"new"), forget)["a"] == b"old"
