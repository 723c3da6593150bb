"""The database as `jdbc` asks it before anything is read: over the JDBC driver in Spark's own JVM, so that whatever Spark can read can be
planned. Which errors are whose fault is said here. In the engine process; the reading itself is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.connectors.jdbc.settings import JdbcSourceSettings
from penstock.errors import PenstockError, Retry, Stop
from penstock.packages import POSTGRES_DRIVER

# Classes of SQLSTATE that pass: no connection, rolled back, out of something, ended by an operator, the system.
_TRANSIENT = ("08", "40", "53", "55", "57", "58")
_ENOUGH = 100_000  # rows that a plan may have


class Database:
    """One connection. `ask` from one thread; `cancel` from any."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._asking: Any = None

    def ask(self, statement: str) -> list[tuple[str | None, ...]]:
        """All rows, as text."""
        with self._asked(statement) as found:
            n = found.getMetaData().getColumnCount()
            rows = []
            while found.next():
                rows.append(tuple(found.getString(i + 1) for i in range(n)))
        return rows

    def columns(self, statement: str) -> list[tuple[str, int, str, bool]]:
        """Of a statement that gives no rows: name, `java.sql.Types`, the database's own type, whether it may be NULL."""
        with self._asked(statement) as found:
            meta = found.getMetaData()
            of = range(1, meta.getColumnCount() + 1)
            return [
                (
                    str(meta.getColumnLabel(i)),
                    int(meta.getColumnType(i)),
                    str(meta.getColumnTypeName(i)).lower(),
                    meta.isNullable(i) != 0,
                )
                for i in of
            ]

    @contextmanager
    def _asked(self, statement: str) -> Iterator[Any]:
        made = self._connection.createStatement()
        try:
            made.setMaxRows(_ENOUGH)
            self._asking = made
            yield made.executeQuery(statement)
        finally:
            self._asking = None
            with suppress(Exception):
                made.close()

    def cancel(self) -> None:
        if (asking := self._asking) is not None:
            with suppress(Exception):
                asking.cancel()


@contextmanager
def connected(settings: JdbcSourceSettings) -> Iterator[Database]:
    """Its errors as what the caller should do."""
    connection = None
    try:
        connection = _connect(settings)
        yield Database(connection)
    except PenstockError:
        raise
    except Exception as e:
        if (error := trouble(e, settings)) is None:
            raise
        raise error from e
    finally:
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _connect(settings: JdbcSourceSettings) -> Any:
    """As Spark itself does it: its registry finds drivers that came with `spark.jars.packages`."""
    from pyspark import SparkContext

    jvm: Any = SparkContext.getOrCreate()._jvm
    registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
    registry.register(settings.driver_class)
    given = jvm.java.util.Properties()
    for name, value in (("user", settings.user), ("password", settings.password)):
        if value is not None:
            given.setProperty(name, value)
    connection = registry.get(settings.driver_class).connect(settings.url, given)
    if connection is None:
        raise Stop(
            f"The driver {settings.driver_class} does not take this `url`",
            code="jdbc.driver",
            hint="correct `url` or `driver`",
        )
    connection.setReadOnly(True)
    return connection


def trouble(error: Exception, settings: JdbcSourceSettings) -> PenstockError | None:
    """What an error of Java's means, without url and password; None where it does not come from the database."""
    for thrown in _causes(error):
        kind, words = str(thrown.getClass().getName()), str(thrown.getMessage() or "").strip().partition("\n")[0]
        if kind.endswith((".ClassNotFoundException", ".NoClassDefFoundError")):
            return _no_driver(settings)
        if (state := _state(thrown)) is not None:
            return of_state(state, words)
    return None


def _causes(error: Exception) -> Iterator[Any]:
    """Of an error of Py4J or of PySpark, from the outside in."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(20):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()


def _state(thrown: Any) -> str | None:
    """The SQLSTATE of an SQLException; None for others."""
    try:
        return str(thrown.getSQLState() or "")
    except Exception:  # it has no such method
        return None


def of_state(state: str, words: str) -> PenstockError:
    if state.startswith("28") or state in ("42501", "3D000"):
        return Stop(
            f"The database does not let us in: {words}",
            code="jdbc.access",
            hint="check `user`, `password` and the database in `url`; SELECT on the table is all that is needed",
        )
    if not state or state.startswith(_TRANSIENT):
        return Retry(
            f"The database can't be reached, or has ended the work: {words}",
            code="jdbc.connection",
            hint="see that it runs, and that it can be reached from here and from Spark's tasks",
        )
    if state.startswith("42"):
        return Stop(
            f"The database does not know what is asked for: {words}",
            code="jdbc.unknown",
            hint="correct `table`, `query`, `key` or `incremental`: names are as the database stores them",
        )
    return Stop(f"The database says: {words}", code="jdbc.failed", why=f"its code is {state}")


def _no_driver(settings: JdbcSourceSettings) -> Stop:
    if settings.driver_class == "org.postgresql.Driver":
        hint = f"with a Spark session of your own, start it with spark.jars.packages={POSTGRES_DRIVER}"
    else:
        hint = "only Postgres's driver is fetched by itself: run with --conf spark.jars.packages=GROUP:NAME:VERSION, or spark.jars=PATH"
    return Stop(f"Spark does not have the JDBC driver {settings.driver_class}", code="jdbc.driver", hint=hint)
