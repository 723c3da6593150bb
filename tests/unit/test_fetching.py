"""Java packages are fetched by one process at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.session import Starting
from penstock.filelock import FileLock
from penstock.native import fetching

PACKAGE = "org.x:name_2.13:1.0"


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileLock]:
    """Another process that fetches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "penstock").mkdir()
    lock = FileLock(tmp_path / "penstock" / "packages.lock")
    lock.take()
    yield lock
    lock.release()


def test_who_fetches_waits_for_who_fetches(tmp_path: Path, other: FileLock) -> None:
    came = threading.Event()

    def fetch() -> None:
        with fetching.alone([PACKAGE], str(tmp_path / "ivy")):
            came.set()

    thread = threading.Thread(target=fetch)
    thread.start()
    assert not came.wait(0.3)
    other.release()
    assert came.wait(10)
    thread.join()
    other.take()  # and it is dropped afterwards


def test_who_has_everything_waits_for_nobody(tmp_path: Path, other: FileLock) -> None:
    jars = tmp_path / "ivy" / "jars"
    jars.mkdir(parents=True)
    (jars / "org.x_name_2.13-1.0.jar").touch()
    with fetching.alone([PACKAGE], str(tmp_path / "ivy")), fetching.alone([]):
        pass


def test_without_a_place_for_the_lock_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with fetching.alone([PACKAGE], str(tmp_path / "ivy")):
        pass


def test_a_stop_does_not_wait_for_somebody_who_fetches(tmp_path: Path, other: FileLock) -> None:
    begun, ended, unwanted = threading.Event(), threading.Event(), threading.Event()

    def start(_: object) -> None:
        begun.set()
        with fetching.alone([PACKAGE], str(tmp_path / "ivy"), unwanted.is_set):
            ended.set()

    starting = Starting(start, unwanted)  # type: ignore[arg-type]
    assert begun.wait(10)
    assert not ended.wait(0.2)
    assert starting.wait(lambda: True) is None
    assert ended.is_set()
