"""`python -m penstock.cli.archive`: makes the class archive that `engine/archive.py` uses. `make setup` runs it once, or else the
first `penstock run` when it has ended (`--quietly`).

A small pipeline runs in a JVM that archives its classes when it ends; that takes about twenty seconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine import archive, session
from penstock.pipeline import Pipeline

KEEP = 3  # archives of other environments; each has 150 MB


def build() -> Path | None:
    """Makes the archive; None when there is no Java or no Spark, or the JVM made none."""
    target = archive.location()
    if target is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.with_suffix(".lock")) as alone:
        return _build(target) if alone else None


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """One at a time. The kernel lets go of the lock with the process; a file that one has left behind means nothing."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            lock.unlink(missing_ok=True)


def _build(target: Path) -> Path | None:
    with tempfile.TemporaryDirectory(prefix="penstock-archive-") as folder:
        made = Path(folder) / "classes.jsa"
        subprocess.run([sys.executable, "-m", "penstock.cli.archive", "--train", folder, str(made)], check=True)
        if not made.exists():
            return None
        partial = target.with_suffix(".tmp")
        shutil.copyfile(made, partial)
        partial.replace(target)
    by_age = sorted(target.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[KEEP:]:
        old.unlink(missing_ok=True)
    return target


def train(folder: Path, made: Path) -> None:
    """What a first run does, so that its classes are in the archive: lines, a Python stage, Parquet. In a process of its own: the
    JVM has to end."""
    (folder / "in").mkdir()
    (folder / "in" / "lines.txt").write_text('{"n": 1}\n{"n": 2}\n')
    spark = session.start("local[*,4]", {}, folder / "spark.log", [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
    gateway = spark.sparkContext._gateway
    lines = Pipeline("lines").source("in", "files", path=folder / "in", settle="0s")
    lines.processor("keep", "filter", condition="seq < 0 and position is null")
    lines.destination("out", "files", path=folder / "lines")
    python = Pipeline("python").source("in", "files", path=folder / "in", settle="0s").dead_letter_queue(window=0)
    python.processor("decode", "json.decode").processor("two", "error", condition="after.n = 2")
    python.processor("encode", "json.encode").destination("out", "files", path=folder / "python")
    typed = Pipeline("typed").source("in", "files", path=folder / "in", format="json", schema="n INT", settle="0s")
    typed.destination("out", "files", path=folder / "typed", format="parquet")
    parquet = Pipeline("parquet").source("in", "files", path=folder / "typed", format="parquet", settle="0s")
    parquet.processor("one", "filter", condition="after.n = 1")
    parquet.processor("more", "sql", expression="after.n + 1", field=".Payload.After.m")
    parquet.destination("out", "files", path=folder / "parquet", format="parquet")
    for pipeline in (lines, python, typed, parquet):
        pipeline.run(spark, state=folder / "state")
    spark.stop()
    gateway.proc.stdin.close()  # type: ignore[union-attr]
    gateway.proc.wait(120)  # type: ignore[union-attr]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(Path(sys.argv[2]), Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--quietly"]:
        os.nice(19)
        build()
    else:
        print(f"class archive: {build() or 'not made (no Java, or no Spark); starts are a little slower'}")
