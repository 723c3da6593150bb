"""What Spark's writers leave under a staging folder, and in which order it belongs. Used by the engine and by destinations
that stage files; runs in the engine process."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import record
from penstock.native.delivery import DeliveryId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PART = re.compile(r"part-(\d+)-(?:.*[.-]c(\d+)(?:\.|$))?")
FOLDER = "_folder"  # the column, and so the staged folder's name, for the folder a record goes to
_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"


def part_order(path: Path) -> tuple[int, int, int]:
    """Stretches of a strand first, where a folder says so, then the number Spark gave the file, then the piece of it."""
    number, piece = _PART.match(path.name).groups()  # type: ignore[union-attr]
    return int(_value(path, record.ORDER) or 0), int(number), int(piece or 0)


def folder_of(path: Path) -> str:
    """The folder that the records of a staged file go to; empty for the destination's own."""
    return _value(path, FOLDER) or ""


def free_names(names: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """Names for columns beside those of a payload, which may be called anything: `_` is put behind until they differ."""
    free = {}
    for name in names:
        free[name] = name
        while free[name] in taken:
            free[name] += "_"
    return free


def _value(path: Path, name: str) -> str | None:
    for parent in path.parents:
        key, _, value = parent.name.partition("=")
        if key.rstrip("_") == name:  # see `free_names`
            return urllib.parse.unquote(value)  # Spark has put % before what a name can't hold
    return None


def lane_name(d: DeliveryId) -> str:
    """One prefix per lane: a dot inside an id is encoded, so that a.b + c and a + b.c stay apart."""
    return ".".join(part.replace(".", "%2E") for part in (d.pipeline, d.lane))


def write_lines(rows: DataFrame, folders: Sequence[str], folder: Path) -> tuple[int, int]:
    """Writes the column `value`, a folder for each value of the others. Returns how many lines of how many bytes there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    size = F.sum(F.octet_length("value") + F.lit(1)).alias("bytes")
    rows.observe(seen, F.count(F.lit(1)).alias("rows"), size).write.partitionBy(*folders).text(str(folder))
    return seen.get["rows"], seen.get["bytes"] or 0


@contextmanager
def sorted_writes(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Within this a write of rows that are sorted by its folders keeps their order, however many folders there are. Else
    Spark keeps a few writers open, and sorts what is left over by its own lights. Only one thread writes in a lane's session
    while batches are staged."""
    before = spark.conf.get(_WRITERS)
    if wanted:
        spark.conf.set(_WRITERS, "0")
    try:
        yield
    finally:
        if wanted:
            spark.conf.set(_WRITERS, before or "0")
