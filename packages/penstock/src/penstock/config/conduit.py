"""Conduit's files: names that have no meaning here, with what to write instead, and versions of the format.

The rest of the table is `docs/conduit.md`. Called by `check` and by those who look plugins up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config.nodes import KeyPath
    from penstock.config.problem import Problem
    from penstock.config.yaml import Document

LATEST = "2.2"
_VERSIONS = ("2.0", "2.1", LATEST)
_SAME_MAJOR = re.compile(r"2(?:\.[0-9]+)*")

_AVRO = "give the payload a schema with json.decode; Avro comes with hosted connectors and a schema registry"
_MODEL = "call the service from a `python` processor"

PROCESSORS: Mapping[str, str] = {
    "avro.decode": _AVRO,
    "avro.encode": _AVRO,
    "cohere.command": _MODEL,
    "cohere.embed": _MODEL,
    "cohere.rerank": _MODEL,
    "custom.javascript": "write it in Python, with a `python` processor, or as SQL, with `sql`",
    "ollama": _MODEL,
    "openai.embed": _MODEL,
    "openai.textgen": _MODEL,
    "webhook.http": _MODEL,
}
SOURCES: Mapping[str, str] = {
    "postgres": "there is no change data capture from Postgres yet; `jdbc` reads tables, and what is new in them",
    "s3": "there is no S3 connector yet; `files` reads folders of this machine",
}
DESTINATIONS: Mapping[str, str] = {
    "s3": "there is no S3 connector yet; `files` writes folders of this machine",
}
SETTINGS: Mapping[str, str] = {  # of the connector SDK and the schema middleware, by the beginning of their names
    "sdk.batch.delay": "write `batch: {max-delay: …}` beside `settings`",
    "sdk.batch.size": "write `batch: {max-records: …}` beside `settings`",
    "sdk.rate.": "batches are sized by themselves; `batch: {max-records: …}` limits them",
    "sdk.record.format": "choose the `format` of the destination, or shape the payload with processors",
    "sdk.schema.": "leave it out: a payload gets a schema by `schema` in the settings of a connector or of json.decode",
    "sdk.": "leave it out: it is for connectors made with Conduit's SDK",
}
INSTEAD = {"processor": PROCESSORS, "source": SOURCES, "destination": DESTINATIONS}


def as_of_today(document: Document) -> Iterator[Problem]:
    """Turns what older and unknown versions of the format say into today's, in place, with a warning for each."""
    data = document.data
    if not isinstance(data, dict):
        return
    given = data.get("version")
    if not data:
        data["version"] = LATEST  # an empty document is no mistake
    elif given in (None, ""):
        what, hint = f"no version is given: the file is read as {LATEST}", f'write version: "{LATEST}" at the top'
        yield document.problem("config.no-version", what, (), hint)
        data["version"] = LATEST
    elif isinstance(given, str | int) and given not in _VERSIONS and _SAME_MAJOR.fullmatch(str(given)):
        what, hint = f"version {given} is not known: the file is read as {LATEST}", f'write version: "{LATEST}"'
        yield document.problem("config.unknown-version", what, ("version",), hint)
        data["version"] = LATEST
    for path, processor in _processors(data):
        if "type" in processor:
            what = "'type' of a processor is called 'plugin' since version 2.2"
            hint = "remove it: there is a 'plugin'" if processor.get("plugin") else "write plugin: instead"
            yield document.problem("config.renamed-key", what, (*path, "type"), hint, key=True)
            old = processor.pop("type")
            processor["plugin"] = processor.get("plugin") or old


def _processors(data: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    for i, pipeline in _mappings(data, "pipelines"):
        for j, processor in _mappings(pipeline, "processors"):
            yield ("pipelines", i, "processors", j), processor
        for j, connector in _mappings(pipeline, "connectors"):
            for k, processor in _mappings(connector, "processors"):
                yield ("pipelines", i, "connectors", j, "processors", k), processor


def _mappings(parent: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    items = parent.get(key)
    return [(i, item) for i, item in enumerate(items) if isinstance(item, dict)] if isinstance(items, list) else []
