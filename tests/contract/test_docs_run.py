"""What the documents show is run: the tests in every pipeline, the examples on real data, Python, and the tutorial word by word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import testblocks
from penstock.pipeline import Pipeline
from tests.support import golden
from tests.support.pages import DOCS, FILES, ROOT, Block, all_blocks, blocks, is_complete, name, pipeline_blocks
from tests.support.tutorial import Reader, changed, next_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = ROOT / "examples"
TUTORIAL = sorted((DOCS / "tutorial").glob("*.md"))
ORDERS = """\
{"id": "a-1", "customer": " Ada ", "amount": 120, "country": "de"}
{"id": "a-2", "customer": "Bo", "amount": 7, "country": "fr"}
{"id": "a-3", "customer": "Cy", "amount": 64, "country": "us"}
{"id": "a-4", "customer": "Di", "amount":
{"id": "a-5", "customer": "", "amount": 300, "country": "de"}
"""

# -- tests that stand in pipelines ------------------------------------------------------------------------------------


def _with_tests(folder: Path) -> Iterator[Pipeline]:
    """Every pipeline that has tests, of all pages, examples and templates."""
    for i, block in enumerate(pipeline_blocks()):
        if "tests:" in block.text:
            file = folder / str(i) / "p.yaml"
            file.parent.mkdir()
            file.write_text(block.text)
            _put_modules(block, file.parent)
            yield from Pipeline.from_files([file])
    for file in FILES:
        yield from Pipeline.from_files([file])


def _put_modules(block: Block, folder: Path) -> None:
    """What the pipeline of a page calls is the Python of the same page."""
    for module in re.findall(r"function: [\"']?(\w+):", block.text):
        source = "\n\n".join(b.text for b in blocks(block.page, "python") if is_complete(b.text))
        (folder / f"{module}.py").write_text(source)


@pytest.mark.spark
def test_the_tests_in_all_pages_examples_and_templates_pass(tmp_path: Path, spark: SparkSession) -> None:
    pipelines = [p for p in _with_tests(tmp_path) if p.assembly().config.tests]
    pages = len(list((DOCS / "reference" / "processors").glob("*.md")))
    assert len(pipelines) > pages
    verdicts = testblocks.run(pipelines, spark=spark)
    assert {f"{v.where} {v.test}": v.failures for v in verdicts if not v.ok} == {}
    assert len(verdicts) >= len(pipelines)


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_the_examples_move_real_data_and_the_python_of_all_pages_runs_beside_them(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("orders.yaml", "clean.py", "files.yaml"):
        shutil.copy(EXAMPLES / file, tmp_path)
    ran = {"demo.py", "clean.py"}  # by a test of its own, and by orders.yaml

    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "monday.jsonl").write_text(ORDERS)
    summary = Pipeline.from_file("orders.yaml").run(spark=spark)
    ran.add("orders.yaml")
    assert summary.ok
    assert _delivered("out/all") == [
        '{"amount":120,"country":"de","customer":"Ada","gross":142.8,"id":"a-1","region":"eu"}',
        '{"amount":64,"country":"us","customer":"Cy","gross":76.16,"id":"a-3"}',
    ]
    assert len(_delivered("out/europe")) == 1

    (tmp_path / "logs").mkdir()
    lines = ["DEBUG x", "INFO y", "ERROR z"]
    (tmp_path / "logs" / "app.log").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "logs" / "access.log").write_text("GET /health 200\nGET /shop 200\n")
    assert Pipeline.from_file("files.yaml").run(spark=spark).ok
    ran.add("files.yaml")
    assert _delivered("archive") == ["ERROR z", "GET /shop 200", "INFO y"]
    assert sorted(p.name for p in Path("logs-done").iterdir()) == ["access.log", "app.log"]

    assert ran == {p.name for p in EXAMPLES.iterdir() if p.is_file()}, "an example that nothing runs"
    _run_python(tmp_path)


def _delivered(folder: str) -> list[str]:
    return sorted(line for path in Path(folder).glob("*.txt") for line in path.read_text().splitlines())


def _run_python(folder: Path) -> None:
    """Every complete piece of Python in the documents, where there are orders, dead letters and a clean.py."""
    (folder / "in").mkdir()
    (folder / "in" / "1.txt").write_text("line 1\nline 10\n")
    (folder / "p.yaml").write_text((folder / "orders.yaml").read_text().replace("- id: orders", "- id: other"))
    complete = [b for b in all_blocks("python") if is_complete(b.text) and b.page not in TUTORIAL]
    assert len(complete) > 5
    for block in complete:
        (folder / "block.py").write_text(block.text)
        ended = subprocess.run([sys.executable, "block.py"], cwd=folder, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, f"{block.where}\n{ended.stderr}"


@pytest.mark.spark
def test_the_demo_finds_every_line_it_wrote_and_the_first_screen_shows_it(tmp_path: Path) -> None:
    said, code = golden.in_a_terminal(tmp_path, [str(EXAMPLES / "demo.py")], os.environ, program=sys.executable)
    assert code == 0, said
    assert "0 missing, 0 twice, 0 strange" in said
    first = next(b for b in blocks(ROOT / "README.md") if b.text.startswith("1. A folder"))
    until = "2. 30,000 more orders"  # where it is killed is another place each time
    assert until in said
    assert _settled(first.text.partition(until)[0]) == _settled(said.partition(until)[0])


def _settled(text: str) -> list[str]:
    text = re.sub(r"\d+\.\d s|\b[0-9a-f]{12}\b", "…", text)
    return [line for line in text.strip().splitlines() if line]


# -- the tutorial -----------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("page", TUTORIAL, ids=name)
def test_the_tutorial_can_be_typed_line_by_line(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    reader.follow(page)
    assert reader.typed > 3


def test_what_a_page_shows_has_to_be_there_in_its_order() -> None:
    shown = "starting\na: stopped after 12.5 s\n  in: 5 read, 300 records/s\n"
    assert next_missing("starting\na: stopped after 1 s\n", shown) is None
    assert next_missing("…\n  in:  5 read\n", shown) is None
    assert next_missing("a: stopped after 1 s\nstarting\n", shown) == "starting"
    assert next_missing("in: 6 read", shown) == "in: 6 read"


def test_a_diff_says_what_it_finds_and_what_it_leaves() -> None:
    assert changed(" a\n-b\n+c\n+d\n") == ("a\nb\n", "a\nc\nd\n")
