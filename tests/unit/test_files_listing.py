"""Which files are settled. Real files and a real clock: what must not be taken is asked for in ways no delay can spoil."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.connectors.files import listing
from penstock.connectors.files.listing import Entry, Listing, partitions
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


def test_a_file_that_has_settled_since_the_last_look_is_still_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine seconds pass between two lines: a run that ends by itself must not end without it."""
    (tmp_path / "a").write_text("x")
    list_ = Listing(tmp_path, 1.0)
    assert list_.settled() == []
    now = time.monotonic() + 5
    monkeypatch.setattr("penstock.connectors.files.listing.time.monotonic", lambda: now)
    assert list_.settling()
    assert [Path(entry.path).name for entry in list_.settled()] == ["a"]
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


# -- sub-folders ----------------------------------------------------------------------------------------------------


def tree(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write(root / path, age=60)


def below(root: Path, found: list[Entry]) -> list[str]:
    return sorted(e.path.removeprefix(f"{root}/") for e in found)


HOSTILE = ["new\nline", "100%", "a%20b", "a+b", "[x]", "s p a c e", "ü", "*", "?", "{a,b}", "back\\slash", "'\"", "a#b"]


def test_sub_folders_are_listed_when_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, "a", "one/b", "one/two/c")
    assert below(tmp_path, Listing(tmp_path, 1).settled()) == ["a"]
    list_ = Listing(tmp_path, 1, recursive=True)
    assert below(tmp_path, list_.settled()) == ["a", "one/b", "one/two/c"]
    assert list_.present == {str(tmp_path / p) for p in ("a", "one/b", "one/two/c")}
    assert list_.root == tmp_path


def test_folders_of_partitions_are_listed_unasked(tmp_path: Path) -> None:
    tree(tmp_path, "day=1/hour=2/a", "day=1/plain/b", "_day=3/c", "day=x.tmp/d", "day=/e", "=x/f", ".day=4/g")
    expected = ["_day=3/c", "day=/e", "day=1/hour=2/a", "day=x.tmp/d"]
    assert below(tmp_path, Listing(tmp_path, 1).settled()) == expected
    with_all = ["=x/f", *expected, "day=1/plain/b"]
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == sorted(with_all)


@pytest.mark.parametrize("name", ["_a=b", "a=b.tmp", ".a=b", "a=b.part"])
def test_a_file_that_is_named_like_a_partition_is_a_file_like_any_other(tmp_path: Path, name: str) -> None:
    tree(tmp_path, name, "a=b")
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == ["a=b"]


def test_hidden_folders_are_skipped_with_all_they_hold(tmp_path: Path) -> None:
    tree(tmp_path, "a/b", ".git/b", "_penstock/b", "a/_temporary/b", "a/.x/b", "x.tmp/b", "x.part/b", "a/_x", "a/x.tmp")
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == ["a/b"]


def test_a_link_to_a_folder_is_followed_and_a_loop_is_not(tmp_path: Path) -> None:
    root = tmp_path / "in"
    tree(tmp_path, "in/a", "in/one/b", "elsewhere/c")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "one" / "up").symlink_to(root)
    (root / "one" / "self").symlink_to(root / "one")
    (tmp_path / "elsewhere" / "back").symlink_to(root / "one")
    (root / "nowhere").symlink_to(tmp_path / "gone")
    (root / "itself").symlink_to(root / "itself")
    expected = ["a", "link/back/b", "link/c", "one/b"]
    assert below(root, Listing(root, 1, recursive=True).settled()) == expected
    assert below(root, Listing(root / "**", 1).settled()) == expected


def test_a_folder_under_two_names_is_listed_under_both(tmp_path: Path) -> None:
    """Which one comes first is up to the disk: with one only, a file could change its name from look to look."""
    tree(tmp_path, "one/a")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == ["one/a", "two/a"]


def failing_scandir(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    """The tests may run as root, whom no permission stops."""
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path) == str(folder):
            raise OSError(number, os.strerror(number), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR])
def test_a_sub_folder_that_vanishes_while_it_is_listed_is_simply_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tree(tmp_path, "a", "gone/b", "kept/c")
    failing_scandir(monkeypatch, tmp_path / "gone", number)
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == ["a", "kept/c"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("pattern", ["", "*/b", "**/b"])
def test_a_sub_folder_that_can_not_be_read_stops_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, pattern: str
) -> None:
    tree(tmp_path, "a", "locked/b")
    failing_scandir(monkeypatch, tmp_path / "locked", number)
    with pytest.raises(Stop) as caught:
        Listing(tmp_path / pattern, 1, recursive=True).settled()
    assert caught.value.code == "files.unreadable"
    assert str(tmp_path / "locked") in caught.value.what
    assert caught.value.why == os.strerror(number)


