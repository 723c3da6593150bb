"""What Delta says, and what is made of it."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from penstock.connectors.delta.trouble import explained
from penstock.errors import PenstockError, Retry, Stop


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        ("[DELTA_CONCURRENT_APPEND] Files were added by a concurrent update", Retry, "delta.conflict"),
        ("[DELTA_METADATA_CHANGED] The metadata was changed by a concurrent update", Retry, "delta.conflict"),
        ("Job aborted\nCaused by: io.delta.exceptions.ConcurrentAppendException: x", Retry, "delta.conflict"),
        ("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint small (id < 10) violated", Stop, "delta.constraint"),
    ],
)
def test_what_delta_says_is_tried_again_or_stops(said: str, kind: type[PenstockError], code: str) -> None:
    with pytest.raises(kind) as caught, explained("t"):
        raise PySparkException(said)
    assert caught.value.code == code


def test_columns_that_do_not_fit_stop_and_what_is_not_about_the_table_is_raised_as_it_is() -> None:
    with pytest.raises(Stop, match="do not fit the table t"), explained("t"):
        raise AnalysisException("[DELTA_MERGE_INCOMPATIBLE_DATATYPE] no")
    with pytest.raises(PySparkException, match="a disk"), explained("t"):
        raise PySparkException("a disk is full")
