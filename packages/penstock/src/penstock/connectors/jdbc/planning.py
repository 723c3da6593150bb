"""What goes into a batch of `jdbc`: bounds, counts and a digest, taken from the database in one look. No Spark of its own.

`Plan` is what the ledger keeps of a batch. It says where each task begins and how many rows it has to find there, so `seq` follows from
it alone, whatever the number of cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.connectors.jdbc.database import Database
from penstock.connectors.jdbc.settings import JdbcSourceSettings
from penstock.connectors.jdbc.sql import Bound, Column, Statements, kind_of
from penstock.errors import Stop

ENDLESS = ("infinity", "-infinity", "NaN")  # values of Postgres that nothing grows beyond
_FIXED, _OTHER = 8, 32  # bytes that a value is taken for


@dataclass(frozen=True)
class Plan:
    """One batch."""

    after: Bound | None
    high: Bound  # how far it goes on, over as many batches as that takes; of the first column, or a whole place
    first: bool  # nothing was read before the batches up to this `high`
    whole: bool  # this batch reaches it
    counts: tuple[int, ...]  # rows, for each task
    bounds: tuple[Bound, ...]  # the last place, for each task
    digest: int

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def to_json(self) -> dict[str, Any]:
        return {
            "from": list(self.after) if self.after is not None else None,
            "to": list(self.bounds[-1]),
            "high": list(self.high),
            "first": self.first,
            "whole": self.whole,
            "digest": self.digest,
            "parts": [[n, list(bound)] for n, bound in zip(self.counts, self.bounds, strict=True)],
        }

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        return cls(
            tuple(value["from"]) if value["from"] is not None else None,
            tuple(value["high"]),
            value["first"],
            value["whole"],
            tuple(n for n, _ in value["parts"]),
            tuple(tuple(bound) for _, bound in value["parts"]),
            value["digest"],
        )


@dataclass(frozen=True)
class Layout:
    """What is known of the table once it was looked at."""

    statements: Statements
    width: int  # bytes that a row is taken for

    @classmethod
    def look(cls, db: Database, s: JdbcSourceSettings) -> Layout:
        made = Statements(s.system, s.table or s.query or "", s.table is not None, ())
        found = {name: (jdbc_type, kind, nullable) for name, jdbc_type, kind, nullable in db.columns(made.columns)}
        order = []
        for name in s.order:
            if name not in found:
                raise Stop(
                    f"There is no column {name!r} in {s.name}",
                    code="jdbc.unknown",
                    why=f"it has {', '.join(list(found)[:50])}",
                    hint=f"correct `{'incremental' if name == s.incremental else 'key'}`",
                )
            jdbc_type, kind, nullable = found[name]
            order.append(Column(name, _kind(name, jdbc_type, kind, grows=name == s.incremental), kind, nullable))
        width = sum(_FIXED if kind_of(t, "") not in (None, "text") else _OTHER for t, _, _ in found.values())
        zoneless = tuple(n for n, (_, kind, _) in found.items() if kind == "timestamp") if made.digested else ()
        return cls(replace(made, order=tuple(order), zoneless=zoneless), width)


def _kind(name: str, jdbc_type: int, type_name: str, *, grows: bool) -> str:
    kind = kind_of(jdbc_type, type_name)
    if kind is None or (grows and kind not in ("number", "timestamp")):
        raise Stop(
            f"The column {name!r} has the type {type_name}, which {'does not only grow' if grows else 'can not identify a row'}",
            code="jdbc.key",
            hint="`incremental` is a number or a timestamp"
            if grows
            else "a `key` is made of numbers, texts, dates, timestamps or uuids; cast it in a `query`",
        )
    return kind


def refuse_nulls(db: Database, s: Statements) -> None:
    if s.nulls is None:
        return
    ((found, *_),) = db.ask(s.nulls)
    if found != "0":
        names = " or ".join(c.name for c in s.order if c.nullable)
        raise Stop(
            f"{found} rows have NULL in {names}",
            code="jdbc.key",
            why="such a row has no place in the order by which rows are read, and would never be seen",
            hint="fill the column, or read a `query` with COALESCE, or without these rows",
        )


def end(db: Database, s: Statements) -> Bound | None:
    """The place of the last row there is; None where there is none."""
    found = db.ask(s.last)
    return _bound(found[0]) if found else None


def newest(db: Database, s: Statements, after: Bound | None) -> Bound | None:
    """The largest value of the incremental column, where something is behind `after`."""
    ((value, *_),) = db.ask(s.newest(after))
    if value in ENDLESS:
        raise Stop(
            f"The largest value of {s.order[0].name!r} is {value}",
            code="jdbc.key",
            why="nothing that comes later could be larger",
            hint="correct the row, or read a `query` without it",
        )
    return (value,) if value is not None else None


def plan(
    db: Database, s: Statements, after: Bound | None, high: Bound, *, first: bool, most: int, step: int
) -> Plan | None:
    """The next rows up to `high`, not more than `most`; None where there are none."""
    found = db.ask(s.plan(after, high, most, step))
    numbers: list[int] = []
    bounds: list[Bound] = []
    for n, _, _, twice, *place in found:
        if twice == "1":
            raise Stop(
                f"Two rows have the same {', '.join(c.name for c in s.order)}: {', '.join(map(str, place))}",
                code="jdbc.key",
                why="rows are told apart by it, and read in its order",
                hint="name columns in `key` that together are unique",
            )
        numbers.append(int(str(n)))
        bounds.append(_bound(place))
    if not found:
        return None
    _, total, digest, *_ = found[-1]
    rows = int(str(total))
    counts = tuple(n - before for n, before in zip(numbers, [0, *numbers[:-1]], strict=True))
    return Plan(after, high, first, rows < most, counts, tuple(bounds), int(str(digest)))


def _bound(values: Any) -> Bound:
    return tuple(str(v) for v in values)
