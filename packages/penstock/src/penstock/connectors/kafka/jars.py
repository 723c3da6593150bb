"""The jar that Spark's package for Kafka needs and Spark does not fetch (see `penstock/packages.py`). Added to a JVM that runs; in the
engine process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import Stop
from penstock.native import fetching
from penstock.packages import KAFKA, minor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = "org.apache.spark.kafka010.KafkaConfigUpdater"  # a class of it


def complete(spark: SparkSession) -> None:
    """Spark has all of its package for Kafka when this returns."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if _has(loader, _NEEDED):
        return
    package = KAFKA.get(minor(spark.version))
    for coordinates in package.coordinates[1:] if package is not None else ():
        add(spark, f"ivy://{coordinates}?transitive=false")


def add(spark: SparkSession, uri: str) -> None:
    """Fetched by Spark's own resolver, and given to whatever runs in this JVM and to all executors."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        with fetching.alone([uri.removeprefix("ivy://").partition("?")[0]]):
            found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(jvm.java.net.URI(uri))
    except Exception as e:
        raise Stop(
            f"Spark can't get what its package for Kafka needs: {uri.removeprefix('ivy://').partition('?')[0]}",
            code="kafka.package",
            why=str(getattr(e, "java_exception", e)).partition("\n")[0],
            hint="see that Maven Central can be reached; without a network give the jars yourself: --conf"
            " spark.jars=/path/a.jar,/path/b.jar",
        ) from e
    for path in jvm.scala.jdk.javaapi.CollectionConverters.asJava(found):
        loader.addURL(jvm.java.io.File(path).toURI().toURL())
        spark.sparkContext._jsc.addJar(path)


def _has(loader: Any, name: str) -> bool:
    try:
        loader.loadClass(name)
    except Exception:  # Py4J's own around ClassNotFoundException
        return False
    return True
