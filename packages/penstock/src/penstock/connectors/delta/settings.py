"""Settings of `delta`, declared once. No Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Settings
from penstock.connectors.files.settings import Declared

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def _path(value: str) -> str:
    if value.lower().startswith("file:"):
        raise ValueError("must be a plain path, without 'file:'")
    return value


def _names(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise ValueError("must be names of columns with commas between them, each once")
    return ", ".join(names)


class DeltaDestinationSettings(Settings):
    """Writes typed records into a Delta table, exactly once.

    Tasks write a batch as Parquet where no reader of the table sees it; then one commit of the table has the rows and the name of the
    delivery.
    """

    path: Annotated[str, AfterValidator(_path)] | None = Field(
        None,
        min_length=1,
        description="The folder of the table: `./orders`, `s3a://lake/orders`. The table is made where there is none.",
    )
    table: str | None = Field(
        None,
        min_length=1,
        description="Instead of `path`: the name of a table that Spark's catalog has, `sales.orders`. It is not made.",
    )
    mode: Literal["append", "upsert"] = Field(
        "append",
        description="`append` adds a row for each record. `upsert` keeps one row for each `key`: the last record wins, and a record whose"
        " operation is `delete` deletes its row.",
    )
    key: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="upsert: the columns of the key, with commas between them."
    )
    partition_by: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="The columns that a new table is partitioned by, with commas between them."
    )
    merge_schema: bool = Field(
        False,
        description="Add columns to the table for fields that it does not have. Otherwise such a field is an error.",
    )
    schema_: Declared | None = Field(
        None, alias="schema", description="The fields that open payloads are given; what does not fit is a nack."
    )

    @model_validator(mode="after")
    def _one_place_and_a_key_where_needed(self) -> DeltaDestinationSettings:
        if (self.path is None) == (self.table is None):
            raise ValueError("must have either `path` or `table`")
        if (self.mode == "upsert") != (self.key is not None):
            raise ValueError("must have both `mode: upsert` and `key`, or neither")
        if self.table is not None and self.partition_by is not None:
            raise ValueError("must not have `partition-by` with `table`: that table is there already")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key.split(", ")) if self.key else ()

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self.partition_by.split(", ")) if self.partition_by else ()

    @property
    def root(self) -> str | None:
        """The folder as Hadoop is told it."""
        if self.path is None or _SCHEME.match(self.path):
            return self.path
        return str(Path(self.path).absolute())

    @property
    def local(self) -> Path | None:
        """The folder, where it is on a file system of this machine."""
        return Path(self.path).absolute() if self.path is not None and not _SCHEME.match(self.path) else None
