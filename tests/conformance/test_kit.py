"""The conformance kit: a good connector passes every check, in this process and as a program, and each bad one fails the check that is
about what it does, for that reason."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from penstock_sdk import Connector
from penstock_sdk.testing import CHECKS, ConnectorTests, Expected, Inside, Kit, Program, Result, Setup, document, run
from tests.support import bad_connectors, good_connector
from tests.support.bad_connectors import BAD

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
HANGS = ("hangs in", "stops never", "bad position")


class Files(Setup):
    """A file to read and another one to write."""

    folder: Path
    prefix = b"> "

    def source_settings(self) -> Mapping[str, str] | None:
        return {"path": str(self.folder / "in")}

    def destination_settings(self) -> Mapping[str, str] | None:
        return {"path": str(self.folder / "out")}

    def fill(self, count: int) -> Sequence[Expected] | None:
        path = self.folder / "in"
        first = len(path.read_text().splitlines()) if path.exists() else 0
        lines = [f"line {n}" for n in range(first, first + count)]
        with path.open("a") as file:
            file.writelines(line + "\n" for line in lines)
        return [self.prefix + line.encode() for line in lines]

    def written(self) -> Sequence[Expected]:
        return (self.folder / "out").read_text().splitlines()


def _files(folder: Path) -> Files:
    made = Files()
    made.folder = folder
    return made


class TestGood(Files, ConnectorTests):
    connector = good_connector.GOOD
    command = (sys.executable, good_connector.__file__)
    environment = ENVIRONMENT


def _failed(results: Sequence[Result]) -> dict[str, str]:
    return {result.check.name: result.reason for result in results if result.state == "failed"}


def _expect(bad: bad_connectors.Bad, results: Sequence[Result]) -> None:
    failed = _failed(results)
    assert set(failed) == {bad.check}, failed
    assert re.search(bad.reason, failed[bad.check]), failed
    assert all(result.expected and result.do for result in results if result.state == "failed")


def _run_for(name: str, program: Program) -> Iterator[Result]:
    """The check, what it needs, and all that is about the process: starting a program takes its time."""
    by_name = {check.name: check for check in CHECKS}
    wanted, more = set[str](), {name, *(n for n in by_name if n.startswith("process."))}
    while more:
        wanted |= more
        more = {needed for n in more for needed in by_name[n].needs} - wanted
    kit = Kit(program, patience=3)
    for check in CHECKS:
        if check.name in wanted:
            with tempfile.TemporaryDirectory() as folder:
                yield kit.run(check, _files(Path(folder)))


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if not bad.program])
def test_a_bad_connector_fails_the_check_that_is_about_it(name: str) -> None:
    bad = BAD[name]
    _expect(bad, list(run(Inside(bad.made), _files, patience=0.5)))


@pytest.mark.parametrize("name", [*(name for name, bad in BAD.items() if bad.program), "forgets", "panics on update"])
def test_a_bad_program_fails_the_check_that_is_about_it(name: str) -> None:
    bad = BAD[name]
    program = Program(
        [sys.executable, bad_connectors.__file__, name],
        ENVIRONMENT,
        bad.made if isinstance(bad.made, Connector) else None,
    )
    _expect(bad, list(_run_for(bad.check, program)))


def test_the_destination_fills_the_source_and_the_source_reads_back() -> None:
    class Same(Setup):
        def __init__(self, folder: Path) -> None:
            self._config = {"path": str(folder / "both")}

        def source_settings(self) -> Mapping[str, str]:
            return self._config

        def destination_settings(self) -> Mapping[str, str]:
            return self._config

    results = list(run(Inside(good_connector.GOOD), Same, patience=5))
    assert _failed(results) == {}
    open_ = {r.check.name for r in results if r.state == "not checked"}
    assert all(name.startswith("process.") or name.endswith(".first-dialect") for name in open_)


def test_without_settings_only_what_it_says_is_tested() -> None:
    results = list(run(Inside(good_connector.GOOD), lambda _: Setup()))
    assert _failed(results) == {}
    passed = {r.check.name for r in results if r.state == "passed"}
    assert {"specification.texts", "settings.required"} <= passed
    assert not any(name.startswith(("source.", "destination.")) for name in passed)
    assert any("--source NAME=VALUE" in r.reason for r in results)


def test_every_check_says_in_one_sentence_what_it_is_about_and_the_page_lists_them() -> None:
    assert all(check.about.endswith(".") for check in CHECKS)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert document() in (ROOT / "docs" / "reference" / "conformance.md").read_text()
