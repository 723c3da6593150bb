"""What people ask of a ledger: where each lane stands, what came of its records, its batches, its dead letters.

The commands that only look (`dlq`, `pipelines`) use this. It reads by `readonly.py` and changes nothing, so it is safe beside an engine.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import UsageError
from penstock.ledger import readonly
from penstock.ledger.api import Nack, NackState, State
from penstock.ledger.replays import SUFFIX, replays
from penstock.ledger.trace import Trace

T = TypeVar("T")


def look(path: Path, question: Callable[[View], T]) -> T:
    """Answers one question, or several on the same state of the ledger. `question` may be called again."""
    return readonly.ask(path, lambda db: question(View(db)))


class Verdict(StrEnum):
    """Whether `read + produced = delivered + filtered + dead-lettered + discarded` at a destination."""

    ADDS_UP = "adds-up"
    JOINED = "joined"  # so does this, without the records that were read while it was no destination
    UNKNOWN = "unknown"  # fewer, and the batches that could say why are no longer kept
    WRONG = "wrong"


@dataclass(frozen=True)
class Share:
    """What came of a lane's records at one destination, since the ledger began."""

    destination: str
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    produced: int = 0
    read: int = 0  # of the lane, as far as this destination has finished it
    apart: int = 0  # of these, in batches that were not for this destination, as far as they are kept
    kept_all: bool = True  # every batch is still there to say

    @property
    def came(self) -> int:
        """How many of the records were for it."""
        return self.read - self.apart if self.verdict is Verdict.JOINED else self.read

    @property
    def accounted(self) -> int:
        return self.delivered + self.filtered + self.dead_lettered + self.discarded - self.produced

    @property
    def verdict(self) -> Verdict:
        if self.accounted == self.read:
            return Verdict.ADDS_UP
        if self.accounted == self.read - self.apart:
            return Verdict.JOINED
        return Verdict.WRONG if self.accounted > self.read or self.kept_all else Verdict.UNKNOWN


@dataclass(frozen=True)
class LaneView:
    key: int
    pipeline: str
    source: str
    read: int
    acked: int
    shares: Sequence[Share]
    nacks: Mapping[NackState, int]
    unfinished: int  # batches
    last: int | None  # when an attempt at a batch began last, in milliseconds since 1970
    error: str = ""  # why it does not go on, where that is no batch's fault

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.source}"


@dataclass(frozen=True)
class BatchView:
    batch: int
    state: State
    time: int
    records: int | None  # not known before it is prepared
    ranges: int
    parent: int | None
    reason: str
    attempts: int
    error: str | None  # of the last attempt that said why it ended
    running: bool  # the last attempt has not said how it ended: it goes on, or its process was killed
    waits_for: Sequence[str]  # destinations that do not have it yet, from prepared on


@dataclass(frozen=True)
class Decision:
    """A row of the audit: what a person has decided."""

    at: int
    what: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class LetterView:
    """A dead letter, or a held record, and the lane it is of."""

    key: int  # of the lane
    pipeline: str
    source: str
    nack: Nack

    @property
    def lane(self) -> str:
        return f"{self.pipeline}/{self.source}"


@dataclass(frozen=True)
class Wanted:
    """Which dead letters; None = any."""

    pipeline: str | None = None
    source: str | None = None
    code: str | None = None
    state: NackState | None = None
    id: str | None = None
    lane: int | None = None  # with `batch`: those of one batch
    batch: int | None = None
    where: str | None = None  # what a person wrote: SQL over `COLUMNS`

    @property
    def sql(self) -> str:
        """What follows `FROM nack n`; its parameters are `vars` of this."""
        if self.where is None:
            return _WANTED
        columns = ", ".join(f"{column} AS {name}" for name, column in COLUMNS.items())
        return f"{_WANTED} AND EXISTS (SELECT 1 FROM (SELECT {columns}) WHERE {self.where}\n)"


