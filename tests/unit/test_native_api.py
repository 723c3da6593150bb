"""The public interfaces: what is declared is there, and what is there is declared. None of it loads Spark."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import penstock
import penstock.native as native
from penstock.native import ExactlyOnceDestination, NativeDestination, Receipt, Staged


def _defined(module: types.ModuleType) -> set[str]:
    """Public names of a module, without its own submodules."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not (isinstance(value, types.ModuleType))
    }


def test_everything_that_native_defines_is_declared_and_the_other_way_round() -> None:
    assert sorted(native.__all__) == sorted(_defined(native))


def test_the_list_of_native_is_sorted_and_names_nothing_twice() -> None:
    assert list(native.__all__) == sorted(set(native.__all__))


def test_everything_that_the_package_declares_is_there() -> None:
    assert set(penstock.__all__) == _defined(penstock) | {"__version__"}


def test_being_exactly_once_is_being_that_class() -> None:
    assert issubclass(ExactlyOnceDestination, NativeDestination)
    public = {name for name in vars(ExactlyOnceDestination) if not name.startswith("_")}
    assert public == {"stage", "commit", "find", "discard"}


@pytest.mark.parametrize("module", ["penstock", "penstock.native", "penstock.cli.main", "penstock.engine.supervisor"])
def test_importing_loads_no_spark(module: str) -> None:
    script = f"import sys, {module}; print(sorted(m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')))"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"


@pytest.mark.parametrize("value", [Receipt(3), Receipt(1, 2, {"bad": 4}, ("a", "ü"))])
def test_a_receipt_survives_json(value: Receipt) -> None:
    assert Receipt.from_json(value.to_json()) == value


@pytest.mark.parametrize("value", [Staged(3), Staged(1, 2, [{"staged": "a", "name": "b"}])])
def test_what_was_staged_survives_json(value: Staged) -> None:
    assert Staged.from_json(value.to_json()) == value
