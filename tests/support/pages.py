"""What the documents hold: pages, their blocks, and the pipeline files in them. For the tests that hold them to the code."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ROOT / "packages"
TEMPLATES = PACKAGES / "penstock" / "src" / "penstock" / "templates"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *PACKAGES.rglob("src/**/*.md"), *ROOT.glob("examples/**/*.md")]
)
FILES = sorted([*(ROOT / "examples").rglob("*.y*ml"), *TEMPLATES.rglob("*.y*ml")])  # pipelines that stand alone

_FENCE = re.compile(
    r"^(?:<!-- (?P<note>[a-z]+: [^\n]*?) -->\n+)?(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str  # yaml, python, sh, …
    text: str
    note: str  # of the comment right above it, e.g. "file: clean.py"

    @property
    def where(self) -> str:
        return f"{name(self.page)}:{self.line}"

    @property
    def is_fragment(self) -> bool:
        return "# fragment" in self.text


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, *kinds: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if not kinds or found["kind"] in kinds:
            lines = found["text"].splitlines(keepends=True)
            inside = "".join(line.removeprefix(found["indent"]) for line in lines)
            line = text.count("\n", 0, found.start("kind")) + 1
            yield Block(page, line, found["kind"], inside, found["note"] or "")


def all_blocks(*kinds: str) -> list[Block]:
    return [b for page in PAGES for b in blocks(page, *kinds)]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def pipeline_blocks() -> list[Block]:
    """YAML that is a whole pipeline file. A part of one says so: `# fragment`."""
    return [b for b in all_blocks("yaml", "yml") if not b.is_fragment]


def is_complete(source: str) -> bool:
    """Whether Python runs as it stands: it uses no name that it has not made."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [n for n in nodes if isinstance(n, ast.Name)]
    made = {n.id for n in names if not isinstance(n.ctx, ast.Load)} | set(dir(builtins))
    made |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    made |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    made |= {
        (a.asname or a.name).partition(".")[0]
        for n in nodes
        if isinstance(n, ast.Import | ast.ImportFrom)
        for a in n.names
    }
    return {n.id for n in names} <= made
