"""`kafka` as a destination: exactly once.

    <its place in the state folder>/<lane>/<hash>/<attempt id>/    which writers have begun; rows/: staged, as Parquet
    <its place in the state folder>/<lane>/…                       who writes, and where the last delivery is (`book.py`)

Tasks stage a batch, unless the engine keeps its rows in a form that can be written from. The commit is a job again: each of its tasks
publishes some of the files as one transaction (`writing.py`). Few records the engine publishes itself. What became of a commit that did
not come to its end, Kafka says: the ends of the topics are read back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import fs, record
from penstock.connectors.kafka.book import Book
from penstock.connectors.kafka.connection import connected, refuse_without_client
from penstock.connectors.kafka.destination_settings import KafkaDestinationSettings
from penstock.connectors.kafka.messages import TOPIC, Form, topics_of
from penstock.connectors.kafka.sharing import Part, shares
from penstock.connectors.kafka.tail import is_at
from penstock.connectors.kafka.target import Target
from penstock.connectors.kafka.topics import TOPIC_KEY, TopicOf, unfit_topic
from penstock.connectors.kafka.trouble import WriterFailedError
from penstock.connectors.kafka.witness import witness
from penstock.connectors.kafka.writing import SCHEMA, Outcome, Publish
from penstock.errors import AccountError, Stop
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Processor,
    Receipt,
    Refusal,
    Refuse,
    Shape,
    Staged,
    Witnessed,
)
from penstock.native.staging import part_order
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

FEW, SMALL = 10_000, 4 << 20  # rows and bytes that the engine writes itself
_PAYLOADS = (record.KEY, record.BEFORE, record.AFTER)


class KafkaDestination(ExactlyOnceDestination[KafkaDestinationSettings]):
    takes_sound: ClassVar[bool] = True
    may_refuse: ClassVar[bool] = True
    reads_kept: ClassVar[bool] = True

    def __init__(self, settings: KafkaDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self._fresh: set[str] = set()  # deliveries that were staged here, and nobody has begun to publish
        self._tries: dict[str, str] = {}
        self._target = Target(settings)
        self.columns = self._columns()  # type: ignore[misc]

    def _columns(self) -> frozenset[str]:
        s = self.settings
        found = {record.SEQ, record.PART, record.KEY, record.OPERATION, record.AFTER}
        if s.format == "opencdc":
            found |= set(record.COLUMNS) - {record.SOURCE}
        if s.by_namespace:
            found.add(record.NAMESPACE)
        if s.headers == "metadata" or (s.fixed is None and not s.by_namespace):
            found.add(record.METADATA)
        return frozenset(found)

    def check(self) -> None:
        refuse_without_client()
        self._target.check(self.settings.fixed)

    # -- what it can hold ----------------------------------------------------------------------------------------------------

    def processors_for(self, shape: Shape) -> tuple[Processor[Any], ...]:
        del shape
        s = self.settings
        return () if s.fixed is not None or s.by_namespace else (TopicOf.of(s.topic, self.destination_id),)

    def unfit(
        self, columns: Mapping[str, Column], shape: Shape, schema: StructType, *, sound: bool = False
    ) -> Column | None:
        del shape, schema, sound
        topic = self._topic(columns)
        return None if topic is None else unfit_topic(topic)

    def _topic(self, columns: Mapping[str, Column]) -> Column | None:
        if self.settings.fixed is not None:
            return None
        return columns[record.NAMESPACE] if self.settings.by_namespace else columns[record.METADATA][TOPIC_KEY]

    # -- staging -------------------------------------------------------------------------------------------------------------

    def stage(self, d: Delivery) -> Staged:
        folder = self._lane(d) / d.hash / d.attempt_id
        fs.make_folder(folder, 0o700)
        form = self._kept_form(d)
        if form is not None and d.kept is not None:
            where, parts = d.kept.folder, self._parts(d.kept.folder)
        else:
            where, (form, parts) = folder / "rows", self._write_rows(d, folder / "rows")
        size = sum((where / part.name).stat().st_size for part in parts)
        n = sum(part.rows for part in parts)
        few = n <= FEW and size <= SMALL
        topics = self._topics(where, parts, form)
        manifest = {
            "attempt": d.attempt_id,
            "rows": os.path.relpath(where, folder),  # the state folder may be moved
            "form": form.to_json(),
            "writers": [[part.name for part in share] for share in shares(parts, d.bases, 1 if few else self._cores())],
            "few": few,
            "topics": topics,
            "ends": self._target.ends(topics),
        }
        self._fresh.add(d.hash)
        return Staged(n, size, manifest)

    def _cores(self) -> int:
        assert self.spark is not None
        return self.spark.sparkContext.defaultParallelism

    def _kept_form(self, d: Delivery) -> Form | None:
        """How the rows that the engine keeps are read, where they hold all that is needed as bytes: then they are not written again."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = next(d.kept.folder.glob("part-*"), None) if d.kept is not None else None
        if path is None:
            return None
        types = {f.name: f.type for f in pq.read_schema(path)}
        if not self.columns <= types.keys():
            return None
        if any(
            not (pa.types.is_binary(types[name]) or pa.types.is_string(types[name]))
            for name in _PAYLOADS
            if name in types
        ):
            return None
        s = self.settings
        raw = [name for name in _PAYLOADS if name in types and pa.types.is_binary(types[name]) and name != record.AFTER]
        return Form(
            topic=s.fixed,
            by=None if s.fixed is not None else record.NAMESPACE if s.by_namespace else record.METADATA,
            opencdc=s.format == "opencdc",
            headers=s.headers == "metadata",
            raw=(*raw, *([record.AFTER] if d.shape is Shape.RAW else [])),
            columns=tuple(sorted(self.columns)),
        )

    def _write_rows(self, d: Delivery, folder: Path) -> tuple[Form, list[Part]]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        rows, ordered = (d.rows, d.ordered) if d.rows is not None or d.kept is None else (d.kept.frame(), False)
        assert rows is not None
        self.spark = self.spark or rows.sparkSession
        columns, form = self._staged_columns(rows, d.shape)
        order = [] if ordered else [record.ORDER]
        seen = Observation()
        rows = rows.select(*(column.alias(name) for name, column in columns.items()), *order)
        rows = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
        rows.write.partitionBy(*order).option("compression", "uncompressed").parquet(str(folder))
        parts = self._parts(folder)
        if sum(part.rows for part in parts) != seen.get["rows"] and faults.safeguard("account"):
            raise AccountError(
                f"{self.destination_id}: the staged records are not what the batch holds",
                code="kafka.account",
                why=f"the tasks wrote {seen.get['rows']:,} records, and {sum(p.rows for p in parts):,} are in {len(parts)} files",
                hint="nothing was delivered; check the file system, then start again",
            )
        for path in folder.rglob("*"):
            (fs.fsync_folder if path.is_dir() else fs.fsync_file)(path)
        for one in (folder, folder.parent):
            fs.fsync_folder(one)
        return form, parts

    def _staged_columns(self, given: DataFrame, shape: Shape) -> tuple[dict[str, Column], Form]:
        """What is written down of a record, and how it is read again."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import BinaryType, StructType

        def as_bytes(name: str) -> Column:
            if isinstance(given.schema[name].dataType, StructType):
                return F.to_json(F.col(name), record.JSON_OPTIONS).cast("binary")
            return F.col(name).cast("binary")

        def is_raw(name: str) -> bool:
            return shape is Shape.RAW if name == record.AFTER else isinstance(given.schema[name].dataType, BinaryType)

        here = {name: F.col(name) for name in given.columns if name in self.columns}
        payloads = {name: as_bytes(name) for name in _PAYLOADS if name in here}
        made = {**here, **payloads}
        topic = self._topic(here)
        if topic is not None:
            made[TOPIC] = topic
        s = self.settings
        form = Form(
            topic=s.fixed,
            by=None if topic is None else TOPIC,
            opencdc=s.format == "opencdc",
            headers=s.headers == "metadata",
            raw=tuple(name for name in payloads if is_raw(name)),
            columns=tuple(made),
        )
        return made, form

    def _parts(self, folder: Path) -> list[Part]:
        """What tasks have left, in its order."""
        import pyarrow.parquet as pq

        parts = []
        for path in sorted(folder.glob("**/part-*"), key=part_order):
            found = pq.read_metadata(path)
            column = found.schema.to_arrow_schema().get_field_index(record.SEQ)
            spans = [found.row_group(i).column(column).statistics for i in range(found.num_row_groups)]
            low, high = min((s.min for s in spans), default=0), max((s.max for s in spans), default=0)
            parts.append(Part(str(path.relative_to(folder)), found.num_rows, low, high))
        return parts

    def _topics(self, folder: Path, parts: Sequence[Part], form: Form) -> list[str]:
        import pyarrow.parquet as pq

        if form.topic is not None or form.by is None:
            return [form.topic or ""]
        found: set[str] = set()
        for part in parts:
            with pq.ParquetFile(folder / part.name) as file:
                for batch in file.iter_batches(1 << 17, columns=[form.by]):
                    found |= set(topics_of(batch.column(0)))
        return sorted(found)

    # -- commit --------------------------------------------------------------------------------------------------------------

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        first = d.hash in self._fresh
        self._fresh.discard(d.hash)
        book = self._book(d)
        if not first or d.destination not in self._tries:
            self._tries[d.destination] = book.take(d)
        publish = self._publish(d, s, again=not first)
        done: dict[int, Outcome] = {}
        refused: dict[tuple[int, int], Refusal] = {}
        stop: tuple[int, int] | None = None
        while todo := [n for n in range(len(publish.files)) if n not in done]:
            try:
                outcomes = self._run(publish, todo, few=s.manifest["few"])
            except BaseException:
                self._tries.pop(d.destination, None)
                raise
            for o in outcomes:
                if o.failed is not None:
                    self._tries.pop(d.destination, None)
                    if o.failed.kind == "fenced":
                        book.take(d)  # says so where it was a newer engine
                    raise o.failed.error(self.destination_id)
            done |= {o.writer: o for o in outcomes if not o.refused}
            if found := {(r.seq, r.part): r for o in outcomes for r in o.refused}:
                refused |= found
                stop = next((place for place in sorted(refused) if not refuse(refused[place])), None)
                publish = publish.without(refused, stop)
        written = sum(o.there for o in done.values())
        if stop is not None:
            before = tuple(refused[place] for place in sorted(refused) if place < stop)
            return Receipt(written, refused=before, stopped_at=stop[0])
        at = [o.at for o in done.values() if o.at is not None]
        receipt = Receipt(written, made=tuple(s.manifest["topics"]), refused=tuple(refused[p] for p in sorted(refused)))
        book.note(d, receipt, at)
        self.discard(d)
        return receipt

    def _publish(self, d: DeliveryId, s: Staged, *, again: bool) -> Publish:
        settings, manifest = self.settings, s.manifest
        folder = self._lane(d) / d.hash / manifest["attempt"]
        where = Path(os.path.normpath(folder / manifest["rows"]))
        self._weigh(where, manifest)
        limits = self._target.limits(manifest["topics"])
        room = min([settings.batch_bytes, *(found.bytes for found in limits.values() if found.bytes is not None)])
        timeout = settings.transaction_timeout
        producing = _named(
            transaction_timeout_ms=int(timeout * 1000),
            message_timeout_ms=int((settings.delivery_timeout or timeout) * 1000),
            compression_type=settings.compression,
            message_max_bytes=settings.batch_bytes,
            batch_size=room,
            linger_ms=20,
            queue_buffering_max_messages=0,
            queue_buffering_max_kbytes=1 << 16,
            partitioner="murmur2_random",  # as Java's clients do
        )
        return Publish(
            config=settings.librdkafka(),
            producing=producing,
            ids=f"penstock.{d.pipeline}.{d.lane}.{d.destination}.{d.epoch}",
            book=self._lane(d),
            token=self._tries[d.destination],
            hash=d.hash,
            folder=folder,
            rows=where,
            files=tuple(tuple(files) for files in manifest["writers"]),
            form=Form.from_json(manifest["form"]),
            topics=limits,
            starts={t: {int(n): offset for n, offset in ends.items()} for t, ends in manifest["ends"].items()},
            timeout=min(60.0, settings.transaction_timeout),
            again=again,
        )

    def _run(self, publish: Publish, writers: Sequence[int], *, few: bool) -> list[Outcome]:
        if few:
            return [publish.write(n) for n in writers]
        assert self.spark is not None
        rows = self.spark.sparkContext.parallelize([(n,) for n in writers], len(writers))
        found = self.spark.createDataFrame(rows, "writer int").mapInArrow(publish, SCHEMA).collect()
        return [Outcome.from_json(row[0]) for row in found]

    def _weigh(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        lost = [name for files in manifest["writers"] for name in files if not (folder / name).exists()]
        if lost:
            raise Stop(
                f"{self.destination_id}: what was staged is not there any more",
                code="kafka.staged",
                why=f"{lost[0]} is gone from {folder}",
                hint="restore the state folder as it was, then start again",
            )

    def find(self, d: DeliveryId) -> Receipt | None:
        known = self._book(d).noted(d)
        if known is None:
            return None
        receipt, at = known
        try:
            with connected(self.settings, self._target.heard):
                there = not faults.safeguard("read-back") or is_at(self.settings.librdkafka(), at, d.hash)
        except WriterFailedError as e:
            raise e.failed.error(self.destination_id) from None
        return receipt if there else None

    def discard(self, d: DeliveryId) -> None:
        shutil.rmtree(self._lane(d) / d.hash, ignore_errors=True)

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        if not deliveries:
            return
        try:
            with connected(self.settings, self._target.heard):
                book = self._book(deliveries[-1].id)
                yield from witness(book, self._target, self.settings.librdkafka(), deliveries, known)
        except WriterFailedError as e:
            raise e.failed.error(self.destination_id) from None

    # -- places --------------------------------------------------------------------------------------------------------------

    def _book(self, d: DeliveryId) -> Book:
        return Book(self._lane(d))

    def _lane(self, d: DeliveryId) -> Path:
        assert self.place is not None
        return self.place / ".".join(part.replace(".", "%2E") for part in (d.pipeline, d.lane, d.destination))


def _named(**given: Any) -> dict[str, Any]:
    """As librdkafka writes the names of its settings."""
    return {name.replace("_", "."): value for name, value in given.items()}
