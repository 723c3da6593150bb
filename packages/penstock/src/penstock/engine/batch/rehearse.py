"""Before a lane touches its source: the whole plan is built over no record. Runs in the lane's thread.

What is wrong with an expression, a type or a function's module is said here, with the processor's name, instead of at the first
batch. A job is run only where a task could find something: a processor that has something to open, such as a function's module.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine.batch.context import Work
from penstock.engine.batch.process import Flow, process, uses
from penstock.engine.batch.stage import fitting
from penstock.engine.trap import no_rows
from penstock.ledger import Snapshot, State
from penstock.native import NativeSource, Processor, Where
from penstock.plan.nodes import Stage, stages
from penstock.ranges import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rehearse(work: Work) -> None:
    """Raises what the first batch would raise, whatever its records. Does nothing where the source's columns are not known yet."""
    columns = work.source.empty()
    if columns is None:
        return
    source = _Nothing(work.source, columns)
    work = replace(work, source=source)
    s = Snapshot(work.lane.key, 0, 0, State.OPEN, Ranges(()), time.time_ns() // 1_000_000)
    common = stages(work.nodes, source.shape)
    shape = common[-1].gives if common else source.shape
    own = {name: stages(t.chain(shape), shape) for name, t in work.targets.items()}
    later = uses([node for st in own.values() for stage in st for node in stage.nodes])
    wanted = {c for t in work.targets.values() for c in t.destination.columns} | {record.SEQ, record.PART}
    flow = Flow(source.frame(work.spark, s.ranges, record.COLUMNS), source.shape)
    flow = process(work, s, flow, common, wanted | later, more=True)
    for name, target in work.targets.items():
        mine = process(work, s, flow, own[name], target.destination.columns)
        columns_ = [c for c in record.COLUMNS if c in target.destination.columns]
        mine = fitting(work, s, name, target, mine, columns_)
        if any(_starts(stage) for stage in (*common, *own[name])):
            mine.rows.write.format("noop").mode("overwrite").save()


def _starts(stage: Stage) -> bool:
    """Whether something of it is only found out by a task: Spark's own expressions are tried one by one when the plan is built."""
    opens = [type(node.processor).open is not Processor.open for node in stage.nodes]
    return stage.where is Where.PYTHON and any(opens)


class _Nothing(NativeSource[Any]):
    """The source, as if it had no record."""

    def __init__(self, source: NativeSource[Any], columns: str) -> None:
        super().__init__(source.settings, source.source_id)
        self.shape = source.shape
        self.columns = columns

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:  # noqa: ARG002
        from pyspark.sql import functions as F

        nothing = F.lit(None).cast(f"struct<{self.columns}>").alias("nothing")  # quicker than one made of no rows
        return no_rows(spark.range(0).select(nothing).select("nothing.*"))
