"""Writes docs/contract.md: every row of tests/contract/rows.toml with the tests that keep it. Run by `make docs`.

Imports nothing of Penstock and runs no test: markers are read from the source of the tests. They stand above a function or
a class, in `pytestmark` of a module or a class, or in a `pytest.param(…, marks=…)`:

    @pytest.mark.contract("C5", "S6", safeguard="receipt")        the safeguard that the test's control switches off
    @pytest.mark.contract("C6", reason="the row is looked at")    or why there is no control
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = Path("tests", "contract", "rows.toml")
PAGE = Path("docs", "contract.md")

HEAD = """\
# The contract

What Penstock promises, and the tests that hold it to it. This page is made from `tests/contract/rows.toml` and the
`contract` markers of the tests by `make docs`; do not edit it.

A *safeguard* is the piece of code that keeps the promise. The test, or another one that names the same safeguard, also runs
with it switched off (`penstock.testing.faults`) and must then see the loss or the duplicate: a test that can't fail proves
nothing.
Where nothing can be switched off, a *reason* stands instead. A row without a test is **open**: do not rely on it yet.
"""


class BadMarkerError(Exception):
    """A marker that this script can't read, or that names a row which does not exist."""


@dataclass(frozen=True)
class Group:
    title: str
    promises: dict[str, str]  # row id → promise


@dataclass(frozen=True)
class Marker:
    rows: tuple[str, ...]
    file: str  # relative to the root
    test: str
    why: str  # "safeguard: …", "reason: …" or empty


def load_rows(root: Path) -> tuple[list[Group], dict[str, str]]:
    """The groups in the order of the file, and what is still missing of a row that has tests."""
    data = tomllib.loads((root / ROWS).read_text(encoding="utf-8"))
    missing = data.pop("missing", {})
    groups = [Group(g.pop("title"), g) for g in data.values()]
    known = {row for g in groups for row in g.promises}
    if unknown := missing.keys() - known:
        raise BadMarkerError(f"{ROWS}: [missing] names unknown rows: {', '.join(sorted(unknown))}")
    return groups, missing


def collect(root: Path, folder: str = "tests") -> list[Marker]:
    """The markers of all tests, in the order of files and lines."""
    found: list[Marker] = []
    for path in sorted((root / folder).rglob("test_*.py")):
        file = path.relative_to(root).as_posix()
        found += _markers(ast.parse(path.read_text(encoding="utf-8"), file).body, file, [])
    return found


def _markers(body: list[ast.stmt], file: str, inherited: list[ast.Call]) -> Iterator[Marker]:
    """The tests of a module or a class; what its `pytestmark` and the decorators around it say holds for all of them."""
    inherited = [*inherited, *_calls(filter(None, map(_pytestmark, body)))]
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _markers(node.body, file, [*inherited, *_calls(node.decorator_list)])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for call in (*inherited, *_calls(node.decorator_list)):
                yield _marker(call, file, node.name)


def _pytestmark(node: ast.stmt) -> ast.expr | None:
    """The value of a statement `pytestmark = …`."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return None
    return node.value if any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in targets) else None


def _calls(nodes: Iterable[ast.expr]) -> list[ast.Call]:
    """Every `….mark.contract(…)` in these expressions, also inside a list, a `parametrize` or a `pytest.param`."""
    calls = [c for node in nodes for c in ast.walk(node) if isinstance(c, ast.Call)]
    return [c for c in calls if ast.unparse(c.func).endswith("mark.contract")]


def _marker(call: ast.Call, file: str, test: str) -> Marker:
    where = f"{file}:{call.lineno}"
    try:
        rows = tuple(str(ast.literal_eval(a)) for a in call.args)
        words = {k.arg: str(ast.literal_eval(k.value)) for k in call.keywords}
    except ValueError as e:
        raise BadMarkerError(f"{where}: a contract marker takes plain texts only") from e
    if unknown := words.keys() - {"safeguard", "reason"}:
        raise BadMarkerError(f"{where}: a contract marker has no {unknown.pop()!r}")
    return Marker(rows, file, test, "; ".join(f"{word}: {text}" for word, text in words.items()))


def render(root: Path = ROOT) -> str:
    """The whole page."""
    groups, missing = load_rows(root)
    markers = collect(root)
    known = {row for g in groups for row in g.promises}
    for m in markers:
        for row in m.rows:
            if row not in known:
                raise BadMarkerError(f"{m.file}: {m.test} names the row {row}, which is not in {ROWS}")
    kept = {row for m in markers for row in m.rows if m.why}
    lines = [HEAD, f"{len(kept)} of {len(known)} rows have tests; {len(known) - len(kept)} are open.", ""]
    for g in groups:
        lines += [
            f"## {g.title}",
            "",
            "| row | promise | tests | safeguard or reason |",
            "|---|---|---|---|",
            *(
                _row(row, promise, [m for m in markers if row in m.rows], missing)
                for row, promise in g.promises.items()
            ),
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _row(row: str, promise: str, markers: list[Marker], missing: dict[str, str]) -> str:
    tests = _unique(f"[{m.test.removeprefix('test_').replace('_', ' ')}](../{m.file})" for m in markers)
    why = _unique(m.why or "open: neither safeguard nor reason" for m in markers)
    if row in missing:
        why.append(f"still open: {missing[row]}")
    cells = (row, promise, "<br>".join(tests) or "**open**", "<br>".join(_cell(w) for w in why))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def main() -> int:
    try:
        text = render()
    except BadMarkerError as e:
        print(e, file=sys.stderr)
        return 1
    (ROOT / PAGE).write_text(text, encoding="utf-8")
    print(f"{PAGE}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
