"""`penstock plugins list` and `describe`, and the descriptions they and the pages are made of."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.pipeline import Pipeline
from penstock.plugins import builtin, registry
from penstock.plugins.describe import Setting, describe, describe_hosted, summary

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
NATIVE = [(kind, name) for kind, plugins in builtin.KINDS.items() for name in plugins]
HOSTED = [(kind, name) for name in registry.offered() for kind in registry.kinds(name)]
ALL = NATIVE + HOSTED


def _plugins(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, "plugins", *arguments], capture_output=True, text=True, env={**os.environ, **environment}
    )


def _on_a_terminal(*arguments: str) -> str:
    """What is shown at 80 columns."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen([PENSTOCK, "plugins", *arguments], stdout=theirs, env={**os.environ, "COLUMNS": "80"})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    return shown.decode().replace("\r\n", "\n")


# -- list -----------------------------------------------------------------------------------------------------------


def test_everything_is_listed_by_kind() -> None:
    ended = _plugins("list")
    assert (ended.returncode, ended.stderr) == (0, "")
    listed = [block.splitlines() for block in ended.stdout.split("\n\n")]
    assert [block[0] for block in listed] == ["sources", "destinations", "processors"]
    by_kind = [
        sorted(name for kind, name in ALL if kind == wanted) for wanted in ("source", "destination", "processor")
    ]
    assert [[line.split()[0] for line in block[1:]] for block in listed] == by_kind
    assert "  filter               Drops what its condition matches, on purpose.\n" in ended.stdout


def test_one_kind_and_as_json() -> None:
    assert _plugins("list", "--kind", "source").stdout.startswith("sources\n  chaos ")
    assert "processors" not in _plugins("list", "--kind", "source").stdout
    lines = [json.loads(line) for line in _plugins("list", "--json").stdout.splitlines()]
    assert sorted((one["kind"], one["name"]) for one in lines) == sorted(ALL)
    assert all(one["summary"].endswith(".") for one in lines)


def test_on_a_terminal_of_80_columns_nothing_is_wider() -> None:
    for arguments in (["list"], ["describe", "files"], ["describe", "field.convert"], ["describe", "generator"]):
        lines = _on_a_terminal(*arguments).splitlines()
        assert len(lines) > 20
        assert [line for line in lines if len(line) > 80] == []


def test_a_reader_that_goes_away_is_no_error() -> None:
    ended = subprocess.run(f"{PENSTOCK} plugins describe files | head -1", shell=True, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("files (source)\n", "")


# -- describe -------------------------------------------------------------------------------------------------------


def test_a_processor_has_text_settings_places_and_an_example() -> None:
    ended = _plugins("describe", "pick")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("pick (processor)\n\nKeeps only the fields that are named")
    assert "\nSettings\n  fields (text; required)\n      The fields to keep" in ended.stdout
    assert "\n  raw    refused: the payload is raw" in ended.stdout
    assert "\n  typed  Spark; typed behind it\n" in ended.stdout
    assert "\n    processors:\n    - id: pick\n      plugin: pick\n" in ended.stdout


def test_a_name_that_is_both_is_shown_as_both_unless_one_is_asked_for() -> None:
    both = _plugins("describe", "files").stdout
    assert "files (source)\n" in both
    assert "\n\nfiles (destination)\n" in both
    assert "Guarantee: exactly once." in both
    assert "files (source)" not in _plugins("describe", "files", "--kind", "destination").stdout
    lines = _plugins("describe", "builtin:files@latest", "--json").stdout.splitlines()
    assert [(json.loads(line)["kind"], json.loads(line)["name"]) for line in lines] == [
        ("source", "files"),
        ("destination", "files"),
    ]


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["fils"], "Nothing is called 'fils'", "did you mean 'files'?"),
        (["xyzzy"], "Nothing is called 'xyzzy'", "`penstock plugins list` shows all of them"),
        (["files@v9"], "Nothing is called 'files@v9'", "write files without a version"),
        (["avro.decode"], "The processor 'avro.decode' of Conduit is not there", "give the payload a schema"),
        (["s3"], "'s3' of Conduit is not there", "as a source: there is no S3 connector yet"),
        (["file", "--kind", "processor"], "No processor is called 'file'", "did you mean 'filter'?"),
        (["log", "--kind", "source"], "No source is called 'log'", "'log' is a destination"),
        (["piks", "--kind", "processor"], "No processor is called 'piks'", "did you mean 'pick'?"),
    ],
)
def test_an_unknown_name_says_what_may_be_meant(arguments: list[str], what: str, hint: str) -> None:
    ended = _plugins("describe", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    first, do = ended.stderr.splitlines()
    assert first == f"[plugins.unknown] {what}"
    assert do.startswith(f"  do: {hint}")


def test_a_stream_without_our_characters_is_written_to_all_the_same() -> None:
    ended = _plugins("describe", "python", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.isascii()
    assert "    @processor(batch=True)\n    def clean(batch" in ended.stdout


def test_spark_is_not_imported() -> None:
    for arguments in (["list"], *(["describe", name] for name in ("files", "generator", "log", "sql", "json.decode"))):
        command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "plugins", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 0
        imported = {line.rpartition("|")[2].strip().split(".")[0] for line in ended.stderr.splitlines()}
        assert "penstock" in imported
        assert imported & {"pyspark", "py4j", "pandas", "pyarrow", "numpy"} == set()


# -- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), HOSTED)
def test_everything_in_a_process_of_its_own_describes_itself(kind: str, name: str) -> None:
    made = registry.hosted(kind, name)
    assert made is not None
    d = describe_hosted(kind, made)
    assert d.summary.endswith(".")
    assert (d.runs, d.registry, d.version) == ("in a process of its own", "builtin", made.version)
    assert d.guarantee == ("at least once" if kind == "destination" else "")
    assert all(s.meaning.endswith(".") and s.type for s in d.settings)
    assert [s.name for s in d.settings] == list(made.parameters(kind))
    shown = _plugins("describe", name, "--kind", kind).stdout
    assert all(f"  {s.name} (" in shown for s in d.settings)


@pytest.mark.parametrize(("kind", "name"), NATIVE)
def test_everything_that_is_built_in_describes_itself(kind: str, name: str, tmp_path: Path) -> None:
    d = describe(kind, name)
    assert d.summary == summary(kind, name)
    assert d.summary.endswith(".")
    assert d.summary[0].isupper()
    assert [s.name for s in d.settings if not s.meaning.endswith(".")] == []
    assert len(d.places) == (3 if kind == "processor" else 0)
    file = tmp_path / "p.yaml"
    file.write_text(d.example_yaml(76))
    assert yaml.safe_load(d.example_yaml()) == yaml.safe_load(d.example_yaml(76))
    assert Pipeline.from_file(file).id == "example"


def test_settings_are_written_as_a_file_has_them() -> None:
    found = {s.name: s for s in (*describe("source", "files").settings, *describe("source", "generator").settings)}
    assert found["path"].required
    assert (found["settle"].type, found["settle"].default) == ("duration", "1s")
    assert found["recursive"].default == "false"
    assert (found["rate"].type, found["rate"].default) == ("number", "0")
    assert found["operations"].default == "create"
    assert found["format.type"].choices == ("raw", "structured", "file")
    assert found["format.options.<field>"].type == "text"
    assert found["collections.<name>.…"] == Setting(
        "collections.<name>.…", "settings", (), "", required=False, meaning=found["collections.<name>.…"].meaning
    )
    size = next(s for s in describe("destination", "files").settings if s.name == "target-file-size")
    assert (size.type, size.default, size.required) == ("size", "", False)
