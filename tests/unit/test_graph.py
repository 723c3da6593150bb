"""`penstock graph` shows what the engine will do, in four forms, and nothing that a file says breaks one of them. No Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.graph import FORMATS
from penstock.cli.graph import graph as command
from penstock.graph.dot import dot
from penstock.graph.layout import CHARACTER, LEVEL, Box, Layout, layout
from penstock.graph.mermaid import mermaid
from penstock.graph.model import Branch, DeadLetters, Edge, Graph, Group, Lane, PipelineGraph, Vertex, graph_of
from penstock.graph.svg import svg
from penstock.graph.text import COLUMNS, text
from penstock.graph.words import cut, one_line, width
from penstock.native import Where
from penstock.pipeline import Pipeline
from penstock.plan.nodes import stages

ROOT = Path(__file__).parents[2]
PENSTOCK = Path(sys.executable).with_name("penstock")
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
WRITERS: dict[str, Callable[[Graph], str]] = {"text": text, "mermaid": mermaid, "dot": dot, "svg": svg}
SVG = "{http://www.w3.org/2000/svg}"

SMALL = """\
version: "2.2"
pipelines:
  - id: small
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: in}}
      - {id: out, type: destination, plugin: files, settings: {path: out}}
    processors:
      - {id: decode, plugin: json.decode}
      - {id: cheap, plugin: filter, condition: after.amount < 50}
      - {id: encode, plugin: json.encode}
    dead-letter-queue: {plugin: files, settings: {path: dead, format: json}, window-size: 0}
"""

# Processors at all five places: of each source, of the pipeline, of each destination.
ALL = """\
version: "2.2"
pipelines:
  - id: shop
    name: 'Shop "orders" & <more>'
    connectors:
      - id: lines
        type: source
        plugin: files
        settings: {path: a}
        processors:
          - {id: decode, plugin: json.decode}
      - id: table
        type: source
        plugin: files
        settings: {path: b, format: parquet}
        processors:
          - {id: paid, plugin: filter, condition: not after.paid}
      - id: all
        type: destination
        plugin: builtin:files
        settings: {path: c}
        processors:
          - {id: encode-all, plugin: json.encode}
      - id: large
        type: destination
        plugin: files
        settings: {path: d}
        processors:
          - {id: no-small, plugin: filter, condition: "after.note = '<b>]] & \\"co\\"' or after.amount < 100 or after.gross < 119"}
          - {id: encode-large, plugin: json.encode}
    processors:
      - {id: gross, plugin: sql, settings: {field: .Payload.After.gross, expression: after.amount * 2}}
      - {id: bad, plugin: error, condition: after.amount < 0, namespaces: '^shop\\.', settings: {message: negative}}
    dead-letter-queue: {window-size: 100, window-nack-threshold: 3}
