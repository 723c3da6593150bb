"""Every built-in processor over raw, open and typed payloads of every hostile kind, as a Python stage: no record is lost,
none ends twice, and the fast way through the stage comes to what the records do one by one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.engine import aside
from penstock.engine.python.batches import on_batches
from penstock.engine.python.payloads import on_payloads
from penstock.engine.python.records import on_records, record_at
from penstock.engine.python.stage import PythonStage, Run
from penstock.native import Shape, Unsuitable, Where
from penstock.plan.nodes import Node, place
from penstock.plugins import builtin
from penstock.record import AFTER, COLUMNS
from tests.support import everywhere
from tests.support.everywhere import CASES, CONDITIONS, Case, plain

pytestmark = pytest.mark.thorough

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KINDS = {"raw": Shape.RAW, "open": Shape.OPEN, "typed": Shape.TYPED, "fed": Shape.OPEN, "deep": Shape.OPEN}


@cache
def batch_of(kind: str, condition: str) -> pa.RecordBatch:
    """Megabytes only once for each processor."""
    if kind == "typed":
        return everywhere.typed()
    if kind == "fed":
        return everywhere.fed()
    if kind == "deep":
        return everywhere.texts(everywhere.DEPTHS)
    return everywhere.texts([x for x in everywhere.RAW if x is None or len(x) < 50_000 or condition == "every"])


def stage_of(node: Node, kind: str) -> PythonStage:
    nodes = (Node(everywhere.Feed(None, "feed")), node) if kind == "fed" else (node,)
    shape = Shape.RAW if kind == "fed" else KINDS[kind]
    return PythonStage("in", nodes, shape, COLUMNS, TIME, typed=node.processor.typed)


@dataclass
class Ran:
    """What came out of a stage: comparable, by the identity of records."""

    delivered: list[tuple[Any, ...]] = field(default_factory=list)
    dead: list[tuple[Any, ...]] = field(default_factory=list)
    count: aside.Count = field(default_factory=lambda: aside.Count(0, 0, 0, 0, 0))


def shown(given: Any) -> Any:
    try:
        return plain(given)
    except RecursionError:  # also the engine has it as an object or as a text, by how deep the stack is
        return "deep"


def ran(outs: Iterator[pa.RecordBatch]) -> Ran:
    made = Ran()
    for out in outs:
        binary = [c.view(pa.binary()) if pa.types.is_string(c.type) else c for c in out.columns]
        for row in pa.RecordBatch.from_arrays(binary, names=out.schema.names).to_pylist():
            if row["_outcome"] is None:
                metadata = sorted(row["metadata"] or ())  # none is the same as nothing in it
                rest = (row[c] for c in ("key", "before", "operation", "namespace", "timestamp", "source", "position"))
                made.delivered.append((row["seq"], row["part"], plain(row["after"]), metadata, *rest))
            elif row["_outcome"] == b"dead":
                dead = aside.decode_dead(row["_aside"])
                assert dead.given is not None
                made.dead.append((dead.seq, dead.part, dead.node, dead.code, dead.error, shown(dead.given)))
            else:
                count = aside.decode_count(row["_aside"])
                assert count.balanced
                made.count += count
    return made


def run(stage: PythonStage, batch: pa.RecordBatch, way: Run | None = None) -> Ran:
    """What must hold whatever the processor does is looked at in every run."""
    for node in stage.nodes:
        node.processor.open()
    made = ran(stage(iter([batch])) if way is None else stage._run(way, batch))
    assert made.count.read == batch.num_rows
    assert (made.count.delivered, made.count.dead) == (len(made.delivered), len(made.dead))
    ends = [x[:2] for x in (*made.delivered, *made.dead)]
    assert len(set(ends)) == len(ends), "two outcomes under one identity"
    alone = {seq for seq, _ in ends}
    assert batch.num_rows - len(alone) <= made.count.filtered, "a record that is nowhere"
    if not made.count.produced:
        assert len(alone) + made.count.filtered == batch.num_rows
    return made


def different(a: Ran, b: Ran) -> str:
    """A few lines, where pytest would compare megabytes."""
    left, right = ({x[:2]: x for x in (*r.delivered, *r.dead)} for r in (a, b))
    found = [f"{left.get(k)} | {right.get(k)}" for k in sorted({*left, *right}) if left.get(k) != right.get(k)]
    counts = "" if a.count == b.count else f"{a.count} | {b.count}"
    return "\n".join([counts, *(line[:1000] for line in found[:5])]).strip()


def changed(stage: PythonStage, node: Node, batch: pa.RecordBatch, made: Ran) -> str:
    """Which record that the condition is not for did not go on as it was."""
    if not node.condition or stage.nodes[0] is not node:
        return ""
    matches = node.condition.on_record()
    found = {x[0]: x for x in made.delivered}
    nacked = {x[0] for x in made.dead}
    same = PythonStage("in", (Node(everywhere.Same(None, "same")),), stage.shape, COLUMNS, TIME)
    was = {x[0]: x for x in run(same, batch).delivered}
    for i in range(batch.num_rows):
        r = record_at(batch, i, stage)
        try:
            raw: Any = r.after
            text = isinstance(raw, bytes) and node.condition.template is None and AFTER in node.condition.columns
            if matches(r.derive(after=raw.decode(errors="replace")) if text else r):
                continue
        except Exception as e:
            if i not in nacked:
                return f"{i} was not nacked: {e!r}"
            continue
        if found.get(i) != was.get(i) and not (i in nacked and i not in was):
            return f"{i} was changed: {found.get(i)} | {was.get(i)}"[:2000]
    return ""


def test_every_built_in_processor_is_in_the_table() -> None:
    assert set(everywhere.SETTINGS) == set(builtin.PROCESSORS)
    few = [name for name, settings in everywhere.SETTINGS.items() if len(settings) < 2 and name != "filter"]
    assert few == []


@pytest.mark.parametrize("shape", Shape)
def test_the_list_of_what_is_refused_is_exact(shape: Shape) -> None:
    wrong = []
    for case, condition in product(CASES, CONDITIONS):
        expected = everywhere.refused(case, condition, shape)
        try:
            place(case.node(condition), shape)
            said, hint = "", ""
        except Unsuitable as e:
            said, hint = str(e), e.hint
        if bool(said) != expected or bool(said) != bool(hint):
            wrong.append(f"{case} {condition}: {said or 'not refused'}; {hint}")
    assert wrong == []


FEW = {
    "open": ("every", "field", "record", "template-field"),
    "fed": ("every", "field", "template-field"),
    "deep": ("every",),
}  # of the conditions, where they are run elsewhere or records are slow


def combinations() -> Iterator[Any]:
    for kind, shape in KINDS.items():
        for case, condition in everywhere.combinations(shape, Where.PYTHON):
            if condition not in FEW.get(kind, CONDITIONS):
                continue
            if kind == "deep" and case.number:
                continue
            yield pytest.param(case, condition, kind, id=f"{kind}-{case}-{condition}")


@pytest.mark.parametrize("case, condition, kind", list(combinations()))
def test_every_record_ends_in_one_place(case: Case, condition: str, kind: str) -> None:
    node = case.node(condition)
    stage, batch = stage_of(node, kind), batch_of(kind, condition)
    made = run(stage, batch)
    assert different(run(pickle.loads(pickle.dumps(stage)), batch), made) == ""
    if condition == "every":
        sent = cloudpickle.dumps(stage)  # type: ignore[no-untyped-call]
        assert different(run(cloudpickle.loads(sent), batch), made) == ""
    if on_batches(stage) is None and on_payloads(stage) is not None:
        assert different(run(stage, batch, on_records(stage)), made) == ""
    assert changed(stage, node, batch, made) == ""
