"""`postgres` as a destination: exactly once. Spark's tasks COPY into a staging table of the attempt; then one transaction of the engine
moves the rows into the table, and writes down the delivery's hash with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import record
from penstock.connectors.files.json import WithSchema
from penstock.connectors.postgres import columns as pg
from penstock.connectors.postgres.book import Book
from penstock.connectors.postgres.database import connected, identifier, part_table, quoted, staging_table
from penstock.connectors.postgres.merging import Merge, Progress, Target
from penstock.connectors.postgres.settings import PostgresDestinationSettings
from penstock.connectors.postgres.witness import witness
from penstock.errors import Stop
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Processor,
    Receipt,
    Refuse,
    Shape,
    Staged,
    Witnessed,
)
from penstock.testing import faults

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

NO_PAYLOAD = "it has no payload to make a row of"
NO_KEY = "it is a delete, and has no key: neither `before` nor the payload has the fields of `key`"
DELETES = "it is a delete: set `mode: upsert` and a `key` to delete rows"


class PostgresDestination(ExactlyOnceDestination[PostgresDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset(
        {record.SEQ, record.PART, record.OPERATION, record.BEFORE, record.AFTER}
    )
    shapes: ClassVar[frozenset[Shape]] = frozenset({Shape.TYPED})
    takes_sound: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = True
    keeps_refused: ClassVar[bool] = True

    def __init__(self, settings: PostgresDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self._book = Book(settings.bookkeeping)
        if settings.schema_ is not None:
            self.shapes = frozenset({Shape.TYPED, Shape.OPEN})  # type: ignore[misc]

    def check(self) -> None:
        refuse_without_client()
        with connected(self.settings.url) as c:
            self._book.make(c)

    def processors_for(self, shape: Shape) -> tuple[Processor[Any], ...]:
        schema = self.settings.schema_
        return (WithSchema(schema, self.destination_id),) if schema is not None and shape is Shape.OPEN else ()

    def unfit(
        self, columns: Mapping[str, Column], shape: Shape, schema: StructType, *, sound: bool = False
    ) -> Column | None:
        from pyspark.sql import functions as F

        del shape
        after, deletes = columns[record.AFTER], columns[record.OPERATION] == F.lit("delete")
        fields: StructType = schema[record.AFTER].dataType  # type: ignore[assignment]
        found = pg.unfit(fields, after, sound=sound)
        if self.settings.keys:
            known = [self._key(columns, schema, name).isNotNull() for name in self.settings.keys]
            has_key = known[0]
            for one in known[1:]:
                has_key = has_key & one
            found += [(deletes & ~has_key, NO_KEY), (~deletes & after.isNull(), NO_PAYLOAD)]
        else:
            found += [(deletes, DELETES), (after.isNull(), NO_PAYLOAD)]
        return F.coalesce(*(F.when(bad, F.lit(why)) for bad, why in found))

    def _key(self, columns: Mapping[str, Column], schema: StructType, name: str) -> Column:
        """A field of the key: of a delete, what was there before says it best."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType as Struct

        places = []
        for part in (record.AFTER, record.BEFORE):
            kind = schema[part].dataType if part in schema.names else None
            if isinstance(kind, Struct) and name in kind.names:
                places.append(columns[part].getField(name))
        if not places:
            raise Stop(
                f"The records have no field {name!r}, which is in `key`",
                code="postgres.key",
                hint="correct `key`, or the processors before this destination",
            )
        return F.coalesce(*places)

    # -- staging -------------------------------------------------------------------------------------------------------------

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import functions as F

        assert d.rows is not None
        fields: StructType = d.rows.schema[record.AFTER].dataType  # type: ignore[assignment]
        staging = staging_table(d, d.attempt_id)
        types = ", ".join(f"{identifier(f.name)} {pg.type_of(f)}" for f in fields.fields)
        with connected(self.settings.url) as c:
            self._book.make(c)
            if self.settings.create:
                self._create(c, types)
            Target.look(c, self.settings.table, fields.names, self.settings.keys)
            self._book.make_staging(c, staging, types)
        faults.reach("K6a", "staging table")
        here = {name: F.col(name) for name in d.rows.columns}
        copy = Copy(self.settings.url, self._book, staging, tuple(fields.names))
        lines = d.rows.select(self._line(here, d.rows.schema, fields).alias("line"))
        copied = {row["partition"]: row["rows"] for row in lines.mapInArrow(copy, "partition int, rows long").collect()}
        with connected(self.settings.url) as c:
            there = self._book.copied(c, staging)
        if copied != there and faults.safeguard("account"):
            raise Stop(
                f"{self.destination_id}: what the tasks say they have copied is not what the database has",
                code="postgres.staged",
                why=f"{sum(copied.values())} rows by {len(copied)} tasks, and {sum(there.values())} by {len(there)}",
                hint="nothing was delivered; start again",
            )
        parts = [part_table(staging, partition) for partition in sorted(there)] if d.ordered else []
        return Staged(sum(there.values()), 0, {"staging": staging, "columns": fields.names, "parts": parts})

    def _create(self, c: Any, types: str) -> None:
        key = f", PRIMARY KEY ({', '.join(map(identifier, self.settings.keys))})" if self.settings.keys else ""
        c.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self.settings.table)} ({types}{key})")

    def _line(self, columns: Mapping[str, Column], schema: StructType, fields: StructType) -> Column:
        """A row of COPY's text format, with its end."""
        from pyspark.sql import functions as F

        def value(f: Any) -> Column:
            keyed = f.name in self.settings.keys
            found = self._key(columns, schema, f.name) if keyed else columns[record.AFTER].getField(f.name)
            return pg.value(f.dataType, found)

        operation = F.when(columns[record.OPERATION] == F.lit("delete"), F.lit("d")).otherwise(F.lit("u"))
        own = [columns[record.SEQ].cast("string"), columns[record.PART].cast("string"), operation]
        return F.concat(F.concat_ws("\t", *own, *(value(f) for f in fields.fields)), F.lit("\n"))

    # -- commit --------------------------------------------------------------------------------------------------------------

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        staging = f"{self._book.schema}.{quoted(s.manifest['staging'])}"
        with connected(self.settings.url) as c:
            self._book.take(c, d)
            known = self._book.found(c, d)
            if known is not None and known[0] is not None and faults.safeguard("postgres-note"):
                return Receipt.from_json(known[0])
            progress = Progress.from_json(known[1]) if known is not None and known[1] is not None else Progress()
            self._look(c, s, staging)
            target = Target.look(c, self.settings.table, s.manifest["columns"], self.settings.keys)
            c.execute("SET CONSTRAINTS ALL IMMEDIATE")
            parts = tuple(f"{self._book.schema}.{quoted(name)}" for name in s.manifest.get("parts", ()))
            Merge(c, target, staging, refuse, parts)(progress)
            refused = tuple(progress.refused)
            if not progress.stopped and progress.written + len(refused) != s.rows:
                raise self._lost(s, staging, f"{progress.written + len(refused)} rows")
            if progress.stopped:
                receipt = Receipt(progress.written, refused=refused, stopped_at=progress.at[0])
                self._book.note(c, d, None, progress.to_json())
            else:
                receipt = Receipt(progress.written, refused=refused, made=(self.settings.table,))
                self._book.note(c, d, receipt.to_json(), None)
            faults.reach("K6a", "moved")
        faults.reach("K6a", "committed")
        if receipt.stopped_at is None:
            self.discard(d)
        return receipt

    def _look(self, c: Any, s: Staged, staging: str) -> None:
        if not c.execute("SELECT to_regclass(%s) IS NOT NULL", [staging]).fetchone()[0]:
            raise self._lost(s, staging, "no such table is there")

    def _lost(self, s: Staged, staging: str, there: str) -> Stop:
        return Stop(
            f"{self.destination_id}: what was staged is not there any more",
            code="postgres.staged",
            why=f"{s.rows} rows were copied into {staging}, and now: {there}",
            hint="restore the database to a state in which the staging table is there; nothing of the batch was written",
        )

    def find(self, d: DeliveryId) -> Receipt | None:
        with connected(self.settings.url) as c:
            known = self._book.found(c, d)
        return Receipt.from_json(known[0]) if known is not None and known[0] is not None else None

    def discard(self, d: DeliveryId) -> None:
        with connected(self.settings.url) as c:
            self._book.drop(c, d)

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        refuse_without_client()
        with connected(self.settings.url) as c:
            c.execute("SET TRANSACTION READ ONLY")
            yield from witness(c, self._book, self.settings, deliveries, known)


