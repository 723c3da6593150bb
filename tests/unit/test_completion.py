"""`penstock completion`: what a real bash completes with the script, and what the scripts of the others say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
# What bash does when TAB is pressed; `compopt` works only inside of that, so here it says what it was told.
PRESS_TAB = """
source <(penstock completion bash)
compopt() { IFS=' '; COMPREPLY=("compopt $*"); }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_penstock_completion penstock
printf '%s\\n' "${COMPREPLY[@]}"
complete -p penstock
"""


def _completed(*words: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        [bash, "--norc", "-c", PRESS_TAB, "bash", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    *found, registered = ended.stdout.splitlines()
    assert registered.endswith(" penstock")
    return found


def _completion(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / "penstock"), "completion", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["penstock", "doc"], ["doctor"]),
        (["penstock", "plugins", ""], ["describe", "install", "list", "remove", "validate"]),
        (["penstock", "plugins", "describe", "json"], ["json.decode", "json.encode"]),
        (["penstock", "plugins", "describe", "--kind", "source", "l"], ["lines"]),
        (["penstock", "plugins", "list", "--kind", ""], ["source", "destination", "processor"]),
        (["penstock", "run", "--on"], ["--once"]),
        (["penstock", "run", "p"], ["compopt -o default"]),  # files
        (["penstock", "doctor", "--state", ""], ["compopt -o dirnames"]),
        (["penstock", "completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_bash_completes(words: list[str], wanted: list[str]) -> None:
    assert _completed(*words) == wanted


def test_bash_completes_every_command() -> None:
    from penstock.cli.main import COMMANDS

    assert _completed("penstock", "") == list(COMMANDS)


@pytest.mark.parametrize(
    ("shell", "first", "install"),
    [
        ("bash", "# To install it: mkdir -p ~/.local/share/bash-completion/completions && ", "~/.bashrc"),
        ("zsh", "#compdef penstock", "~/.zshrc"),
        ("fish", "# To install it: mkdir -p ~/.config/fish/completions && ", "~/.config/fish/config.fish"),
    ],
)
def test_a_script_says_how_to_install_it(shell: str, first: str, install: str) -> None:
    ended = _completion(shell)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(first)
    about = [line for line in lines[:4] if line.startswith("# ")]
    assert len(about) == 2
    assert f"penstock completion {shell} > " in about[0]
    assert about[1].startswith(f"# or, as a line in {install}: ")
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in ended.stdout


@pytest.mark.parametrize("arguments", [[], ["tcsh"]])
def test_another_shell_is_refused_with_those_that_are_known(arguments: list[str]) -> None:
    ended = _completion(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    said = ended.stderr.partition("Error: ")[2]
    assert [shell for shell in ("bash", "zsh", "fish") if shell not in said] == []
