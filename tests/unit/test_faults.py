"""The seam for tests can be opened from Python alone: no variable, file or setting makes a production run unsafe."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import faults


def test_every_safeguard_holds_unless_a_test_switched_it_off() -> None:
    assert [name for name in faults.SAFEGUARDS if not faults.safeguard(name)] == []
    faults.install(off=["fsync", "lock"])
    assert {name for name in faults.SAFEGUARDS if not faults.safeguard(name)} == {"fsync", "lock"}
    faults.install()
    assert [name for name in faults.SAFEGUARDS if not faults.safeguard(name)] == []


@pytest.mark.parametrize("off", [["fsnc"], ["fsync", "no such thing"], [""]])
def test_an_unknown_safeguard_is_refused_and_nothing_is_switched_off(off: list[str]) -> None:
    with pytest.raises(ValueError, match="no such safeguard"):
        faults.install(off=off)
    assert faults.safeguard("fsync")


def test_a_hook_sees_every_point_until_it_is_taken_away() -> None:
    seen: list[tuple[str, str]] = []
    faults.install(lambda point, detail: seen.append((point, detail)))
    faults.reach("K1")
    faults.reach("ledger", "prepare")
    faults.install()
    faults.reach("K2")
    assert seen == [("K1", ""), ("ledger", "prepare")]


def test_installing_again_replaces_what_was_installed() -> None:
    faults.install(lambda *_: pytest.fail("of the first"), off=["fence"])
    faults.install(off=["fsync"])
    faults.reach("K1")
    assert faults.safeguard("fence")


CHILD = """
from penstock.testing import faults
import penstock.cli.main
print(all(map(faults.safeguard, faults.SAFEGUARDS)), faults._hook)
"""


def test_no_environment_variable_changes_anything() -> None:
    variables = (
        "FAULTS",
        "PENSTOCK_FAULTS",
        "PENSTOCK_OFF",
        "PENSTOCK_SAFEGUARDS",
        "PENSTOCK_UNSAFE",
        "PENSTOCK_TESTING",
    )
    environ = {**os.environ, **{name: ",".join(faults.SAFEGUARDS) for name in variables}}
    child = subprocess.run([sys.executable, "-c", CHILD], env=environ, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "True None"


def test_the_seam_can_not_even_look_outside() -> None:
    """What it imports can read neither the environment nor a file, and it opens none."""
    tree = ast.parse(Path(faults.__file__).read_text())
    imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert imported == {"__future__", "collections.abc"}
    assert not called & {"open", "__import__", "eval", "exec", "input"}


def _production() -> list[ast.Call]:
    root = Path(faults.__file__).parents[1]
    files = [p for p in root.rglob("*.py") if p.parent.name != "testing"]
    return [n for p in files for n in ast.walk(ast.parse(p.read_text())) if isinstance(n, ast.Call)]


def _names(function: str) -> set[str]:
    """First arguments of all calls `faults.<function>("…")` or `<function>("…")` in production code."""
    return {
        str(call.args[0].value)
        for call in _production()
        if _called(call.func) in (f"faults.{function}", function) and isinstance(call.args[0], ast.Constant)
    }


def _called(f: ast.expr) -> str:
    if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
        return f"{f.value.id}.{f.attr}"
    return f.id if isinstance(f, ast.Name) else ""


def test_every_point_and_safeguard_that_is_declared_is_used_and_no_other() -> None:
    assert _names("reach") == set(faults.POINTS)
    assert _names("safeguard") - set(faults.SAFEGUARDS) == set()


def test_every_safeguard_that_is_declared_is_asked_for() -> None:
    assert set(faults.SAFEGUARDS) - _names("safeguard") == set()


def test_production_code_never_installs_anything() -> None:
    assert _names("install") == set()
    assert not any(isinstance(c.func, ast.Attribute) and c.func.attr == "install" for c in _production())
