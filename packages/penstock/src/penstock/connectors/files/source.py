"""`files` as a source: its own listing, exact ranges, and a `seq` that is a function of the file alone.

`seq = base + block_start + (block_start > 0) + place in the block`. The ledger gives each file a base behind everything an
earlier file can have used, so seq is unique in the source and rises along each file, whatever else is in the batch and
however many cores there are. It rests on one Spark partition per file block (`engine/session.py`).
"""

from __future__ import annotations

import math
import os
import shutil
import time
import urllib.parse
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import record
from penstock.connectors.files.listing import Entry, Listing
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.errors import InputChanged, Stop
from penstock.native import Known, Limits, NativeSource, Range, Ranges
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BLOCK = 64 * 1024 * 1024  # spark.sql.files.maxPartitionBytes of a lane's session
BLOCKS_PER_CORE = 16  # above this many, blocks are grouped as they are sorted
GROUPS_PER_CORE = 4
GZ_RATIO = 1032  # no gzip stream expands more than this
PLACE_MASK = (1 << 33) - 1  # the part of monotonically_increasing_id that counts rows of a partition
MAP_LIMIT = 64  # up to this many files the bases are a map literal, above it a broadcast join
OTHER_CODECS = (".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz")
POLL = 0.5  # seconds between listings of a small folder
FORGET_AFTER = 60.0  # seconds a file has to be gone before what is known of it is forgotten
LISTING_SHARE = 0.02  # of one core, at most, for listing a large one
_NEEDS_PLACE = {record.SEQ, record.POSITION, record.METADATA}
COUNT_LIMIT = 2 * 1024**3  # bytes that `count` is willing to read


