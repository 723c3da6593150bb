"""`penstock run`: runs pipelines until they are done (`--once`) or told to stop."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock import pipeline
from penstock.cli.printer import Printer
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.engine.supervisor import Engine


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Process what is there and exit.")
@click.option(
    "--state", type=click.Path(path_type=Path), help="The state folder (default: .penstock beside the pipeline)."
)
@click.option("--master", help="The Spark master (default: local[*,4], embedded).")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. May be given several times.")
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
    printer = Printer(as_json=as_json)
    printer.take_log()
    pipelines = pipeline.Pipeline.from_files(paths)
    if dry_run:
        from penstock.cli import dry_run as trying

        if not trying.dry_run(pipelines, limit, master, _settings(conf)):
            context.exit(1)
        return
    engines: list[Engine] = []

    def started(engine: Engine) -> None:
        engines.append(engine)
        printer.secrets = engine.secrets
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, lambda *_: engine.stop.request())

    try:
        summary = pipeline.run(
            pipelines,
            once=once,
            state=state,
            master=master,
            conf=_settings(conf),
            report=printer.event,
            started=started,
            finish=finish,
            abandon=abandon,
        )
    except PenstockError as e:
        printer.secrets.clean(e)
        raise
    printer.summary(summary)
    if not summary.pipelines:
        click.echo("Nothing to run: every pipeline has `status: stopped`.", err=True)
    if debug:
        printer.trace(summary)
    if not summary.ok:
        context.exit(1)
    if engines and engines[0].stop.forced:
        context.exit(130)


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for item in conf:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--conf {item} is not KEY=VALUE", code="usage.conf")
        settings[key] = value
    return settings