"""

HOSTILE = [
    'a"b',
    "</text><script>alert(1)</script>",
    "&amp; &#10; &lt;",
    "]] ]]> --> end",
    "x\nend\nflowchart TD\n%%{init: {}}%%",
    "back\\slash\\",
    '\\"];} digraph x {',
    "`**markdown**` #quot; style a:#35;",
    "注文 ☃ é é",
    "\x1b[31mred\x00\x07\r\u202eright-to-left\ud800\ufffe",
    "long " * 60,
    "{{ .Payload.After.x }} | ~ ; '",
]


def _graph(yaml: str, folder: Path) -> Graph:
    file = folder / "p.yaml"
    file.write_text(yaml)
    return graph_of([p.assembly() for p in Pipeline.from_files([file])])


def _hostile(said: str) -> Graph:
    """Everything that can be text is `said`."""
    v = Vertex("p0_v", "processor", said, said, said, (said, said))
    group = Group("p0_g", "Python", (v, replace(v, key="p0_w")), ("raw", "open", "open"))
    destinations = tuple(Vertex(f"p0_d{i}", "destination", said, said) for i in range(2))
    own = replace(group, key="p0_h", vertices=(replace(v, key="p0_x"),), shapes=("open", "raw"))
    branches = (Branch((), destinations[0], "open"), Branch((own,), destinations[1], "raw"))
    kept = Vertex("p0_kept", "kept", "materialised")
    lane = Lane(Vertex("p0_s", "source", said, said), "raw", (group,), "open", kept, branches)
    letters = DeadLetters(
        Vertex("p0_l", "letters", said, said, said), Vertex("p0_q", "destination", said, said), "window 0: no limit"
    )
    return Graph((PipelineGraph("p0", said, said, (lane,), destinations, letters),))


def _graphs(folder: Path) -> Iterator[Graph]:
    yield _graph(SMALL, folder)
    yield _graph(ALL, folder)
    for said in HOSTILE:
        yield _hostile(said)
    for file in EXAMPLES:
        yield graph_of([p.assembly() for p in Pipeline.from_files([file])])


# -- the model ------------------------------------------------------------------------------------------------------


def test_a_lane_is_staged_as_the_engine_stages_it(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(ALL)
    assembly = Pipeline.from_file(tmp_path / "p.yaml").assembly()
    names = {Where.PYTHON: "Python", Where.SPARK: "Spark"}
    [p] = graph_of([assembly]).pipelines
    plan = assembly.plan()
    for lane, planned in zip(p.lanes, plan.lanes, strict=True):
        common = stages(planned.nodes, planned.source.shape)
        shape = common[-1].gives
        chains = [(lane.groups, common)]
        chains += [(b.groups, stages(planned.targets[b.destination.id].nodes, shape)) for b in lane.branches]
        for groups, staged in chains:
            shown = [(g.where, [v.id for v in g.vertices], g.shapes[0], g.shapes[-1]) for g in groups]
            assert shown == [(names[s.where], [n.id for n in s.nodes], s.given, s.gives) for s in staged]


def test_the_same_processor_may_run_elsewhere_for_another_source(tmp_path: Path) -> None:
    [p] = _graph(ALL, tmp_path).pipelines
    assert [[g.where for g in lane.groups] for lane in p.lanes] == [["Python"], ["Spark"]]
    assert [[v.id for v in g.vertices] for lane in p.lanes for g in lane.groups] == [
        ["decode", "gross", "bad"],
        ["paid", "gross", "bad"],
    ]
    assert [lane.given for lane in p.lanes] == ["raw", "typed"]


def test_every_edge_leads_from_one_thing_to_another_and_says_the_shape(tmp_path: Path) -> None:
    [p] = _graph(SMALL, tmp_path).pipelines
    g = "p0_l0_g0"
    assert list(p.edges()) == [
        Edge("p0_l0_s", f"{g}_0", "raw"),
        Edge(f"{g}_0", f"{g}_1", "open"),
        Edge(f"{g}_1", f"{g}_2", "open"),
        Edge(f"{g}_2", "p0_d0", "raw"),
        Edge("p0_letters", "p0_letters_queue", "open", dashed=True),
    ]
    [all_] = _graph(ALL, tmp_path).pipelines
    edges = list(all_.edges())
    assert len(edges) == len(set(edges))
    for i, lane in enumerate(all_.lanes):
        assert lane.kept is not None
        assert [e.head for e in edges if e.tail == lane.kept.key] == [f"p0_l{i}_b{n}_g0_0" for n in range(2)]


def test_one_destination_is_not_materialised_for(tmp_path: Path) -> None:
    [p] = _graph(SMALL, tmp_path).pipelines
    assert p.lanes[0].kept is None


def test_what_a_connector_does_itself_is_shown_as_a_part_of_it(tmp_path: Path) -> None:
    yaml = SMALL.replace("settings: {path: in}", "settings: {path: in, format: json}").replace(
        "      - {id: decode, plugin: json.decode}\n", ""
    )
    [p] = _graph(yaml, tmp_path).pipelines
    first = p.lanes[0].groups[0].vertices[0]
    assert (first.id, first.plugin, first.owner) == ("in", "json line", "part of in")
    assert p.lanes[0].groups[0].shapes[:2] == ("raw", "open")


@pytest.mark.parametrize(
    "queue, said",
    [
        ("{}", "window 1: the first stops the pipeline"),
        ("{window-size: 0}", "window 0: no limit"),
        ("{window-size: 10, window-nack-threshold: 2}", "window 10: more than 2 stop the pipeline"),
    ],
)
def test_the_window_of_the_dead_letters_is_said(tmp_path: Path, queue: str, said: str) -> None:
    yaml = re.sub("dead-letter-queue: .*", f"dead-letter-queue: {queue}", SMALL)
    graph = _graph(yaml, tmp_path)
    assert graph.pipelines[0].letters.window == said
    for write in WRITERS.values():
        assert said.split(":")[0] in write(graph)


def test_a_condition_is_shown_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference may stand for a secret."""
    monkeypatch.setenv("LIMIT", "4711")
    yaml = SMALL.replace("after.amount < 50", "'after.amount < ${LIMIT}'")
    graph = _graph(yaml, tmp_path)
    assert graph.pipelines[0].lanes[0].groups[0].vertices[1].notes == ("if after.amount < ${LIMIT}",)
    for write in WRITERS.values():
        assert "4711" not in write(graph)
        assert "LIMIT" in write(graph)


