"""What an exception means for the lane: `Retry`, `Stop`, or a JVM that is gone. The only place that reads Java's causes."""

from __future__ import annotations

import errno
import re
import urllib.parse
from typing import Any

from penstock.errors import PenstockError, Retry, Stop, UnreadableFile

FULL = "No space left on device"
_READING = re.compile(r"\[FAILED_READ_FILE.*while reading file file:/*(/.*?)\.\s+SQLSTATE", re.DOTALL)


_PYTHON_READING = re.compile(r"(?:OSError|PermissionError|FileNotFoundError): \\[Errno \\d+\\] .*: '(/.*)'$", re.DOTALL)
_SHUT_DOWN = "SparkContext was shut down"


class SparkDied(Stop):
    """The JVM ended. The engine ends with it, with exit 1; the batch is tried again at the next start."""


class WorkerDied(Stop):
    """A task was ended by what it ran, its process or its memory with it, and again at every try. The batch that did it is
    cut in halves."""


def classify(e: BaseException) -> PenstockError:
    """The error to act on and to show. Errors that are ours already are returned as they are."""
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(e, PenstockError):
        return e
    if isinstance(e, OSError) and e.errno == errno.ENOSPC:
        return _full(str(e))
    if isinstance(e, Py4JNetworkError | ConnectionRefusedError | ConnectionResetError | EOFError):
        return SparkDied(
            "Spark's Java process ended",
            code="spark.died",
            why=str(e) or type(e).__name__,
            hint="its last words are in spark.log",
        )
    if isinstance(e, Py4JJavaError):
        return _java(_causes(e.java_exception))
    if isinstance(e, PySparkException):
        origin = getattr(e, "_origin", None)
        causes = _causes(origin) if origin is not None else [str(e)]
        if isinstance(e, AnalysisException):  # the parser's errors are of this kind too
            hint = "correct the expression in the pipeline's file"
            return Stop(
                "Spark does not understand an expression",
                code="spark.expression",
                why=_first_line(causes[0]),
                hint=hint,
            )
        return _java(causes)
    if isinstance(e, Py4JError):
        return SparkDied(
            "Spark's Java process does not answer",
            code="spark.died",
            why=str(e),
            hint="its last words are in spark.log",
        )
    return Stop(f"{type(e).__name__}: {e}", code="engine.unexpected", hint="run with --debug to see where it came from")


def _java(causes: list[str]) -> PenstockError:
    root = _python_line(causes) or _first_line(causes[-1])
    if any(FULL in c for c in causes):
        return _full(root)
    for text in causes:
        if found := _READING.search(text):
            return UnreadableFile(urllib.parse.unquote(found[1]), root)
    if found := _PYTHON_READING.match(root):
        return UnreadableFile(found[1], root)
    if any(_SHUT_DOWN in text for text in causes):
        return SparkDied("Spark was shut down", code="spark.died", why=root, hint="its last words are in spark.log")
    if any("OutOfMemoryError" in text for text in causes):
        return WorkerDied(
            "A Spark task ran out of memory",
            code="spark.memory",
            why=root,
            hint="give Spark more with --conf spark.driver.memory=4g, or make batches smaller with batch: {max-bytes: …}",
        )
    if any("Python worker exited unexpectedly" in text for text in causes):
        return WorkerDied(
            "A Python worker process was ended by what it ran",
            code="spark.worker-died",
            why=next((_first_line(t) for t in causes if "Python worker exited" in t), root),
            hint="look for native code or memory use in the pipeline's Python processors; spark.log has more",
        )
    if "java.io.IOException" in root or "java.net." in root:
        return Retry("A Spark job failed", code="spark.io", why=root)
    return Stop(
        "A Spark job failed", code="spark.job", why=root, hint="spark.log in the state folder has the whole story"
    )


def _full(why: str) -> Retry:
    return Retry(
        "The disk is full", code="disk.full", why=why, hint="free space: the same batch is tried again, nothing is lost"
    )


def _causes(throwable: Any) -> list[str]:
    """The chain of causes as text, the root last."""
    texts: list[str] = []
    while throwable is not None and len(texts) < 20:
        texts.append(str(throwable.toString()))
        throwable = throwable.getCause()
    return texts


def _python_line(causes: list[str]) -> str:
    """What a Python worker raised: the last line of its traceback says it."""
    for text in causes:
        if "PythonException" in text:
            lines = [line.strip() for line in text.splitlines()]
            return [line for line in lines if line and not line.startswith("SQLSTATE")][-1]
    return ""


def _first_line(text: str) -> str:
    """The first line that says something: Spark's parser begins its message with an empty one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else text
