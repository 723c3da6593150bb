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
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import fs, record
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.errors import AccountError, Stop
from penstock.native import Delivery, DeliveryId, ExactlyOnceDestination, Receipt, Refuse, Shape, Staged
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column

EXTENSION = ".txt"
NO_PAYLOAD = "it has no payload, and text can't say so"
LINE_BREAK = "its payload has a line break: it would become two lines of text"


class FilesDestination(ExactlyOnceDestination[FilesDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset({record.AFTER})
    shapes: ClassVar[frozenset[Shape]] = frozenset({Shape.RAW, Shape.OPEN})

    def __init__(self, settings: FilesDestinationSettings, destination_id: str) -> None:
        super().__init__(settings, destination_id)
        self.root = Path(settings.path).absolute()

    def check(self) -> None:
        """Also makes the folder: a destination that can't be written is said before Spark starts."""
        try:
            fs.make_folder(self.root / "_penstock")
            probe = self.root / "_penstock" / ".probe"
            probe.touch()
            probe.unlink()
        except OSError as e:
            raise Stop(
                f"The destination folder {self.root} can't be written",
                code="files.not-writable",
                why=e.strerror or str(e),
                hint="check the path, its permissions and free space",
            ) from e

    def unfit(self, columns: Mapping[str, Column], shape: Shape) -> Column | None:
        """What is no single line of text."""
        from pyspark.sql import functions as F

        del shape
        value = columns[record.AFTER]
        return F.when(value.isNull(), F.lit(NO_PAYLOAD)).when(F.contains(value, F.lit("\n")), F.lit(LINE_BREAK))

    @staticmethod
    def unfit_payload(value: bytes | None) -> str | None:
        if value is None:
            return NO_PAYLOAD
        return LINE_BREAK if b"\n" in value else None

    def lines(self, columns: Mapping[str, Column]) -> Column | None:
        return columns[record.AFTER]

    def staging_folder(self, d: Delivery) -> Path:
        folder = self._staging(d) / d.attempt_id
        fs.make_folder(folder.parent)
        return folder

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        assert d.rows is not None
        folder = self.staging_folder(d)
        seen = Observation()
        order = [] if d.ordered else [record.ORDER]
        lines = d.rows.select(F.col(record.AFTER).alias("value"), *order)
        counted = lines.observe(
            seen, F.count(F.lit(1)).alias("rows"), F.sum(F.octet_length("value") + F.lit(1)).alias("bytes")
        )
        counted.write.partitionBy(*order).text(str(folder))
        parts = sorted(folder.glob("**/part-*"), key=_part_order)
        return self.adopt(d, parts, seen.get["rows"], seen.get["bytes"] or 0)

    def adopt(self, d: Delivery, files: Sequence[Path], rows: int, size: int) -> Staged:
        sizes = [(p, p.stat().st_size) for p in files if p.stat().st_size > 0]
        written = sum(n for _, n in sizes)
        if written != size and faults.safeguard("account"):
            raise AccountError(
                f"{self.destination_id}: the staged files are not what the batch holds",
                code="files.staged",
                why=f"{rows} lines of {size} bytes went in; {_newlines(p for p, _ in sizes)} lines of {written} bytes are staged",
                hint="nothing was delivered; check the file system, then start again",
            )
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda f: fs.fsync_file(f[0]), sizes))
        for folder in sorted({p.parent for p, _ in sizes} | {self._staging(d) / d.attempt_id, self._staging(d)}):
            fs.fsync_folder(folder)
        prefix = f"{_lane(d)}-{d.batch:012d}"
        manifest = [
            {
                "staged": str(path.relative_to(self.root)),
                "name": f"{prefix}-{n:05d}-{d.hash[:12]}{EXTENSION}",
                "bytes": size,
            }
            for n, (path, size) in enumerate(sizes)
        ]
        if not faults.safeguard("staging"):
            self._publish(manifest)
        return Staged(rows, written, manifest)

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
                    staged.rename(final)
                faults.reach("K6a")
            fs.fsync_folder(self.root)
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

    def _note(self, d: DeliveryId) -> Any:
        try:
            return json.loads(self._receipt(d).read_bytes())
        except FileNotFoundError:
            return None

    def _receipt(self, d: DeliveryId) -> Path:
        return self.root / "_penstock" / _lane(d) / "receipt.json"

    def _staging(self, d: DeliveryId) -> Path:
        return self.root / "_penstock" / _lane(d) / d.hash


def _lane(d: DeliveryId) -> str:
    """One prefix per lane: a dot inside an id is encoded, so that a.b + c and a + b.c stay apart."""
    return ".".join(part.replace(".", "%2E") for part in (d.pipeline, d.lane))


def _part_order(path: Path) -> tuple[int, int]:
    """Stretches of a strand first, where the folder says so, then the number Spark gave the file."""
    name, _, order = path.parent.name.partition("=")
    return int(order) if name == record.ORDER else 0, int(path.name.split("-")[1])


def _newlines(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with path.open("rb") as f:
            while chunk := f.read(1 << 20):
                total += chunk.count(b"\n")
    return total
