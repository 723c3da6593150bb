"""A source whose records lie in a commit log: the log is the strand, and offsets are its positions. What a queue and a connector's log
have in common. All methods are called from the lane's thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from penstock.connectors.queue.rewinding import ahead, gone, offset_since, whole_from
from penstock.connectors.queue.rows import COLUMNS, LOST, OPEN, STRUCT, Kind, LogRows, Stretch, kinds, types_of
from penstock.log import Lost, Offsets, Reader, Rows
from penstock.log import offsets as offset_files
from penstock.native import Known, Limits, NativeSource, Range, Ranges, Shape, To

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = TypeVar("S")

PER_TASK = 20_000  # records that are worth a task of their own
BATCH = 1_000_000  # records, where nothing else limits a batch


class LogSource(NativeSource[S]):
    """`avro`: raw payloads whose metadata name a schema are of it."""

    avro = False
    numbered = True  # positions are offsets
    rewinds: ClassVar[tuple[str, ...]] = ("an offset of its log", "a time")

    def __init__(self, settings: S, source_id: str) -> None:
        super().__init__(settings, source_id)
        self.kind = Kind()  # of the batch at hand

    @property
    def folder(self) -> Path:
        """Of the log."""
        raise NotImplementedError

    def shapes(self) -> tuple[Shape, ...]:
        return (Shape.RAW, Shape.OPEN, Shape.TYPED)  # known when the first record is there

    def empty(self) -> str | None:
        return None

    def cut(self, reader: Reader, start: int, end: int, known: Known, limits: Limits) -> Ranges:
        """As much as one batch may hold, of records that can be read together."""
        most = min(limits.max_records or BATCH, BATCH)
        batch = _Batch(start, most, avro=self.avro)
        for rows in reader.read(start, end):
            if not batch.take(rows) or batch.records >= most or batch.size >= limits.bytes:
                full = True
                break
        else:
            full, batch.end = False, end
        position = {"from": start, "to": batch.end, **batch.kind.to_json()}
        if batch.records != batch.end - start:
            position["records"] = batch.records  # the others were compacted away
        if batch.why:
            position["lost"] = batch.why
        base = known.next_seq
        return Ranges((Range(reader.log_id, position, base, batch.size),), base + batch.end - start, full=full)

    def begin(self, ranges: Ranges) -> None:
        (r,) = ranges
        self.kind = Kind.from_json(dict(r.position))
        typed = self.kind.after is not None and self.kind.after.startswith(STRUCT)
        self.shape = Shape.TYPED if typed else Shape.OPEN if self.kind.after == OPEN else Shape.RAW

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        (r,) = ranges
        start, end, shift = r.position["from"], r.position["to"], r.base - r.position["from"]
        n = max(1, min(spark.sparkContext.defaultParallelism, (end - start) // PER_TASK))
        cuts = [start + (end - start) * i // n for i in range(n + 1)]
        stretches = tuple(Stretch(low, high, shift) for low, high in pairwise(cuts))
        rows = self.rows(r.strand, stretches, tuple(c for c in COLUMNS if c in columns))
        return spark.range(0, n, 1, n).mapInArrow(rows, rows.ddl)

    def rows(self, log_id: str, stretches: tuple[Stretch, ...], columns: tuple[str, ...]) -> LogRows:
        return LogRows(str(self.folder), log_id, stretches, columns, self.kind, self.numbered, types_of(self.kind))

    def place(self, ranges: Ranges) -> Callable[[int], tuple[bytes, dict[str, str]]]:
        (r,) = ranges
        shift = r.base - r.position["from"]

        def found(seq: int) -> tuple[bytes, dict[str, str]]:
            offset = seq - shift
            with Reader(self.folder) as reader:
                for rows in reader.read(offset, offset + 1):
                    if isinstance(rows, Rows):
                        (one,) = rows.records()
                        return b"%d" % offset if self.numbered else one.position, dict(one.metadata)
            return b"", {}

        return found

    # -- going back ----------------------------------------------------------------------------------------------------

    def readers(self) -> tuple[str, ...]:
        """The names it has in the log's file of offsets."""
        raise NotImplementedError

    def rewound(self, known: Known, to: To) -> Known | None:
        """Only the lane goes back in the log. Whoever writes to it, and how far that was acked, is another matter."""
        if to.places:
            return None
        if to.beginning and not any(self.folder.glob("*.seg")):
            return Known({}, known.next_seq, set())
        with Reader(self.folder) as reader:
            log = reader.log_id
            last = known.strands.get(log)
            taken: int = reader.first if last is None else last.position["to"]
            if to.beginning:
                self._hold(reader.first)
                return Known({}, known.next_seq, set())
            oldest = whole_from(reader)
            at = to.offset if to.time is None else offset_since(reader, oldest, to.time)
            if at is None or at < oldest:
                raise gone(self.source_id, to, oldest)
            if to.time is not None:
                at = min(at, taken)
            elif at > taken:
                raise ahead(self.source_id, to, taken)
        self._hold(at)
        return Known({log: Range(log, {"from": at, "to": at})}, known.next_seq, {log})

    def _hold(self, start: int) -> None:
        """What is read again must not be compacted away before. Before the ledger knows of it, this only keeps more than is needed."""
        known = offset_files.load(self.folder)
        with Offsets(self.folder) as offsets:
            for name in self.readers():
                if name in known and known[name].frontier > start:
                    offset_files.forget(self.folder, name)
                offsets.register(name, start)

    def promised(self, ranges: Ranges) -> int | None:
        return None if ranges.cut else sum(_records(r) for r in ranges)

    def count(self, ranges: Ranges) -> int:
        return sum(_records(r) for r in ranges)


class _Batch:
    """What is taken of a log for one batch: it grows as long as records can be read together."""

    def __init__(self, start: int, most: int, *, avro: bool) -> None:
        self.end, self.records, self.size = start, 0, 0
        self.kind, self.why = Kind(), ""
        self._most, self._avro = most, avro

    def take(self, rows: Rows | Lost) -> bool:
        """False: not all of it fits."""
        if isinstance(rows, Lost):
            found: Iterable[tuple[int, Kind]] = [(rows.count, Kind(LOST))]
            why, each = rows.why, 0.0
        else:
            found, why, each = kinds(rows, avro=self._avro), "", rows.rows.nbytes / rows.count
        at = rows.offset
        for row, kind in found:
            both = self.kind.joined(kind)
            if both is None or (self.records and why != self.why):
                return False
            self.kind, self.why = both, why
            n = min(rows.offset + row - at, self._most - self.records)
            self.records, self.size, self.end = self.records + n, self.size + int(n * each), at + n
            at = rows.offset + row
            if self.end < at:
                return False
        return True


def end_of(ranges: Ranges) -> int:
    """The offset behind the last record."""
    (r,) = ranges
    end: int = r.position["to"] if r.high is None else r.position["from"] + r.high - r.base
    return end


def _records(r: Range) -> int:
    if not r.cut:
        whole: int = r.position.get("records", r.position["to"] - r.position["from"])
        return whole
    end: int = r.base + r.position["to"] - r.position["from"]
    return (end if r.high is None else r.high) - (r.base if r.low is None else r.low)
