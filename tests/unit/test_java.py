"""Which Java is found, told from files and from a `java` that is a shell script."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine import java
from penstock.errors import UsageError


def _java(home: Path, script: str = "exit 1", release: str = "") -> Path:
    file = home / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\ntouch {home}/asked\n{script}\n")
    file.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{release}"\nLIBC="gnu"\n')
    return file


def _says(*lines: str) -> str:
    return "\n".join(f"echo '{line}' >&2" for line in lines)


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java of this machine. `touch` stays to be found by the scripts, which get their PATH from here, too."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "touch").symlink_to("/usr/bin/touch")
    monkeypatch.setenv("PATH", str(tools))


def _path(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")


def _refused() -> UsageError:
    with pytest.raises(UsageError) as raised:
        java.require()
    return raised.value


def test_the_file_release_tells_the_version_and_java_is_not_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = _java(tmp_path / "jdk", release="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java.find() == java.require() == java.Java(file, 17, "17.0.15", "JAVA_HOME")
    assert not (tmp_path / "jdk" / "asked").exists()


def test_java_home_comes_before_the_path_and_an_empty_one_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _java(tmp_path / "home", release="21")
    _java(tmp_path / "path", release="17.0.1")
    _path(monkeypatch, tmp_path / "path")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.require().version == 21
    monkeypatch.setenv("JAVA_HOME", "")
    assert (java.require().version, java.require().origin) == (17, "PATH")


def test_a_link_on_the_path_leads_to_the_release_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = _java(tmp_path / "jdk", release="21.0.2")
    (tmp_path / "tools" / "java").symlink_to(file)
    assert java.require().text == "21.0.2"
    assert java.require().path == tmp_path / "tools" / "java"


@pytest.mark.parametrize(
    ("lines", "version", "text"),
    [
        (['openjdk version "17.0.15" 2025-04-15', "OpenJDK Runtime Environment (build 17.0.15+6)"], 17, "17.0.15"),
        (['java version "1.8.0_412"', "Java(TM) SE Runtime Environment"], 8, "1.8.0_412"),
        (['openjdk version "25-ea" 2025-09-16'], 25, "25-ea"),
        (['Picked up JAVA_TOOL_OPTIONS: -Dapp.version="1.2"', 'openjdk version "21.0.1" 2023-10-17 LTS'], 21, "21.0.1"),
        (["java version 18"], 18, "18"),
        (['IBM Semeru: a warning', 'openjdk version "17.0.9" 2023-10-17'], 17, "17.0.9"),
        (["a Java that does not tell"], 0, ""),
    ],
)  # fmt: skip
def test_without_a_release_file_java_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str], version: int, text: str
) -> None:
    _java(tmp_path / "jdk", _says(*lines))
    _path(monkeypatch, tmp_path / "jdk")
    found = java.find()
    assert found is not None
    assert (found.version, found.text) == (version, text)


def test_a_release_file_that_is_something_else_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path / "jdk", _says('openjdk version "17.0.2"'))
    (tmp_path / "jdk" / "release").write_text("Debian 12\n")
    _path(monkeypatch, tmp_path / "jdk")
    assert java.require().text == "17.0.2"


def test_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert java.find() is None
    error = _refused()
    assert error.code == "java.missing"
    assert "There is no Java" in str(error)
    assert "apt install openjdk-17-jre-headless" in error.hint
    assert "JAVA_HOME" in error.hint
    assert "\n" not in error.hint


@pytest.mark.parametrize("origin", ["JAVA_HOME", "PATH"])
def test_an_old_one_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str) -> None:
    file = _java(tmp_path / "jdk", release="11.0.22")
    if origin == "PATH":
        _path(monkeypatch, tmp_path / "jdk")
    else:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    error = _refused()
    assert error.code == "java.version"
    assert f"The Java at {file} (from {origin}) is version 11.0.22" in str(error)
    assert "Java 17 or newer" in str(error)
    found = java.find()
    assert found is not None
    assert found.version == 11


def test_a_java_that_does_not_tell_its_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path / "jdk", _says("hello"))
    _path(monkeypatch, tmp_path / "jdk")
    error = _refused()
    assert error.code == "java.version"
    assert "does not say which version" in str(error)


def test_a_java_that_does_not_run_is_missing_and_its_own_words_are_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the `java` of macOS without a Java."""
    _java(tmp_path / "jdk", _says("Picked up _JAVA_OPTIONS: -Xmx1g", "Unable to locate a Java Runtime.") + "\nexit 1")
    _path(monkeypatch, tmp_path / "jdk")
    assert java.find() is None
    error = _refused()
    assert (error.code, error.why) == ("java.missing", "Unable to locate a Java Runtime.")


def test_a_java_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path / "jdk", "exec /bin/sleep 60")
    _path(monkeypatch, tmp_path / "jdk")
    monkeypatch.setattr(java, "PATIENCE", 0.3)
    assert java.find() is None
    assert "did not answer" in _refused().why


def test_a_java_of_another_machine_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path / "jdk").write_bytes(b"\x7fELF of another kind of machine")
    _path(monkeypatch, tmp_path / "jdk")
    assert java.find() is None
    assert "xec format" in _refused().why


# -- a JAVA_HOME that points nowhere --------------------------------------------------------------------------------


def test_a_java_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.find() is None
    error = _refused()
    assert error.code == "java.missing"
    assert f"JAVA_HOME is {tmp_path / 'gone'}, and there is no Java" in str(error)
    assert error.why == "there is no such folder"


def test_a_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert _refused().why == "it has no bin/java"
    _java(tmp_path).chmod(0o644)
    assert "may not be executed" in _refused().why


def test_where_the_path_has_a_good_one_the_hint_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _java(tmp_path / "jdk", release="17.0.15")
    _path(monkeypatch, tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.find() is None, "Spark would not look there either"
    assert "unset JAVA_HOME" in _refused().hint
    assert "Java 17.0.15" in _refused().hint


@pytest.mark.parametrize("wrong", ["bin", "bin/java"])
def test_a_java_home_that_points_too_deep_is_corrected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str
) -> None:
    _java(tmp_path / "jdk", release="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk" / wrong))
    assert f"set it to {tmp_path / 'jdk'}" in _refused().hint
