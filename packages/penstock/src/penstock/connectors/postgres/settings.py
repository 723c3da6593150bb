"""Settings of `postgres`, declared once. No Spark."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Settings
from penstock.connectors.files.settings import Declared

_NAME = re.compile(r"[^\W\d][\w$]{0,62}")


def _table(value: str) -> str:
    parts = value.split(".")
    if len(parts) > 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError("must be the name of a table, `orders` or `sales.orders`, as Postgres stores it")
    return value


def _names(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise ValueError("must be names of columns with commas between them, each once")
    return ", ".join(names)


class PostgresDestinationSettings(Settings):
    """Writes typed records into a table of Postgres, exactly once.

    A batch is copied into a staging table by all tasks at once; then one transaction moves it into the table, together with the name of the
    delivery. A row that the table does not take is a nack of its own, and costs no other row.
    """

    url: str = Field(
        min_length=1,
        description="Where the database is: `postgresql://user@host:5432/name`, or `host=… dbname=…`. Give a password by reference:"
        " `${PGPASSWORD}`.",
    )
    table: Annotated[str, AfterValidator(_table)] = Field(
        description="The table, with its schema if it is not on the search path: `orders`, `sales.orders`."
    )
    mode: Literal["insert", "upsert"] = Field(
        "insert",
        description="`insert` adds a row for each record. `upsert` keeps one row for each `key`: the last record wins, and a record whose"
        " operation is `delete` deletes its row.",
    )
    key: Annotated[str, AfterValidator(_names)] | None = Field(
        None,
        description="upsert: the columns of the key, with commas between them. The table needs a unique index on them.",
    )
    create: bool = Field(
        False,
        description="Make the table from the fields of the records, where it is missing, with `key` as its primary key.",
    )
    schema_: Declared | None = Field(
        None, alias="schema", description="The fields that open payloads are given; what does not fit is a nack."
    )
    bookkeeping: Annotated[str, AfterValidator(_table)] = Field(
        "_penstock",
        description="The schema for staging tables and for the names of deliveries; it is made when it is missing.",
    )

    @model_validator(mode="after")
    def _upsert_needs_a_key(self) -> PostgresDestinationSettings:
        if (self.mode == "upsert") != (self.key is not None):
            raise ValueError("must have both `mode: upsert` and `key`, or neither")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key.split(", ")) if self.key else ()
