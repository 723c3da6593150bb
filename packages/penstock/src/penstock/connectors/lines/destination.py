"""`lines` as a destination: exactly once, at the end of one file. Tasks write lines beside it, under the attempt's own folder; commit
appends them (`appending.py`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock import fs, record
from penstock.connectors.files import writing
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.connectors.lines.appending import Appended
from penstock.connectors.lines.destination_settings import LinesDestinationSettings
from penstock.connectors.lines.witness import witness
from penstock.errors import AccountError, Stop
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Lines,
    Receipt,
    Refuse,
    Shape,
    Staged,
    Witnessed,
)
from penstock.native.beside import note_of
from penstock.native.staging import lane_name, part_order, write_lines
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


class LinesDestination(ExactlyOnceDestination[LinesDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset({record.AFTER})
    takes_sound: ClassVar[bool] = True

    def __init__(self, settings: LinesDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self.path = Path(settings.path).absolute()
        self._file = Appended(self.path)
        self._form = writing.form(FilesDestinationSettings(path=settings.path, format=settings.format))
        self.shapes = self._form.shapes  # type: ignore[misc]
        self.unfit_payload = self._form.unfit_payload  # type: ignore[method-assign]

    def check(self) -> None:
        try:
            fs.make_folder(self._file.folder)
            with self.path.open("ab"):
                pass
        except OSError as e:
            raise Stop(
                f"The file {self.path} can't be appended to",
                code="lines.not-writable",
                why=e.strerror or str(e),
                hint="check the path, its permissions and free space",
            ) from e

    def unfit(
        self, columns: Mapping[str, Column], shape: Shape, schema: StructType, *, sound: bool = False
    ) -> Column | None:
        from pyspark.sql import functions as F

        found = self._form.unfit(columns[record.AFTER], shape, schema, sound)
        return F.coalesce(*(F.when(bad, F.lit(why)) for bad, why in found)) if found else None

    def lines(self, d: Delivery, columns: Mapping[str, Column]) -> Lines:
        text = self._form.line(columns[record.AFTER], d.shape, d.schema)
        assert text is not None
        return Lines(text)

    def staging_folder(self, d: Delivery) -> Path:
        folder = self._staging(d) / d.attempt_id
        fs.make_folder(folder.parent)
        return folder

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import functions as F

        assert d.rows is not None
        text = self.lines(d, {c: F.col(c) for c in d.rows.columns}).text
        order = [] if d.ordered else [record.ORDER]
        folder = self.staging_folder(d)
        rows, size = write_lines(d.rows.select(text.alias("value"), *order), order, folder)
        return self.adopt(d, sorted(folder.glob("**/part-*"), key=part_order), rows, size)

    def adopt(self, d: Delivery, files: Sequence[Path], rows: int, size: int) -> Staged:
        del d
        kept = [path for path in files if path.stat().st_size]
        held = sum(path.stat().st_size for path in kept)
        if held != size and faults.safeguard("account"):
            raise AccountError(
                f"{self.destination_id}: the staged lines are not what the batch holds",
                code="lines.account",
                why=self._form.difference(kept, rows, size, held),
                hint="nothing was delivered; check the file system, then start again",
            )
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(fs.fsync_file, kept))
        beside = self._file.folder
        for folder in sorted({parent for path in kept for parent in path.parents if beside in parent.parents}):
            fs.fsync_folder(folder)
        manifest = [[str(path.relative_to(beside)), path.stat().st_size] for path in kept]
        return Staged(rows, held, manifest)

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        receipt = Receipt(s.rows, made=(str(self.path),))
        try:
            self._file.append(lane_name(d), d.hash, [(name, size) for name, size in s.manifest], note_of(d, receipt))
        except OSError as e:
            raise Stop(
                f"{self.destination_id}: prepared lines could not be appended to {self.path}",
                code="lines.append",
                why=e.strerror or str(e),
                hint="make the file writable and room on its disk, then start again: it goes on where it stopped",
            ) from e
        self.discard(d)
        return receipt

    def find(self, d: DeliveryId) -> Receipt | None:
        note = self._file.noted(lane_name(d))
        return Receipt.from_json(note["receipt"]) if note and note["hash"] == d.hash else None

    def discard(self, d: DeliveryId) -> None:
        shutil.rmtree(self._staging(d), ignore_errors=True)

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        yield from witness(self._file, deliveries, known)

    def _staging(self, d: DeliveryId) -> Path:
        return self._file.folder / lane_name(d) / d.hash
