"""What a plugin is, told from its code or its specification: texts, settings, where it runs, an example. `penstock plugins` and the
pages of the reference are made of it. Needs no Spark.

The text of a processor is that of its module, the text of a connector that of its settings class.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml

from penstock.config import Settings
from penstock.config.units import parse_duration, parse_size
from penstock.native import ExactlyOnceDestination, Example, Processor, Shape, Unsuitable, Where
from penstock.plugins import builtin
from penstock.plugins.dispensers import Dispenser
from penstock_protocol.interfaces import Parameter, ParameterType, ValidationType

_PLACES = {Where.PYTHON: "Python", Where.SPARK: "Spark"}
_TYPES = {str: "text", bool: "true or false", int: "whole number", float: "number"}
_WIRE_TYPES = {
    ParameterType.STRING: "text",
    ParameterType.INT: "whole number",
    ParameterType.FLOAT: "number",
    ParameterType.BOOL: "true or false",
    ParameterType.FILE: "file",
    ParameterType.DURATION: "duration",
}
_UNITS: Mapping[Any, str] = {parse_duration: "duration", parse_size: "size"}

# The settings of an example where the code has none.
_EXAMPLES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("source", "files"): {"path": "./in", "format": "json"},
    ("source", "generator"): {
        "recordCount": 1000,
        "rate": 100,
        "template": '{"id": {seq}, "amount": {int:1..100}, "name": "{word}"}',
    },
    ("source", "jdbc"): {
        "url": "jdbc:postgresql://localhost/shop",
        "user": "reader",
        "table": "orders",
        "key": "id",
        "incremental": "changed_at",
    },
    ("source", "kafka"): {"servers": "localhost:9092", "topics": "orders", "start": "earliest"},
    ("source", "queue"): {"path": "./orders"},
    ("destination", "queue"): {"path": "./orders"},
    ("destination", "files"): {"path": "./out", "format": "json"},
    ("destination", "lines"): {"path": "./out.txt"},
    ("destination", "kafka"): {"servers": "localhost:9092", "topic": "orders", "format": "payload"},
    ("destination", "delta"): {"path": "./orders", "schema": "id BIGINT, name STRING"},
    ("destination", "postgres"): {
        "url": "postgresql://localhost/shop",
        "table": "orders",
        "mode": "upsert",
        "key": "id",
        "schema": "id BIGINT, total DECIMAL(10,2)",
    },
    ("destination", "log"): {"message": "order"},
    ("processor", "python"): {"function": "clean:clean"},
}
_OBJECTS = {
    "recordCount": 1000,
    "format.type": "structured",
    "format.options.id": "int",
    "format.options.name": "string",
}


@dataclass(frozen=True)
class Setting:
    name: str
    type: str
    choices: tuple[str, ...]  # where only these may be written
    default: str  # as it would be written; empty where there is none
    required: bool
    meaning: str


@dataclass(frozen=True)
class Place:
    """Where a processor runs on payloads of a shape."""

    shape: str
    runs: str  # Spark or Python; empty where it is refused
    gives: str  # the shape behind it
    code: str  # of the refusal
    why: str
    hint: str


@dataclass(frozen=True)
class Description:
    kind: str
    name: str
    summary: str
    text: str
    guarantee: str  # of a destination
    settings: tuple[Setting, ...]
    places: tuple[Place, ...]  # of a processor
    example: Mapping[str, Any]  # a whole pipeline file
    tested: bool  # the example has a test in it
    runs: str = "in Spark"  # where
    registry: str = "builtin"
    version: str = builtin.VERSION

    def example_yaml(self, width: int = 110) -> str:
        return yaml.safe_dump(self.example, sort_keys=False, allow_unicode=True, width=width)


def describe(kind: str, name: str) -> Description:
    """Of a plugin that is there (`builtin.known`)."""
    name = builtin.bare(name)
    first, _, rest = _text(kind, name).partition("\n")
    settings = tuple(_setting(n, f) for n, f in builtin.settings_class(kind, name).model_fields.items())
    made = builtin.implementation(kind, name)
    shown = made.example if kind == "processor" else None
    return Description(
        kind,
        name,
        _sentence(first),
        rest.strip("\n"),
        _guarantee(made) if kind == "destination" else "",
        settings,
        _places(name, made) if kind == "processor" else (),
        _tested_file(name, shown) if shown is not None else _plain_file(kind, name),
        shown is not None,
    )


def describe_hosted(kind: str, d: Dispenser) -> Description:
    """Of a connector that runs in a process of its own: what it says about itself."""
    s = d.specification
    settings = tuple(_parameter(name, p) for name, p in d.parameters(kind).items())
    plugin = d.name if d.registry == "builtin" else f"standalone:{d.name}"
    example = _hosted_file(kind, plugin, {one.name: one.default or "…" for one in settings if one.required})
    text = s.description if s.description != s.summary else ""
    guarantee = "at least once" if kind == "destination" else ""
    about = (_sentence(s.summary), text, guarantee, settings, (), example, False)
    return Description(kind, d.name, *about, runs="in a process of its own", registry=d.registry, version=d.version)


def _parameter(name: str, p: Parameter) -> Setting:
    choices = next((tuple(v.value.split(",")) for v in p.validations if v.type is ValidationType.INCLUSION), ())
    required = any(v.type is ValidationType.REQUIRED for v in p.validations) and not p.default
    return Setting(name, "choice" if choices else _WIRE_TYPES[p.type], choices, p.default, required, p.description)


def _hosted_file(kind: str, plugin: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    source, destination = _node("in", "source", "generator", _OBJECTS), _files("out", "destination", {})
    if kind == "source":
        return _file({"connectors": [_node("in", "source", plugin, settings), destination]})
    ends = [source, _node("out", "destination", plugin, settings)]
    return _file({"guarantee": "at-least-once", "connectors": ends})


def summary(kind: str, name: str) -> str:
    """The first sentence alone; nothing but a connector's settings is imported for it."""
    return _sentence(_text(kind, name).partition("\n")[0])


