"""A full disk, a read-only folder, a state folder that vanishes: a clear error each, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.harness import Case

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
Mount = Callable[[Path, str], None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts a small file system of its own; may be called again for the same path to change its options."""
    mounted: list[Path] = []

    def make(path: Path, options: str) -> None:
        if path in mounted:
            subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)
            return
        path.mkdir(parents=True, exist_ok=True)
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=False, capture_output=True
        )
        if tried.returncode != 0:
            pytest.skip(f"mounting a file system needs root: {tried.stderr.decode().strip()}")
        mounted.append(path)

    yield make
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=False)


def test_a_disk_that_is_full_while_staging_costs_nothing(make_case: MakeCase, mount: Mount) -> None:
    case = make_case("case")
    mount(case.out, "size=2m")
    case.issue(files=3, lines=40_000)
    ended = case.run()
    assert ended.returncode == 1
    assert "disk.full" in ended.summary["error"]
    assert oracle.judge(case.issued, case.out).duplicated == []
    mount(case.out, "size=100m")
    case.finish()
    assert case.verdict().clean, case.verdict()


def test_a_disk_that_is_full_in_the_ledger_stops_the_engine_and_costs_nothing(
    make_case: MakeCase, mount: Mount
) -> None:
    case = make_case("case")
    mount(case.state, "size=1m")
    case.issue(files=30, lines=10)
    running = case.start()
    assert running.await_point("acked")
    _fill(case.state / "filler")
    ended = running.wait()
    assert ended.returncode == 1
    assert "ledger.write" in ended.summary["error"]
    assert "full" in ended.summary["error"]
    (case.state / "filler").unlink()
    mount(case.state, "size=50m")
    case.finish()
    assert case.verdict().clean, case.verdict()


def _fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 4096)
        except OSError:
            return


def test_a_read_only_destination_is_said_before_spark_starts(make_case: MakeCase, mount: Mount) -> None:
    case = make_case("case")
    mount(case.out, "size=10m,ro")
    case.gateway = None
    case.issue(files=1)
    ended = case.run()
    assert ended.returncode == 1
    assert "files.not-writable" in ended.summary["error"]
    assert "Read-only file system" in ended.summary["error"]
    assert not (case.state / "spark.log").exists()
    mount(case.out, "size=10m,rw")
    case.finish()
    assert case.verdict().clean


def test_a_destination_that_becomes_read_only_costs_nothing(make_case: MakeCase, mount: Mount) -> None:
    case = make_case("case")
    mount(case.out, "size=10m,rw")
    case.issue(files=8)
    running = case.start()
    assert running.await_point("acked")
    try:
        mount(case.out, "size=10m,ro")
    except subprocess.CalledProcessError:
        running.kill(group=False)
        pytest.skip("a file was open for writing at that moment")
    ended = running.wait()
    assert ended.returncode == 1
    assert "Read-only file system" in ended.summary["error"]
    mount(case.out, "size=10m,rw")
    case.finish()
    assert case.verdict().clean, case.verdict()


def test_a_state_folder_that_is_removed_under_the_engine_stops_it(make_case: MakeCase) -> None:
    case = make_case("case")
    case.issue(files=10)
    running = case.start()
    assert running.await_point("acked", times=2)
    shutil.rmtree(case.state)
    ended = running.wait()
    assert ended.returncode == 1
    assert "removed or replaced while the engine was running" in ended.summary["error"]
    case.finish()
    assert case.verdict().missing == []
    assert case.verdict().invented == []


def test_a_state_folder_that_cannot_be_used_is_exit_2(make_case: MakeCase) -> None:
    case = make_case("case")
    case.gateway = None
    case.issue(files=1)
    case.state.write_text("a file where the folder should be")
    ended = case.run()
    assert ended.returncode == 2
    assert "state.unusable" in ended.err
    os.unlink(case.state)
    assert "Traceback" not in ended.err


def test_a_jvm_that_dies_ends_the_engine_with_the_name_of_the_batch(make_case: MakeCase) -> None:
    case = make_case("case")
    case.gateway = None
    case.issue(files=6)
    running = case.start()
    assert running.await_point("stage", times=2)
    subprocess.run(["pkill", "-KILL", "-g", str(running.process.pid), "java"], check=True)
    ended = running.wait()
    assert ended.returncode == 1
    assert "spark.died" in ended.summary["error"]
    assert "batch 2" in ended.summary["error"]
    case.finish()
    assert case.verdict().clean, case.verdict()