def test_a_stopped_pipeline_says_so(tmp_path: Path) -> None:
    graph = _graph(SMALL.replace("id: small", "id: small\n    status: stopped"), tmp_path)
    assert text(graph).startswith("small (exactly-once, stopped)\n")


def test_a_pipeline_with_problems_has_no_graph() -> None:
    bad = Pipeline("p").source("in", "files", path="in").destination("out", "files", pathh="out")
    with pytest.raises(ValueError, match="problems"):
        graph_of([bad.assembly()])


# -- the forms ------------------------------------------------------------------------------------------------------


def test_the_text_of_a_small_pipeline(tmp_path: Path) -> None:
    assert text(_graph(SMALL, tmp_path)) == (
        "small (exactly-once)\n"
        "\n"
        "  in (files)\n"
        "  │ raw\n"
        "  ├─ Python\n"
        "  │    decode  json.decode  → open\n"
        "  │    cheap   filter       → open  if after.amount < 50\n"
        "  │    encode  json.encode  → raw\n"
        "  │ raw\n"
        "  └──▶ out (files)\n"
        "\n"
        "  dead letters: state folder, and dead-letter-queue (files); window 0: no limit\n"
    )


def test_the_text_of_a_pipeline_with_two_sources_and_two_destinations(tmp_path: Path) -> None:
    shown = text(_graph(ALL, tmp_path))
    assert (
        "  table (files)\n"
        "  │ typed\n"
        "  ├─ Spark\n"
        "  │    paid   filter  → typed  of table; if not after.paid\n"
        "  │    gross  sql     → typed\n"
        "  │    bad    error   → typed  if after.amount < 0; namespaces ^shop\\.\n"
        "  │ typed, materialised once per batch for 2 destinations\n"
        "  ├──┬─ Spark\n"
        "  │  │    encode-all  json.encode  → raw\n"
        "  │  │ raw\n"
        "  │  └──▶ all (files)\n"
        "  └──┬─ Spark\n"
        "     │    no-small      filter       → typed\n"
        "     │      if after.note = '<b>]] & \"co\"' or after.amount < 100 or after.gross…\n"
        "     │    encode-large  json.encode  → raw\n"
        "     │ raw\n"
        "     └──▶ large (files)\n"
    ) in shown


def test_text_fits_a_terminal_and_cannot_drive_it(tmp_path: Path) -> None:
    for graph in _graphs(tmp_path):
        for line in text(graph).splitlines():
            assert width(line) <= COLUMNS, line
            assert line.isprintable()


_LABEL = r'"(?:[a-zA-Z0-9 .,/()=+\-_\']|[^\x00-\x7f]|#\d+;|<br/>)*"'
_KEY = r"p\d+(?:_[a-z0-9]+)*"
_MERMAID = re.compile(
    rf"flowchart LR|\s*(?:end|subgraph {_KEY}\[{_LABEL}\]|{_KEY}(?:\(\[{_LABEL}\]\)|\[{_LABEL}\]|\[\({_LABEL}\)\])"
    rf"|{_KEY} (?:-- {_LABEL} -->|-\. {_LABEL} \.->) {_KEY})"
)


