"""`penstock pipelines step | skip`: one record at a time, and one record not at all. For whoever looks into why a pipeline stands."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.operate import _asked, _file, _json, _said, who
from penstock.cli.options import json_option, state_option
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.cli.trace_find import Found
    from penstock.ledger.look import View

SECONDS = 5.0
_source = click.option("--source", metavar="ID", help="Of this source; needed where the pipeline has several.")


@click.command()
@click.argument("id", metavar="ID")
@_source
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="So many, one after the other.")
@_file
@state_option()
@json_option("One JSON object on stdout.")
@click.pass_context
def step(
    context: click.Context, id: str, source: str | None, count: int, file: Path | None, state: Path, as_json: bool
) -> None:
    """Let a pipeline that does not run process its next record, alone, and stop.

    Each record is a batch of its own: what comes of it is all that happens. One that a destination refuses stops there as always. A batch
    that is prepared already is finished first, as a whole.
    """
    from penstock.cli.state import check, engine

    check(state)
    source = _one_source(state, id, source)
    if engine(state).running:
        request = {"do": "step", "pipeline": id, "source": source, "count": count, "by": who()}
        answer = _asked(state, request, 600.0)
        _told(answer["read"], answer["error"], id, source, as_json)
        context.exit(1 if answer["error"] else 0)
    from penstock.cli.ending import Ran, ending
    from penstock.cli.face import shown
    from penstock.cli.printer import err
    from penstock.engine.lock import StateFolder
    from penstock.ledger import decisions

    with shown(as_json=False, quiet=as_json) as face:
        from penstock import pipeline

        found = [p for p in pipeline.Pipeline.from_files([file or state.absolute().parent]) if p.id == id]
        if not found:
            raise UsageError(
                f"There is no pipeline {id!r} {f'beside {state}' if file is None else f'in {file}'}",
                code="state.unknown-pipeline",
                hint="name the file that has it, by the id that it had when it ran, with --file",
            )
        face.alone = True
        decisions.note(StateFolder(state).ledger, id, "step", {"source": source, "records": count, "by": who()})
        summary = pipeline.run(
            found, once=True, state=state, report=face.event, started=face.started, steps=(source, count)
        )
    [result] = summary.pipelines
    forced = face.interrupts.count > 1
    if not as_json:
        err(ending(summary, Ran(state=state.absolute(), once=True, forced=forced)))
    else:
        read = sum(lane.read for lane in result.lanes if lane.source == source)
        _told(read, str(result.error) if result.error else None, id, source, as_json)
    context.exit((130 if forced else 0) if summary.ok else 1)


def _told(read: int, error: str | None, id: str, source: str, as_json: bool) -> None:
    from penstock.cli.printer import err
    from penstock.cli.shown import count

    if as_json:
        _json({"pipeline": id, "source": source, "records": read, "error": error})
    elif error:
        err(error)
    else:
        err(f"{id}/{source}: {count(read, 'record')} processed" if read else f"{id}/{source}: there is no record now")


def _one_source(state: Path, id: str, source: str | None) -> str:
    from penstock.cli.state import ask, known_pipeline, known_source

    def question(view: View) -> list[str]:
        known_pipeline(id, view)
        known_source(source, view)
        return [lane.source for lane in view.trace.lanes(id, source)]

    found = ask(state, question)
    if len(found) != 1:
        raise UsageError(
            f"{id} has {len(found)} sources" if found else f"{id} has no source {source!r}",
            code="state.unknown-source",
            hint=f"name one with --source: {', '.join(found)}" if found else "",
        )
    return found[0]


# -- skip -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Which:
    """A record as a person names it."""

    offset: int | None
    position: str | None
    id: str | None

    def __str__(self) -> str:
        return str(self.id or self.position if self.offset is None else f"offset {self.offset}")


@click.command()
@click.argument("id", metavar="ID")
@click.option(
    "--offset", type=click.IntRange(min=0), metavar="N", help="Its offset in the log of its source, or in a queue."
)
@click.option("--position", metavar="P", help="The source's own position, as `dlq show` and `trace` show it.")
@click.option("--id", "record", metavar="RECORD", help="The id of a record that is held; the first digits are enough.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the ledger with your name.")
@_source
@state_option()
def skip(
    id: str,
    offset: int | None,
    position: str | None,
    record: str | None,
    reason: str,
    source: str | None,
    state: Path,
) -> None:
    """Settle one record without sending it anywhere; what comes behind it goes on.

    It is acked, and counts as discarded. Works beside a running pipeline: from the next batch on. What was delivered already, or has become
    a dead letter, can't be skipped.
    """
    from penstock.cli.printer import err
    from penstock.cli.state import check, engine, option
    from penstock.engine.lock import StateFolder
    from penstock.ledger import decisions

    if [offset, position, record].count(None) != 2:
        raise UsageError(
            "Which record is to be skipped?",
            code="skip.which",
            hint="name it by one of --offset, --position and --id",
        )
    check(state)
    source = _one_source(state, id, source)
    which = _Which(offset, position, record)
    lane, strand, number = _place(state, id, source, which)
    why = {"source": source, "record": str(which), "reason": _said(reason), "by": who()}
    if not decisions.skip(StateFolder(state).ledger, lane, id, strand, number, why):
        err(f"{which} of {id}/{source} is to be skipped already")
        return
    then = "from the next batch on" if engine(state).running else f"when {id} runs again"
    err(f"{which} of {id}/{source} is skipped {then}\n  what became of it: penstock pipelines show {id}{option(state)}")


def _place(state: Path, pipeline: str, source: str, which: _Which) -> tuple[int, str, int]:
    """The lane, and where the record is in it: its seq where a batch has it, else its number in its strand."""
    from penstock.cli.trace import Asked, as_position

    asked = Asked(state, pipeline, source, None, 1, time.monotonic() + SECONDS)
    if which.id is not None:
        answers = asked.id(which.id)
    elif which.offset is not None:
        answers = asked.offset(which.offset)
    else:
        answers = asked.position(as_position(which.position or ""))
    found = [one for answer in answers if isinstance(answer, list) for one in answer]
    if found:
        return _of_a_batch(found[-1], which)
    return _not_read_yet(state, pipeline, source, which)


def _of_a_batch(found: Found, which: _Which) -> tuple[int, str, int]:
    from penstock.ledger import NackState, State

    life = found.life
    seq = life.seqs[0]
    held = any(n.state is NackState.HELD for n in life.nacks)
    state = life.batches[-1].state if life.batches else None
    if held or state is State.OPEN:
        return life.lane.key, "", seq
    if any(n.state is NackState.OPEN for n in life.nacks):
        raise UsageError(
            f"{which} is a dead letter: nothing waits for it",
            code="skip.settled",
            hint="penstock dlq drop --reason … takes it off the list",
        )
    raise UsageError(
        f"{which} is in batch {life.batches[-1].batch if life.batches else '?'}, which is {state or 'settled'}",
        code="skip.settled",
        hint="a record can be skipped as long as its batch is not prepared; penstock trace says what became of this one",
    )


def _not_read_yet(state: Path, pipeline: str, source: str, which: _Which) -> tuple[int, str, int]:
    from penstock import deadletters
    from penstock.cli.log_names import LOGS, is_log
    from penstock.cli.state import ask
    from penstock.cli.trace import as_position
    from penstock.connectors.places import NUMBERINGS
    from penstock.log import Reader

    def question(view: View) -> tuple[int, str]:
        [lane] = view.trace.lanes(pipeline, source)
        sample = view.trace.sample(lane.key)
        return lane.key, "" if sample is None else sample.strand

    lane, strand = ask(state, question)
    folder = state / LOGS / deadletters.folder(pipeline, source)
    if which.offset is not None:
        if is_log(folder):
            with Reader(folder) as reader:
                strand = reader.log_id
        if strand:
            return lane, strand, which.offset
    elif which.position is not None and not is_log(folder):
        position = as_position(which.position)
        for how in NUMBERINGS:
            named = how.named(position)
            if named is not None and (named.strand or strand):
                return lane, named.strand or strand, named.number
    raise UsageError(
        f"Nothing is known of {which} in {pipeline}/{source}",
        code="skip.unknown",
        hint="a record that was not read yet is named by --offset (of a log) or --position (of files, Kafka, a queue)",
    )
