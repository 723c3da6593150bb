"""`penstock init`: a folder with a pipeline, its test and some data, to try and to change. Offline, and it asks nothing.

The files are those of `penstock/templates/`, as they stand there. The schema for editors is the one that `penstock schema`
prints, kept beside them: to make it anew takes half a second. Either all files are made or none.
"""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.cli.making import make, quoted, shown
from penstock.cli.options import json_option
from penstock.cli.printer import columns, out, out_json, printable
from penstock.errors import UsageError

PIPELINE, SCHEMA, IGNORED = "pipeline.yaml", "penstock.schema.json", ".gitignore"
STATE = ".penstock"


@dataclass(frozen=True)
class Template:
    about: str
    own: dict[str, str]  # its files besides those that all have, and what each is
    made: str  # what a run does
    bad: str = ""  # what is found among the dead letters
    writes: str = "out"  # the folder of its destinations, if it has one

    @property
    def files(self) -> dict[str, str]:
        return {
            PIPELINE: "the pipeline and its tests, with comments",
            **self.own,
            SCHEMA: "for your editor: checks and completes pipeline.yaml",
            IGNORED: "keeps what Penstock writes out of git",
        }

    @property
    def names(self) -> tuple[str, ...]:
        """What must not be in the folder: the files, or the folders they are in, and what a run writes. Leftovers of another
        pipeline would be taken for its own."""
        return (*dict.fromkeys(Path(file).parts[0] for file in self.files), *filter(None, (self.writes, STATE)))


TEMPLATES = {
    "orders": Template(
        "orders as JSON lines: decoded, filtered, a field computed",
        {"orders/monday.jsonl": "12 orders, one of them broken on purpose"},
        "move the orders to out/",
        "the broken order, and why",
    ),
    "csv": Template(
        "CSV with a schema to Parquet, with a rule for every row",
        {"stock/warehouse.csv": "8 rows, one of which does not fit the schema"},
        "move the rows to out/, as Parquet",
        "the row that does not fit, and why",
    ),
    "lines": Template(
        "log lines to two folders, one with the errors alone",
        {"logs/app.log": "10 lines, one of which is no log line"},
        "move the lines to out/",
        "the line that is none, and why",
    ),
    "python": Template(
        "JSON lines through a Python function of your own",
        {
            "clean.py": "the function: tidies, drops, rejects",
            "signups/may.jsonl": "8 sign-ups, one of which it rejects",
        },
        "move the sign-ups to out/",
        "the one that it rejects, and why",
    ),
    "generator": Template(
        "made-up records to the screen; needs no data",
        {},
        "make 50 records and show them",
        writes="",
    ),
}
DEFAULT = "orders"


class _Name(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in TEMPLATES:
            return str(value)
        near = difflib.get_close_matches(str(value).lower(), TEMPLATES, 1)
        tip = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(TEMPLATES)}."
        return self.fail(f"No template is called {printable(repr(value))}. {tip}", param, ctx)


class _Command(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Templates"):
            formatter.write_dl([(name, template.about) for name, template in TEMPLATES.items()])


@click.command(cls=_Command)
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--template",
    "name",
    type=_Name(list(TEMPLATES)),
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help="What to begin with.",
)
@json_option("One JSON object on stdout: folder, template and files.")
def init(folder: Path, name: str, as_json: bool) -> None:
    """Make a folder with a pipeline, a test and some data.

    FOLDER is made when it is missing; by default the files go into this one. Nothing that is there is overwritten.
    """
    template = TEMPLATES[name]
    _refuse(folder, template)
    make(folder, _contents(name, template))
    if as_json:
        out_json({"folder": str(folder), "template": name, "files": list(template.files)})
    else:
        out(_said(folder, template))


# -- making ---------------------------------------------------------------------------------------------------------


def _refuse(folder: Path, template: Template) -> None:
    """Looks before anything is made."""
    there = [name for name in template.names if os.path.lexists(folder / name)]
    if there:
        lines = textwrap.wrap(f"it has {', '.join(there)}", 72, break_on_hyphens=False)
        raise UsageError(
            f"Nothing was made: {shown(folder)} is in use",
            code="init.exists",
            why="\n       ".join(lines),
            hint="name another folder, penstock init FOLDER; nothing is ever overwritten",
        )


def _contents(name: str, template: Template) -> Iterator[tuple[str, bytes]]:
    from importlib import resources

    shipped = resources.files("penstock") / "templates"
    for file in template.files:
        if file == SCHEMA:
            yield file, (shipped / SCHEMA).read_bytes()
        else:  # a name with a dot in front is easily lost when a package is built
            yield file, shipped.joinpath(name, *file.removeprefix(".").split("/")).read_bytes()


# -- telling --------------------------------------------------------------------------------------------------------


def _said(folder: Path, template: Template) -> str:
    here = folder == Path()
    steps = [
        ("penstock test pipeline.yaml", "run the tests of the pipeline"),
        ("penstock run pipeline.yaml --once", template.made),
        *([("penstock dlq list", template.bad)] if template.bad else []),
    ]
    lines = [
        f"Made in {shown(folder)}:",
        *_indented(list(template.files.items())),
        "",
        "Now type:",
        *([] if here else [f"  cd {quoted(folder)}"]),
        *_indented(steps),
    ]
    return "\n".join(lines)


def _indented(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["  " + line for line in columns(rows).splitlines()]
