"""`jdbc` without a database: settings and how they are refused, conditions, what a plan keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from penstock.cli.validate import validate
from penstock.connectors.jdbc.database import of_state
from penstock.connectors.jdbc.planning import Plan
from penstock.connectors.jdbc.settings import JdbcSourceSettings
from penstock.connectors.jdbc.source import JdbcSource
from penstock.connectors.jdbc.sql import Column, Statements
from penstock.errors import Retry, Stop
from penstock.packages import POSTGRES

GOOD: dict[str, Any] = {"url": "jdbc:postgresql://h/d", "table": "t", "key": "id"}
AT = Column("at", "timestamp", "timestamptz", nullable=True)
ID = Column("id", "number", "int8", nullable=False)
NAME = Column("name", "text", "text", nullable=False)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"url": "postgresql://h/d"}, "must be a JDBC url"),
        ({"url": "jdbc:postgresql://h/d?password=very-secret"}, "must not hold a password"),
        ({"url": "jdbc:mysql://u:very-secret@h/d"}, "must not hold a password"),
        ({"url": "jdbc:sqlite:/x"}, "must have a `driver`"),
        ({"table": None}, "must have `table` or `query`"),
        ({"query": "SELECT 1"}, "must have `table` or `query`"),
        ({"table": None, "query": "DELETE FROM t"}, "must be one SELECT"),
        ({"table": 'a"b'}, "must be the name of a table"),
        ({"key": "a,,b"}, "must be names of columns"),
        ({"partition_rows": 0}, "greater than or equal to 1"),
        ({"lag": "5"}, "must be a duration"),
    ],
)
def test_settings_that_can_not_work_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        JdbcSourceSettings(**{**GOOD, **changed})
    assert words in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_the_command_line_names_the_place_and_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        'version: "2.2"\npipelines:\n  - id: p\n    connectors:\n'
        "      - {id: in, type: source, plugin: jdbc, settings: {url: 'jdbc:postgresql://h/d', table: t}}\n"
        "      - {id: out, type: destination, plugin: files, settings: {path: ./out, format: json}}\n"
    )
    done = CliRunner().invoke(validate, [str(file)])
    assert done.exit_code == 2
    assert "key" in done.output
    assert "p.yaml:5" in done.output


def test_only_postgres_has_a_driver_that_is_fetched() -> None:
    assert JdbcSource(JdbcSourceSettings(**GOOD), "in").packages == POSTGRES
    for changed in ({"url": "jdbc:mysql://h/d"}, {"driver": "x.Y"}):
        assert JdbcSource(JdbcSourceSettings(**{**GOOD, **changed}), "in").packages == {}


def test_the_order_begins_with_the_column_that_grows_and_ends_with_the_key() -> None:
    assert JdbcSourceSettings(**GOOD).order == ("id",)
    assert JdbcSourceSettings(**{**GOOD, "key": "a, b", "incremental": "at"}).order == ("at", "a", "b")
    assert JdbcSourceSettings(**{**GOOD, "key": "a, id", "incremental": "id"}).order == ("id", "a")


def test_a_range_is_behind_one_place_and_up_to_another() -> None:
    s = Statements("postgresql", "sales.t", True, (AT, ID))
    assert s.rows == '"sales"."t" q'
    assert s.within(("2026-01-01 00:00:00+00", "7"), ("2026-01-02 00:00:00+00",)) == (
        "\"at\" >= '2026-01-01 00:00:00+00' AND (\"at\" > '2026-01-01 00:00:00+00' OR (\"at\" = '2026-01-01 00:00:00+00'"
        ' AND "id" > 7)) AND "at" <= \'2026-01-02 00:00:00+00\''
    )
    assert s.nulls == 'SELECT COUNT(*) FROM "sales"."t" q WHERE "at" IS NULL'
    first, second = s.partitions(None, [("x", "1"), ("y", "2")])
    assert first.endswith('ORDER BY "at", "id"')
    assert second.startswith("\"at\" >= 'x'")


def test_text_is_compared_by_bytes_and_written_so_that_nothing_gets_out_of_it() -> None:
    s = Statements("postgresql", "t", True, (NAME,))
    assert s.behind(("o'hara\\",)) == "\"name\" COLLATE \"C\" > 'o''hara\\'"
    mysql = Statements("mysql", "t", True, (NAME, AT))
    assert mysql.behind(("o'hara\\",)) == "`name` > 'o''hara\\\\'"
    assert mysql.literal(AT, "2026-01-01 00:00:00") == "TIMESTAMP '2026-01-01 00:00:00'"
    assert Statements("h2", "t", True, (ID,)).literal(ID, "1; DROP TABLE t") == "'1; DROP TABLE t'"


def test_a_timestamp_without_a_zone_is_read_as_a_moment_in_utc() -> None:
    """The driver would put it into Java's zone, where some times do not exist."""
    s = Statements("postgresql", "t", True, (ID,), zoneless=("local",))
    assert """"local" AT TIME ZONE 'UTC' AS "_penstock_utc_local\"""" in s.readable
    assert Statements("h2", "t", True, (ID,)).readable == '"t" q'


def test_a_plan_comes_out_of_the_ledger_as_it_went_in() -> None:
    plan = Plan(("a", "1"), ("b",), True, False, (3, 2), (("a", "4"), ("b", "1")), 17)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.rows == 5


@pytest.mark.parametrize(
    ("state", "kind", "code"),
    [
        ("08001", Retry, "jdbc.connection"),
        ("57P01", Retry, "jdbc.connection"),
        ("28P01", Stop, "jdbc.access"),
        ("42P01", Stop, "jdbc.unknown"),
        ("22003", Stop, "jdbc.failed"),
    ],
)
def test_what_passes_is_tried_again_and_what_does_not_stops(state: str, kind: type[Exception], code: str) -> None:
    error = of_state(state, "words")
    assert isinstance(error, kind)
    assert error.code == code
