"""Loads pipeline files: reads, checks and gathers every problem of every file before it refuses. Starts nothing.

Called by the command line before anything else happens. What plugins exist and what settings they take is checked
later by those who know, with the places that `Loaded` gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.config.expand import expand, unresolved
from penstock.config.model import File, PipelineConfig
from penstock.config.problem import ConfigErrors, Problem
from penstock.config.validation import validate
from penstock.config.yaml import Document, KeyPath, Plain, read

_TYPES = ("source", "destination")
_KEYS = {field.alias for field in PipelineConfig.model_fields.values()}
_REFUSED = ("config.tag", "config.unset-variable", "config.bad-reference")


@dataclass(frozen=True)
class Loaded:
    """The pipelines of one file: number i stands at `("pipelines", i)`, its connector j at `(…, "connectors", j)`."""

    document: Document
    pipelines: tuple[PipelineConfig, ...]

    @property
    def file(self) -> Path:
        return self.document.file

    def where(self, *path: str | int) -> str:
        """`file:line:column` of a value; for one that is not in the file, of the nearest thing around it."""
        line, column = self.document.mark(path)
        return f"{self.file}:{line}:{column}"

    def excerpt(self, *path: str | int) -> str:
        """The line of the file on which it stands."""
        return self.document.lines[self.document.mark(path).line - 1]

    def problem(self, code: str, what: str, *path: str | int, hint: str = "") -> Problem:
        """For checks that come later: an unknown plugin, a combination that cannot work."""
        return self.document.problem(code, what, path, hint)


def load(paths: str | Path | Iterable[str | Path], environ: Mapping[str, str] | None = None) -> list[Loaded]:
    """Reads files, and the *.yml and *.yaml of folders. Raises `ConfigErrors` with every problem."""
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    loaded: list[Loaded] = []
    taken: dict[str, str] = {}  # pipeline id → where it stands, over all files
    for file in _files([paths] if isinstance(paths, str | Path) else paths, problems):
        document, found = read(file)
        if document is not None:
            data = _expanded(document.data, (), document, environ, found)
            config, wrong = validate(File, data, document)
            found += wrong
            found += _across(data, document, taken)
            if config is not None:
                loaded.append(Loaded(document, config.pipelines))
        problems += _in_order(found)
    if problems:
        raise ConfigErrors(problems)
    return loaded


def _files(paths: Iterable[str | Path], problems: list[Problem]) -> Iterator[Path]:
    """Each file once, even if it is named and stands in a folder that is named too."""
    seen: set[str] = set()
    for path in map(Path, paths):
        files = [path]
        if os.path.isdir(path):  # noqa: PTH112 - a folder that may not be looked at is no crash
            try:
                files = sorted(f for f in path.iterdir() if f.suffix in (".yml", ".yaml") and os.path.isfile(f))  # noqa: PTH113
            except OSError as error:
                what = f"cannot read the folder: {error.strerror}"
                problems.append(Problem("config.unreadable", what, str(path)))
                continue
            if not files:
                what, hint = "the folder has no *.yml or *.yaml file", "name a pipeline file or its folder"
                problems.append(Problem("config.unreadable", what, str(path), hint=hint))
        for file in files:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file


def _in_order(found: list[Problem]) -> list[Problem]:
    """By place. A value that is already refused for what it is (a tag, an unset variable) is not called bad as well."""
    refused = {p.where for p in found if p.code in _REFUSED}
    kept = [p for p in found if p.code != "config.bad-value" or p.where not in refused]
    return sorted(kept, key=lambda p: p.position)


def _expanded(
    node: Plain, path: KeyPath, document: Document, environ: Mapping[str, str], found: list[Problem]
) -> Plain:
    """Ids, plugins, limits and the like get their values. Settings and conditions may be secret and stay as written."""
    if isinstance(node, dict):
        return {key: _expanded(value, (*path, key), document, environ, found) for key, value in node.items()}
    if isinstance(node, list):
        return [_expanded(item, (*path, index), document, environ, found) for index, item in enumerate(node)]
    if not isinstance(node, str):
        return node
    bad = unresolved(node, environ)
    found += [document.problem(error.code, error.what, path, error.hint) for error in bad]
    return node if bad or "settings" in path or path[-1:] == ("condition",) else expand(node, environ)


def _across(data: Plain, document: Document, taken: dict[str, str]) -> Iterator[Problem]:
    """What no single value shows. Looks at the data, not at the models, so that it is said along with all the rest."""
    for path, pipeline in _items(data, (), "pipelines"):
        yield from _unique("pipeline", [(path, pipeline)], document, taken)
        connectors = list(_items(pipeline, path, "connectors"))
        processors = list(_items(pipeline, path, "processors"))
        for connector_path, connector in connectors:
            processors += _items(connector, connector_path, "processors")
        yield from _unique("connector", connectors, document, {})
        processors.sort(key=lambda item: document.mark(item[0]))
        yield from _unique("processor", processors, document, {})
        given = pipeline.get("connectors") or []
        if not isinstance(given, list) or not all(isinstance(c, dict) and c.get("type") in _TYPES for c in given):
            continue  # a bad connector is reported as such
        if "connectors" not in pipeline and set(pipeline) - _KEYS:
            continue  # and so is a misspelt 'connectors'
        types = [connector["type"] for connector in given]
        for kind in _TYPES:
            if kind not in types:
                hint = f"add a connector with type: {kind}"
                yield document.problem(f"config.no-{kind}", f"the pipeline has no {kind}", path, hint)


def _items(parent: dict[str, Plain], path: KeyPath, key: str) -> Iterator[tuple[KeyPath, dict[str, Plain]]]:
    items = parent.get(key) if isinstance(parent, dict) else None
    for index, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield (*path, key, index), item


def _unique(
    kind: str, items: list[tuple[KeyPath, dict[str, Plain]]], document: Document, taken: dict[str, str]
) -> Iterator[Problem]:
    for path, item in items:
        if not isinstance(item.get("id"), str | int):
            continue
        name = str(item["id"])
        problem = document.problem("config.duplicate-id", f"the {kind} id '{name}' is already taken", (*path, "id"))
        first = taken.setdefault(name, problem.where)
        if first != problem.where:
            yield Problem(
                problem.code, problem.what, problem.where, problem.line_text, f"change it; the first is at {first}"
            )
