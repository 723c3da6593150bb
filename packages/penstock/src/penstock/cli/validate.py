"""`penstock validate`: everything that can be said about pipeline files without starting anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from penstock.cli.options import paths_argument
from penstock.cli.printer import printable
from penstock.config import ConfigErrors, Problem


@click.command()
@paths_argument()
@click.option("--connect", is_flag=True, help="Also start each connector and let it check its settings.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def validate(context: click.Context, paths: tuple[Path, ...], connect: bool, as_json: bool) -> None:
    """Check the pipelines of files and folders. No Spark, and nothing that a file names is run.

    With --connect, connectors say themselves whether they could work: a plugin program is started, given its settings and ended;
    others look whether their folder is there. No record is read or written.

    Exits with 2 when something is wrong; warnings alone are fine.
    """
    from penstock.pipeline import Pipeline

    problems: list[Problem] = []
    warnings: list[Problem] = []
    pipelines: list[Pipeline] = []
    try:
        pipelines = Pipeline.from_files(paths, warnings, connect=connect)
    except ConfigErrors as e:
        problems = e.problems
    if as_json:
        found = {
            "ok": not problems,
            "pipelines": [p.id for p in pipelines],
            "problems": [_json(p) for p in problems],
            "warnings": [_json(p) for p in warnings],
        }
        print(json.dumps(found))
    else:
        for p in (*problems, *warnings):
            print(printable(str(p)), file=sys.stderr)
        if problems:
            print(
                f"\n{_count(len(problems), 'problem')}; {'no record was read' if connect else 'nothing was started'}",
                file=sys.stderr,
            )
        else:
            print(f"{_count(len(pipelines), 'pipeline')}: no problem found", file=sys.stderr)
    if problems:
        context.exit(2)


def _json(p: Problem) -> dict[str, str]:
    return {"code": p.code, "what": p.what, "where": p.where, "line": p.line_text, "hint": p.hint}


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
