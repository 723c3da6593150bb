"""Writes the tables of docs/reference/configuration.md from the models that read a pipeline file. Run by `make docs`.

A key's meaning is the description of its field, which `penstock schema` gives to editors too. Headings and prose are written by hand.
"""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from penstock.config import model, tests, units
from penstock.ranges import Limits
from scripts.markers import replaced

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "reference", "configuration.md")
PARTS: dict[str, type[BaseModel]] = {
    "file": model.File,
    "pipeline": model.PipelineConfig,
    "connector": model.ConnectorConfig,
    "batch": model.BatchConfig,
    "processor": model.ProcessorConfig,
    "dead-letter-queue": model.DeadLetterQueueConfig,
    "retention": model.RetentionConfig,
    "test": tests.TestConfig,
    "record": tests.RecordConfig,
    "reject": tests.RejectConfig,
}
# What the models allow to be empty, and a later check does not: it sees all files at once.
NEEDED = {(model.File, "pipelines"), (model.PipelineConfig, "connectors")}
_SECTIONS: dict[Any, str] = {  # where the page describes each
    model.PipelineConfig: "[pipelines](#a-pipeline)",
    model.ConnectorConfig: "[connectors](#a-connector)",
    model.BatchConfig: "[`batch`](#batch)",
    model.ProcessorConfig: "[processors](#a-processor)",
    model.DeadLetterQueueConfig: "[`dead-letter-queue`](#dead-letter-queue)",
    model.RetentionConfig: "[`retention`](#retention)",
    tests.TestConfig: "[tests](#tests)",
    tests.RecordConfig: "[records](#a-record-of-a-test)",
    tests.RejectConfig: "[nacks](#a-nack-that-is-expected)",
}
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}
_PARSED = {units.parse_size: "size", units.parse_duration: "duration"}


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    return {PAGE: replaced((ROOT / PAGE).read_text(), {name: _table(cls) for name, cls in PARTS.items()})}


def _table(cls: type[BaseModel]) -> str:
    rows = [_row(cls, name, field) for name, field in cls.model_fields.items()]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _row(cls: type[BaseModel], name: str, field: FieldInfo) -> str:
    needed = field.is_required() or (cls, name) in NEEDED
    cells = [f"`{field.alias or name}`", _type(field), "required" if needed else _default(cls, name, field)]
    return "| " + " | ".join([*cells, (field.description or "").replace("|", "\\|")]) + " |"


def _type(field: FieldInfo) -> str:
    return _word(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)


def _word(annotation: Any) -> str:
    """A type as people call it. Of a choice, the words that may be written."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, arguments = get_origin(annotation), [a for a in get_args(annotation) if a is not type(None)]
    if origin is Annotated:
        parsed = [_PARSED[m.func] for m in arguments if isinstance(m, BeforeValidator) and m.func in _PARSED]
        return parsed[0] if parsed else _word(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{a}`" for a in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_word(a) for a in arguments)
    if origin is tuple:
        return f"list of {_word(arguments[0])}"
    return _SECTIONS.get(annotation, "mapping")


def _default(cls: type[BaseModel], name: str, field: FieldInfo) -> str:
    value = getattr(Limits(), name) if cls is model.BatchConfig else field.default  # there None leaves it to the engine
    if "size" in (kind := _type(field)) and isinstance(value, int):
        return f"`{value >> 20}m`"
    if kind == "duration":
        return f"`{value:g}s`"
    return f"`{value}`" if isinstance(value, str | int) and value != "" else ""
