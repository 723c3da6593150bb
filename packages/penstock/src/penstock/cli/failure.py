"""How a command that fails says so: one block on stderr, under `--json` a line per problem on stdout, and the exit code.

Called by `main` for every exception that leaves a command. A stack trace is shown with `--debug` alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import click

from penstock.cli import printer
from penstock.errors import PenstockError, UsageError

LONGEST = 300  # characters of the text of an error that nobody expected


def failed(error: BaseException, arguments: Sequence[str]) -> int:
    """Says what is wrong and returns the exit code. `arguments` are those of the command line."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return 130
    given = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    shown = error if isinstance(error, PenstockError | click.ClickException) else _unexpected(error)
    if "--json" in given:
        for problem in _problems(shown):
            printer.out_json({"event": "error", **problem})
    if isinstance(shown, click.ClickException):
        shown.show()
        return 2
    printer.print_error(shown)
    if "--debug" in given:
        printer.err("".join(traceback.format_exception(error)).rstrip())
    return 2 if isinstance(shown, UsageError) else 1


def _unexpected(error: BaseException) -> PenstockError:
    """What nobody has thought of, without where it came from: Java's causes are pages long."""
    lines = str(error).strip().splitlines() or [""]
    text = lines[0] if len(lines[0]) <= LONGEST else lines[0][: LONGEST - 1] + "…"
    return PenstockError(
        "Penstock has failed in a way that it does not know",
        code="internal.error",
        why=f"{type(error).__name__}: {text}" if text else type(error).__name__,
        hint="run the same as `penstock --debug …` to see where, and report it; what Spark said is in spark.log in the state"
        " folder. Nothing is lost: the next run goes on where this one stopped",
    )


def _problems(error: PenstockError | click.ClickException) -> Iterator[dict[str, Any]]:
    """Several where a configuration has several."""
    if isinstance(error, click.ClickException):
        yield _problem("usage.arguments", error.format_message(), hint="see --help")
    elif problems := getattr(error, "problems", None):
        for p in problems:
            yield _problem(p.code, p.what, p.where, hint=p.hint)
    else:
        yield _problem(error.code, error.what, error.where, error.why, error.hint)


def _problem(code: str, what: str, where: str = "", why: str = "", hint: str = "") -> dict[str, Any]:
    return {"code": code, "what": what, "where": where, "why": why, "do": hint}
