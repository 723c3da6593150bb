"""Writes docs/reference/processors/: a page for every built-in processor, and their list in processors.md. Run by `make docs`.

A page is made from the processor itself: its module's text, its settings, where it runs, and its example, which stands there
as a pipeline file with a test in it. Starts no Spark.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from penstock.config import Settings
from penstock.native import Example, Processor, Shape, Unsuitable, Where
from penstock.plugins import builtin

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs", "reference", "processors")
INDEX = Path("docs", "reference", "processors.md")
BEGIN, END = "<!-- the list is made by `make docs` -->", "<!-- end of the list -->"
OTHERWISE = {"python": {"function": "module:function"}}  # settings where there is no example
WHERE = {Where.PYTHON: "Python", Where.SPARK: "Spark"}


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    made = {FOLDER / f"{name}.md": page(name) for name in builtin.PROCESSORS}
    made[INDEX] = index((ROOT / INDEX).read_text())
    return made


def page(name: str) -> str:
    cls: type[Processor[Any]] = builtin.implementation("processor", name)
    text = inspect.getdoc(importlib.import_module(cls.__module__)) or ""
    summary, _, rest = text.partition("\n")
    parts = [
        f"# `{name}`",
        "<!-- made by `make docs` from the processor itself: do not edit -->",
        _sentence(summary),
        rest.strip(),
        _settings(builtin.settings_class("processor", name)),
        _where(name, cls),
    ]
    if cls.example is not None:
        parts.append(_example(name, cls.example))
    return "\n\n".join(p for p in parts if p) + "\n"


def _sentence(summary: str) -> str:
    """`pick`: keeps … → Keeps …"""
    _, _, rest = summary.partition(": ")
    found = rest or summary
    return found[:1].upper() + found[1:]


def _settings(cls: type[Settings]) -> str:
    head = "## Settings\n\n"
    tail = (
        "\n\nEvery processor also takes [`condition` and `namespaces`](../configuration.md#a-processor): records that they do"
        " not match pass by unchanged."
    )
    rows = [_row(f.alias or name, f) for name, f in cls.model_fields.items()]
    if not rows:
        return head + "It has none." + tail
    return head + "| setting | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + tail


def _row(name: str, f: Any) -> str:
    default = "required" if f.is_required() else "" if f.default in (None, "") else f"`{_text(f.default)}`"
    meaning = (f.description or "").replace("|", "\\|")
    return f"| `{name}` | {_type(f.annotation)} | {default} | {meaning} |"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(annotation: Any) -> str:
    words = {str: "text", bool: "true or false", int: "whole number", float: "number"}
    if annotation in words:
        return words[annotation]
    arguments = [a for a in get_args(annotation) if a is not type(None)]
    if arguments and all(isinstance(a, str) for a in arguments):
        return " \\| ".join(f"`{a}`" for a in arguments)
    return _type(arguments[0]) if arguments else "text"


def _where(name: str, cls: type[Processor[Any]]) -> str:
    settings = cls.example.settings if cls.example else OTHERWISE.get(name, {})
    made = cls(builtin.settings_class("processor", name).model_validate(dict(settings), by_alias=True), "example")
    rows = []
    for shape in Shape:
        try:
            runs = f"{WHERE[made.where(shape)]}; {made.gives(shape).value} behind it"
        except Unsuitable as e:
            runs = f"refused (`{e.code}`): {e}" + (f"; {e.hint}" if e.hint else "")
        rows.append(f"| {shape.value} | {runs} |")
    note = "\n\nWith the settings of the example below." if cls.example and settings else ""
    return "## Where it runs\n\n| payload | |\n|---|---|\n" + "\n".join(rows) + note


def _example(name: str, e: Example) -> str:
    return (
        "## Example\n\nA whole pipeline with its test: put it into a file and run `penstock test FILE`.\n\n"
        f"```yaml\n{example_yaml(name, e)}```"
    )


def example_yaml(name: str, e: Example) -> str:
    processor: dict[str, Any] = {"id": name.replace(".", "-"), "plugin": name}
    if e.condition:
        processor["condition"] = e.condition
    if e.settings:
        processor["settings"] = dict(e.settings)
    given = _record(e.given)
    wanted = e.gives if isinstance(e.gives, list | tuple) else [e.gives] if e.gives is not None else []
    expect = [_record(r) for r in wanted if isinstance(r, Mapping)]
    test: dict[str, Any] = {"name": f"what {name} does", "input": [given], "expect": expect}
    if e.rejects:
        test["rejects"] = [{"node": processor["id"], "error": e.rejects}]
    out = expect[0].get("after") if expect and "after" in expect[0] else given.get("after")
    pipeline = {
        "id": "example",
        "connectors": [
            _connector("in", "source", given.get("after")),
            _connector("out", "destination", out),
        ],
        "processors": [processor],
        "tests": [test],
    }
    document = {"version": "2.2", "pipelines": [pipeline]}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _connector(id: str, kind: str, payload: Any) -> dict[str, Any]:
    form = "json" if isinstance(payload, dict) else "text"
    return {"id": id, "type": kind, "plugin": "files", "settings": {"path": f"./{id}", "format": form}}


def _record(r: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in r.items()}


def index(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| processor | what it does |", "|---|---|"]
    for name in builtin.PROCESSORS:
        cls = builtin.implementation("processor", name)
        text = inspect.getdoc(importlib.import_module(cls.__module__)) or ""
        lines.append(f"| [`{name}`](processors/{name}.md) | {_sentence(text.partition(chr(10))[0])} |")
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
