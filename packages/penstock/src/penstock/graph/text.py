"""A graph for the terminal: one line per processor, at most 80 columns, no colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.graph.model import Branch, Graph, Group, Lane, PipelineGraph, Vertex
from penstock.graph.words import cut, one_line, padded, width

COLUMNS = 80
_ID, _PLUGIN = 28, 20  # at most, of a row
_INDENT = 5  # at most, of a row: 2 of the pipeline and 3 of a branch


def text(graph: Graph) -> str:
    return "\n\n".join("\n".join(_pipeline(p)) for p in graph.pipelines) + "\n"


def _pipeline(p: PipelineGraph) -> Iterator[str]:
    yield cut(p.title, COLUMNS)
    for lane in p.lanes:
        yield ""
        for line in _lane(lane):
            yield _cut(f"  {line}")
    yield ""
    queue = p.letters.queue
    where = one_line(p.letters.folder.plugin) + (f", and {_named(queue)}" if queue is not None else "")
    whole = f"dead letters: {where}; {p.letters.window}"
    fits = width(whole) <= COLUMNS - 2
    for line in [whole] if fits else [f"dead letters: {where}", f"  {p.letters.window}"]:
        yield _cut(f"  {line}")


def _lane(lane: Lane) -> Iterator[str]:
    yield _named(lane.source)
    yield f"│ {lane.given}"
    yield from _groups(lane.groups)
    if lane.kept is not None:
        readers = f" for {len(lane.branches)} destinations" if len(lane.branches) > 1 else ""
        yield f"│ {lane.gives}, {lane.kept.id} once per batch{readers}"
    elif lane.groups and not (len(lane.branches) == 1 and lane.branches[0].groups):
        yield f"│ {lane.gives}"
    if len(lane.branches) == 1:
        [branch] = lane.branches
        yield from _groups(branch.groups)
        yield from _end(branch)
        return
    for branch in lane.branches:
        last = branch is lane.branches[-1]
        yield from _branch(branch, "└" if last else "├", " " if last else "│")


def _branch(branch: Branch, corner: str, bar: str) -> Iterator[str]:
    if not branch.groups:
        yield f"{corner}──▶ {_named(branch.destination)}"
        return
    lines = [*_groups(branch.groups, owners=False), *_end(branch)]  # whose they are is plain here
    yield f"{corner}──┬{lines[0][1:]}"
    for line in lines[1:]:
        yield f"{bar}  {line}"


def _end(branch: Branch) -> Iterator[str]:
    if branch.groups:
        yield f"│ {branch.gives}"
    yield f"└──▶ {_named(branch.destination)}"


def _groups(groups: Sequence[Group], *, owners: bool = True) -> Iterator[str]:
    for group in groups:
        yield f"├─ {group.where}"
        ids = [cut(v.id, _ID) for v in group.vertices]
        plugins = [cut(v.plugin, _PLUGIN) for v in group.vertices]
        wide, wider = max(map(width, ids)), max(map(width, plugins))
        shapes = max(map(len, group.shapes[1:]))
        for v, id_, plugin, shape in zip(group.vertices, ids, plugins, group.shapes[1:], strict=True):
            notes = (v.owner, *v.notes) if owners and v.owner else v.notes
            row = f"│    {padded(id_, wide)}  {padded(plugin, wider)}  → {shape:<{shapes}}"
            yield from _with_note(row, "; ".join(map(one_line, notes)))


def _with_note(row: str, note: str) -> Iterator[str]:
    """A note that is too long for its row stands below it."""
    if width(row) + 2 + width(note) <= COLUMNS - _INDENT:
        yield f"{row}  {note}".rstrip()
        return
    yield row.rstrip()
    yield f"│      {cut(note, COLUMNS - _INDENT - 7)}"


def _named(v: Vertex) -> str:
    return f"{cut(v.id, 50)} ({cut(v.plugin, _PLUGIN)})"


def _cut(line: str) -> str:
    """`cut` makes one space of several; what draws the picture needs them."""
    if width(line) <= COLUMNS:
        return line
    kept = line
    while width(kept) > COLUMNS - 1:
        kept = kept[:-1]
    return f"{kept.rstrip()}…"
