"""`penstock connector new`: a connector to begin with, which passes the conformance kit as it stands. Offline, and it asks nothing.

The files are those of `penstock/templates/connector/<language>/`, with the name put in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from penstock.cli.making import make, quoted, shown
from penstock.cli.printer import columns, out
from penstock.errors import UsageError

LANGUAGES = ("python", "go")
SUFFIX = ".tmpl"  # of files that tools would take for our own
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@click.command("new")
@click.argument("name")
@click.option("--language", type=click.Choice(LANGUAGES), default=LANGUAGES[0], show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where it is made.  [default: NAME]")
def new(name: str, language: str, folder: Path | None) -> None:
    """Make a connector to begin with: source, destination and tests."""
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise UsageError(
            f"{name!r} can't be the name of a connector",
            code="connector.name",
            hint="use small letters, digits and single hyphens, and begin with a letter",
        )
    folder = Path(name) if folder is None else folder
    if folder.exists() and (not folder.is_dir() or any(os.scandir(folder))):
        raise UsageError(
            f"Nothing was made: {shown(folder)} is in use", code="init.exists", hint="name another one with --folder"
        )
    make(folder, files(name, language))
    out(_said(name, language, folder))


def files(name: str, language: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of each."""
    module = (
        f"{name.replace('-', '_').removesuffix('_connector')}_connector"  # never that of a library which it may need
    )
    placed = {"placeholder-name": name, "placeholder_module": module}
    for path, file in _walk(resources.files("penstock") / "templates" / "connector" / language, ""):
        text = file.read_text(encoding="utf-8")
        for there, here in placed.items():
            path, text = path.replace(there, here), text.replace(there, here)
        yield path, text.encode()


def _walk(folder: Traversable, start: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        name = entry.name.removesuffix(SUFFIX)
        if entry.is_dir():
            if name != "__pycache__":
                yield from _walk(entry, f"{start}{name}/")
        else:  # a name with a dot in front is easily lost when a package is built
            yield f"{start}{'.gitignore' if name == 'gitignore' else name}", entry


def _said(name: str, language: str, folder: Path) -> str:
    settings = "--source path={dir}/data --destination path={dir}/data"
    kit = "run the conformance kit over it"
    if language == "python":
        program, path, first, then = "python .", ".", ("pytest", kit), "the same, as a program"
    else:
        program = path = f"./{name}"
        first, then = ("go build", f"make the program {name}"), kit
    test = f"penstock connector test {settings} -- {program}"
    steps = [first, (test, then), (f"penstock plugins install {path}", "add it to the plugins folder")]
    lines = columns(steps).splitlines()
    return "\n".join(
        [
            f"Made the connector {name} in {shown(folder)}.",
            "",
            "Now type:",
            f"  cd {quoted(folder)}",
            *("  " + one for one in lines),
        ]
    )
