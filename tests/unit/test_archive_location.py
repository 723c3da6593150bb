"""Where the class archive belongs: the same place for the same Java and Spark, another one for any other."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from penstock.engine import archive


def found() -> Path:
    path = archive.location()
    assert path is not None
    return path


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something that looks like a Java, without the file that says its version."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return java


def test_the_same_facts_give_the_same_place_and_asking_makes_nothing(tmp_path: Path) -> None:
    assert archive.location() is not None
    assert archive.location() == archive.location()
    assert not (tmp_path / "cache").exists()


def test_the_place_is_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found().parent == tmp_path / "cache" / "penstock"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for variable in ("", None):
        if variable is None:
            monkeypatch.delenv("XDG_CACHE_HOME")
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", variable)
        assert found().parent == tmp_path / "home" / ".cache" / "penstock"


def test_the_same_java_by_a_link_or_on_the_path_has_the_same_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found()
    (tmp_path / "link").symlink_to(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "link"))
    assert found() == before
    monkeypatch.delenv("JAVA_HOME")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(tmp_path / "java" / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert found() == before


def test_a_java_in_another_place_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = found()
    shutil.copytree(tmp_path / "java", tmp_path / "java2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java2"))
    assert found() != before


def test_an_updated_java_has_another_archive(tmp_path: Path) -> None:
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"')
    before = found()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"')
    assert found() != before


def test_another_spark_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive.location()
    monkeypatch.setattr(metadata, "version", lambda name: "9.9.9")
    assert archive.location() != before
    assert "spark-9.9.9-" in str(archive.location())


def test_another_environment_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive names the jars by their path, and those lie in the environment."""
    before = archive.location()
    monkeypatch.setattr(sys, "prefix", "/another/venv")
    assert archive.location() != before


def test_an_updated_java_without_a_release_file_has_another_archive(java: Path) -> None:
    before = archive.location()
    os.utime(java, (0, 0))
    assert archive.location() != before


def test_without_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no"))
    assert archive.location() is None
    assert archive.use() == []
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert archive.location() is None


def test_without_spark_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert archive.location() is None
    assert archive.use() == []


def test_the_jvm_is_told_of_an_archive_only_when_it_is_there() -> None:
    assert archive.use() == []
    found().parent.mkdir(parents=True)
    found().touch()
    assert archive.use() == [f"-XX:SharedArchiveFile={found()}", *archive.QUIET]
