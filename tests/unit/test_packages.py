"""Java packages of connectors: what Spark is told, and what is said where one can't be had. No Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine import packages
from penstock.errors import UsageError
from penstock.packages import DELTA, KAFKA, Package

DRIVER = "org.postgresql:postgresql:42.7.7"


def _delta() -> Package:
    found = DELTA["4.2"]
    assert found is not None
    return found


def test_each_package_is_taken_once_whoever_needs_it() -> None:
    found = packages.needed([{}, DELTA, {"4.2": DRIVER, "4.3": DRIVER}, DELTA], "4.2.0")
    assert [p.coordinates[0] for p in found] == ["io.delta:delta-spark_4.2_2.13:4.4.0", DRIVER]


def test_a_spark_without_the_package_is_refused_and_told_which_has_it() -> None:
    for version in ("4.3.0", "5.0.0"):
        with pytest.raises(UsageError) as caught:
            packages.needed([DELTA], version)
        assert caught.value.code == "spark.package"
        assert "delta-spark" in caught.value.what
        assert "pyspark==4.2" in caught.value.hint


def test_what_spark_is_told_is_added_to_what_the_user_says() -> None:
    kafka = KAFKA["4.2"]
    assert kafka is not None
    own = {
        "spark.jars.packages": "a:b:1",
        "spark.jars.excludes": "c:d",
        "spark.sql.extensions": "my.Extension",
        "spark.sql.catalog.spark_catalog": "my.Catalog",
        "spark.driver.memory": "3g",
    }
    made = packages.settings([_delta(), kafka], own)
    assert made["spark.jars.packages"].split(",") == ["a:b:1", *_delta().coordinates, *kafka.coordinates]
    assert made["spark.jars.excludes"].split(",") == list(dict.fromkeys(["c:d", *_delta().excludes, *kafka.excludes]))
    assert made["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert made["spark.sql.catalog.spark_catalog"] == "my.Catalog"
    assert made["spark.driver.memory"] == "3g"


def test_nothing_is_resolved_that_is_there_already(tmp_path: Path) -> None:
    """In the user's own jars, as Maven or Ivy names them, among Spark's, or in another version that the user names."""
    for jars in ("/lib/delta-spark_4.2_2.13-4.4.1.jar,/lib/x.jar", "/lib/io.delta_delta-spark_4.2_2.13-4.4.0.jar"):
        made = packages.settings([_delta()], {"spark.jars": jars})
        assert "spark.jars.packages" not in made
        assert made["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    (tmp_path / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert "spark.jars.packages" not in packages.settings([_delta()], {}, tmp_path)
    own = "io.delta:delta-spark_4.2_2.13:4.4.1"
    assert packages.settings([_delta()], {"spark.jars.packages": own})["spark.jars.packages"] == own


def test_a_package_that_could_not_be_resolved_is_one_line_and_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    before = "an older start: unresolved dependency\n"
    log.write_text(before + "\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found\n")
    conf = packages.settings([_delta()], {})
    assert packages.unresolved(conf, log, len(before)) is None
    said = "java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark_4.2_2.13;4.4.0: not found]\n"
    log.write_text(log.read_text() + said)
    error = packages.unresolved(conf, log, len(before))
    assert error is not None
    assert error.code == "spark.package"
    assert "io.delta#delta-spark_4.2_2.13" in error.why
    assert "--conf spark.jars=" in error.hint
    assert packages.unresolved({}, log, 0) is None
