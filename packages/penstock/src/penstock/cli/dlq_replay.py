"""`penstock dlq replay`: dead letters go through their pipeline again. It writes down what is wanted; an engine does it: the one that
runs, the next one that is started, or one that does nothing else (`--run`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.dlq import _chosen, _unclear, _which, checked
from penstock.cli.options import state_option
from penstock.errors import UsageError
from penstock.ledger import NackState

if TYPE_CHECKING:
    from penstock.ledger.look import Wanted
    from penstock.pipeline import Pipeline


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@state_option()
@click.option("--id", "more", multiple=True, metavar="ID", help="One dead letter; the same as an argument.")
@click.option("--all", "all_", is_flag=True, help="All that are open, of those that the other options name.")
@_which
@click.option(
    "--from",
    "start",
    type=click.Choice(["start", "failed"]),
    default="start",
    show_default=True,
    help="start: as the source gave them, through all processors. failed: as they were, from the processor that failed.",
)
@click.option(
    "--run",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Do it now, with the pipelines of this file or folder; nothing new is read. May be given several times.",
)
@click.pass_context
def replay(
    context: click.Context,
    ids: tuple[str, ...],
    state: Path,
    more: tuple[str, ...],
    all_: bool,
    pipeline: str | None,
    source: str | None,
    code: str | None,
    where: str | None,
    start: str,
    paths: tuple[Path, ...],
) -> None:
    """Send dead letters through their pipeline again, as it is now.

    Each goes only to the destinations that lack it, once, whatever is killed meanwhile. One that fails again stays the same dead letter,
    with one more try. Correct the processor first, then replay.
    """
    from penstock.cli.operate import who
    from penstock.cli.printer import err
    from penstock.cli.shown import count
    from penstock.cli.state import ask, engine, option
    from penstock.engine.lock import StateFolder
    from penstock.ledger import decisions
    from penstock.ledger.look import LetterView, Wanted

    named = (*ids, *more)
    chosen = Wanted(pipeline, source, code, NackState.OPEN, where=checked(where))
    if _unclear(named, all_ or where is not None, chosen):
        raise UsageError(
            "Which dead letters are to be replayed?",
            code="dlq.which",
            hint="give ids, --where SQL, or --all with or without --pipeline, --source and --code",
        )
    held: list[LetterView] = []

    def look(letters: list[LetterView]) -> None:
        held.extend(letter for letter in letters if letter.nack.state is NackState.HELD)

    wanted = _chosen(state, named, chosen, look)  # type: ignore[arg-type]
    running = engine(state)
    if running.running and paths:
        raise UsageError(
            f"An engine is running on {state}: --run would need the state folder for itself",
            code="dlq.running",
            why=str(running),
            hint="leave --run out: the engine replays them itself, with the pipeline as it was started",
        )
    pipelines = _found(paths, state, wanted) if paths else []
    asked = decisions.replay(StateFolder(state).ledger, wanted, start, {"by": who()})
    for name, n in sorted(asked.items()):
        err(f"{name}: {count(n, 'dead letter')} to be replayed")
    for letter in held:
        err(
            f"{letter.nack.id[:12]} is held: {letter.pipeline} goes on at it when it runs, or alone with"
            f" penstock pipelines step {letter.pipeline}{option(state)}"
        )
    if not asked and not held:
        err("Nothing to replay: there are no open dead letters like that, or they wait for a replay already.")
    if paths:
        waiting, here = ask(state, lambda view: view.replaying()), {p.id for p in pipelines}
        for name in sorted(waiting - here):
            err(f"  {name} is not in what --run names: what waits for a replay there waits until it runs")
        if waiting & here:
            _run(context, pipelines, state)
    elif asked and running.running:
        err("  the engine that is running does it now, with the pipeline as it was when it was started")
    elif asked:
        err(f"  it is done when the pipeline runs again, or now: penstock dlq replay --all --run FILE{option(state)}")


def _found(paths: tuple[Path, ...], state: Path, wanted: Sequence[Wanted]) -> list[Pipeline]:
    """The pipelines of `--run`. What is wrong with them is said before anything is written down."""
    from penstock.cli.state import ask
    from penstock.pipeline import Pipeline

    pipelines = Pipeline.from_files(paths)
    here = {p.id for p in pipelines}
    names = ask(state, lambda view: {name for w in wanted for name in view.pipelines_of(w)})
    if names and not names & here:
        raise UsageError(
            f"There are dead letters of {', '.join(sorted(names))}, and --run names only {', '.join(sorted(here)) or 'nothing'}",
            code="dlq.not-here",
            hint="name the file that has the pipeline, with the id that it had when it ran; nothing was written down",
        )
    return pipelines


def _run(context: click.Context, pipelines: Sequence[Pipeline], state: Path) -> None:
    """An engine that replays and does nothing else. Also what was asked for before."""
    from penstock.cli.ending import Ran, ending
    from penstock.cli.face import shown
    from penstock.cli.printer import err

    with shown(as_json=False) as face:
        from penstock import pipeline

        face.alone = len(pipelines) == 1
        summary = pipeline.run(
            pipelines, once=True, state=state, report=face.event, started=face.started, only_replays=True
        )
    interrupts = face.interrupts.count
    err(ending(summary, Ran(state=state.absolute(), once=True, forced=interrupts > 1, replays=not interrupts)))
    if not summary.ok:
        context.exit(1)
    if interrupts > 1:
        context.exit(130)
