"""`postgres` from the staging table on, on a real Postgres: rows that are refused are found, whatever the table refuses them for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from penstock.connectors.postgres import database
from penstock.connectors.postgres.book import Book
from penstock.connectors.postgres.database import connected, staging_prefix, staging_table
from penstock.connectors.postgres.destination import PostgresDestination
from penstock.connectors.postgres.merging import Progress, Target
from penstock.connectors.postgres.settings import PostgresDestinationSettings
from penstock.errors import Retry, Stop
from penstock.native import DeliveryId, Receipt, Refusal, Staged
from penstock.testing import faults
from tests.support import postgres

_numbers = iter(range(1_000_000))


class Case:
    """A table of its own, and what is staged for it."""

    def __init__(self, columns: str, **settings: Any) -> None:
        self.table = f"m{next(_numbers)}"
        self.book = f"b{self.table}"
        postgres.run(f"CREATE TABLE {self.table} ({columns})")
        given = {"url": postgres.url(), "table": self.table, "bookkeeping": self.book, **settings}
        self.settings = PostgresDestinationSettings.model_validate(given)
        self.made().check()

    def made(self) -> PostgresDestination:
        return PostgresDestination(self.settings, "out")

    def delivery(self, batch: int = 1, fence: int = 3, epoch: int = 7) -> DeliveryId:
        return DeliveryId("p", "in", "out", batch, f"{epoch:08x}{batch:024x}", fence, epoch)

    def stage(self, d: DeliveryId, columns: str, rows: Sequence[tuple[Any, ...]], attempt: str = "a") -> Staged:
        """`columns` as a table has them; rows begin with their operation, and are numbered."""
        staging, names = staging_table(d, attempt), [part.split()[0] for part in columns.split(", ")]
        with connected(self.settings.url) as c:
            Book(self.book).make_staging(c, staging, columns)
            places = ", ".join(["%s"] * (len(names) + 3))
            with c.cursor() as cursor:
                given = [(n, 0, *row) for n, row in enumerate(rows)]
                cursor.executemany(f'INSERT INTO "{self.book}"."{staging}" VALUES ({places})', given)
        return Staged(len(rows), 0, {"staging": staging, "columns": names})

    def rows(self, what: str = "*", order: str = "1") -> list[tuple[Any, ...]]:
        return postgres.rows(f"SELECT {what} FROM {self.table} ORDER BY {order}")


def never(refusal: Refusal) -> bool:
    raise AssertionError(refusal)


class Noting(list[Refusal]):
    """`room` for so many."""

    def __init__(self, room: int = 1_000) -> None:
        self.room = room

    def __call__(self, refusal: Refusal) -> bool:
        self.append(refusal)
        return len(self) <= self.room


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    yield
    faults.install()


def test_rows_are_inserted_in_their_order_with_the_types_of_the_table() -> None:
    case = Case("n integer, t varchar(5), extra text DEFAULT 'x', id serial")
    d = case.delivery()
    s = case.stage(d, "n bigint, t text", [("u", 3, "c"), ("u", 1, "a"), ("u", 2, None)])
    receipt = case.made().commit(d, s, never)
    assert receipt == Receipt(3, made=(case.table,))
    assert case.rows(order="id") == [(3, "c", "x", 1), (1, "a", "x", 2), (2, None, "x", 3)]


@pytest.mark.contract("T10", reason="what the table has, and which row was refused, is compared")
@pytest.mark.parametrize("bad", [[0], [99], [50], [0, 99], [3, 4, 5], [10, 11, 40, 77], list(range(100))], ids=str)
def test_each_row_that_is_refused_is_found_and_all_others_are_there(bad: list[int]) -> None:
    case = Case("n integer UNIQUE")
    postgres.run(f"INSERT INTO {case.table} SELECT unnest(%s::int[])", bad)
    d, refused = case.delivery(), Noting()
    s = case.stage(d, "n bigint", [("u", n) for n in range(100)])
    receipt = case.made().commit(d, s, refused)
    assert [r.seq for r in refused] == bad
    assert receipt.refused == tuple(refused)
    assert receipt.written == 100 - len(bad)
    assert [n for (n,) in case.rows()] == list(range(100))
    assert "duplicate key" in refused[0].reason
    assert f"({bad[0]})" in refused[0].reason, "its detail names the row"


@pytest.mark.parametrize(
    ("table", "staged", "good", "bad", "words"),
    [
        ("n smallint", "n bigint", 1, 40_000, "out of range"),
        ("t varchar(3)", "t text", "abc", "abcd", "too long"),
        ("t char(3)", "t text", "abc", "abcd", "too long"),
        ("t numeric(4,2)", "t numeric(10,4)", 12, 123, "overflow"),
        ("n integer CHECK (n > 0)", "n bigint", 1, -1, "check constraint"),
        ("t text NOT NULL", "t text", "a", None, "null value"),
        ("t integer", "t text", "12", "twelve", "invalid input syntax"),
        ("t date", "t text", "2026-02-28", "2026-02-30", "out of range"),
        ("t uuid", "t text", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "nope", "invalid input syntax"),
    ],
)
def test_whatever_a_table_refuses_costs_one_row(table: str, staged: str, good: Any, bad: Any, words: str) -> None:
    case = Case(table)
    d, refused = case.delivery(), Noting()
    s = case.stage(d, staged, [("u", good), ("u", bad), ("u", good)])
    assert case.made().commit(d, s, refused).written == 2
    assert [r.seq for r in refused] == [1]
    assert words in refused[0].reason
    assert len(case.rows()) == 2


def test_a_trigger_that_raises_and_a_constraint_that_is_deferred_cost_one_row() -> None:
    case = Case("n integer")
    postgres.run(f"CREATE TABLE {case.table}_p (n integer PRIMARY KEY)")
    postgres.run(f"INSERT INTO {case.table}_p VALUES (1), (2), (7)")
    key = f"FOREIGN KEY (n) REFERENCES {case.table}_p DEFERRABLE INITIALLY DEFERRED"
    postgres.run(f"ALTER TABLE {case.table} ADD {key}")
    body = "BEGIN IF NEW.n = 7 THEN RAISE EXCEPTION 'no seven'; END IF; RETURN NEW; END"
    postgres.run(f"CREATE FUNCTION {case.table}_f() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    postgres.run(f"CREATE TRIGGER t BEFORE INSERT ON {case.table} FOR EACH ROW EXECUTE FUNCTION {case.table}_f()")
    d, refused = case.delivery(), Noting()
    s = case.stage(d, "n bigint", [("u", 1), ("u", 7), ("u", 3), ("u", 2)])
    assert case.made().commit(d, s, refused).written == 2
    assert [(r.seq, r.reason.partition(";")[0][:8]) for r in refused] == [(1, "no seven"), (2, "insert o")]


@pytest.mark.contract("T10", reason="what the table has after the gate has closed is compared")
def test_where_the_gate_closes_nothing_behind_is_there_and_it_goes_on_there_later() -> None:
    case = Case("n integer UNIQUE")
    postgres.run(f"INSERT INTO {case.table} VALUES (20), (60)")
    d = case.delivery()
    s = case.stage(d, "n bigint", [("u", n) for n in range(100)])
    refused = Noting(room=1)
    first = case.made().commit(d, s, refused)
    assert (first.stopped_at, first.written) == (60, 59)
    assert [r.seq for r in first.refused] == [20]
    assert [n for (n,) in case.rows()] == list(range(61))
    assert case.made().find(d) is None
    postgres.run(f"DELETE FROM {case.table} WHERE n = 60")
    second = case.made().commit(d, s, never)
    assert (second.stopped_at, second.written) == (None, 99)
    assert second.refused == first.refused
    assert case.made().find(d) == second
    assert [n for (n,) in case.rows()] == list(range(100))


# -- by key ------------------------------------------------------------------------------------------------------------------

UPSERT = {"mode": "upsert", "key": "id"}


def test_the_last_record_of_a_key_wins_and_deletes_delete() -> None:
    case = Case("id integer PRIMARY KEY, t text", **UPSERT)
    postgres.run(f"INSERT INTO {case.table} VALUES (1, 'old'), (2, 'old'), (3, 'stays')")
    d = case.delivery()
    rows = [
        ("u", 1, "a"),
        ("u", 4, "b"),
        ("d", 2, None),
        ("u", 1, "c"),
        ("d", 4, None),
        ("d", 5, None),
        ("u", 5, "d"),
        ("d", 9, None),
    ]
    receipt = case.made().commit(d, case.stage(d, "id bigint, t text", rows), never)
    assert receipt.written == 8, "every record is settled, also those that others have overtaken"
    assert case.rows() == [(1, "c"), (3, "stays"), (5, "d")]


def test_a_bad_row_among_updates_costs_one_record_and_keeps_the_order() -> None:
    case = Case("id integer PRIMARY KEY, n integer CHECK (n < 100)", **UPSERT)
    d, refused = case.delivery(), Noting()
    rows = [("u", 1, 1), ("u", 2, 2), ("u", 1, 500), ("u", 3, 3), ("u", 2, 4), ("d", 3, None)]
    receipt = case.made().commit(d, case.stage(d, "id bigint, n bigint", rows), refused)
    assert [r.seq for r in refused] == [2]
    assert receipt.written == 5
    assert case.rows() == [(1, 1), (2, 4)]


def test_a_key_of_several_columns_and_nothing_but_a_key() -> None:
    case = Case("a integer, b text, UNIQUE (b, a)", mode="upsert", key="a, b")
    for batch in (1, 2):
        d = case.delivery(batch)
        rows = [("u", 1, "x"), ("u", 1, "y"), ("u", 1, "x"), ("d", 1, "y")]
        case.made().commit(d, case.stage(d, "a bigint, b text", rows), never)
    assert case.rows() == [(1, "x")]


# -- exactly once ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("C11", safeguard="postgres-note")
def test_data_and_hash_are_one_transaction() -> None:
    for off, times in ((), 1), (("postgres-note",), 2):
        case = Case("n integer")
        d = case.delivery()
        s = case.stage(d, "n bigint", [("u", 1)])
        for detail in ("moved", "committed"):
            faults.install(_ending(detail), off=off)
            with pytest.raises(_Ended):
                case.made().commit(d, s, never)
            faults.install(off=off)
            if detail == "moved":
                assert case.rows() == []
                assert case.made().find(d) is None
        case.made().commit(d, s, never)
        assert len(case.rows()) == times


class _Ended(BaseException):
    pass


def _ending(detail: str) -> Any:
    def hook(point: str, found: str) -> None:
        if (point, found) == ("K6a", detail):
            raise _Ended

    return hook


@pytest.mark.contract("X6", safeguard="fence")
def test_an_engine_that_was_replaced_writes_nothing() -> None:
    case = Case("n integer")
    older, newer = case.delivery(1, fence=3), case.delivery(2, fence=4)
    s = case.stage(older, "n bigint", [("u", 1)])
    case.made().commit(newer, case.stage(newer, "n bigint", [("u", 2)]), never)
    with pytest.raises(Stop, match="a newer engine has taken over"):
        case.made().commit(older, s, never)
    assert case.rows() == [(2,)]
    faults.install(off=("fence",))
    case.made().commit(older, s, never)
    assert case.rows() == [(1,), (2,)], "the control"


def test_a_staging_table_that_is_gone_or_not_whole_is_said() -> None:
    case = Case("n integer")
    d = case.delivery()
    s = case.stage(d, "n bigint", [("u", 1), ("u", 2)])
    name = f'"{case.book}"."{s.manifest["staging"]}"'
    postgres.run(f"DELETE FROM {name} WHERE n = 1")
    with pytest.raises(Stop, match="2 rows were copied"):
        case.made().commit(d, s, never)
    postgres.run(f"DROP TABLE {name}")
    with pytest.raises(Stop, match="no such table"):
        case.made().commit(d, s, never)
    assert case.rows() == []


def test_a_staging_table_that_a_dead_attempt_holds_does_not_hold_anybody_up() -> None:
    case = Case("n integer")
    d = case.delivery()
    s = case.stage(d, "n bigint", [("u", 1)])
    dead = case.stage(d, "n bigint", [("u", 9)], attempt="dead")
    with psycopg.connect(postgres.url()) as zombie:
        zombie.execute(f'INSERT INTO "{case.book}"."{dead.manifest["staging"]}" VALUES (2, 0, \'u\', 9)')
        assert case.made().commit(d, s, never).written == 1
    assert case.rows() == [(1,)]
    case.made().discard(d)
    left = postgres.rows("SELECT tablename FROM pg_tables WHERE schemaname = %s", case.book)
    assert not [name for (name,) in left if name.startswith(staging_prefix(d))]


# -- what can be wrong -------------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_fit_is_said_with_what_to_do() -> None:
    case = Case("id integer, n integer")

    def look(table: str = case.table, columns: Sequence[str] = ("id",), keys: Sequence[str] = ()) -> str:
        with pytest.raises(Stop) as stopped, connected(postgres.url()) as c:
            Target.look(c, table, columns, keys)
        return f"{stopped.value.code} {stopped.value}"

    assert "postgres.table" in look("nothing_here")
    found = look(columns=("id", "other", "more"))
    assert "postgres.columns" in found
    assert "'other', 'more'" in found
    assert "id, n" in found
    assert "CREATE UNIQUE INDEX ON" in look(keys=("id",))
    assert "postgres.key" in look(keys=("n",), columns=("id",))
    postgres.run(f"CREATE UNIQUE INDEX ON {case.table} (id) WHERE n > 0")
    assert "no unique index" in look(keys=("id",)), "one with a condition does not do"


def test_names_are_what_they_are() -> None:
    case = Case('"Odd ""name" integer, "select" text, "ünï" text')
    d = case.delivery()
    s = case.stage(d, '"Odd_" integer', [])
    s = Staged(0, 0, {**s.manifest, "columns": []})
    with connected(postgres.url()) as c:
        found = Target.look(c, case.table, ['Odd "name', "select", "ünï"], ())
    assert found.types['Odd "name'] == "integer"


def test_who_cannot_be_reached_is_tried_again_and_who_refuses_is_not() -> None:
    def checked(url: str) -> Exception:
        settings = PostgresDestinationSettings.model_validate({"url": url, "table": "t"})
        with pytest.raises((Retry, Stop)) as found:
            PostgresDestination(settings, "out").check()
        return found.value

    assert isinstance(checked("postgresql://u:very-secret@127.0.0.1:1/x"), Retry)
    assert "very-secret" not in str(checked("postgresql://u:very-secret@127.0.0.1:1/x"))
    gone = checked(postgres.url().replace("/postgres?", "/nowhere?"))
    assert isinstance(gone, Stop)
    assert gone.code == "postgres.access"


def test_a_book_of_a_newer_version_is_left_alone() -> None:
    case = Case("n integer")
    d = case.delivery()
    case.made().commit(d, case.stage(d, "n bigint", [("u", 1)]), never)
    postgres.run(f'UPDATE "{case.book}".delivery SET version = 2')
    with pytest.raises(Stop, match="newer version"):
        case.made().check()


def test_progress_can_be_written_down() -> None:
    made = Progress((5, 1), 3, [Refusal(1, 0, "no", "code")])
    assert Progress.from_json(made.to_json()) == made


def test_names_of_staging_tables_fit_and_tell_places_apart() -> None:
    one = DeliveryId("p" * 100, "in", "out", 1, "f" * 32, 1, 7)
    other = DeliveryId("p" * 100, "in", "out2", 1, "f" * 32, 1, 7)
    names = {staging_table(d, attempt) for d in (one, other) for attempt in ("a", "b")}
    assert len(names) == 4
    assert all(len(name) <= 63 for name in names)
    assert database.quoted("a.b") == '"a"."b"'