@contextmanager
def condition(wanted: Wanted) -> Iterator[None]:
    """SQL that a person wrote, where it can't be answered, is not taken for a ledger that can't be read."""
    try:
        yield
    except sqlite3.Error as e:
        if wanted.where is None or getattr(e, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
            raise
        raise unanswerable(wanted.where, e) from e


def unanswerable(where: str, e: sqlite3.Error) -> UsageError:
    return UsageError(
        f"--where {where} can't be answered",
        code="dlq.where",
        why=str(e),
        hint=f"SQLite is asked, about {', '.join(COLUMNS)}",
    )


def tried(where: str) -> None:
    """On a dead letter that has nothing: what names something else than its columns is refused before a ledger is asked."""
    with closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute(
                f"SELECT 1 FROM (SELECT {', '.join(f'NULL AS {name}' for name in COLUMNS)}) WHERE {where}\n"
            ).fetchall()
        except sqlite3.Error as e:
            raise unanswerable(where, e) from None


COLUMNS = {  # what `where` may ask for
    "id": "n.id",
    "pipeline": "l.pipeline",
    "source": "l.source",
    "destination": "n.destination",
    "status": "n.state",
    "node": "n.node",
    "code": "n.code",
    "error": "n.error",
    "at": "datetime(n.at / 1000.0, 'unixepoch')",
    "batch": "n.batch",
    "seq": "n.seq",
    "part": "n.part",
    "position": "CAST(n.position AS TEXT)",
    "tries": "n.tries",
}
_WANTED = (
    " JOIN lane l ON l.id = n.lane WHERE (:pipeline IS NULL OR l.pipeline = :pipeline)"
    " AND (:source IS NULL OR l.source = :source) AND (:code IS NULL OR n.code = :code)"
    " AND (:state IS NULL OR n.state = :state) AND (:id IS NULL OR n.id = :id)"
    " AND (:lane IS NULL OR n.lane = :lane) AND (:batch IS NULL OR n.batch = :batch)"
)
_NACK = (
    "n.seq, n.part, n.destination, n.id, n.position, n.node, n.code, n.error, n.at, n.state, n.record, n.batch, n.tries"
)
_UNFINISHED = "('open', 'prepared', 'taken')"


class View:
    """One state of a ledger. Only for as long as the question is being answered."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @property
    def trace(self) -> Trace:
        """For questions about one record."""
        return Trace(self._db)

    def _rows(self, sql: str, parameters: Any = ()) -> list[Any]:
        return self._db.execute(sql, parameters).fetchall()

    def _where(self, sql: str, wanted: Wanted, **more: Any) -> list[Any]:
        """With the condition that a person wrote, which may raise on what is there."""
        with condition(wanted):
            return self._rows(sql, {**vars(wanted), **more})

    # -- lanes ----------------------------------------------------------------------------------------------------

    def pipelines(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT DISTINCT pipeline FROM lane ORDER BY 1")]

    def sources(self) -> list[str]:
        return [name for (name,) in self._rows("SELECT DISTINCT source FROM lane ORDER BY 1") if not replays(name)]

    def lanes(self, pipeline: str | None = None) -> list[LaneView]:
        """By name."""
        rows = self._rows(
            "SELECT id, pipeline, source, read, acked,"
            f" (SELECT count(*) FROM snapshot s WHERE s.lane = lane.id AND s.state IN {_UNFINISHED}),"
            " (SELECT max(started) FROM attempt a WHERE a.lane = lane.id), coalesce(error, '')"
            " FROM lane WHERE ?1 IS NULL OR pipeline = ?1 ORDER BY pipeline, source",
            (pipeline,),
        )
        nacks: dict[int, dict[NackState, int]] = {}
        for lane, state, n in self._rows("SELECT lane, state, count(*) FROM nack GROUP BY 1, 2"):
            nacks.setdefault(lane, {})[NackState(state)] = n
        return [
            LaneView(key, p, source, read, acked, self._shares(key, read), nacks.get(key, {}), unfinished, last, error)
            for key, p, source, read, acked, unfinished, last, error in rows
        ]

    def _shares(self, lane: int, read: int) -> list[Share]:
        """A destination is done with a batch before the lane is, when there are several. A batch without any delivery is one that
        was lost, and counts as discarded."""
        ahead = dict(
            self._rows(
                "SELECT d.destination, sum(s.records) FROM snapshot s JOIN delivery d USING (lane, batch)"
                " WHERE lane = ? AND s.state = 'prepared' AND d.state = 'done' GROUP BY 1",
                (lane,),
            )
        )
        [(kept, for_someone)] = self._rows(
            "SELECT coalesce(sum(records), 0), coalesce(sum(records) FILTER (WHERE EXISTS (SELECT 1 FROM delivery d"
            " WHERE d.lane = s.lane AND d.batch = s.batch)), 0) FROM snapshot s WHERE lane = ? AND state = 'done'",
            (lane,),
        )
        took = dict(
            self._rows(
                "SELECT d.destination, sum(s.records) FROM snapshot s JOIN delivery d USING (lane, batch)"
                " WHERE lane = ? AND s.state = 'done' GROUP BY 1",
                (lane,),
            )
        )
        rows = self._rows(
            "SELECT destination, delivered, filtered, dead_lettered, discarded, produced FROM total WHERE lane = ? ORDER BY 1",
            (lane,),
        )
        return [
            Share(
                name,
                delivered,
                filtered,
                dead,
                discarded,
                produced,
                read=read + ahead.get(name, 0),
                apart=for_someone - took.get(name, 0),
                kept_all=kept == read,
            )
            for name, delivered, filtered, dead, discarded, produced in rows
        ]

    def logs(self, lane: int) -> dict[str, int]:
        """Of a source with a commit log: its id → the offset up to which batches have taken it. A strand that is no log has another
        name: files have paths."""
        rows = self._rows(
            "SELECT name, json_extract(range, '$[1].to') FROM strand"
            " WHERE lane = ? AND length(name) = 32 AND name NOT GLOB '*[^0-9a-f]*'",
            (lane,),
        )
        return {name: to for name, to in rows if isinstance(to, int)}

    # -- batches --------------------------------------------------------------------------------------------------

    def unfinished(self, lane: int) -> list[BatchView]:
        return self._batches(f"state IN {_UNFINISHED} ORDER BY batch", lane)

    def last_batches(self, lane: int, limit: int) -> list[BatchView]:
        """Those that are settled, the newest first."""
        return self._batches(f"state NOT IN {_UNFINISHED} ORDER BY batch DESC LIMIT ?", lane, limit)

    def _batches(self, which: str, lane: int, *more: Any) -> list[BatchView]:
        rows = self._rows(
            "SELECT batch, state, batch_time, records, json_array_length(ranges, '$.ranges'), parent, reason"
            f" FROM snapshot WHERE lane = ? AND {which}",
            (lane, *more),
        )
        found = []
        for batch, state, time, records, ranges, parent, reason in rows:
            attempts = self._rows(
                "SELECT error FROM attempt WHERE lane = ? AND batch = ? ORDER BY number", (lane, batch)
            )
            errors = [error for (error,) in attempts if error is not None]
            waits = self._rows(
                "SELECT destination FROM delivery WHERE lane = ? AND batch = ? AND state = 'prepared'", (lane, batch)
            )
            found.append(
                BatchView(
                    batch,
                    State(state),
                    time,
                    records,
                    ranges or 0,
                    parent,
                    reason or "",
                    len(attempts),
                    errors[-1] if errors else None,
                    bool(attempts) and attempts[-1][0] is None,
                    tuple(name for (name,) in waits),
                )
            )
        return found

    def decisions(self, pipeline: str) -> list[Decision]:
        rows = self._rows("SELECT at, what, detail FROM audit WHERE pipeline = ? ORDER BY at", (pipeline,))
        return [Decision(at, what, json.loads(detail)) for at, what, detail in rows]

    # -- dead letters ---------------------------------------------------------------------------------------------

    def states(self, wanted: Wanted) -> dict[NackState, int]:
        """How many there are in each state."""
        rows = self._where(f"SELECT n.state, count(*) FROM nack n{wanted.sql} GROUP BY 1", wanted)
        return {NackState(state): n for state, n in rows}

    def codes(self, wanted: Wanted) -> dict[str, int]:
        """How many there are of each code, the most first."""
        return dict(
            self._where(f"SELECT n.code, count(*) FROM nack n{wanted.sql} GROUP BY 1 ORDER BY 2 DESC, 1", wanted)
        )

    def pipelines_of(self, wanted: Wanted) -> set[str]:
        """Those that have dead letters like that."""
        return {name for (name,) in self._where(f"SELECT DISTINCT l.pipeline FROM nack n{wanted.sql}", wanted)}

    def replaying(self) -> set[str]:
        """Pipelines with dead letters that somebody wants to be replayed, and that are not yet."""
        rows = self._rows(
            "SELECT l.pipeline FROM replay r JOIN lane l ON l.id = r.lane WHERE r.state = 'asked'"
            " AND EXISTS (SELECT 1 FROM nack n WHERE n.lane = r.lane AND n.replay = r.number AND n.state = 'open')"
            f" UNION SELECT pipeline FROM lane l WHERE source LIKE '%' || ? AND EXISTS"
            f" (SELECT 1 FROM snapshot s WHERE s.lane = l.id AND s.state IN {_UNFINISHED})",
            (SUFFIX,),
        )
        return {name for (name,) in rows}

    def letters(self, wanted: Wanted, limit: int) -> list[LetterView]:
        """Lane by lane, in record order."""
        found: list[LetterView] = []
        lanes = self._rows("SELECT id, pipeline, source FROM lane ORDER BY pipeline, source")
        for key, pipeline, source in lanes:
            rows = self._where(
                f"SELECT {_NACK} FROM nack n{wanted.sql} AND n.lane = :key"
                " ORDER BY n.seq, n.part, n.destination LIMIT :limit",
                wanted,
                key=key,
                limit=limit - len(found),
            )
            found += [LetterView(key, pipeline, source, _nack(row)) for row in rows]
        return found

    def batches_of(self, wanted: Wanted) -> list[Wanted]:
        """The same dead letters, batch by batch: there may be more of them than fit into memory."""
        rows = self._where(
            f"SELECT DISTINCT n.lane, n.batch FROM nack n{wanted.sql} ORDER BY l.pipeline, l.source, n.batch", wanted
        )
        return [replace(wanted, lane=lane, batch=batch) for lane, batch in rows]

    def staged(self, letter: LetterView) -> list[str]:
        """The names of files with dead letters of its batch that are not in their place yet."""
        rows = self._rows(
            "SELECT json_extract(staged, '$.manifest.staged') FROM delivery"
            " WHERE lane = ? AND batch = ? AND kind = 'dead-letters' AND state = 'prepared'",
            (letter.key, letter.nack.batch),
        )
        return [name for (name,) in rows if isinstance(name, str)]

    def ids(self, start: str, limit: int) -> list[str]:
        """The ids that begin so, in order."""
        rows = self._rows(
            "SELECT DISTINCT id FROM nack WHERE substr(id, 1, ?1) = ?2 ORDER BY 1 LIMIT ?3", (len(start), start, limit)
        )
        return [id_ for (id_,) in rows]

    def short(self, ids: Sequence[str], least: int) -> int:
        """How many characters keep each of these ids apart from every other in the ledger."""
        starts = json.dumps(sorted({id_[:least] for id_ in ids}))
        near = self._rows(
            "SELECT DISTINCT id FROM nack WHERE substr(id, 1, ?) IN (SELECT value FROM json_each(?)) ORDER BY 1",
            (least, starts),
        )
        names = [id_ for (id_,) in near]
        return max([least, *(_common(a, b) + 1 for a, b in itertools.pairwise(names))])


def _common(a: str, b: str) -> int:
    """How many characters two ids begin with together."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _nack(row: Sequence[Any]) -> Nack:
    seq, part, destination, id_, position, node, code, error, at, state, record, batch, tries = row
    return Nack(seq, part, destination, id_, position, node, code, error, at, NackState(state), record, batch, tries)
