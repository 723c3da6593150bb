"""From a staging table into the table, in one transaction: all at once, and where that fails in parts, until the rows that the table does
not take are alone. No Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.postgres.database import identifier, is_of_a_row, quoted
from penstock.errors import Stop
from penstock.native import Refusal

if TYPE_CHECKING:
    from psycopg import Connection

Place = tuple[int, int]
FIRST: Place = (-(1 << 63), -1)
LAST: Place = ((1 << 63) - 1, (1 << 31) - 1)
PARTS = 8  # one bad row costs the first try, and about all rows once more; with halves it would be twice more
_LIMITED = {"character": "bpchar", "bit": "varbit", '"char"': "text"}


@dataclass
class Progress:
    """What became of a delivery so far."""

    at: Place = FIRST  # everything below is settled
    written: int = 0
    refused: list[Refusal] = field(default_factory=list)
    stopped: bool = False  # at a record that must not be passed: it is `at`

    def to_json(self) -> Any:
        refused = [r.to_json() for r in self.refused]
        return {"at": list(self.at), "written": self.written, "refused": refused}

    @classmethod
    def from_json(cls, found: Any) -> Progress:
        return cls((found["at"][0], found["at"][1]), found["written"], [Refusal(*r) for r in found["refused"]])


@dataclass(frozen=True)
class Target:
    """The table, and the columns that records fill."""

    table: str
    columns: tuple[str, ...]
    types: Mapping[str, str]  # of the table's columns
    keys: tuple[str, ...]  # upsert

    @classmethod
    def look(cls, c: Connection[Any], table: str, columns: Sequence[str], keys: Sequence[str]) -> Target:
        """Refuses a table that can't take these columns, or has no unique index on the key."""
        found = c.execute(
            "SELECT a.attname, format_type(a.atttypid, NULL), a.attgenerated <> '' OR a.attidentity = 'a' FROM pg_attribute a"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped",
            [quoted(table)],
        ).fetchall()
        if not found:
            raise Stop(
                f"There is no table {table!r}",
                code="postgres.table",
                hint="make it, or set `create: true`; a name without a schema is looked for on the search path",
            )
        # Without its limits: a cast to varchar(3) cuts off what is longer, where an insert refuses it. `character` alone has a limit of 1.
        types = {name: _LIMITED.get(kind, kind) for name, kind, made in found if not made}
        if missing := [name for name in columns if name not in types]:
            raise Stop(
                f"The table {table!r} has no column for {', '.join(map(repr, missing))}",
                code="postgres.columns",
                why=f"its columns are {', '.join(types)}",
                hint="add the column, or leave the field out with field.exclude",
            )
        if lost := [name for name in keys if name not in columns]:
            raise Stop(
                f"The records have no field {', '.join(map(repr, lost))}, which is in `key`",
                code="postgres.key",
                hint="correct `key`",
            )
        if keys and not _unique(c, table, keys):
            raise Stop(
                f"The table {table!r} has no unique index on {', '.join(keys)}",
                code="postgres.key",
                hint=f"CREATE UNIQUE INDEX ON {quoted(table)} ({', '.join(map(identifier, keys))})",
            )
        return cls(table, tuple(columns), types, tuple(keys))


def _unique(c: Connection[Any], table: str, keys: Sequence[str]) -> bool:
    """Without a condition, over exactly these columns."""
    found = c.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
        " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid",
        [quoted(table)],
    ).fetchall()
    return any(set(names) == set(keys) for (names,) in found)


