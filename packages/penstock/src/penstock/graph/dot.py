"""A graph in the language of Graphviz: `penstock graph FILE --format dot | dot -Tpng > orders.png`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.graph.model import Graph, Group, PipelineGraph, Vertex
from penstock.graph.words import cut

_LONGEST = 60
_FORMS = {
    "source": "shape=box, style=rounded",
    "processor": "shape=box",
    "kept": "shape=cylinder",
    "destination": "shape=box, style=rounded",
    "letters": "shape=cylinder",
}


def dot(graph: Graph) -> str:
    lines = ["digraph penstock {", "  rankdir=LR;", '  node [fontname="Helvetica"]; edge [fontname="Helvetica"];']
    for p in graph.pipelines:
        lines += [f"  {line}" for line in _pipeline(p)]
    return "\n".join([*lines, "}"]) + "\n"


def _pipeline(p: PipelineGraph) -> Iterator[str]:
    yield f"subgraph cluster_{p.key} {{"
    yield f'  label="{_label([p.title])}"; fontname="Helvetica";'
    for lane in p.lanes:
        yield f"  {_vertex(lane.source)}"
        yield from _groups(lane.groups)
        if lane.kept is not None:
            yield f"  {_vertex(lane.kept)}"
        for branch in lane.branches:
            yield from _groups(branch.groups)
    letters = p.letters
    for v in (*p.destinations, letters.folder, *([letters.queue] if letters.queue is not None else [])):
        yield f"  {_vertex(v)}"
    for edge in p.edges():
        style = ", style=dashed" if edge.dashed else ""
        yield f'  {edge.tail} -> {edge.head} [label="{_label([edge.label])}"{style}];'
    yield "}"


def _groups(groups: Iterable[Group]) -> Iterator[str]:
    for group in groups:
        yield f"  subgraph cluster_{group.key} {{"
        yield f'    label="{_label([group.where])}"; style=dashed;'
        for v in group.vertices:
            yield f"    {_vertex(v)}"
        yield "  }"


def _vertex(v: Vertex) -> str:
    return f'{v.key} [label="{_label(v.texts)}", {_FORMS[v.kind]}];'


def _label(texts: Iterable[str]) -> str:
    """Graphviz reads backslashes and HTML entities in labels; here both are plain text."""
    return r"\n".join(_escaped(cut(t, _LONGEST)) for t in texts)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("&", "&amp;")
