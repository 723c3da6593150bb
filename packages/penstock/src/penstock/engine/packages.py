"""Java packages that connectors need: as settings for a Spark that is about to start, and looked for in one that is there.

Spark resolves packages when its JVM starts and never later, so the engine takes the union over all pipelines first. A run whose
connectors need none pays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.packages import Needs, Package, minor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS, PACKAGES, EXCLUDES = "spark.jars", "spark.jars.packages", "spark.jars.excludes"
_LISTS = (PACKAGES, EXCLUDES, "spark.sql.extensions")  # ours is added to the user's; of anything else the user's counts
_UNRESOLVED = re.compile(r"unresolved dependency: [^\]\n]+")
_TAIL = 1 << 20  # bytes of spark.log that are looked at
OFFLINE = "without a network give the jars yourself, with all they need: --conf spark.jars=/path/a.jar,/path/b.jar"


def needed(needs: Iterable[Needs], spark: str) -> list[Package]:
    """What these connectors need on this Spark, each once."""
    found: dict[tuple[str, ...], Package] = {}
    for by_version in needs:
        if not by_version:
            continue
        package = by_version.get(minor(spark))
        if package is None:
            known = next((_package(p).coordinates[0] for p in by_version.values() if p is not None), "a package")
            versions = [version for version, p in by_version.items() if p is not None]
            raise UsageError(
                f"There is no package for Spark {spark} of what a connector needs ({_artifact(known)})",
                code="spark.package",
                why=f"it is known for Spark {', '.join(versions)}",
                hint=f"use that Spark: pip install 'pyspark=={versions[0]}.*'" if versions else "use another Spark",
            )
        made = _package(package)
        found[made.coordinates] = made
    return list(found.values())


def _package(value: Package | str) -> Package:
    return Package(tuple(value.split(","))) if isinstance(value, str) else value


def installed() -> str:
    """The version of Spark, without importing it where that is possible."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # it came with a cluster, and is only on the path
        from pyspark.version import __version__

        return __version__


def settings(packages: Iterable[Package], conf: Mapping[str, str], jars: Path | None = None) -> dict[str, str]:
    """A user's settings, with what these packages need. One that is there already, in `spark.jars` or among the `jars` of Spark itself,
    is not resolved; of one that the user names in another version the user's is taken."""
    made = dict(conf)
    named = {_artifact(c) for c in conf.get(PACKAGES, "").split(",") if c}
    files = [jar.rpartition("/")[2] for jar in conf.get(JARS, "").split(",")]
    for package in packages:
        for name, value in package.conf.items():
            made[name] = _joined(made.get(name, ""), (value,)) if name in _LISTS else made.get(name, value)
        wanted = [c for c in package.coordinates if _artifact(c) not in named]
        own = _artifact(package.coordinates[0])
        there = any(file.startswith(f"{own}-") or f"_{own}-" in file for file in files)  # the second as Ivy names them
        if wanted and not there and not (jars is not None and list(jars.glob(f"{own}-*.jar"))):
            made[PACKAGES] = _joined(made.get(PACKAGES, ""), wanted)
            if package.excludes:
                made[EXCLUDES] = _joined(made.get(EXCLUDES, ""), package.excludes)
    return made


def _artifact(coordinate: str) -> str:
    """org.x:name:1.0 → name."""
    return coordinate.split(":")[1] if ":" in coordinate else coordinate


def _joined(given: str, more: Iterable[str]) -> str:
    return ",".join(dict.fromkeys([*(part for part in given.split(",") if part), *more]))


def unresolved(conf: Mapping[str, str], log: Path, start: int) -> UsageError | None:
    """Why Spark did not start, if it was for a package: what it wrote into its log from `start` on says so."""
    if not conf.get(PACKAGES):
        return None
    with log.open("rb") as file:
        file.seek(start)
        said = _UNRESOLVED.search(file.read(_TAIL).decode(errors="replace"))
    if said is None:
        return None
    return UsageError(
        f"Spark can't get a package that a connector needs: {conf[PACKAGES]}",
        code="spark.package",
        why=said[0][:200],
        hint=f"see that Maven Central can be reached, or name another repository: --conf spark.jars.repositories=URL; {OFFLINE}",
    )


def refuse_missing(spark: SparkSession, packages: Iterable[Package]) -> None:
    """A session that the caller brings has what it has."""
    from py4j.java_gateway import JavaClass

    for package in packages:
        name = package.coordinates[0]
        if package.entry and not isinstance(_look_up(spark, package.entry), JavaClass):
            raise UsageError(
                f"The Spark session has no {_artifact(name)}, which a connector needs",
                code="spark.package",
                hint=f"start the session with spark.jars.packages={name}{_told(package)}; {OFFLINE}",
            )
        extensions = package.conf.get("spark.sql.extensions", "")
        if extensions not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise UsageError(
                f"The Spark session was started without what {_artifact(name)} needs",
                code="spark.package",
                why=f"spark.sql.extensions does not name {extensions}",
                hint=f"start the session with{_told(package)}",
            )


def _told(package: Package) -> str:
    return "".join(f" {name}={value}" for name, value in package.conf.items() if name.startswith("spark.sql."))


def _look_up(spark: SparkSession, name: str) -> object:
    found: object = spark.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found
