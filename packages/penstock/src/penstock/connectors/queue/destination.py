"""`queue` as a destination: exactly once, at the end of a commit log. Tasks write Parquet beside it, under the attempt's own folder;
commit appends it (`appending.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from penstock import fs, record
from penstock.connectors.queue.appending import Appended
from penstock.connectors.queue.settings import QueueDestinationSettings
from penstock.connectors.queue.witness import witness
from penstock.errors import AccountError, Stop
from penstock.log import Writer
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Receipt,
    Refuse,
    Shape,
    Staged,
    Witnessed,
)
from penstock.native.beside import note_of
from penstock.native.staging import lane_name, part_order
from penstock.testing import faults

_COLUMNS = (
    record.OPERATION,
    record.NAMESPACE,
    record.PHASE,
    record.TIMESTAMP,
    record.METADATA,
    record.KEY,
    record.BEFORE,
    record.AFTER,
)


class QueueDestination(ExactlyOnceDestination[QueueDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset(_COLUMNS)
    takes_sound: ClassVar[bool] = True

    def __init__(self, settings: QueueDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self.path = Path(settings.path).absolute()
        self._queue = Appended(self.path, settings.max_size)

    def check(self) -> None:
        try:
            fs.make_folder(self._queue.folder)
            with self._queue.alone():
                if not any(self.path.glob("*.seg")):
                    Writer(self.path).close()  # from now on readers find it
        except OSError as e:
            raise Stop(
                f"The queue {self.path} can't be written to",
                code="queue.not-writable",
                why=e.strerror or str(e),
                hint="check the path, its permissions and free space",
            ) from e

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        assert d.rows is not None
        folder = self._staging(d) / d.attempt_id
        fs.make_folder(folder.parent)
        order = [] if d.ordered else [record.ORDER]
        columns = {name: F.col(name) for name in _COLUMNS if name in d.rows.columns}
        if d.shape is Shape.RAW and record.AFTER in columns:
            columns[record.AFTER] = columns[record.AFTER].cast("binary")
        seen = Observation()
        rows = d.rows.select(*(column.alias(name) for name, column in columns.items()), *order)
        rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.partitionBy(*order).parquet(str(folder))
        return self._staged(sorted(folder.glob("**/part-*"), key=part_order), seen.get["rows"])

    def _staged(self, files: list[Path], rows: int) -> Staged:
        import pyarrow.parquet as pq

        beside = self._queue.folder
        counts = {path: pq.read_metadata(path).num_rows for path in files}
        if sum(counts.values()) != rows and faults.safeguard("account"):
            raise AccountError(
                f"{self.destination_id}: the staged records are not what the batch holds",
                code="queue.account",
                why=f"the tasks wrote {rows:,} records, and {sum(counts.values()):,} are in {len(files)} files",
                hint="nothing was delivered; check the file system, then start again",
            )
        for path in files:
            fs.fsync_file(path)
        for folder in sorted({parent for path in files for parent in path.parents if beside in parent.parents}):
            fs.fsync_folder(folder)
        manifest = [[str(path.relative_to(beside)), n] for path, n in counts.items() if n]
        return Staged(rows, sum(path.stat().st_size for path in files), manifest)

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        receipt = Receipt(s.rows, made=(str(self.path),))
        try:
            self._queue.append(lane_name(d), d.hash, [(name, rows) for name, rows in s.manifest], note_of(d, receipt))
        except OSError as e:
            raise Stop(
                f"{self.destination_id}: prepared records could not be appended to {self.path}",
                code="queue.append",
                why=e.strerror or str(e),
                hint="make its folder writable and room on its disk, then start again: it goes on where it stopped",
            ) from e
        self.discard(d)
        return receipt

    def find(self, d: DeliveryId) -> Receipt | None:
        note = self._queue.found(lane_name(d), d.hash)
        return Receipt.from_json(note["receipt"]) if note is not None else None

    def discard(self, d: DeliveryId) -> None:
        shutil.rmtree(self._staging(d), ignore_errors=True)

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        yield from witness(self._queue, deliveries, known)

    def _staging(self, d: DeliveryId) -> Path:
        return self._queue.folder / lane_name(d) / d.hash
