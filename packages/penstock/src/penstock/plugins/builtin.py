"""The registry of what ships with Penstock. Settings classes need no Spark, so a file is checked before anything is started."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config import Problem, Settings, conduit
from penstock.config.validation import nearest
from penstock.plugins.names import PluginName, same_version

# name → module:class of settings and of the implementation
SOURCES = {
    "files": ("penstock.connectors.files.settings:FilesSourceSettings", "penstock.connectors.files.source:FilesSource"),
    "generator": (
        "penstock.connectors.generator.settings:GeneratorSourceSettings",
        "penstock.connectors.generator.source:GeneratorSource",
    ),
    "jdbc": ("penstock.connectors.jdbc.settings:JdbcSourceSettings", "penstock.connectors.jdbc.source:JdbcSource"),
    "kafka": (
        "penstock.connectors.kafka.source_settings:KafkaSourceSettings",
        "penstock.connectors.kafka.source:KafkaSource",
    ),
    "queue": ("penstock.connectors.queue.settings:QueueSourceSettings", "penstock.connectors.queue.source:QueueSource"),
}
DESTINATIONS = {
    name: (
        f"penstock.connectors.{name}.settings:{name.capitalize()}DestinationSettings",
        f"penstock.connectors.{name}.destination:{name.capitalize()}Destination",
    )
    for name in ("blackhole", "delta", "files", "log", "postgres", "queue")
} | {
    "kafka": (
        "penstock.connectors.kafka.destination_settings:KafkaDestinationSettings",
        "penstock.connectors.kafka.destination:KafkaDestination",
    ),
    "lines": (
        "penstock.connectors.lines.destination_settings:LinesDestinationSettings",
        "penstock.connectors.lines.destination:LinesDestination",
    ),
}
PROCESSORS = {
    name: (f"penstock.processors.{module}:{cls}Settings", f"penstock.processors.{module}:{cls}")
    for name, module, cls in (
        ("base64.decode", "base64_decode", "Base64Decode"),
        ("base64.encode", "base64_encode", "Base64Encode"),
        ("clone", "clone", "Clone"),
        ("error", "error", "Error"),
        ("expect", "expect", "Expect"),
        ("field.convert", "field_convert", "FieldConvert"),
        ("field.exclude", "field_exclude", "FieldExclude"),
        ("field.rename", "field_rename", "FieldRename"),
        ("field.set", "field_set", "FieldSet"),
        ("filter", "filter", "Filter"),
        ("json.decode", "json_decode", "JsonDecode"),
        ("json.encode", "json_encode", "JsonEncode"),
        ("omit", "omit", "Omit"),
        ("opfilter", "opfilter", "Opfilter"),
        ("pick", "pick", "Pick"),
        ("python", "python", "Python"),
        ("rename", "rename", "Rename"),
        ("sample", "sample", "Sample"),
        ("skip", "skip", "Skip"),
        ("split", "split", "Split"),
        ("sql", "sql", "Sql"),
        ("unwrap.debezium", "unwrap_debezium", "UnwrapDebezium"),
        ("unwrap.kafkaconnect", "unwrap_kafkaconnect", "UnwrapKafkaconnect"),
        ("unwrap.opencdc", "unwrap_opencdc", "UnwrapOpencdc"),
    )
}

KINDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "source": SOURCES,
    "destination": DESTINATIONS,
    "processor": PROCESSORS,
}


VERSION = "0.1.0"  # of what is built in: a file may ask for it, as in Conduit


def bare(plugin: str) -> str:
    """`builtin:files`, `files` and `files@latest` are the same plugin."""
    name = PluginName.parse(plugin)
    fits = name.registry != "standalone" and (not name.version or same_version(name.version, VERSION))
    return name.name if fits else plugin


def known(kind: str, plugin: str) -> bool:
    return bare(plugin) in KINDS[kind]


def problem(kind: str, plugin: str, others: Sequence[str] = ()) -> Problem | None:
    """Why nothing is called that, without a place; None where something is. `others`: names that are known elsewhere."""
    if known(kind, plugin):
        return None
    asked = PluginName.parse(plugin)
    name, version = asked.name, asked.version
    if name in conduit.INSTEAD[kind]:
        what = f"the {kind} {name!r} of Conduit is not there"
        return Problem("config.conduit-plugin", what, "", hint=conduit.INSTEAD[kind][name])
    if name in KINDS[kind]:
        what = f"{name!r} has no version {version!r}"
        return Problem("config.unknown-plugin", what, "", hint=f"write {name} without a version")
    if other := next((k for k in KINDS if name in KINDS[k]), None):
        hint = f"{name!r} is a {other}"
    else:
        own = difflib.get_close_matches(name, KINDS[kind], 1)  # what runs in Spark is meant more often
        hint = nearest(name, own or sorted({*KINDS[kind], *others}), "plugin")
    return Problem("config.unknown-plugin", f"no {kind} is called {plugin!r}", "", hint=hint)


def settings_class(kind: str, plugin: str) -> type[Settings]:
    cls: type[Settings] = _load(KINDS[kind][bare(plugin)][0])
    return cls


def implementation(kind: str, plugin: str) -> Any:
    return _load(KINDS[kind][bare(plugin)][1])


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
