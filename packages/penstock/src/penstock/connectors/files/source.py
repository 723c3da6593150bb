"""`files` as a source: its own listing, exact ranges, and a `seq` that is a function of the file alone.

`seq = base + block_start + (block_start > 0) + place in the block`. The ledger gives each file a base behind everything an
earlier file can have used, so seq is unique in the source and rises along each file, whatever else is in the batch and
however many cores there are. How files are read is in `reading.py`; here is which of them, and what becomes of them.
"""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import record
from penstock.connectors.files import lines, reading
from penstock.connectors.files.csv import PARTITION, CsvSettings, SplitLine, TypeFields
from penstock.connectors.files.json import JsonLine, JsonLineSettings
from penstock.connectors.files.layout import Layout, layout_of
from penstock.connectors.files.listing import Entry, Listing, partitions
from penstock.connectors.files.opening import compressed
from penstock.connectors.files.places import most_records
from penstock.connectors.files.places import position as position_of
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.errors import InputChanged, Stop
from penstock.native import Behind, Known, Limits, NativeSource, Processor, Range, Ranges, Shape, To
from penstock.testing import faults

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

OTHER_CODECS = (".bz2", ".lz4", ".snappy", ".deflate", ".xz", ".zip", ".br")
POLL = 0.5  # seconds between listings of a small folder
FORGET_AFTER = 60.0  # seconds a file has to be gone before what is known of it is forgotten
LISTING_SHARE = 0.02  # of one core, at most, for listing a large one
WHOLE = 2  # a file this many times larger than was aimed at is not cut: whole files are read faster
COUNT_LIMIT = 2 * 1024**3  # bytes that `count` is willing to read


