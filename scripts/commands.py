"""Writes what docs/reference/cli.md says of each command: usage, text and options, from the commands themselves. Run by `make docs`.

What is written by hand behind a command's part stays there. A command whose module is not there is left out with a warning.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.cli.main import COMMANDS, cli
from scripts.markers import in_order

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "reference", "cli.md")


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    return {PAGE: in_order((ROOT / PAGE).read_text(), parts())}


def parts() -> dict[str, str]:
    """The list of all commands, and each command."""
    commands = dict(_commands())
    rows = [f"| [`penstock {name}`](#penstock-{name}) | {_cell(COMMANDS[name])} |" for name in commands]
    top = click.Context(cli, info_name="penstock")
    listed = "\n".join(["| command | what it does |", "|---|---|", *rows])
    made = {"commands": f"{listed}\n\n{_options(cli, top)}"}
    return made | {f"penstock {name}": _command(c, name, top, "##") for name, c in commands.items()}


def _commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        module = f"penstock.cli.{name}"
        try:
            yield name, getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as e:
            if e.name != module:
                raise
            print(f"{PAGE}: {module} is not there; the command is left out", file=sys.stderr)


def _command(command: click.Command, name: str, above: click.Context, level: str) -> str:
    context = click.Context(command, info_name=name, parent=above)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)]).replace("...", "…")
    pieces = [f"{level} `{context.command_path}`", f"```\n{usage}\n```", _text(command), _options(command, context)]
    pieces += _further(command, context)
    if isinstance(command, click.Group):
        below = [(n, command.get_command(context, n)) for n in command.list_commands(context)]
        pieces += [_command(c, n, context, level + "#") for n, c in below if c is not None]
    return "\n\n".join(p for p in pieces if p)


def _text(command: click.Command) -> str:
    """The command's own words. `\\b` keeps click from wrapping a paragraph: here that is a block."""
    paragraphs = inspect.cleandoc(command.help or "").split("\f")[0].strip().split("\n\n")
    return "\n\n".join(
        f"```\n{p.removeprefix(chr(8)).strip()}\n```" if p.startswith("\b") else _marked(p) for p in paragraphs
    )


def _options(command: click.Command, context: click.Context) -> str:
    shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if not shown:
        return ""
    rows = [f"| {_names(o, context)} | {_cell(_meaning(o))} |" for o in shown]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


class _Sections(click.HelpFormatter):
    """Takes the lists that a command writes at the end of its help."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[tuple[str, str]]] = {}

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.found[name] = []
        yield

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:  # noqa: ARG002
        self.found[[*self.found][-1]] += rows


def _further(command: click.Command, context: click.Context) -> Iterator[str]:
    """Lists of the command's own, e.g. of templates."""
    sections = _Sections()
    command.format_options(context, sections)
    for title, rows in sections.found.items():
        if title not in ("Options", "Commands"):
            table = [f"| `{name}` | {_cell(about)} |" for name, about in rows]
            yield "\n".join([f"| {title.lower()} | |", "|---|---|", *table])


def _names(option: click.Option, context: click.Context) -> str:
    value = "" if option.is_flag or option.count else " " + _value(option, context)
    *short, last = option.opts
    both = [*short, last + value, *option.secondary_opts]
    return ", ".join(f"`{name}`" for name in both)


def _value(option: click.Option, context: click.Context) -> str:
    """What click shows for the value, where that says something in a cell of a table."""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return option.opts[-1].strip("-").upper()  # the choices are in the meaning: their bars would end the cell
    if isinstance(option.type, click.Path):
        return "DIR" if not option.type.file_okay else "FILE" if not option.type.dir_okay else "PATH"
    if isinstance(option.type, click.types.IntParamType):
        return "N"
    return option.make_metavar(context)


def _meaning(option: click.Option) -> str:
    said = (option.help or "").strip()
    if isinstance(option.type, click.Choice):
        said += f" One of {', '.join(f'`{c}`' for c in option.type.choices)}."
    if option.multiple and "several times" not in said:
        said += " May be given several times."
    if option.required:
        said += " Required."
    elif option.show_default and option.default is not None and not callable(option.default):
        said += f" Default: `{option.default}`."
    return said.strip()


def _cell(text: str) -> str:
    return _marked(" ".join(text.split())).replace("|", "\\|")


def _marked(text: str) -> str:
    """Words that a command writes for a terminal, as Markdown: `<` begins no tag, outside of what is quoted."""
    return "`".join(p if i % 2 else p.replace("<", "&lt;").replace("*", "\\*") for i, p in enumerate(text.split("`")))
