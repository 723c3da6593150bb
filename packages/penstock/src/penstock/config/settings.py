"""Settings of connectors and processors: declared once as a model, parsed from the texts of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from penstock.config.check import Loaded
from penstock.config.model import kebab
from penstock.config.problem import ConfigErrors
from penstock.config.validation import validate
from penstock.config.yaml import Plain


class Settings(BaseModel):
    """Base of every plugin's settings. Values come as text and are parsed: "true", "12". A field `max_rows` is the
    setting `max-rows`; `Field(alias=…)` gives another name. A validator's error text should begin with "must"."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        populate_by_name=True,
        hide_input_in_errors=True,
        defer_build=True,  # of all plugins a file names a few
    )


S = TypeVar("S", bound=Settings)


def parse_settings(cls: type[S], expanded: Mapping[str, str], loaded: Loaded | None = None, *path: str | int) -> S:
    """Makes `cls` of expanded settings. `path` leads to the `settings` mapping of the file they came from; without a
    file the problems have no place. Raises `ConfigErrors` with every problem; no value that came by reference is in it.
    """
    settings, problems = validate(cls, expanded, loaded.document if loaded else None, path, "setting")
    if settings is not None:
        return settings
    written = _at(loaded.document.data, path) if loaded else {}
    for name, reference in written.items():
        value = expanded.get(name)
        if value and value != reference:
            problems = [replace(p, what=p.what.replace(value, str(reference))) for p in problems]
    raise ConfigErrors(problems)


def _at(data: Plain, path: tuple[str | int, ...]) -> dict[str, Plain]:
    for key in path:
        if isinstance(data, dict) and key not in data:
            return {}
        data = data[key]
    return data if isinstance(data, dict) else {}
