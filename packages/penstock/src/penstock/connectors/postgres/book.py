"""What `postgres` writes down in the database: the last delivery of each lane, and what the tasks of an attempt have copied. No Spark.

<bookkeeping>.delivery            a row for each pipeline, source and destination: hash, receipt, fence; how far it is where it stopped
<bookkeeping>.copied              a row for each task of an attempt that has copied its rows, in the transaction that copied them
<bookkeeping>.s_<place>_<hash>_…  the rows of an attempt: a table without rows of its own, and below it one of each task
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.database import quoted, staging_prefix
from penstock.errors import Stop
from penstock.native import DeliveryId
from penstock.testing import faults

if TYPE_CHECKING:
    from psycopg import Connection

VERSION = 1
_LOCK = 7_305_801_000  # of the making of tables: two that begin at once would hit each other
WAIT = "2s"  # for a task of a dead attempt that still holds its staging table


class Book:
    """`schema` as the settings name it."""

    def __init__(self, schema: str) -> None:
        self.schema = quoted(schema)
        self._name = schema

    def make(self, c: Connection[Any]) -> None:
        """Idempotent. A book of a newer version is refused."""
        c.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        c.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        c.execute(
            f"CREATE TABLE IF NOT EXISTS {self.schema}.delivery (pipeline text, lane text, destination text, version int NOT NULL,"
            " epoch bigint NOT NULL, fence bigint NOT NULL, batch bigint NOT NULL, hash text NOT NULL, receipt jsonb, progress jsonb,"
            " at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, lane, destination))"
        )
        c.execute(
            f"CREATE TABLE IF NOT EXISTS {self.schema}.copied (staging text, partition int, rows bigint NOT NULL,"
            " PRIMARY KEY (staging, partition))"
        )
        newest = c.execute(f"SELECT max(version) FROM {self.schema}.delivery").fetchone()
        if newest and newest[0] is not None and newest[0] > VERSION:
            raise Stop(
                f"The tables in {self._name!r} are of a newer version of Penstock",
                code="postgres.version",
                why=f"they have version {newest[0]}, and this one knows {VERSION}",
                hint="use the newer version, or another schema in `bookkeeping`",
            )

    # -- staging -------------------------------------------------------------------------------------------------------------

    def make_staging(self, c: Connection[Any], staging: str, columns: str) -> None:
        c.execute(f'CREATE TABLE {self.schema}.{quoted(staging)} (_seq bigint, _part int, _op "char", {columns})')

    def copied(self, c: Connection[Any], staging: str) -> dict[int, int]:
        """Rows by task."""
        found = c.execute(f"SELECT partition, rows FROM {self.schema}.copied WHERE staging = %s", [staging])
        return dict(found.fetchall())

    def drop(self, c: Connection[Any], d: DeliveryId) -> None:
        """Everything that attempts at this delivery have staged. What a task of a dead attempt still holds stays for the next time."""
        import psycopg

        prefix = staging_prefix(d)
        names = c.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname, %s) ORDER BY length(c.relname)",
            [self._name, prefix],
        ).fetchall()
        c.execute(f"SET LOCAL lock_timeout = '{WAIT}'")
        for (name,) in names:
            try:
                with c.transaction():
                    c.execute(f"DROP TABLE IF EXISTS {self.schema}.{quoted(name)} CASCADE")
                    c.execute(f"DELETE FROM {self.schema}.copied WHERE staging = %s", [name])
            except psycopg.errors.LockNotAvailable:
                continue

    # -- deliveries ----------------------------------------------------------------------------------------------------------

    def found(self, c: Connection[Any], d: DeliveryId) -> tuple[Any, Any] | None:
        """Receipt and progress of this delivery, if it was the last one."""
        row = c.execute(
            f"SELECT receipt, progress FROM {self.schema}.delivery"
            " WHERE pipeline = %s AND lane = %s AND destination = %s AND hash = %s",
            [d.pipeline, d.lane, d.destination, d.hash],
        ).fetchone()
        return (row[0], row[1]) if row is not None else None

    def last(self, c: Connection[Any], d: DeliveryId) -> tuple[str, int, int, Any, Any] | None:
        """Of the last delivery of this lane: hash, batch, epoch, receipt and progress. None where there is none, or no book."""
        place = f"{self.schema}.delivery"
        if not c.execute("SELECT to_regclass(%s) IS NOT NULL", [place]).fetchone()[0]:  # type: ignore[index]
            return None
        return c.execute(
            f"SELECT hash, batch, epoch, receipt, progress FROM {place}"
            " WHERE pipeline = %s AND lane = %s AND destination = %s",
            [d.pipeline, d.lane, d.destination],
        ).fetchone()

    def take(self, c: Connection[Any], d: DeliveryId) -> None:
        """The row of the lane is ours until the transaction ends. An engine that was replaced is refused."""
        place = [d.pipeline, d.lane, d.destination]
        c.execute(
            f"INSERT INTO {self.schema}.delivery (pipeline, lane, destination, version, epoch, fence, batch, hash)"
            " VALUES (%s, %s, %s, %s, %s, %s, -1, '') ON CONFLICT DO NOTHING",
            [*place, VERSION, d.epoch, d.fence],
        )
        row = c.execute(
            f"SELECT epoch, fence, batch FROM {self.schema}.delivery WHERE pipeline = %s AND lane = %s AND destination = %s FOR UPDATE",
            place,
        ).fetchone()
        assert row is not None
        epoch, fence, batch = row
        if epoch == d.epoch and fence > d.fence and faults.safeguard("fence"):
            raise Stop(
                f"{d.destination}: a newer engine has taken over this pipeline",
                code="postgres.fenced",
                why=f"it has written batch {batch} with fence {fence}; this one has {d.fence}",
                hint="end this engine; the other one goes on. If the state folder was restored from a backup, the table is ahead of it",
            )

    def note(self, c: Connection[Any], d: DeliveryId, receipt: Any, progress: Any) -> None:
        from psycopg.types.json import Jsonb

        def json(found: Any) -> Any:
            return None if found is None else Jsonb(found)

        c.execute(
            f"UPDATE {self.schema}.delivery SET version = %s, epoch = %s, fence = %s, batch = %s, hash = %s, receipt = %s, progress = %s,"
            " at = now() WHERE pipeline = %s AND lane = %s AND destination = %s",
            [
                VERSION,
                d.epoch,
                d.fence,
                d.batch,
                d.hash,
                json(receipt),
                json(progress),
                d.pipeline,
                d.lane,
                d.destination,
            ],
        )
