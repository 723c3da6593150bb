"""Turns what pydantic says about a model into problems with a place, for pipeline files and connectors' settings."""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from penstock.config import conduit
from penstock.config.problem import Problem
from penstock.config.yaml import Document, KeyPath

M = TypeVar("M", bound=BaseModel)
Noun = Literal["key", "setting", "plugin"]

_WORDING = {
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "bool_parsing": "must be true or false",
    "string_too_short": "must not be empty",
}
# What to do about it, where the text does not say it already. The default is for a validator's own error.
_HINTS = {
    "model_type": "write it as lines of `key: value`",
    "dict_type": "write it as lines of `key: value`",
    "tuple_type": "begin each item on a line of its own with '- '",
    "string_type": "write one value; a list or a mapping can't stand here",
    "int_type": "write the number itself, without quotes or a reference",
    "int_parsing": "write digits only",
    "bool_parsing": "write true or false",
    "string_too_short": "write a value, or remove the key",
}
_CORRECT = "correct the value"
_WHOLE = {"key": "the file", "setting": "the settings", "plugin": "the plugin"}


def validate(
    cls: type[M], data: object, document: Document | None, path: KeyPath = (), noun: Noun = "key"
) -> tuple[M | None, list[Problem]]:
    """An instance made of `data`, which stands at `path` of the document; or None and every problem."""
    try:
        return cls.model_validate(data, by_alias=True, by_name=False), []
    except ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
    return None, [_problem(cls, dict(one), document, path, noun) for one in errors]


def _problem(
    cls: type[BaseModel], error: dict[str, Any], document: Document | None, path: KeyPath, noun: Noun
) -> Problem:
    loc: KeyPath = error["loc"]
    place, key, hint = (*path, *loc), False, ""
    if document is not None and "" in loc and place not in document.places:
        place = (*path, *(k for k in loc if k != ""))  # a list that was given for the only destination of a test
    if error["type"] == "extra_forbidden":
        code, key = "config.unknown-key", True
        what = f"unknown {noun} '{loc[-1]}'"
        hint = nearest(str(loc[-1]), _known_keys(cls, loc[:-1]), noun)
        if noun == "setting" and (of_conduit := _of_conduit(str(loc[-1]))):
            code, hint = "config.conduit-setting", of_conduit
    elif error["type"] == "missing":
        code, key = "config.missing-key", document is not None and place in document.places
        what = f"the {noun} '{loc[-1]}' " + ("has no value" if key else "is missing")
        hint = f"write a value behind '{loc[-1]}:'" if key else f"add '{loc[-1]}: …'"
    else:
        code = "config.bad-value"
        what = f"{_name(loc) or _WHOLE[noun]} {_wording(error)}"
        hint = _hint(error, _WHOLE[noun] if not loc else "")
    return document.problem(code, what, place, hint, key=key) if document else Problem(code, what, "", hint=hint)


def _of_conduit(name: str) -> str:
    return next((hint for start, hint in conduit.SETTINGS.items() if name.startswith(start)), "")


def nearest(word: str, known: list[str], noun: Noun) -> str:
    if near := difflib.get_close_matches(word, known, 1):
        return f"did you mean '{near[0]}'?"
    return f"known {noun}s: {', '.join(known)}" if known else f"there are no {noun}s here"


def _name(loc: KeyPath) -> str:
    if not loc:
        return ""
    return f"'{loc[-1]}'" if isinstance(loc[-1], str) else f"item {loc[-1] + 1} of {_name(loc[:-1])}"


def _wording(error: dict[str, Any]) -> str:
    message: str = error["msg"]
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    return str(_WORDING.get(error["type"], message.replace("Input should be", "must be", 1)))


def _hint(error: dict[str, Any], whole: str) -> str:
    if error["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))
        return f"write {' or '.join(allowed)}" if allowed else _CORRECT
    if whole == "the file":
        return "a pipeline file begins with version: and pipelines:"
    return _HINTS.get(error["type"], _CORRECT)


def _known_keys(cls: type[BaseModel], loc: KeyPath) -> list[str]:
    model: type[BaseModel] | None = cls
    for key in loc:
        if isinstance(key, str) and model is not None:
            model = next((_model_in(f.annotation) for f in model.model_fields.values() if f.alias == key), None)
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model inside `tuple[Model, ...]`, `Model | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
