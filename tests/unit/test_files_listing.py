"""Which files are settled. Real files and a real clock: what must not be taken is asked for in ways no delay can spoil."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.connectors.files import listing
from penstock.connectors.files.listing import Entry, Listing
from penstock.errors import Stop
from penstock.testing import faults

pytestmark = pytest.mark.contract("T23", safeguard="settle")

LONG = 3600.0  # a settle time that no test lives to see
SHORT = 0.2


def write(path: Path, text: str = "line\n", *, age: float | None = None) -> Path:
    path.write_text(text)
    if age is not None:
        set_age(path, age)
    return path


def set_age(path: Path, age: float) -> None:
    then = time.time() - age
    os.utime(path, (then, then))


def names(found: list[Entry]) -> list[str]:
    return [Path(e.path).name for e in found]


def await_names(list_: Listing, expected: list[str]) -> None:
    until = time.monotonic() + 20
    while names(list_.settled()) != expected:
        assert time.monotonic() < until, f"{expected} did not settle: {list_}"
        time.sleep(0.02)


# -- settled --------------------------------------------------------------------------------------------------------


def test_a_file_older_than_the_settle_time_is_settled_at_first_sight(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "12345", age=60)
    stat = path.stat()
    found = Listing(tmp_path, 30).settled()
    assert found == [Entry(str(path), 5, stat.st_mtime_ns)]


def test_a_young_file_is_not_taken_and_would_be_without_the_safeguard(tmp_path: Path) -> None:
    write(tmp_path / "a.txt")
    list_ = Listing(tmp_path, LONG)
    assert list_.settled() == []
    assert list_.settled() == []
    faults.install(off=["settle"])
    assert names(list_.settled()) == ["a.txt"]


def test_a_growing_file_is_not_taken_however_long_it_grows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt")
    list_ = Listing(tmp_path, LONG)
    for _ in range(5):
        with path.open("a") as f:
            f.write("more\n")
        assert list_.settled() == []
    faults.install(off=["settle"])
    assert names(list_.settled()) == ["a.txt"]


@pytest.mark.parametrize("change", ["grows", "shrinks", "is touched", "is replaced"])
def test_a_file_seen_to_change_is_watched_anew(tmp_path: Path, change: str) -> None:
    """Its time lies in the future, so only watching can settle it; between two looks more than the settle time passes."""
    path = write(tmp_path / "a.txt", "long enough", age=-3600)
    list_ = Listing(tmp_path, 0.05)
    assert list_.settled() == []
    for n in range(3):
        if change == "grows":
            write(path, "long enough" + "x" * (n + 1), age=-3600)
        elif change == "shrinks":
            write(path, "long enough"[: -n - 1], age=-3600)
        elif change == "is touched":
            set_age(path, -3600 - n - 1)
        else:
            write(tmp_path / ".new", "another one", age=-7200 - n)
            os.replace(tmp_path / ".new", path)
        time.sleep(0.06)
        assert list_.settled() == []


def test_a_young_file_that_no_longer_changes_settles(tmp_path: Path) -> None:
    write(tmp_path / "a.txt")
    await_names(Listing(tmp_path, SHORT), ["a.txt"])


def test_a_file_from_the_future_waits_and_is_then_taken(tmp_path: Path) -> None:
    """A clock that was set back, or another machine's: an age can't be told, so it is watched."""
    write(tmp_path / "a.txt", age=-86400)
    list_ = Listing(tmp_path, SHORT)
    assert list_.settled() == []
    await_names(list_, ["a.txt"])


def test_a_file_that_stopped_growing_is_taken_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "", age=-60)
    list_ = Listing(tmp_path, SHORT)
    for _ in range(3):
        with path.open("a") as f:
            f.write("more\n")
        set_age(path, -60)
        assert list_.settled() == []
    await_names(list_, ["a.txt"])


def test_a_settle_time_of_zero_takes_everything_at_once(tmp_path: Path) -> None:
    write(tmp_path / "young.txt")
    write(tmp_path / "future.txt", age=-86400)
    assert sorted(names(Listing(tmp_path, 0).settled())) == ["future.txt", "young.txt"]


def test_a_young_file_does_not_hold_up_a_settled_one(tmp_path: Path) -> None:
    write(tmp_path / "old.txt", age=7200)
    write(tmp_path / "young.txt")
    assert names(Listing(tmp_path, LONG).settled()) == ["old.txt"]


def test_a_file_that_was_settled_by_watching_stays_settled(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", age=-86400)
    list_ = Listing(tmp_path, SHORT)
    await_names(list_, ["a.txt"])
    assert names(list_.settled()) == ["a.txt"]


# -- settling: is it worth waiting ----------------------------------------------------------------------------------


def test_settling_says_whether_a_file_is_on_its_way(tmp_path: Path) -> None:
    list_ = Listing(tmp_path, LONG)
    write(tmp_path / "old.txt", age=7200)
    list_.settled()
    assert not list_.settling()
    young = write(tmp_path / "young.txt")
    list_.settled()
    assert list_.settling()
    young.unlink()
    list_.settled()
    assert not list_.settling()


def test_a_file_that_never_settles_is_given_up_waiting_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt")
    list_ = Listing(tmp_path, LONG)
    list_.settled()
    assert list_.settling()
    monkeypatch.setattr(listing, "GIVE_UP_SETTLING", 0.05)
    time.sleep(0.06)
    write(path, "changed since")  # a change starts the watch anew, but not the patience
    list_.settled()
    assert not list_.settling()


# -- what is listed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".hidden", "_penstock", "_x.txt", "a.tmp", "a.txt.tmp", "a.part", ".a.txt.swp"])
def test_a_name_that_says_not_yet_is_skipped(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, age=60)
    write(tmp_path / "a.txt", age=60)
    assert names(Listing(tmp_path, 1).settled()) == ["a.txt"]


@pytest.mark.parametrize("name", ["a", "a.tmp.txt", "part", "tmp", "a_b", "a.PART", "ü b*?[x]{y}.txt", "a%20b"])
def test_any_other_name_is_listed(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, age=60)
    assert names(Listing(tmp_path, 1).settled()) == [name]


def test_only_regular_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    write(tmp_path / "folder.txt" / "inside.txt", age=60)
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "gone")
    write(tmp_path / ".target", age=60)
    (tmp_path / "link.txt").symlink_to(tmp_path / ".target")
    assert names(Listing(tmp_path, 1).settled()) == ["link.txt"]


def test_one_file_can_be_named_instead_of_a_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "_any.tmp", age=60)
    write(tmp_path / "other.txt", age=60)
    assert Listing(path, 1).settled() == [Entry(str(path), 5, path.stat().st_mtime_ns)]


def test_files_come_by_time_and_then_by_name(tmp_path: Path) -> None:
    for name, age in (("c", 300), ("z", 500), ("a", 100), ("m", 400)):
        write(tmp_path / name, age=age)
    moment = time.time() - 200
    same = [f"same{n:02d}" for n in range(20)]
    for name in reversed(same):
        os.utime(write(tmp_path / name), (moment, moment))
    assert names(Listing(tmp_path, 1).settled()) == ["z", "m", "c", *same, "a"]


def test_a_deleted_file_is_simply_not_there(tmp_path: Path) -> None:
    list_ = Listing(tmp_path, 1)
    for name in ("a", "b"):
        write(tmp_path / name, age=60)
    assert len(list_.settled()) == 2
    (tmp_path / "a").unlink()
    assert names(list_.settled()) == ["b"]


def test_a_file_deleted_while_the_folder_is_listed_is_simply_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "gone", age=60)
    write(tmp_path / "kept", age=60)
    real: Callable[..., Iterator[os.DirEntry[str]]] = os.scandir

    class Scan(list[os.DirEntry[str]]):
        """All real entries, the file of one of them deleted after it was listed."""

        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *_: object) -> None: ...

    def scandir(path: Path) -> Scan:
        found = Scan(real(path))
        (tmp_path / "gone").unlink()
        return found

    monkeypatch.setattr(os, "scandir", scandir)
    assert names(Listing(tmp_path, 1).settled()) == ["kept"]


def test_a_file_that_can_not_be_looked_at_is_not_taken_for_a_deleted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks deleted is forgotten, and delivered once more when the disk answers again."""
    write(tmp_path / "a", age=60)
    list_ = Listing(tmp_path, 1)
    assert names(list_.settled()) == ["a"]

    class Unreadable:
        name, path = "a", str(tmp_path / "a")

        def is_file(self) -> bool:
            raise OSError(errno.EIO, "Input/output error")

    class Scan(list[Unreadable]):
        def __enter__(self) -> Scan:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", lambda path: Scan([Unreadable()]))
    with pytest.raises(Stop):
        list_.settled()


def test_a_missing_folder_stops_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(Stop) as caught:
        Listing(tmp_path / "no", 1).settled()
    assert caught.value.code == "files.unreadable"
    assert str(tmp_path / "no") in caught.value.what
    assert caught.value.why == "No such file or directory"


def test_a_folder_that_vanishes_stops_and_does_not_look_empty(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a", age=60)
    list_ = Listing(folder, 1)
    assert len(list_.settled()) == 1
    os.rename(folder, tmp_path / "away")
    with pytest.raises(Stop):
        list_.settled()


def test_a_link_that_points_at_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    write(tmp_path / "a", age=60)
    assert names(Listing(tmp_path, 1).settled()) == ["a"]
