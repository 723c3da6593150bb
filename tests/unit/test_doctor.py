"""`penstock doctor` in child processes, and its checks with facts of other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from penstock import packages
from penstock.cli import doctor
from penstock.plugins import builtin

ROOT = Path(__file__).parents[2]
SPARK = ("pyspark", "py4j", "pandas", "pyarrow", "numpy")


def _doctor(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("penstock")), "doctor", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def _java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def _by_name(ended: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    return {c["name"]: c for c in json.loads(ended.stdout)["checks"]}


# -- the command ----------------------------------------------------------------------------------------------------


def test_a_line_for_each_check_and_exit_0_when_all_is_there(tmp_path: Path) -> None:
    java = str(_java(tmp_path / "jdk", "21.0.1"))
    ended = _doctor(tmp_path, JAVA_HOME=java, XDG_CACHE_HOME=str(tmp_path), PENSTOCK_NO_ARCHIVE="")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert f"✓ Java           21.0.1 ({tmp_path}/jdk/bin/java, from JAVA_HOME)" in lines
    assert any(line.startswith("✓ pyspark ") for line in lines)
    assert any(line.startswith("– class archive  not made") for line in lines)
    assert "                 do: nothing, or make it now: python -m penstock.cli.archive" in lines
    assert lines[-1] == "Everything that is needed is there."
    assert "\x1b" not in ended.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "jdk"], "nothing is left behind, and no state folder is made"


def test_a_class_archive_that_is_not_wanted(tmp_path: Path) -> None:
    found = _by_name(_doctor(tmp_path, "--json", PENSTOCK_NO_ARCHIVE="1"))
    assert found["class archive"]["state"] == "absent"
    assert found["class archive"]["text"] == "turned off by PENSTOCK_NO_ARCHIVE"


def test_a_failure_has_what_to_do_below_it_and_exit_1(tmp_path: Path) -> None:
    ended = _doctor(tmp_path, JAVA_HOME=str(_java(tmp_path / "jdk", "11.0.2")))
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("✗ Java"))
    assert "is version 11.0.2: Spark needs Java 17 or newer" in lines[place]
    assert lines[place + 1].startswith("                 do: install Java 17 or newer")
    assert lines[-1].startswith("1 of ")


def test_where_a_stream_has_no_signs_there_are_words(tmp_path: Path) -> None:
    ended = _doctor(tmp_path, "--state", "é", PYTHONIOENCODING="ascii", JAVA_HOME=str(tmp_path / "gone"))
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert ended.stdout.startswith("ok      Python ")
    assert "\nFAILED  Java           JAVA_HOME is " in ended.stdout
    assert ended.stdout.isascii()


def test_json_is_one_object(tmp_path: Path) -> None:
    ended = _doctor(tmp_path, "--json", JAVA_HOME=str(tmp_path / "gone"))
    assert ended.returncode == 1
    assert ended.stdout.count("\n") == 1
    assert json.loads(ended.stdout)["ok"] is False
    found = _by_name(ended)
    assert found["Java"]["state"] == "failed"
    assert "JAVA_HOME" in found["Java"]["text"]
    assert found["Python"] == {
        "name": "Python",
        "state": "ok",
        "text": f"{sys.version.split()[0]} ({sys.executable})",
        "fix": "",
    }


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """An environment for `python -S` that has everything but Spark and what belongs to it."""
    site = tmp_path / "site"
    site.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(SPARK) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    ours = [str(p / "src") for p in (ROOT / "packages").iterdir()]
    return {"PYTHONPATH": os.pathsep.join([*ours, str(site)]), "PATH": str(tmp_path), "JAVA_HOME": ""}


def test_without_java_and_spark_it_says_what_is_missing(tmp_path: Path, without_spark: dict[str, str]) -> None:
    command = [sys.executable, "-S", "-m", "penstock.cli.main", "doctor", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, env={**os.environ, **without_spark}, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "")
    found = _by_name(ended)
    assert {name for name, c in found.items() if c["state"] == "failed"} == {"Java", "pyspark", "pandas", "pyarrow"}
    assert found["pyspark"]["text"] == "is not installed"
    assert found["pyspark"]["fix"] == "pip install 'pyspark>=4.2,<4.4'"
    assert found["Java"]["text"].startswith("There is no Java")
    assert found["class archive"]["text"] == "needs Java and pyspark"
    assert found["Delta"]["text"] == found["Kafka"]["text"] == "without pyspark nothing is known"


def test_spark_is_not_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "doctor"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "penstock.packages" in imported
    assert {m for m in imported if m.split(".")[0] in SPARK} == set()


def test_a_check_that_fails_itself_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> doctor.Check:
        raise RuntimeError("no idea")

    monkeypatch.setattr(doctor, "check_loopback", broken)
    found = {c.name: c for c in doctor.checks(tmp_path)}
    assert found["127.0.0.1"] == doctor.Check("127.0.0.1", "failed", "can't be checked: RuntimeError: no idea")
    assert "memory" in found


# -- Python and Spark -----------------------------------------------------------------------------------------------


def test_an_old_python() -> None:
    assert doctor.check_python((3, 10, 4), "/usr/bin/python3").state == "failed"
    assert doctor.check_python((3, 14, 0), "/usr/bin/python3") == doctor.Check(
        "Python", "ok", "3.14.0 (/usr/bin/python3)"
    )


@pytest.mark.parametrize(
    ("name", "version", "ok"),
    [
        ("pyspark", "4.2.0", True),
        ("pyspark", "4.3.1.dev2", True),
        ("pyspark", "4.4.0", False),
        ("pyspark", "4.1.9", False),
        ("pyspark", "3.5.1", False),
        ("pandas", "2.3.3", True),
        ("pandas", "3.0.0", False),
        ("pandas", "2.1.4", False),
        ("pyarrow", "20.0.0", True),
        ("pyarrow", "19.0.1", False),
        ("pyarrow", "100.1", True),
    ],
)
def test_packages_have_to_be_in_range(name: str, version: str, ok: bool) -> None:
    check = doctor.check_package(name, version)
    assert check.state == ("ok" if ok else "failed")
    assert version in check.text
    assert ok or check.fix == f"pip install '{name}{packages.PYTHON[name]}'"


def test_the_ranges_are_those_that_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "packages" / "penstock" / "pyproject.toml").read_text())["project"]
    checked = {f"{name}{r}" for name, r in packages.PYTHON.items()}
    assert checked - set(project["dependencies"]) == set(project["optional-dependencies"]["spark"])
    assert project["requires-python"] == ">=" + ".".join(map(str, doctor.OLDEST_PYTHON))


def test_every_spark_that_is_supported_has_its_rows() -> None:
    supported = {v for n in range(10) if (v := f"4.{n}") in packages.PYTHON["pyspark"]}
    assert set(packages.DELTA) == set(packages.KAFKA) == supported


def test_a_spark_of_a_cluster_that_is_only_on_the_path_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ours_alone").mkdir()
    (tmp_path / "ours_alone" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "ours_alone" / "version.py").write_text('__version__: str = "4.2.0"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor.installed("ours_alone") == "4.2.0"
    assert doctor.installed("nothing_of_that_name") == ""


def test_a_spark_home_of_another_version_would_be_started_instead(tmp_path: Path) -> None:
    assert doctor.check_spark_home("", "4.2.0") is None
    gone = doctor.check_spark_home(str(tmp_path), "4.2.0")
    assert gone is not None
    assert (gone.state, gone.fix) == ("failed", "unset SPARK_HOME")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    other = doctor.check_spark_home(str(tmp_path), "4.2.0")
    assert other is not None
    assert other.state == "failed"
    assert "Spark 3.5.1" in other.text
    same = doctor.check_spark_home(str(tmp_path), "3.5.0")
    assert same is not None
    assert same.state == "ok"


@pytest.mark.parametrize(
    ("spark", "delta", "state", "said"),
    [
        ("4.2.0", "", "ok", "io.delta:delta-spark_4.2_2.13:4.4.0 (in Python delta-spark 4.4.0)"),
        ("4.2.0", "4.4.0", "ok", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("4.2.0", "4.4.1", "failed", "delta-spark 4.4.1 is installed and does not fit Spark 4.2.0"),
        ("4.3.0", "", "absent", "there is no package for Spark 4.3 yet"),
        ("4.3.0", "4.4.0", "failed", "delta-spark 4.4.0 is installed, and there is no package for Spark 4.3 yet"),
        ("3.5.1", "", "absent", "nothing is known for Spark 3.5.1"),
    ],
)
def test_delta(spark: str, delta: str, state: str, said: str) -> None:
    check = doctor.check_delta(spark, delta)
    assert check.state == state
    assert said in check.text
    assert bool(check.fix) == (state == "failed")


def test_kafka() -> None:
    known = doctor.check_kafka("4.2.0")
    assert "spark-sql-kafka-0-10_2.13:4.2.0 and " in known.text
    assert "spark-token-provider-kafka-0-10_2.13:4.0.0" in known.text
    assert doctor.check_kafka("4.3.0").text == "there is no package for Spark 4.3 yet"


def test_a_package_counts_once_a_connector_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_delta("4.2.0", "").state == "ok"
    assert doctor.check_kafka("4.2.0").state == "ok"
    for names in (builtin.SOURCES, builtin.DESTINATIONS):
        monkeypatch.delitem(names, "kafka", raising=False)
    assert doctor.check_kafka("4.2.0").state == "absent"


# -- folders and the machine ----------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_tried_above(tmp_path: Path) -> None:
    check = doctor.check_folder("state folder", tmp_path / "a" / "b", "other")
    assert check.state == "ok"
    assert check.text.startswith(f"{tmp_path}/a/b can be made; ")
    assert list(tmp_path.iterdir()) == []


def test_a_file_or_a_link_to_nothing_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("file", "file/below", "link"):
        check = doctor.check_folder("state folder", tmp_path / name, "other")
        assert (check.state, check.fix) == ("failed", "other")
        assert "is not a folder" in check.text


def test_a_folder_that_can_not_be_written_to() -> None:
    """Also for root, to whom permission bits say nothing."""
    check = doctor.check_folder("state folder", Path("/proc/penstock"), "other")
    assert check.state == "failed"
    assert check.text.startswith("/proc can't be written to: ")


def test_too_little_disk(tmp_path: Path) -> None:
    check = doctor.check_folder("state folder", tmp_path, "name another one: --state DIR", free=lambda _: 345_678_901)
    assert check.state == "failed"
    assert "only 0.3 GB of disk are free, and 1.0 GB should be" in check.text
    assert check.fix == "free some, or name another one: --state DIR"
    assert doctor.check_folder("state folder", tmp_path, "other", free=lambda _: 10**9).state == "ok"


def test_temporary_folders_are_those_that_spark_and_python_use(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    found = _by_name(_doctor(tmp_path, "--json", SPARK_LOCAL_DIRS="/proc/a,/b", TMPDIR=str(tmp_path / "python")))
    assert found["Spark's temp"]["state"] == "failed"
    assert "SPARK_LOCAL_DIRS" in found["Spark's temp"]["fix"]
    assert found["Python's temp"]["text"].startswith(f"{tmp_path}/python; ")


def test_an_address_that_can_not_be_listened_on() -> None:
    assert doctor.check_loopback().state == "ok"
    assert doctor.check_loopback("192.0.2.1").state == "failed"


def test_little_memory_is_a_warning_and_no_failure() -> None:
    check = doctor.check_memory(2 * 10**9)
    assert check is not None
    assert (check.state, "spark.driver.memory" in check.fix) == ("warning", True)
    enough = doctor.check_memory(16 * 10**9)
    assert enough is not None
    assert enough.state == "ok"


def test_the_memory_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "limit").write_text("1500000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(doctor, "LIMITS", (str(tmp_path / "limit"), str(tmp_path / "none"), str(tmp_path / "gone")))
    assert doctor.memory() == 1_500_000_000
