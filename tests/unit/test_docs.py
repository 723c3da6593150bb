"""The documents are true: YAML loads, generated parts are fresh, codes are listed, commands exist, links lead somewhere. No Spark.

What has to be run is run by tests/contract/test_docs_run.py.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from penstock import codes
from penstock.cli.main import COMMANDS, cli
from penstock.config import Problem
from penstock.pipeline import Pipeline
from scripts import contract, docs, markers, mkdocs_hook, processors
from tests.support.pages import (
    DOCS,
    FILES,
    PACKAGES,
    PAGES,
    ROOT,
    TEMPLATES,
    Block,
    all_blocks,
    is_complete,
    name,
    pipeline_blocks,
    prose,
)

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# Codes are given by keyword (`code="a.b"`), by place to what makes a problem, or put together from a kind.
_BY_KEYWORD = re.compile(r'\bcode ?= ?"([a-z0-9.-]+)"')
_BY_PLACE = re.compile(r'"((?:config|usage)\.[a-z-]+)"')
_MADE = re.compile(r'f"(config\.[a-z-]*)\{kind\}"')
# Codes of nacks are given by place or as a default.
_OF_NACKS = re.compile(r'"((?:processor|destination|batch|sql|expect|skip)\.[a-z-]+)"')
_KINDS = ("source", "destination")


def _where(block: Block) -> str:
    return block.where


def test_there_is_something_to_check() -> None:
    """A pattern that matches nothing proves nothing."""
    assert {"README.md", "ARCHITECTURE.md", "docs/index.md", "docs/reference/errors.md"} <= {name(p) for p in PAGES}
    assert len(pipeline_blocks()) > 30
    assert len([f for f in FILES if f.is_relative_to(TEMPLATES)]) > 2
    assert len([f for f in FILES if f.is_relative_to(ROOT / "examples")]) > 1


# -- pipelines and Python ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", pipeline_blocks(), ids=_where)
def test_every_yaml_in_the_documents_loads_without_a_warning(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(block.text)
    assert _loads(file)


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_example_and_template_loads_without_a_warning(file: Path) -> None:
    assert _loads(file)


def _loads(file: Path) -> bool:
    warnings: list[Problem] = []
    pipelines = Pipeline.from_files([file], warnings)
    return bool(pipelines) and [str(w) for w in warnings] == []


@pytest.mark.parametrize("block", all_blocks("python"), ids=_where)
def test_every_python_in_the_documents_compiles(block: Block) -> None:
    compile(block.text, "page", "exec")


def test_python_that_uses_what_it_has_not_made_is_not_complete() -> None:
    assert is_complete(
        "import os.path as p\nfrom a import b\n\ndef f(x):\n    y = x\n    return [z for z in y]\n\nprint(p, b, f)\n"
    )
    assert not is_complete("print(tmp_path)")
    assert not is_complete("def f(r: Record): ...")


def test_the_function_of_the_example_has_an_answer_for_every_order() -> None:
    from examples.clean import clean
    from penstock import DROP, Record, Reject

    good = clean(Record({"customer": " Ada "}))
    assert isinstance(good, Record)
    assert good.after == {"customer": "Ada"}
    assert clean(Record({"customer": "Bo", "test": True})) is DROP
    assert isinstance(clean(Record({"customer": " "})), Reject)


# -- commands ---------------------------------------------------------------------------------------------------------


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Where each `penstock …` that a reader would type stands, and its words."""
    for block in all_blocks("sh", "console", "text", ""):
        for line in block.text.splitlines():
            typed = line.strip().removeprefix("$ ") if block.kind == "sh" or line.startswith("$ ") else ""
            if typed.startswith("penstock "):
                words = shlex.split(re.split(r" (?:&|\||>|2>|<)(?: |$)", typed)[0], comments=True)
                yield block.where, words[1:]


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    shown = list(_commands())
    assert len(shown) > 5
    wrong = [f"{where}: {e.format_message()}" for where, words in shown for e in _usage_errors(words)]
    assert wrong == []


def _usage_errors(words: list[str]) -> Iterator[click.UsageError]:
    context: click.Context = click.Context(cli, info_name="penstock")
    command: click.Command = cli
    try:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words[0])
            if found is None:
                raise click.UsageError(f"no command {words[0]!r}")  # noqa: TRY301
            command, words = found, words[1:]
        command.make_context(command.name, list(words), parent=context)
    except click.exceptions.Exit:  # --help, --version
        pass
    except click.UsageError as e:
        yield e


# -- what is generated ------------------------------------------------------------------------------------------------