class Merge:
    """Of one delivery. `staging` is the table of the attempt that was prepared, with its schema and quoted."""

    def __init__(
        self,
        c: Connection[Any],
        target: Target,
        staging: str,
        refuse: Callable[[Refusal], bool],
        parts: Sequence[str] = (),
    ) -> None:
        """`parts`: the tables below it, where one after the other they have all rows in their order."""
        self._c, self._target, self._staging, self._refuse, self._parts = c, target, staging, refuse, parts
        self._indexed = False

    def __call__(self, progress: Progress) -> None:
        """Goes on where it stands, to the end or to a record that must not be passed."""
        progress.stopped = False
        self._part(progress, progress.at, None)

    def _part(self, progress: Progress, start: Place, end: Place | None) -> None:
        """From a place to before another one."""
        import psycopg

        try:
            with self._c.transaction():
                count = self._move(start, end)
        except psycopg.Error as e:
            if not is_of_a_row(e):
                raise
            self._isolate(progress, start, end, e)
        else:
            progress.written += count
            progress.at = end or LAST

    def _isolate(self, progress: Progress, start: Place, end: Place | None, error: Any) -> None:
        self._index()
        places = self._places(start, end)
        if len(places) > 1:
            for first, next_ in pairwise([*places, end]):
                assert first is not None
                self._part(progress, first, next_)
                if progress.stopped:
                    return
            return
        refusal = Refusal(*places[0], _words(error), code="postgres.row", payload=self._payload(places[0]))
        if not self._refuse(refusal):
            progress.at, progress.stopped = places[0], True
            return
        progress.refused.append(refusal)
        progress.at = end or LAST

    def _index(self) -> None:
        if not self._indexed:
            for table in (self._staging, *self._parts):
                self._c.execute(f"CREATE INDEX ON {table} (_seq, _part)")
            self._c.execute(f"ANALYZE {self._staging}")
            self._indexed = True

    def _places(self, start: Place, end: Place | None) -> list[Place]:
        """Where each of a few parts begins, as large as each other; of one record alone, where it is."""
        where, given = _between(start, end)
        row = self._c.execute(f"SELECT count(*) FROM {self._staging} WHERE {where}", given).fetchone()
        assert row is not None
        numbered = (
            f"SELECT _seq, _part, row_number() OVER (ORDER BY _seq, _part) - 1 AS n FROM {self._staging} WHERE {where}"
        )
        step = -(-row[0] // PARTS)
        found = self._c.execute(f"SELECT _seq, _part FROM ({numbered}) x WHERE n %% %s = 0 ORDER BY n", [*given, step])
        return [(seq, part) for seq, part in found.fetchall()]

    def _payload(self, place: Place) -> str:
        names = ", ".join(map(identifier, self._target.columns))
        found = self._c.execute(f"SELECT {names} FROM {self._staging} WHERE (_seq, _part) = (%s, %s)", place).fetchone()
        assert found is not None
        return _json({name: _odd(value) for name, value in zip(self._target.columns, found, strict=True)}).decode()

    def _move(self, start: Place, end: Place | None) -> int:
        """How many records: in an upsert several may end in one row."""
        t = self._target
        where, given = _between(start, end)
        names = ", ".join(map(identifier, t.columns))
        values = ", ".join(f"{identifier(name)}::{t.types[name]}" for name in t.columns)
        if not t.keys:
            into = f"INSERT INTO {quoted(t.table)} ({names}) SELECT {values} FROM"
            if self._parts and not given:
                return sum(self._c.execute(f"{into} {part}").rowcount for part in self._parts)
            return self._c.execute(f"{into} {self._staging} WHERE {where} ORDER BY _seq, _part", given).rowcount
        keys = ", ".join(map(identifier, t.keys))
        last = (
            f"SELECT DISTINCT ON ({keys}) * FROM {self._staging} WHERE {where} ORDER BY {keys}, _seq DESC, _part DESC"
        )
        same = " AND ".join(f"t.{identifier(k)} = l.{identifier(k)}::{t.types[k]}" for k in t.keys)
        self._c.execute(
            f"DELETE FROM {quoted(t.table)} t USING ({last}) l WHERE l._op = 'd' AND {same}",
            given,
        )
        others = [name for name in t.columns if name not in t.keys]
        changes = ", ".join(f"{identifier(name)} = EXCLUDED.{identifier(name)}" for name in others)
        conflict = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
        self._c.execute(
            f"INSERT INTO {quoted(t.table)} ({names}) SELECT {values} FROM ({last}) l WHERE l._op <> 'd'"
            f" ON CONFLICT ({keys}) {conflict}",
            given,
        )
        row = self._c.execute(f"SELECT count(*) FROM {self._staging} WHERE {where}", given).fetchone()
        assert row is not None
        return int(row[0])


def _odd(value: Any) -> Any:
    """JSON has no numbers for these."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, Decimal) and not value.is_finite() else value


_json = msgspec.json.Encoder(decimal_format="number").encode


def _between(start: Place, end: Place | None) -> tuple[str, list[Any]]:
    if start == FIRST and end is None:
        return "true", []
    if end is None:
        return "(_seq, _part) >= (%s, %s)", [*start]
    return "(_seq, _part) >= (%s, %s) AND (_seq, _part) < (%s, %s)", [*start, *end]


def _words(error: Any) -> str:
    """What Postgres says about one row."""
    found = [error.diag.message_primary or str(error), error.diag.message_detail]
    return "; ".join(part.strip() for part in found if part)
