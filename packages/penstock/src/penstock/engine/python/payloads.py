"""The fast way through a Python stage: `after` in, `after` out. No record objects are made.

`decode, filter, set, encode` ran at 0.95 million records/s on 2 cores like that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import Template
from typing import Any

import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock.engine.python.arrow import given_at, given_column, line_column, opened, text_of, values
from penstock.engine.python.records import record_at
from penstock.engine.python.stage import Op, PythonStage, Run
from penstock.native import Inline
from penstock_sdk.record import DROP


def on_payloads(stage: PythonStage) -> Run | None:
    """The fast way: `after` in, `after` out; whatever else goes on is taken over from the input."""
    ops: list[tuple[Op, Op | None]] = []  # each with its condition
    for node in stage.nodes:
        op = node.processor.on_payload(last=node is stage.nodes[-1])
        matches = node.condition.on_after() if node.condition else None
        if op is None or (node.condition and matches is None):
            return None
        ops.append((op, matches))
    last = stage.last()
    ops.append((_text if last is text_of else last, None))
    ids = [node.id for node in stage.nodes]
    ids.append(ids[-1])
    others = [c for c in stage.returns if c != record.AFTER]
    if stage.locate is not None and {record.POSITION, record.METADATA} & set(others):
        return None
    structured = stage.opens
    takes = bool(others) or stage.keep_given
    loop = _loop(ops, takes=takes)

    def run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        given = values(batch.column(record.AFTER))
        out: list[Any] = []
        kept: list[int] = []
        deads: list[aside.Dead] = []

        def dead(i: int, k: int, p: Any, e: Exception) -> None:
            r = record_at(batch, i, stage)
            r.after = p
            again = values(batch.column(record.AFTER).slice(i, 1))[0]  # an object may have been changed by now
            deads.append(stage.nack(r, ids[k], e, given_at(batch, i, opened(again) if structured else again)))

        filtered = loop(map(opened, given) if structured else given, out.append, kept.append, dead)
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


_text = Inline(text_of, "if type(p) is not bytes:\n    p = $text_of(p)", text_of=text_of)
_RAW = "p if type(p) is not bytes else p.decode(errors='replace')"  # SQL sees raw bytes as text, as Spark does


def _loop(ops: Sequence[tuple[Op, Op | None]], *, takes: bool) -> Callable[..., int]:
    """All operations as one function, the ones that can written out: 1.3 µs a record for seven of them, 2.1 as calls.

    `k` is the operation at work: whose nack it is if one raises.
    """
    lines = [
        "def loop(given, append, keep, dead):",
        "  filtered = k = 0",
        "  for i, p in enumerate(given):",
        "    try:",
    ]
    scope: dict[str, Any] = {"DROP": DROP}
    for k, (op, matches) in enumerate(ops):
        lines.append(f"      k = {k}")
        indent = "      "
        if matches is not None:
            scope[f"matches_{k}"] = matches
            lines.append(f"      if matches_{k}({_RAW}):")
            indent = "        "
        if isinstance(op, Inline):
            names = {name: f"{name}_{k}" for name in op.names}
            scope |= {names[name]: value for name, value in op.names.items()}
            source = Template(op.source).substitute(names)
        else:
            scope[f"op_{k}"] = op
            source = f"p = op_{k}(p)\nif p is DROP:\n  filtered += 1\n  continue"
        lines += [indent + line for line in source.splitlines()]
    lines.append("      append(p)")
    if takes:
        lines.append("      keep(i)")
    lines += ["    except Exception as e:", "      dead(i, k, p, e)", "  return filtered"]
    exec("\n".join(lines), scope)
    made: Callable[..., int] = scope["loop"]
    return made
