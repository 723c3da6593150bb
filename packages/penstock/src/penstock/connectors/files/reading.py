"""How `files` reads a range: lines by Spark's text reader, or by our own where a file is read in part or files are many and
small; Parquet and CSV with line breaks by Spark's readers for these. Builds plans; the jobs run later.

All of them rest on one Spark partition per file block (`engine/session.py`), and give equal `seq` for equal files.
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import record
from penstock.connectors.files import lines, records
from penstock.connectors.files.csv import PARTITION, quoted
from penstock.connectors.files.layout import Layout
from penstock.connectors.files.opening import compressed
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.errors import Stop, UnreadableFile
from penstock.native import Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BLOCKS_PER_CORE = 16  # above this many, blocks are grouped as they are sorted
GROUPS_PER_CORE = 4
PLACE_MASK = (1 << 33) - 1  # the part of monotonically_increasing_id that counts rows of a partition
MAP_LIMIT = 64  # up to this many files the bases are a map literal, above it a broadcast join
MANY, SMALL = 32, 1024 * 1024  # more files than this, smaller than this on average, are read by `lines.py`
_PLACE = (record.SEQ, record.POSITION, record.METADATA)


def frame(
    spark: SparkSession,
    ranges: Ranges,
    columns: Collection[str],
    settings: FilesSourceSettings,
    layout: Layout,
    root: Path,
) -> DataFrame:
    if settings.format == "parquet":
        return _parquet(spark, ranges, columns, settings, layout, root)
    skip = settings.format == "csv" and settings.header
    wanted = [c for c in _PLACE if c in columns]
    if settings.multi_line:
        return _records(spark, ranges, wanted, settings, layout, root)
    if _by_ourselves(ranges):
        return _lines(spark, ranges, wanted, layout, root, skip=skip)
    rows = spark.read.option("lineSep", "\n").text(_paths(ranges))
    bases = _spark_names(rows, ranges)
    after = {record.AFTER: _col("value")}
    if wanted or skip:
        rows = _with_place(spark, rows, bases, after, wanted, _in_block(rows), layout, root, skip=skip)
    else:
        rows = rows.select(*(value.alias(name) for name, value in after.items()))
    return _grouped(spark, rows, ranges)


def _by_ourselves(ranges: Ranges) -> bool:
    """Parts of files can be read only so; and many small files are read faster so (figures in `lines.py`)."""
    if any(compressed(r.strand) for r in ranges):
        return False
    part = any(r.position["from"] > 0 or r.position["to"] < r.position["size"] for r in ranges)
    return part or (len(ranges) > MANY and ranges.size < SMALL * len(ranges))


def _lines(
    spark: SparkSession, ranges: Ranges, wanted: list[str], layout: Layout, root: Path, *, skip: bool
) -> DataFrame:
    stretches = [
        lines.Stretch(r.strand, r.position["from"], r.position["to"], r.position.get("place", 0), r.base)
        for r in ranges
    ]
    tasks = tuple(lines.tasks(stretches, spark.sparkContext.defaultParallelism)) or ((),)
    columns = (record.AFTER, *wanted, *([record.SKIP] if skip else []))
    read = lines.ReadLines(tasks, columns, root=str(root) if layout.partitions else None)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, read.ddl)


def _parquet(
    spark: SparkSession,
    ranges: Ranges,
    columns: Collection[str],
    settings: FilesSourceSettings,
    layout: Layout,
    root: Path,
) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        rows = spark.read.parquet(*_paths(ranges))
    except AnalysisException as e:  # files of a batch share a layout, so it is the same with all of them
        raise UnreadableFile(ranges[0].strand, str(e).splitlines()[0]) from e
    bases = _spark_names(rows, ranges)
    pruned = {c.partition(".")[2] for c in columns if c.startswith(f"{record.AFTER}.")}
    names = [name for name in _asked(settings, rows, ranges, layout) if not pruned or name in pruned]
    path = _local(rows)
    fields = [
        (_col(quoted(name)) if name in rows.columns else _partition(path, name, root)).alias(name) for name in names
    ]
    wanted = [c for c in _PLACE if c in columns]
    after = {record.AFTER: F.struct(*fields)} if fields and (pruned or record.AFTER in columns) else {}
    place = _metadata(rows)["row_index"]
    return _grouped(spark, _with_place(spark, rows, bases, after, wanted, place, layout, root), ranges)


def _asked(settings: FilesSourceSettings, rows: DataFrame, ranges: Ranges, layout: Layout) -> list[str]:
    """The columns of the payload: those of the file, and behind them what stands in names of folders."""
    every = [*rows.columns, *(name for name in layout.partitions if name not in rows.columns)]
    if settings.columns is None:
        return every
    asked = [name.strip() for name in settings.columns.split(",")]
    missing = [name for name in asked if name not in every]
    if missing:
        raise Stop(
            f"The file {ranges[0].strand} has no column {missing[0]!r}",
            code="files.column",
            why=f"it has {', '.join(every[:50])}",
            hint="correct `columns`",
        )
    return [name for name in every if name in asked]


def _records(
    spark: SparkSession, ranges: Ranges, wanted: list[str], settings: FilesSourceSettings, layout: Layout, root: Path
) -> DataFrame:
    files = [records.Whole(r.strand, r.position["size"], r.base) for r in ranges]
    tasks = tuple(records.tasks(files, spark.sparkContext.defaultParallelism))
    columns = (record.AFTER, *wanted, *([record.SKIP] if settings.header else []))
    read = records.ReadRecords(tasks, columns, settings.delimiter, str(root) if layout.partitions else None)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, read.ddl)


def _with_place(
    spark: SparkSession,
    rows: DataFrame,
    bases: dict[str, int],
    after: dict[str, Column],
    wanted: Collection[str],
    in_file: Column,
    layout: Layout,
    root: Path,
    *,
    skip: bool = False,
) -> DataFrame:
    """Adds what says where a record stands: seq, and where they are asked for position and the file's name. What is not
    asked for must not be there: the engine counts directly above this, so nothing is pruned below."""
    from pyspark.sql import functions as F

    path = _metadata(rows)["file_path"]
    rows = rows.select(*(v.alias(n) for n, v in after.items()), path.alias("_path"), in_file.alias("_in_file"))
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
    local = _decoded(F.col("_path"))
    found = [F.lit(lines.FILE), local]
    for name in layout.partitions:
        found += [F.lit(PARTITION + name), _partition(local, name, root)]
    metadata = F.create_map(*found)
    if layout.partitions:
        metadata = F.map_filter(metadata, lambda _, value: value.isNotNull())
    places = {
        record.SEQ: F.col("_base") + F.col("_in_file"),
        record.POSITION: F.concat(local, F.lit("#"), F.col("_in_file")).cast("binary"),
        record.METADATA: metadata,
    }
    return rows.select(
        *after,
        *(value.alias(name) for name, value in places.items() if name in wanted),
        *([(F.col("_in_file") == 0).alias(record.SKIP)] if skip else []),
    )


def _in_block(rows: DataFrame) -> Column:
    from pyspark.sql import functions as F

    start = _metadata(rows)["file_block_start"]
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(PLACE_MASK))
    return start + F.when(start > 0, 1).otherwise(0) + place


def _metadata(rows: DataFrame) -> Column:
    """Spark's own, also where the data has a column of that name."""
    return rows.metadataColumn("_metadata")


