"""The real command in child processes. A Java that only leaves a mark shows whether a JVM would have been started."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import __version__
from penstock.cli.options import spark_settings
from penstock.cli.printer import printable
from penstock.errors import UsageError

GOOD = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: in}}
      - {id: out, type: destination, plugin: files, settings: {path: out}}
"""


@dataclass
class Command:
    """`penstock` in a folder of its own."""

    folder: Path

    @property
    def jvm_started(self) -> bool:
        return (self.folder / "java-was-started").exists()

    def penstock(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("penstock")), *arguments],
            cwd=self.folder,
            env={**os.environ, "JAVA_HOME": str(self.folder / "java")},
            capture_output=True,
            text=True,
        )

    def run(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "p.yaml").write_text(text)
        return self.penstock("run", "p.yaml", *arguments)

    def refused(self, text: str, *arguments: str, code: int = 2) -> str:
        """Runs what must end before anything starts, and returns what was said."""
        ended = self.run(text, *arguments)
        assert ended.returncode == code, ended.stderr
        assert not self.jvm_started
        assert "Traceback" not in ended.stderr
        assert ended.stdout == ""
        return ended.stderr


@pytest.fixture
def command(tmp_path: Path) -> Command:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/java-was-started\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (tmp_path / "in").mkdir()
    return Command(tmp_path)


# -- answers without Spark ------------------------------------------------------------------------------------------


