"""`penstock init` in child processes: what it makes, what it says, and that it never overwrites or leaves halves behind."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.init import TEMPLATES

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
SHIPPED = Path(__file__).parents[2] / "packages" / "penstock" / "src" / "penstock" / "templates"
MODELINE = "# yaml-language-server: $schema="
ALL = pytest.mark.parametrize("name", TEMPLATES)


def _penstock(
    folder: Path, *arguments: str, before: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [PENSTOCK, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=before)


def _init(folder: Path, *arguments: str) -> str:
    ended = _penstock(folder, "init", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def _refused(folder: Path, *arguments: str, before: Callable[[], None] | None = None) -> str:
    """Runs what must make nothing, and returns what was said."""
    there = _below(folder)
    ended = _penstock(folder, "init", *arguments, before=before)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    assert _below(folder) == there
    return ended.stderr


def _below(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder, and what the files hold."""
    found = sorted(folder.rglob("*"))
    return {p.relative_to(folder).as_posix(): p.read_bytes() if p.is_file() else None for p in found}


# -- what is made ---------------------------------------------------------------------------------------------------


@ALL
def test_exactly_the_files_that_are_told_are_made_and_none_is_empty(tmp_path: Path, name: str) -> None:
    made = json.loads(_init(tmp_path, "shop", "--template", name, "--json"))
    assert {k: v for k, v in made.items() if k != "files"} == {"folder": "shop", "template": name}
    files = {file: content for file, content in _below(tmp_path / "shop").items() if content is not None}
    assert sorted(made["files"]) == sorted(files)
    assert {"pipeline.yaml", "penstock.schema.json", ".gitignore"} <= set(files)
    assert all(content and content.endswith(b"\n") for content in files.values())


@ALL
def test_the_pipeline_has_tests_no_problem_and_no_warning(tmp_path: Path, name: str) -> None:
    _init(tmp_path, "--template", name)
    ended = _penstock(tmp_path, "validate", "pipeline.yaml", "--json")
    assert ended.returncode == 0
    found = json.loads(ended.stdout)
    assert (found["ok"], found["problems"], found["warnings"]) == (True, [], [])
    [pipeline] = _loaded(tmp_path)["pipelines"]
    assert [pipeline["id"]] == found["pipelines"]
    assert pipeline["tests"]


@ALL
def test_the_first_line_names_the_schema_beside_it_and_the_file_is_as_it_says(tmp_path: Path, name: str) -> None:
    _init(tmp_path, "--template", name)
    first = (tmp_path / "pipeline.yaml").read_text().splitlines()[0]
    assert first.startswith(MODELINE)
    schema = json.loads((tmp_path / first.removeprefix(MODELINE)).read_text())
    try:
        import jsonschema  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        return
    jsonschema.Draft7Validator(schema).validate(_loaded(tmp_path))


def _loaded(folder: Path) -> Any:
    import yaml

    return yaml.safe_load((folder / "pipeline.yaml").read_text())


def test_the_schema_is_the_one_that_the_command_prints(tmp_path: Path) -> None:
    made = _penstock(tmp_path, "schema").stdout
    assert (SHIPPED / "penstock.schema.json").read_text() == made, (
        "make it anew: .venv/bin/penstock schema -o packages/penstock/src/penstock/templates/penstock.schema.json"
    )


@ALL
def test_every_file_that_ships_is_used(name: str) -> None:
    shipped = {p.relative_to(SHIPPED / name).as_posix() for p in (SHIPPED / name).rglob("*") if p.is_file()}
    made = {file.removeprefix(".") for file in TEMPLATES[name].files if file != "penstock.schema.json"}
    assert {file for file in shipped if "__pycache__" not in file} == made


@ALL
def test_a_pipeline_fits_a_terminal(tmp_path: Path, name: str) -> None:
    _init(tmp_path, "--template", name)
    assert [line for line in (tmp_path / "pipeline.yaml").read_text().splitlines() if len(line) > 80] == []


# -- what is said ---------------------------------------------------------------------------------------------------


