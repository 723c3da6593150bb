"""`generator` as a source: one strand of numbers, and for each number a record that is computed in Spark."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection as Some
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import record
from penstock.connectors.generator import template
from penstock.connectors.generator.columns import Part, Places, Stretch
from penstock.connectors.generator.pace import Pace
from penstock.connectors.generator.settings import Collection, GeneratorSourceSettings
from penstock.errors import Stop
from penstock.native import Behind, Known, Limits, NativeSource, Range, Ranges, Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRAND = "generator"
VERSION = 1  # of what is made: raised when the same settings make other records
BATCH = 1_000_000  # records, where nothing else limits a batch
PER_TASK = 20_000  # records that are worth a task of their own

clock, sleep = time.monotonic, time.sleep  # tests have their own


class GeneratorSource(NativeSource[GeneratorSourceSettings]):
    def __init__(self, settings: GeneratorSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        parts = [c for _, c in settings.parts]
        self.shape = Shape.OPEN if parts[0].format_type == "structured" else Shape.RAW
        self.lines = all(_is_line(c) for c in parts)
        self._made: tuple[Part, ...] | None = None
        self._pace = Pace(settings.records_per_second, settings.sleep_time, settings.generate_time)
        self._opened: tuple[float, int] | None = None  # when, and at which number
        self._due = 0.0  # when it is worth asking again
        self._ended = False
        self._next = 0

    def check(self) -> None:
        self._parts()

    def _parts(self) -> tuple[Part, ...]:
        """Files are read once: what they are at the start is what every record of this run gets."""
        if self._made is None:
            self._made = tuple(
                Part(name, c.operations, c.pieces() if c.path is None else (_content(c.path),))
                for name, c in self.settings.parts
            )
        return self._made

    # -- what is there ----------------------------------------------------------------------------------------------

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        last = known.strands.get(STRAND)
        start: int = last.position["to"] if last is not None else 0
        now = clock()
        if self._opened is None:
            self._opened = (now, start)
        elapsed, made = now - self._opened[0], start - self._opened[1]
        size = self._size()
        most = min(limits.max_records or BATCH, max(1, limits.bytes // size))
        if self.settings.record_count:
            most = min(most, self.settings.record_count - start)
            self._ended = most <= 0
            if self._ended:
                return None
        records = self._pace.allowed(elapsed, made, most)
        if not records:
            self._due = now + self._pace.delay(elapsed, made, most)
            return None
        position = {"from": start, "to": start + records, "seed": self.settings.seed, "format": self._digest()}
        self._next = start + records
        base = known.next_seq  # the number itself, unless the source was rewound
        return Ranges((Range(STRAND, position, base, records * size),), base + records)

    def behind(self) -> Behind | None:
        """Only what is limited has an end."""
        count = self.settings.record_count
        return Behind(records=max(0, count - self._next)) if count else None

    def _size(self) -> int:
        sizes = [template.size(p.pieces) for p in self._parts()]
        return max(1, sum(sizes) // len(sizes))

    def _digest(self) -> str:
        """Names what makes the content, besides the seed."""
        pieces = [[p.name, p.operations, [repr(piece) for piece in p.pieces]] for p in self._parts()]
        return hashlib.blake2b(json.dumps([VERSION, pieces]).encode(), digest_size=8).hexdigest()

    def idle(self) -> bool:
        return self._ended

    def wait(self, timeout: float) -> None:
        until = self._due - clock()
        sleep(timeout if self._ended else min(timeout, max(until, 0.001)))

    # -- reading ----------------------------------------------------------------------------------------------------

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Some[str]) -> DataFrame:
        """A batch that was open while the settings changed is made with the new ones (decision 6), at the same numbers."""
        (r,) = ranges
        low, high = r.position["from"], r.position["to"]
        tasks = max(1, min(spark.sparkContext.defaultParallelism, (high - low) // PER_TASK))
        made = Stretch(self._parts(), self.settings.seed, low, high, r.base).columns()
        wanted = [c for c in record.COLUMNS if c in made and c in columns]
        return spark.range(low, high, 1, tasks).select(*(made[c].alias(c) for c in wanted))

    def locate(self, ranges: Ranges) -> Places:
        (r,) = ranges
        return Places(r.position["from"] - r.base, tuple(name for name, _ in self.settings.parts))

    def promised(self, ranges: Ranges) -> int:
        return sum(r.position["to"] - r.position["from"] for r in ranges)

    def count(self, ranges: Ranges) -> int:
        """Of a range that was cut, what is left of it."""
        return sum(_records(r) for r in ranges)


def _records(r: Range) -> int:
    end: int = r.base + r.position["to"] - r.position["from"]
    return (end if r.high is None else r.high) - (r.base if r.low is None else r.low)


def _is_line(c: Collection) -> bool:
    """Each payload is a line: it is there, and has no line break. Nobody has looked into a file yet."""
    return c.path is None and "delete" not in c.operations and template.one_line(c.pieces())


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise Stop(
            f"The file {path}, which is to be every payload, can't be read",
            code="files.missing",
            why=e.strerror or str(e),
            hint="create the file or correct `format.options.path`",
        ) from e
