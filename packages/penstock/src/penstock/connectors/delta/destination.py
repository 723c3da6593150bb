"""`delta` as a destination: exactly once.

    <table>/_penstock/<pipeline>.<lane>/<hash>/<attempt id>/     staging: Parquet; Delta's readers and VACUUM pass over `_*`

Tasks stage a batch as Parquet. The commit reads exactly these files and makes one commit of the table: rows, the transaction by which
Delta refuses a batch a second time, and a note with the delivery's hash, fence and receipt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import fs, record
from penstock.connectors.delta.commits import append, merge, noted
from penstock.connectors.delta.notes import Note, app_id
from penstock.connectors.delta.rules import broken
from penstock.connectors.delta.settings import DeltaDestinationSettings
from penstock.connectors.delta.shaping import fit, location, no_rows
from penstock.connectors.delta.table import Table
from penstock.connectors.delta.trouble import explained
from penstock.connectors.delta.witness import witness
from penstock.connectors.files.json import WithSchema
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
from penstock.native.staging import free_names, lane_name
from penstock.packages import DELTA, Needs
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

NO_PAYLOAD = "it has no payload to make a row of"
NO_KEY = "it has no key: neither the payload nor `before` has all fields of `key`"
DELETES = "it is a delete: set `mode: upsert` and a `key` to delete rows"
STAGING = "_penstock"
_OWN = ("_seq", "_part", "_op")


class DeltaDestination(ExactlyOnceDestination[DeltaDestinationSettings]):
    packages: ClassVar[Needs] = DELTA
    columns: ClassVar[frozenset[str]] = frozenset(
        {record.SEQ, record.PART, record.OPERATION, record.BEFORE, record.AFTER}
    )
    shapes: ClassVar[frozenset[Shape]] = frozenset({Shape.TYPED})
    takes_sound: ClassVar[bool] = True

    def __init__(self, settings: DeltaDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self._known: Table | None = None
        if settings.schema_ is not None:
            self.shapes = frozenset({Shape.TYPED, Shape.OPEN})  # type: ignore[misc]

    def check(self) -> None:
        folder = self.settings.local
        if folder is None:
            return
        try:
            fs.make_folder(folder / STAGING)
            probe = folder / STAGING / ".probe"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError as e:
            raise Stop(
                f"The folder of the table {folder} can't be written",
                code="delta.not-writable",
                why=e.strerror or str(e),
                hint="check the path, its permissions and free space",
            ) from e

    def processors_for(self, shape: Shape) -> tuple[Processor[Any], ...]:
        schema = self.settings.schema_
        return (WithSchema(schema, self.destination_id),) if schema is not None and shape is Shape.OPEN else ()

    def unfit(
        self, columns: Mapping[str, Column], shape: Shape, schema: StructType, *, sound: bool = False
    ) -> Column | None:
        from pyspark.sql import functions as F

        del shape, sound
        after, deletes = columns[record.AFTER], columns[record.OPERATION] == F.lit("delete")
        if not self.settings.keys:
            found = [(deletes, DELETES), (after.isNull(), NO_PAYLOAD)]
        else:
            keyless = F.lit(False)
            for name in self.settings.keys:
                keyless = keyless | self._key(columns, schema, name).isNull()
            found = [(~deletes & after.isNull(), NO_PAYLOAD), (keyless, NO_KEY)]
        found += [(~deletes & breaks, why) for breaks, why in self._rules(schema)]
        return F.coalesce(*(F.when(bad, F.lit(why)) for bad, why in found))

    def _rules(self, schema: StructType) -> list[tuple[Column, str]]:
        from pyspark.sql.types import StructType as Struct

        fields = schema[record.AFTER].dataType
        if self.spark is None or not isinstance(fields, Struct) or not faults.safeguard("delta-rules"):
            return []
        layout = self._table().layout()
        return broken(self.spark, layout, fields, self.settings.keys) if layout is not None else []

    def _key(self, columns: Mapping[str, Column], schema: StructType, name: str) -> Column:
        """A field of the key: a delete may have it in `before` alone."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType as Struct

        places = []
        for part in (record.AFTER, record.BEFORE):
            kind = schema[part].dataType if part in schema.names else None
            if isinstance(kind, Struct) and name in kind.names:
                places.append(columns[part].getField(name))
        if not places:
            raise _no_key(name)
        return F.coalesce(*places)

    # -- the table -----------------------------------------------------------------------------------------------------------

    def _table(self) -> Table:
        if self._known is None:
            assert self.spark is not None
            self._known = Table(self.spark, self.settings.root or location(self.spark, self.settings.table or ""))
        return self._known

    @property
    def _name(self) -> str:
        return self.settings.table or self.settings.root or ""

    # -- staging -------------------------------------------------------------------------------------------------------------

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        assert d.rows is not None
        self.spark = self.spark or d.rows.sparkSession
        fields = d.rows.schema[record.AFTER].dataType
        if not isinstance(fields, StructType):
            raise Stop(
                f"{self.destination_id!r} can't take dead letters as they come: a Delta table has columns",
                code="delta.payload",
                hint="use `files` or `lines` for the dead letter queue",
            )
        for name in set(self.settings.keys) - set(fields.names):
            raise _no_key(name)
        table = self._table()
        layout = fit(table, self._name, fields, self.settings)
        faults.reach("K6a", "table")
        here = {name: F.col(name) for name in d.rows.columns}
        types = {f.name: f.dataType for f in layout.schema.fields}

        def value(name: str) -> Column:
            keyed = name in self.settings.keys
            found = self._key(here, d.rows.schema, name) if keyed else here[record.AFTER].getField(name)  # type: ignore[union-attr]
            return found.cast(types[name]).alias(name)

        own: list[Column] = []
        called = free_names(_OWN, fields.names)
        if self.settings.keys:
            deletes = here[record.OPERATION] == F.lit("delete")
            marks = (here[record.SEQ], here[record.PART], F.when(deletes, F.lit("d")).otherwise(F.lit("u")))
            own = [mark.alias(called[name]) for name, mark in zip(_OWN, marks, strict=True)]
        rows = d.rows.select(*(value(name) for name in fields.names), *own)
        folder = f"{_staging(d)}/{d.attempt_id}"
        rows.write.parquet(f"{table.root}/{folder}")
        table.sync_folder(folder)
        files = sorted(table.files(folder))
        manifest = {
            "folder": folder,
            "files": [list(file) for file in files],
            "schema": rows.schema.json(),
            "columns": fields.names,
            "own": [called[name] for name in _OWN] if own else [],
        }
        staged = Staged(0, sum(size for _, size in files), manifest)
        return Staged(self._count(table, staged), staged.bytes, manifest)

    def _count(self, table: Table, s: Staged) -> int:
        """Of what is in the files."""
        if table.local is None:
            return self._staged(table, s, table.spark).count()
        import pyarrow.parquet as pq

        folder = table.local / s.manifest["folder"]
        return sum(pq.read_metadata(folder / name).num_rows for name, _ in s.manifest["files"])

    def _staged(self, table: Table, s: Staged, spark: SparkSession) -> DataFrame:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(s.manifest["schema"]))
        folder = s.manifest["folder"]
        paths = [f"{table.root}/{folder}/{name}" for name, _ in s.manifest["files"]]
        if not paths:
            return no_rows(spark, schema.fields)
        there = dict(table.files(folder))
        if lost := [name for name, size in s.manifest["files"] if there.get(name) != size]:
            raise Stop(
                f"{self.destination_id}: what was staged is not there any more",
                code="delta.staged",
                why=f"{lost[0]} and {len(lost) - 1} other files in {folder} are gone, or have another size"
                if len(lost) > 1
                else f"{lost[0]} in {folder} is gone, or has another size",
                hint="restore what was removed under _penstock in the folder of the table, then start again",
            )
        return spark.read.option("__globPaths__", "false").schema(schema).parquet(*paths)

    # -- commit --------------------------------------------------------------------------------------------------------------

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        table = self._table()
        receipt = self._there(table, d, s) if faults.safeguard("delta-note") else None
        if receipt is None:
            note = Note.of(d, Receipt(s.rows, made=(self._name,)))
            faults.reach("K6a", "read")
            with explained(self._name):
                if self.settings.keys:
                    with noted(table.spark, note) as spark:
                        merge(self._staged(table, s, spark), table.root, s.manifest, self.settings.keys)
                else:
                    append(self._staged(table, s, table.spark), table.root, note)
            faults.reach("K6a", "committed")
            receipt = self._there(table, d, s)
        if receipt is None:
            raise Stop(
                f"{self.destination_id}: the table {self._name} does not have the commit that was just made",
                code="delta.lost",
                hint="it is not known whether the batch is there: look at the history of the table before you start again",
            )
        self.discard(d)
        return receipt

    def _there(self, table: Table, d: DeliveryId, s: Staged | None = None) -> Receipt | None:
        """The receipt of this delivery, if the table has it. With `s` also of one that it has only the number of, and an engine that must
        not write any more is refused."""
        note, batch = table.last(app_id(d))
        if note is not None and note.hash == d.hash:
            return note.receipt
        if s is None or batch < 0:
            return None
        if note is None:
            if batch == d.batch:
                return Receipt(s.rows, made=(self._name,))
        elif note.fence > d.fence and faults.safeguard("fence"):
            raise Stop(
                f"{d.destination}: a newer engine has taken over this pipeline",
                code="delta.fenced",
                why=f"it has written batch {batch} with fence {note.fence}; this one has {d.fence}",
                hint="end this engine; the other one goes on. If the state folder was restored from a backup, the table is ahead of it",
            )
        if batch >= d.batch:
            raise Stop(
                f"{d.destination}: the table is ahead of the ledger",
                code="delta.ahead",
                why=f"it has batch {batch} of this source, and batch {d.batch} is to be written",
                hint="if the state folder was restored from a backup, restore the table as well, or begin with a new state folder",
            )
        return None

    def find(self, d: DeliveryId) -> Receipt | None:
        return self._there(self._table(), d)

    def discard(self, d: DeliveryId) -> None:
        self._table().remove(_staging(d))

    @property
    def asks_spark(self) -> bool:
        """Only for a table that is not a folder of this machine."""
        return self.settings.local is None

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        if self.settings.local is None:
            yield from super().witness(deliveries, known)
        else:
            yield from witness(self.settings.local, deliveries, known, appends=not self.settings.keys)


def _no_key(name: str) -> Stop:
    return Stop(
        f"The records have no field {name!r}, which is in `key`",
        code="delta.key",
        hint="correct `key`, or the processors before this destination",
    )


def _staging(d: DeliveryId) -> str:
    return f"{STAGING}/{lane_name(d)}/{d.hash}"
