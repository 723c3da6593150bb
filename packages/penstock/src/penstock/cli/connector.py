"""`penstock connector`: for those who write connectors. `test` runs the conformance kit over a program in any language; needs no Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.connector_new import new
from penstock.cli.options import json_option
from penstock.cli.printer import colour, encodable, folded, out, out_json, printable
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock_sdk.testing import Check, Result, Setup

DIR = "{dir}"  # in a value: an empty folder, another one for each check
SIGNS = {"passed": "✓", "failed": "✗", "not checked": "–"}
WORDS = {"passed": "ok    ", "failed": "FAILED", "not checked": "-     "}
COLOURS = {"passed": "green", "failed": "red", "not checked": "bright_black"}


@click.group()
def connector() -> None:
    """Write connectors, and test them."""


connector.add_command(new)


@connector.command(context_settings={"ignore_unknown_options": False})
@click.option("--source", multiple=True, metavar="NAME=VALUE", help="A setting of its source.")
@click.option("--destination", multiple=True, metavar="NAME=VALUE", help="A setting of its destination.")
@click.option(
    "--records", type=click.IntRange(5, 10_000), default=20, show_default=True, help="How many are written and read."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=10.0,
    show_default=True,
    help="Seconds that any one thing may take.",
)
@click.option("--apart", is_flag=True, help="The source does not read what the destination writes.")
@click.option("--list", "listed", is_flag=True, help="Only say what the checks are.")
@json_option("One JSON object per check on stdout.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.pass_context
def test(
    context: click.Context,
    source: Sequence[str],
    destination: Sequence[str],
    records: int,
    timeout: float,
    apart: bool,
    listed: bool,
    as_json: bool,
    command: Sequence[str],
) -> None:
    """Test whether a connector keeps the rules, in any language.

    COMMAND starts it. Settings say where it can read and write; without them only what it says about itself is tested. In a value,
    {dir} is an empty folder, another one for each check. If source and destination have a value in common, the destination writes
    what the source reads:

        penstock connector test --source path={dir}/x --destination path={dir}/x -- ./my-connector

    Exits with 1 when a check fails.
    """
    from penstock_sdk.testing import CHECKS, Program, run

    if listed:
        _list(CHECKS, as_json)
        return
    if not command:
        raise UsageError(
            "No command was given",
            code="usage.arguments",
            hint="name what starts the connector: penstock connector test -- ./it",
        )
    setup = _setup(_settings("--source", source), _settings("--destination", destination), apart)
    signs = SIGNS if encodable("".join(SIGNS.values()), sys.stdout.encoding) == "".join(SIGNS.values()) else WORDS
    counts = dict.fromkeys(SIGNS, 0)
    for results in _together(run(Program(command), setup, records=records, patience=timeout)):
        counts[results[0].state] += len(results)
        for result in results if as_json else ():
            out_json(_json(result))
        for line in _lines(results, signs) if not as_json else ():
            out(line)
    if not as_json:
        out(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['not checked']} not checked")
    if counts["failed"]:
        context.exit(1)


def _settings(option: str, given: Sequence[str]) -> Mapping[str, str] | None:
    """None where there are none: then the role is not tested."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(
                f"{option} {text!r} is no setting", code="usage.arguments", hint=f"write {option} NAME=VALUE"
            )
        found[name] = value
    return found or None


def _setup(
    source: Mapping[str, str] | None, destination: Mapping[str, str] | None, apart: bool
) -> Callable[[Path], Setup]:
    from penstock_sdk import testing

    def filled(settings: Mapping[str, str] | None, folder: Path) -> Mapping[str, str] | None:
        return None if settings is None else {n: v.replace(DIR, str(folder)) for n, v in settings.items()}

    class FromOptions(testing.Setup):
        def __init__(self, folder: Path) -> None:
            self._folder = folder

        def source_settings(self) -> Mapping[str, str] | None:
            return filled(source, self._folder)

        def destination_settings(self) -> Mapping[str, str] | None:
            return filled(destination, self._folder)

        def together(self) -> bool:
            return not apart and super().together()

    return FromOptions


def _list(checks: Sequence[Check], as_json: bool) -> None:
    for check in checks:
        if as_json:
            out_json({"check": check.name, "about": check.about})
        else:
            out(_fold(f"{check.name}\n    {check.about}"))


def _json(result: Result) -> dict[str, str]:
    found = {"check": result.check.name, "about": result.check.about, "state": result.state, "reason": result.reason}
    return {**found, "expected": result.expected, "do": result.do}


def _together(results: Iterator[Result]) -> Iterator[list[Result]]:
    """Neighbours that were not checked for the same reason; all others alone, and at once."""
    held: list[Result] = []
    for result in results:
        same = result.state == "not checked" and held and held[0].reason == result.reason
        if held and not same:
            yield held
            held = []
        held.append(result)
        if result.state != "not checked":
            yield held
            held = []
    if held:
        yield held


def _lines(results: Sequence[Result], signs: Mapping[str, str]) -> Iterator[str]:
    result, names = results[0], ", ".join(r.check.name for r in results)
    # the sign is coloured after what a connector says was made printable
    yield f"{signs[result.state]} {names}" if not sys.stdout.isatty() else _coloured(result, names, signs)
    for line in result.lines():
        yield _fold("    " + printable(line).replace("\n", " "))


def _coloured(result: Result, names: str, signs: Mapping[str, str]) -> str:
    sys.stdout.write(colour(signs[result.state], COLOURS[result.state], sys.stdout) + " ")
    return names


def _fold(text: str) -> str:
    import shutil

    return folded(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text