@ALL
def test_it_says_what_it_made_and_what_to_type_next(tmp_path: Path, name: str) -> None:
    said = _init(tmp_path, "shop", "--template", name)
    assert [line for line in said.splitlines() if len(line) > 80] == []
    above, below = said.split("\n\n")
    assert [line.split()[0] for line in above.splitlines()[1:]] == list(TEMPLATES[name].files)
    steps = ["cd shop", "penstock test pipeline.yaml", "penstock run pipeline.yaml --once", "penstock dlq list"]
    shown = [line.split("   ")[0].strip() for line in below.splitlines()[1:]]
    wanted = steps if TEMPLATES[name].bad else steps[:3]
    assert [line.startswith(step) for line, step in zip(shown, wanted, strict=True)] == [True] * len(wanted)


def test_in_the_folder_one_stands_in_there_is_no_cd(tmp_path: Path) -> None:
    said = _init(tmp_path)
    assert "this folder" in said
    assert "cd " not in said


@pytest.mark.parametrize("folder", ["with space", "-dash", "do$llar", "quo'te", "a/b/c", "ü", "a/../b"])
def test_the_cd_that_is_shown_can_be_typed(tmp_path: Path, folder: str) -> None:
    said = _init(tmp_path, "--", folder)
    [line] = [line.strip() for line in said.splitlines() if line.startswith("  cd ")]
    ended = subprocess.run(["sh", "-c", f"{line} && ls pipeline.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout == "pipeline.yaml\n"
    assert len(shlex.split(line)) == 2


def test_a_name_can_not_drive_the_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in _init(tmp_path, "\x1b[31mred")
    assert "\x1b" not in _refused(tmp_path, "\x1b[31mred")
    assert "\x1b" not in _refused(tmp_path, "--template", "\x1b[31mred")


def test_help_lists_every_template_with_a_line(tmp_path: Path) -> None:
    lines = _init(tmp_path, "--help").splitlines()
    assert [line for line in lines if len(line) > 80] == []
    for name, template in TEMPLATES.items():
        assert any(line.split() == [name, *template.about.split()] for line in lines)


def test_spark_is_not_loaded(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "init"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in ended.stderr.splitlines()}
    assert "penstock" in imported
    assert imported & {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "pydantic", "sqlglot"} == set()


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", TEMPLATES["python"].names)
def test_nothing_is_made_where_a_name_is_taken(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    error = _refused(tmp_path, "--template", "python")
    assert "[init.exists]" in error
    assert f"it has {there}\n" in error


def test_all_names_that_are_taken_are_said(tmp_path: Path) -> None:
    _init(tmp_path, "shop")
    (tmp_path / "shop" / "out").mkdir()
    error = _refused(tmp_path, "shop")
    assert all(name in error for name in ("pipeline.yaml", "orders", "penstock.schema.json", ".gitignore", "out"))
    assert ".penstock" not in error
    assert [line for line in error.splitlines() if len(line) > 80] == []


def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").symlink_to("nowhere")
    assert "[init.exists]" in _refused(tmp_path)


def test_other_files_of_the_folder_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    _init(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".penstock*"))  # what was made aside is gone


@pytest.mark.parametrize(
    "folder, why", [("file", "file is a file"), ("file/below", "file is a file"), ("x" * 300, "name too long")]
)
def test_a_folder_that_can_not_be_one_is_refused(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "file").write_text("mine")
    error = _refused(tmp_path, folder)
    assert "[init.folder]" in error
    assert why in error


def _no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize("folder", [".", "new", "new/deep/er"])
def test_where_a_file_can_not_be_written_nothing_stays_behind(tmp_path: Path, folder: str) -> None:
    """A limit on the size of files stands for a disk that is full: the first files fit, the schema does not."""
    (tmp_path / "notes.txt").write_text("mine")
    assert "[init.folder]" in _refused(tmp_path, folder, before=_no_large_files)


def _rights_count() -> None:
    """Takes from root what lets it write everywhere (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    probe = subprocess.run(["touch", "closed/x"], cwd=tmp_path, capture_output=True, preexec_fn=_rights_count)
    if probe.returncode == 0:
        pytest.skip("this user may write everywhere")
    assert "Permission denied" in _refused(tmp_path, "closed", before=_rights_count)
    assert "Permission denied" in _refused(tmp_path, "closed/below", before=_rights_count)


@pytest.mark.parametrize(
    "name, said", [("order", "'orders'"), ("CSV", "'csv'"), ("pyton", "'python'"), ("zzz", "orders, csv, lines")]
)
def test_an_unknown_template_is_refused_with_the_nearest_name(tmp_path: Path, name: str, said: str) -> None:
    assert said in _refused(tmp_path, "--template", name)
