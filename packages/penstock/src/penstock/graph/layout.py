"""Where everything of a pipeline stands in its SVG: columns from left to right, a band for every lane. Pure numbers.

Columns are: sources, the stages of the lanes, what is materialised, the stages of the branches, destinations. Between two columns is
a gutter that holds nothing but edges: they change their height there and run level elsewhere, so none crosses a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.graph.model import Group, Lane, PipelineGraph, Vertex
from penstock.graph.words import cut, width

LONGEST = 44  # columns of text in a box
CHARACTER, LINE = 7.3, 16.0  # of a monospaced font of 12 pixels
PAD = 10.0
LEVEL, CURVE = 46.0, 42.0  # of a gutter: first the shape stands over the edge, then the edge changes its height
GUTTER = LEVEL + CURVE + 12.0  # and then comes the arrow's head
TITLE = 24.0  # of a stage, above its processors
STEP = 28.0  # between two processors of a stage
ROW = 20.0  # between two rows
MARGIN = 16.0
HEADER = 40.0


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True)
class Line:
    """An edge: it begins at a box, and in each gutter (by its left end) goes to another height. Its label stands at its start."""

    x: float
    y: float
    turns: tuple[tuple[float, float], ...]
    end: float
    label: str
    dashed: bool = False


@dataclass
class Layout:
    width: float = 0
    height: float = 0
    vertices: list[tuple[Box, Vertex]] = field(default_factory=list)
    groups: list[tuple[Box, Group]] = field(default_factory=list)
    steps: list[tuple[float, float, float, str]] = field(default_factory=list)  # inside stages: x, from y, to y, shape
    lines: list[Line] = field(default_factory=list)


def layout(p: PipelineGraph) -> Layout:
    return _Placing(p).place()


class _Placing:
    def __init__(self, p: PipelineGraph) -> None:
        self._p = p
        self._out = Layout()
        self._common = max((len(lane.groups) for lane in p.lanes), default=0)
        self._own = max((len(b.groups) for lane in p.lanes for b in lane.branches), default=0)
        self._kept = any(lane.kept is not None for lane in p.lanes)
        self._first_own = 1 + self._common + self._kept  # the column of a branch's first stage
        self._last = self._first_own + self._own  # the destinations'
        self._x = self._columns()

    def _columns(self) -> list[float]:
        """The left end of every column."""
        wide = [0.0] * (self._last + 1)
        for lane in self._p.lanes:
            wide[0] = max(wide[0], _size(lane.source)[0])
            for i, g in enumerate(lane.groups, 1):
                wide[i] = max(wide[i], _group_size(g)[0])
            if lane.kept is not None:
                wide[1 + self._common] = _size(lane.kept)[0]
            for b in lane.branches:
                for i, g in enumerate(b.groups, self._first_own):
                    wide[i] = max(wide[i], _group_size(g)[0])
        wide[-1] = max((_size(d)[0] for d in self._p.destinations), default=0)
        found = [MARGIN]
        for w in wide:
            found.append(found[-1] + w + GUTTER)
        self._out.width = found.pop() - GUTTER + MARGIN
        return found

    def place(self) -> Layout:
        rows: dict[str, list[float]] = {d.key: [] for d in self._p.destinations}  # the heights of what leads to each
        ends: list[tuple[str, Line]] = []
        y = HEADER
        for lane in self._p.lanes:
            y += self._lane(lane, y, rows, ends) + ROW
        at = self._destinations(rows)
        for key, line in ends:
            turns = (*line.turns, (self._x[-1] - GUTTER, at[key].middle))
            self._out.lines.append(Line(line.x, line.y, turns, self._x[-1], line.label))
        y = max([y, *(box.bottom + ROW for box in at.values())])
        self._out.height = self._letters(y) + MARGIN
        title = width(cut(self._p.title, 2 * LONGEST)) * CHARACTER * 14 / 12
        self._out.width = max(self._out.width, title + 2 * MARGIN)
        return self._out

    def _lane(self, lane: Lane, top: float, rows: dict[str, list[float]], ends: list[tuple[str, Line]]) -> float:
        """Places a lane below `top`; returns its height. Edges to destinations wait in `ends` until these have a place."""
        heights = [max([_size(b.destination)[1], *(_group_size(g)[1] for g in b.groups)]) + ROW for b in lane.branches]
        tallest = [_size(lane.source)[1], *(_group_size(g)[1] for g in lane.groups)]
        height = max([sum(heights) - ROW, *tallest])
        middle = top + height / 2
        box = self._vertex(lane.source, self._x[0], middle)
        shape = lane.given
        for i, group in enumerate(lane.groups, 1):
            box = self._link(box, shape, self._group(group, self._x[i], middle))
            shape = group.shapes[-1]
        if lane.kept is not None:
            box = self._link(box, shape, self._vertex(lane.kept, self._x[1 + self._common], middle))
        y = middle - (sum(heights) - ROW) / 2
        for branch, tall in zip(lane.branches, heights, strict=True):
            row = y + (tall - ROW) / 2
            end, given, turns = box, shape, ((self._x[self._first_own] - GUTTER, row),) if self._own else ()
            for i, group in enumerate(branch.groups, self._first_own):
                end = self._link(end, given, self._group(group, self._x[i], row))
                given, turns = group.shapes[-1], ()
            ends.append((branch.destination.key, Line(end.right, end.middle, turns, 0, given)))
            rows[branch.destination.key].append(row)
            y += tall
        return height

    def _destinations(self, rows: dict[str, list[float]]) -> dict[str, Box]:
        """Each in the middle of what leads to it. Every lane has a row for every destination, in the same order and high
        enough for it, so they are apart as the rows are."""
        middles = {key: sum(found) / len(found) for key, found in rows.items() if found}
        return {d.key: self._vertex(d, self._x[-1], middles[d.key]) for d in self._p.destinations if d.key in middles}

    def _letters(self, top: float) -> float:
        letters = self._p.letters
        middle = top + _size(letters.folder)[1] / 2
        folder = self._vertex(letters.folder, MARGIN, middle)
        right = folder.right
        if letters.queue is not None:
            queue = self._vertex(letters.queue, folder.right + GUTTER, middle)
            turns = ((folder.right, middle),)
            self._out.lines.append(Line(folder.right, middle, turns, queue.x, "open", dashed=True))
            right = queue.right
        self._out.width = max(self._out.width, right + MARGIN)
        return folder.bottom

    def _vertex(self, v: Vertex, x: float, middle: float) -> Box:
        wide, tall = _size(v)
        box = Box(x, middle - tall / 2, wide, tall)
        self._out.vertices.append((box, v))
        return box

    def _group(self, group: Group, x: float, middle: float) -> Box:
        wide, tall = _group_size(group)
        box = Box(x, middle - tall / 2, wide, tall)
        self._out.groups.append((box, group))
        y = box.y + TITLE
        for i, v in enumerate(group.vertices):
            own = _size(v)[1]
            if i:
                self._out.steps.append((x + PAD + 20, y - STEP, y, group.shapes[i]))
            self._out.vertices.append((Box(x + PAD, y, wide - 2 * PAD, own), v))
            y += own + STEP
        return box

    def _link(self, a: Box, shape: str, b: Box) -> Box:
        self._out.lines.append(Line(a.right, a.middle, ((b.x - GUTTER, b.middle),), b.x, shape))
        return b


def lines_of(v: Vertex) -> Sequence[str]:
    return [cut(t, LONGEST) for t in v.texts]


def _size(v: Vertex) -> tuple[float, float]:
    lines = lines_of(v)
    return max(map(width, lines)) * CHARACTER + 2 * PAD, len(lines) * LINE + PAD


def _group_size(g: Group) -> tuple[float, float]:
    sizes = [_size(v) for v in g.vertices]
    tall = sum(s[1] for s in sizes) + STEP * (len(sizes) - 1)
    return max(*(s[0] for s in sizes), 80.0) + 2 * PAD, TITLE + tall + PAD
