"""The database as `postgres` sees it: names, connections, and which errors are whose fault. No Spark; psycopg is imported late."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, Retry, Stop
from penstock.native import DeliveryId

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT = 10  # seconds
# Classes of SQLSTATE. Of a row: data that does not fit, constraints, what a trigger raises.
OF_A_ROW = ("22", "23", "P0")
TRANSIENT = ("08", "40", "53", "55", "57", "58")
# What a server says to somebody who wants to connect: there is no code then.
_REFUSED = (
    "does not exist",
    "authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "is not permitted to log in",
)


def quoted(name: str) -> str:
    """A name, or one with its schema."""
    return ".".join(f'"{part}"' for part in name.replace('"', '""').split("."))


def identifier(name: str) -> str:
    """The name of one column, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def staging_table(d: DeliveryId, attempt_id: str) -> str:
    """Unique for an attempt, and within the 63 bytes that Postgres has for a name."""
    return f"{staging_prefix(d)}{hashlib.sha256(attempt_id.encode()).hexdigest()[:12]}"


def part_table(staging: str, partition: int) -> str:
    """What one task of the attempt has copied."""
    return f"{staging}_{partition}"


def staging_prefix(d: DeliveryId) -> str:
    """Of all attempts at a delivery."""
    place = hashlib.sha256("\0".join((d.pipeline, d.lane, d.destination)).encode()).hexdigest()[:12]
    return f"s_{place}_{d.hash}_"


@contextmanager
def connected(url: str) -> Iterator[Connection[Any]]:
    """One transaction; its errors as what the caller should do."""
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=CONNECT, application_name="penstock") as connection:
            yield connection
    except psycopg.Error as e:
        raise trouble(e) from e


def is_of_a_row(error: Any) -> bool:
    return (error.sqlstate or "").startswith(OF_A_ROW)


def trouble(error: Any) -> PenstockError:
    """Without the url: it may hold a password."""
    state = error.sqlstate or ""
    words = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
    if not state and any(said in words for said in _REFUSED):
        return Stop(
            f"Postgres does not let us in: {words}",
            code="postgres.access",
            hint="check user, password and database in `url`",
        )
    if not state or state.startswith(TRANSIENT):
        return Retry(
            f"Postgres can't be reached, or has ended the work: {words}",
            code="postgres.connection",
            hint="see that it runs, and that it can be reached from here and from Spark's tasks",
        )
    if state.startswith("28"):
        return Stop(
            f"Postgres does not let us in: {words}", code="postgres.access", hint="check user and password in `url`"
        )
    if state == "42501":
        return Stop(
            f"Postgres refuses: {words}",
            code="postgres.access",
            hint="the user needs INSERT, UPDATE and DELETE on the table, and CREATE on the database or USAGE and CREATE on the schema in"
            " `bookkeeping`",
        )
    more = error.diag.message_hint or error.diag.message_detail
    return Stop(
        f"Postgres says: {words}",
        code="postgres.failed",
        why=more,
        hint=f"its code is {state}; nothing of the batch was written",
    )