class FilesSource(NativeSource[FilesSourceSettings]):
    lines = True

    def __init__(self, settings: FilesSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        self._listing = Listing(Path(os.path.abspath(settings.path)), settings.settle)
        self._next_listing = 0.0
        self._tidied = False
        self._gone: dict[str, float] = {}  # acked and no longer listed, since when
        self._was_gone: set[str] = set()  # listed again since

    def check(self) -> None:
        path = self._listing.path
        if not path.exists():
            raise Stop(
                f"The source path {path} does not exist",
                code="files.missing",
                hint="create the folder or correct `path`",
            )
        if self.settings.move_to is not None:
            if Path(self.settings.move_to).absolute() in (path, path.parent if path.is_file() else path):
                raise Stop("`move-to` is the folder that is read", code="files.loop", hint="name another folder")
            try:
                Path(self.settings.move_to).mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise Stop(
                    f"The folder {self.settings.move_to} can't be made", code="files.not-writable", why=str(e)
                ) from e

    # -- what is there ----------------------------------------------------------------------------------------------

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        if time.monotonic() < self._next_listing:
            return None
        started = time.monotonic()
        files = self._listing.settled()
        self._next_listing = time.monotonic() + max(POLL, (time.monotonic() - started) / LISTING_SHARE)
        if not self._tidied:
            self._tidy(files, known)
        self._note_gone(known)
        new = [f for f in files if self._is_new(f, known)]
        ranges = self._cut(new, known.next_seq, limits)
        if ranges:
            self._was_gone -= {r.strand for r in ranges}
            self._next_listing = 0.0  # there may be more: look again as soon as this batch is done
            gone = tuple(path for path, since in self._gone.items() if time.monotonic() - since >= FORGET_AFTER)
            return Ranges(tuple(ranges), ranges[-1].base + _most_records(ranges[-1]), gone)
        return None

    def _note_gone(self, known: Known) -> None:
        """A file that one look has missed is not forgotten at once: it would be read again when the next look sees it."""
        present, now = self._listing.present, time.monotonic()
        self._was_gone |= {path for path in self._gone if path in present}
        self._was_gone &= known.strands.keys() & present
        missing = known.acked - present
        self._gone = {path: self._gone.get(path, now) for path in missing}

    def _is_new(self, file: Entry, known: Known) -> bool:
        taken = known.strands.get(file.path)
        if taken is None:
            return True
        if (taken.position["size"], taken.position["mtime"]) == (file.size, file.mtime_ns):
            self._was_gone.discard(file.path)
            return False
        if file.path in self._was_gone:
            return True  # the one that was read is gone; this is another file of the same name
        if self.settings.on_change == "stop":
            raise Stop(
                f"The file {file.path} has changed after it was read",
                code="files.changed",
                why=f"it was {taken.position['size']} bytes and is {file.size} now",
                hint="write new records to new files, or set `on-change: reread` (reads the whole file again) or `ignore`",
            )
        return self.settings.on_change == "reread"

    def _cut(self, files: list[Entry], base: int, limits: Limits) -> list[Range]:
        ranges: list[Range] = []
        total = 0
        for file in files:
            if file.path.endswith(OTHER_CODECS):
                raise Stop(
                    f"The file {file.path} has a compression that `files` does not read yet",
                    code="files.codec",
                    hint="use .gz or plain text, or give the file a name that ends in .tmp to leave it out",
                )
            full = total + file.size > limits.max_bytes or len(ranges) >= limits.max_files
            if ranges and full:
                break
            position = {"size": file.size, "mtime": file.mtime_ns, "from": 0, "to": file.size}
            ranges.append(Range(file.path, position, base, file.size))
            base += _most_records(ranges[-1])
            total += file.size
        return ranges

    def idle(self) -> bool:
        return not self._listing.settling()

    def wait(self, timeout: float) -> None:
        time.sleep(min(timeout, POLL))

    # -- reading ----------------------------------------------------------------------------------------------------

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        """The payload stays Spark's string, whose bytes nobody checks or changes: as binary and back it ran a third slower."""
        from pyspark.sql import functions as F

        lines = spark.read.option("lineSep", "\n").text([_escape_glob(r.strand) for r in ranges])
        bases = _spark_names(lines, ranges)
        rows = lines.select(F.col("value").alias(record.AFTER))
        if _NEEDS_PLACE & set(columns):
            rows = _with_place(spark, lines, bases, columns)
        cores = spark.sparkContext.defaultParallelism
        blocks = sum(1 if _compressed(r.strand) else math.ceil(r.size / BLOCK) for r in ranges)
        return rows.coalesce(GROUPS_PER_CORE * cores) if blocks > BLOCKS_PER_CORE * cores else rows

    def locate(self, ranges: Ranges) -> Places:
        ordered = sorted(ranges, key=lambda r: r.base)
        return Places(tuple(r.base for r in ordered), tuple(r.strand for r in ordered))

    def evidence(self) -> Mapping[str, Column]:
        from pyspark.sql import functions as F

        return {"bytes": F.sum(F.octet_length(F.col(record.AFTER)) + F.lit(1))}

    def verify(self, ranges: Ranges, records: int, evidence: Mapping[str, int]) -> None:
        """Every byte of an uncompressed file is in exactly one line: lines and their ends add up to the size of the files."""
        plain = [r for r in ranges if not _compressed(r.strand)]
        if len(plain) != len(ranges):
            return  # how much a gz holds is known only by reading it
        seen, size = evidence["bytes"], ranges.size
        if seen == sum(_line_bytes(r) for r in plain):
            return
        raise Stop(
            f"What Spark read is not what the {len(ranges)} files of this batch hold",
            code="files.incomplete",
            why=f"{seen} bytes in {records} lines were read of {size}",
            hint="nothing was delivered; check the file system, then start again",
        )

    def recheck(self, ranges: Ranges) -> None:
        if not faults.safeguard("unchanged"):
            return
        for r in ranges:
            try:
                stat = Path(r.strand).stat()
                now = f"{stat.st_size} bytes"
                same = (stat.st_size, stat.st_mtime_ns) == (r.position["size"], r.position["mtime"])
            except OSError as e:
                now, same = e.strerror or str(e), False
            if not same:
                raise InputChanged(
                    f"The file {r.strand} changed after it was taken and before it was read",
                    code="files.changed",
                    why=f"it was {r.position['size']} bytes and is now: {now}",
                    hint="nothing of this batch was delivered. Put the file back as it was and start again, or set"
                    " `on-change: reread` to take it as it is now",
                    reread=self.settings.on_change == "reread",
                )

    def count(self, ranges: Ranges) -> int | None:
        if ranges.size > COUNT_LIMIT or any(_compressed(r.strand) or (r.cut and r.size > BLOCK) for r in ranges):
            return None
        try:
            return sum(_count(r) for r in ranges)
        except OSError:
            return None

    # -- after the ack ----------------------------------------------------------------------------------------------

    def acked(self, ranges: Ranges) -> Collection[str]:
        if self.settings.after_ack == "keep":
            return ()
        ended = [r for r in ranges if r.high is None]  # of a file that was cut only the last piece
        for r in ended:
            self._put_away(r)
        return [r.strand for r in ended if not Path(r.strand).exists()]

    def _tidy(self, files: list[Entry], known: Known) -> None:
        """What a crash between the ack and `after-ack` has left."""
        self._tidied = True
        for f in files:
            if f.path in known.acked:
                self._put_away(known.strands[f.path])

    def _put_away(self, r: Range) -> None:
        if self.settings.after_ack == "keep":
            return
        path = Path(r.strand)
        try:
            stat = path.stat()
            if (stat.st_size, stat.st_mtime_ns) != (r.position["size"], r.position["mtime"]):
                return  # not the file that was read; the next listing says so
            if self.settings.after_ack == "delete":
                path.unlink()
            else:
                shutil.move(path, _free_name(Path(self.settings.move_to or ""), path.name))
        except OSError as e:
            if not path.exists():
                return  # somebody else has put it away
            raise Stop(
                f"The file {path} was read and delivered but can't be put away",
                code="files.after-ack",
                why=e.strerror or str(e),
                hint=f"make the folder writable, or use `after-ack: keep` (it is `{self.settings.after_ack}`)",
            ) from e


@dataclass(frozen=True)
class Places:
    """Position and metadata of a record by its seq. Sent to Spark's tasks."""

    bases: tuple[int, ...]
    paths: tuple[str, ...]

    def __call__(self, seq: int) -> tuple[bytes, dict[str, str]]:
        i = bisect_right(self.bases, seq) - 1
        path = self.paths[i]
        return f"{path}#{seq - self.bases[i]}".encode(), {"penstock.file": path}


def _with_place(spark: SparkSession, lines: DataFrame, bases: dict[str, int], columns: Collection[str]) -> DataFrame:
    """Adds what says where a line stands: seq, and where they are asked for position and the file's name. What is not asked
    for must not be there: the engine counts directly above this, so nothing is pruned below."""
    from pyspark.sql import functions as F

    path, start = F.col("_metadata.file_path"), F.col("_metadata.file_block_start")
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(PLACE_MASK))
    in_file = start + F.when(start > 0, 1).otherwise(0) + place
    rows = lines.select(F.col("value"), path.alias("_path"), in_file.alias("_in_file"))
    if len(set(bases.values())) == 1:
        rows = rows.withColumn("_base", F.lit(next(iter(bases.values()))))
    elif len(bases) <= MAP_LIMIT:
        rows = rows.withColumn(
            "_base", F.create_map(*(F.lit(x) for pair in bases.items() for x in pair))[F.col("_path")]
        )
    else:
        import pyarrow as pa

        table = spark.createDataFrame(pa.table({"_path": list(bases), "_base": list(bases.values())}))
        rows = rows.join(F.broadcast(table), "_path", "left")
    encoded = F.replace(F.regexp_replace("_path", "^file:/+", "/"), F.lit("+"), F.lit("%2B"))
    local = F.url_decode(encoded)  # Spark's spelling of a name back to the name itself
    places = {
        record.POSITION: F.concat(local, F.lit("#"), F.col("_in_file")).cast("binary"),
        record.METADATA: F.create_map(F.lit("penstock.file"), local),
    }
    return rows.select(
        F.col("value").alias(record.AFTER),
        (F.col("_base") + F.col("_in_file")).alias(record.SEQ),
        *(value.alias(name) for name, value in places.items() if name in columns),
    )


