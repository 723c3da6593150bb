"""A command that is refused leaves the folder as it was: no state, no output, no log. In child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: in}}
      - {id: out, type: destination, plugin: files, settings: {path: out}}
"""


@pytest.mark.parametrize(
    "old, new, options",
    [
        ("path: out", "pathh: out", ()),
        ("plugin: files", "plugin: kafak", ()),
        ("", "", ("--conf", "spark.x")),
        ("", "", ("--conf", "spark.speculation=true")),
        ("", "", ("--conf", "spark.sql.caseSensitive=false")),
        ("", "", ("--state", "p.yaml/below")),
        ("", "", ("nowhere.yaml",)),
    ],
)
def test_a_refused_command_leaves_everything_as_it_was(
    tmp_path: Path, old: str, new: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x\n")
    (tmp_path / "p.yaml").write_text(PIPELINE.replace(old, new) if old else PIPELINE)
    before = sorted(tmp_path.rglob("*"))
    command = [str(Path(sys.executable).with_name("penstock")), "run", "p.yaml", "--once", *options]
    environ = {**os.environ, "JAVA_HOME": "/nonexistent"}  # so that a control that fails does not start Spark
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "[spark.start]" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
