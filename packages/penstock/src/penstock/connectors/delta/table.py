"""A Delta table as its log shows it: its columns, its newest commits, and its files on disk. Runs in the engine process and asks the JVM;
nothing else of the connector knows Delta's classes.

A commit is `_delta_log/<version, 20 digits>.json`, one action in a line; `commitInfo`, which has `userMetadata`, is the first that Delta
on Spark writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock import fs
from penstock.connectors.delta.notes import Note
from penstock.errors import Stop
from penstock.packages import DELTA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NEAR = 50  # commits that are looked at before the table is asked whether there is anything to look for
CHECK = "delta.constraints."  # before the name of a rule, in the table's settings
HEAD = 10  # lines of a commit in which `commitInfo` is


@dataclass(frozen=True)
class Layout:
    schema: StructType
    partitions: tuple[str, ...]
    checks: Mapping[str, str] = field(default_factory=dict)  # by their names, as SQL


class Table:
    """`root` is its folder, a plain path or one with a scheme."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        require(spark)
        self.spark, self.root = spark, root
        self._jvm: Any = spark.sparkContext._jvm
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        self._fs = self._path().getFileSystem(conf)
        self.local = Path(root) if self._fs.getUri().getScheme() == "file" else None
        self._seen: dict[str, tuple[int, Note | None]] = {}

    def _path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join([self.root, *parts]))

    def _snapshot(self) -> Any:
        """As of now."""
        nothing = self._jvm.scala.Option.empty()
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.root)
        return log.update(False, nothing, nothing)

    def layout(self) -> Layout | None:
        """None where there is no table yet."""
        from pyspark.sql.types import StructType

        found = self._snapshot()
        if found.version() < 0:
            return None
        columns = found.metadata().partitionColumns()
        partitions = tuple(columns.apply(n) for n in range(columns.size()))
        settings = dict(self._pairs(found.metadata().configuration()))
        checks = {name.removeprefix(CHECK): text for name, text in settings.items() if name.startswith(CHECK)}
        return Layout(StructType.fromJson(json.loads(found.schema().json())), partitions, checks)

    def _pairs(self, settings: Any) -> Iterator[tuple[str, str]]:
        pairs = settings.iterator()
        while pairs.hasNext():
            pair = pairs.next()
            yield pair._1(), pair._2()

    # -- commits -------------------------------------------------------------------------------------------------------------

    def last(self, app: str) -> tuple[Note | None, int]:
        """What was delivered last under this name, and the batch the table has for it: -1 for none. Where the log does not reach back so
        far any more the batch alone is known."""
        snapshot = self._snapshot()
        newest, (seen, note) = snapshot.version(), self._seen.get(app, (-1, None))
        if newest < seen:  # another table
            seen, note = -1, None
        for version in range(newest, seen, -1):
            if newest - version == NEAR and not snapshot.transactions().get(app).isDefined():
                break
            info = self._info(version)
            if info is None:  # taken away with old age
                found = snapshot.transactions().get(app)
                return None, found.get() if found.isDefined() else -1
            mine = Note.read(info.get("userMetadata"), app)
            if mine is not None:
                note = mine
                self._sync(version)
                break
        self._seen[app] = newest, note
        return note, -1 if note is None else note.batch

    def _info(self, version: int) -> dict[str, Any] | None:
        path = self._path("_delta_log", f"{version:020}.json")
        if not self._fs.exists(path):
            return None
        java = self._jvm.java.io
        reader = java.BufferedReader(java.InputStreamReader(self._fs.open(path), "UTF-8"))
        try:
            for _ in range(HEAD):
                line = reader.readLine()
                if line is None:
                    break
                if line.startswith('{"commitInfo"'):
                    found: dict[str, Any] = json.loads(line)["commitInfo"]
                    return found
        finally:
            reader.close()
        return {}

    def _sync(self, version: int) -> None:
        """On a local disk Delta leaves it to the system when a commit and its files are on it; what is acked has to be."""
        if self.local is None:
            return
        path = self.local / "_delta_log" / f"{version:020}.json"
        adds = (json.loads(line)["add"]["path"] for line in path.read_text().splitlines() if line.startswith('{"add"'))
        files = [self.local / unquote(name) for name in adds]
        present = [file for file in files if file.exists()]  # a later commit, and a VACUUM, may have removed some
        for file in (*present, path):
            fs.fsync_file(file)
        below = {parent for file in present for parent in file.parents if self.local in parent.parents}
        for folder in (path.parent, self.local, *sorted(below)):
            fs.fsync_folder(folder)

    # -- files beside the table ----------------------------------------------------------------------------------------------

    def files(self, folder: str) -> Iterator[tuple[str, int]]:
        """Names and sizes of Spark's part files in a folder below the table's."""
        path = self._path(folder)
        for status in self._fs.listStatus(path) if self._fs.exists(path) else ():
            name = status.getPath().getName()
            if name.startswith("part-"):
                yield name, status.getLen()

    def sync_folder(self, folder: str) -> None:
        if self.local is not None:
            for path in (self.local / folder).iterdir():
                fs.fsync_file(path)
            place = self.local / folder
            for parent in (place, *list(place.parents)[: len(Path(folder).parts)]):
                fs.fsync_folder(parent)

    def remove(self, folder: str) -> None:
        self._fs.delete(self._path(folder), True)


def require(spark: SparkSession) -> None:
    """Also where a destination is finished that is no longer in its pipeline: nobody has asked Spark to load Delta for it."""
    from py4j.java_gateway import JavaClass

    if not isinstance(spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass):  # type: ignore[union-attr]
        known = next(p for p in DELTA.values() if p is not None)
        conf = "".join(f" --conf {name}={value}" for name, value in known.conf.items() if name.startswith("spark.sql."))
        raise Stop(
            "Spark was started without Delta",
            code="spark.package",
            hint=f"run with --conf spark.jars.packages={known.coordinates[0]}{conf}",
        )
