"""Settings of `jdbc`, declared once. No Spark."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Duration, Settings

# The system in a url → the class of its driver. Others are named by `driver`.
DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "h2": "org.h2.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
_URL = re.compile(r"jdbc:([a-z][a-z0-9+_-]*):.+", re.DOTALL)
_PASSWORD = re.compile(r"[?&;:]password=|//[^/?@]*:[^/?@]*@", re.IGNORECASE)


def _url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError("must be a JDBC url such as jdbc:postgresql://host:5432/name")
    if _PASSWORD.search(value):
        raise ValueError("must not hold a password: give it in `password`, by reference")
    return value


def _table(value: str) -> str:
    if not all(part.strip() for part in value.split(".")) or '"' in value or "`" in value:
        raise ValueError("must be the name of a table, `orders` or `sales.orders`, without quotes")
    return value


def _query(value: str) -> str:
    text = value.strip().removesuffix(";").strip()
    if not re.match(r"(select|with)\b", text, re.IGNORECASE):
        raise ValueError("must be one SELECT")
    return text


def _names(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise ValueError("must be names of columns with commas between them, each once")
    return ", ".join(names)


class JdbcSourceSettings(Settings):
    """Reads a table or a query of a database: once, or what is new by a column that only grows.

    Rows are read in ranges of their key, by several tasks at once. Without `incremental` the table is read once. What this source can't
    see, such as deletes, is on its page.
    """

    url: Annotated[str, AfterValidator(_url)] = Field(
        description="Where the database is: `jdbc:postgresql://host:5432/name`."
    )
    user: str | None = Field(None, min_length=1, description="Who connects.")
    password: str | None = Field(None, repr=False, description="By reference: `${PGPASSWORD}`.")
    driver: str | None = Field(
        None,
        min_length=1,
        description="The class of the JDBC driver, where the url does not say it. Only Postgres's driver is fetched by itself.",
    )
    table: Annotated[str, AfterValidator(_table)] | None = Field(
        None, description="The table, with its schema if needed: `orders`, `sales.orders`. This or `query`."
    )
    query: Annotated[str, AfterValidator(_query)] | None = Field(
        None, description="A SELECT, instead of a table. Its columns need names of their own."
    )
    key: Annotated[str, AfterValidator(_names)] = Field(
        description="The columns that together identify a row, with commas between them. None of them may be NULL."
    )
    incremental: str | None = Field(
        None, min_length=1, description="A column that only grows, a number or a timestamp: what is new is read by it."
    )
    lag: Duration = Field(
        5.0,
        description="incremental: how long a value has to have been there before rows up to it are read. Longer than the longest"
        " transaction that writes to the table, or rows that are committed late are missed.",
    )
    poll: Duration = Field(5.0, description="incremental: how long to wait before looking again where nothing was new.")
    partition_rows: int = Field(100_000, ge=1, description="Rows that one task reads, over a connection of its own.")
    fetch_size: int = Field(10_000, ge=1, description="Rows that the driver gets from the database at a time.")
    on_change: Literal["stop", "reread"] = Field(
        "stop",
        description="When rows of a batch change between its planning and its end: `stop`, or plan the batch anew and read again.",
    )

    @model_validator(mode="after")
    def _fits(self) -> JdbcSourceSettings:
        if (self.table is None) == (self.query is None):
            raise ValueError("must have `table` or `query`, and not both")
        if self.driver is None and self.system not in DRIVERS:
            raise ValueError(f"must have a `driver`: it is not known which class connects to {self.system}")
        return self

    @property
    def system(self) -> str:
        """What kind of database: `postgresql`."""
        found = _URL.fullmatch(self.url)
        return found[1] if found else ""

    @property
    def driver_class(self) -> str:
        return self.driver or DRIVERS[self.system]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key.split(", "))

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which rows are read: a total order, since the key is in it."""
        first = (self.incremental,) if self.incremental else ()
        return (*first, *(name for name in self.keys if name != self.incremental))

    @property
    def name(self) -> str:
        """Of what is read, in the ledger and in messages."""
        return self.table or "query"