def test_a_locked_folder_that_no_pattern_leads_to_is_none_of_our_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, "a", "locked/b", "open/b")
    failing_scandir(monkeypatch, tmp_path / "locked", errno.EACCES)
    assert names(Listing(tmp_path, 1).settled()) == ["a"]
    assert names(Listing(tmp_path / "o*" / "b", 1).settled()) == ["b"]


@pytest.mark.parametrize("path", [b"bad\xff", b"sub/bad\xff", b"bad\xff/a", b"day=1/bad\xff"])
def test_a_name_that_is_not_utf8_stops_wherever_it_is(tmp_path: Path, path: bytes) -> None:
    full = os.path.join(os.fsencode(tmp_path), path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb"):
        pass
    tree(tmp_path, "good.txt")
    for list_ in (Listing(tmp_path, 1, recursive=True), Listing(tmp_path / "**", 1)):
        with pytest.raises(Stop) as caught:
            list_.settled()
        assert caught.value.code == "files.name"
        assert r"bad\udcff" in caught.value.what
        caught.value.what.encode()


def test_a_name_that_is_not_utf8_and_not_asked_for_does_not_matter(tmp_path: Path) -> None:
    tree(tmp_path, "good.txt")
    os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    with open(os.fsencode(tmp_path) + b"/bad\xfe", "wb"):
        pass
    assert names(Listing(tmp_path / "*.txt", 1).settled()) == ["good.txt"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_listed_as_file_and_as_folder(tmp_path: Path, name: str) -> None:
    tree(tmp_path, f"{name}/{name}", "other/other")
    assert below(tmp_path, Listing(tmp_path, 1, recursive=True).settled()) == sorted([f"{name}/{name}", "other/other"])
    assert below(tmp_path, Listing(tmp_path / name, 1).settled()) == [f"{name}/{name}"]
    assert below(tmp_path, Listing(tmp_path / name / name, 1).settled()) == [f"{name}/{name}"]
    assert below(tmp_path, Listing(tmp_path / name / "*", 1).settled()) == [f"{name}/{name}"]


# -- patterns -------------------------------------------------------------------------------------------------------

FILES = (
    "a.json", "b.JSON", "c.csv", "x/a.json", "x/y/d.csv", "x/y/z/e.csv", "2024-01/part-0", "2024-02/part-1x",
    "2024-02/part-x", "2024-123/part-2", "_h/a.json", ".h/a.json", "x/_SUCCESS", "x/.crc", "t.json.tmp",
    "day=1/a.json", "day=1/sub/b.json", "x.json/inside",
)  # fmt: skip


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("*.json", ["a.json"]),
        ("*.JSON", ["b.JSON"]),
        ("?.*", ["a.json", "b.JSON", "c.csv"]),
        ("[ab].*", ["a.json", "b.JSON"]),
        ("[!ab].*", ["c.csv"]),
        ("*/*.json", ["day=1/a.json", "x/a.json"]),
        ("**/*.csv", ["c.csv", "x/y/d.csv", "x/y/z/e.csv"]),
        ("x/**/*.csv", ["x/y/d.csv", "x/y/z/e.csv"]),
        ("**/y/**/*.csv", ["x/y/d.csv", "x/y/z/e.csv"]),
        ("**/**/d.csv", ["x/y/d.csv"]),
        ("x/y/**", ["x/y/d.csv", "x/y/z/e.csv"]),
        ("**/y/*", ["x/y/d.csv"]),
        ("2024-??/part-[0-9]*", ["2024-01/part-0", "2024-02/part-1x"]),
        ("*", ["a.json", "b.JSON", "c.csv", "day=1/a.json"]),
        ("day=*", ["day=1/a.json"]),
        ("*.tmp", []),
        ("t.json.*", []),
        (".*", []),
        ("_*/a.json", []),
        ("*/_*", []),
        ("*/_SUCCESS", ["x/_SUCCESS"]),
        ("**/_SUCCESS", ["x/_SUCCESS"]),
        ("**/.crc", ["x/.crc"]),
        ("_h/*.json", ["_h/a.json"]),
        ("**/_h/*.json", ["_h/a.json"]),
        ("none/of/*.these", None),
        ("*/none", []),
        ("c.csv/*", None),
        ("*/a.json/*", []),
    ],
)
def test_a_pattern_takes_what_it_matches(tmp_path: Path, pattern: str, expected: list[str] | None) -> None:
    tree(tmp_path, *FILES)
    list_ = Listing(tmp_path / pattern, 1)
    if expected is not None:
        assert below(tmp_path, list_.settled()) == expected
        return
    with pytest.raises(Stop) as caught:  # its folder is not there
        list_.settled()
    assert caught.value.code == "files.unreadable"
    assert str(list_.root) in caught.value.what


def test_a_pattern_that_matches_a_folder_takes_what_is_in_it_when_asked_for(tmp_path: Path) -> None:
    tree(tmp_path, *FILES)
    assert below(tmp_path, Listing(tmp_path / "x*", 1).settled()) == []
    expected = ["x.json/inside", "x/a.json", "x/y/d.csv", "x/y/z/e.csv"]
    assert below(tmp_path, Listing(tmp_path / "x*", 1, recursive=True).settled()) == expected


