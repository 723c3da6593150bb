"""The fast way through a Python stage: `after` in, `after` out. No record objects are made.

`decode, filter, set, encode` ran at 0.95 million records/s on 2 cores like that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock.engine.python.arrow import given_at, given_column, line_column, opened, values
from penstock.engine.python.records import record_at
from penstock.engine.python.stage import Op, PythonStage, Run
from penstock.plan.sql import compile_condition
from penstock_sdk.record import DROP


def on_payloads(stage: PythonStage) -> Run | None:
    """The fast way: `after` in, `after` out; whatever else goes on is taken over from the input."""
    ops: list[Op] = []
    names: dict[int, str] = {}
    for node in stage.nodes:
        op = node.processor.on_payload(last=node is stage.nodes[-1])
        if op is not None and node.condition:
            op = _conditional_payload(op, node.condition)
        if op is None:
            return None
        if id(op) in names:  # two of one kind: told apart where one of them raises
            op = partial(op)
        ops.append(op)
        names[id(op)] = node.id
    last = stage.last()
    ops.append(last)
    names[id(last)] = stage.nodes[-1].id
    others = [c for c in stage.returns if c != record.AFTER]
    if stage.locate is not None and {record.POSITION, record.METADATA} & set(others):
        return None

    structured = stage.opens
    takes = bool(others) or stage.keep_given

    def run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        given = values(batch.column(record.AFTER))
        out: list[Any] = []
        append = out.append
        kept: list[int] = []
        deads: list[aside.Dead] = []
        filtered = 0
        f: Op = last
        p: Any
        for i, p in enumerate(map(opened, given) if structured else given):
            try:
                for f in ops:
                    p = f(p)
                    if p is DROP:
                        break
                else:
                    append(p)
                    if takes:
                        kept.append(i)
                    continue
                filtered += 1
            except Exception as e:
                r = record_at(batch, i, stage)
                r.after = p
                deads.append(
                    stage.nack(r, names[id(f)], e, given_at(batch, i, opened(given[i]) if structured else given[i]))
                )
        columns: dict[str, pa.Array] = {record.AFTER: stage.after(out)}
        if takes:
            rows = batch if len(out) == batch.num_rows else batch.take(pa.array(kept, pa.int64()))
            for name in others:
                if name in rows.schema.names:
                    columns[name] = rows.column(name)
            if stage.keep_given:
                columns[stage.given] = line_column(rows) if stage.only_line else given_column(rows)
        yield stage.out(columns, len(out))
        yield stage.aside(deads, aside.Count(len(given), 0, filtered, len(out), len(deads)))

    return run


def _conditional_payload(op: Op, condition: str) -> Op | None:
    matches = compile_condition(condition).on_after
    if matches is None:
        return None
    return lambda p: op(p) if matches(p if type(p) is not bytes else p.decode()) else p  # SQL sees raw bytes as text
