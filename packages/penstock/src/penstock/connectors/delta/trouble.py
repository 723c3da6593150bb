"""What Delta says, as what the caller should do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import Retry, Stop

_RACE = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "io.delta.exceptions.Concurrent")
_RULE = ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_VIOLATE_CONSTRAINT", "DELTA_EXCEED_CHAR_VARCHAR_LIMIT")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Errors that are not about the table are raised as they are."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        text = str(e)
        words = next((line.strip() for line in text.splitlines() if "DELTA_" in line), text.partition("\n")[0])[:400]
        if any(name in text for name in _RACE):
            raise Retry(
                f"Somebody else has changed the table {where} at the same time",
                code="delta.conflict",
                why=words,
                hint="it is tried again",
            ) from e
        if any(name in text for name in _RULE):
            raise Stop(
                f"The table {where} has a rule that a row does not keep",
                code="delta.constraint",
                why=words,
                hint="nothing of the batch was written: change the rule, then start again; a condition before the destination keeps such"
                " rows away",
            ) from e
        if isinstance(e, AnalysisException):
            raise Stop(
                f"The records do not fit the table {where}",
                code="delta.schema",
                why=words,
                hint="change the table, or the fields with processors; `merge-schema: true` adds columns",
            ) from e
        raise