def test_every_line_of_mermaid_is_one_that_it_knows(tmp_path: Path) -> None:
    for graph in _graphs(tmp_path):
        lines = mermaid(graph).splitlines()
        for line in lines:
            assert _MERMAID.fullmatch(line), line
        assert sum("subgraph" in line.split('"')[0] for line in lines) == sum(line.strip() == "end" for line in lines)
        assert lines.count("flowchart LR") == 1


_DOT = re.compile(r'\s+|"(?:[^"\\]|\\["\\n])*"|->|[{}\[\];,=]|[a-zA-Z_][a-zA-Z0-9_]*')


def test_dot_is_made_of_its_tokens_alone_and_is_balanced(tmp_path: Path) -> None:
    for graph in _graphs(tmp_path):
        written, at, depth = dot(graph), 0, 0
        while at < len(written):
            token = _DOT.match(written, at)
            assert token, written[at : at + 80]
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            at = token.end()
            assert depth > 0 or "{" not in written[:at] or not written[at:].strip()  # it ends once, at the end
        assert depth == 0
        assert not re.search(r"&(?!amp;)", written)  # Graphviz would read an entity


def test_an_svg_is_xml_and_holds_every_text(tmp_path: Path) -> None:
    for graph in _graphs(tmp_path):
        root = ET.fromstring(svg(graph))
        assert {e.tag for e in root.iter()} <= {
            SVG + t for t in ("svg", "title", "style", "defs", "marker", "g", "rect", "path", "text")
        }
        shown = {e.text for e in root.iter(SVG + "text")}
        titles = {e.text for e in root.iter(SVG + "title")}
        for p in graph.pipelines:
            for _, v in layout(p).vertices:
                assert {cut(t, 44) or None for t in v.texts} <= shown
                assert one_line(" · ".join(v.texts)) in titles


def test_equal_graphs_are_written_equally(tmp_path: Path) -> None:
    for write in WRITERS.values():
        assert write(_graph(ALL, tmp_path)) == write(_graph(ALL, tmp_path))


def _apart(a: Box, b: Box) -> bool:
    return a.right <= b.x or b.right <= a.x or a.bottom <= b.y or b.bottom <= a.y


def _inside(a: Box, b: Box) -> bool:
    return b.x <= a.x and a.right <= b.right and b.y <= a.y and a.bottom <= b.bottom


def _layouts(folder: Path) -> Iterator[Layout]:
    wide = SMALL.replace("id: out, type", "id: a-name-that-is-much-longer-than-all-the-others-together, type")
    many = "".join(
        f"      - {{id: more{i}, type: destination, plugin: files, settings: {{path: out{i}}}}}\n" for i in range(5)
    )
    fan = SMALL.replace("    processors:\n", f"{many}    processors:\n")
    bare = re.sub(r"    processors:\n(      .*\n)+", "", SMALL)
    two = "          - {id: first, plugin: filter, condition: \"after like '#%'\"}\n          - {id: decode"
    uneven = ALL.replace("          - {id: decode", two)  # two stages for one source, one for the other
    plain = "{path: c, format: json}\n"
    straight = re.sub(r"\{path: c\}\n        processors:\n.*encode-all.*\n", plain, uneven)  # past the other's stage
    for yaml in (wide, fan, bare, uneven, straight):
        yield from map(layout, _graph(yaml, folder).pipelines)
    for graph in _graphs(folder):
        yield from map(layout, graph.pipelines)


def test_boxes_of_a_pipeline_do_not_overlap(tmp_path: Path) -> None:
    for it in _layouts(tmp_path):
        panel = Box(0, 0, it.width, it.height)
        boxes = [box for box, _ in it.vertices]
        stages_ = [box for box, _ in it.groups]
        assert all(_inside(box, panel) for box in (*boxes, *stages_))
        assert all(_apart(a, b) for a, b in combinations(boxes, 2))
        assert all(_apart(a, b) for a, b in combinations(stages_, 2))
        assert all(_inside(box, stage) or _apart(box, stage) for box in boxes for stage in stages_)
        held = sum(_inside(box, stage) for box in boxes for stage in stages_)
        assert held == sum(len(g.vertices) for _, g in it.groups)


