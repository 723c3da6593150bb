"""Every built-in processor that runs as Spark columns, over typed and raw payloads of every kind, with every condition: what
becomes of each record is what `apply` says, or the combination is refused before anything is read."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, reduce
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from penstock import record
from penstock.engine import aside, session
from penstock.engine.batch.context import Guarantee
from penstock.engine.batch.process import Flow, process
from penstock.engine.python.arrow import values
from penstock.ledger import Snapshot, State
from penstock.native import Drop, Ranges, Record, Reject, Shape, Stop, Where
from penstock.plan.nodes import Node, stages
from tests.support import everywhere
from tests.support.everywhere import Case, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TOGETHER = 12  # combinations in one job
RETURNS = (record.SEQ, record.PART, record.OPERATION, record.NAMESPACE, record.METADATA, record.KEY, record.BEFORE)
FILTERED, DEAD = "filtered", "dead"


@pytest.fixture(scope="module")
def lane(spark: SparkSession) -> SparkSession:
    made = session.for_lane(spark)
    made.conf.set("spark.sql.codegen.wholeStage", "false")  # many small plans: compiling them is most of the time
    return made


def frame(lane: SparkSession, shape: Shape) -> DataFrame:
    from pyspark.sql import functions as F

    raw = [x for x in everywhere.RAW if x is None or len(x) < 100_000]
    n = len(raw) if shape is Shape.RAW else len(everywhere.TYPED)
    batch = everywhere.columns(n, pa.array(raw, pa.binary())) if shape is Shape.RAW else everywhere.typed()
    rows = lane.createDataFrame(pa.Table.from_batches([batch]))
    if shape is Shape.TYPED:  # Arrow's timestamp without a zone is taken for one with
        rows = rows.withColumn("after", F.col("after").withField("ntz", F.col("after.ntz").cast("timestamp_ntz")))
    return rows.coalesce(1).cache()


@dataclass
class Planned:
    case: Case
    condition: str
    node: Node
    rows: DataFrame | None = None
    stop: Stop | None = None

    def __str__(self) -> str:
        return f"{self.case} {self.condition}"


class _All(set[int]):
    """As if every expression had been tried already: that is a job or two for each."""

    def __contains__(self, _: object) -> bool:
        return True


def plan(
    lane: SparkSession, rows: DataFrame, shape: Shape, case: Case, condition: str, *, rehearsal: bool = False
) -> Planned:
    """The processor in the engine's own hands; only what a lane has around it is stood in for."""
    made = Planned(case, condition, case.node(condition))
    rehearsed = set() if rehearsal else _All()
    work: Any = SimpleNamespace(
        lane=SimpleNamespace(source="in"),
        source=SimpleNamespace(source_id="in", locate=lambda _: None),
        guarantee=Guarantee.EXACTLY_ONCE,
        rehearsed=rehearsed,
        spark=lane,
    )
    s = Snapshot(1, 0, 0, State.OPEN, Ranges(()), 1_700_000_000_000)
    try:
        flow = process(work, s, Flow(rows, shape), stages([made.node], shape), RETURNS)
        made.rows = flow.rows
        made.rows.schema  # noqa: B018
    except Stop as e:
        made.stop = e
    except PySparkException:
        if rehearsal:
            raise
        return plan(lane, rows, shape, case, condition, rehearsal=True)  # which must find it first, and say so
    return made


def collected(planned: Sequence[Planned]) -> list[dict[int, Any]]:
    """What became of every record, by its seq; all combinations in one job, each with a payload column of its own."""
    from pyspark.sql import functions as F

    frames = []
    for i, p in enumerate(planned):
        assert p.rows is not None
        own: list[Any] = [
            F.lit(i).alias("case"),
            *RETURNS,
            record.OUTCOME,
            record.ASIDE,
            F.col(record.AFTER).alias(f"after{i}"),
        ]
        frames.append(p.rows.select(*own))
    union: Any = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    table = pa.Table.from_batches(union._collect_as_arrow())
    columns = {c: values(table[c].combine_chunks()) for c in table.column_names if not c.startswith("after")}
    after = {i: values(table[f"after{i}"].combine_chunks()) for i in range(len(planned))}
    found: list[dict[int, Any]] = [{} for _ in planned]
    for row in range(table.num_rows):
        i, seq = columns["case"][row], columns[record.SEQ][row]
        if columns[record.OUTCOME][row] is not None:
            dead = aside.decode_dead(columns[record.ASIDE][row])
            seq, outcome = dead.seq, (DEAD, dead.node, dead.code)
        else:
            text = (columns[c][row] for c in (record.OPERATION, record.NAMESPACE))
            rest = [x if x is None else x.decode() for x in text]
            outcome = (
                after[i][row],
                *rest,
                columns[record.METADATA][row] or {},
                *(columns[c][row] for c in RETURNS[5:]),
            )
        assert seq not in found[i], "two outcomes of one record"
        found[i][seq] = outcome
    return found


def read(rows: DataFrame) -> dict[str, list[Any]]:
    table = rows.toArrow()
    return {c: values(table[c].combine_chunks()) for c in table.column_names}


