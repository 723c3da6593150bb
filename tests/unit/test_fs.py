"""Durable files: old content or new, never half of either, and every new name on disk in the folder above it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import fs
from penstock.testing import faults


class Refused(Exception):
    pass


def reached() -> list[str]:
    """From here on, the paths that are about to be fsynced."""
    paths: list[str] = []
    faults.install(lambda point, detail: paths.append(detail) if point == "fsync" else None)
    return paths


def refuse_at(path: Path) -> None:
    def hook(point: str, detail: str) -> None:
        if (point, detail) == ("fsync", str(path)):
            raise Refused

    faults.install(hook)


# -- replace --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"new", b"\0\xff" * 500_000])
def test_a_replaced_file_holds_the_new_content_and_nothing_is_left_beside_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    for before in (None, b"the old content, which is longer than the new"):
        if before is not None:
            path.write_bytes(before)
        fs.replace(path, content)
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["file"]


def test_what_a_crash_left_half_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".file.tmp").write_bytes(b"x" * 1000)
    fs.replace(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_the_new_name_is_on_disk_when_replace_returns(tmp_path: Path) -> None:
    paths = reached()
    fs.replace(tmp_path / "file", b"new")
    assert paths[-1] == str(tmp_path)


def test_the_content_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")
    content_at_fsync = []
    real = os.fsync

    def fsync(fd: int) -> None:
        content_at_fsync.append((tmp_path / "file").read_bytes())
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    fs.replace(tmp_path / "file", b"new")
    assert content_at_fsync == [b"old", b"new"]  # of the file before the rename, of the folder after it


def test_a_content_that_can_not_be_made_durable_does_not_replace_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def fsync(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        fs.replace(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


CHILD = """
import resource, sys
from pathlib import Path
from penstock import fs
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    fs.replace(Path(sys.argv[1]), b"x" * 1_000_000)
except OSError as e:
    print("refused", e.errno)
"""


def test_a_disk_that_takes_only_half_leaves_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    command = [sys.executable, "-c", CHILD, str(tmp_path / "file")]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    assert child.stdout.startswith("refused")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_kill_at_the_first_fsync_of_replace_leaves_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def hook(point: str, detail: str) -> None:
        if point == "fsync":
            raise Refused

    faults.install(hook)
    with pytest.raises(Refused):
        fs.replace(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


# -- folders --------------------------------------------------------------------------------------------------------


def test_every_folder_that_is_made_is_durable_in_the_one_above_it(tmp_path: Path) -> None:
    paths = reached()
    fs.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert paths == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]


def test_a_folder_that_is_there_costs_nothing(tmp_path: Path) -> None:
    paths = reached()
    fs.make_folder(tmp_path)
    assert paths == []


def test_a_folder_is_made_with_its_mode(tmp_path: Path) -> None:
    fs.make_folder(tmp_path / "private", 0o700)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700


def test_a_folder_where_a_file_is_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            fs.make_folder(path)


def test_a_folder_whose_name_could_not_be_made_durable_is_an_error(tmp_path: Path) -> None:
    refuse_at(tmp_path / "a")
    with pytest.raises(Refused):
        fs.make_folder(tmp_path / "a" / "b")


# -- fsync ----------------------------------------------------------------------------------------------------------


def test_fsync_is_reached_with_its_path_and_left_out_only_without_the_safeguard(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    paths = reached()
    fs.fsync_file(path)
    fs.fsync_folder(tmp_path)
    assert paths == [str(path), str(tmp_path)]
    paths.clear()
    faults.install(lambda point, detail: paths.append(detail), off=["fsync"])
    fs.fsync_file(path)
    fs.fsync_folder(tmp_path)
    fs.make_folder(tmp_path / "a")
    assert paths == []


def test_fsync_of_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.fsync_file(tmp_path / "no")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        fs.fsync_folder(tmp_path / "file")
