"""The live table of a run as lines of text: what fits into a terminal of any size, nothing wraps. Drawn by `cli.live`.

Every source has a row, its destinations rows below it, and a line with what it is doing. Where that is too much for the
screen, a source has one row; where that is too much, too, the busy and the failed ones are shown and the others counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, set_cell_size

from penstock.cli.printer import encodable, printable
from penstock.cli.progress import Rates, doing, idle, lanes, lasting, states, waiting
from penstock.engine.view import LaneView, View

HEADER = ("", "records", "records/s", "waiting", "acked", "filtered", "dead")
LEAST = (12, 7, 9, 17, 7, 0, 4)  # widths that spare the eye: numbers that change do not move the others
GIVEN_UP = (5, 4, 2, 3)  # columns that are left out, in this order, where the terminal is narrow
NAME = 16  # characters of an id that are left before columns are given up
GAP = 2
AFTER = 20  # characters of what a source is doing that are left, too


@dataclass(frozen=True)
class Line:
    text: str
    style: str = ""  # rich's


@dataclass(frozen=True)
class Row:
    """Cells under HEADER, and text behind them."""

    cells: tuple[str, ...]
    style: str = ""
    after: str = ""


@dataclass(frozen=True)
class Screen:
    width: int
    height: int
    encoding: str = "utf-8"

    def fit(self, text: str) -> str:
        """One line, cut where the terminal ends."""
        shown = encodable(printable(text).replace("\n", " "), self.encoding)
        if cell_len(shown) <= self.width:
            return shown
        mark = encodable("…", self.encoding)
        return set_cell_size(shown, max(0, self.width - len(mark))) + mark[: self.width]


@dataclass(frozen=True)
class Moment:
    """What is drawn: a view, and what the face knows besides."""

    view: View
    now: float
    elapsed: float
    rates: Rates
    dead: Callable[[str, LaneView], int]  # records of a source with a dead letter at any destination


def frame(m: Moment, screen: Screen) -> list[Line]:
    lines = [Line(screen.fit(_head(m)), "bold")]
    room = screen.height - 1  # below the head
    found = list(lanes(m.view))
    if not found or room < 2:
        return lines[: screen.height]
    return lines + _table(m, found, room, screen)


def _head(m: Moment) -> str:
    what = m.view.doing.what
    since = m.now - m.view.doing.since
    ended = " (Ctrl-C stops)" if what == "running" else f" … {since:.0f} s" if since >= 1 else " …"
    return f"{lasting(m.elapsed)}  {what}{ended}"


def _table(m: Moment, found: list[tuple[str, LaneView]], room: int, screen: Screen) -> list[Line]:
    blocks = [_block(m, p, lane) for p, lane in found]
    if 1 + sum(map(len, blocks)) <= room:
        return _laid_out([row for block in blocks for row in block], screen)
    if 1 + len(found) <= room:
        return _laid_out([_short(m, p, lane) for p, lane in found], screen)
    chosen = set(sorted(range(len(found)), key=lambda i: (_urgency(found[i][1]), i))[: max(0, room - 2)])
    left = [lane for i, (_, lane) in enumerate(found) if i not in chosen]
    rows = [_short(m, p, lane) for i, (p, lane) in enumerate(found) if i in chosen]
    return [*_laid_out(rows, screen), Line(screen.fit(f"and {len(left)} more: {states(left)}"), "dim")]


def _urgency(lane: LaneView) -> int:
    if lane.status in ("degraded", "recovering"):
        return 0 if lane.status == "degraded" else 1
    return 4 if lane.status == "stopped" else 3 if idle(lane) else 2


def _block(m: Moment, pipeline: str, lane: LaneView) -> list[Row]:
    """A source, its destinations, and what it is doing."""
    rows = [_source(m, pipeline, lane)]
    for name, n in lane.delivered.items():
        rate = m.rates.of((pipeline, lane.source, name), m.now, idle=idle(lane))
        counts = (lane.filtered.get(name, 0), lane.dead_lettered.get(name, 0))
        rows.append(Row((f"  → {name}", f"{n:,}", _rate(rate), "", "", *map(_unless_zero, counts))))
    return [*rows, Row((), "red" if lane.status == "degraded" else "dim", f"  {doing(lane, m.now)}")]


def _short(m: Moment, pipeline: str, lane: LaneView) -> Row:
    return replace(_source(m, pipeline, lane), after=doing(lane, m.now))


def _source(m: Moment, pipeline: str, lane: LaneView) -> Row:
    rate = m.rates.of((pipeline, lane.source), m.now, idle=idle(lane))
    lag = "–" if lane.behind is None else waiting(lane.behind) or "0"
    dead = _unless_zero(m.dead(pipeline, lane))
    cells = (f"{pipeline}/{lane.source}", f"{lane.read:,}", _rate(rate), lag, f"{lane.acked:,}", "", dead)
    return Row(cells, "red" if lane.status == "degraded" else "yellow" if lane.status == "recovering" else "")


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 0.5 else ""


def _unless_zero(n: int) -> str:
    return f"{n:,}" if n else ""


def _laid_out(rows: Sequence[Row], screen: Screen) -> list[Line]:
    """Columns as wide as they must be. Where the terminal is too narrow, long ids are cut, then columns are given up."""
    full = [replace(r, cells=tuple(encodable(printable(c), screen.encoding) for c in r.cells)) for r in rows]
    cells = [HEADER, *(r.cells for r in full if r.cells)]
    widths = [max(LEAST[i], *(cell_len(row[i]) for row in cells)) for i in range(len(HEADER))]
    shown = list(range(len(HEADER)))
    if not any(r.cells[5] for r in full if r.cells):
        shown.remove(5)
    after = max((min(AFTER, cell_len(r.after)) + GAP for r in full if r.cells and r.after), default=0)
    for column in (None, *GIVEN_UP):
        if column in shown:
            shown.remove(column)
        over = sum(widths[i] + GAP for i in shown) - GAP + after - screen.width
        if over <= 0:
            break
        if widths[0] - over >= NAME:
            widths[0] -= over
            break
        widths[0] = min(widths[0], NAME) if column == GIVEN_UP[-1] else widths[0]
    head = _line(HEADER, shown, widths, screen)
    return [Line(head, "dim"), *(Line(_row(r, shown, widths, screen), r.style) for r in full)]


def _row(r: Row, shown: Sequence[int], widths: Sequence[int], screen: Screen) -> str:
    if not r.cells:
        return screen.fit(r.after)
    line = _line(r.cells, shown, widths, screen)
    return screen.fit(f"{line}  {r.after}") if r.after else line


def _line(cells: Sequence[str], shown: Sequence[int], widths: Sequence[int], screen: Screen) -> str:
    name = replace(screen, width=widths[0]).fit(cells[0])
    parts = [set_cell_size(name, widths[0])]
    parts += [" " * (widths[i] - cell_len(cells[i])) + cells[i] for i in shown[1:]]
    return screen.fit((" " * GAP).join(parts).rstrip())