def expected(p: Planned, columns: dict[str, list[Any]]) -> dict[int, Any]:
    """The same by `apply`, on Python's values."""
    found: dict[int, Any] = {}
    matches = p.node.condition.on_record() if p.node.condition else lambda _: True
    for i, seq in enumerate(columns[record.SEQ]):
        after = columns[record.AFTER][i]
        r = Record(
            copy.deepcopy(after),
            source="in",
            seq=seq,
            operation=columns[record.OPERATION][i].decode(),
            namespace=None if (name := columns[record.NAMESPACE][i]) is None else name.decode(),
            metadata=dict(columns[record.METADATA][i] or {}),
            key=columns[record.KEY][i],
            before=columns[record.BEFORE][i],
        )
        result: Any = r
        try:
            text = isinstance(after, bytes) and record.AFTER in p.node.condition.columns
            if matches(r.derive(after=after.decode(errors="replace")) if text else r):  # SQL sees raw bytes as text
                if (
                    isinstance(after, bytes)
                    and record.AFTER in p.node.processor.uses
                    and "select" not in p.case.settings
                ):
                    r.after = after.decode(errors="replace" if p.case.plugin == "expect" else "strict")  # type: ignore[assignment]
                result = p.node.processor.apply(r)
                if p.case.plugin == "expect":  # it only looks
                    r.after = after
        except Exception as e:
            found[seq] = (DEAD, p.node.id, getattr(e, "code", ""))
            continue
        if isinstance(result, Drop):
            continue
        if isinstance(result, Reject):
            found[seq] = (DEAD, p.node.id, result.code)
            continue
        metadata = {k: v for k, v in result.metadata.items() if k != "opencdc.collection"}
        payload = result.after.encode() if isinstance(result.after, str) else result.after
        found[seq] = (payload, result.operation, result.namespace, metadata, result.key, result.before)
    return found


def differences(p: Planned, spark: dict[int, Any], python: dict[int, Any], n: int) -> list[str]:
    found = []
    for seq in range(n):
        a, b = spark.get(seq, (FILTERED,)), python.get(seq, (FILTERED,))
        if a[0] == DEAD and b[0] == DEAD:
            same = a[1] == b[1]
        elif a[0] == DEAD or b[0] == DEAD:
            same = False
        else:
            same = plain(list(a)) == plain(list(b))
            if not same and p.case.plugin == "json.encode" and a[0] is not None and b[0] is not None:
                same = plain(list(a[1:])) == plain(list(b[1:])) and alike(json.loads(a[0]), json.loads(b[0]))
        if not same:
            found.append(f"{p} | {seq} | in Spark {plain(list(a))} | in Python {plain(list(b))}")
    return found


def alike(a: Any, b: Any, name: str = "") -> bool:
    """JSON of Spark and of Python: the same values in other spellings, and a field of NULL may be left out."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(alike(a.get(k), b.get(k), k) for k in {*a, *b})
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float | int) and isinstance(b, float | int) and name == "f":
        return struct.pack("f", a) == struct.pack("f", b)  # Python has the digits of a double for it
    if isinstance(a, str) and isinstance(b, str) and name in ("ts", "ntz"):
        spelled = [v.removesuffix("Z").removesuffix("+00:00") for v in (a, b)]
        return datetime.fromisoformat(spelled[0]) == datetime.fromisoformat(spelled[1])
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


@dataclass
class Looked:
    """What was seen of all combinations of one shape."""

    different: dict[str, list[str]]
    stopped: dict[str, Stop]


@pytest.fixture(scope="module")
def looked(lane: SparkSession) -> Callable[[Shape], Looked]:
    @cache
    def look(shape: Shape) -> Looked:
        rows = frame(lane, shape)
        columns = read(rows)
        n = len(columns[record.SEQ])
        planned = [plan(lane, rows, shape, case, condition) for case, condition in combinations(shape)]
        made = Looked({}, {str(p): p.stop for p in planned if p.stop is not None})
        planned = [p for p in planned if p.stop is None]
        for i in range(0, len(planned), TOGETHER):
            some = planned[i : i + TOGETHER]
            for p, spark in zip(some, collected(some), strict=True):
                made.different[str(p)] = differences(p, spark, expected(p, columns), n)
        return made

    return look


ONLY_JUDGE = ("error", "expect", "opfilter", "sample", "skip")  # one of each is enough with a condition


def combinations(shape: Shape) -> Iterator[tuple[Case, str]]:
    for case, condition in everywhere.combinations(shape, Where.SPARK):
        many = shape is Shape.TYPED and condition != "every" and case.number and case.plugin in ONLY_JUDGE
        if condition in everywhere.IN_SPARK[shape] and not many:
            yield case, condition


def known_bug(shape: Shape, name: str) -> str:
    return (
        "a typed time holds microseconds: what has more digits is a nack, as its page says"
        if (shape, name) == (Shape.TYPED, "field.convert 7 every")
        else ""
    )


def parameters() -> Iterator[Any]:
    for shape in (Shape.TYPED, Shape.RAW):
        for case, condition in combinations(shape):
            name = f"{case} {condition}"
            if name not in everywhere.STOPPED[shape]:
                bug = known_bug(shape, name)
                marks = [pytest.mark.xfail(strict=True, reason=bug)] if bug else []
                yield pytest.param(shape, name, marks=marks, id=f"{shape}-{name}")


@pytest.mark.parametrize("shape, name", list(parameters()))
def test_columns_and_python_come_to_the_same(looked: Callable[[Shape], Looked], shape: Shape, name: str) -> None:
    assert looked(shape).different[name] == []


@pytest.mark.parametrize("shape", [Shape.TYPED, Shape.RAW])
def test_what_has_no_type_is_refused_when_the_plan_is_made(looked: Callable[[Shape], Looked], shape: Shape) -> None:
    stopped = looked(shape).stopped
    assert {name: stop.code for name, stop in stopped.items()} == everywhere.STOPPED[shape]
    assert all(stop.what and stop.why and stop.hint for stop in stopped.values())
