"""A pipeline tried out: its real, compiled plan, with destinations that only collect, and where wanted records instead of a
source. Used by `penstock test` and `run --dry-run`. Nothing outside a throw-away state folder is changed.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine.batch.context import Guarantee, Target
from penstock.engine.gate import Window
from penstock.engine.lock import StateFolder
from penstock.engine.supervisor import Engine, LanePlan, PipelinePlan, PipelineResult
from penstock.errors import UsageError
from penstock.ledger import Ledger, Nack
from penstock.native import (
    Delivery,
    Known,
    Limits,
    NativeDestination,
    NativeSource,
    Range,
    Ranges,
    Receipt,
    Refuse,
    Shape,
    Stop,
)
from penstock_sdk.record import COLLECTION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PAYLOADS = (record.AFTER, record.BEFORE, record.KEY)
_DDL = "seq LONG, position BINARY, operation STRING, namespace STRING, metadata MAP<STRING,STRING>, key BINARY, before BINARY"


@dataclass
class Outcome:
    """What became of the records that were tried."""

    result: PipelineResult
    delivered: Mapping[str, list[dict[str, Any]]]  # per destination, in the order they would be delivered in
    nacks: list[Nack] = field(default_factory=list)
    read: int = 0


def run(
    plans: Sequence[PipelinePlan], spark: SparkSession | None = None, master: str = "local[*,4]", conf: Any = None
) -> list[Outcome]:
    """Runs plans made by `with_records` or `peeking` to their end, all in one engine."""
    with tempfile.TemporaryDirectory(prefix="penstock-trial-") as folder:
        state = Path(folder) / "state"
        results = Engine(state, spark=spark, master=master, conf=conf).run(plans, once=True)
        path = StateFolder(state).ledger
        ledger = Ledger(path) if path.exists() else None
        try:
            return [_outcome(p, r, ledger) for p, r in zip(plans, results, strict=True)]
        finally:
            if ledger is not None:
                ledger.close()


def _outcome(plan: PipelinePlan, result: PipelineResult, ledger: Ledger | None) -> Outcome:
    delivered: dict[str, list[dict[str, Any]]] = {}
    nacks: list[Nack] = []
    for lane in plan.lanes:
        for name, target in lane.targets.items():
            assert isinstance(target.destination, Collecting)
            delivered.setdefault(name, []).extend(target.destination.found)
        if ledger is not None:
            nacks += ledger.nacks(ledger.lane(plan.id, lane.source.source_id).key)
    return Outcome(result, delivered, nacks, sum(lane.read for lane in result.lanes))


def with_records(
    plan: PipelinePlan, name: str, source: str, records: Sequence[Mapping[str, Any]], schema: str | None
) -> PipelinePlan:
    """The lane of one source with these records instead of it."""
    lane = next(lane for lane in plan.lanes if lane.source.source_id == source)
    given = Given(lane.source, records, schema)
    nodes = lane.nodes if given.shape is lane.source.shape else lane.nodes[len(lane.source.processors) :]
    return _tried(plan, name, [replace(lane, source=given, nodes=nodes, limits=Limits())])


def peeking(plan: PipelinePlan, limit: int) -> PipelinePlan:
    """Every source, for one batch of at most so many records, and never acked."""
    return _tried(plan, plan.id, [_peek(lane, limit) for lane in plan.lanes])


def _peek(lane: LanePlan, limit: int) -> LanePlan:
    source = lane.source
    if len(source.shapes()) > 1:  # it would be opened for real, and may forget what it has given
        raise UsageError(
            f"{source.source_id!r} runs in a process of its own, and can't be tried out without consequences",
            code="test.hosted",
            hint="write records for it in `tests` and use `penstock test`, or run the pipeline on another state folder",
        )
    taken: list[Ranges] = []
    real = source.available

    def available(known: Known, limits: Limits) -> Ranges | None:
        if taken:
            return None
        found = real(known, limits)
        if found is not None:
            taken.append(found)
        return found

    # The source itself, but for two methods: what a stand-in does not pass on would be missing from the trial.
    source.available = available  # type: ignore[method-assign]
    source.acked = lambda _: ()  # type: ignore[method-assign, assignment]
    source.idle = lambda _idle=source.idle: bool(taken) or _idle()  # type: ignore[method-assign, misc]
    return replace(lane, limits=replace(lane.limits, max_records=limit, max_delay=0.0))


def _tried(plan: PipelinePlan, name: str, lanes: Sequence[LanePlan]) -> PipelinePlan:
    tried = [
        replace(lane, targets={i: replace(t, destination=Collecting(t)) for i, t in lane.targets.items()}, dlq=None)
        for lane in lanes
    ]
    return replace(
        plan, id=name, lanes=tuple(tried), window=Window(0, 0), guarantee=Guarantee.AT_LEAST_ONCE, handlers=()
    )


class Collecting(NativeDestination[Any]):
    """Stands for a destination: takes what that takes, nacks what that can't hold, and keeps the rest in memory."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.destination.settings, target.destination.destination_id)
        self._real = target.destination
        self.shapes = self._real.shapes  # type: ignore[misc]
        self.unfit_payload = self._real.unfit_payload  # type: ignore[method-assign]
        self.found: list[dict[str, Any]] = []

    def unfit(
        self, columns: Mapping[str, Column], shape: Shape, schema: StructType, *, sound: bool = False
    ) -> Column | None:
        return self._real.unfit(columns, shape, schema, sound=sound)

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:  # noqa: ARG002
        assert d.rows is not None
        rows = d.rows.orderBy(record.SEQ, record.PART).collect()
        self.found += [_plain(row.asDict(recursive=True)) for row in rows]
        return Receipt(len(rows))


