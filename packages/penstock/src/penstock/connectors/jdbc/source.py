"""`jdbc` as a source: ranges of rows by their key, read by Spark's JDBC reader, one task for each stretch of a range.

What a batch holds is fixed when it is taken: where each task begins, how many rows it has to find, and a digest of their places
(`planning.py`). `seq` is the batch's base, plus the rows of the tasks before, plus the place in the task, which reads in order. A batch
that does not hold what was counted is never delivered: its rows would have other seqs than before.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock import record
from penstock.connectors.jdbc import planning
from penstock.connectors.jdbc.database import Database, connected, trouble
from penstock.connectors.jdbc.planning import Layout, Plan
from penstock.connectors.jdbc.settings import JdbcSourceSettings
from penstock.connectors.jdbc.sql import DIGEST, Bound, in_utc
from penstock.errors import InputChanged, Stop
from penstock.native import Known, Limits, NativeSource, Range, Ranges, Shape
from penstock.packages import POSTGRES, Needs
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BATCH = 1_000_000  # rows, where nothing else limits a batch
COLLECTION = "opencdc.collection"
_PLACE_MASK = (1 << 33) - 1  # the part of monotonically_increasing_id that counts rows of a partition
_NUMBER, _TOO_MANY = "_number", "_too_many"  # columns beside the record's

clock, sleep = time.monotonic, time.sleep  # tests have their own


class JdbcSource(NativeSource[JdbcSourceSettings]):
    packages: ClassVar[Needs] = POSTGRES
    shape = Shape.TYPED
    prunes = True

    def __init__(self, settings: JdbcSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        if settings.system != "postgresql" or settings.driver is not None:
            self.packages = {}  # type: ignore[misc]
        self._layout: Layout | None = None
        self._high: Bound | None = None  # batches go up to here; None = it has to be looked for
        self._first = False
        self._exhausted: Bound | None = None  # nothing is left between here and the `high` that it went up to
        self._seen: tuple[float, Bound] | None = None  # a value that was there, since when
        self._look_at = 0.0  # when it is worth asking again
        self._asking: Database | None = None

    # -- what is there -------------------------------------------------------------------------------------------------------

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        last = max(known.strands.values(), key=lambda r: r.base, default=None)
        before = Plan.from_json(last.position) if last is not None else None
        if last is not None:
            self._refuse_other(last)
        if self._ended(before):
            self._high = None
            return None
        if clock() < self._look_at:
            return None
        with connected(self.settings) as db:
            self._asking = db
            try:
                return self._next(db, known, before, limits)
            finally:
                self._asking = None

    def _ended(self, before: Plan | None) -> bool:
        """Without a column that grows there is one read, however many batches that takes."""
        if self.settings.incremental is not None or before is None:
            return False
        return before.whole or before.bounds[-1] in (before.high, self._exhausted)

    def _next(self, db: Database, known: Known, before: Plan | None, limits: Limits) -> Ranges | None:
        layout = self._looked(db)
        after = before.bounds[-1] if before is not None else None
        most = min(limits.max_records or BATCH, max(1, limits.bytes // layout.width))
        step = self.settings.partition_rows
        for _ in range(2):  # what was begun may have nothing left
            if self._high is None and not self._find_high(db, layout, before, after):
                return None
            assert self._high is not None
            made = planning.plan(db, layout.statements, after, self._high, first=self._first, most=most, step=step)
            if made is None or made.whole:
                self._high = None
            if made is not None:
                return self._ranges(made, known, layout)
            self._exhausted = after
        self._look_at = clock() + self.settings.poll
        return None

    def _ranges(self, made: Plan, known: Known, layout: Layout) -> Ranges:
        """Each batch is a strand of its own, so that one that is given up takes nothing with it; of those before the last is kept."""
        base = known.next_seq
        r = Range(f"{self.settings.name}@{base}", made.to_json(), base, made.rows * layout.width)
        newest = max((s.base for s in known.strands.values()), default=0)
        old = tuple(name for name, s in known.strands.items() if s.base < newest)
        return Ranges((r,), base + made.rows, old, full=not made.whole)

    def _find_high(self, db: Database, layout: Layout, before: Plan | None, after: Bound | None) -> bool:
        """How far the next batches go. What was begun is gone on with; else what has been there for long enough."""
        if before is not None and not before.whole and after != self._exhausted:
            self._high, self._first = before.high, before.first
            return True
        if self._seen is None:
            found = self._found(db, layout, after)
            if found is None:
                self._look_at = clock() + self.settings.poll
                return False
            planning.refuse_nulls(db, layout.statements)
            self._seen = (clock(), found)
        since, found = self._seen
        wait = self.settings.lag - (clock() - since) if self.settings.incremental is not None else 0.0
        if wait > 0:
            self._look_at = clock() + wait
            return False
        self._seen, self._high, self._first = None, found, before is None
        return True

    def _found(self, db: Database, layout: Layout, after: Bound | None) -> Bound | None:
        if self.settings.incremental is None:
            return planning.end(db, layout.statements)
        return planning.newest(db, layout.statements, after)

    def _looked(self, db: Database) -> Layout:
        if self._layout is None:
            self._layout = Layout.look(db, self.settings)
        return self._layout

    def _refuse_other(self, last: Range) -> None:
        """Bounds say nothing about another table, or in another order."""
        name, places = last.strand.rpartition("@")[0], len(last.position["to"])
        if name != self.settings.name or places != len(self.settings.order):
            raise Stop(
                f"{self.source_id!r} has read {name} so far, by {places} columns, and is to read {self.settings.name} by"
                f" {len(self.settings.order)}",
                code="jdbc.other",
                hint="give the source another `id` to read from the beginning, or put `table`, `key` and `incremental` back",
            )

    def idle(self) -> bool:
        return self._seen is None and self._high is None

    def wait(self, timeout: float) -> None:
        sleep(min(timeout, max(self._look_at - clock(), 0.01)))

    def interrupt(self) -> None:
        if (asking := self._asking) is not None:
            asking.cancel()

    # -- reading -------------------------------------------------------------------------------------------------------------

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        from pyspark.sql import functions as F

        (r,) = ranges
        plan = Plan.from_json(r.position)
        rows = self._read(spark, plan)
        number = F.monotonically_increasing_id().bitwiseAND(F.lit(_PLACE_MASK)).alias(_NUMBER)
        rows = rows.select(*map(_column, rows.columns), number)
        assert self._layout is not None
        value = partial(_value, self._layout.statements.zoneless)
        beside = {DIGEST, _NUMBER, *map(in_utc, self._layout.statements.zoneless)}
        pruned = {c.partition(".")[2] for c in columns if c.startswith(f"{record.AFTER}.")}
        asked = [name for name in rows.columns if name not in beside and (not pruned or name in pruned)]
        texts = [value(name).cast("string") for name in self.settings.order]
        starts = [r.base + sum(plan.counts[:i]) for i in range(len(plan.counts))]
        namespace = F.lit(self.settings.table).cast("string")
        made = {
            record.SEQ: _by_task(starts) + F.col(_NUMBER),
            record.POSITION: F.to_json(F.array(*texts)).cast("binary"),
            record.OPERATION: F.lit("snapshot" if plan.first else "create"),
            record.NAMESPACE: namespace,
            record.PHASE: F.lit("copy" if plan.first else "sync"),
            record.METADATA: F.create_map(F.lit(COLLECTION), namespace),
            record.KEY: F.to_json(F.struct(*map(value, self.settings.keys)), record.JSON_OPTIONS),
            record.AFTER: F.struct(*map(value, asked)),
        }
        if self.settings.table is None:
            del made[record.NAMESPACE], made[record.METADATA]
        wanted = [c for c in made if c in columns or (c == record.AFTER and pruned)]
        too_many = F.col(_NUMBER) >= _by_task(plan.counts)
        digest = F.col(DIGEST) if DIGEST in rows.columns else F.lit(0)
        return rows.select(*(made[c].alias(c) for c in wanted), too_many.alias(_TOO_MANY), digest.alias(DIGEST))

    def _read(self, spark: SparkSession, plan: Plan) -> DataFrame:
        s = self.settings
        given = {
            "driver": s.driver_class,
            "fetchsize": str(s.fetch_size),
            "pushDownPredicate": "false",  # what Spark leaves out would be missing in the count
            "preferTimestampNTZ": "true",  # a timestamp without a zone stays one
        }
        given |= {name: v for name, v in (("user", s.user), ("password", s.password)) if v is not None}
        try:
            if self._layout is None:
                with connected(s) as db:
                    self._looked(db)
            assert self._layout is not None
            statements = self._layout.statements
            conditions = statements.partitions(plan.after, plan.bounds)
            return spark.read.jdbc(s.url, statements.readable, predicates=conditions, properties=given)
        except Exception as e:
            if (error := trouble(e, s)) is None:
                raise
            raise error from e

    def recheck(self, ranges: Ranges) -> None:
        """Whether the database answers: that explains a job that failed. What it holds is counted while it is read."""
        del ranges
        with connected(self.settings):
            pass

    def promised(self, ranges: Ranges) -> int:
        return sum(Plan.from_json(r.position).rows for r in ranges)

    def count(self, ranges: Ranges) -> int:
        """Of a range that was cut, what is left of it."""
        return sum(_left(r) for r in ranges)

    def evidence(self) -> Mapping[str, Column]:
        """Of all rows that were read, also where only some of them count."""
        from pyspark.sql import functions as F

        return {"rows": F.count(F.lit(1)), "too_many": F.count_if(F.col(_TOO_MANY)), "digest": F.sum(DIGEST)}

    def verify(self, ranges: Ranges, records: int, evidence: Mapping[str, int]) -> None:
        """As many rows as were counted, for every task, and with the same places: so every row has the seq it was given."""
        del records
        (r,) = ranges
        plan = Plan.from_json(r.position)
        rows = evidence["rows"]
        if not faults.safeguard("unchanged"):
            return
        if rows == plan.rows and not evidence["too_many"] and evidence["digest"] == plan.digest:
            return
        other = f"and {rows} were read" if rows != plan.rows else "and others were read"
        raise InputChanged(
            f"Rows of {self.settings.name} changed between the planning of a batch and its end",
            code="jdbc.changed",
            why=f"{plan.rows} rows were counted {other}, {_between(plan)}: some were deleted, or got another"
            f" {' or '.join(self.settings.order)}, or were committed late",
            hint=_CUT if r.cut else _WAYS_OUT,
            reread=self.settings.on_change == "reread" and not r.cut,
        )


_WAYS_OUT = (
    "nothing of this batch was delivered. Set `on-change: reread` to plan it anew, which loses nothing; smaller batches change less often"
    " (`batch: {max-records: …}`), and a longer `lag` sees more late commits"
)
_CUT = (
    "the records before this one were delivered, and the others can't be told from them any more: put the rows back, or give the source"
    " another `id` and read from the beginning"
)


def _between(plan: Plan) -> str:
    low = f"behind {', '.join(plan.after)}" if plan.after is not None else "from the first"
    return f"{low} up to {', '.join(plan.bounds[-1])}"


def _left(r: Range) -> int:
    stop = r.base + Plan.from_json(r.position).rows
    return (stop if r.high is None else r.high) - (r.base if r.low is None else r.low)


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _value(zoneless: Collection[str], name: str) -> Column:
    """A lane's session is in UTC: there a moment and the time without a zone look the same."""
    if name not in zoneless:
        return _column(name).alias(name)
    return _column(in_utc(name)).cast("timestamp_ntz").alias(name)


def _by_task(values: Collection[int]) -> Column:
    """The value of the task that reads the row: Spark has one for each condition, in their order."""
    from pyspark.sql import functions as F

    one = F.lit(next(iter(values))).cast("long")
    return one if len(values) == 1 else F.get(F.array(*(F.lit(v).cast("long") for v in values)), F.spark_partition_id())
