"""`delta` without Spark: its settings, the names of its transactions, its notes, and which fields fit which columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import types as T

from penstock.cli.main import cli
from penstock.connectors.delta.columns import compare, odd_names
from penstock.connectors.delta.notes import Note, app_id
from penstock.errors import Stop
from penstock.native import DeliveryId, Receipt

INT, LONG, DOUBLE = T.IntegerType(), T.LongType(), T.DoubleType()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{mode: append}", "must have either `path` or `table`"),
        ("{path: ./out, table: orders}", "must have either `path` or `table`"),
        ("{path: ./out, mode: upsert}", "must have both `mode: upsert` and `key`, or neither"),
        ("{path: ./out, key: id}", "must have both `mode: upsert` and `key`, or neither"),
        ("{path: ./out, mode: upsert, key: 'id,,n'}", "must be names of columns"),
        ("{table: orders, partition-by: day}", "must not have `partition-by` with `table`"),
        ("{path: 'file:/out'}", "must be a plain path"),
        ("{path: ./out, schema: 'id NOTHING'}", "must"),
    ],
)
def test_bad_settings_are_said_with_their_place(tmp_path: Path, settings: str, said: str) -> None:
    source = "{id: in, type: source, plugin: files, settings: {path: ., format: json}}"
    sink = f"{{id: out, type: destination, plugin: delta, settings: {settings}}}"
    file = tmp_path / "p.yaml"
    file.write_text(f'version: "2.2"\npipelines:\n  - id: p\n    connectors:\n      - {source}\n      - {sink}\n')
    ended = CliRunner().invoke(cli, ["validate", str(file)])
    assert ended.exit_code == 2
    assert said in ended.output
    assert "p.yaml:6:" in ended.output


def _delivery(pipeline: str = "p", lane: str = "in", destination: str = "out", epoch: int = 7) -> DeliveryId:
    return DeliveryId(pipeline, lane, destination, 3, "abc", 4, epoch)


def test_no_two_lanes_epochs_or_destinations_share_a_transaction() -> None:
    names = [
        app_id(_delivery()),
        app_id(_delivery("p/in", "x")),
        app_id(_delivery("p", "in/x")),
        app_id(_delivery("p%2Fin", "x")),
        app_id(_delivery(epoch=8)),
        app_id(_delivery(destination="other")),
    ]
    assert names[0] == "penstock/p/in/7/out"
    assert len(set(names)) == len(names)


def test_a_note_is_read_by_its_own_lane_alone() -> None:
    d = _delivery()
    note = Note.of(d, Receipt(5, made=("/out",)))
    assert Note.read(note.text(), app_id(d)) == note
    assert Note.read(note.text(), app_id(_delivery(lane="other"))) is None
    for other in (None, "", "not json", "[1]", "{}", '{"app": "penstock/p/in/7/out"}'):
        assert Note.read(other, app_id(d)) is None
    with pytest.raises(Stop) as caught:
        Note.read(note.text().replace('"penstock": 1', '"penstock": 2'), app_id(d))
    assert caught.value.code == "delta.version"


def _compared(fields: dict[str, T.DataType], table: dict[str, T.DataType]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    given, there = (T.StructType([T.StructField(n, kind) for n, kind in one.items()]) for one in (fields, table))
    found = compare(given, there)
    return found.new, found.bad


@pytest.mark.parametrize(
    ("field", "column", "fits"),
    [
        (INT, LONG, True),
        (LONG, INT, False),
        (T.FloatType(), DOUBLE, True),
        (DOUBLE, T.FloatType(), False),
        (LONG, DOUBLE, False),
        (INT, T.DecimalType(10, 0), True),
        (INT, T.DecimalType(10, 1), False),
        (T.DecimalType(10, 2), T.DecimalType(12, 4), True),
        (T.DecimalType(10, 2), T.DecimalType(11, 4), False),
        (INT, T.StringType(), False),
        (T.StringType(), INT, False),
        (T.TimestampType(), T.TimestampNTZType(), False),
        (T.ArrayType(INT, False), T.ArrayType(INT), True),
        (INT, T.ArrayType(INT), False),
    ],
    ids=str,
)
def test_a_value_is_widened_only_where_nothing_is_lost(field: T.DataType, column: T.DataType, fits: bool) -> None:
    new, bad = _compared({"a": field}, {"a": column, "other": INT})
    assert new == ()
    assert (bad == ()) is fits


def test_new_fields_other_cases_and_other_structs_are_told_apart() -> None:
    small, large = (T.StructType([T.StructField(n, INT) for n in names]) for names in ("x", "xy"))
    new, bad = _compared({"a": INT, "Id": INT, "s": large}, {"id": INT, "s": small})
    assert new == ("a", "s")
    assert bad == ("the table calls 'Id' 'id'",)
    assert odd_names(["fine", "not so", "a=b"]) == ["not so", "a=b"]
