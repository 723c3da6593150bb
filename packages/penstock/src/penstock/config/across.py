"""Checks that no single value shows: ids that are taken, a pipeline that can't run, tests that name what is not there.

Called by `check` for each document, with what the documents before it hold. Looks at the data, not at the models, so
that these problems are told along with all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config.model import PipelineConfig, kebab
from penstock.config.problem import Problem
from penstock.config.yaml import Document, KeyPath, Plain

_TYPES = ("source", "destination")
_KEYS = {kebab(name) for name in PipelineConfig.model_fields}
_NAMES = 200  # characters of a pipeline's and a connector's id in a file name, which has 255 bytes
Taken = dict[str, tuple[Document, KeyPath]]
Item = tuple[KeyPath, dict[str, Plain]]


class Across:
    """Knows the pipelines of all documents so far."""

    def __init__(self, *, runnable: bool) -> None:
        self._runnable = runnable
        self._taken: Taken = {}

    def problems(self, document: Document) -> Iterator[Problem]:
        for path, pipeline in _items(document.data, (), "pipelines"):
            yield from _unique("pipeline", [(path, pipeline)], document, self._taken)
            connectors = list(_items(pipeline, path, "connectors"))
            processors = [p for at, c in connectors for p in _items(c, at, "processors")]
            processors += _items(pipeline, path, "processors")
            yield from _unique("connector", connectors, document, {})
            yield from _unique("processor", processors, document, {})
            yield from _long_names(pipeline, connectors, document)
            if self._runnable:
                yield from _ends(pipeline, path, document)
            if "tests" in pipeline:
                yield from _tests(pipeline, path, connectors, document)


def _items(parent: Plain, path: KeyPath, key: str) -> Iterator[Item]:
    items = parent.get(key) if isinstance(parent, dict) else None
    for index, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield (*path, key, index), item


def _unique(kind: str, items: list[Item], document: Document, taken: Taken) -> Iterator[Problem]:
    """Of two with one id the later one in the file is told."""
    for path, item in items:
        if not isinstance(item.get("id"), str | int):
            continue
        name, at = str(item["id"]), (*path, "id")
        first, first_at = taken.setdefault(name, (document, at))
        if (first, first_at) == (document, at):
            continue
        if first is document and document.mark(at) < document.mark(first_at):
            taken[name], at, first_at = (document, at), first_at, at
        line, column = first.mark(first_at)
        hint = f"change it; the first is at {first.file}:{line}:{column}"
        yield document.problem("config.duplicate-id", f"the {kind} id '{name}' is already taken", at, hint)


def _long_names(pipeline: dict[str, Plain], connectors: list[Item], document: Document) -> Iterator[Problem]:
    for path, connector in connectors:
        both = f"{pipeline.get('id')}{connector.get('id')}"
        if len(both) > _NAMES:
            what = f"'id' must be shorter: with the pipeline's it has more than {_NAMES} characters"
            hint = "both are in the names of output files: shorten one of them"
            yield document.problem("config.bad-value", what, (*path, "id"), hint)


def _ends(pipeline: dict[str, Plain], path: KeyPath, document: Document) -> Iterator[Problem]:
    given = pipeline.get("connectors") or []
    if not isinstance(given, list) or not all(isinstance(c, dict) and c.get("type") in _TYPES for c in given):
        return  # a bad connector is reported as such
    if "connectors" not in pipeline and set(pipeline) - _KEYS:
        return  # and so is a misspelt 'connectors'
    types = [connector["type"] for connector in given]
    for kind in _TYPES:
        if kind not in types:
            hint = f"add a connector with type: {kind}"
            yield document.problem(f"config.no-{kind}", f"the pipeline has no {kind}", path, hint)


def _tests(pipeline: dict[str, Plain], path: KeyPath, connectors: list[Item], document: Document) -> Iterator[Problem]:
    ids = {kind: [str(c.get("id")) for _, c in connectors if c.get("type") == kind] for kind in _TYPES}
    for at, test in _items(pipeline, path, "tests"):
        source, expect = test.get("source"), test.get("expect")
        if source is None and len(ids["source"]) > 1:
            hint = f"add source: with one of {', '.join(ids['source'])}"
            yield document.problem("config.bad-value", "the test must name its 'source': there are several", at, hint)
        if source is not None and str(source) not in ids["source"]:
            hint = f"the sources are {', '.join(ids['source'])}"
            yield document.problem("config.bad-value", "'source' must be the id of a source", (*at, "source"), hint)
        if isinstance(expect, list) and len(ids["destination"]) > 1:
            what = "'expect' must name the destination: there are several"
            hint = f"write a list under each of {', '.join(ids['destination'])}"
            yield document.problem("config.bad-value", what, (*at, "expect"), hint)
        for name in expect if isinstance(expect, dict) else ():
            if name not in ids["destination"]:
                what, hint = f"'{name}' must be the id of a destination", f"they are {', '.join(ids['destination'])}"
                yield document.problem("config.bad-value", what, (*at, "expect", name), hint, key=True)
