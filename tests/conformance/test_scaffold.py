"""`penstock connector new`: what it makes passes the conformance kit as it stands, in each language."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import go

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
ONE_FILE = ["--source", "path={dir}/data", "--destination", "path={dir}/data"]


def _run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, "PATH": path})


def _new(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(PENSTOCK, "connector", "new", *arguments, cwd=folder)


def test_a_connector_in_python_passes_the_kit_at_once(tmp_path: Path) -> None:
    made = _new(tmp_path, "note-book")
    assert (made.returncode, made.stderr) == (0, "")
    folder = tmp_path / "note-book"
    assert sorted(p.name for p in folder.iterdir()) == [
        ".gitignore",
        "README.md",
        "__main__.py",
        "note_book_connector.py",
        "pyproject.toml",
        "test_note_book_connector.py",
    ]
    assert not [p for p in folder.iterdir() if "placeholder" in p.read_text()]
    tested = _run(
        sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", ".", cwd=folder
    )
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    checked = _run(PENSTOCK, "connector", "test", *ONE_FILE, "--", "python", "-B", ".", cwd=folder)
    assert checked.returncode == 0, checked.stdout
    assert " 0 failed, 1 not checked" in checked.stdout  # its code can't be looked at from outside
    for tool in (["ruff", "check", "--isolated"], ["mypy", "--strict", "--cache-dir", os.devnull]):
        looked = _run(*tool, "note_book_connector.py", cwd=folder)
        assert looked.returncode == 0, looked.stdout
    added = _run(PENSTOCK, "plugins", "install", ".", cwd=folder)
    assert (added.returncode, added.stderr) == (0, "")
    assert "note-book 0.1.0 (source and destination)" in added.stdout


@go.needs_go
def test_a_connector_in_go_passes_the_kit_at_once(tmp_path: Path) -> None:
    made = _new(tmp_path, "note-book", "--language", "go")
    assert (made.returncode, made.stderr) == (0, "")
    program = go.built(module=tmp_path / "note-book")
    checked = _run(PENSTOCK, "connector", "test", *ONE_FILE, "--", str(program), cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert " 0 failed, 1 not checked" in checked.stdout
    assert "note-book v0.1.0" in checked.stdout


@pytest.mark.parametrize("name", ["", "Big", "a_b", "-a", "a--b", "1a", "a b", "../a", "a" * 61, "ü"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    ended = _run(PENSTOCK, "connector", "new", "--", name, cwd=tmp_path)
    assert ended.returncode == 2
    assert "connector.name" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("mine", "file"):
        ended = _new(tmp_path, name)
        assert (ended.returncode, "Nothing was made" in ended.stderr) == (2, True)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["file", "mine", "mine/README.md"]
    assert _new(tmp_path, "mine", "--folder", "other/place").returncode == 0
    assert (tmp_path / "other" / "place" / "mine_connector.py").is_file()
