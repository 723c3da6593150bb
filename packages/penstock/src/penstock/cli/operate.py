"""`penstock pipelines stop | start | rewind | reset`: what people do to pipelines. An engine that runs is asked through its control socket;
without one, going back is done here, with the state folder locked. Who did what, when and why is kept in the ledger."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import json_option, state_option
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.cli.state import Engine
    from penstock.engine.anew import Back, Place
    from penstock.engine.plans import PipelinePlan

SOON = 2.0  # seconds that a look at pipelines waits for the engine

_timeout = click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for it. It goes on stopping afterwards.",
)
_source = click.option("--source", metavar="ID", help="Only this source; without it, all of the pipeline.")
_reason = click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the ledger with your name.")
_file = click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="The pipeline's file, where it is not beside the state folder.",
)


@click.command()
@click.argument("id", metavar="ID")
@state_option()
@_timeout
@json_option("One JSON object on stdout.")
@click.pass_context
def stop(context: click.Context, id: str, state: Path, timeout: float, as_json: bool) -> None:
    """Stop one pipeline of a running engine; the others go on.

    The batch in flight is finished, and what its sources have on their way. Returns when it has stopped, and says what remains: that is
    delivered when it is started again. The engine keeps running, also when all of its pipelines are stopped.
    """
    from penstock.cli.printer import err
    from penstock.cli.state import option

    answer = _asked(state, {"do": "stop", "pipeline": id, "by": who(), "timeout": timeout}, timeout)
    stopped = answer["status"] == "stopped"
    if as_json:
        _json(answer)
    elif answer["status"] == "stopping":
        busy = "".join(f"\n  {what}" for what in answer["busy"])
        err(f"{id} is still stopping{busy}\n  wait for it: penstock pipelines stop {id}{option(state)}")
    elif not stopped:
        err(f"{id} does not run: {answer['error'] or answer['status']}")
    else:
        already = " already" if answer["already"] else ""
        err(f"{id} is{already} stopped; {_left(answer['remaining'])}")
        err(f"  start it again: penstock pipelines start {id}{option(state)}")
    if not stopped:
        context.exit(1)


@click.command()
@click.argument("id", metavar="ID")
@state_option()
@json_option("One JSON object on stdout.")
def start(id: str, state: Path, as_json: bool) -> None:
    """Start a pipeline again that was stopped, or that failed, in a running engine.

    It runs as its file was when the engine began, and goes on where it stopped.
    """
    from penstock.cli.printer import err

    answer = _asked(state, {"do": "start", "pipeline": id, "by": who()}, 120.0)
    if as_json:
        _json(answer)
    else:
        err(f"{id} is running already" if answer["already"] else f"{id} is running")


@click.command()
@click.argument("id", metavar="ID")
@click.option(
    "--to",
    "to_",
    required=True,
    metavar="beginning|OFFSET|TIME",
    help="How far back: all that the source still has; an offset of its log, or topic/partition=offset for Kafka, with commas between"
    " several; or a time with its zone, as 2026-01-31T12:00:00Z.",
)
@_reason
@_source
@_file
@state_option()
@json_option("One JSON object per source and line on stdout.")
def rewind(id: str, to_: str, reason: str, source: str | None, file: Path | None, state: Path, as_json: bool) -> None:
    """Let a pipeline read, and deliver, records again.

    Everything from there on is delivered once more, under new names: destinations get it twice. Only for a pipeline that does not run, and
    that has no batch unfinished. What a source was acked stays acked.
    """
    from penstock.engine.anew import parse

    to = parse(to_)
    request = {"do": "rewind", "to": to_, "reason": _said(reason), "source": source}
    found = _gone_back(id, state, file, request, lambda place, why: place.rewind(source, to, why))
    _tell(
        id, state, found, as_json, lambda lane: f"{id}/{lane['source']} goes back to {to.text}{_again(lane, to.text)}"
    )


@click.command()
@click.argument("id", metavar="ID")
@_reason
@_source
@_file
@state_option()
@json_option("One JSON object per source and line on stdout.")
def reset(id: str, reason: str, source: str | None, file: Path | None, state: Path, as_json: bool) -> None:
    """Let a pipeline begin as if it had never run.

    As `rewind --to beginning`; besides, batches that were begun and not prepared are given up, and open dead letters are dropped. Totals
    stay. Only for a pipeline that does not run.
    """
    request = {"do": "reset", "reason": _said(reason), "source": source}
    found = _gone_back(id, state, file, request, lambda place, why: place.reset(source, why))
    _tell(id, state, found, as_json, lambda lane: f"{id}/{lane['source']} begins anew{_forgotten(lane)}")


def standing(state: Path, holder: Engine) -> Mapping[str, Mapping[str, Any]]:
    """Pipeline → what its engine says of it. Empty where there is none that can be asked: whoever looks sees less then, and no error."""
    if not holder.running:
        return {}
    from penstock.engine import control

    with suppress(PenstockError):
        found = control.ask(state, {"do": "status"}, SOON).get("pipelines")
        if isinstance(found, dict):
            return {name: about for name, about in found.items() if isinstance(about, dict)}
    return {}


def said_of(id: str, about: Mapping[str, Any], state: Path) -> str:
    """What a person has to know of a pipeline that stands while its engine runs; "" for any other."""
    from penstock.cli.shown import escaped
    from penstock.cli.state import option

    again = f"penstock pipelines start {id}{option(state)}"
    if about.get("stopped_by"):
        verb = "is being stopped" if about.get("status") == "stopping" else "is stopped"
        return f"{id} {verb} by {escaped(str(about['stopped_by']))}: {again}"
    return f"{id} is degraded; when its cause is gone: {again}" if about.get("status") == "degraded" else ""


def who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


# -- asking an engine -----------------------------------------------------------------------------------------------


def _asked(state: Path, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    from penstock.cli.state import check, engine
    from penstock.engine import control

    check(state)
    try:
        return control.ask(state, request, timeout + control.PATIENCE)
    except UsageError as e:
        if e.code != "control.no-engine":
            raise
        raise _nobody(state, engine(state), request) from e


def _nobody(state: Path, holder: Engine, request: Mapping[str, Any]) -> UsageError:
    if holder.running is False:
        todo = "there is nothing to stop" if request["do"] == "stop" else "start it with `penstock run FILE`"
        return UsageError(f"No engine is running on {state}", code="control.no-engine", hint=todo)
    return UsageError(
        f"The engine on {state} can't be asked",
        code="control.no-engine",
        why=f"{holder}; it does not listen here: it runs with --once, on another machine, or could not make its socket",
        hint="wait for its end, or end it with Ctrl-C or SIGTERM",
    )


def _gone_back(
    id: str,
    state: Path,
    file: Path | None,
    request: Mapping[str, Any],
    act: Callable[[Place, Mapping[str, Any]], list[Back]],
) -> Sequence[Mapping[str, Any]]:
    """By the engine that runs, or here."""
    from dataclasses import asdict

    from penstock.cli.state import ask, engine, known_pipeline

    ask(state, lambda view: known_pipeline(id, view))
    if engine(state).running:
        found: list[Mapping[str, Any]] = _asked(state, {**request, "pipeline": id, "by": who()}, 60.0)["sources"]
        return found
    from penstock.assembly import rebuild
    from penstock.engine.anew import Place
    from penstock.engine.lock import StateFolder
    from penstock.ledger import Ledger

    plan = _plan(id, file, state)
    folder = StateFolder(state.absolute())
    folder.open()
    try:
        ledger = Ledger(folder.ledger)
        try:
            place = Place(folder.path, ledger, id, rebuild if plan is None else plan.rebuild, plan)
            return [asdict(lane) for lane in act(place, {"by": who(), "reason": request["reason"]})]
        finally:
            ledger.close()
    finally:
        folder.close()


def _plan(id: str, file: Path | None, state: Path) -> PipelinePlan | None:
    """Of the file that is named, or of one beside the state folder that has this pipeline."""
    from penstock.pipeline import Pipeline

    try:
        found = Pipeline.from_files([state.absolute().parent if file is None else file])
    except PenstockError:
        if file is not None:
            raise
        return None
    for p in found:
        if p.id == id:
            return p.plan()
    if file is None:
        return None
    raise UsageError(
        f"{file} has no pipeline {id!r}",
        code="state.unknown-pipeline",
        hint=f"it has: {', '.join(p.id for p in found)}",
    )


def _said(reason: str) -> str:
    if not reason.strip():
        raise click.BadParameter("say why", param_hint="--reason")
    return reason.strip()


# -- telling --------------------------------------------------------------------------------------------------------


def _json(answer: Mapping[str, Any]) -> None:
    from penstock.cli.shown import json_line

    json_line({name: value for name, value in answer.items() if name != "ok"})


def _tell(
    id: str,
    state: Path,
    found: Sequence[Mapping[str, Any]],
    as_json: bool,
    sentence: Callable[[Mapping[str, Any]], str],
) -> None:
    from penstock.cli.printer import err
    from penstock.cli.state import engine, option

    for lane in found:
        if as_json:
            _json({"pipeline": id, **lane})
            continue
        err(sentence(lane))
        for text in lane["left"]:
            err(f"  hidden files or tables of given-up batches may be left at {text}")
    if not as_json:
        then = f"penstock pipelines start {id}{option(state)}" if engine(state).running else "penstock run FILE"
        err(f"  nothing is read before it runs again: {then}")


def _again(lane: Mapping[str, Any], to: str) -> str:
    if to == "beginning":
        return ": all that it still has is read again"
    from penstock.cli.shown import count

    return (
        f": {count(lane['again'], 'file, partition or log is', 'files, partitions or logs are')} read again from there"
    )


def _forgotten(lane: Mapping[str, Any]) -> str:
    from penstock.cli.shown import count

    batches, letters = lane["batches"], lane["dead_letters"]
    more = [count(batches, "batch", "batches") + " given up"] if batches else []
    more += [count(letters, "dead letter") + " dropped"] if letters else []
    return f"; {', '.join(more)}" if more else ""


def _left(remaining: Mapping[str, Mapping[str, Any]]) -> str:
    """What a stop could not finish."""
    from penstock.cli.shown import count

    remaining = {source: n for source, n in remaining.items() if n["records"] != 0}  # what is only to be written down
    if not remaining:
        return "nothing remains"
    texts = []
    for source, n in remaining.items():
        records = "an unknown number of records" if n["records"] is None else count(n["records"], "record")
        texts.append(f"{records} of {source}")
    return f"{', '.join(texts)} remain"
