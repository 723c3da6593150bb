"""`penstock test`: runs the `tests` of pipeline files through the real plans, on embedded Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from penstock.cli.printer import printable


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-k", "only", default="", metavar="TEXT", help="Only tests whose name holds this.")
@click.option("--master", help="The Spark master (default: local[*,4], embedded).")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per test on stdout.")
@click.pass_context
def test(context: click.Context, paths: tuple[Path, ...], only: str, master: str | None, as_json: bool) -> None:
    """Run the tests that stand beside pipelines. Sources are not read, and nothing is delivered.

    Exits with 1 when a test fails.
    """
    from penstock import testblocks
    from penstock.pipeline import Pipeline

    verdicts = testblocks.run(Pipeline.from_files(paths), master, only)
    for v in verdicts:
        if as_json:
            print(
                json.dumps(
                    {"pipeline": v.pipeline, "test": v.test, "where": v.where, "ok": v.ok, "failures": v.failures}
                )
            )
            continue
        print(printable(f"{'ok    ' if v.ok else 'FAILED'} {v.pipeline}: {v.test}"), file=sys.stderr)
        if not v.ok:
            print(printable(f"  at: {v.where}"), file=sys.stderr)
        for failure in v.failures:
            print(printable("  " + failure), file=sys.stderr)
    failed = sum(not v.ok for v in verdicts)
    if not as_json:
        print(f"\n{len(verdicts) - failed} passed, {failed} failed", file=sys.stderr)
    if failed:
        context.exit(1)