def _imported(folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """Exit code of a command and every module its process has loaded (`-X importtime` lists them)."""
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return ended.returncode, {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}


def _of_spark(imported: set[str]) -> set[str]:
    return {m for m in imported if m.split(".")[0] in ("pyspark", "py4j", "pandas", "pyarrow", "numpy")}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_and_version_answer_without_loading_spark(tmp_path: Path, arguments: list[str]) -> None:
    code, imported = _imported(tmp_path, *arguments)
    assert code == 0
    assert "penstock" in imported
    assert _of_spark(imported) == set()


def test_a_refusal_does_not_load_spark_either(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(GOOD.replace("settings", "setings"))
    code, imported = _imported(tmp_path, "run", "p.yaml")
    assert code == 2
    assert "penstock.config.check" in imported
    assert _of_spark(imported) == set()


def test_the_command_says_what_it_can_do_and_which_version_it_is(command: Command) -> None:
    assert "run" in command.penstock("-h").stdout
    assert command.penstock("--version").stdout.strip() == f"penstock, version {__version__}"


# -- exit 2: nothing was started ------------------------------------------------------------------------------------


def test_this_java_leaves_its_mark_when_a_pipeline_is_fine(command: Command) -> None:
    """The control for all the others: here the JVM would be started."""
    ended = command.run(GOOD, "--once")
    assert command.jvm_started
    assert ended.returncode == 2
    assert "[spark.start]" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "old, new, code, said",
    [
        ("conn", "con", "config.unknown-key", "did you mean 'connectors'?"),
        ("path: in", "pth: in", "config.unknown-key", "did you mean 'path'?"),
        ("plugin: files", "plugin: flies", "config.unknown-plugin", "did you mean 'files'?"),
        ("type: source", "type: sauce", "config.bad-value", "'source' or 'destination'"),
        ("path: in", "path: $NOT_SET_ANYWHERE", "config.unset-variable", "NOT_SET_ANYWHERE"),
        ("path: in", "path: in, settle: 5", "config.bad-value", "duration"),
        ("id: out", "id: in", "config.duplicate-id", "already taken"),
        ("type: destination", "type: source", "config.no-destination", "no destination"),
        ("pipelines:", "pipelines: [", "config.", "p.yaml"),
    ],
)
def test_a_mistake_in_the_file_is_said_with_its_place_and_what_to_do(
    command: Command, old: str, new: str, code: str, said: str
) -> None:
    error = command.refused(GOOD.replace(old, new, 1))
    assert f"[{code}" in error
    assert "p.yaml:" in error
    assert said in error
    assert not (command.folder / ".penstock").exists()


def test_a_missing_file_is_said_by_name(command: Command) -> None:
    assert "no-such.yaml" in command.refused(GOOD, "no-such.yaml")


def test_every_problem_of_every_file_is_said_at_once(command: Command) -> None:
    (command.folder / "b.yaml").write_text(GOOD.replace("id: p", "id: q").replace("plugin: files", "plugin: flies"))
    error = command.refused(GOOD.replace("path: in", "pth: in"), "b.yaml")
    assert "p.yaml:5:" in error
    assert error.count("[config.unknown-plugin]") == 2


@pytest.mark.parametrize(
    "conf, code", [("no-equals-sign", "usage.conf"), ("", "usage.conf"), ("spark.speculation=true", "spark.setting")]
)
def test_a_bad_conf_is_refused(command: Command, conf: str, code: str) -> None:
    assert f"[{code}]" in command.refused(GOOD, "--conf", conf)
    assert not (command.folder / ".penstock").exists()


@pytest.mark.parametrize("arguments", [["run"], ["run", "p.yaml", "--no-such-option"], ["no-such-command"]])
def test_bad_usage_is_refused(command: Command, arguments: list[str]) -> None:
    ended = command.penstock(*arguments)
    assert ended.returncode == 2
    assert "Error" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not command.jvm_started


def test_a_state_folder_that_can_not_be_made_is_refused(command: Command) -> None:
    assert "[state.unusable]" in command.refused(GOOD, "--state", "p.yaml/below-a-file")


def test_a_state_folder_of_a_newer_version_is_refused(command: Command) -> None:
    (command.folder / ".penstock").mkdir()
    (command.folder / ".penstock" / "VERSION").write_text("penstock state 99\n")
    assert "[state.version]" in command.refused(GOOD)


def test_a_ledger_of_a_newer_version_is_refused(command: Command) -> None:
    (command.folder / "elsewhere").mkdir()
    db = sqlite3.connect(command.folder / "elsewhere" / "ledger.db")
    db.execute("PRAGMA user_version=99")
    db.close()
    assert "[state.version]" in command.refused(GOOD, "--state", "elsewhere")


# -- exit 1: a pipeline is degraded ---------------------------------------------------------------------------------


def test_a_ledger_that_is_broken_is_said_without_a_stack_trace(command: Command) -> None:
    (command.folder / ".penstock").mkdir()
    (command.folder / ".penstock" / "ledger.db").write_bytes(b"no database, " * 1000)
    assert "[ledger.open]" in command.refused(GOOD, code=1)


@pytest.mark.parametrize(
    "settings, code",
    [
        ("path: in, after-ack: move, move-to: p.yaml/done", "files.not-writable"),
        ("path: in, after-ack: move, move-to: in", "files.loop"),
        ("path: not-there", "files.missing"),
    ],
)
def test_what_a_source_can_say_without_spark_is_said_before_it_starts(
    command: Command, settings: str, code: str
) -> None:
    assert f"[{code}]" in command.refused(GOOD.replace("path: in", settings), "--once", code=1)


def test_what_a_destination_can_say_without_spark_is_said_before_it_starts(command: Command) -> None:
    text = GOOD.replace("path: out", "path: p.yaml/out")
    assert "[files.not-writable]" in command.refused(text, "--once", code=1)


def test_with_json_programs_read_lines_on_stdout_and_people_nothing_else(command: Command) -> None:
    """A pipeline that can't start is said at once, and again in the summary: the last line, and the only one."""
    ended = command.run(GOOD.replace("path: in", "path: not-there"), "--once", "--json")
    assert ended.returncode == 1
    degraded, summary = map(json.loads, ended.stdout.splitlines())
    assert (degraded["event"], degraded["pipeline"], degraded["source"]) == ("degraded", "p", "")
    assert summary["event"] == "summary"
    [p] = summary["pipelines"]
    assert (p["id"], p["status"], p["error"]) == ("p", "degraded", degraded["error"])
    assert "[files.missing]" in p["error"]
    assert ended.stderr == ""


# -- small parts ----------------------------------------------------------------------------------------------------


def test_a_conf_is_cut_at_its_first_equals_sign() -> None:
    assert spark_settings(("a=b", "c=d=e", "f=")) == {"a": "b", "c": "d=e", "f": ""}


@pytest.mark.parametrize("conf", ["", "a", "=value", "="])
def test_a_conf_without_a_key_or_a_value_is_refused(conf: str) -> None:
    with pytest.raises(UsageError) as caught:
        spark_settings(("fine=1", conf))
    assert caught.value.code == "usage.conf"


def test_a_file_name_that_would_drive_the_terminal_is_shown_harmlessly(command: Command) -> None:
    ended = command.penstock("run", "\x1b[31mred.yaml")
    assert ended.returncode == 2
    assert "red.yaml" in ended.stderr
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize("text", ["\x1b[31mred", "bell\a", "back\b", "line\rover", "\x9b31m", "tab\t", "\u202eturned"])
def test_nothing_that_is_printed_can_drive_the_terminal(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert shown.count("\N{REPLACEMENT CHARACTER}") == 1
    assert printable("plain ü\nline") == "plain ü\nline"
