"""A graph as a Mermaid flowchart, for pages that draw it: READMEs, wikis, issues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.graph.model import Graph, Group, PipelineGraph, Vertex
from penstock.graph.words import cut

_LONGEST = 60
_SAFE = frozenset(" .,/()=+-_'")  # of ASCII, besides letters and digits; the rest could end a label or be markup in it
_FORMS = {
    "source": ("([", "])"),
    "processor": ("[", "]"),
    "kept": ("[(", ")]"),
    "destination": ("([", "])"),
    "letters": ("[(", ")]"),
}


def mermaid(graph: Graph) -> str:
    lines = ["flowchart LR"]
    for p in graph.pipelines:
        lines += [f"  {line}" for line in _pipeline(p)]
    return "\n".join(lines) + "\n"


def _pipeline(p: PipelineGraph) -> Iterator[str]:
    yield f'subgraph {p.key}["{_label([p.title])}"]'
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
        arrow = f'-. "{_label([edge.label])}" .->' if edge.dashed else f'-- "{_label([edge.label])}" -->'
        yield f"  {edge.tail} {arrow} {edge.head}"
    yield "end"


def _groups(groups: Iterable[Group]) -> Iterator[str]:
    for group in groups:
        yield f'  subgraph {group.key}["{_label([group.where])}"]'
        for v in group.vertices:
            yield f"    {_vertex(v)}"
        yield "  end"


def _vertex(v: Vertex) -> str:
    before, after = _FORMS[v.kind]
    return f'{v.key}{before}"{_label(v.texts)}"{after}'


def _label(texts: Iterable[str]) -> str:
    return "<br/>".join("".join(map(_escaped, cut(t, _LONGEST))) for t in texts)


def _escaped(c: str) -> str:
    """Mermaid's own way to write a character by its number. Beyond ASCII nothing means anything to it."""
    return c if not c.isascii() or c.isalnum() or c in _SAFE else f"#{ord(c)};"
