"""JSON Schema of a pipeline file, for editors: made from the models that read it, and from the plugins' settings.

Called by `penstock schema`. It says less than `validate`: what depends on two values at once, on the environment or on
other files is not in it, and a reference (`${X}`) is accepted wherever it may stand. Of Conduit's older forms it knows none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from penstock.config.model import File
from penstock.config.settings import Settings

Schema = dict[str, Any]
SettingsByName = Mapping[str, Mapping[str, type[Settings]]]  # kind → plugin → what it takes

DIALECT = "http://json-schema.org/draft-07/schema#"  # the one that every editor knows
_REFERENCE = r"\$"  # a text with a reference may become anything
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
_ABOUT = ("description", "default", "examples")
_KEYWORDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_LIMITS = (*_KEYWORDS, *_KEYWORDS.values())
_MODELS = {
    "source": ("ConnectorConfig",),
    "destination": ("ConnectorConfig", "DeadLetterQueueConfig"),
    "processor": ("ProcessorConfig",),
}
_AS_WRITTEN = ("workers", "window-size", "window-nack-threshold")  # whole numbers that are no text
_IDS = {"PipelineConfig": 128, "ConnectorConfig": 254, "ProcessorConfig": 256}


class _Generator(GenerateJsonSchema):
    """Sizes and durations as they are written, not as they are kept."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        name = getattr(schema["function"]["function"], "__name__", "")
        if name == "parse_size":
            return {"type": ["integer", "string"], "pattern": rf"^[0-9]+ ?([kmgtKMGT]i?)?[bB]?$|{_REFERENCE}"}
        if name == "parse_duration":
            return {"type": "string", "pattern": rf"^([0-9]+(\.[0-9]+)?(us|µs|ms|s|m|h))+$|{_REFERENCE}"}
        return self.generate_inner(schema["schema"])


def json_schema(settings: SettingsByName | None = None) -> Schema:
    """The schema of a file. `settings` gives the plugins whose settings are to be checked too."""
    file = _of(File)
    definitions = file.pop("$defs")
    for name in (
        "PipelineConfig",
        "ConnectorConfig",
        "ProcessorConfig",
        "DeadLetterQueueConfig",
        "BatchConfig",
        "LogConfig",
        "RetentionConfig",
    ):
        _allow_any_scalar(definitions[name])
    _by_hand(file, definitions)
    for kind, plugins in (settings or {}).items():
        for name, cls in sorted(plugins.items()):
            definitions[f"{kind}.{name}"] = _settings(cls)
            for model in _MODELS[kind]:
                _offer(definitions[model], kind, name, cls)
    whole = {**file, "definitions": definitions}
    return {"$schema": DIALECT, "title": "Penstock pipeline file", **_tidy(whole)}


def _of(cls: type[BaseModel]) -> Schema:
    return cls.model_json_schema(by_alias=True, schema_generator=_Generator, ref_template="#/definitions/{model}")


def _by_hand(file: Schema, definitions: dict[str, Schema]) -> None:
    """What the models leave to functions, or to what happens before them."""
    file["required"] = ["version", "pipelines"]
    file["properties"]["version"] = {
        "description": "The version of the format.",
        "enum": ["2.0", "2.1", "2.2", 2.1, 2.2],
    }
    for name, limit in _IDS.items():
        properties = definitions[name]["properties"]
        pattern = rf"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$|{_REFERENCE}"
        about = properties["id"]["description"]
        properties["id"] = {
            "type": ["string", "integer"],
            "pattern": pattern,
            "maxLength": limit,
            "description": about,
        }
    for name in ("ConnectorConfig", "ProcessorConfig", "DeadLetterQueueConfig"):
        properties = definitions[name]["properties"]
        properties["plugin"] = {"type": "string", "minLength": 1, "description": properties["plugin"]["description"]}
        about = properties["settings"]["description"]
        properties["settings"] = {"type": ["object", "null"], "additionalProperties": _SCALAR, "description": about}
    record = definitions["RecordConfig"]
    record["description"] = "A record. A mapping is a structured payload, text a raw one."
    record["properties"]["metadata"]["additionalProperties"] = _SCALAR
    definitions["RecordConfig"] = {"anyOf": [record, {"type": "string", "description": "A raw payload."}]}
    test = definitions["TestConfig"]
    test["description"] = "Records that go in, and what `penstock test` expects of them."
    records = {"type": "array", "items": {"$ref": "#/definitions/RecordConfig"}}
    test["properties"]["expect"] = {
        "anyOf": [records, {"type": "object", "additionalProperties": records}],
        "description": test["properties"]["expect"]["description"],
    }


