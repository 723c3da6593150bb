"""`Batch.arrow`: records as columns."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock_sdk import Record
from penstock_sdk.columns import NAMES
from penstock_sdk.destination import Batch

AT = datetime(2026, 11, 18, 1, 2, 3, 4, UTC)


def test_raw_records_are_rows_of_bytes() -> None:
    first = Record(b"a", position=b"1", key=b"k", metadata={"x": "y"}, namespace="n", timestamp=AT, operation="update")
    found = Batch([first, Record(None, before=b"b", position=b"2")]).arrow()
    assert found.schema.names == list(NAMES)
    assert {name: found.schema.field(name).type for name in ("key", "before", "after")} == dict.fromkeys(
        ("key", "before", "after"), pa.binary()
    )
    one, two = found.to_pylist()
    assert (one["after"], one["key"], one["operation"], one["namespace"]) == (b"a", b"k", "update", "n")
    assert (one["timestamp"], dict(one["metadata"])["x"]) == (AT, "y")
    assert (two["position"], two["before"], two["after"], two["timestamp"]) == (b"2", b"b", None, None)


def test_structured_records_are_structs_of_all_their_fields() -> None:
    found = Batch([Record({"a": 1}), Record({"b": ["x"]}), Record(None)]).arrow()
    assert found.column("after").to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": ["x"]}, None]


def test_what_has_no_one_type_is_said() -> None:
    with pytest.raises(ValueError, match="after is raw in 1 records and structured in 1"):
        Batch([Record(b"a"), Record({"a": 1})]).arrow()


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"penstock-sdk\[arrow\]"):
        Batch([]).arrow()


def test_a_part_of_a_batch_has_a_part_of_its_columns() -> None:
    batch = Batch([Record(b"%d" % n) for n in range(4)], "d")
    told = Batch(batch.records, "d", 0, lambda: batch.arrow())
    for found in (batch.part(1, 3), told.part(1, 3)):
        assert (len(found), found.delivery) == (2, "d")
        assert found.arrow().column("after").to_pylist() == [b"1", b"2"]
