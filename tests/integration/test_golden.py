"""What a person sees when something is wrong: one clear block and the right exit code, in a terminal and in a pipe.

The files are in `tests/golden`; `make golden` writes them anew with the real command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import golden

PIPELINE = """\
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: ./in, settle: 0s}}
      - {id: out, type: destination, plugin: files, settings: {path: ./out}}
    processors:
      - {id: decode, plugin: json.decode}
      - {id: encode, plugin: json.encode}
"""
ONCE = ("run", "orders.yaml", "--once")
WAYS = {"pipe": golden.in_a_pipe, "terminal": golden.in_a_terminal}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short name, so that no line is folded in the middle of it."""
    made = Path(tempfile.mkdtemp(prefix="g", dir="/tmp")).resolve()
    (made / "in").mkdir()
    (made / "in" / "monday.jsonl").write_text('{"id": 1, "customer": "Ada"}\n{"id": 2, "customer": "Bo"}\n')
    (made / "orders.yaml").write_text(PIPELINE)
    yield made
    subprocess.run(["umount", "-l", str(made / ".penstock")], check=False, capture_output=True)
    subprocess.run(["umount", "-l", str(made / "out")], check=False, capture_output=True)
    shutil.rmtree(made, ignore_errors=True)


def _change(folder: Path, old: str, new: str) -> None:
    text = (folder / "orders.yaml").read_text()
    assert old in text
    (folder / "orders.yaml").write_text(text.replace(old, new, 1))


def _misspelt_key(folder: Path) -> dict[str, str]:
    _change(folder, "processors:", "procesors:")
    return {}


def _missing_folder(folder: Path) -> dict[str, str]:
    _change(folder, "./in", "./inn")
    return {}


def _unknown_plugin(folder: Path) -> dict[str, str]:
    _change(folder, "plugin: files", "plugin: flies")
    return {}


def _no_java(folder: Path) -> dict[str, str]:
    return {"PATH": str(folder / "empty")}


def _java_11(folder: Path) -> dict[str, str]:
    home = folder / "jdk-11"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="11.0.22"\n')
    return {"JAVA_HOME": str(home)}


def _mount(path: Path, options: str) -> None:
    path.mkdir()
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True)
    if tried.returncode:
        pytest.skip(f"mounting a file system needs root: {tried.stderr.decode().strip()}")


def _read_only_state(folder: Path) -> dict[str, str]:
    _mount(folder / ".penstock", "ro,size=1m")
    return {}


def _second_engine(folder: Path) -> dict[str, str]:
    """Another process holds the state folder, as an engine does."""
    holding = (
        "import sys, time, pathlib\nfrom penstock.engine.lock import StateFolder\n"
        "folder = StateFolder(pathlib.Path(sys.argv[1]))\nfolder.open()\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holding, str(folder / ".penstock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    _others.append(other)
    return {}


_others: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def _end_others() -> Iterator[None]:
    yield
    while _others:
        other = _others.pop()
        other.kill()
        other.communicate()


def _bad_json(folder: Path) -> dict[str, str]:
    with (folder / "in" / "monday.jsonl").open("a") as file:
        file.write('{"id": 3, "customer": \n{"id": 4, "customer": "Di"}\n')
    return {}


def _bad_json_borne(folder: Path) -> dict[str, str]:
    _change(folder, "    processors:", "    dead-letter-queue: {window-size: 0}\n    processors:")
    return _bad_json(folder)


def _full_disk(folder: Path) -> dict[str, str]:
    _mount(folder / "out", "size=1m")
    line = '{"id": 1, "text": "' + "x" * 1000 + '"}\n'
    (folder / "in" / "large.jsonl").write_text(line * 3000)
    return {}


Prepare = Callable[[Path], dict[str, str]]
WITHOUT_SPARK: dict[str, Prepare] = {
    "misspelt-key": _misspelt_key,
    "missing-folder": _missing_folder,
    "unknown-plugin": _unknown_plugin,
    "no-java": _no_java,
    "java-11": _java_11,
    "read-only-state": _read_only_state,
    "second-engine": _second_engine,
}
WITH_SPARK: dict[str, Prepare] = {
    "good": lambda _: {},
    "bad-json": _bad_json,
    "bad-json-borne": _bad_json_borne,
    "full-disk": _full_disk,
}


def _show(name: str, prepare: Prepare, folder: Path, way: str) -> None:
    env = {**os.environ, **prepare(folder)}
    if name == "no-java":
        env.pop("JAVA_HOME", None)
    said, code = WAYS[way](folder, ONCE, env)
    golden.compare(f"{name}.{way}", folder, ONCE, said, code)
    assert "Traceback" not in said
    assert "\tat " not in said  # a Java stack trace


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_what_is_wrong_before_a_record_is_read(name: str, way: str, folder: Path) -> None:
    _show(name, WITHOUT_SPARK[name], folder, way)


@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WITH_SPARK)
def test_what_becomes_of_records(name: str, way: str, folder: Path) -> None:
    _show(name, WITH_SPARK[name], folder, way)
