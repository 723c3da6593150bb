"""The general way through a Python stage: a record at a time, with all that user code may do to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock import record
from penstock.engine import aside
from penstock.engine.python.arrow import (
    IDENTITY,
    PAYLOADS,
    TYPES,
    as_type,
    cell,
    given_at,
    given_text,
    line_column,
    opened,
    values,
)
from penstock.engine.python.stage import Op, PythonStage, Run
from penstock.plan.nodes import Node
from penstock_sdk.record import DROP, Drop, Record, Reject, shared_fields

PARTS = 1 << 16  # of one record in one stage


def on_records(stage: PythonStage) -> Run:
    functions = [_conditional(node) for node in stage.nodes]
    ids = [node.id for node in stage.nodes]
    last = stage.last()
    own = [c for c in stage.returns if c not in (record.AFTER, *IDENTITY)]

    def run(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        kept: list[int] = []  # for every record that goes on: the row it came from
        texts: list[Any] = []
        cells: list[list[Any]] = []
        givens: list[str | None] = []
        part_of: dict[int, int] = {}  # where it is not the row's own
        deads: list[aside.Dead] = []
        produced = filtered = 0
        nested = record.OUTCOME in batch.schema.names  # an earlier stage may have made parts already
        seqs: list[int] = batch.column(record.SEQ).to_pylist()
        for i, first in enumerate(records(stage, batch, seqs)):
            original = first.after
            # a structured payload may be changed in place, so it is written down before that
            given = None if type(original) is bytes else given_at(batch, i, original)
            r, k = first, 0
            try:
                for f in functions:
                    result = f(r)
                    if result is not r:
                        break
                    k += 1
                else:
                    text = last(r.after)
                    if own:
                        cells.append([cell(r, name) for name in own])
                    texts.append(text)
                    kept.append(i)
                    if stage.keep_given and not stage.only_line:
                        givens.append(given_text(batch, i, original, given))
                    continue
            except Exception as e:
                outcomes: list[Any] = [stage.nack(r, ids[min(k, len(ids) - 1)], e, None)]
            else:
                outcomes = follow(stage, functions, ids, last, own, r, k, result, (first.source, seqs[i]))
            whole = first.part
            if len(outcomes) >= PARTS or (nested and len(outcomes) > 1 and whole + 1 >= PARTS // 2):
                what = f"it was split into {len(outcomes)} parts: too many, or once too often"
                outcomes = [aside.dead(first, ids[-1], what, "processor.parts", None)]
            produced += len(outcomes) - 1
            for n, outcome in enumerate(outcomes):
                part = whole if len(outcomes) == 1 else (whole + 1) * PARTS + n if nested else n + 1
                if outcome is DROP:
                    filtered += 1
                elif isinstance(outcome, aside.Dead):
                    outcome.given = given or given_at(batch, i, original)
                    outcome.seq, outcome.part = seqs[i], part
                    deads.append(outcome)
                else:
                    text, values = outcome
                    part_of[len(texts)] = part
                    texts.append(text)
                    cells.append(values)
                    kept.append(i)
                    if stage.keep_given and not stage.only_line:
                        givens.append(given_text(batch, i, original, given))
        columns = identity(stage, batch, kept, part_of)
        columns[record.AFTER] = stage.after(texts)
        for n, name in enumerate(own):
            type_ = pa.binary() if name in PAYLOADS else TYPES[name]
            columns[name] = as_type(pa.array([c[n] for c in cells], type_), TYPES[name])
        if stage.keep_given and stage.only_line:
            columns[record.LINE] = line_column(batch).take(pa.array(kept, pa.int64()))
        elif stage.keep_given:
            columns[record.GIVEN] = pa.array(givens, pa.string())
        yield stage.out(columns, len(texts))
        yield stage.aside(deads, aside.Count(batch.num_rows, produced, filtered, len(texts), len(deads)))

    return run


def follow(
    stage: PythonStage,
    functions: Sequence[Op],
    ids: Sequence[str],
    last: Op,
    own: Sequence[str],
    r: Record,
    k: int,
    result: Any,
    identity: tuple[str, int],
) -> list[Any]:
    """What becomes of a record that function `k` gave something else for than the record itself."""
    outcomes: list[Any] = []
    pending: list[tuple[Record, int]] = []

    def take(result: Any) -> None:
        if isinstance(result, Drop):
            outcomes.append(DROP)
        elif isinstance(result, Reject):
            outcomes.append(aside.dead(r, ids[k], result.reason, result.code, None))
        elif isinstance(result, Record):
            if result is not r:
                _takes_over(r, result, identity)
            pending.append((result, k + 1))
        elif isinstance(result, Sequence) and not isinstance(result, str | bytes):
            parts = _parts(r, result, identity)
            if not parts:
                outcomes.append(DROP)
            pending.extend((x, k + 1) for x in reversed(parts))
        else:
            what = f"returned {type(result).__name__} instead of a record, DROP or Reject"
            outcomes.append(aside.dead(r, ids[k], what, "processor.result", None))

    try:
        take(result)
    except Exception as e:
        outcomes.append(stage.nack(r, ids[k], e, None))
    while pending:
        r, k = pending.pop()
        try:
            if k < len(functions):
                take(functions[k](r))
            else:
                outcomes.append((last(r.after), [cell(r, name) for name in own]))
        except Exception as e:
            outcomes.append(stage.nack(r, ids[min(k, len(ids) - 1)], e, None))
    return outcomes


def identity(
    stage: PythonStage, batch: pa.RecordBatch, kept: list[int], part_of: Mapping[int, int]
) -> dict[str, pa.Array]:
    """Who the records are that go on: what the source said, whatever user code has done to them."""
    columns: dict[str, pa.Array] = {}
    chosen = pa.array(kept, pa.int64())
    for name in (record.SOURCE, record.SEQ, record.POSITION, record.PART):
        if name in stage.returns and name in batch.schema.names:
            columns[name] = batch.column(name).take(chosen)
    if record.POSITION in stage.returns and record.POSITION not in columns and stage.locate is not None:
        seqs = batch.column(record.SEQ).take(chosen).to_pylist()
        columns[record.POSITION] = pa.array([stage.locate(seq)[0] for seq in seqs], pa.binary())
    if record.PART in stage.returns and part_of:
        parts = columns[record.PART].to_pylist() if record.PART in columns else [0] * len(kept)
        for n, part in part_of.items():
            parts[n] = part
        columns[record.PART] = pa.array(parts, pa.int32())
    return columns


def records(stage: PythonStage, batch: pa.RecordBatch, seqs: Sequence[int] | None = None) -> Iterator[Record]:
    """Records that fill in what is rarely looked at when it is: 0.1 µs each instead of 0.6."""
    names = [c for c in batch.schema.names if c in TYPES]
    columns: Mapping[str, list[Any]] = {
        c: values(batch.column(c)) if c in PAYLOADS else batch.column(c).to_pylist() for c in names if c != record.SEQ
    }
    rest = [c for c in columns if c not in (record.AFTER, record.POSITION, record.METADATA)]
    located = stage.locate is not None and record.METADATA not in names
    shared = shared_fields(stage.source, stage.batch_time, stage.locate if located else None)
    payloads = columns[record.AFTER]
    new, odd = Record.__new__, bool(rest) or not located
    seqs = batch.column(record.SEQ).to_pylist() if seqs is None else seqs
    for i, after in enumerate(map(opened, payloads) if stage.opens else payloads):
        r = new(Record)
        r.after = after
        r.seq = seqs[i]
        r._shared = shared
        if odd:
            if not located:
                r._position = columns[record.POSITION][i] if record.POSITION in columns else b""
                r._metadata = dict(columns[record.METADATA][i] or ()) if record.METADATA in columns else {}
            for name in rest:
                value = columns[name][i]
                if value is not None:
                    setattr(r, name, value)
        yield r


def record_at(batch: pa.RecordBatch, i: int, stage: PythonStage) -> Record:
    return next(records(stage, batch.slice(i, 1)))


def _takes_over(whole: Record, x: Record, identity: tuple[str, int]) -> None:
    """A record that user code made stands for the one it was given."""
    x.source, x.seq = identity
    x.part = whole.part
    if x._locate is None and not x._position:
        x._position = whole.position


def _parts(whole: Record, result: Sequence[Any], identity: tuple[str, int]) -> list[Record]:
    parts: list[Record] = []
    seen: set[int] = set()
    for x in result:
        if not isinstance(x, Record):
            raise TypeError(f"a sequence of records was expected, it holds a {type(x).__name__}")
        made = x.derive() if id(x) in seen else x  # the same one twice is two parts
        seen.add(id(x))
        if made is not whole:
            _takes_over(whole, made, identity)
        parts.append(made)
    return parts


def _conditional(node: Node) -> Op:
    apply: Op = node.processor.apply
    if not node.condition:
        return apply
    matches = node.condition.on_record()
    if node.condition.template is not None or record.AFTER not in node.condition.columns:
        return lambda r: apply(r) if matches(r) else r

    def conditional(r: Record) -> Any:
        """SQL sees raw bytes as text, as Spark does."""
        seen = r.derive(after=r.after.decode(errors="replace")) if type(r.after) is bytes else r
        return apply(r) if matches(seen) else r

    return conditional