class FilesSource(NativeSource[FilesSourceSettings]):
    rewinds: ClassVar[tuple[str, ...]] = ("a time: files that were changed since are taken again",)

    def __init__(self, settings: FilesSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        self._listing = Listing(Path(os.path.abspath(settings.path)), settings.settle, recursive=settings.recursive)
        self._next_listing = 0.0
        self._backlog: deque[Entry] = deque()  # listed, new, and not taken yet
        self._begun = 0  # bytes of its first file that are taken
        self._tidied = False
        self._gone: dict[str, float] = {}  # acked and no longer listed, since when
        self._was_gone: dict[str, Range] = {}  # listed again since, and what had been read under that name
        self._layouts: dict[str, Layout] = {}  # of files at the front of the backlog
        self.layout = Layout()  # of the files of the batch that is being read
        self.lines = settings.format == "text"
        self.prunes = settings.format == "parquet"
        self.shape = Shape.TYPED if settings.format == "parquet" else Shape.RAW
        self.processors = self._decoders()

    @property
    def names(self) -> tuple[str, ...]:
        return self.layout.names

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(name for name in self.layout.partitions if name not in self.layout.names)

    def _decoders(self) -> tuple[Processor[Any], ...]:
        """What makes payloads of lines."""
        s = self.settings
        if s.format == "json":
            return (JsonLine(JsonLineSettings(s.schema_), self.source_id),)
        if s.format != "csv":
            return ()
        csv = CsvSettings(s.delimiter, s.schema_)
        return SplitLine(csv, self.source_id, self), TypeFields(csv, self.source_id, self)

    def check(self) -> None:
        path = self._listing.path
        if not self._listing.root.exists() or not (path.exists() or self._listing.root != path):
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
        if not self._backlog and not self._list(known):
            return None
        ranges, full = self._cut(known, limits)
        if not ranges:  # all that was listed is something else by now: look again, or `--once` would leave it behind
            self._next_listing = 0.0
            ranges, full = self._cut(known, limits) if self._list(known) else ([], False)
        if not ranges:
            return None
        if not self._backlog:
            self._next_listing = 0.0  # there may be more: look again as soon as this batch is done, or given up
        gone = tuple(path for path, since in self._gone.items() if time.monotonic() - since >= FORGET_AFTER)
        next_seq = max([known.next_seq, *(r.base + most_records(r) for r in ranges)])
        return Ranges(tuple(ranges), next_seq, gone, full or bool(self._backlog))

    def behind(self) -> Behind:
        return Behind(files=len(self._backlog), bytes=max(0, sum(f.size for f in self._backlog) - self._begun))

    def _list(self, known: Known) -> bool:
        """Fills the backlog. A large folder is listed once for many batches."""
        if time.monotonic() < self._next_listing:
            return False
        started = time.monotonic()
        files = self._listing.settled()
        self._next_listing = time.monotonic() + max(POLL, (time.monotonic() - started) / LISTING_SHARE)
        if not self._tidied:
            self._tidy(files, known)
        self._note_gone(known)
        new = [f for f in files if self._is_new(f, known)]
        new.sort(key=lambda f: f.path not in known.strands)  # what was begun comes first
        self._backlog.extend(new)
        self._layouts.clear()
        return bool(new)

    def _note_gone(self, known: Known) -> None:
        """A file that one look has missed is not forgotten at once: it would be read again when the next look sees it."""
        present, now = self._listing.present, time.monotonic()
        back = {path: known.strands[path] for path in self._gone if path in present and path in known.strands}
        noted = self._was_gone | back
        self._was_gone = {path: r for path, r in noted.items() if path in present and known.strands.get(path) == r}
        missing = known.acked - present
        self._gone = {path: self._gone.get(path, now) for path in missing}

    def _is_new(self, file: Entry, known: Known) -> bool:
        taken = known.strands.get(file.path)
        if taken is None:
            return True
        if (taken.position["size"], taken.position["mtime"]) == (file.size, file.mtime_ns):
            self._was_gone.pop(file.path, None)
            return not _ends(taken)
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

    def _cut(self, known: Known, limits: Limits) -> tuple[list[Range], bool]:
        """Takes from the backlog what goes into one batch; and whether a limit was met. One layout per batch."""
        ranges: list[Range] = []
        base, left = known.next_seq, _Left(limits.bytes, limits.max_records, limits.max_files, limits.max_bytes)
        layout: Layout | None = None
        while self._backlog:
            file = self._backlog[0]
            if not _unchanged(file):
                self._backlog.popleft()  # the next listing sees what it is now
                continue
            _refuse_codec(file)
            here = self._layout(file)
            if layout is not None and here.key != layout.key:
                return ranges, True
            r = self._range(file, known.strands.get(file.path), base, here)
            try:
                taken = left.take(r, lambda r: self._shorten(r, left), first=not ranges)
            except OSError:
                self._backlog.popleft()  # gone since; the next listing says so
                continue
            if taken is None:
                return ranges, True
            layout = here
            ranges.append(taken)
            base = max(base, taken.base + most_records(taken))
            self._begun = taken.position["to"] if not _ends(taken) else 0
            if not _ends(taken):
                return ranges, True  # it stays in the backlog; what is known says where it goes on
            self._backlog.popleft()
            if not here.known:
                return ranges, True  # it can't be read: alone, so that nothing else suffers
        return ranges, left.met or left.nothing

    def _range(self, file: Entry, taken: Range | None, base: int, layout: Layout) -> Range:
        position: dict[str, Any] = {"size": file.size, "mtime": file.mtime_ns, "from": 0, "to": file.size}
        if layout.rows is not None:
            position["rows"] = layout.rows
        same = taken is not None and (taken.position["size"], taken.position["mtime"]) == (file.size, file.mtime_ns)
        if taken is not None and same and not _ends(taken):
            position |= {"from": taken.position["to"], "place": taken.position["next"]}
            return Range(file.path, position, taken.base, file.size - taken.position["to"])
        return Range(file.path, position, base, file.size)

    def _shorten(self, r: Range, left: _Left) -> tuple[Range, int | None]:
        """As much of a file as still fits, and how many records that is where it was counted. Only plain lines can be cut."""
        start, size = r.position["from"], r.position["size"]
        if not self._cuttable(r):
            return r, r.position.get("rows")
        place = r.position.get("place", 0)
        stop, after, n = lines.cut(
            r.strand, start, place, size, max_records=left.records, max_bytes=max(left.bytes, lines.BLOCK)
        )
        if stop >= size:
            return r, n
        return replace(r, position={**r.position, "to": stop, "next": after}, size=stop - start), n

    def _cuttable(self, r: Range) -> bool:
        return self.settings.format != "parquet" and not self.settings.multi_line and not compressed(r.strand)

    def _layout(self, file: Entry) -> Layout:
        if file.path not in self._layouts:
            if len(self._layouts) > 10_000:
                self._layouts.clear()
            self._layouts[file.path] = layout_of(file.path, self._listing.root, self.settings)
        return self._layouts[file.path]

    def idle(self) -> bool:
        return not self._listing.settling()

    def wait(self, timeout: float) -> None:
        time.sleep(min(timeout, POLL))

    # -- reading ----------------------------------------------------------------------------------------------------

    def empty(self) -> str | None:
        return None if self.settings.format in ("csv", "parquet") else f"{record.AFTER} STRING"

    def begin(self, ranges: Ranges) -> None:
        self.layout = layout_of(ranges[0].strand, self._listing.root, self.settings)
        self.layout.refuse_unknown()

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        self.begin(ranges)
        return reading.frame(spark, ranges, columns, self.settings, self.layout, self._listing.root)

    def locate(self, ranges: Ranges) -> Places:
        ordered = sorted(ranges, key=lambda r: r.base)
        return Places(tuple(r.base for r in ordered), tuple(r.strand for r in ordered), str(self._listing.root))

    def promised(self, ranges: Ranges) -> int | None:
        rows = [r.position.get("rows") for r in ranges]
        return None if None in rows or ranges.cut else sum(n for n in rows if n is not None)

    def evidence(self) -> Mapping[str, Column]:
        from pyspark.sql import functions as F

        if self.shape is Shape.TYPED:
            return {}
        return {"bytes": F.sum(F.octet_length(F.col(record.AFTER)) + F.lit(1))}

    def verify(self, ranges: Ranges, records: int, evidence: Mapping[str, int]) -> None:
        """Every byte of an uncompressed file is in exactly one line: lines and their ends add up to the size of the files."""
        if "bytes" not in evidence or any(compressed(r.strand) for r in ranges):
            return  # how much a gz holds is known only by reading it
        seen, size = evidence["bytes"], ranges.size
        if seen == sum(_line_bytes(r) for r in ranges):
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
        if (promised := self.promised(ranges)) is not None:
            return promised
        far = any(compressed(r.strand) or (r.cut and r.position["to"] > lines.BLOCK) for r in ranges)
        if ranges.size > COUNT_LIMIT or self.shape is Shape.TYPED or far:
            return None
        try:
            return sum(_count(r, header=self.settings.format == "csv" and self.settings.header) for r in ranges)
        except OSError:
            return None

    # -- after the ack ----------------------------------------------------------------------------------------------

    def acked(self, ranges: Ranges) -> Collection[str]:
        if self.settings.after_ack == "keep":
            return ()
        ended = [r for r in ranges if r.high is None and _ends(r)]  # of a file that was cut only the last piece
        for r in ended:
            self._put_away(r)
        return [r.strand for r in ended if not Path(r.strand).exists()]

    def rewound(self, known: Known, to: To) -> Known | None:
        """By what files were when they were read: one that has changed since is another matter (`on-change`)."""
        if to.time is None:
            return super().rewound(known, to)
        kept = {path: r for path, r in known.strands.items() if r.position["mtime"] < to.time}
        return Known(kept, known.next_seq, set(kept))

    def _tidy(self, files: list[Entry], known: Known) -> None:
        """What a crash between the ack and `after-ack` has left."""
        self._tidied = True
        for f in files:
            if f.path in known.acked and _ends(known.strands[f.path]):
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


@dataclass
class _Left:
    """What still fits into a batch."""

    bytes: int
    records: int | None
    files: int
    most: int  # bytes of one file that is taken whole
    met: bool = False

    @property
    def nothing(self) -> bool:
        return self.files <= 0 or self.bytes <= 0 or self.records == 0

    def take(self, r: Range, shorten: Callable[[Range], tuple[Range, int | None]], *, first: bool) -> Range | None:
        """The range, or as much of it as fits; None when the batch is full without it. The first one always comes."""
        if not first and self.nothing:
            self.met = True
            return None
        if r.size > self.bytes and not first:
            self.met = True
            return None
        n: int | None = None
        if self.records is not None or r.size > min(WHOLE * self.bytes, self.most):
            r, n = shorten(r)
            if not first and self.records is not None and (n is None or n > self.records):
                self.met = True
                return None  # it can't be cut, and is more than fits
        self.files -= 1
        self.bytes -= r.size
        if self.records is not None:
            self.records = max(0, self.records - n) if n is not None else 0
        return r


@dataclass(frozen=True)
class Places:
    """Position and metadata of a record by its seq. Sent to Spark's tasks."""

    bases: tuple[int, ...]
    paths: tuple[str, ...]
    root: str

    def __call__(self, seq: int) -> tuple[bytes, dict[str, str]]:
        i = bisect_right(self.bases, seq) - 1
        path = self.paths[i]
        return position_of(path, seq - self.bases[i]), dict(_told_by(self.root, path))

    def many(self, seqs: np.ndarray[Any, Any]) -> tuple[pa.Array, list[tuple[int, dict[str, str]]]]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        which = np.searchsorted(np.array(self.bases, np.int64), seqs, "right") - 1
        starts = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(which)] if len(which) else []
        positions, told = [], []
        for start, end in pairwise(starts):
            i = int(which[start])
            numbers = pa.array(seqs[start:end] - self.bases[i], pa.int64()).cast(pa.string())
            positions.append(pc.binary_join_element_wise(pa.scalar(self.paths[i]), numbers, pa.scalar("#")))
            told.append((end - start, dict(_told_by(self.root, self.paths[i]))))
        return pa.concat_arrays(positions or [pa.array([], pa.string())]).cast(pa.binary()), told


