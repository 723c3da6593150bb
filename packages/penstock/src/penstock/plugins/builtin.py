"""The registry of what ships with Penstock. Settings classes need no Spark, so a file is checked before anything is started."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from penstock.config import Settings

# name → module:class of settings and of the implementation
SOURCES = {
    "files": ("penstock.connectors.files.settings:FilesSourceSettings", "penstock.connectors.files.source:FilesSource")
}
DESTINATIONS = {
    "files": (
        "penstock.connectors.files.settings:FilesDestinationSettings",
        "penstock.connectors.files.destination:FilesDestination",
    )
}
PROCESSORS = {"filter": ("penstock.processors.filter:FilterSettings", "penstock.processors.filter:Filter")}

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