def _text(kind: str, name: str) -> str:
    if kind != "processor":
        return inspect.cleandoc(builtin.settings_class(kind, name).__doc__ or "")
    module = builtin.PROCESSORS[name][1].partition(":")[0]
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8"))) or ""


def _sentence(first: str) -> str:
    """`pick`: keeps … → Keeps …"""
    before, _, rest = first.partition(": ")
    found = rest if rest and before.startswith("`") else first
    return found[:1].upper() + found[1:]


# -- settings -------------------------------------------------------------------------------------------------------


def _setting(field: str, f: Any) -> Setting:
    name, (type_, choices) = f.alias or field, _type(f.annotation, f.metadata)
    if get_origin(f.annotation) is dict:  # one setting for each of its keys
        inner = get_args(f.annotation)[1]
        several = isinstance(inner, type) and issubclass(inner, Settings)
        name, type_ = (f"{name}.<name>.…", "settings") if several else (f"{name}.<field>", "text")
    required = f.is_required()
    default = "" if required else _written(f.default, type_)
    return Setting(name, type_, choices, default, required, f.description or "")


def _type(annotation: Any, metadata: Any = ()) -> tuple[str, tuple[str, ...]]:
    for validator in metadata:
        if (unit := _UNITS.get(getattr(validator, "func", None))) is not None:
            return unit, ()
    if get_origin(annotation) is Annotated:
        return _type(annotation.__origin__, annotation.__metadata__)
    if annotation in _TYPES:
        return _TYPES[annotation], ()
    arguments = [a for a in get_args(annotation) if a is not type(None)]
    if arguments and all(isinstance(a, str) for a in arguments):
        return "choice", tuple(arguments)
    return _type(arguments[0]) if arguments else ("text", ())