def test_no_edge_and_no_label_of_one_crosses_a_box(tmp_path: Path) -> None:
    for it in _layouts(tmp_path):
        boxes = [box for box, _ in (*it.vertices, *it.groups)]
        for line in it.lines:
            label = Box(line.x + 6, line.y - 15, len(line.label) * CHARACTER, 12)
            assert label.right <= line.x + 6 + LEVEL
            assert all(_apart(label, box) for box in boxes)
            level, x, end = line.y, line.x, line.end
            for gutter, y in line.turns:  # a change of height stays in its gutter; what is level must be free
                assert all(_apart(Box(x, level, gutter - x, 0), box) for box in boxes)
                assert all(_apart(Box(gutter, min(level, y), 100, abs(y - level)), box) for box in boxes)
                level, x = y, gutter
            assert all(_apart(Box(x, level, end - x, 0), box) for box in boxes)


def test_the_boxes_of_the_image_are_those_of_the_layout(tmp_path: Path) -> None:
    graph = _graph(ALL, tmp_path)
    rects = [e for e in ET.fromstring(svg(graph)).iter(SVG + "rect") if "box" in e.attrib["class"]]
    assert len(rects) == len(layout(graph.pipelines[0]).vertices)


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("file", [*EXAMPLES, None], ids=lambda f: f.name if f else "all")
def test_the_command_prints_each_form(tmp_path: Path, form: str, file: Path | None) -> None:
    if file is None:
        file = tmp_path / "p.yaml"
        file.write_text(ALL)
    done = CliRunner().invoke(command, [str(file), "--format", form], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output == WRITERS[form](graph_of([p.assembly() for p in Pipeline.from_files([file])]))


@pytest.mark.parametrize("options", [["--json"], ["--format", "json"]])
def test_programs_get_all_that_is_drawn(tmp_path: Path, options: list[str]) -> None:
    assert {*FORMATS} == {*WRITERS, "json"}
    (tmp_path / "p.yaml").write_text(SMALL)
    done = CliRunner().invoke(command, [str(tmp_path / "p.yaml"), *options], catch_exceptions=False)
    [pipeline] = json.loads(done.output)["pipelines"]
    [lane] = pipeline["lanes"]
    assert (pipeline["id"], lane["source"]["plugin"]) == ("small", "files")
    assert [b["destination"]["plugin"] for b in lane["branches"]] == ["files"]


def test_the_form_follows_the_ending_of_the_file_unless_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SMALL)
    for name, options, begins in (
        ("a.svg", [], "<svg"),
        ("a.DOT", [], "digraph"),
        ("a.mmd", [], "flowchart LR"),
        ("a.txt", [], "small"),
        ("b.svg", ["--format", "dot"], "digraph"),
    ):
        done = CliRunner().invoke(command, [str(tmp_path / "p.yaml"), "-o", str(tmp_path / name), *options])
        assert (done.exit_code, done.output) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)


def test_one_of_several_pipelines_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "b.yaml").write_text(ALL)
    both = CliRunner().invoke(command, [str(tmp_path)])
    assert "small (" in both.output
    assert "shop: " in both.output
    one = CliRunner().invoke(command, [str(tmp_path), "--pipeline", "small"])
    assert "shop: " not in one.output
    none = CliRunner().invoke(command, [str(tmp_path), "--pipeline", "smal"])
    assert none.exit_code == 2
    assert "small, shop" in none.output


def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "graph.md").read_text()
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    graph = _graph(blocks["yaml"], tmp_path)
    assert (blocks["text"], blocks["mermaid"]) == (text(graph), mermaid(graph))


def _penstock(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PENSTOCK), "graph", *arguments], cwd=cwd, capture_output=True, text=True)


def test_a_file_with_problems_is_answered_with_them(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SMALL.replace("plugin: filter", "plugin: filtre"))
    done = _penstock("p.yaml", "-o", "p.svg", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "config.unknown-plugin" in done.stderr
    assert not (tmp_path / "p.svg").exists()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SMALL)
    done = _penstock("p.yaml", "-o", "nowhere/p.svg", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere/p.svg" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_runs_without_spark(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(ALL)
    program = (
        "import sys; from penstock.cli.main import cli\n"
        "for form in ('text', 'mermaid', 'dot', 'svg'):\n"
        "    cli(['graph', 'p.yaml', '--format', form], standalone_mode=False)\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "shop: " in done.stdout
