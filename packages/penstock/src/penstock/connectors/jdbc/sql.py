"""The statements of `jdbc`, as text. Pure: nothing here connects.

Rows have one total order: by the incremental column, if there is one, then by the key. A place in it is a *bound*, the values of these
columns (or of the first of them) as the database writes them; a range is what lies behind one bound and up to another. All comparing is
done by the database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Bound = tuple[str, ...]

DIGEST = "_penstock_digest"  # a column beside those of the table
ROWS = "q"  # what is read has this name in every statement
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_COLLATED = ("text", "varchar", "bpchar")  # types of Postgres whose order depends on a collation
_BACKTICKS = ("mysql", "mariadb")


@dataclass(frozen=True)
class Column:
    """A column that rows are ordered by."""

    name: str
    kind: str  # number, text, date, timestamp or other
    type: str  # as the database calls it
    nullable: bool


@dataclass(frozen=True)
class Statements:
    """Of one table or query, in the database's own spelling."""

    system: str  # as in the url: postgresql
    source: str  # a table's name, or a query
    is_table: bool
    order: tuple[Column, ...]
    zoneless: tuple[
        str, ...
    ] = ()  # columns of Postgres's type timestamp, which its driver puts into Java's time zone, gaps and all

    @property
    def digested(self) -> bool:
        """Whether rows have a digest: elsewhere they are only counted."""
        return self.system == "postgresql"

    # -- pieces --------------------------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        mark = "`" if self.system in _BACKTICKS else '"'
        return mark + name.replace(mark, mark * 2) + mark

    @cached_property
    def rows(self) -> str:
        """What stands behind FROM."""
        if self.is_table:
            return f"{'.'.join(map(self.quoted, self.source.split('.')))} {ROWS}"
        return f"({self.source}) {ROWS}"

    def place(self, column: Column) -> str:
        """A column as it is ordered and compared. By bytes where it is text: the order of a collation is the operating system's, and
        may change with it."""
        collate = ' COLLATE "C"' if self.system == "postgresql" and column.type in _COLLATED else ""
        return self.quoted(column.name) + collate

    def literal(self, column: Column, value: str) -> str:
        if column.kind == "number" and _NUMBER.fullmatch(value):
            return value
        text = value.replace("\\", "\\\\") if self.system in _BACKTICKS else value
        text = "'" + text.replace("'", "''") + "'"
        if self.system == "postgresql":
            return text  # takes the type of the column; TIMESTAMP '…' would lose the offset without a word
        return {"date": f"DATE {text}", "timestamp": f"TIMESTAMP {text}"}.get(column.kind, text)

    def behind(self, bound: Bound) -> str:
        return self._compare(bound, ">")

    def up_to(self, bound: Bound) -> str:
        """Also of the first columns only: then whatever the others are."""
        return self._compare(bound, "<")

    def _compare(self, bound: Bound, sign: str) -> str:
        """Column by column: not every database compares rows. What is said twice about the first one lets an index be used."""
        pairs = [(self.place(c), self.literal(c, v)) for c, v in zip(self.order, bound, strict=False)]
        last, value = pairs[-1]
        made = f"{last} {sign}{'' if sign == '>' else '='} {value}"
        for column, value in reversed(pairs[:-1]):
            made = f"({column} {sign} {value} OR ({column} = {value} AND {made}))"
        first, value = pairs[0]
        return f"{first} {sign}= {value} AND {made}" if len(pairs) > 1 else made

    def within(self, after: Bound | None, to: Bound) -> str:
        return " AND ".join([*([self.behind(after)] if after is not None else []), self.up_to(to)])

    @property
    def by_order(self) -> str:
        return "ORDER BY " + ", ".join(map(self.place, self.order))

    @property
    def _digest(self) -> str:
        """Of a row's place, 32 bits. The text of a timestamp depends on the connection's time zone."""
        zone = " AT TIME ZONE 'UTC'"
        parts = ", ".join(f"({self.quoted(c.name)}{zone if c.type == 'timestamptz' else ''})::text" for c in self.order)
        return f"('x' || substr(md5(concat_ws(chr(31), {parts})), 1, 8))::bit(32)::bigint"

    def _first(self, n: int) -> str:
        return f"LIMIT {n}" if self.system in _BACKTICKS else f"OFFSET 0 ROWS FETCH NEXT {n} ROWS ONLY"

    # -- statements ----------------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> str:
        """Gives no row, and all columns."""
        return f"SELECT * FROM {self.rows} WHERE 1 = 0"

    @property
    def nulls(self) -> str | None:
        """How many rows have no place in the order; None where that can't be."""
        found = [f"{self.quoted(c.name)} IS NULL" for c in self.order if c.nullable]
        return f"SELECT COUNT(*) FROM {self.rows} WHERE {' OR '.join(found)}" if found else None

    def newest(self, after: Bound | None) -> str:
        """The largest value of the first column."""
        where = f" WHERE {self.behind(after)}" if after is not None else ""
        return f"SELECT MAX({self.place(self.order[0])}) FROM {self.rows}{where}"

    @property
    def last(self) -> str:
        """The place of the last row."""
        names = ", ".join(self.quoted(c.name) for c in self.order)
        backwards = ", ".join(f"{self.place(c)} DESC" for c in self.order)
        return f"SELECT {names} FROM {self.rows} ORDER BY {backwards} {self._first(1)}"

    def plan(self, after: Bound | None, to: Bound, most: int, step: int) -> str:
        """The first `most` rows of a range: the places of every row whose number is a multiple of `step`, and of the last one, each with
        its number; how many there are and their digest; and each row that has the place of the one before it.

        One statement: all of it is seen at one moment.
        """
        names = [f"c{i}" for i in range(len(self.order))]
        given = ", ".join(f"{self.place(c)} AS {n}" for c, n in zip(self.order, names, strict=True))
        digest = self._digest if self.digested else "0"
        inner = f"SELECT {given}, {digest} AS d FROM {self.rows} WHERE {self.within(after, to)} {self.by_order} {self._first(most)}"
        over = f"(ORDER BY {', '.join(names)})"
        same = " AND ".join(f"{n} = LAG({n}) OVER {over}" for n in names)
        numbered = (
            f"SELECT {', '.join(names)}, ROW_NUMBER() OVER {over} AS n, COUNT(*) OVER () AS total, SUM(d) OVER () AS digest,"
            f" CASE WHEN {same} THEN 1 ELSE 0 END AS twice FROM ({inner}) a"
        )
        return (
            f"SELECT n, total, digest, twice, {', '.join(names)} FROM ({numbered}) b"
            f" WHERE MOD(n, {step}) = 0 OR n = total OR twice = 1 ORDER BY n"
        )

    @property
    def readable(self) -> str:
        """What Spark is told to read: all columns, and what is to be known besides."""
        if not self.digested:
            return self.rows
        more = [f"{self._digest} AS {DIGEST}"]
        more += [f"{self.quoted(n)} AT TIME ZONE 'UTC' AS {self.quoted(in_utc(n))}" for n in self.zoneless]
        return f"(SELECT {ROWS}.*, {', '.join(more)} FROM {self.rows}) {ROWS}"

    def partitions(self, after: Bound | None, bounds: Sequence[Bound]) -> list[str]:
        """One condition per task. Spark puts it at the end of its statement, so the order goes with it."""
        lows = [after, *bounds[:-1]]
        return [f"{self.within(low, high)} {self.by_order}" for low, high in zip(lows, bounds, strict=True)]


def in_utc(name: str) -> str:
    """The column beside a zoneless one that holds the same as a moment in UTC."""
    return f"_penstock_utc_{name}"


def kind_of(jdbc_type: int, type_name: str) -> str | None:
    """Of `java.sql.Types`; None for what has no order that can be relied on."""
    return _KINDS.get(jdbc_type) or ("other" if type_name == "uuid" else None)


_KINDS: dict[int, str] = {
    **dict.fromkeys((-6, 5, 4, -5, 2, 3), "number"),  # TINYINT, SMALLINT, INTEGER, BIGINT, NUMERIC, DECIMAL
    **dict.fromkeys(
        (1, 12, -1, -15, -9, -16), "text"
    ),  # CHAR, VARCHAR, LONGVARCHAR and the same for national characters
    91: "date",
    **dict.fromkeys((93, 2014), "timestamp"),  # with or without a time zone
}
