"""The registry of what ships with Penstock. Settings classes need no Spark, so a file is checked before anything is started."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from penstock.config import Settings

# name → module:class of settings and of the implementation
SOURCES = {
    "files": ("penstock.connectors.files.settings:FilesSourceSettings", "penstock.connectors.files.source:FilesSource"),
    "generator": (
        "penstock.connectors.generator.settings:GeneratorSourceSettings",
        "penstock.connectors.generator.source:GeneratorSource",
    ),
}
DESTINATIONS = {
    name: (
        f"penstock.connectors.{name}.settings:{name.capitalize()}DestinationSettings",
        f"penstock.connectors.{name}.destination:{name.capitalize()}Destination",
    )
    for name in ("blackhole", "files", "log")
}
PROCESSORS = {
    name: (f"penstock.processors.{module}:{cls}Settings", f"penstock.processors.{module}:{cls}")
    for name, module, cls in (
        ("error", "error", "Error"),
        ("field.set", "field_set", "FieldSet"),
        ("filter", "filter", "Filter"),
        ("json.decode", "json_decode", "JsonDecode"),
        ("json.encode", "json_encode", "JsonEncode"),
        ("python", "python", "Python"),
        ("sql", "sql", "Sql"),
    )
}

KINDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "source": SOURCES,
    "destination": DESTINATIONS,
    "processor": PROCESSORS,
}


def bare(plugin: str) -> str:
    """`builtin:files` and `files` are the same plugin."""
    return plugin.removeprefix("builtin:")


def known(kind: str, plugin: str) -> bool:
    return bare(plugin) in KINDS[kind]


def settings_class(kind: str, plugin: str) -> type[Settings]:
    cls: type[Settings] = _load(KINDS[kind][bare(plugin)][0])
    return cls


def implementation(kind: str, plugin: str) -> Any:
    return _load(KINDS[kind][bare(plugin)][1])


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
