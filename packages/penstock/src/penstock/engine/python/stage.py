"""Neighbouring Python processors as one function over Arrow batches. Runs in Spark tasks, and is sent there pickled.

In: record columns, as far as they are looked at, and `seq`. Out: what is to be delivered, and behind it lines aside: a dead
letter for every nack, and one line of counts per Arrow batch. Filtered records are not sent back. Whatever user code
does, an input record ends in exactly one place, or, when it was split, each of its parts does.

There are three ways through, the first that fits is taken: whole batches (`batches.py`), payloads alone (`payloads.py`),
records (`records.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import record
from penstock.engine import aside as lines
from penstock.engine.python.arrow import DDL, TYPES, NotPythonError, as_type, expect_keys, sifted, text_of
from penstock.native import Typed
from penstock.plan.nodes import Node
from penstock.plan.payload import expect
from penstock.record import Shape
from penstock.secrets import Secrets
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Place, Record

Op = Callable[[Any], Any]
Run = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]


class Check(NamedTuple):
    """What the destination of this name can't hold."""

    name: str
    unfit: Callable[[Any], str | None]
    takes_sound: bool = False  # nothing that is sound need be looked at
    fits: Callable[[str, bool], bool] = lambda _ddl, _sound: False  # it can hold whatever has this type, and is sound


SECOND_TRY = "penstock: at most once, so a second try of a task is refused"


class Unfit(Rejected):
    """The destination can't hold the record."""


