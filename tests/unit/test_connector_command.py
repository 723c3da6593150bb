"""`penstock connector test`: what it prints and how it ends."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.connector import connector
from penstock.errors import UsageError
from penstock_sdk.testing import CHECKS
from tests.support import bad_connectors, good_connector

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(connector, ["test", *arguments], catch_exceptions=True)


def _program(file: str, *arguments: str) -> list[str]:
    """With the path that the tests have: a plugin gets a clean environment."""
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); sys.argv = [{file!r}, *sys.argv[1:]]; "
        f"runpy.run_path({file!r}, run_name='__main__')"
    )
    return ["--", sys.executable, "-c", code, *arguments]


def test_without_settings_what_can_be_tested_is_tested() -> None:
    ended = _run("--timeout", "5", *_program(good_connector.__file__))
    assert ended.exit_code == 0, ended.output
    assert "✓ specification.texts\n    shelf v1.2.3\n" in ended.output
    (group,) = re.findall(r"^– (.*source\.records.*)\n    (.*)$", ended.output, re.M)
    assert group[0].startswith("source.teardown-early, source.order, source.records, ")  # one line for all of them
    assert group[1].startswith("no settings for the source: give them with --source NAME=VALUE")
    assert ", 0 failed, " in ended.output.splitlines()[-1]


def test_a_failure_says_what_was_seen_and_expected_and_what_to_do_and_ends_with_1() -> None:
    ended = _run("--timeout", "5", "--json", *_program(bad_connectors.__file__, "odd version"))
    assert ended.exit_code == 1
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["check"] for line in lines] == [check.name for check in CHECKS]
    failed = [line for line in lines if line["state"] == "failed"]
    assert [line["check"] for line in failed] == ["specification.version"]
    assert failed[0]["reason"] == "its version is '2024-01'"
    assert failed[0]["expected"]
    assert failed[0]["do"]


def test_a_program_that_is_not_there_is_one_failure() -> None:
    ended = _run("--", "/no/such/program")
    assert ended.exit_code == 1
    assert "✗ process.handshake\n    /no/such/program can't be started: No such file" in ended.output
    assert " 1 failed, " in ended.output.splitlines()[-1]


def test_the_checks_are_listed() -> None:
    ended = _run("--list")
    assert ended.exit_code == 0
    assert [line for line in ended.output.splitlines() if line[0] != " "] == [check.name for check in CHECKS]


@pytest.mark.parametrize(
    ("arguments", "what"), [([], "No command"), (["--source", "path", "--", "x"], "is no setting")]
)
def test_bad_usage_is_refused(arguments: list[str], what: str) -> None:
    ended = _run(*arguments)
    assert isinstance(ended.exception, UsageError)
    assert what in str(ended.exception)
