"""A graph as an SVG image, with a layout of our own: nothing has to be installed. Equal graphs give equal bytes.

Every pipeline stands on a light panel of its own, so it can be read on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from penstock.graph.layout import (
    CHARACTER,
    CURVE,
    HEADER,
    LEVEL,
    LINE,
    LONGEST,
    MARGIN,
    PAD,
    Box,
    Layout,
    Line,
    layout,
    lines_of,
)
from penstock.graph.model import Graph, PipelineGraph, Vertex
from penstock.graph.words import cut, one_line

_GAP = 16.0  # between two pipelines
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328}"
    ".title{font-size:14px;font-weight:bold}.id{font-weight:bold}.small{fill:#57606a}"
    ".panel{fill:#fff;stroke:#8c959f}.stage{fill:#f6f8fa;stroke:#8c959f;stroke-dasharray:4 3}"
    ".source,.destination{fill:#ddf4ff;stroke:#0969da}.processor{fill:#fff;stroke:#57606a}"
    ".kept,.letters{fill:#fff8c5;stroke:#9a6700}.edge{fill:none;stroke:#57606a}.dashed{stroke-dasharray:4 3}"
)


def svg(graph: Graph) -> str:
    placed = [(p, layout(p)) for p in graph.pipelines]
    wide = max((it.width for _, it in placed), default=0) + 2
    tall = sum(it.height + _GAP for _, it in placed) - (_GAP if placed else 0) + 2
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(wide)}" height="{_n(tall)}" '
        f'viewBox="0 0 {_n(wide)} {_n(tall)}" role="img">',
        f"<title>{escape(one_line(', '.join(p.id for p in graph.pipelines)))}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="penstock-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>',
    ]
    y = 1.0
    for p, it in placed:
        out.append(f'<g class="pipeline" transform="translate(1 {_n(y)})">')
        out += _pipeline(p, it)
        out.append("</g>")
        y += it.height + _GAP
    return "\n".join([*out, "</svg>"]) + "\n"


def _pipeline(p: PipelineGraph, it: Layout) -> Iterator[str]:
    yield _rect(Box(0, 0, it.width, it.height), "panel")
    yield _text(MARGIN, HEADER - 16, cut(p.title, 2 * LONGEST), "title")
    for box, group in it.groups:
        yield _rect(box, "stage")
        yield _text(box.x + PAD, box.y + LINE, group.where, "small")
    for line in it.lines:
        yield _path(line)
    # Edges that begin at the same box carry the same shape: it is written once.
    for x, y, label in dict.fromkeys((line.x, line.y, line.label) for line in it.lines):
        yield _text(x + 6, y - 5, label, "small")
    for x, top, bottom, shape in it.steps:
        yield f'<path class="edge" d="M{_n(x)} {_n(top)}V{_n(bottom)}" marker-end="url(#penstock-arrow)"/>'
        yield _text(x + CHARACTER, (top + bottom) / 2 + 3, shape, "small")
    for box, v in it.vertices:
        yield from _vertex(box, v)


def _vertex(box: Box, v: Vertex) -> Iterator[str]:
    yield f"<g><title>{escape(one_line(' · '.join(v.texts)))}</title>"
    yield _rect(box, f"box {v.kind}", 0 if v.kind == "processor" else 8)
    for i, line in enumerate(lines_of(v)):
        yield _text(box.x + PAD, box.y + LINE * (i + 1), line, "small" if i else "id")
    yield "</g>"


def _path(line: Line) -> str:
    d = f"M{_n(line.x)} {_n(line.y)}"
    at = line.y
    for gutter, y in line.turns:
        if y != at:
            start, half, end = gutter + LEVEL, gutter + LEVEL + CURVE / 2, gutter + LEVEL + CURVE
            d += f"H{_n(start)}C{_n(half)} {_n(at)} {_n(half)} {_n(y)} {_n(end)} {_n(y)}"
        at = y
    kind = "edge dashed" if line.dashed else "edge"
    return f'<path class="{kind}" d="{d}H{_n(line.end)}" marker-end="url(#penstock-arrow)"/>'


def _rect(box: Box, kind: str, round_: int = 0) -> str:
    corner = f' rx="{round_}"' if round_ else ""
    size = f'width="{_n(box.width)}" height="{_n(box.height)}"'
    return f'<rect class="{kind}" x="{_n(box.x)}" y="{_n(box.y)}" {size}{corner}/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
