"""Registries, dispensers and the plugins folder: what a name leads to, which programs run and when, and that nothing unknown is run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.plugins import lock, registry
from penstock.plugins.dispensers import ask
from penstock.plugins.standalone import Standalone
from penstock_protocol.interfaces import PluginError
from penstock_sdk import Connector
from tests.support import sdk_program

ROOT = Path(__file__).parents[2]
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


PROGRAM = """#!{python}
import os, sys
with open({journal!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
sys.path.insert(0, {root!r})
from dataclasses import replace
from penstock_sdk import serve
from tests.support.sdk_program import SYNC
sys.exit(serve(replace(SYNC, name={name!r}, version={version!r})))
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plugins folder of its own, and the packages of this machine read anew."""
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(tmp_path / "plugins"))
    registry._offered.cache_clear()
    yield
    registry._offered.cache_clear()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def program(tmp_path: Path, journal: Path) -> Callable[..., Path]:
    """Makes a program that writes its pid down when it is started."""

    def made(name: str = "counting", version: str = "1.0.0", more: str = "") -> Path:
        path = tmp_path / f"program-{name}-{version}{len(more)}"
        text = PROGRAM.format(python=sys.executable, journal=str(journal), root=str(ROOT), name=name, version=version)
        path.write_text(text + more)
        path.chmod(0o755)
        return path

    return made


def _started(journal: Path) -> list[int]:
    return [int(line) for line in journal.read_text().split()] if journal.exists() else []


def _running(journal: Path) -> list[int]:
    return [pid for pid in _started(journal) if Path(f"/proc/{pid}").exists()]


def _penstock(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PENSTOCK, *arguments], capture_output=True, text=True, cwd=cwd, env={**os.environ, "COLUMNS": "200"}
    )


def _offer(monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    found = [importlib.metadata.EntryPoint(name.rstrip("_"), value, registry.GROUP) for name, value in entries.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry._offered.cache_clear()


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("P5", reason="a table of names and of what each leads to: any other answer is a difference")
def test_a_name_leads_to_one_plugin_or_to_an_error(
    monkeypatch: pytest.MonkeyPatch, program: Callable[..., Path]
) -> None:
    _offer(monkeypatch, counting="tests.support.sdk_program:SYNC", only="tests.contract.test_plugins:ONLY")
    for name, version in (
        ("counting", "1.0.0"),
        ("counting", "1.10.0"),
        ("counting", "v1.9.0"),
        ("tail", "2.0.0"),
        ("files", "9.0.0"),
    ):
        Standalone().add(program(name, version))
    table = {
        "counting": "config.ambiguous-plugin",
        "builtin:counting": "builtin v0.1.0",
        "standalone:counting": "standalone 1.10.0",
        "standalone:counting@1.9.0": "standalone v1.9.0",
        "standalone:counting@v1.0.0": "standalone 1.0.0",
        "standalone:counting@latest": "standalone 1.10.0",
        "standalone:counting@3.0.0": "config.unknown-plugin",
        "builtin:counting@0.1.0": "builtin v0.1.0",
        "builtin:counting@0.2.0": "config.unknown-plugin",
        "counting@1.0.0": "standalone 1.0.0",  # the version says which
        "tail": "standalone 2.0.0",
        "builtin:tail": "config.unknown-plugin",
        "standalone:tail": "standalone 2.0.0",
        "files": "config.ambiguous-plugin",
        "builtin:files": "native",
        "standalone:files": "standalone 9.0.0",
        "generator": "native",
        "generator@latest": "native",
        "generator@v0.1.0": "native",
        "generator@7.0.0": "config.unknown-plugin",
        "standalone:generator": "config.unknown-plugin",
        "only": "config.unknown-plugin",  # it is a destination
        "nothing": "config.unknown-plugin",
        "standalone:": "config.unknown-plugin",
        "": "config.unknown-plugin",
    }
    found = {}
    for name in table:
        problem = registry.problem("source", name)
        made = registry.hosted("source", name) if problem is None else None
        found[name] = problem.code if problem else f"{made.registry} {made.version}" if made else "native"
        assert problem is None or problem.hint, name
    assert found == table


@pytest.mark.contract("P5", reason="a table of names and of what each leads to: any other answer is a difference")
def test_two_packages_that_offer_one_name_are_refused_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, counting="tests.support.sdk_program:SYNC", counting_="tests.support.sdk_program:ASYNC")
    problem = registry.problem("source", "counting")
    assert problem is not None
    assert "SYNC" in problem.what
    assert "ASYNC" in problem.what


def test_a_package_that_is_broken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _offer(monkeypatch, gone="there.is.none:connector", wrong="json:dumps", other="tests.support.sdk_program:SYNC")
    for name, words in (("gone", "No module"), ("wrong", "no penstock_sdk.Connector"), ("other", "'counting'")):
        with pytest.raises(UsageError) as e:
            registry.hosted("source", name)
        assert e.value.code == "plugins.package"
        assert words in str(e.value)


# -- dispensers -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("P4", reason="every start is written down by the program itself")
def test_a_program_runs_from_the_first_call_to_its_teardown_and_again(
    program: Callable[..., Path], journal: Path, tmp_path: Path
) -> None:
    Standalone().add(program())
    assert len(_started(journal)) == 1  # it was asked what it is
    assert _running(journal) == []  # and there is no teardown for that
    made = registry.hosted("source", "counting")
    assert made is not None
    assert made.specification.summary == "Counts and keeps."
    assert len(_started(journal)) == 1  # the lock file knows
    for turn in (2, 3):
        source = made.source("p:c")
        assert len(_started(journal)) == turn
        assert len(_running(journal)) == 1
        source.configure({"journal": str(tmp_path / "told")})
        source.open(b"")
        source.teardown()
        assert _running(journal) == []
    both = [made.source("p:a"), made.destination("p:b")]  # each role has a process of its own
    assert len(_running(journal)) == 2
    for each in both:
        each.teardown()
    assert _running(journal) == []


@pytest.mark.contract("P4", reason="every start is written down by the program itself")
def test_what_is_built_in_is_called_directly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _offer(monkeypatch, counting="tests.support.sdk_program:SYNC")
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a))
    made = registry.hosted("source", "counting")
    assert made is not None
    source = made.source("p:c")
    source.configure({"journal": str(tmp_path / "told")})
    source.open(b"")
    source.teardown()
    assert (tmp_path / "told").read_text() == "open None\nclose\n"
    assert started == []


@pytest.mark.contract("P4", reason="every start is written down by the program itself")
def test_a_check_that_fails_leaves_no_process(program: Callable[..., Path], journal: Path) -> None:
    Standalone().add(program())
    made = registry.hosted("source", "counting")
    assert made is not None
    with pytest.raises(PluginError, match="journal: is required"):
        made.check("source", "p:c", {})
    assert len(_started(journal)) == 2
    assert _running(journal) == []


# -- the plugins folder ---------------------------------------------------------------------------------------------


def test_nothing_that_has_changed_is_run(program: Callable[..., Path], journal: Path, tmp_path: Path) -> None:
    path = program()
    Standalone().add(path)
    path.write_text("the original is nobody's business after that")
    made = registry.hosted("source", "counting")
    assert made is not None
    made.check("source", "p:c", {"journal": str(tmp_path / "told")})
    before = len(_started(journal))
    with (tmp_path / "plugins" / "counting@1.0.0").open("a") as file:
        file.write("# one byte would do\n")
    with pytest.raises(UsageError, match=r"counting 1\.0\.0 is not run") as e:
        made.source("p:c")
    assert e.value.code == "plugins.changed"
    assert "counting@1.0.0" in str(e.value)
    (tmp_path / "plugins" / "counting@1.0.0").unlink()
    with pytest.raises(UsageError, match="is gone"):
        made.source("p:c")
    (tmp_path / "plugins" / "counting@1.0.0").symlink_to(path)
    with pytest.raises(UsageError, match="can't be read"):
        made.source("p:c")
    assert len(_started(journal)) == before


def test_nothing_that_was_not_added_is_run(program: Callable[..., Path], journal: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "counting").write_bytes(program().read_bytes())
    (folder / "counting").chmod(0o755)
    assert registry.hosted("source", "counting") is None
    listed = _penstock("plugins", "list")
    assert "counting is not in plugins.lock and is never run" in listed.stderr
    assert _started(journal) == []


def test_a_package_is_run_by_this_interpreter_and_held_to_every_file(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__main__.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport helper\nfrom penstock_sdk import serve\nsys.exit(serve(helper.SYNC))\n"
    )
    (package / "helper.py").write_text("from tests.support.sdk_program import SYNC\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "helper.cpython-311.pyc").write_bytes(b"old")
    new = Standalone().add(package)
    assert (new.name, new.version) == ("counting", "v0.1.0")
    made = registry.hosted("source", "counting")
    assert made is not None
    for _ in range(2):  # running it has not changed it
        made.check("source", "p:c", {"journal": str(tmp_path / "told")})
    copy = tmp_path / "plugins" / "counting@v0.1.0"
    assert sorted(p.name for p in copy.iterdir()) == ["__main__.py", "helper.py"]
    (copy / "more.py").write_text("")
    with pytest.raises(UsageError, match="has changed"):
        made.source("p:c")


def test_a_package_that_the_plugins_folder_lies_in_is_copied_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__main__.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from penstock_sdk import serve\nfrom tests.support.sdk_program import SYNC\nsys.exit(serve(SYNC))\n"
    )
    monkeypatch.setenv("PENSTOCK_PLUGINS", str(package / "plugins"))
    for _ in range(2):
        Standalone().add(Path(os.path.relpath(package)))
    assert [p.name for p in (package / "plugins" / "counting@v0.1.0").iterdir()] == ["__main__.py"]


def test_another_program_of_the_same_version_is_refused_unless_it_is_said(program: Callable[..., Path]) -> None:
    Standalone().add(program())
    Standalone().add(program())  # the same one again
    other = program(more="# new\n")
    with pytest.raises(UsageError, match=r"another counting 1\.0\.0"):
        Standalone().add(other)
    Standalone().add(other, replace=True)
    assert len(Standalone().locked()) == 1
    made = registry.hosted("destination", "counting")
    assert made is not None
    made.check("destination", "p:c", {"path": "somewhere"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\nexit 3\n", "ended with 3 before the handshake"),
        ("#!/bin/sh\necho hello\n", "where the handshake should be"),
        ("no program at all\n", "can't be started"),
    ],
)
def test_what_is_no_plugin_is_refused_and_nothing_is_left(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad"
    path.write_text(text)
    path.chmod(0o755)
    with pytest.raises(UsageError, match=words) as e:
        Standalone().add(path)
    assert e.value.code == "plugins.install"
    assert sorted(p.name for p in (tmp_path / "plugins").iterdir()) == [".lock"]


@pytest.mark.parametrize(
    ("name", "version"), [("a/b", "1.0.0"), ("../a", "1.0.0"), ("a", "o/e"), ("", "1.0.0"), ("a", ""), ("a", "latest")]
)
def test_a_program_with_a_bad_name_or_version_is_refused(program: Callable[..., Path], name: str, version: str) -> None:
    path = program("x", "1.0.0")
    path.write_text(path.read_text().replace("name='x'", f"name={name!r}").replace("'1.0.0'", repr(version)))
    with pytest.raises(UsageError, match="calls itself"):
        Standalone().add(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 2, "plugins": []}', '{"version": 1, "plugins": [{"file": "../x"}]}', "\x00\xff"],
)
def test_a_lock_file_that_can_t_be_read_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "plugins.lock").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"plugins\.lock") as e:
        Standalone().locked()
    assert e.value.code == "plugins.lock"


def test_what_a_program_said_is_kept_whole(program: Callable[..., Path]) -> None:
    path = program()
    Standalone().add(path)
    assert lock.read(Standalone().folder)[0].specification == ask([str(path)])


def test_a_plugin_gets_a_clean_environment_and_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    path = tmp_path / "program"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, resource, sys, stat\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "folder = os.environ['PLUGIN_UNIX_SOCKET_DIR']\n"
        "found = {'env': dict(os.environ), 'mode': stat.S_IMODE(os.stat(folder).st_mode),\n"
        " 'core': resource.getrlimit(resource.RLIMIT_CORE), 'files': resource.getrlimit(resource.RLIMIT_NOFILE)}\n"
        f"open({str(told)!r}, 'w').write(json.dumps(found))\n"
        "from penstock_sdk import serve\nfrom tests.support.sdk_program import SYNC\nsys.exit(serve(SYNC))\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    Standalone().add(path)
    found = json.loads(told.read_text())
    assert "hunter2" not in json.dumps(found["env"])
    assert found["mode"] == 0o700
    assert found["core"] == [0, 0]
    assert found["files"][0] <= 4096


# -- commands -------------------------------------------------------------------------------------------------------


PIPELINE = """version: "2.2"
pipelines:
  - id: numbers
    guarantee: at-least-once
    connectors:
      - {{id: in, type: source, plugin: "standalone:counting", settings: {{journal: {journal}, count: "{count}"}}}}
      - {{id: out, type: destination, plugin: "builtin:log"}}
"""


# A connector that finds fault with what its specification allows.
UNLUCKY = """
from penstock_sdk import SettingsError
from penstock_sdk.problems import Problem
def parse(config, own=SYNC.source.settings_type.parse):
    if config.get("count") == "7":
        raise SettingsError([Problem("count", "seven is unlucky")])
    return own(config)
SYNC.source.settings_type.parse = parse
"""


@pytest.mark.contract("P3", reason="every start is written down by the program itself, and the words are its own")
def test_plain_validation_starts_nothing_and_connecting_has_the_plugin_s_words(
    program: Callable[..., Path], journal: Path, tmp_path: Path
) -> None:
    path = program()
    path.write_text(path.read_text().replace("sys.exit(serve(", UNLUCKY + "sys.exit(serve("))
    Standalone().add(path)
    started = len(_started(journal))
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.format(journal=tmp_path / "told", count="7"))
    plain = _penstock("validate", str(file))
    assert "unlucky" not in plain.stderr
    assert len(_started(journal)) == started
    asked = _penstock("validate", "--connect", str(file))
    assert asked.returncode == 2
    assert "standalone:counting says: count: seven is unlucky" in asked.stderr
    assert f"{file.name}:6:" in asked.stderr
    line = asked.stderr.split("unlucky")[1].splitlines()
    assert line[3].index("^") == line[2].index('"7"')
    assert len(_started(journal)) == started + 1
    assert _running(journal) == []
    assert not (tmp_path / "told").exists()  # it was not opened


@pytest.mark.contract("P3", reason="every start is written down by the program itself, and the words are its own")
def test_what_the_specification_says_is_known_without_a_start(
    program: Callable[..., Path], journal: Path, tmp_path: Path
) -> None:
    Standalone().add(program())
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.format(journal=tmp_path / "told", count="many").replace("count:", "cuont: 1, count:"))
    ended = _penstock("validate", str(file))
    assert ended.returncode == 2
    assert "[config.unknown-key] 'cuont'" in ended.stderr
    assert "did you mean 'count'?" in ended.stderr
    assert "[config.bad-value] 'count': 'many' is no integer" in ended.stderr
    file.write_text(
        PIPELINE.format(journal=tmp_path / "told", count="1").replace(f"journal: {tmp_path / 'told'}, ", "")
    )
    assert "[config.missing-key] the setting 'journal' is missing" in _penstock("validate", str(file)).stderr
    assert len(_started(journal)) == 1


def test_the_commands(program: Callable[..., Path], journal: Path, tmp_path: Path) -> None:
    added = _penstock("plugins", "install", str(program()))
    assert (added.returncode, added.stderr) == (0, "")
    assert "counting 1.0.0 (source and destination) is in" in added.stdout
    assert "standalone:counting@1.0.0" in _penstock("plugins", "list").stdout
    rows = [json.loads(line) for line in _penstock("plugins", "list", "--json").stdout.splitlines()]
    assert {(r["kind"], r["runs"]) for r in rows if r["name"] == "counting"} == {
        ("source", "in a process of its own"),
        ("destination", "in a process of its own"),
    }
    described = _penstock("plugins", "describe", "counting", "--kind", "source").stdout
    assert "Runs in a process of its own." in described
    assert "  count (whole number; default `10`)\n      How many." in described
    good = _penstock("plugins", "validate", "counting", "--kind", "source", f"journal={tmp_path}/j", "count=3")
    assert (good.returncode, good.stdout) == (0, "counting takes these settings as a source\n")
    bad = _penstock("plugins", "validate", "counting", "--kind", "source", "count=x")
    assert bad.returncode == 2
    assert "count: 'x' is no integer" in bad.stderr
    assert "journal: is required" in bad.stderr
    assert _penstock("plugins", "validate", "counting", "count=3").returncode == 2  # source or destination?
    assert "no KEY=VALUE" in _penstock("plugins", "validate", "counting", "--kind", "source", "count").stderr
    assert "runs in Spark" in _penstock("plugins", "validate", "files").stderr
    assert _penstock("plugins", "validate", "nothing").returncode == 2
    assert _running(journal) == []
    assert _penstock("plugins", "remove", "counting@2.0.0").returncode == 2
    assert _penstock("plugins", "remove", "counting").stdout == "counting 1.0.0 is gone\n"
    assert sorted(p.name for p in (tmp_path / "plugins").iterdir()) == [".lock", "plugins.lock"]
    missing = _penstock("plugins", "install", str(tmp_path / "none"))
    assert (missing.returncode, "There is no" in missing.stderr) == (2, True)


ONLY = Connector("only", "0.1.0", "Keeps.", destination=sdk_program.Keep)
