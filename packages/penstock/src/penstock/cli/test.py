"""`penstock test`: runs the `tests` of pipeline files through the real plans, on embedded Spark."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import click

from penstock.cli.face import shown
from penstock.cli.options import paths_argument
from penstock.cli.printer import err, out_json

if TYPE_CHECKING:
    from penstock.testblocks import Verdict


@click.command()
@paths_argument()
@click.option("-k", "only", default="", metavar="TEXT", help="Only tests whose name holds this.")
@click.option("--master", help="The Spark master (default: local[*,4], embedded).")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per test on stdout.")
@click.pass_context
def test(context: click.Context, paths: tuple[Path, ...], only: str, master: str | None, as_json: bool) -> None:
    """Run the tests that stand beside pipelines. Sources are not read, and nothing is delivered.

    Exits with 1 when a test fails.
    """
    with shown(quiet=as_json) as face:
        face.doing("checking")
        from penstock import testblocks
        from penstock.pipeline import Pipeline

        pipelines = Pipeline.from_files(paths)
        face.doing("starting Spark, then running the tests")
        face.event("starting", "", "", {"what": "Spark, to run the tests"})
        verdicts = testblocks.run(pipelines, master, only)
    told: set[str] = set()
    for v in verdicts:
        if as_json:
            out_json({"pipeline": v.pipeline, "test": v.test, "where": v.where, "ok": v.ok, "failures": v.failures})
        else:
            err(_text(v, told))
    failed = sum(not v.ok for v in verdicts)
    if not as_json:
        err(f"\n{len(verdicts) - failed} passed, {failed} failed")
    if failed:
        context.exit(1)


def _text(v: Verdict, told: set[str]) -> str:
    """A test and what is wrong, each failure as one block. One that many tests have is shown once."""
    lines = [f"{'ok    ' if v.ok else 'FAILED'} {v.pipeline}: {v.test}"]
    if not v.ok:
        lines.append(f"  at: {v.where}")
    for failure in v.failures:
        lines.append(indent("the same as above" if failure in told else failure, "  "))
        told.add(failure)
    return "\n".join(lines)
