"""`penstock schema`: the JSON Schema of a pipeline file, for editors. Starts nothing and needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penstock.config import Settings


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file.")
def schema(output: Path | None) -> None:
    """Prints the JSON Schema of a pipeline file.

    With `# yaml-language-server: $schema=penstock.schema.json` as its first line an editor checks and completes a file.
    """
    from penstock.config.schema import json_schema

    text = json.dumps(json_schema(_settings()), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error


def _settings() -> dict[str, dict[str, type[Settings]]]:
    """What each built-in plugin takes."""
    from penstock.plugins import builtin

    found: dict[str, dict[str, type[Settings]]] = {}
    for kind, plugins in builtin.KINDS.items():
        for name in plugins:
            try:
                found.setdefault(kind, {})[name] = builtin.settings_class(kind, name)
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("penstock."):
                    raise  # something else is missing; a plugin without its module is only not there
    return found
