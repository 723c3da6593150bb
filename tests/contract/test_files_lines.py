"""What `lines.py` reads, held against Spark's own text reader: the same lines with the same numbers over more than one block."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.connectors.files.lines import BLOCK, BOM, ReadLines, Stretch, cut, tasks
from penstock.engine.session import for_lane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ODD = "ü b+%20[x] #.txt"
COLUMNS = ("after", "seq", "position", "metadata")


def text(size: int, start: bytes = b"", seed: int = 1) -> bytes:
    """Lines of many lengths, among them empty ones, odd line ends and bytes that are no UTF-8."""
    chance = random.Random(seed)
    noise = chance.randbytes(1 << 16).replace(b"\n", b"\r")
    made, length = [start], len(start)
    while length < size:
        begin = chance.randrange(len(noise))
        line = noise[begin : begin + chance.choice((0, 1, 10, 3000, 9000))] + b"\n"
        made.append(line)
        length += len(line)
    return b"".join(made)[:size]


def contents() -> Iterator[tuple[str, bytes]]:
    yield "boundary.txt", text(BLOCK - 1, BOM) + b"\n" + b"at the boundary\nbehind it\n" + text(100_000) + b"\n"
    yield "behind.txt", text(BLOCK, seed=2) + b"\nstarts one byte behind the boundary\n" + text(3 * 2**20, seed=3)
    yield "long.txt", b"first\n" + b"x" * (BLOCK + 5_000_000) + b"\nlast"
    yield ODD, b"\n\na\r\n"
    yield "bom.txt", BOM
    yield "bom-line.txt", BOM + b"\n" + BOM
    yield "empty.txt", b""


def by_spark(spark: SparkSession, bases: dict[str, int]) -> DataFrame:
    from pyspark.sql import functions as F

    frames = spark.read.option("lineSep", "\n").text(str(Path(next(iter(bases))).parent))
    start, place = F.col("_metadata.file_block_start"), F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    encoded = F.replace(F.regexp_replace("_metadata.file_path", "^file:/+", "/"), F.lit("+"), F.lit("%2B"))
    base = F.create_map(*(F.lit(x) for pair in bases.items() for x in pair))[F.url_decode(encoded)]
    seq = base + start + F.when(start > 0, 1).otherwise(0) + place
    return frames.select(F.col("value").cast("binary").alias("after"), seq.alias("seq"))


def test_lines_and_numbers_are_those_of_sparks_reader(spark: SparkSession, tmp_path: Path) -> None:
    lane = for_lane(spark)
    bases, stretches = dict[str, int](), list[Stretch]()
    for name, data in contents():
        path = str(tmp_path / name)
        Path(path).write_bytes(data)
        bases[path] = base = len(bases) * 10**9
        start = place = 0
        while start < len(data):  # in pieces that begin anywhere in a block
            stop, place_then, _ = cut(path, start, place, len(data), max_records=9_000, max_bytes=2 * BLOCK)
            stretches.append(Stretch(path, start, stop, place, base))
            start, place = stop, place_then
    packed = tasks(stretches, 2)
    read = ReadLines(tuple(packed), COLUMNS)
    n = len(packed)
    ours = (
        lane.range(0, n, 1, n)
        .mapInArrow(read, read.ddl)
        .selectExpr("cast(after as binary) after", *COLUMNS[1:])
        .toArrow()
    )
    theirs = by_spark(lane, bases).toArrow().sort_by("seq")
    assert ours["seq"].to_pylist() == theirs["seq"].to_pylist()
    assert ours["after"].combine_chunks() == theirs["after"].combine_chunks()
    odd = [row for row in ours.slice(len(ours) - 6).to_pylist() if row["seq"] // 10**9 == 3]
    path = str(tmp_path / ODD)
    assert [r["after"] for r in odd] == [b"", b"", b"a\r"]
    assert [r["position"] for r in odd] == [f"{path}#{k}".encode() for k in range(3)]
    assert [dict(r["metadata"]) for r in odd] == [{"penstock.file": path}] * 3