def _settings(cls: type[Settings]) -> Schema:
    """A list is one text; a mapping is many settings, whose names begin with its own and a dot."""
    made = _of(cls)
    made.pop("$defs", None)  # of what is inside such mappings
    properties = made.get("properties", {})
    for name, value in list(properties.items()):
        if value.get("type") == "array":
            properties[name] = {**_SCALAR, **{k: value[k] for k in ("description",) if k in value}}
        elif value.get("type") == "object" or "$ref" in value:
            del properties[name]
            made.setdefault("patternProperties", {})[f"^{re.escape(name)}\\."] = _SCALAR
    _allow_any_scalar(made)
    return made


def _offer(model: Schema, kind: str, name: str, cls: type[Settings]) -> None:
    """The plugin's name is offered (any other is allowed: a version, a plugin of one's own), and with it its settings."""
    plugin = model["properties"]["plugin"]
    plugin["examples"] = sorted({*plugin.get("examples", []), name})
    is_it: Schema = {"plugin": {"enum": [name, f"builtin:{name}"]}}
    if "type" in model["properties"]:
        is_it["type"] = {"const": kind}
    then: Schema = {"properties": {"settings": {"$ref": f"#/definitions/{kind}.{name}"}}}
    if any(field.is_required() for field in cls.model_fields.values()):
        then["required"] = ["settings"]
    model.setdefault("allOf", []).append({"if": {"properties": is_it, "required": sorted(is_it)}, "then": then})


def _allow_any_scalar(model: Schema) -> None:
    """In the file a text may look like a number or a word to YAML: it is its source text."""
    properties = model.get("properties", {})
    for name, value in properties.items():
        if name not in _AS_WRITTEN:
            properties[name] = _scalar(value)


def _scalar(value: Schema) -> Schema:
    about = {k: v for k, v in value.items() if k in _ABOUT}
    kind = value.get("type")
    if "anyOf" in value:
        several = [_scalar(one) for one in value["anyOf"] if one.get("type") != "null"]
        return {**(several[0] if len(several) == 1 else {"anyOf": several}), **about}
    if "enum" in value or "const" in value:
        known: Schema = {"enum": value.get("enum") or [value["const"]]}
    elif kind == "boolean":
        known = {"enum": [True, False, "true", "false", "yes", "no", "on", "off", "1", "0", 1, 0]}
    elif kind in ("integer", "number"):
        limits = {k: v for k, v in value.items() if k in _LIMITS}
        digits = "[0-9]+" if kind == "integer" else "[0-9.eE+-]+"
        return {"type": [kind, "string"], "pattern": rf"^[-+]?{digits}$|{_REFERENCE}", **limits, **about}
    elif kind == "string" and "pattern" not in value:
        return {**_SCALAR, **about}
    else:
        return value
    return {"anyOf": [known, {"type": "string", "pattern": _REFERENCE}], **about}


def _tidy(node: Any) -> Any:
    """Without titles made of names and defaults that say nothing; in the words of the dialect."""
    if isinstance(node, list):
        return [_tidy(x) for x in node]
    if not isinstance(node, dict):
        return node
    kept = {
        _KEYWORDS.get(k, k): _tidy(v)
        for k, v in node.items()
        if not (k == "title" and isinstance(v, str)) and not (k == "default" and v in (None, "", {}, [], ()))
    }
    if "$ref" in kept and len(kept) > 1:  # beside a reference draft 7 looks at nothing
        about = {"description": kept["description"]} if "description" in kept else {}
        return {"allOf": [{"$ref": kept["$ref"]}], **about}
    if isinstance(kept.get("default"), float) and kept.get("type") == "string":
        kept["default"] = f"{kept['default']:g}s"  # a duration
    if kept.get("type") == "array":  # a key without a value is as good as absent
        kept["type"] = ["array", "null"]
    return kept
