"""The documents are true: the contract page is fresh, YAML loads, error codes are listed, links lead somewhere. No Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.pipeline import Pipeline
from scripts import contract, processors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packages"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("src/**/*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# Codes are given by keyword (`code="a.b"`), by place to what makes a problem, or put together from a kind.
_BY_KEYWORD = re.compile(r'\bcode ?= ?"([a-z0-9.-]+)"')
_BY_PLACE = re.compile(r'"(config\.[a-z-]+)"')
_MADE = re.compile(r'f"(config\.[a-z-]*)\{kind\}"')
# Codes of nacks are given by place or as a default.
_OF_NACKS = re.compile(r'"((?:processor|destination|batch|sql|expect|skip)\.[a-z-]+)"')
_KINDS = ("source", "destination")
_LISTED = re.compile(r"^\| `([a-z0-9-]+\.[a-z-]+)` \|", re.MULTILINE)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _yaml_blocks() -> dict[str, str]:
    """Where each block stands → its text."""
    blocks: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text()
        for block in _FENCE.finditer(text):
            if block[1] in ("yaml", "yml") and "# fragment" not in block[2]:
                line = text.count("\n", 0, block.start()) + 1
                blocks[f"{_name(page)}:{line}"] = block[2]
    return blocks


def test_there_are_pages_and_yaml_to_check() -> None:
    """The tests below find something: a pattern that matches nothing proves nothing."""
    assert {"README.md", "ARCHITECTURE.md", "docs/index.md", "docs/reference/errors.md"} <= {_name(p) for p in PAGES}
    assert len(_yaml_blocks()) >= 2
    assert EXAMPLES


@pytest.mark.parametrize("text", _yaml_blocks().values(), ids=_yaml_blocks().keys())
def test_every_yaml_in_the_documents_loads(text: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    assert Pipeline.from_files([file])


@pytest.mark.parametrize("file", EXAMPLES, ids=_name)
def test_every_example_loads(file: Path) -> None:
    assert Pipeline.from_files([file])


def test_the_pipeline_of_the_demo_loads(tmp_path: Path) -> None:
    from examples import demo

    file = tmp_path / "p.yaml"
    file.write_text(demo.PIPELINE)
    assert Pipeline.from_file(file).id == "shop"


def _python_blocks() -> dict[str, str]:
    found = {}
    for page in PAGES:
        text = page.read_text()
        for block in _FENCE.finditer(text):
            if block[1] == "python":
                found[f"{_name(page)}:{text.count(chr(10), 0, block.start()) + 1}"] = block[2]
    return found


@pytest.mark.parametrize("text", _python_blocks().values(), ids=_python_blocks().keys())
def test_every_python_in_the_documents_compiles(text: str) -> None:
    compile(text, "page", "exec")


def test_the_function_of_the_example_has_an_answer_for_every_order() -> None:
    from examples.clean import clean
    from penstock import DROP, Record, Reject

    good = clean(Record({"customer": " Ada "}))
    assert isinstance(good, Record)
    assert good.after == {"customer": "Ada"}
    assert clean(Record({"customer": "Bo", "test": True})) is DROP
    assert isinstance(clean(Record({"customer": " "})), Reject)


def test_every_built_in_processor_has_a_page_that_is_fresh() -> None:
    made = processors.pages()
    assert len(made) > 20
    stale = [_name(ROOT / path) for path, text in made.items() if (ROOT / path).read_text() != text]
    assert stale == [], "run make docs"
    assert {p.relative_to(ROOT) for p in (ROOT / processors.FOLDER).glob("*.md")} < set(made)


def test_every_built_in_processor_but_python_has_an_example() -> None:
    from penstock.plugins import builtin

    without = [n for n in builtin.PROCESSORS if builtin.implementation("processor", n).example is None]
    assert without == ["python"]


def _codes_in_source() -> set[str]:
    text = "\n".join(p.read_text() for p in SOURCE.rglob("src/**/*.py"))
    made = {prefix + kind for prefix in _MADE.findall(text) for kind in _KINDS}
    return {*_BY_KEYWORD.findall(text), *_BY_PLACE.findall(text), *_OF_NACKS.findall(text), *made}


def test_every_error_code_is_documented_and_none_is_invented() -> None:
    used, listed = _codes_in_source(), _LISTED.findall(ERRORS.read_text())
    assert len(used) > 30
    assert sorted(used - set(listed)) == [], "in the code, but not in docs/reference/errors.md"
    assert sorted(set(listed) - used) == [], "in docs/reference/errors.md, but not in the code"
    assert len(listed) == len(set(listed)), "listed twice in docs/reference/errors.md"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


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
