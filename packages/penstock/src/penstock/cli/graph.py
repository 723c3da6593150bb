"""`penstock graph`: what a pipeline does with its records, and where, as a picture. Starts nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option, paths_argument

if TYPE_CHECKING:
    from penstock.graph.model import Graph

FORMATS = ("text", "mermaid", "dot", "svg", "json")
_ENDINGS = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".json": "json"}


@click.command()
@paths_argument()
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="By default what the ending of FILE says, else text."
)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--pipeline", "wanted", metavar="ID", help="This pipeline alone.")
@json_option("The same as --format json: lanes, stages, connectors and shapes.")
def graph(paths: tuple[Path, ...], form: str | None, file: Path | None, wanted: str | None, as_json: bool) -> None:
    """Show the pipelines of files and folders: sources, processors and where they run, destinations, dead letters.

    No Spark, and nothing that a file names is run. Exits with 2 when something is wrong with a file.
    """
    from penstock.graph.model import graph_of
    from penstock.pipeline import Pipeline

    pipelines = Pipeline.from_files(paths)
    chosen = [p for p in pipelines if wanted in (None, p.id)]
    if not chosen:
        ids = ", ".join(p.id for p in pipelines) or "none"
        raise click.UsageError(f"There is no pipeline {wanted!r}. There are: {ids}")
    made = _written(graph_of([p.assembly() for p in chosen]), "json" if as_json else form or _form_of(file))
    if file is None:
        click.echo(made, nl=False)
        return
    try:
        file.write_text(made, encoding="utf-8")
    except OSError as e:
        raise click.FileError(str(file), e.strerror or str(e)) from e


def _form_of(file: Path | None) -> str:
    return _ENDINGS.get(file.suffix.lower(), "text") if file is not None else "text"


def _written(graph: Graph, form: str) -> str:
    """Only the form that is asked for is imported."""
    if form == "json":
        return json.dumps(asdict(graph), indent=2, ensure_ascii=False) + "\n"
    if form == "mermaid":
        from penstock.graph.mermaid import mermaid

        return mermaid(graph)
    if form == "dot":
        from penstock.graph.dot import dot

        return dot(graph)
    if form == "svg":
        from penstock.graph.svg import svg

        return svg(graph)
    from penstock.graph.text import text

    return text(graph)