def _written(value: Any, type_: str) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(value)
    return f"{value:g}s" if type_ == "duration" else f"{value:g}" if isinstance(value, float) else str(value)


def table(settings: tuple[Setting, ...]) -> str:
    """For the pages, as Markdown."""
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for s in settings:
        type_ = " \\| ".join(f"`{c}`" for c in s.choices) or s.type
        default = "required" if s.required else f"`{s.default}`" if s.default else ""
        rows.append(f"| `{s.name}` | {type_} | {default} | {s.meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


# -- what it does ---------------------------------------------------------------------------------------------------


def _guarantee(made: type[Any]) -> str:
    return "exactly once" if issubclass(made, ExactlyOnceDestination) else "at least once"


def _places(name: str, cls: type[Processor[Any]]) -> tuple[Place, ...]:
    """With the settings of the example."""
    settings: Mapping[str, Any] = cls.example.settings if cls.example else _EXAMPLES["processor", name]
    made = cls(builtin.settings_class("processor", name).model_validate(dict(settings), by_alias=True), "example")
    return tuple(_place(made, shape) for shape in Shape)


def _place(made: Processor[Any], shape: Shape) -> Place:
    try:
        return Place(shape.value, _PLACES[made.where(shape)], made.gives(shape).value, "", "", "")
    except Unsuitable as e:
        return Place(shape.value, "", "", e.code, str(e), e.hint)


# -- examples -------------------------------------------------------------------------------------------------------


def _tested_file(name: str, e: Example) -> dict[str, Any]:
    """What `penstock test` runs: the processor between two connectors, and the test that the example is."""
    processor = _node(name.replace(".", "-"), None, name, e.settings, e.condition)
    given = _record(e.given)
    wanted = e.gives if isinstance(e.gives, list | tuple) else [e.gives] if e.gives is not None else []
    expect = [_record(r) for r in wanted if isinstance(r, Mapping)]
    test: dict[str, Any] = {"name": f"what {name} does", "input": [given], "expect": expect}
    if e.rejects:
        test["rejects"] = [{"node": processor["id"], "error": e.rejects}]
    out = expect[0].get("after") if expect and "after" in expect[0] else given.get("after")
    ends = [_files("in", "source", given.get("after")), _files("out", "destination", out)]
    return _file({"connectors": ends, "processors": [processor], "tests": [test]})


def _plain_file(kind: str, name: str) -> dict[str, Any]:
    """The plugin between connectors that anybody has."""
    settings = _EXAMPLES.get((kind, name), {})
    if kind == "processor":
        ends = [_files("in", "source", {}), _files("out", "destination", {})]
        return _file({"connectors": ends, "processors": [_node(name, None, name, settings)]})
    source: tuple[str, Mapping[str, Any]] = ("generator", _OBJECTS)
    destination: tuple[str, Mapping[str, Any]] = (name, settings)
    if kind == "source":
        typed = builtin.implementation(kind, name).shape is Shape.TYPED
        form = {"format": settings.get("format", "json")} if typed or "format" in settings else {}
        source, destination = (name, settings), ("files", {"path": "./out", **form})
    ends = [_node("in", "source", *source), _node("out", "destination", *destination)]
    exact = issubclass(builtin.implementation("destination", destination[0]), ExactlyOnceDestination)
    return _file({**({} if exact else {"guarantee": "at-least-once"}), "connectors": ends})


def _file(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": "2.2", "pipelines": [{"id": "example", **pipeline}]}


def _node(id: str, kind: str | None, plugin: str, settings: Mapping[str, Any], condition: str = "") -> dict[str, Any]:
    made = {"id": id, "type": kind, "plugin": plugin, "condition": condition, "settings": dict(settings)}
    return {key: value for key, value in made.items() if value}


def _files(id: str, kind: str, payload: Any) -> dict[str, Any]:
    return _node(id, kind, "files", {"path": f"./{id}", "format": "json" if isinstance(payload, dict) else "text"})


def _record(r: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in r.items()}
