"""`files` as a destination: exactly once, atomic per file.

    <path>/<pipeline>.<lane>-<batch>-<n>-<hash12>.txt            what people see; name order is delivery order per strand
    <path>/_penstock/<pipeline>.<lane>/<hash>/<attempt id>/      staging; readers that follow Hadoop's custom skip `_*`
    <path>/_penstock/<pipeline>.<lane>/receipt.json              the last delivery of the lane

Tasks write under the attempt's own folder. The manifest (staged name → final name, bytes) goes into the ledger; commit and
recovery only finish its renames. Nothing outside the lane's own prefix is ever touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import fs, record
from penstock.connectors.files import writing
from penstock.connectors.files.json import WithSchema
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.connectors.files.template import Template
from penstock.connectors.files.witness import Folder
from penstock.errors import AccountError, Stop
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Lines,
    Processor,
    Receipt,
    Refuse,
    Shape,
    Staged,
    Witnessed,
)
from penstock.native.staging import FOLDER, folder_of, free_names, lane_name, part_order, sorted_writes
from penstock.native.witness import Noted
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

IDENTITY = (record.SEQ, record.PART)


class FilesDestination(ExactlyOnceDestination[FilesDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset({record.AFTER})
    takes_sound: ClassVar[bool] = True

    def __init__(self, settings: FilesDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self.template = Template.parse(settings.path)
        self.root = Path(self.template.root).absolute()
        self._form = writing.form(settings)
        self.shapes = self._form.shapes  # type: ignore[misc]
        self.unfit_payload = self._form.unfit_payload  # type: ignore[method-assign]
        if self.template.parts:
            self.columns = self.columns | self.template.columns | set(IDENTITY)  # type: ignore[misc]
        self._row_bytes = 0.0  # of what was written last

    def check(self) -> None:
        """Also makes the folder: a destination that can't be written is said before Spark starts."""
        try:
            fs.make_folder(self.root / "_penstock")
            probe = self.root / "_penstock" / ".probe"
            probe.touch()
            probe.unlink(missing_ok=True)
        except OSError as e:
            raise Stop(
                f"The destination folder {self.root} can't be written",
                code="files.not-writable",
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

        found = [*self._form.unfit(columns[record.AFTER], shape, schema, sound), *self.template.unfit(columns)]
        return F.coalesce(*(F.when(bad, F.lit(why)) for bad, why in found)) if found else None

    def lines(self, d: Delivery, columns: Mapping[str, Column]) -> Lines | None:
        text = self._form.line(columns[record.AFTER], d.shape, d.schema)
        if text is None:
            return None
        compression = self.settings.compression or "none"
        return Lines(text, self.template.folder(columns), compression, self._tasks(d), self._rows_per_file())

    def _tasks(self, d: Delivery) -> int | None:
        target = self.settings.target_file_size
        return max(1, -(-d.size // target)) if target is not None else None

    def _rows_per_file(self) -> int:
        target = self.settings.target_file_size
        return int(target / self._row_bytes) + 1 if target is not None and self._row_bytes else 0

    def staging_folder(self, d: Delivery) -> Path:
        folder = self._staging(d) / d.attempt_id
        fs.make_folder(folder.parent)
        return folder

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        assert d.rows is not None
        folder, given = self.staging_folder(d), d.rows
        d = d if d.schema is not None else replace(d, schema=given.schema)
        columns = {c: F.col(c) for c in given.columns}
        place = self.template.folder(columns)
        lines = self.lines(d, columns)
        taken = () if lines is not None else given.schema[record.AFTER].dataType.names  # type: ignore[attr-defined]
        called = free_names((FOLDER, record.ORDER, *IDENTITY), taken)
        beside: dict[str, Column] = {}
        if place is not None:
            beside |= {FOLDER: place, **{name: F.col(name) for name in IDENTITY}}
        if not d.ordered:
            beside[record.ORDER] = F.col(record.ORDER)
        further = [value.alias(called[name]) for name, value in beside.items()]
        names = [called[name] for name in (FOLDER, record.ORDER) if name in beside]
        identity = [called[name] for name in IDENTITY]
        counts = [F.count(F.lit(1)).alias("rows")]
        if lines is not None:
            rows = given.select(lines.text.alias("value"), *further)
            counts.append(F.sum(F.octet_length("value") + F.lit(1)).alias("bytes"))
        else:
            rows = given.select(f"{record.AFTER}.*", *further)
        if (tasks := self._tasks(d)) is not None:
            rows = rows.coalesce(tasks)
        seen = Observation()
        rows = rows.observe(seen, *counts)
        with sorted_writes(rows.sparkSession, place is not None):
            if place is not None:
                rows = rows.sortWithinPartitions(*names, *identity).drop(*identity)
            writer = rows.write.partitionBy(*names).option("maxRecordsPerFile", str(self._rows_per_file()))
            if lines is not None:
                writer.option("compression", lines.compression).text(str(folder))
            else:
                writer.option("compression", self.settings.compression or "snappy").parquet(str(folder))
        parts = sorted(folder.glob("**/part-*"), key=part_order)
        return self.adopt(d, parts, seen.get["rows"], seen.get.get("bytes") or 0)

    def adopt(self, d: Delivery, files: Sequence[Path], rows: int, size: int) -> Staged:
        with ThreadPoolExecutor(4) as pool:
            held = list(pool.map(self._form.weigh, files))
        kept = [f for f, n in zip(files, held, strict=True) if n > 0]
        if not self._form.adds_up(sum(held), rows, size) and faults.safeguard("account"):
            raise AccountError(
                f"{self.destination_id}: the staged files are not what the batch holds",
                code="files.staged",
                why=self._form.difference(kept, rows, size, sum(held)),
                hint="nothing was delivered; check the file system, then start again",
            )
        head = self._form.head(d.schema)
        if head:
            for path in kept:
                writing.put_in_front(path, head)
        with ThreadPoolExecutor(4) as pool:
            sizes = list(pool.map(_synced, kept))
        lane = self._staging(d).parent
        for folder in sorted({parent for path in kept for parent in path.parents if lane in parent.parents}):
            fs.fsync_folder(folder)
        prefix = f"{lane_name(d)}-{d.batch:012d}"
        manifest = [
            {
                "staged": str(path.relative_to(self.root)),
                "name": str(Path(folder_of(path), f"{prefix}-{n:05d}-{d.hash[:12]}{self._form.extension}")),
                "bytes": size,
            }
            for n, (path, size) in enumerate(zip(kept, sizes, strict=True))
        ]
        if rows:
            self._row_bytes = sum(sizes) / rows
        if not faults.safeguard("staging"):
            self._publish(manifest)
        return Staged(rows, sum(sizes), manifest)

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        self._publish(s.manifest)
        receipt = Receipt(s.rows, made=tuple(f["name"] for f in s.manifest))
        note = {"version": 1, "batch": d.batch, "hash": d.hash, "fence": d.fence, "receipt": receipt.to_json()}
        fs.make_folder(self._receipt(d).parent)
        fs.replace(self._receipt(d), json.dumps(note).encode())
        self.discard(d)
        return receipt

    def _publish(self, manifest: list[dict[str, Any]]) -> None:
        """Only this renames staged files, one after the other: those missing at the front are out already, whoever took them
        since. One that is missing behind one that is there, or has another size, was not published but harmed."""
        try:
            waiting = False
            for f in manifest:
                staged, final = self.root / f["staged"], self.root / f["name"]
                there = staged.exists()
                waiting = waiting or there
                lost = not there and not final.exists() and (waiting or not staged.parent.exists())
                if lost or (there and staged.stat().st_size != f["bytes"]):
                    raise OSError(f"{staged} is not there with {f['bytes']} bytes, as it was staged")  # noqa: TRY301
                if there:
                    if final.parent != self.root:
                        fs.make_folder(final.parent)
                    staged.rename(final)
                faults.reach("K6a")
            for folder in {self.root, *(self.root / Path(f["name"]).parent for f in manifest)}:
                if folder.exists():
                    fs.fsync_folder(folder)
        except OSError as e:
            raise Stop(
                f"{self.destination_id}: prepared files could not be published",
                code="files.publish",
                where=str(self.root),
                why=str(e),
                hint="make the folder writable or restore what was removed under _penstock, then start again:"
                " it goes on where it stopped",
            ) from e

    def find(self, d: DeliveryId) -> Receipt | None:
        note = self._note(d)
        return Receipt.from_json(note["receipt"]) if note and note["hash"] == d.hash else None

    def discard(self, d: DeliveryId) -> None:
        shutil.rmtree(self._staging(d), ignore_errors=True)

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        noted = Noted.read(lambda: self._note(deliveries[-1].id)) if deliveries else None
        yield from Folder(self.root, self._form, nested=bool(self.template.parts)).witness(deliveries, known, noted)

    def _note(self, d: DeliveryId) -> Any:
        try:
            return json.loads(self._receipt(d).read_bytes())
        except FileNotFoundError:
            return None

    def _receipt(self, d: DeliveryId) -> Path:
        return self.root / "_penstock" / lane_name(d) / "receipt.json"

    def _staging(self, d: DeliveryId) -> Path:
        return self.root / "_penstock" / lane_name(d) / d.hash


def _synced(path: Path) -> int:
    fs.fsync_file(path)
    return path.stat().st_size
