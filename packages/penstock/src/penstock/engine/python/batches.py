"""The way of functions over whole Arrow batches through a Python stage, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock.engine.python.arrow import (
    IDENTITY,
    TYPES,
    NotPythonError,
    as_type,
    given_at,
    given_column,
    line_column,
    not_python,
    values,
)
from penstock.engine.python.records import record_at
from penstock.engine.python.stage import Op, PythonStage, Run
from penstock.plan.nodes import Node


def on_batches(stage: PythonStage) -> Run | None:
    function = stage.nodes[0].processor.on_batch() if len(stage.nodes) == 1 else None
    if function is None:
        return None
    node = stage.nodes[0]

    def run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        total = aside.Count(0, 0, 0, 0, 0)
        deads: list[aside.Dead] = []
        for done in _isolated(function, batch, node, stage):
            yield stage.out(done.columns, done.count.delivered)
            deads += done.deads
            if not done.count.balanced:  # one line for itself, so that nothing can make up for it
                yield stage.aside([], done.count)
            else:
                total += done.count
        yield stage.aside(deads, total)

    return run


@dataclass
class _Done:
    """What a function made of a piece of a batch."""

    columns: dict[str, pa.Array]
    count: aside.Count
    deads: list[aside.Dead]


def _isolated(function: Op, rows: pa.RecordBatch, node: Node, stage: PythonStage) -> Iterator[_Done]:
    """What raises on a batch is tried in halves until the bad records are alone."""
    try:
        result = function(rows.select([c for c in rows.schema.names if c in TYPES]))
        if isinstance(result, pa.Table):
            result = result.combine_chunks().to_batches()[0] if result.num_rows else rows.slice(0, 0)
        if not isinstance(result, pa.RecordBatch):
            raise TypeError(f"returned {type(result).__name__} instead of an Arrow batch")  # noqa: TRY301
        done = _judged(rows, result, node, stage)
    except Exception as e:
        if rows.num_rows == 1:
            try:
                r = record_at(rows, 0, stage)
                dead = stage.nack(r, node.id, e, given_at(rows, 0, r.after))
            except NotPythonError as not_held:
                dead = not_python(rows, 0, node.id, not_held)
            nothing = {record.AFTER: pa.nulls(0, pa.string())}
            yield _Done(nothing, aside.Count(1, 0, 0, 0, 1), [dead])
            return
        middle = rows.num_rows // 2
        yield from _isolated(function, rows.slice(0, middle), node, stage)
        yield from _isolated(function, rows.slice(middle), node, stage)
        return
    yield done


def _judged(rows: pa.RecordBatch, out: pa.RecordBatch, node: Node, stage: PythonStage) -> _Done:
    """Row for row: who was dropped, rejected, or can't be held by the destination. Identity is the input's."""
    n = out.num_rows
    names = set(out.schema.names)
    dropped = _booleans(out.column("drop")) if "drop" in names else [False] * n
    why = out.column("reject").to_pylist() if "reject" in names else [None] * n
    after = as_type((out if record.AFTER in names else rows).column(record.AFTER), pa.string())
    texts = values(after) if stage.check else []
    deads: list[aside.Dead] = []
    kept: list[int] = []
    for i in range(n):
        if dropped[i]:
            continue
        who, code, reason = node.id, "processor.rejected", why[i]
        if reason is None and stage.check is not None and i < len(texts):
            who, code, reason = stage.check[0], "destination.unfit", stage.check[1](texts[i])
        if reason is None:
            kept.append(i)
        elif i < rows.num_rows:
            r = record_at(rows, i, stage)
            deads.append(aside.dead(r, who, reason, code, given_at(rows, i, r.after)))
    chosen = pa.array(kept, pa.int64())
    columns: dict[str, pa.Array] = {}
    identity = rows.take(chosen) if n == rows.num_rows else None
    for name in stage.returns:
        if name == record.AFTER and (name in names or n == rows.num_rows):
            columns[name] = after.take(chosen)
        elif name in names and name not in IDENTITY:
            columns[name] = as_type(out.column(name), TYPES[name]).take(chosen)
        elif identity is not None and name in identity.schema.names:
            columns[name] = identity.column(name)
    if stage.keep_given and identity is not None:
        columns[stage.given] = line_column(identity) if stage.only_line else given_column(identity)
    return _Done(columns, aside.Count(rows.num_rows, 0, sum(dropped), len(kept), len(deads)), deads)


def _booleans(column: pa.Array) -> list[bool]:
    if not pa.types.is_boolean(column.type) and not pa.types.is_null(column.type):
        raise TypeError(f"the column `drop` holds {column.type}, not booleans")
    return [bool(v) for v in column.to_pylist()]
