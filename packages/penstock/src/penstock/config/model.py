"""A pipeline as it is declared: the shape Conduit users know, and what Penstock adds. Plain frozen data, no behaviour.

YAML keys are written with dashes, fields with underscores. Strings in `settings` and `condition` still hold their
references (`${X}`): values are made by `expand` when a connector is built, and are never stored here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from penstock.config.units import Duration, Size

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def kebab(name: str) -> str:
    return name.replace("_", "-")


def _check_id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise ValueError("must be 1 to 100 letters, digits, '_', '-' or '.', and must not start with '.'")
    return value


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports a ValueError, not a TypeError
    return value


def _not_empty(value: tuple[PipelineConfig, ...]) -> tuple[PipelineConfig, ...]:
    if not value:  # `min_length` would also count what is left when one pipeline is bad
        raise ValueError("must not be empty")
    return value


Id = Annotated[str, AfterValidator(_check_id)]
Whole = Annotated[int, BeforeValidator(_no_bool)]


class Model(BaseModel):
    """Unknown keys are errors. A key without a value is as good as absent, as in Conduit."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        populate_by_name=True,
        coerce_numbers_to_str=True,  # `id: 12` is the text "12"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: object) -> object:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data


class BatchConfig(Model):
    """Where a batch of this source is cut. None leaves it to the engine."""

    max_records: Annotated[Whole, Field(gt=0)] | None = None
    max_bytes: Annotated[Size, Field(gt=0)] | None = None
    max_files: Annotated[Whole, Field(gt=0)] | None = None
    max_delay: Duration | None = None  # seconds
    max_record_bytes: Annotated[Size, Field(gt=0)] | None = None


class ProcessorConfig(Model):
    id: Id
    plugin: Annotated[str, Field(min_length=1)]
    condition: str = ""  # empty = every record
    settings: dict[str, str] = {}
    workers: Annotated[Whole, Field(gt=0)] = 1


class ConnectorConfig(Model):
    id: Id
    type: Literal["source", "destination"]
    plugin: Annotated[str, Field(min_length=1)]
    name: str = ""
    settings: dict[str, str] = {}
    processors: tuple[ProcessorConfig, ...] = ()
    batch: BatchConfig = BatchConfig()


class DeadLetterQueueConfig(Model):
    """The gate's window, and a destination for dead letters besides the state folder."""

    plugin: Annotated[str, Field(min_length=1)] | None = None  # None = the state folder alone
    settings: dict[str, str] = {}
    window_size: Annotated[Whole, Field(ge=0)] = 1  # 0 = no limit
    window_nack_threshold: Annotated[Whole, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> DeadLetterQueueConfig:
        if 0 < self.window_size <= self.window_nack_threshold:
            raise ValueError("must have a 'window-nack-threshold' lower than its 'window-size'")
        if self.settings and self.plugin is None:
            raise ValueError("must name the 'plugin' that takes its 'settings'")
        return self


class PipelineConfig(Model):
    id: Id
    status: Literal["running", "stopped"] = "running"
    name: str = ""
    description: str = ""
    guarantee: Literal["exactly-once", "at-least-once", "at-most-once"] = "exactly-once"
    connectors: tuple[ConnectorConfig, ...] = ()
    processors: tuple[ProcessorConfig, ...] = ()
    dead_letter_queue: DeadLetterQueueConfig = DeadLetterQueueConfig()


class File(Model):
    version: Literal["2.0", "2.1", "2.2"]
    pipelines: Annotated[tuple[PipelineConfig, ...], AfterValidator(_not_empty)]
