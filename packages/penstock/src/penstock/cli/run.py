"""`penstock run`: runs pipelines until they are done (`--once`) or told to stop.

What is shown meanwhile is `cli.face`, what is said at the end `cli.ending`. Heavy modules are imported once that is there.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.ending import Ran, ending
from penstock.cli.face import Face, shown
from penstock.cli.options import conf_option, paths_argument, spark_settings
from penstock.cli.printer import err, out_json
from penstock.engine import archive
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline


@click.command()
@paths_argument()
@click.option("--once", is_flag=True, help="Process what is there and exit.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The state folder (default: .penstock beside the pipeline).",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --once: a source that waits for others counts as empty after so long without a record.",
)
@click.option("--master", help="The Spark master (default: local[*,4], embedded).")
@conf_option()
@click.option("--json", "as_json", is_flag=True, help="Events and the summary as JSON lines on stdout.")
@click.option(
    "--finish", is_flag=True, help="Deliver what is prepared for destinations that are no longer in the file."
)
@click.option(
    "--abandon", multiple=True, metavar="ID", help="Give up what is prepared for a destination. It is written down."
)
@click.option("--dry-run", is_flag=True, help="Show what would be delivered of the first records; change nothing.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Records of a --dry-run.")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.pass_context
def run(
    context: click.Context,
    paths: tuple[Path, ...],
    once: bool,
    state: Path | None,
    idle: float,
    master: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    finish: bool,
    abandon: tuple[str, ...],
    dry_run: bool,
    limit: int,
    debug: bool,
) -> None:
    """Run the pipelines of files and folders.

    Ctrl-C (or SIGTERM) stops gracefully: the batch in flight is finished. A second one stops at once; nothing is lost.
    """
    settings = spark_settings(conf)
    with shown(as_json=as_json, quiet=dry_run and as_json) as face:
        face.doing(f"checking {_named(paths)}")
        from penstock import pipeline

        pipelines = pipeline.Pipeline.from_files(paths)
        face.alone = len(pipelines) == 1
        face.lossy = any(p.assembly().config.guarantee == "at-most-once" for p in pipelines)
        if dry_run:
            from penstock.cli import dry_run as trying

            outcomes = trying.tried(face, pipelines, limit, master, settings)
        else:
            summary = pipeline.run(
                pipelines,
                once=once,
                state=state,
                master=master,
                conf=settings,
                report=face.event,
                started=face.started,
                finish=finish,
                abandon=abandon,
                idle=idle,
            )
    if dry_run:
        ok = trying.print_all(outcomes, limit)
        context.exit(0 if ok else 1)
    if any(p.lanes for p in summary.pipelines):  # Spark was started, and will be again
        archive.make_later()
    forced = face.interrupts.count > 1
    if as_json:
        out_json(summary.to_json())
    else:
        err(ending(summary, _ran(face, pipelines, state, once=once, conf=conf)))
    if debug or (context.parent is not None and context.parent.params.get("debug")):
        for p in summary.pipelines:
            if p.trace:
                err(p.trace)
    if not summary.ok:
        context.exit(1)
    if forced:
        context.exit(130)


def _named(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{len(paths)} files and folders"


def _ran(face: Face, pipelines: Sequence[Pipeline], state: Path | None, *, once: bool, conf: Sequence[str]) -> Ran:
    from penstock.pipeline import state_folder
    from penstock.plugins.builtin import bare

    folder = state_folder(pipelines, state)
    configs = [p.assembly().config for p in pipelines]
    sources = [(p.id, c) for p in configs for c in p.connectors if c.type == "source"]
    return Ran(
        state=folder,
        command="" if conf else shlex.join(["penstock", *sys.argv[1:]]),  # a Spark setting may be a secret
        once=once,
        forced=face.interrupts.count > 1,
        elapsed=time.monotonic() - face.began,
        looked={(pipeline, c.id): c.settings.get("path", "") for pipeline, c in sources},
        no_files=frozenset((pipeline, c.id) for pipeline, c in sources if bare(c.plugin) != "files"),
        at_most_once=frozenset(p.id for p in configs if p.guarantee == "at-most-once"),
        letter=_only_letter(folder),
    )


def _only_letter(state: Path) -> str:
    """The id of the dead letter that is open, where there is one alone: it can be shown without a list."""
    from penstock.engine.lock import StateFolder
    from penstock.ledger import NackState
    from penstock.ledger.look import Wanted, look

    try:
        found = look(StateFolder(state).ledger, lambda view: view.letters(Wanted(state=NackState.OPEN), 2))
    except (PenstockError, OSError):
        return ""
    return found[0].nack.id if len(found) == 1 else ""