def _compressed(path: str) -> bool:
    return path.endswith(".gz")


def _most_records(r: Range) -> int:
    return r.size * (GZ_RATIO if _compressed(r.strand) else 1) + 2


def _escape_glob(path: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in path)


def _spark_names(lines: DataFrame, ranges: Ranges) -> dict[str, int]:
    """The base of every file under the name that `_metadata.file_path` gives it, taken from Spark's own spelling.

    Also the proof that Spark's plan has exactly the files of the range: each of them once, and no other.
    """
    bases = {r.strand: r.base for r in ranges}
    keys: dict[str, int] = {}
    planned = lines.inputFiles()
    for uri in planned:
        path = urllib.parse.unquote(urllib.parse.urlsplit(uri).path)
        base = bases.pop(path, None)
        if base is None:
            raise Stop(f"Spark plans to read {uri}, which is not in this batch", code="files.plan")
        for prefix in ("file:", "file://"):  # the raw local file system writes one slash, the checked one three
            keys[prefix + uri.removeprefix("file://").removeprefix("file:")] = base
    if bases:
        raise Stop(f"Spark does not plan to read {next(iter(bases))}", code="files.plan")
    return keys


def _line_bytes(r: Range) -> int:
    """How many bytes the lines of a file have, counting one end for each: a BOM is no part of a line, and the last line
    may lack its end."""
    if r.size == 0:
        return 0
    with open(r.strand, "rb") as f:
        bom = f.read(3) == b"\xef\xbb\xbf"
        f.seek(-1, os.SEEK_END)
        ended = f.read(1) == b"\n"
    size = r.size - (3 if bom else 0)
    return 0 if size == 0 else size + (0 if ended else 1)


def _count(r: Range) -> int:
    """Records of a range; a file that was cut is one block, in which the place of a line is its number."""
    lines = _count_lines(Path(r.strand))
    low = 0 if r.low is None else r.low - r.base
    high = lines if r.high is None else min(lines, r.high - r.base)
    return max(0, high - low)


def _count_lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with path.open("rb") as f:
        while chunk := f.read(1 << 20):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _free_name(folder: Path, name: str) -> Path:
    target, n = folder / name, 0
    while target.exists():
        n += 1
        target = folder / f"{name}.{n}"
    return target
