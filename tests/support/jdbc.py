"""Postgres over TCP, and its JDBC driver, for tests: the server of `tests/support/postgres.py` listens on a Unix socket only, and the
tests' JVM is there before anyone knows that a driver is needed."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.native import fetching
from penstock.packages import POSTGRES_DRIVER
from tests.support import postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER = "postgres"


@cache
def url() -> str:
    return f"jdbc:postgresql://127.0.0.1:{_relay()}/postgres"


def _relay() -> int:
    """The port; whatever comes in goes to the server's socket."""
    path = postgres.url().partition("host=")[2] + "/.s.PGSQL.5432"
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            client, _ = server.accept()
            there = socket.socket(socket.AF_UNIX)
            there.connect(path)
            for a, b in ((client, there), (there, client)):
                threading.Thread(target=_copy, args=(a, b), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def _copy(a: socket.socket, b: socket.socket) -> None:
    with suppress(OSError):
        while data := a.recv(65536):
            b.sendall(data)
    for one in (a, b):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def add_driver(spark: SparkSession) -> None:
    """To the loader that all threads of the JVM have: whoever attaches to it later finds the driver too."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(jvm.java.io.File(str(_jar(spark))).toURI().toURL())


def _jar(spark: SparkSession) -> Path:
    """The driver, from where Spark keeps what it has fetched, or fetched by it."""
    group, name, version = POSTGRES_DRIVER.split(":")
    kept = Path.home() / ".ivy2.5.2" / "jars" / f"{group}_{name}-{version}.jar"
    if not kept.exists():
        try:
            with fetching.alone([POSTGRES_DRIVER]):
                spark.sql(f"ADD JAR 'ivy://{POSTGRES_DRIVER}?transitive=false'")
        except Exception as e:
            pytest.skip(f"the JDBC driver {POSTGRES_DRIVER} can't be had from Maven: {str(e).partition(chr(10))[0]}")
    return kept
