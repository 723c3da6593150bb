"""`penstock plugins`: what can stand behind `plugin:` in a pipeline file, and which programs may. Needs no Spark; `list` and `describe`
start nothing."""

from __future__ import annotations

import difflib
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from penstock.cli.options import json_option
from penstock.cli.printer import err, out, out_json
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.plugins.describe import Description, Place, Setting
    from penstock.plugins.dispensers import Dispenser

KINDS = ("source", "destination", "processor")
WIDEST = 100  # longer lines are hard to read


@click.group()
def plugins() -> None:
    """List, describe, add and check connectors and processors."""


@plugins.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Only these.")
@json_option("One JSON object per plugin on stdout.")
def list_(kind: str | None, as_json: bool) -> None:
    """List the connectors and processors that are there."""
    from penstock.plugins.standalone import Standalone

    found = sorted(_all(kind), key=lambda one: (KINDS.index(one["kind"]), one["name"], one["registry"]))
    if as_json:
        for one in found:
            out_json(one)
        return
    shown = [
        one["name"] if one["registry"] == "builtin" else f"standalone:{one['name']}@{one['version']}" for one in found
    ]
    widest = max(map(len, shown))
    blocks = []
    for k in dict.fromkeys(one["kind"] for one in found):
        lines = [f"{k}s"]
        for name, one in zip(shown, found, strict=True):
            if one["kind"] == k:
                lines += _listed(f"  {name:{widest}}  ", one["summary"].partition(". ")[0].rstrip(".") + ".")
        blocks.append("\n".join(lines))
    out("\n\n".join(blocks))
    folder = Standalone()
    for name in folder.strangers():
        err(
            f"{folder.folder / name} is not in plugins.lock and is never run; `penstock plugins install` adds a program"
        )


def _all(kind: str | None) -> Iterator[dict[str, str]]:
    from penstock.plugins import builtin, registry
    from penstock.plugins.describe import summary

    for k in KINDS:
        for n in builtin.KINDS[k] if kind in (None, k) else ():
            about = {"summary": summary(k, n), "registry": "builtin", "version": builtin.VERSION}
            yield {"kind": k, "name": n, **about, "runs": "in Spark"}
    for d in registry.everything() if kind != "processor" else ():
        about = {"summary": d.specification.summary, "registry": d.registry, "version": d.version}
        for k in d.kinds:
            if kind in (None, k) and not (d.registry == "builtin" and builtin.known(k, d.name)):
                yield {"kind": k, "name": d.name, **about, "runs": "in a process of its own"}


def _listed(start: str, about: str) -> list[str]:
    """A pipe gets a line for each, for `grep`."""
    return _hanging(start, about) if sys.stdout.isatty() else [start + about]


def _names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from penstock.plugins import builtin, registry

    kind = context.params.get("kind")
    hosted = (n for n in registry.offered() if kind is None or kind in registry.kinds(n))
    names = sorted({*hosted, *(n for k in KINDS if kind in (None, k) for n in builtin.KINDS[k])})
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
    from penstock.plugins.describe import describe, describe_hosted

    found = []
    for k in KINDS:
        if kind not in (None, k):
            continue
        if (hosted := _hosted(k, name)) is not None:
            found.append(describe_hosted(k, hosted))
        elif builtin.known(k, name):
            found.append(describe(k, name))
    if not found:
        raise _unknown(name, kind)
    for i, d in enumerate(found):
        if as_json:
            out_json({**asdict(d), "example": d.example_yaml()})
        else:
            out(("\n\n" if i else "") + _described(d))


def _hosted(kind: str, name: str) -> Dispenser | None:
    from penstock.plugins import registry

    try:
        return registry.hosted(kind, name)
    except registry.Ambiguous as e:
        raise UsageError(
            f"{name!r} does not say which plugin is meant", code="plugins.unknown", why=str(e), hint=e.hint
        ) from e


