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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engine import archive, java
from penstock.engine import packages as java_packages
from penstock.engine.jvm import Jvm, spark_home
from penstock.errors import UsageError
from penstock.native import fetching
from penstock.packages import Package
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRELOAD = "PENSTOCK_PRELOAD"  # for `engine/python/daemon.py`
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

# Embedded Spark talks to nobody else, and forks Python workers that have what they need.
EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "penstock.engine.python.daemon",
    # Spark has a daemon for each environment. With this, which it sets for stages only, the one that is made early is theirs.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}

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


# Java's second compiler is for what runs hot. By its defaults it spends seconds on code that only a start needs, on cores that the
# start needs; what runs for every record is hot all the same. (20 times the defaults.)
LATER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)


class Starting:
    """Spark on its way up, in a thread of its own: there is enough to do meanwhile. `unwanted` is set when nobody waits for it any more."""

    def __init__(
        self, start: Callable[[Callable[[Jvm], None]], SparkSession], unwanted: threading.Event | None = None
    ) -> None:
        self._jvm: Jvm | None = None
        self._spark: SparkSession | None = None
        self._error: BaseException | None = None
        self._unwanted = unwanted or threading.Event()
        self._thread = threading.Thread(target=self._run, args=(start,), name="spark", daemon=True)
        self._thread.start()

    def _run(self, start: Callable[[Callable[[Jvm], None]], SparkSession]) -> None:
        try:
            self._spark = start(self._launched)
        except BaseException as e:
            self._error = e

    def _launched(self, jvm: Jvm) -> None:
        self._jvm = jvm
        if self._unwanted.is_set():
            jvm.end()

    def wait(self, given_up: Callable[[], bool]) -> SparkSession | None:
        """None when `given_up` became true before it was there."""
        while self._thread.is_alive():
            if given_up():
                self.abandon()
                return None
            self._thread.join(0.05)
        if self._error is not None:
            raise self._error
        spark, self._spark = self._spark, None
        return spark

    def abandon(self) -> None:
        """Does nothing to a Spark that was handed out."""
        self._unwanted.set()
        if self._thread.is_alive() and self._jvm is not None:
            self._jvm.end()
        self._thread.join()
        if self._spark is not None:
            end(self._spark)
        elif self._jvm is not None and self._jvm.process.poll() is not None:
            _forget_jvm(self._jvm.process)


def begin(
    master: str,
    conf: Mapping[str, str],
    log_file: Path,
    *,
    secrets: Secrets | None = None,
    python: Collection[str] = (),
    packages: Collection[Package] = (),
) -> Starting:
    """Starts Spark beside what the caller does next. Where there are Python stages, `python` are the modules they need, and a
    worker is made ready, too. `packages`: what connectors need."""
    more: dict[str, Any] = {"secrets": secrets, "python": python, "packages": packages}
    unwanted = threading.Event()
    more["given_up"] = unwanted.is_set
    return Starting(lambda tell: start(master, conf, log_file, **more, launched=tell), unwanted)


def start(
    master: str,
    conf: Mapping[str, str],
    log_file: Path,
    jvm_options: Sequence[str] | None = None,
    *,
    secrets: Secrets | None = None,
    python: Collection[str] = (),
    packages: Collection[Package] = (),
    launched: Callable[[Jvm], None] = lambda _: None,
    given_up: Callable[[], bool] = lambda: False,
) -> SparkSession:
    """Starts Spark for this process. What the JVM prints goes to `log_file`, without `secrets`; the variables these are in are
    not in the environment of the JVM and of what it starts.

    `jvm_options` are the engine's own, by default the class archive that makes the start quicker.
    """
    secrets = Secrets() if secrets is None else secrets
    refuse_conflicts(conf)
    java.require()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYSPARK_PIN_THREAD"] = "true"  # else tags and pools of lanes do not reach Spark
    embedded = (
        {**EMBEDDED, f"spark.executorEnv.{PRELOAD}": ",".join(sorted(python))} if master.startswith("local") else {}
    )
    if packages:
        conf = java_packages.settings(packages, conf, spark_home() / "jars")
    settings = {"spark.master": master, "spark.app.name": "penstock", **DEFAULTS, **embedded, **conf, **REQUIRED}
    options = archive.use() if jvm_options is None else jvm_options
    settings[JAVA_OPTIONS] = " ".join([*LATER, *options, settings.get(JAVA_OPTIONS, "")]).strip()
    before = log_file.stat().st_size if log_file.exists() else 0
    wanted = settings.get(java_packages.PACKAGES, "")
    try:
        with fetching.alone(filter(None, wanted.split(",")), settings.get("spark.jars.ivy", ""), given_up):
            with _log(log_file, secrets) as log:
                jvm = Jvm(settings, _environment(secrets), log, log_file)
            launched(jvm)
            gateway = jvm.connect()
    except UsageError as e:
        raise java_packages.unresolved(settings, log_file, before) or e from e
    return _session(gateway, warm=bool(python and embedded))


def _session(gateway: Any, *, warm: bool) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    SparkContext._ensure_initialized(gateway=gateway)
    context = SparkContext.getOrCreate()  # the JVM has the settings: to tell it each of them again takes a while
    if warm:
        _aside(_fork, context)
    spark = SparkSession.builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own would cancel every job at the first Ctrl-C
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True  # they print whole plans; the error itself says what is wrong
    return spark


def _aside(work: Callable[[Any], None], given: Any) -> None:
    """Only ever makes things quicker: what goes wrong there goes wrong again where it matters."""

    def body() -> None:
        with suppress(Exception):
            work(given)

    threading.Thread(target=body, name=f"spark{work.__name__}", daemon=True).start()


def _fork(context: Any) -> None:
    """The first Python task waits until a Python has started and loaded its modules: here while the plan is being made."""
    context.parallelize([0], 1).foreach(_nothing)


def _nothing(_: int) -> None:
    pass


def end(spark: SparkSession) -> None:
    """Stops a Spark that `start` has made, JVM included: the next one in this process starts anew. One that is gone already is
    no error."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    with suppress(Exception):
        spark.stop()
    if process is None:
        return
    _forget_jvm(process)
    with suppress(OSError):
        process.stdin.close()  # it ends by this


def _forget_jvm(process: Any) -> None:
    """PySpark would go on with the one that this process had first. Another one that is in use is left alone."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is not process:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):
        gateway.shutdown()


def _environment(secrets: Secrets) -> dict[str, str]:
    """Ours, without what a pipeline's settings refer to."""
    return {name: v for name, v in os.environ.items() if name not in secrets.names or name.startswith(NEEDED)}


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


def active() -> SparkSession | None:
    """The one that this process has already, if any."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def refuse_session(spark: SparkSession) -> None:
    """The same for a session the caller brings."""
    refuse_conflicts({name: spark.sparkContext.getConf().get(name, value) or value for name, value in REQUIRED.items()})


def for_lane(spark: SparkSession) -> SparkSession:
    """A session of the lane's own over the same Spark: what it sets, nobody else sees."""
    session = spark.newSession()
    for name, value in LANE.items():
        session.conf.set(name, value)
    return session
