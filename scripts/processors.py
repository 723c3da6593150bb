"""Writes docs/reference/processors/: a page for every built-in processor, and their list in processors.md. Run by `make docs`.

A page is made of what the processor says of itself (`plugins/describe.py`): its text, its settings, where it runs, and its example,
which stands there as a pipeline file with a test in it. Starts no Spark.
"""

from __future__ import annotations

from pathlib import Path

from penstock.plugins import builtin
from penstock.plugins.describe import Description, describe, summary, table

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs", "reference", "processors")
INDEX = Path("docs", "reference", "processors.md")
BEGIN, END = "<!-- the list is made by `make docs` -->", "<!-- end of the list -->"


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    made = {FOLDER / f"{name}.md": page(name) for name in builtin.PROCESSORS}
    made[INDEX] = index((ROOT / INDEX).read_text())
    return made


def page(name: str) -> str:
    d = describe("processor", name)
    parts = [
        f"# `{name}`",
        "<!-- made by `make docs` from the processor itself: do not edit -->",
        d.summary,
        d.text,
        _settings(d),
        _where(d),
    ]
    if d.tested:
        parts.append(_example(d))
    return "\n\n".join(p for p in parts if p) + "\n"


def _settings(d: Description) -> str:
    rows = table(d.settings) if d.settings else "It has none."
    return (
        f"## Settings\n\n{rows}\n\nEvery processor also takes [`condition` and `namespaces`](../configuration.md#a-processor):"
        " records that they do not match pass by unchanged."
    )


def _where(d: Description) -> str:
    rows = []
    for p in d.places:
        refused = f"refused (`{p.code}`): {p.why}" + (f"; {p.hint}" if p.hint else "")
        rows.append(f"| {p.shape} | {f'{p.runs}; {p.gives} behind it' if p.runs else refused} |")
    set_there = d.tested and "settings" in d.example["pipelines"][0]["processors"][0]
    note = "\n\nWith the settings of the example below." if set_there else ""
    return "## Where it runs\n\n| payload | |\n|---|---|\n" + "\n".join(rows) + note


def _example(d: Description) -> str:
    return (
        "## Example\n\nA whole pipeline with its test: put it into a file and run `penstock test FILE`.\n\n"
        f"```yaml\n{d.example_yaml()}```"
    )


def index(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| processor | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](processors/{name}.md) | {summary('processor', name)} |" for name in builtin.PROCESSORS]
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def main() -> None:
    for path, text in pages().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
    for path in (ROOT / FOLDER).glob("*.md"):
        if path.relative_to(ROOT) not in pages():
            path.unlink()


if __name__ == "__main__":
    main()