@plugins.command("install")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Also where another one has the same name and version.")
def install_(path: Path, replace: bool) -> None:
    """Add a plugin program to the plugins folder.

    PATH is an executable, or the folder of a Python package with a __main__.py. It is copied to ./plugins, or to the folder that
    PENSTOCK_PLUGINS names, started once to hear what it is, and written into plugins.lock with its SHA-256. Nothing that is not
    there is run, nor anything that has changed since.
    """
    from penstock.plugins import builtin, registry
    from penstock.plugins.standalone import Standalone

    folder = Standalone()
    new = folder.add(path, replace=replace, log=_words(path.name))
    made = folder.program(new)
    out(f"{new.name} {new.version} ({' and '.join(made.kinds) or 'no role'}) is in {folder.folder / new.file}")
    if new.name in registry.offered() or any(builtin.known(k, new.name) for k in made.kinds):
        err(f"{new.name!r} is built in as well: write standalone:{new.name} to mean this one")


@plugins.command("remove")
@click.argument("name")
def remove_(name: str) -> None:
    """Take a plugin program out of the plugins folder. NAME@VERSION takes out that version, NAME all of them."""
    from penstock.plugins.names import PluginName
    from penstock.plugins.standalone import Standalone

    folder = Standalone()
    gone = folder.drop(PluginName.parse(name))
    if not gone:
        raise UsageError(
            f"Nothing in {folder.folder} is called {name!r}", code="plugins.unknown", hint="see `plugins list`"
        )
    for p in gone:
        out(f"{p.name} {p.version} is gone")


@plugins.command("validate")
@click.argument("name", shell_complete=_names)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--kind", type=click.Choice(KINDS[:2]), help="As a source, or as a destination.")
def validate_(name: str, settings: tuple[str, ...], kind: str | None) -> None:
    """Ask a connector whether it takes these settings.

    It is started, configured and ended; it is not opened, and reads and writes nothing. Values may be references, as in a file.
    """
    import os

    from penstock.config import expand_settings
    from penstock.plugins import builtin
    from penstock_protocol.interfaces import PluginError

    pairs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"{setting!r} is no KEY=VALUE")
        pairs[key] = value
    kinds = [k for k in KINDS[:2] if kind in (None, k) and _hosted(k, name) is not None]
    if not kinds:
        if any(builtin.known(k, name) for k in KINDS):
            hint = "`penstock validate` checks its settings in a pipeline file"
            raise UsageError(f"{name!r} runs in Spark: there is no program to ask", code="plugins.unknown", hint=hint)
        raise _unknown(name, kind)
    if len(kinds) > 1:
        raise click.UsageError(f"{name} is a source and a destination: say --kind")
    hosted = _hosted(kinds[0], name)
    assert hosted is not None
    try:
        hosted.check(kinds[0], f"validate:{name}", expand_settings(pairs, os.environ), _words(hosted.name))
    except PluginError as e:
        hint = f"`penstock plugins describe {name}` has its settings"
        raise UsageError(
            f"{name} does not take these settings",
            code="plugins.refused",
            why="; ".join(str(e).splitlines()),
            hint=hint,
        ) from e
    out(f"{name} takes these settings as a {kinds[0]}")


def _words(name: str) -> Callable[[str, str], None]:
    """What a program logs, as far as somebody has to know."""

    def log(level: str, text: str) -> None:
        if level in ("warn", "error", "fatal", "panic"):
            err(f"{name}: {text}")

    return log


def _unknown(name: str, kind: str | None) -> UsageError:
    """Where a kind is given, or Conduit has such a plugin, the words are those of `validate`."""
    from penstock.config import conduit
    from penstock.plugins import builtin, registry

    kinds = [kind] if kind else [k for k in KINDS if builtin.bare(name).partition("@")[0] in conduit.INSTEAD[k]]
    problems = {k: p for k in kinds if (p := registry.problem(k, name)) is not None}
    if problems:
        hints = {p.hint: k for k, p in problems.items()}
        hint = "; ".join(f"as a {k}: {h}" for h, k in hints.items()) if len(hints) > 1 else next(iter(hints))
        what = next(iter(problems.values())).what if len(problems) == 1 else f"{name!r} of Conduit is not there"
        return UsageError(what[:1].upper() + what[1:], code="plugins.unknown", hint=hint)
    given = name.removeprefix("builtin:").partition("@")[0]
    names = sorted({*registry.offered(), *(n for k in KINDS for n in builtin.KINDS[k])})
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
    if d.registry != "builtin" or d.runs != "in Spark":
        blocks.append(f"Version {d.version}. Runs {d.runs}.")
    elif d.kind != "processor":
        blocks.append(f"Runs {d.runs}.")
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
