"""A pipeline as it is declared: the shape Conduit users know, and what Penstock adds. Plain frozen data, no behaviour.

YAML keys are written with dashes, fields with underscores. Strings in `settings` and `condition` still hold their
references (`${X}`): values are made by `expand` when a connector is built, and are never stored here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from penstock.config.base import Model, Written, kebab
from penstock.config.tests import TestConfig
from penstock.config.units import Duration, Size

__all__ = [
    "BatchConfig",
    "ConnectorConfig",
    "DeadLetterQueueConfig",
    "File",
    "LogConfig",
    "Model",
    "PipelineConfig",
    "ProcessorConfig",
    "RetentionConfig",
    "kebab",
]

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def _id_at_most(limit: int) -> Callable[[str], str]:
    """Ids are parts of file names, so of all that Conduit allows they have only what is safe there."""

    def check(value: str) -> str:
        if len(value) > limit or not _ID.fullmatch(value):
            raise ValueError(f"must be 1 to {limit} letters, digits, '_', '-' or '.', and must not start with '.'")
        return value

    return check


def _bytes_at_most(limit: int) -> Callable[[str], str]:
    def check(value: str) -> str:
        if len(value.encode()) > limit:
            raise ValueError(f"must be at most {limit} bytes of UTF-8")
        return value

    return check


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports a ValueError, not a TypeError
    return value


# The limits are Conduit's; a connector's counts the pipeline's id and a colon before its own.
PipelineId = Annotated[str, AfterValidator(_id_at_most(128))]
ConnectorId = Annotated[str, AfterValidator(_id_at_most(254))]
ProcessorId = Annotated[str, AfterValidator(_id_at_most(256))]
Whole = Annotated[int, BeforeValidator(_no_bool)]
Plugin = Annotated[str, Field(min_length=1)]
Description = Annotated[str, AfterValidator(_bytes_at_most(8192))]


class BatchConfig(Model):
    """Where a batch of this source is cut. None leaves it to the engine."""

    max_records: Annotated[Whole, Field(gt=0)] | None = Field(
        None, description="At most this many records. Left out: no limit."
    )
    max_bytes: Annotated[Size, Field(gt=0)] | None = Field(
        None, description="At most this many bytes, as they are on disk."
    )
    max_files: Annotated[Whole, Field(gt=0)] | None = Field(None, description="At most this many files.")
    max_delay: Duration | None = Field(
        None, description="A batch that is not full waits this long for more. `--once` does not wait."
    )
    max_record_bytes: Annotated[Size, Field(gt=0)] | None = Field(
        None,
        description="A raw record that is larger is a nack, with its size and its place and without its payload.",
    )


@cache
def _no_limits() -> BatchConfig:
    return BatchConfig()  # one for all: a default that is given as such is copied for every connector


class LogConfig(Model):
    """The commit log between a source in a process of its own and Spark. None leaves it to the engine."""

    max_size: Annotated[Size, Field(ge=1 << 20)] | None = Field(
        None,
        description="At most this much on disk (default 1GiB). A log that is full makes its source wait.",
    )
    resend_window: Annotated[Whole, Field(ge=0)] | None = Field(
        None,
        description="What a source sends again is recognised among so many of its last records (default 100000).",
    )
    compression: Literal["none", "zstd"] | None = Field(
        None, description="`zstd` makes the log smaller where the disk is slower than the processor (default `none`)."
    )


@cache
def _no_log() -> LogConfig:
    return LogConfig()


class ProcessorConfig(Model):
    id: ProcessorId = Field(description="Unique in the pipeline, over all connectors; dead letters name it.")
    plugin: Plugin = Field(description="The processor's name, e.g. `json.decode`; `builtin:json.decode` is the same.")
    condition: str = Field(
        "",
        description="The processor is for the records for which this is true; the others pass. SQL over the columns of the"
        " record, where NULL is false; what holds `{{` is a Go template. Empty: for all.",
    )
    namespaces: str = Field(
        "",
        description="A Java regular expression: the processor is for the records whose namespace holds a match; the others"
        " pass. Empty: for all.",
    )
    settings: dict[str, str] = Field({}, description="The processor's own.")
    workers: Annotated[Written, AfterValidator(lambda n: n or 1)] = Field(
        1,
        description="Accepted as in Conduit, and without effect: Spark decides how much runs at a time, and order is kept.",
    )


class ConnectorConfig(Model):
    id: ConnectorId = Field(description="Unique in the pipeline. A source's is part of the names of output files.")
    type: Literal["source", "destination"] = Field(description="Which of the two it is.")
    plugin: Plugin = Field(description="The connector's name, e.g. `files`; `builtin:files` is the same.")
    name: Annotated[str, AfterValidator(_bytes_at_most(256))] = Field("", description="For people.")
    settings: dict[str, str] = Field({}, description="The plugin's own.")
    processors: tuple[ProcessorConfig, ...] = Field(
        (),
        description="Of a source: for its records, before those of the pipeline. Of a destination: for what goes there, after"
        " them.",
    )
    batch: BatchConfig = Field(
        default_factory=_no_limits,
        description="Where a batch of this source is cut. Of a destination in a process of its own: how many records it is sent at once"
        " (`max-records`, default 1000).",
    )
    ordering: Literal["source", "key", "none"] | None = Field(
        None,
        description="Of a destination in a process of its own: in which order records arrive. `source`: as the source gave them. `key`:"
        " those with the same key do. `none`: any. The latter two are sent by several tasks (default `source`).",
    )
    log: LogConfig = Field(
        default_factory=_no_log, description="Of a source in a process of its own: the log that it goes through."
    )


class DeadLetterQueueConfig(Model):
    """The gate's window, and a destination for dead letters besides the state folder."""

    plugin: Annotated[str | None, AfterValidator(lambda name: name or None)] = Field(
        None,
        description="A destination that gets every dead letter, e.g. `log`. Without it they are in the state folder alone.",
    )
    settings: dict[str, str] = Field({}, description="The plugin's own.")
    window_size: Written = Field(
        1,
        description="How many of the last records are looked at. 0: no limit, the pipeline never stops for bad records.",
    )
    window_nack_threshold: Written = Field(
        0, description="How many of those may be bad; one more stops the pipeline. Lower than `window-size`."
    )

    @model_validator(mode="after")
    def _consistent(self) -> DeadLetterQueueConfig:
        if 0 < self.window_size <= self.window_nack_threshold:
            raise ValueError("must have a 'window-nack-threshold' lower than its 'window-size'")
        if self.settings and self.plugin is None:
            raise ValueError("must name the 'plugin' that takes its 'settings'")
        return self


