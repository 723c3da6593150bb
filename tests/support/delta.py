"""A Spark with Delta for tests, in a process of its own: PySpark has one JVM for each process, and that of the other tests has no Delta.

`python -m tests.support.delta FOLDER [kafka]` starts it, says how to attach to it, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from tests.support.harness import Gateway

ROOT = Path(__file__).parents[2]
CONF = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}


@contextmanager
def server(folder: Path, *more: str) -> Iterator[Gateway]:
    command = [sys.executable, "-m", "tests.support.delta", str(folder), *more]
    errors = folder / "errors.txt"
    with (
        errors.open("w") as err,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, cwd=ROOT
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said and "spark.package" in errors.read_text():
            pytest.skip("Spark's packages can't be had from Maven")
        assert said, f"Spark with Delta did not start: {errors.read_text()[-2000:]}"
        port, secret = json.loads(said)
        yield port, secret
        process.stdin.close()


def rows(table: Path, column: str) -> list[Any]:
    """The values of a column, as the log of the table says: files that were added and not removed. Not in any order."""
    files: dict[str, None] = {}
    for path in sorted((table / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = None
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    return [value for name in files for value in pq.read_table(table / unquote(name), columns=[column])[0].to_pylist()]


def staged(table: Path) -> list[str]:
    """What attempts have left."""
    return [str(path) for path in (table / "_penstock").glob("*/*/*")]


def _serve(folder: Path, *more: str) -> None:
    from penstock.engine import session
    from penstock.packages import DELTA, KAFKA

    packages = [table["4.2"] for table in (DELTA, *(KAFKA for _ in more))]
    spark = session.start("local[2,4]", CONF, folder / "spark.log", packages=[p for p in packages if p is not None])
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    print(json.dumps([parameters.port, parameters.auth_token]), flush=True)
    sys.stdin.read()
    session.end(spark)
    os._exit(0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), *sys.argv[2:])