@dataclass(frozen=True)
class PythonStage:
    """One stage of one attempt. `returns` are the record columns that go on, `after` among them."""

    source: str
    nodes: tuple[Node, ...]
    shape: Shape  # of `after` in what comes in
    returns: tuple[str, ...]
    batch_time: datetime
    locate: Callable[[int], Place] | None = None
    keep_given: bool = False  # a later stage may nack too: send along what the source gave
    once: bool = False  # at most once: no task may run twice
    check: Check | None = None  # what the destination of this name can't hold
    order: bool = False  # pass the column on by which stretches of a strand follow each other
    typed: Typed | None = None  # what the last processor gives becomes a typed column
    only_line: bool = False  # what the source gave is sent along as the raw payload that it was
    secrets: Secrets = field(default_factory=Secrets)  # what no error may say, not even in a line aside

    @property
    def opens(self) -> bool:
        """Payloads become objects in front of the first processor. One that types them reads their text itself: an object has
        no more than the 17 digits of a double."""
        return self.shape is Shape.OPEN and self.nodes[0].processor.typed is None

    @property
    def ddl(self) -> str:
        """The schema of what comes out, as Spark writes it."""
        types = DDL if self.typed is None else {**DDL, record.AFTER: self.typed.ddl}
        columns = [*((c, types[c]) for c in self.returns), (record.OUTCOME, "string"), (record.ASIDE, "string")]
        if self.keep_given:
            columns.append((self.given, "string"))
        if self.order:
            columns.append((record.ORDER, "long"))
        return ", ".join(f"`{name}` {type_}" for name, type_ in columns)

    @property
    def given(self) -> str:
        return record.LINE if self.only_line else record.GIVEN

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.once:
            _refuse_second_try()
        for node in self.nodes:
            try:
                node.processor.open()
            except Exception as e:
                raise RuntimeError(f"the processor {node.id!r} can't start: {lines.describe(e)}") from e
        from penstock.engine.python.batches import on_batches
        from penstock.engine.python.payloads import on_payloads
        from penstock.engine.python.records import on_records

        run = on_batches(self) or on_payloads(self) or on_records(self)
        for batch in batches:
            for out in self._run(run, batch):
                yield _with_order(out, batch) if self.order else out

    def _run(self, run: Run, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        live, passed = _apart(batch)
        if passed is not None:
            yield self.out({c: passed.column(c) for c in (record.ASIDE, record.OUTCOME)})
        if live.num_rows:
            after = live.column(record.AFTER)
            if pa.types.is_string(after.type) or pa.types.is_binary(after.type):
                expect(after.view(pa.binary()))
            expect_keys(after.type)
            try:
                yield from run(live)
            except NotPythonError:  # before anything came out of it
                live, deads = sifted(live, self.nodes[0].id)
                yield self.aside(deads, lines.Count(len(deads), 0, 0, 0, len(deads)))
                if live.num_rows:
                    yield from run(live)

    def last(self) -> Op:
        """What ends every chain: the payload as text, which the destination can hold; or as it is, to be typed."""
        if self.typed is not None:
            return _as_it_is
        if self.check is None:
            return text_of
        unfit = self.check[1]

        def fit(value: Any) -> bytes | None:
            if (why := unfit(value)) is not None:
                raise Unfit(why)
            return text_of(value)

        return fit

    def after(self, values: Sequence[Any]) -> pa.Array:
        """The column of what `last` gave."""
        return pa.array(values, pa.binary()).view(pa.string()) if self.typed is None else self.typed.column(values)

    def type_of(self, name: str) -> pa.DataType:
        if name == record.AFTER and self.typed is not None:
            return _struct_type(self.typed)
        return TYPES.get(name, pa.string())

    def nack(self, r: Record, node: str, e: Exception, given: dict[str, Any] | None) -> lines.Dead:
        if isinstance(e, Unfit) and self.check is not None:
            return lines.dead(r, self.check[0], e.what, "destination.unfit", given)
        if isinstance(e, Rejected):
            return lines.dead(r, node, getattr(e, "what", e), getattr(e, "code", "") or "processor.rejected", given)
        return lines.dead(r, node, e, "processor.error", given)

    def out(self, columns: Mapping[str, pa.Array], rows: int | None = None) -> pa.RecordBatch:
        n = len(next(iter(columns.values()))) if rows is None else rows
        names = [*self.returns, record.OUTCOME, record.ASIDE, *([self.given] if self.keep_given else [])]
        types = [self.type_of(name) for name in names]
        arrays = [
            as_type(columns[name], type_) if name in columns else _constant(self, name, type_, n)
            for name, type_ in zip(names, types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(zip(names, types, strict=True))))

    def _warned(self) -> dict[str, int]:
        """What processors have warned of since they were asked last."""
        found = {}
        for node in self.nodes:
            if node.processor.warned:
                found[node.id] = node.processor.warned
                node.processor.warned = 0
        return found

    def aside(self, deads: list[lines.Dead], count: lines.Count) -> pa.RecordBatch:
        count.warned = lines.added(count.warned, self._warned())
        for dead in deads if self.secrets else ():
            dead.error = self.secrets.hide(dead.error, cut=len(dead.error) >= lines.ERROR_CHARACTERS)
        texts = [*(lines.line(d) for d in deads), lines.line(count)]
        outcomes = [lines.DEAD] * len(deads) + [lines.COUNT]
        nothing = {name: pa.nulls(len(texts), self.type_of(name)) for name in self.returns}
        return self.out(
            {
                **nothing,
                record.OUTCOME: pa.array(outcomes, pa.string()),
                record.ASIDE: pa.array(texts, pa.binary()).view(pa.string()),
            }
        )


def _as_it_is(value: Any) -> Any:
    return value


@cache
def _struct_type(typed: Typed) -> pa.DataType:
    return typed.column([]).type


def _with_order(out: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A task reads one stretch, so all its records have the same."""
    order = pa.repeat(batch.column(record.ORDER)[0], out.num_rows)
    return out.append_column(pa.field(record.ORDER, pa.int64()), order)


def _refuse_second_try() -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise RuntimeError(SECOND_TRY)


def _apart(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Records that still live, and lines of an earlier stage that pass by."""
    if record.OUTCOME not in batch.schema.names:
        return batch, None
    outcome = batch.column(record.OUTCOME)
    if outcome.null_count == len(outcome):
        return batch, None
    return batch.filter(outcome.is_null()), batch.filter(outcome.is_valid())


def _constant(stage: PythonStage, name: str, type_: pa.DataType, n: int) -> pa.Array:
    """A record column that nobody has touched has its default."""
    values = {
        record.SOURCE: stage.source,
        record.PART: 0,
        record.OPERATION: "create",
        record.PHASE: "sync",
        record.TIMESTAMP: stage.batch_time,
    }
    return pa.nulls(n, type_) if name not in values else pa.repeat(pa.scalar(values[name], type_), n)