def refuse_without_client() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as e:
        raise Stop(
            "The destination `postgres` needs psycopg",
            code="postgres.client",
            why=str(e),
            hint="pip install 'penstock[postgres]'",
        ) from e


@dataclass(frozen=True)
class Copy:
    """Sent to Spark's tasks. A task that runs twice copies once: what it has copied and that it has are one transaction. Each has a
    table of its own, below that of the attempt: so rows are there in their order, and need not be sorted."""

    url: str
    book: Book
    staging: str
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        rows = self.copy(partition, batches)
        yield pa.RecordBatch.from_pydict({"partition": pa.array([partition], pa.int32()), "rows": pa.array([rows])})

    def copy(self, partition: int, batches: Iterator[pa.RecordBatch]) -> int:
        schema = self.book.schema
        with connected(self.url) as c:
            c.execute("SET LOCAL synchronous_commit = on")
            mine = c.execute(  # waits for another attempt of this task that is at it
                f"INSERT INTO {schema}.copied VALUES (%s, %s, 0) ON CONFLICT DO NOTHING RETURNING 1",
                [self.staging, partition],
            ).fetchone()
            if mine is None:
                for _ in batches:
                    pass
                return self.book.copied(c, self.staging)[partition]
            names = ", ".join(map(identifier, self.columns))
            attempt = f"{schema}.{quoted(self.staging)}"
            part = f"{schema}.{quoted(part_table(self.staging, partition))}"
            c.execute(f"CREATE TABLE {part} (LIKE {attempt})")  # from now on nobody can drop that of the attempt
            with c.cursor() as cursor:
                with cursor.copy(f"COPY {part} (_seq, _part, _op, {names}) FROM STDIN (FREEZE)") as copy:
                    for batch in batches:
                        copy.write(_bytes(batch.column(0)))
                rows = cursor.rowcount
            c.execute(f"ALTER TABLE {part} INHERIT {attempt}")
            c.execute(
                f"UPDATE {schema}.copied SET rows = %s WHERE staging = %s AND partition = %s",
                [rows, self.staging, partition],
            )
        return rows


def _bytes(lines: pa.Array) -> memoryview:
    """All lines as they lie in memory, one behind the other."""
    import numpy as np

    _, ends, data = lines.buffers()
    offsets = np.frombuffer(ends, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None and len(lines) else memoryview(b"")