def _local(rows: DataFrame) -> Column:
    return _decoded(_metadata(rows)["file_path"])


def _decoded(path: Column) -> Column:
    """Spark's spelling of a name back to the name itself."""
    from pyspark.sql import functions as F

    return _url_decoded(F.regexp_replace(path, "^file:/+", "/"))


def _url_decoded(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.url_decode(F.replace(text, F.lit("+"), F.lit("%2B")))


def _partition(path: Column, name: str, root: Path) -> Column:
    """What stands behind `name=` in a folder below the root; NULL for Hive's word for that."""
    from pyspark.sql import functions as F

    inside = F.substring(path, F.lit(len(str(root)) + 1), F.length(path))
    pattern = "/" + "".join(f"\\{c}" if not c.isalnum() and c != "_" else c for c in name) + "=([^/]*)/"
    value = F.regexp_extract(inside, pattern, 1)
    return F.when(value != "__HIVE_DEFAULT_PARTITION__", _url_decoded(value))


def _grouped(spark: SparkSession, rows: DataFrame, ranges: Ranges) -> DataFrame:
    cores = spark.sparkContext.defaultParallelism
    blocks = sum(1 if compressed(r.strand) else math.ceil(r.size / lines.BLOCK) for r in ranges)
    return rows.coalesce(GROUPS_PER_CORE * cores) if blocks > BLOCKS_PER_CORE * cores else rows


def _col(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name)


def _paths(ranges: Ranges) -> list[str]:
    return [_escape_glob(r.strand) for r in ranges]


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
