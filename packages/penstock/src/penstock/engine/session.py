"""The Spark session: made here unless the caller brings one, and one `newSession()` per lane with the lane's settings.

A setting in REQUIRED or LANE carries a promise. A user's `--conf`, or a session that is brought along, that contradicts one
of REQUIRED is refused by its name; LANE is set on the lane's own session, so nothing outside can contradict it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine import archive
from penstock.errors import UsageError
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Fixed when the JVM starts; checked on a session that is brought along.
REQUIRED = {
    "spark.speculation": "false",  # a second copy of a task would stage its rows twice
}

# Chosen for a session of our own; a user may change them.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # no .crc beside every file
    "spark.sql.legacy.createHiveTableByDefault": "false",
    "spark.driver.memory": "2g",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.unix.domain.socket.enabled": "true",  # an eighth less of a processor between Spark and Python than TCP
}

# Embedded Spark talks to nobody else.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# On every lane's session. `seq` and the order of output names rest on one partition per file block.
LANE = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.subexpressionElimination.enabled": "false",  # this and the next: see trap.py
    "spark.sql.alwaysInlineCommonExpr": "true",
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.files.openCostInBytes": "64m",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionNum": "2147483647",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is one that other readers have given up
    "spark.sql.parquet.mergeSchema": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
}


# Variables that Java, Spark and its Python workers look at: never kept from them.
NEEDED = ("JAVA", "_JAVA", "JDK", "SPARK", "PYSPARK", "_PYSPARK", "PYTHON", "HADOOP", "YARN", "LC_", "LD_", "XDG_")


def start(
    master: str,
    conf: Mapping[str, str],
    log_file: Path,
    jvm_options: Sequence[str] | None = None,
    *,
    secrets: Secrets | None = None,
) -> SparkSession:
    """Starts Spark for this process. What the JVM prints goes to `log_file`, without `secrets`; the variables these are in are
    not in the environment of the JVM and of what it starts.

    `jvm_options` are the engine's own, by default the class archive that makes the start quicker.
    """
    secrets = Secrets() if secrets is None else secrets
    refuse_conflicts(conf)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYSPARK_PIN_THREAD"] = "true"  # else tags and pools of lanes do not reach Spark
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    loopback = LOOPBACK if master.startswith("local") else {}
    settings = {"spark.master": master, "spark.app.name": "penstock", **DEFAULTS, **loopback, **conf, **REQUIRED}
    options = archive.use() if jvm_options is None else jvm_options
    settings[JAVA_OPTIONS] = " ".join([*options, settings.get(JAVA_OPTIONS, "")]).strip()
    spark_conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with _log(log_file, secrets) as log, _without(secrets.names):
            gateway = launch_gateway(spark_conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=spark_conf)
        spark = SparkSession.builder.config(conf=spark_conf).getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as e:
        raise UsageError(
            "Spark did not start",
            code="spark.start",
            why=str(e).splitlines()[0],
            hint="Spark needs Java 17 or newer: install it (e.g. openjdk-17-jre-headless) or set JAVA_HOME;"
            f" what the JVM said is in {log_file}",
        ) from e
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own would cancel every job at the first Ctrl-C
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True  # they print whole plans; the error itself says what is wrong
    return spark


@contextmanager
def _without(names: Collection[str]) -> Iterator[None]:
    """PySpark gives the JVM a copy of our environment, and takes no other."""
    taken = {name: os.environ.pop(name) for name in names if name in os.environ and not name.startswith(NEEDED)}
    try:
        yield
    finally:
        os.environ.update(taken)


@contextmanager
def _log(file: Path, secrets: Secrets) -> Iterator[int]:
    """Where the JVM writes to: the file itself, or with secrets a pipe to a thread that leaves them out."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    if not secrets:
        written = log
    else:
        read, written = os.pipe()
        threading.Thread(target=_copy, args=(read, log, secrets), name="spark.log", daemon=True).start()
    try:
        yield written
    finally:
        os.close(written)  # the JVM has its own


def _copy(read: int, log: int, secrets: Secrets) -> None:
    """Until the JVM has ended. It must never wait for us: what can't be written is given up."""
    with os.fdopen(read, "rb") as lines, os.fdopen(log, "ab", buffering=0) as out:
        for line in lines:
            text = secrets.hide(line.decode(errors="surrogateescape"))
            with suppress(OSError):
                out.write(text.encode(errors="surrogateescape"))


def refuse_conflicts(conf: Mapping[str, str]) -> None:
    """A user's setting that contradicts a promise is refused by its name."""
    for name, value in {**REQUIRED, **LANE}.items():
        given = conf.get(name)
        if given is not None and given.lower() != value.lower():
            raise UsageError(
                f"The Spark setting {name}={given} contradicts what Penstock promises",
                code="spark.setting",
                why=f"it has to be {value}",
                hint="leave it out",
            )


def refuse_session(spark: SparkSession) -> None:
    """The same for a session the caller brings."""
    refuse_conflicts({name: spark.sparkContext.getConf().get(name, value) or value for name, value in REQUIRED.items()})


def for_lane(spark: SparkSession) -> SparkSession:
    """A session of the lane's own over the same Spark: what it sets, nobody else sees."""
    session = spark.newSession()
    for name, value in LANE.items():
        session.conf.set(name, value)
    return session
