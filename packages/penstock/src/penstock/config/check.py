"""Loads pipeline files: reads, checks and gathers every problem of every file before it refuses. Starts nothing.

Called by the command line before anything else happens. What plugins exist and what settings they take is checked
later by those who know, with the places that `Loaded` gives.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.config.across import Across
from penstock.config.conduit import as_of_today
from penstock.config.expand import anchored, expand, unresolved
from penstock.config.model import File, PipelineConfig
from penstock.config.problem import ConfigErrors, Problem
from penstock.config.validation import validate
from penstock.config.yaml import Document, KeyPath, Plain, read

_REFUSED = (
    "config.tag",
    "config.unset-variable",
    "config.bad-reference",
    "config.template-variable",
    "config.unreadable-reference",
)


@dataclass(frozen=True)
class Loaded:
    """The pipelines of one document: number i stands at `("pipelines", i)`, its connector j at `(…, "connectors", j)`.

    A file has one document, rarely several. `warnings` are for people: the file is read nevertheless.
    """

    document: Document
    pipelines: tuple[PipelineConfig, ...]
    warnings: tuple[Problem, ...] = ()
    whole: bool = True  # False: some of it has problems, and `pipelines` is empty

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


def load(
    paths: str | Path | Iterable[str | Path], environ: Mapping[str, str] | None = None, *, runnable: bool = True
) -> list[Loaded]:
    """Reads files, and the *.yml and *.yaml of folders. Raises `ConfigErrors` with every problem.

    Without `runnable` it is not asked whether there is something to run: a pipeline, a source and a destination in each.
    """
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    loaded: list[Loaded] = []
    across = Across(runnable=runnable)
    with _no_garbage_collection():
        for file in _files([paths] if isinstance(paths, str | Path) else paths, problems):
            documents, found = read(file)
            for document in documents:
                loaded += _loaded(document, environ, across, found)
            problems += _in_order(found)
    if runnable and loaded and not problems and not any(one.pipelines for one in loaded):
        hint = "start it with version: and pipelines:, or name another file"
        problems.append(loaded[0].problem("config.no-pipelines", "there is no pipeline in what was given", hint=hint))
    if problems:
        raise ConfigErrors(problems, loaded)
    return loaded


def _loaded(document: Document, environ: Mapping[str, str], across: Across, found: list[Problem]) -> Iterator[Loaded]:
    if "$" in document.text:
        _expand(document.data, (), document, environ, found)
    warnings = sorted(as_of_today(document), key=lambda p: p.position)
    config, wrong = validate(File, document.data, document)
    found += wrong
    found += across.problems(document)
    whole = config is not None and not found
    yield Loaded(document, config.pipelines if config and whole else (), tuple(warnings), whole=whole)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What is read stays: looking for garbage in it again and again takes a third of the time of a large file."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _files(paths: Iterable[str | Path], problems: list[Problem]) -> Iterator[Path]:
    """Each file once, even if it is named and stands in a folder that is named too."""
    seen: set[tuple[int, int]] = set()
    for path in map(Path, paths):
        files = [path]
        if os.path.isdir(path):  # noqa: PTH112 - a folder that may not be looked at is no crash
            try:
                with os.scandir(path) as entries:
                    names = sorted(e.name for e in entries if e.name.endswith((".yml", ".yaml")) and e.is_file())
            except OSError as error:
                what, hint = f"cannot read the folder: {error.strerror}", "check whether you may read it"
                problems.append(Problem("config.unreadable", what, str(path), hint=hint))
                continue
            files = [path / name for name in names]
            if not files:
                what, hint = "the folder has no *.yml or *.yaml file", "name a pipeline file or its folder"
                problems.append(Problem("config.unreadable", what, str(path), hint=hint))
        for file in files:
            try:
                found = file.stat()
            except OSError:
                yield file  # reading it says why
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                yield file


def _in_order(found: list[Problem]) -> list[Problem]:
    """By place. A value that is already refused for what it is (a tag, an unset variable) is not called bad as well."""
    refused = {p.where for p in found if p.code in _REFUSED}
    kept = dict.fromkeys(p for p in found if p.code != "config.bad-value" or p.where not in refused)
    return sorted(kept, key=lambda p: p.position)


def _expand(node: Plain, path: KeyPath, document: Document, environ: Mapping[str, str], found: list[Problem]) -> None:
    """Ids, plugins, limits and the like get their values. Settings and conditions may be secret and keep references."""
    if not isinstance(node, dict | list):
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            if len(path) != 2 or key != "tests":
                _expand(value, (*path, key), document, environ, found)
        elif isinstance(value, str) and "$" in value and (path or key != "version"):
            folder, at = document.file.parent, (*path, key)
            if bad := unresolved(value, environ, folder=folder):
                found += [document.problem(error.code, error.what, at, error.hint) for error in bad]
            elif "settings" in path or key == "condition":
                node[key] = anchored(value, folder)
            else:
                node[key] = expand(value, environ, folder=folder)
