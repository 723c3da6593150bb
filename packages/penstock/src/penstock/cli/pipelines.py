"""`penstock pipelines`: what pipelines have done, by the ledger. `list` and `show` read the state folder, also beside an engine, and change
nothing; what does is in `operate.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import operate, single
from penstock.cli.options import json_option, state_option
from penstock.errors import PenstockError
from penstock.ledger import NackState

if TYPE_CHECKING:
    from penstock.cli.source_log import SourceLog
    from penstock.cli.state import Engine
    from penstock.ledger.look import BatchView, Decision, LaneView, LetterView, Share, View

LAST = 5  # batches that are shown
WIDTH = 80  # a sentence that is longer is broken where it reads well
MANY = 20  # unfinished ones and decisions that are shown


@click.group()
def pipelines() -> None:
    """Look at what pipelines have done, stop and start them, let them go back.

    All of it is safe while an engine runs; `list` and `show` change nothing.
    """


for _command in (operate.stop, operate.start, operate.rewind, operate.reset, single.step, single.skip):
    pipelines.add_command(_command)


@pipelines.command("list")
@state_option()
@click.option("--running", is_flag=True, help="Exit with 1 unless an engine is running on it: for health checks.")
@json_option("One JSON object per source and line on stdout.")
@click.pass_context
def list_(context: click.Context, state: Path, running: bool, as_json: bool) -> None:
    """List pipelines, a line for each source."""
    from penstock.cli.printer import err, out
    from penstock.cli.shown import json_line
    from penstock.cli.state import ask, engine, option

    lanes = ask(state, lambda view: view.lanes())
    holder = engine(state)
    stands = operate.standing(state, holder)
    if as_json:
        for lane in lanes:
            json_line({**_lane_json(lane), **_stands_json(stands, lane.pipeline), "engine": _engine_json(holder)})
    elif not lanes:
        err(f"No pipeline has read anything yet on {state}; {holder}.")
    else:
        out(_table(lanes))
        summed = any(len(lane.shares) > 1 for lane in lanes)
        note = "\nDELIVERED is the sum over the destinations." if summed else ""
        err(f"{note}\n{_sentence(holder)}\n  look at: penstock pipelines show ID{option(state)}")
        for name, about in stands.items():
            if said := operate.said_of(name, about, state):
                err(f"  {said}")
    if running and not holder.running:
        context.exit(1)


@pipelines.command()
@click.argument("id", metavar="ID")
@state_option()
@json_option("One JSON object on stdout.")
def show(id: str, state: Path, as_json: bool) -> None:
    """Show what came of a pipeline's records.

    For each source: the outcomes at every destination and whether they add up, dead letters, and batches; of a source in a
    process of its own also its log, and how far behind it everything is.
    """
    from penstock.cli.printer import out
    from penstock.cli.shown import json_line
    from penstock.cli.source_log import source_log
    from penstock.cli.state import ask, engine, known_pipeline

    def question(view: View) -> tuple[list[_Seen], list[Decision]]:
        known_pipeline(id, view)
        return [_seen(view, lane) for lane in view.lanes(id)], view.decisions(id)

    lanes, decisions = ask(state, question)
    for seen in lanes:  # after the ledger, which is never ahead of a log
        seen.log = source_log(state, id, seen.lane.source, seen.taken)
    again = _sent_again(state, id)
    holder = engine(state)
    stands = operate.standing(state, holder)
    if as_json:
        json_line(
            {
                "id": id,
                "engine": _engine_json(holder),
                **_stands_json(stands, id),
                "sources": [seen.json() for seen in lanes],
                "sent_again": again,
                "decisions": [{"at": d.at, "what": d.what, **d.detail} for d in decisions],
            }
        )
        return
    lines = [f"{id}: {holder}"]
    if said := operate.said_of(id, stands.get(id, {}), state):
        lines.append(said)
    for seen in lanes:
        lines += ["", *seen.lines(holder, state)]
    if again:
        many = ", ".join(f"{n:,} to {name}" for name, n in again.items())
        lines += ["", f"sent again, because nobody knew whether they were written: {many}"]
    out("\n".join([*lines, *_decided(decisions)]))


def _sent_again(state: Path, pipeline: str) -> dict[str, int]:
    """Destination → records, over all runs. Of destinations in a process of their own."""
    from penstock.host import memory

    found: dict[str, int] = {}
    for folder in sorted((state / "sinks").glob("*")):
        with suppress(PenstockError):  # said when it is opened
            known = memory.load(folder)
            if known is not None and known.pipeline == pipeline and known.resent:
                found[known.connector] = known.resent
    return found


class _Seen:
    """All that is shown of a lane."""

    def __init__(
        self,
        lane: LaneView,
        unfinished: Sequence[BatchView],
        last: Sequence[BatchView],
        held: Sequence[LetterView],
        taken: Mapping[str, int],
    ) -> None:
        self.lane, self.unfinished, self.last, self.held, self.taken = lane, unfinished, last, held, taken
        self.log: SourceLog | None = None

    def json(self) -> dict[str, Any]:
        held = [
            {
                "id": letter.nack.id,
                "seq": letter.nack.seq,
                "node": letter.nack.node,
                "destination": letter.nack.destination,
                "code": letter.nack.code,
                "error": letter.nack.error,
            }
            for letter in self.held
        ]
        return {
            **_lane_json(self.lane),
            "unfinished": [_batch_json(b) for b in self.unfinished],
            "last_batches": [_batch_json(b) for b in self.last],
            "held": held,
            "log": None if self.log is None else self.log.json(),
        }

    def lines(self, engine: Engine, state: Path) -> Iterator[str]:
        from penstock.cli.shown import count, when
        from penstock.cli.state import option

        lane = self.lane
        last = f"last batch {when(lane.last)}" if lane.last else "no batch yet"
        yield f"source {lane.source}: {lane.read:,} read, {lane.acked:,} acked, {last}"
        if lane.error:
            yield f"  it did not go on: {lane.error}".replace("\n", "\n  ")
        yield from _account(lane.shares)
        if dead := sum(n for s, n in lane.nacks.items() if s is not NackState.HELD):
            here = f"--pipeline {lane.pipeline} --source {lane.source}{option(state)}"
            settled = {s.value: lane.nacks.get(s, 0) for s in (NackState.REPLAYED, NackState.DROPPED)}
            more = "".join(f", {n:,} {what}" for what, n in settled.items() if n)
            every = " --status all" if dead == sum(settled.values()) else ""
            yield f"\n  {count(dead, 'dead letter')}{more}: penstock dlq list {here}{every}"
        for letter in self.held:
            yield f"\n  held at {letter.nack.node}: {_first(letter.nack.error)}"
            yield f"    it and what is behind it wait: penstock dlq show {letter.nack.id[:12]}{option(state)}"
        if self.log is not None:
            yield from self.log.lines(state)
        yield from _unfinished(self.unfinished, engine)
        yield from _settled(self.last)


def _seen(view: View, lane: LaneView) -> _Seen:
    from penstock.ledger.look import Wanted

    held = view.letters(Wanted(lane.pipeline, lane.source, state=NackState.HELD), MANY)
    return _Seen(lane, view.unfinished(lane.key), view.last_batches(lane.key, LAST), held, view.logs(lane.key))


# -- for people -----------------------------------------------------------------------------------------------------


def _table(lanes: Sequence[LaneView]) -> str:
    from penstock.cli.shown import ago, table

    header = ("PIPELINE/SOURCE", "READ", "ACKED", "DELIVERED", "DEAD", "HELD", "UNFINISHED", "LAST BATCH")
    rows = []
    for lane in lanes:
        delivered = sum(share.delivered for share in lane.shares)
        dead, held = (lane.nacks.get(state, 0) for state in (NackState.OPEN, NackState.HELD))
        numbers = (lane.read, lane.acked, delivered, dead, held, lane.unfinished)
        rows.append([lane.name, *(f"{n:,}" for n in numbers), ago(lane.last)])
    return table(rows, header, numbers=range(1, 7))


def _account(shares: Sequence[Share]) -> Iterator[str]:
    """The equation of each destination. Outcomes that are none are left out."""
    from penstock.ledger.look import Verdict

    if not shares:
        yield "  nothing has come to a destination yet"
    for s in shares:
        adds_up = s.verdict in (Verdict.ADDS_UP, Verdict.JOINED)
        more = {"dead-lettered": s.dead_lettered, "discarded": s.discarded}
        outcomes = {"delivered": s.delivered, "filtered": s.filtered, **{what: n for what, n in more.items() if n}}
        made = f" + {s.produced:,} produced" if s.produced else ""
        right = " + ".join(f"{n:,} {what}" for what, n in outcomes.items())
        left, right = f"  → {s.destination}: {s.came:,} read{made}", f"{'=' if adds_up else '≠'} {right}"
        yield f"{left} {right}" if len(left) + len(right) < WIDTH else f"{left}\n      {right}"
    said = [text for s in shares if (text := _verdict(s))]
    yield from said or (["  it adds up"] if shares else [])


def _verdict(s: Share) -> str:
    from penstock.ledger.look import Verdict

    left = s.read - s.accounted
    if s.verdict is Verdict.ADDS_UP:
        return ""
    if s.verdict is Verdict.JOINED:
        return f"  {s.destination}: it adds up; {left:,} more were read while it was not a destination"
    if s.verdict is Verdict.UNKNOWN:
        return (
            f"  {s.destination}: {left:,} of the records that were read did not come to it. If it was not a\n"
            "    destination then, that is right; batches that old are no longer kept to tell"
        )
    return f"  {s.destination}: it does NOT add up: {abs(left):,} too {'few' if left > 0 else 'many'}"


def _unfinished(batches: Sequence[BatchView], engine: Engine) -> Iterator[str]:
    from penstock.cli.shown import count, table, when
    from penstock.ledger import State

    if not batches:
        yield "\n  unfinished batches: none"
        return
    then = "" if engine.running else f"; the next start goes on with {'it' if len(batches) == 1 else 'them'}"
    yield f"\n  {count(len(batches), 'unfinished batch', 'unfinished batches')}{then}"
    rows = []
    for b in batches[:MANY]:
        records = "?" if b.records is None else f"{b.records:,}"
        # Before it is prepared a batch is begun anew; the error is of an attempt that ended.
        said = _first(b.error or "") or _without_error(b, engine)
        if b.state is State.PREPARED and b.waits_for:
            said = f"not yet at {', '.join(b.waits_for)}" + (f"; {said}" if said else "")
        rows.append([str(b.batch), b.state.value, when(b.time), records, str(b.attempts), said])
    yield table(rows, ("BATCH", "STATE", "TIME", "RECORDS", "TRIES", "LAST ERROR"), numbers=(0, 3, 4), indent="  ")
    if len(batches) > MANY:
        yield f"  and {len(batches) - MANY:,} more"


def _without_error(b: BatchView, engine: Engine) -> str:
    if b.running:
        return "in work" if engine.running else "its process was killed" if engine.running is False else ""
    return f"split from batch {b.parent} ({b.reason})" if b.parent is not None else ""


def _settled(batches: Sequence[BatchView]) -> Iterator[str]:
    from penstock.cli.shown import table, when

    if not batches:
        return
    rows = [
        [
            str(b.batch),
            b.state.value,
            when(b.time),
            "" if b.records is None else f"{b.records:,}",
            str(b.attempts),
            f"of batch {b.parent} ({b.reason})" if b.parent is not None else "",
        ]
        for b in batches
    ]
    yield "\n  last batches"
    yield table(rows, ("BATCH", "STATE", "TIME", "RECORDS", "TRIES", "SPLIT"), numbers=(0, 3, 4), indent="  ")


def _decided(decisions: Sequence[Decision]) -> Iterator[str]:
    from penstock.cli.shown import when

    if decisions:
        yield "\ndecisions"
    for d in decisions[-MANY:]:
        yield f"  {when(d.at)}  {_decision(d)}"


def _decision(d: Decision) -> str:
    from penstock.cli.shown import count, escaped

    detail = d.detail
    if d.what == "abandon":
        return (
            f"abandoned: batch {detail.get('batch')} at {detail.get('destination')},"
            f" {detail.get('records', 0):,} records discarded"
        )
    counted = {"batches": ("batch", "batches"), "dead_letters": ("dead letter", "dead letters")}
    known = {"drop": "dropped", "stop": "stopped", "start": "started", "rewind": "rewound", "reset": "reset"}
    known |= {"skip": "skipped", "step": "stepped", "replay": "to be replayed"}
    what = known.get(d.what, d.what)
    of = f" {escaped(str(detail['source']))}" if detail.get("source") else ""
    to = f" to {escaped(str(detail['to']))}" if detail.get("to") else ""
    to = f": {escaped(str(detail['record']))}" if detail.get("record") else to
    numbers = [count(detail[name], *words) for name, words in counted.items() if detail.get(name)]
    by = f", by {escaped(str(detail['by']))}" if detail.get("by") else ""
    why = f": {escaped(str(detail['reason']))}" if detail.get("reason") else ""
    if d.what in ("drop", "replay"):
        return f"{numbers[0] if numbers else count(0, 'dead letter')} {what}{by}{why}"
    given_up = f" ({', '.join(numbers)} given up)" if numbers else ""
    return f"{what}{of}{to}{given_up}{by}{why}"


def _sentence(engine: Engine) -> str:
    text = str(engine)
    return text[0].upper() + text[1:]


def _first(text: str) -> str:
    return text.split("\n", 1)[0]


# -- for programs ---------------------------------------------------------------------------------------------------


def _lane_json(lane: LaneView) -> dict[str, Any]:
    return {
        "pipeline": lane.pipeline,
        "source": lane.source,
        "read": lane.read,
        "acked": lane.acked,
        "destinations": {s.destination: _share_json(s) for s in lane.shares},
        "dead_letters": {state.value: lane.nacks.get(state, 0) for state in NackState},
        "unfinished": lane.unfinished,
        "last": lane.last,
        "error": lane.error or None,
    }


def _share_json(s: Share) -> dict[str, Any]:
    return {
        "read": s.came,
        "produced": s.produced,
        "delivered": s.delivered,
        "filtered": s.filtered,
        "dead_lettered": s.dead_lettered,
        "discarded": s.discarded,
        "account": s.verdict.value,
    }


def _batch_json(b: BatchView) -> dict[str, Any]:
    return {
        "batch": b.batch,
        "state": b.state.value,
        "time": b.time,
        "records": b.records,
        "ranges": b.ranges,
        "attempts": b.attempts,
        "error": b.error,
        "parent": b.parent,
        "reason": b.reason or None,
        "waits_for": list(b.waits_for),
    }


def _stands_json(stands: Mapping[str, Mapping[str, Any]], id: str) -> dict[str, Any]:
    """What its engine says of it; None where none says anything."""
    about = stands.get(id, {})
    return {"status": about.get("status"), "stopped_by": about.get("stopped_by")}


def _engine_json(e: Engine) -> dict[str, Any]:
    if e.running is False:
        return {"running": False}
    return {"running": e.running, "pid": e.pid, "machine": e.machine or None, "started": e.started or None}
