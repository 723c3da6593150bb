"""`penstock plugins`: what can stand behind `plugin:` in a pipeline file, from the code itself. Starts nothing and needs no Spark."""

from __future__ import annotations

import difflib
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from penstock.cli.options import json_option
from penstock.cli.printer import out, out_json
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.plugins.describe import Description, Place, Setting

KINDS = ("source", "destination", "processor")
WIDEST = 100  # longer lines are hard to read


@click.group()
def plugins() -> None:
    """List and describe connectors and processors."""


@plugins.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Only these.")
@json_option("One JSON object per plugin on stdout.")
def list_(kind: str | None, as_json: bool) -> None:
    """List the connectors and processors that are there."""
    from penstock.plugins import builtin
    from penstock.plugins.describe import summary

    found = [(k, n, summary(k, n)) for k in KINDS if kind in (None, k) for n in sorted(builtin.KINDS[k])]
    if as_json:
        for k, n, about in found:
            out_json({"kind": k, "name": n, "summary": about})
        return
    widest = max(len(n) for _, n, _ in found)
    blocks = []
    for k in dict.fromkeys(k for k, _, _ in found):
        lines = [f"{k}s"]
        for _, n, about in (one for one in found if one[0] == k):
            lines += _listed(f"  {n:{widest}}  ", about.partition(". ")[0].rstrip(".") + ".")
        blocks.append("\n".join(lines))
    out("\n\n".join(blocks))


def _listed(start: str, about: str) -> list[str]:
    """A pipe gets a line for each, for `grep`."""
    return _hanging(start, about) if sys.stdout.isatty() else [start + about]


def _names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from penstock.plugins import builtin

    kind = context.params.get("kind")
    names = sorted({n for k in KINDS if kind in (None, k) for n in builtin.KINDS[k]})
    return [CompletionItem(n) for n in names if n.startswith(incomplete)]


@plugins.command("describe")
@click.argument("name", shell_complete=_names)
@click.option("--kind", type=click.Choice(KINDS), help="Only as this.")
@json_option("One JSON object per plugin on stdout.")
def describe_(name: str, kind: str | None, as_json: bool) -> None:
    """Describe a connector or processor, with an example.

    What it does, its settings, and where a processor runs. A name that is a source and a destination is described as both.
    """
    from penstock.plugins import builtin
    from penstock.plugins.describe import describe

    found = [describe(k, name) for k in KINDS if kind in (None, k) and builtin.known(k, name)]
    if not found:
        raise _unknown(name, kind)
    for i, d in enumerate(found):
        if as_json:
            out_json({**asdict(d), "example": d.example_yaml()})
        else:
            out(("\n\n" if i else "") + _described(d))


def _unknown(name: str, kind: str | None) -> UsageError:
    """Where a kind is given, or Conduit has such a plugin, the words are those of `validate`."""
    from penstock.config import conduit
    from penstock.plugins import builtin

    kinds = [kind] if kind else [k for k in KINDS if builtin.bare(name).partition("@")[0] in conduit.INSTEAD[k]]
    problems = {k: p for k in kinds if (p := builtin.problem(k, name)) is not None}
    if problems:
        hints = {p.hint: k for k, p in problems.items()}
        hint = "; ".join(f"as a {k}: {h}" for h, k in hints.items()) if len(hints) > 1 else next(iter(hints))
        what = next(iter(problems.values())).what if len(problems) == 1 else f"{name!r} of Conduit is not there"
        return UsageError(what[:1].upper() + what[1:], code="plugins.unknown", hint=hint)
    given = name.removeprefix("builtin:").partition("@")[0]
    names = sorted({n for k in KINDS for n in builtin.KINDS[k]})
    if given in names:
        hint = f"write {given} without a version"
    else:
        near = difflib.get_close_matches(given.lower(), names, 1)
        hint = f"did you mean {near[0]!r}?" if near else "`penstock plugins list` shows all of them"
    return UsageError(f"Nothing is called {name!r}", code="plugins.unknown", hint=hint)


# -- for people -----------------------------------------------------------------------------------------------------


def _described(d: Description) -> str:
    blocks = [f"{d.name} ({d.kind})", *_paragraphs(d.summary)]
    blocks += _paragraphs(d.text)
    if d.guarantee:
        blocks.append(f"Guarantee: {d.guarantee}.")
    blocks.append("\n".join(["Settings", *(line for s in d.settings for line in _setting(s))]))
    if not d.settings:
        blocks[-1] += "\n  none"
    if d.kind == "processor":
        more = "It also takes `condition` and `namespaces`: records that they do not match pass by unchanged."
        blocks[-1] += "\n\n" + "\n".join(_hanging("  ", more))
    if d.places:
        widest = max(len(p.shape) for p in d.places)
        rows = [line for p in d.places for line in _hanging(f"  {p.shape:{widest}}  ", _place(p))]
        blocks.append("\n".join(["Where it runs, by payload", *rows]))
    about = "Example, with its test: `penstock test FILE`" if d.tested else "Example"
    blocks.append(f"{about}\n\n" + textwrap.indent(d.example_yaml(_width() - 4).rstrip(), "  "))
    return "\n\n".join(blocks)


def _setting(s: Setting) -> Iterator[str]:
    kind = " | ".join(s.choices) or s.type
    default = "required" if s.required else f"default `{s.default}`" if s.default else ""
    yield from _hanging(f"  {s.name} ", f"({'; '.join(p for p in (kind, default) if p)})", 6)
    yield from _hanging("      ", s.meaning)


def _place(p: Place) -> str:
    if p.runs:
        return f"{p.runs}; {p.gives} behind it"
    return f"refused: {p.why}" + (f"; {p.hint}" if p.hint else "")


def _paragraphs(text: str) -> list[str]:
    """The texts of the code wrapped anew; what is indented (code) stays as it is."""
    return ["\n".join(_wrapped(p)) for p in text.split("\n\n") if p.strip()]


def _wrapped(paragraph: str) -> list[str]:
    if paragraph.startswith("    "):
        return paragraph.splitlines()
    items: list[str] = []
    for line in paragraph.splitlines():
        if line.startswith("- ") or not items:
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    return [
        shown for item in items for shown in _hanging("- " if item.startswith("- ") else "", item.removeprefix("- "))
    ]


def _hanging(start: str, text: str, indent: int | None = None) -> list[str]:
    """`text` behind `start`, further lines below where it begins."""
    behind = " " * (len(start) if indent is None else indent)
    return textwrap.wrap(
        text, _width(), initial_indent=start, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False
    ) or [start.rstrip()]


def _width() -> int:
    """As wide as the terminal, within reason; 80 in a pipe."""
    return max(40, min(shutil.get_terminal_size().columns, WIDEST)) if sys.stdout.isatty() else 80