def test_each_file_is_listed_once_however_a_pattern_leads_to_it(tmp_path: Path) -> None:
    tree(tmp_path, "a/a/a/a/f")
    assert below(tmp_path, Listing(tmp_path / "**/a/**/a/**/f", 1).settled()) == ["a/a/a/a/f"]


@pytest.mark.parametrize(
    "pattern, root",
    [("*.json", "."), ("x/*.csv", "x"), ("x/y/**/*.csv", "x/y"), ("x/y", "x/y"), ("a.json", "."), ("n/o/*", "n/o"), ("x/*/z", "x")],
)  # fmt: skip
def test_the_root_is_the_last_folder_before_a_wildcard(tmp_path: Path, pattern: str, root: str) -> None:
    tree(tmp_path, *FILES)
    assert Listing(tmp_path / pattern, 1).root == tmp_path / root


def test_what_exists_under_the_very_name_is_no_pattern(tmp_path: Path) -> None:
    tree(tmp_path, "[ab].txt", "a.txt", "b.txt", "*/c", "x/c")
    assert names(Listing(tmp_path / "[ab].txt", 1).settled()) == ["[ab].txt"]
    assert below(tmp_path, Listing(tmp_path / "*", 1).settled()) == ["*/c"]
    assert Listing(tmp_path / "*", 1).root == tmp_path / "*"


def test_a_folder_with_an_odd_name_that_vanishes_stops_and_does_not_become_a_pattern(tmp_path: Path) -> None:
    tree(tmp_path, "[ab]/c", "a/c")
    list_ = Listing(tmp_path / "[ab]", 1)
    assert len(list_.settled()) == 1
    os.rename(tmp_path / "[ab]", tmp_path / "away")
    with pytest.raises(Stop):
        list_.settled()


def test_a_file_with_an_odd_name_that_was_put_away_does_not_become_a_pattern(tmp_path: Path) -> None:
    tree(tmp_path, "[ab]", "a")
    list_ = Listing(tmp_path / "[ab]", 1)
    assert names(list_.settled()) == ["[ab]"]
    (tmp_path / "[ab]").unlink()
    assert list_.settled() == []
    assert list_.root == tmp_path


def test_a_pattern_stays_one_when_a_file_of_that_name_appears(tmp_path: Path) -> None:
    tree(tmp_path, "a.txt")
    list_ = Listing(tmp_path / "*.txt", 1)
    assert names(list_.settled()) == ["a.txt"]
    tree(tmp_path, "*.txt")
    assert sorted(names(list_.settled())) == ["*.txt", "a.txt"]


def test_a_leading_folder_with_an_odd_name_is_taken_as_it_is(tmp_path: Path) -> None:
    """It may be the current folder, which nobody has written down."""
    tree(tmp_path, "[ab]/in/c.txt", "a/in/d.txt")
    list_ = Listing(tmp_path / "[ab]" / "in" / "*.txt", 1)
    assert names(list_.settled()) == ["c.txt"]
    assert list_.root == tmp_path / "[ab]" / "in"


def test_a_young_file_of_a_sub_folder_is_not_taken(tmp_path: Path) -> None:
    tree(tmp_path, "old/a.txt", "old/b.txt")
    write(tmp_path / "old" / "b.txt")
    for list_ in (Listing(tmp_path, 30, recursive=True), Listing(tmp_path / "*/*.txt", 30)):
        assert names(list_.settled()) == ["a.txt"]
        assert list_.settling()
        assert len(list_.present) == 2


# -- partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, expected",
    [
        ("a", {}),
        ("k=v", {}),
        ("k=v/a", {"k": "v"}),
        ("y=2024/plain/m=01/a=b", {"y": "2024", "m": "01"}),
        ("k=a=b/f", {"k": "a=b"}),
        ("k=/f", {"k": ""}),
        ("=v/f", {}),
        ("_k=v/f", {"_k": "v"}),
        ("k=__HIVE_DEFAULT_PARTITION__/f", {"k": None}),
        ("k=a%2Fb%3Dc%25/f", {"k": "a/b=c%"}),
        ("a%20key=a+b/f", {"a key": "a+b"}),
        ("k=%C3%BC/f", {"k": "ü"}),
        ("k=ü/f", {"k": "ü"}),
        ("k=%FF/f", {"k": "%FF"}),
        ("k=100%/f", {"k": "100%"}),
        ("k=a\nb/f", {"k": "a\nb"}),
    ],
)
def test_the_folders_say_the_partition(path: str, expected: dict[str, str | None]) -> None:
    found = partitions(Path("/x=1/in"), f"/x=1/in/{path}")
    assert found == expected
    assert list(found) == list(expected)
    assert partitions(Path("/"), f"/{path}") == expected
