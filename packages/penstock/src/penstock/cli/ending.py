"""What is said to people when a run has ended: what became of the records, what went wrong, and what to type next. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.progress import counted, lasting
from penstock.summary import Summary

if TYPE_CHECKING:
    from penstock.engine.supervisor import LaneResult, PipelineResult

WIDTH = 80
DIGITS = 12  # of an id: enough to name a dead letter, and what `dlq list` shows
MANY = 1000  # records, for which a rate says something
STATE = ".penstock"  # where other commands look by themselves
_COUNTS = {
    "filtered": "filtered",
    "dead_lettered": "dead-lettered",
    "discarded": "discarded",
    "produced": "made by splitting",
}
Cells = Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Ran:
    """What was run, as far as the end of it has to be explained."""

    state: Path
    command: str = ""  # that runs the same again
    once: bool = False
    forced: bool = False  # stopped at once
    elapsed: float = 0.0  # seconds since the command began
    looked: Mapping[tuple[str, str], str] = field(default_factory=dict)  # where each source of a pipeline looks
    no_files: frozenset[tuple[str, str]] = frozenset()  # sources of a pipeline that read something else
    at_most_once: frozenset[str] = frozenset()  # pipelines
    replays: bool = False  # only dead letters were to be replayed
    letter: str = ""  # the id of the dead letter, where there is only one


def ending(summary: Summary, ran: Ran) -> str:
    blocks = [_pipeline(p, ran) for p in summary.pipelines]
    if not blocks:
        blocks = ["Nothing to run: every pipeline has `status: stopped`."]
    if ran.forced:
        blocks.append(_cut_off(summary, ran))
    if following := list(_next(summary, ran)):
        width = max(len(why) for why, _ in following)
        blocks.append("\n".join(f"{why + ':':<{width + 1}}  {command}" for why, command in following))
    return "\n" + "\n\n".join(blocks)


# -- a pipeline -----------------------------------------------------------------------------------------------------


def _pipeline(p: PipelineResult, ran: Ran) -> str:
    lines = [f"{p.id}: {_status(p, ran)}"]
    rows: list[tuple[str, Cells]] = []
    for lane in p.lanes:
        if p.error is None and _nothing_new(lane, ran):
            lines.append(_not_read(p.id, lane.source, ran))
        else:
            rows += _rows(lane, p.seconds, [c for c in _COUNTS if any(any(getattr(x, c).values()) for x in p.lanes)])
    lines += _aligned(rows)
    for lane in p.lanes:
        lines += _unfinished(lane, files=(p.id, lane.source) not in ran.no_files)
    if p.error is not None:
        lines.append(str(p.error))
    return "\n".join(lines)


def _status(p: PipelineResult, ran: Ran) -> str:
    took = lasting(p.seconds)
    if ran.elapsed - p.seconds >= 1:
        took += f" ({lasting(ran.elapsed)} with the start of Spark)"
    if p.error is not None:
        return f"degraded after {took}" if p.lanes else "degraded, nothing was run"
    if not p.lanes:
        return "nothing waits for a replay" if ran.replays else "stopped before anything was read"
    unfinished = ran.forced or not ran.once or any(lane.remaining for lane in p.lanes)
    return f"stopped after {took}" if unfinished else f"done in {took}"


def _nothing_new(lane: LaneResult, ran: Ran) -> bool:
    return ran.once and not ran.forced and not (lane.read or lane.held or lane.remaining)


def _not_read(pipeline: str, source: str, ran: Ran) -> str:
    where = ran.looked.get((pipeline, source), "")
    return f"  {source}: nothing new{f' in {where}' if where else ''}; what was read before is not read again"


def _rows(lane: LaneResult, seconds: float, counts: Sequence[str]) -> Iterator[tuple[str, Cells]]:
    """The source, and each destination below it. A zero says nothing, but for what was read and delivered."""
    source = [(lane.read, "read"), (lane.acked, "acked")]
    if lane.read >= MANY and seconds > 0:
        source.append((round(lane.read / seconds), "records/s"))
    yield f"  {lane.source}", source
    for name, n in lane.delivered.items():
        yield f"    → {name}", [(n, "delivered"), *((getattr(lane, c).get(name, 0), _COUNTS[c]) for c in counts)]


def _aligned(rows: Sequence[tuple[str, Cells]]) -> list[str]:
    """Numbers under numbers. What is too long for a line goes on in the next one."""
    columns = max((len(cells) for _, cells in rows), default=0)
    digits = [max((len(f"{c[i][0]:,}") for _, c in rows if len(c) > i), default=0) for i in range(columns)]
    words = [max((len(c[i][1]) for _, c in rows if len(c) > i), default=0) for i in range(columns)]
    longest = max((len(name) for name, _ in rows), default=0)
    start = min(longest, WIDTH // 2) + 2
    lines: list[str] = []
    for name, cells in rows:
        line = name.ljust(start) if len(name) + 2 <= start else name + "\n" + " " * start
        for i, (n, word) in enumerate(cells):
            shown = f"{n:>{digits[i]},} {word:<{words[i]}}" if n or i == 0 or word == "acked" else ""
            cell = shown or " " * (digits[i] + 1 + words[i])
            if len(line.rpartition("\n")[2]) + len(cell.rstrip()) > WIDTH:
                line = line.rstrip() + "\n" + " " * start
            line += cell + "  "
        lines += [part.rstrip() for part in line.split("\n") if part.strip()]
    return lines


def _unfinished(lane: LaneResult, *, files: bool) -> Iterator[str]:
    for held in lane.held:
        yield f"  {lane.source}: held at {held.id} ({held.node}: {held.error})"
    if r := lane.remaining:
        count = "an unknown number of records" if r.records is None else counted(r.records, "record")
        where = f" ({counted(r.files, 'file')})" if files and r.files else ""
        s = "s" if r.records == 1 else ""
        waits = f"wait{s} for the one that is held" if lane.held else f"remain{s} for the next start"
        yield f"  {lane.source}: {count}{where} {waits}"


# -- what next ------------------------------------------------------------------------------------------------------


def _cut_off(summary: Summary, ran: Ran) -> str:
    if any(p.id in ran.at_most_once for p in summary.pipelines):
        return "Stopped at once. What was in flight at most once is lost, the rest is done again."
    return "Stopped at once. Nothing is lost: the next start does again what was cut off."


def _next(summary: Summary, ran: Ran) -> Iterator[tuple[str, str]]:
    """Why, and the whole command."""
    lanes = [lane for p in summary.pipelines for lane in p.lanes]
    elsewhere = "" if ran.state == Path(STATE).absolute() else f" --state {shlex.quote(_typed(ran.state))}"
    dead = any(any(lane.dead_lettered.values()) for lane in lanes)
    if dead and ran.letter:
        yield "to see the dead letter", f"penstock dlq show {shlex.quote(ran.letter[:DIGITS])}{elsewhere}"
    elif dead:
        yield "to see the dead letters", f"penstock dlq list{elsewhere}"
    for held in [held for lane in lanes for held in lane.held]:
        yield "to see what is held", f"penstock dlq show {shlex.quote(held.id[:DIGITS])}{elsewhere}"
    if ran.command and (ran.forced or any(lane.remaining and not lane.held for lane in lanes)):
        yield "to go on", ran.command


def _typed(path: Path) -> str:
    """As short as it may be typed here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