@cache
def _no_queue() -> DeadLetterQueueConfig:
    return DeadLetterQueueConfig()


class RetentionConfig(Model):
    """For how long the ledger can say of a single record what became of it. Totals and dead letters stay in any case."""

    batches: Annotated[Whole, Field(ge=100)] = Field(
        1000,
        description="The last so many settled batches of each source, at least 100: what `penstock trace` and `penstock pipelines`"
        " look at.",
    )


@cache
def _usual_retention() -> RetentionConfig:
    return RetentionConfig()


class PipelineConfig(Model):
    id: PipelineId = Field(
        description="Unique over all files of a run. Part of the names of output files and of the state: another id is another"
        " pipeline, which starts from the beginning."
    )
    status: Annotated[
        Literal["running", "stopped"], BeforeValidator(lambda given: "running" if given == "" else given)
    ] = Field("running", description="`stopped`: the pipeline is checked and not run.")
    name: Annotated[str, AfterValidator(_bytes_at_most(128))] = Field("", description="For people.")
    description: Description = Field("", description="For people.")
    guarantee: Literal["exactly-once", "at-least-once", "at-most-once"] = Field(
        "exactly-once", description="What is promised about every record at every destination."
    )
    connectors: tuple[ConnectorConfig, ...] = Field((), description="At least one source and one destination.")
    processors: tuple[ProcessorConfig, ...] = Field((), description="What every record goes through, in this order.")
    dead_letter_queue: DeadLetterQueueConfig = Field(
        default_factory=_no_queue,
        description="How many bad records are borne, and where they go besides the state folder.",
    )
    retention: RetentionConfig = Field(
        default_factory=_usual_retention, description="How many batches the ledger keeps for people to look at."
    )
    tests: tuple[TestConfig, ...] = Field(
        (), description="Records that go in, and what is expected of them: what `penstock test` checks."
    )


class File(Model):
    """A document of a pipeline file."""

    version: Literal["2.0", "2.1", "2.2"] = Field(description='The version of the format. Write "2.2".')
    pipelines: tuple[PipelineConfig, ...] = Field((), description="The pipelines.")
