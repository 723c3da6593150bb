"""What an exception means for the lane: try again, stop, or the JVM is gone."""

from __future__ import annotations

import errno

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, PySparkRuntimeError

from penstock.engine.classify import SparkDied, classify
from penstock.errors import (
    AccountError,
    Fenced,
    InputChanged,
    LedgerError,
    PenstockError,
    Rejected,
    Retry,
    Stop,
    UsageError,
)


@pytest.mark.parametrize(
    "error",
    [
        Retry("r"),
        Rejected("r"),
        Stop("s"),
        AccountError("a"),
        InputChanged("i", reread=True),
        LedgerError("l"),
        Fenced("f"),
        UsageError("u"),
        SparkDied("d"),
    ],
)
def test_an_error_of_ours_is_what_it_is(error: PenstockError) -> None:
    assert classify(error) is error


@pytest.mark.parametrize(
    "error, expected, code",
    [
        (OSError(errno.ENOSPC, "No space left on device", "/out/x"), Retry, "disk.full"),
        (OSError(errno.EACCES, "Permission denied", "/out/x"), Stop, "engine.unexpected"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/in/x"), Stop, "engine.unexpected"),
        (ValueError("bad"), Stop, "engine.unexpected"),
        (AssertionError(), Stop, "engine.unexpected"),
        (MemoryError(), Stop, "engine.unexpected"),
        (KeyError("k"), Stop, "engine.unexpected"),
        (TimeoutError("t"), Stop, "engine.unexpected"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), SparkDied, "spark.died"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), SparkDied, "spark.died"),
        (BrokenPipeError(errno.EPIPE, "pipe"), Stop, "engine.unexpected"),
        (EOFError(), SparkDied, "spark.died"),
        (Py4JNetworkError("Answer from Java side is empty"), SparkDied, "spark.died"),
        (Py4JError("An error occurred while calling o1.x"), SparkDied, "spark.died"),
        (PySparkRuntimeError("something"), Stop, "spark.job"),
        (AnalysisException("no such column"), Stop, "spark.expression"),
        (PySparkException("java.io.IOException: Input/output error"), Retry, "spark.io"),
        (PySparkException("java.net.SocketException: reset"), Retry, "spark.io"),
        (PySparkException("java.io.IOException: No space left on device"), Retry, "disk.full"),
        (PySparkException("java.lang.ArithmeticException: / by zero"), Stop, "spark.job"),
        (PySparkException(""), Stop, "spark.job"),
    ],
)
def test_what_an_error_means(error: Exception, expected: type[PenstockError], code: str) -> None:
    found = classify(error)
    assert (type(found), found.code) == (expected, code)


def test_a_jvm_that_is_gone_is_a_stop_and_never_retried() -> None:
    assert issubclass(SparkDied, Stop)
    assert not issubclass(SparkDied, Retry)


def test_an_unexpected_error_keeps_its_name_and_text() -> None:
    assert classify(ValueError("the text")).what == "ValueError: the text"


def test_a_full_disk_keeps_the_path_that_was_written() -> None:
    assert "/out/x" in classify(OSError(errno.ENOSPC, "No space left on device", "/out/x")).why


def test_only_the_first_line_of_a_java_error_is_shown() -> None:
    assert classify(PySparkException("java.lang.Error: first\n\tat a.b.C\n\tat d.e.F")).why == "java.lang.Error: first"


def test_an_error_that_says_nothing_still_has_a_reason() -> None:
    assert classify(EOFError()).why == "EOFError"