@lru_cache(4096)
def _told_by(root: str, path: str) -> dict[str, str]:
    """The metadata of the records of a file."""
    found = {"penstock.file": path}
    for name, value in partitions(Path(root), path).items():
        if value is not None:
            found[PARTITION + name] = value
    return found


def _ends(r: Range) -> bool:
    """True where nothing of the file comes after it."""
    return bool(r.position["to"] >= r.position["size"])


def _unchanged(file: Entry) -> bool:
    try:
        stat = os.stat(file.path)  # noqa: PTH116 - a Path for each of 10^5 files takes longer than this
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime_ns)


def _refuse_codec(file: Entry) -> None:
    if file.path.endswith(OTHER_CODECS):
        raise Stop(
            f"The file {file.path} has a compression that `files` does not read",
            code="files.codec",
            hint="use .gz, .zst or no compression, or give the file a name that ends in .tmp to leave it out",
        )


def _line_bytes(r: Range) -> int:
    """How many bytes the lines of a range have, counting one end for each: a BOM is no part of a line, and the last line
    may lack its end."""
    start, stop = r.position["from"], r.position["to"]
    if stop <= start:
        return 0
    with open(r.strand, "rb") as f:
        bom = start == 0 and f.read(3) == b"\xef\xbb\xbf"
        f.seek(stop - 1)
        ended = f.read(1) == b"\n"
    size: int = stop - start - (3 if bom else 0)
    return 0 if size == 0 else size + (0 if ended else 1)


def _count(r: Range, *, header: bool) -> int:
    """Records of a range; a file that was cut is one block, in which the place of a line is its number."""
    found = _count_lines(r)
    place = r.position.get("place", 0)
    first = 1 if header and r.position["from"] == 0 else place  # a header is no record
    low: int = first if r.low is None else max(first, r.low - r.base)
    high: int = place + found if r.high is None else min(place + found, r.high - r.base)
    return max(0, high - low)


def _count_lines(r: Range) -> int:
    found, last, left = 0, b"\n", r.position["to"] - r.position["from"]
    with open(r.strand, "rb") as f:
        f.seek(r.position["from"])
        while left > 0 and (chunk := f.read(min(left, 1 << 20))):
            found += chunk.count(b"\n")
            last = chunk[-1:]
            left -= len(chunk)
    return found + (last != b"\n")


def _free_name(folder: Path, name: str) -> Path:
    target, n = folder / name, 0
    while target.exists():
        n += 1
        target = folder / f"{name}.{n}"
    return target