def test_every_generated_part_is_fresh() -> None:
    made = docs.pages()
    assert len(made) >= 3
    assert [name(ROOT / path) for path, text in made.items() if (ROOT / path).read_text() != text] == [], (
        "run make docs"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section(command: str) -> None:
    assert f"\n## `penstock {command}`\n" in (DOCS / "reference" / "cli.md").read_text()


def test_every_event_of_a_run_is_listed() -> None:
    source = "\n".join(p.read_text() for p in PACKAGES.rglob("src/penstock/engine/**/*.py"))
    events = set(re.findall(r'_report\(\s*"([a-z]+)"', source))
    page = (DOCS / "reference" / "cli.md").read_text()
    assert len(events) > 8
    assert sorted(e for e in events if f"\n| `{e}` | " not in page) == []


def test_what_is_written_by_hand_stays_when_parts_are_made_anew() -> None:
    page = f"head\n\n{markers.part('a', 'old')}\n\nby hand\n"
    assert markers.replaced(page, {"a": "new"}) == page.replace("old", "new")
    added = markers.in_order(page, {"b": "before", "a": "new"})
    assert added == f"head\n\n{markers.part('b', 'before')}\n\n{markers.part('a', 'new')}\n\nby hand\n"
    assert markers.in_order(added, {"b": "before", "a": "new"}) == added
    with pytest.raises(markers.LostTextError, match="a is no longer there"):
        markers.in_order(added, {"b": "before"})
    with pytest.raises(markers.LostTextError):
        markers.replaced(page, {"b": "new"})


def test_every_built_in_processor_has_a_page_that_is_fresh() -> None:
    made = processors.pages()
    assert len(made) > 20
    stale = [name(ROOT / path) for path, text in made.items() if (ROOT / path).read_text() != text]
    assert stale == [], "run make docs"
    assert {p.relative_to(ROOT) for p in (ROOT / processors.FOLDER).glob("*.md")} < set(made)


def test_every_built_in_processor_but_python_has_an_example() -> None:
    from penstock.plugins import builtin

    without = [n for n in builtin.PROCESSORS if builtin.implementation("processor", n).example is None]
    assert without == ["python"]


# -- codes ------------------------------------------------------------------------------------------------------------


def _codes_in_source() -> set[str]:
    left = (Path(codes.__file__), TEMPLATES, PACKAGES / "penstock-sdk" / "src" / "penstock_sdk" / "testing")
    files = [p for p in PACKAGES.rglob("src/**/*.py") if not any(p.is_relative_to(one) for one in left)]
    text = "\n".join(p.read_text() for p in files)
    made = {prefix + kind for prefix in _MADE.findall(text) for kind in _KINDS}
    return {*_BY_KEYWORD.findall(text), *_BY_PLACE.findall(text), *_OF_NACKS.findall(text), *made}


def test_every_error_code_is_listed_and_none_is_invented() -> None:
    used, listed = _codes_in_source(), codes.by_code()
    assert len(used) > 30
    assert sorted(used - listed.keys()) == [], "in the code, but not in penstock/codes.py"
    assert sorted(listed.keys() - used) == [], "in penstock/codes.py, but not in the code"


def test_a_code_stands_in_one_section_and_says_what_it_means() -> None:
    assert sum(map(len, codes.SECTIONS.values())) == len(codes.by_code())
    for code, about in codes.by_code().items():
        assert set(about.kind.split(", ")) <= set(codes.KINDS), code
        assert about.meaning, code
        assert about.todo or "nack" in about.kind, code
        assert "|" not in about.meaning + about.todo, code


# -- links and the site -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """The headings of a page that GitHub and mkdocs give the same name."""
    headings = _HEADING.findall(prose(page))
    github = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return github & {_of_the_site(h) for h in headings}


def _of_the_site(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _in_nav(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    else:
        for below in node.values() if isinstance(node, dict) else node:
            yield from _in_nav(below)


def test_every_page_is_reached_from_the_navigation() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert [next(iter(part)) for part in config["nav"]] == [
        "Overview",
        "Tutorial",
        "How-to",
        "Reference",
        "Explanation",
    ]
    seen: set[Path] = set()
    ahead = [DOCS / path for path in _in_nav(config["nav"])]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md" and page.is_relative_to(DOCS):
            seen.add(page)
            links = [link.partition("#")[0] for link in _LINK.findall(prose(page)) if "://" not in link]
            ahead += [(page.parent / link).resolve() for link in links if link]
    assert sorted(map(name, set(DOCS.rglob("*.md")) - seen)) == []


def test_a_link_that_leaves_the_documents_is_a_name_in_the_site() -> None:
    text = "[a](../tests/x.py#y) and [b](../how-to/c.md) and [d](e.md)"
    assert mkdocs_hook.inside(text, "contract.md") == "a (`tests/x.py`) and b (`how-to/c.md`) and [d](e.md)"
    assert mkdocs_hook.inside(text, "reference/f.md") == "[a](../tests/x.py#y) and [b](../how-to/c.md) and [d](e.md)"


# -- the contract -----------------------------------------------------------------------------------------------------


def test_the_contract_page_is_fresh() -> None:
    page = ROOT / contract.PAGE
    assert page.read_text() == contract.render(ROOT), f"{contract.PAGE} is stale: run `make docs`"


def test_every_kind_of_contract_marker_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(
        "pytestmark = [pytest.mark.spark, pytest.mark.contract('C1', reason='module')]\n"
        "@pytest.mark.contract('C2', 'C3', safeguard='fence')\n"
        "def test_plain(): ...\n"
        "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.contract('C4', reason='case'))])\n"
        "def test_cases(x): ...\n"
        "@pytest.mark.contract('C5', reason='class')\n"
        "class TestMany:\n"
        "    def test_inside(self): ...\n"
        "    def helper(self): ...\n"
    )
    found = {(row, m.test, m.why) for m in contract.collect(tmp_path) for row in m.rows}
    assert found == {
        ("C1", "test_plain", "reason: module"),
        ("C1", "test_cases", "reason: module"),
        ("C1", "test_inside", "reason: module"),
        ("C2", "test_plain", "safeguard: fence"),
        ("C3", "test_plain", "safeguard: fence"),
        ("C4", "test_cases", "reason: case"),
        ("C5", "test_inside", "reason: class"),
    }


def test_a_marker_with_an_unknown_row_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tests" / "contract").mkdir(parents=True)
    (tmp_path / contract.ROWS).write_text('[C]\ntitle = "t"\nC1 = "p"\n')
    (tmp_path / "tests" / "test_x.py").write_text("@pytest.mark.contract('C9', reason='r')\ndef test_a(): ...\n")
    with pytest.raises(contract.BadMarkerError, match="C9"):
        contract.render(tmp_path)