class Given(NativeSource[Any]):
    """Records of a test instead of a source. They have the shape that the source gives; a typed one needs types, which are
    the source's own, the test's, or follow from the values."""

    def __init__(self, source: NativeSource[Any], records: Sequence[Mapping[str, Any]], schema: str | None) -> None:
        super().__init__(source.settings, source.source_id)
        self._records = records
        self._schema = schema or getattr(source.settings, "schema_", None)
        if schema is None and len(source.shapes()) > 1:  # as a source gives what it gives: an object, or something raw
            self.shape = Shape.OPEN if any(isinstance(r.get("after"), dict) for r in records) else Shape.RAW
        else:
            self.shape = Shape.TYPED if source.empty() is None or schema is not None else source.shape

    def available(self, known: Known, limits: Limits) -> Ranges | None:  # noqa: ARG002
        if known.next_seq > 0 or not self._records:
            return None
        n = len(self._records)
        return Ranges((Range("test", {"from": 0, "to": n}, 0, n),), n)

    def empty(self) -> str | None:
        return None if self.shape is Shape.TYPED else f"{record.AFTER} BINARY"

    def promised(self, ranges: Ranges) -> int | None:  # noqa: ARG002
        return len(self._records)

    def wait(self, timeout: float) -> None:
        """Never: it is idle."""

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:  # noqa: ARG002
        from pyspark.sql import functions as F

        rows = [self._row(i, r) for i, r in enumerate(self._records)]
        made = spark.createDataFrame(rows, f"{_DDL}, after BINARY")
        if self.shape is Shape.TYPED:
            schema = self._schema or self._inferred(spark)
            text = F.col(record.AFTER).cast("string")
            made = made.withColumn(record.AFTER, F.from_json(text, schema, {"mode": "FAILFAST"}))
        names = {c.partition(".")[0] for c in columns}
        return made.select(*(c for c in record.COLUMNS if c in made.columns and c in names))

    def _row(self, i: int, r: Mapping[str, Any]) -> tuple[Any, ...]:
        key, before, after = (_bytes(r.get(name)) for name in ("key", "before", "after"))
        position = str(r.get("position", i)).encode()
        metadata = {str(k): str(v) for k, v in (r.get("metadata") or {}).items()}
        namespace = r.get("namespace", metadata.pop(COLLECTION, None))
        return i, position, r.get("operation", "create"), namespace, metadata, key, before, after

    def _inferred(self, spark: SparkSession) -> StructType:
        """From all values together: a whole number is BIGINT, text is STRING."""
        texts = [json.dumps(r["after"]) for r in self._records if isinstance(r.get("after"), dict)]
        if not texts:
            raise Stop(
                "The input of a test has no fields to find types from",
                code="test.schema",
                hint="give the test a `schema`",
            )
        return spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A delivered record as a test writes it: without what only the engine needs, payloads as text or objects."""
    found = {name: row.get(name) for name in (*_PAYLOADS, record.OPERATION, record.NAMESPACE, record.METADATA)}
    for name in _PAYLOADS:
        found[name] = _value(found[name])
    if found[record.NAMESPACE] is not None:
        found[record.METADATA] = {**(found[record.METADATA] or {}), COLLECTION: found[record.NAMESPACE]}
    return {**found, record.SEQ: row[record.SEQ], record.PART: row[record.PART]}


def opened(value: Any) -> Any:
    """A payload that is an object as JSON text, as an object."""
    if isinstance(value, str) and value[:1] == "{":
        from penstock.plan.payload import loads

        try:
            return loads(value)
        except Exception:
            return value
    return value


def _value(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        try:
            value = bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, dict):
        return {k: _value(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_value(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | bool | int | float) else _text(value)


def _text(value: Any) -> Any:
    from decimal import Decimal

    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
