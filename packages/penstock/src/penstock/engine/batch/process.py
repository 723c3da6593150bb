"""Step 3a, process: the processors of a lane, or of one destination, as one plan. Only this file and `stage.py` touch rows.

A flow carries record columns and, behind the first stage, an outcome: NULL for what is to be delivered, else the kind of a
line aside (`engine/aside.py`). Filtered records leave the flow where they are counted. Nothing runs yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine import aside
from penstock.engine.batch.context import Guarantee, Work
from penstock.engine.batch.read import with_defaults
from penstock.engine.python.stage import Check, PythonStage
from penstock.engine.trap import rehearse, trap
from penstock.errors import Stop
from penstock.ledger import Snapshot
from penstock.native import Columns, NativeDestination, Where
from penstock.plan.nodes import Node, Stage
from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import DataType, StructType

FILTERED = "filtered"
WARNED = "warned:"  # and the processor's id
_NOT_IN_PYTHON = ("interval month", "interval year", "variant")
_ERROR = "_error"
_ERROR_TYPE = "struct<node:string,code:string,error:string>"
_FORM = "_form"  # the payload when it failed
_KEPT = "_kept"  # struct: what the source gave, of the columns that may change


@dataclass(frozen=True)
class Flow:
    rows: DataFrame
    shape: Shape
    marked: bool = False  # has an outcome and lines aside
    filtered: tuple[Observation, ...] = ()  # FILTERED; read them only after the job succeeded
    ordered: bool = True  # partitions are in order; else there is a column that says
    checked: bool = False  # nothing is in it that its destination can't hold
    sound: bool = False  # see `Processor.sound`
    bare: bool = False  # of a record that fails only the outcome is kept: enough to see that one did


def uses(nodes: Sequence[Node]) -> set[str]:
    """The record columns that processors look at or change."""
    found: set[str] = set()
    for node in nodes:
        found |= node.processor.uses
        found |= node.condition.columns
    return found | {record.NAMESPACE} if record.METADATA in found else found  # one of its keys is the namespace


def process(
    work: Work,
    s: Snapshot,
    flow: Flow,
    stages: Sequence[Stage],
    wanted: Collection[str],
    *,
    more: bool = False,
    check: Check | None = None,
) -> Flow:
    """Runs the stages over a flow; `wanted` are the record columns that what follows looks at, and with `more` something
    that follows may nack records too. `check` is done where the last stage is a Python stage."""
    for i, stage in enumerate(stages):
        later = [node for following in stages[i + 1 :] for node in following.nodes]
        checked_later = check is not None and (stage.where is Where.SPARK or stage.schema is not None)
        identity = _IDENTITY if (later or more or checked_later) and not flow.bare else ()
        columns = [c for c in record.COLUMNS if c in {record.AFTER, *wanted, *uses(later), *identity}]
        keep = bool(later) or more
        if stage.where is Where.SPARK:
            flow = _spark(work, s, flow, stage, columns, keep_given=keep or check is not None)
        else:
            last = None if later or stage.schema is not None else check
            needless = last is not None and last.takes_sound and stage.nodes[-1].processor.sound
            if check is not None and not later and stage.schema is not None:
                needless = check.fits(stage.schema.ddl, stage.nodes[-1].processor.sound)
            kept = keep or (last is not check and not needless)
            flow = _python(work, s, flow, stage, columns, keep_given=kept, check=None if needless else last)
            flow = replace(flow, checked=flow.checked or needless)
    return flow


_IDENTITY = (record.SEQ, record.PART)


def _python(
    work: Work, s: Snapshot, flow: Flow, stage: Stage, returns: Sequence[str], *, keep_given: bool, check: Check | None
) -> Flow:
    needed = {record.AFTER, record.SEQ, record.PART, *uses(stage.nodes), *returns}
    internal = {record.OUTCOME, record.ASIDE, record.GIVEN, record.LINE, record.ORDER}
    locate = work.source.locate(s.ranges)
    function = PythonStage(
        work.source.source_id,
        stage.nodes,
        stage.given,
        tuple(returns),
        datetime.fromtimestamp(s.batch_time / 1000, UTC),
        locate,
        keep_given,
        work.guarantee is Guarantee.AT_MOST_ONCE,
        _sent(check),
        not flow.ordered,
        stage.schema,
        keep_given and _only_line(flow.rows.columns, needed, stage.given),
        secrets=work.secrets,
    )
    rows = flow.rows.select(*(c for c in flow.rows.columns if c in needed | internal))
    if flow.shape is Shape.TYPED:
        _refuse_for_python(rows, stage)
    out = rows.mapInArrow(function, function.ddl)
    return replace(flow, rows=out, shape=stage.gives, marked=True, checked=check is not None, sound=_sound(flow, stage))


def _sent(check: Check | None) -> Check | None:
    """Without what only the engine asks, so that a destination need not be sent along; None where there is nothing to look for."""
    if check is None or check.unfit is NativeDestination.unfit_payload:
        return None
    return Check(check.name, check.unfit, check.takes_sound)


def _refuse_for_python(rows: DataFrame, stage: Stage) -> None:
    """Types that Arrow in Python has not: a task could not even say which field it was."""
    fields: StructType = rows.schema[record.AFTER].dataType  # type: ignore[assignment]
    for field in fields.fields:
        if _holds(field.dataType, _NOT_IN_PYTHON):
            raise Stop(
                f"The processor {stage.nodes[0].id!r} can't be given the field {field.name!r}",
                code="processor.unsupported",
                why=f"it is {field.dataType.simpleString()[:100]}, which Python has no value for",
                hint="leave the column out with `columns`, or cast it to STRING or INT where it is written",
            )


def _holds(type_: DataType, names: tuple[str, ...]) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        return any(_holds(f.dataType, names) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return _holds(type_.elementType, names)
    if isinstance(type_, MapType):
        return _holds(type_.keyType, names) or _holds(type_.valueType, names)
    return type_.simpleString().startswith(names)


def _spark(work: Work, s: Snapshot, flow: Flow, stage: Stage, returns: Sequence[str], *, keep_given: bool) -> Flow:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    identity = () if flow.bare else _IDENTITY
    needed = [c for c in record.COLUMNS if c in {record.AFTER, *identity, *uses(stage.nodes), *returns}]
    rows = with_defaults(flow.rows, work, s, needed)
    text = F.lit(None).cast("string")
    fresh = {record.OUTCOME: text} if not flow.marked else {}
    kept = _kept(rows, stage) if not flow.bare else []
    if not flow.bare:
        fresh |= {record.ASIDE: text} if not flow.marked else {}
        fresh |= {_ERROR: F.lit(None).cast(_ERROR_TYPE), _FORM: text}
    if kept:  # as they are: they become text only where a record fails
        fresh[_KEPT] = F.struct(*kept)
    rows = rows.withColumns(fresh) if fresh else rows
    shape = stage.given
    for node in stage.nodes:
        rows = _node(rows, node, shape, rehearsal=id(node) not in work.rehearsed)
        work.rehearsed.add(id(node))
        shape = node.processor.gives(shape)
    # A condition that is always true must not let the optimiser throw the scan away, and the counts with it: the outcome
    # depends on something it can't know.
    rows = rows.withColumn(record.OUTCOME, F.when(F.spark_partition_id() >= 0, F.col(record.OUTCOME)))
    seen = Observation()
    warned = [c for c in rows.columns if c.startswith(WARNED)]
    counts = [F.count_if(F.col(f"`{c}`")).alias(c) for c in warned]
    rows = rows.observe(seen, F.count_if(F.col(record.OUTCOME) == FILTERED).alias(FILTERED), *counts).drop(*warned)
    rows = rows.where(F.col(record.OUTCOME).isNull() | (F.col(record.OUTCOME) != FILTERED))
    internal: list[Any] = [record.OUTCOME, *([record.ORDER] if not flow.ordered else [])]
    if not flow.bare:
        given = _given(rows, stage.given, kept)
        new = (F.col(record.OUTCOME) == aside.DEAD) & F.col(record.ASIDE).isNull()
        rows = rows.withColumn(record.ASIDE, F.when(new, _dead_line(given)).otherwise(F.col(record.ASIDE)))
        internal += [record.ASIDE, *([given.alias(record.GIVEN)] if keep_given else [])]
    out = rows.select(*returns, *internal)
    changed = any(record.AFTER in node.processor.uses for node in stage.nodes)
    checked = flow.checked and not changed
    sound, filtered = _sound(flow, stage), (*flow.filtered, seen)
    return replace(flow, rows=out, shape=shape, marked=True, filtered=filtered, checked=checked, sound=sound)


def _sound(flow: Flow, stage: Stage) -> bool:
    changing = [node.processor for node in stage.nodes if record.AFTER in node.processor.uses]
    return all(p.sound for p in changing) if changing else flow.sound


def _node(rows: DataFrame, node: Node, shape: Shape, *, rehearsal: bool) -> DataFrame:
    """One processor as columns. Whatever raises for a record costs that record; what raises for every one is found first."""
    from pyspark.sql import functions as F

    live = F.col(record.OUTCOME).isNull()
    if node.condition:
        condition = F.expr(node.condition.spark).cast("boolean")
        if rehearsal:
            _rehearse(rows, condition, node)
        rows = rows.withColumn("_condition", F.when(live, trap(condition)))
        raised = F.lit(f"the condition raised an error: {node.condition}")
        rows = _kill(rows, live & F.col("_condition").isNull(), node.id, "processor.condition", raised, shape)
        live = live & F.coalesce(F.col("_condition.value"), F.lit(False))
    columns = {c: F.col(c) for c in rows.columns if c in record.COLUMNS}
    step = node.processor.compile(Columns(columns, shape, rows.schema))
    if step is None:
        raise Stop(f"The processor {node.id} can't run on Spark columns", code="processor.unsupported")
    parts = {f"set_{name}": value for name, value in step.set.items()}
    if step.drop is not None:
        parts["drop"] = F.coalesce(step.drop, F.lit(False))
    if step.reject is not None:
        parts["reject"] = step.reject
    if step.warn is not None:
        parts["warn"] = F.coalesce(step.warn, F.lit(False))
    if not parts:
        return rows.drop("_condition")
    step_value = F.struct(*(value.alias(name) for name, value in parts.items()))
    if rehearsal:
        _rehearse(rows, step_value, node)
    rows = rows.withColumn("_step", F.when(live, trap(step_value)))
    text = next((node.written[k] for k in ("expression", "rule", "select") if node.written.get(k)), "")
    raised = F.lit(f"the expression raised an error: {text}" if text else node.processor.raises)
    rows = rows.withColumn("_live", live)
    rows = _kill(
        rows,
        F.col("_live") & F.col("_step").isNull(),
        node.id,
        node.processor.raised or node.processor.code or "processor.expression",
        raised,
        shape,
    )
    if step.reject is not None:
        why = F.col("_step.value.reject")
        code = node.processor.code or "processor.rejected"
        rows = _kill(rows, F.col("_live") & why.isNotNull(), node.id, code, why, shape)
    ok = F.col("_live") & F.col(record.OUTCOME).isNull()
    changed: dict[str, Column] = {}
    for name in step.set:
        value = F.col(f"_step.value.set_{name}")
        was, becomes = rows.schema[name].dataType, rows.select(value.alias("v")).schema["v"].dataType
        changed[name] = F.when(ok, value)
        if _same(was, becomes):
            changed[name] = changed[name].otherwise(F.col(name))
        elif node.condition:  # the others keep what they have
            changed[name] = changed[name].otherwise(_widened(F.col(name), was, becomes, node))
    if step.drop is not None:
        filtered = F.when(ok & F.col("_step.value.drop"), F.lit(FILTERED))
        changed[record.OUTCOME] = filtered.otherwise(F.col(record.OUTCOME))
    if step.warn is not None:
        changed[WARNED + node.id] = ok & F.col("_step.value.warn")
    return rows.withColumns(changed).drop("_condition", "_step", "_live")


def _same(a: DataType, b: DataType) -> bool:
    """Whether NULL is allowed makes no difference."""
    return a.simpleString() == b.simpleString()


def _widened(value: Column, was: DataType, becomes: DataType, node: Node) -> Column:
    """A typed payload that a processor with a condition does not change, in the type of those that it does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if not isinstance(was, StructType) or not isinstance(becomes, StructType) or set(was.names) - set(becomes.names):
        raise Stop(
            f"The processor {node.id!r} takes no condition here",
            code="processor.condition-type",
            why=f"it makes {was.simpleString()[:200]} something else, and the records that it is not for would lose theirs",
            hint="leave the condition out, use payloads without a schema, or `sql` with CASE",
        )
    parts = []
    for field in becomes.fields:
        inner = value.getField(field.name)
        if field.name not in was.names:
            inner = F.lit(None).cast(field.dataType)
        elif not _same(was[field.name].dataType, field.dataType):
            inner = _widened(inner, was[field.name].dataType, field.dataType, node)
        parts.append(inner.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*parts))


def _rehearse(rows: DataFrame, value: Column, node: Node) -> None:
    try:
        rehearse(rows, value)
    except Stop as e:
        e.what = f"The processor {node.id!r}: {e.what[0].lower()}{e.what[1:]}"
        raise


def reject(rows: DataFrame, why: Column, node: str, code: str, shape: Shape, *, bare: bool = False) -> DataFrame:
    """Marks records of a flow that a destination can't hold."""
    from pyspark.sql import functions as F

    text = F.lit(None).cast("string")
    if bare:
        rows = rows if record.OUTCOME in rows.columns else rows.withColumn(record.OUTCOME, text)
        return _kill(rows, F.col(record.OUTCOME).isNull() & why.isNotNull(), node, code, why, shape)
    if record.OUTCOME not in rows.columns:
        rows = rows.withColumns({record.OUTCOME: text, record.ASIDE: text})
    given = _given(rows, shape)
    rows = rows.withColumns({_ERROR: F.lit(None).cast(_ERROR_TYPE), _FORM: text})
    rows = _kill(rows, F.col(record.OUTCOME).isNull() & why.isNotNull(), node, code, why, shape)
    new = (F.col(record.OUTCOME) == aside.DEAD) & F.col(record.ASIDE).isNull()
    line = F.when(new, _dead_line(given)).otherwise(F.col(record.ASIDE))
    return rows.withColumn(record.ASIDE, line).drop(_ERROR, _FORM)


def _kill(rows: DataFrame, which: Column, node: str, code: str, why: Column, shape: Shape) -> DataFrame:
    from pyspark.sql import functions as F

    if _ERROR not in rows.columns:  # bare
        return rows.withColumn(record.OUTCOME, F.when(which, F.lit(aside.DEAD)).otherwise(F.col(record.OUTCOME)))
    error = F.struct(F.lit(node).alias("node"), F.lit(code).alias("code"), why.alias("error"))
    return (
        rows.withColumn("_which", which)
        .withColumns(
            {
                record.OUTCOME: F.when(F.col("_which"), F.lit(aside.DEAD)).otherwise(F.col(record.OUTCOME)),
                _ERROR: F.when(F.col("_which"), error).otherwise(F.col(_ERROR)),
                _FORM: F.when(F.col("_which"), _form_json(rows, shape)).otherwise(F.col(_FORM)),
            }
        )
        .drop("_which")
    )


_GIVEN_COLUMNS = (
    record.AFTER,
    record.BEFORE,
    record.KEY,
    record.POSITION,
    record.OPERATION,
    record.NAMESPACE,
    record.METADATA,
)


def _only_line(columns: Collection[str], needed: Collection[str], shape: Shape) -> bool:
    """Whether all that a dead letter has to show of a record is its raw payload."""
    others = {record.KEY, record.BEFORE, record.POSITION, record.METADATA, record.OPERATION, record.NAMESPACE}
    if record.LINE in columns:
        return True
    return shape is Shape.RAW and record.GIVEN not in columns and not others & set(columns) & set(needed)


def _kept(rows: DataFrame, stage: Stage) -> list[str]:
    """The columns of a record that processors may change and a dead letter has to show as they were."""
    if record.GIVEN in rows.columns or record.LINE in rows.columns:
        return []
    changed: set[str] = set().union(*(node.processor.uses for node in stage.nodes))
    return [c for c in _GIVEN_COLUMNS if c in rows.columns and c in changed]


def _given(rows: DataFrame, shape: Shape, kept: Collection[str] = ()) -> Column:
    """The record as its source gave it, as JSON: what an earlier stage has written down, or what it is here."""
    from pyspark.sql import functions as F

    if record.GIVEN in rows.columns:
        return F.col(record.GIVEN)
    if record.LINE in rows.columns:
        return F.to_json(F.struct(_payload(F.col(record.LINE), Shape.RAW).alias("after")))
    return _form_json(rows, shape, {c: F.col(f"{_KEPT}.{c}") for c in kept})


def _form_json(rows: DataFrame, shape: Shape, instead: Mapping[str, Column] | None = None) -> Column:
    """A record as JSON, in the spelling of `aside.form`; some of its columns may be taken from elsewhere."""
    from pyspark.sql import functions as F

    names = set(rows.columns)
    value = {c: (instead or {}).get(c, F.col(c)) for c in _GIVEN_COLUMNS}
    fields = [_payload(value[record.AFTER], shape).alias("after")]
    raw = [c for c in (record.BEFORE, record.KEY, record.POSITION) if c in names]
    fields += [_payload(value[c], Shape.RAW).alias(c) for c in raw]
    rest = [c for c in (record.OPERATION, record.NAMESPACE, record.METADATA) if c in names]
    fields += [value[c].alias(c) for c in rest]
    return F.to_json(F.struct(*fields), record.JSON_OPTIONS if shape is Shape.TYPED else {})


def _payload(value: Column, shape: Shape) -> Column:
    from pyspark.sql import functions as F

    if shape is Shape.TYPED:
        return F.when(value.isNotNull(), F.struct(value.alias("value")))
    fine = F.is_valid_utf8(value.cast("string"))
    return F.when(
        value.isNotNull(),
        F.struct(
            F.when(fine, value.cast("string")).alias("text"),
            F.when(~fine, F.base64(value.cast("binary"))).alias("base64"),
        ),
    )


def _dead_line(given: Column) -> Column:
    """A dead letter in the spelling of `aside.Dead`. JSON inside JSON is put in as it is."""
    from pyspark.sql import functions as F

    head = F.to_json(
        F.struct(
            F.col(record.SEQ),
            F.col(record.PART),
            F.col(f"{_ERROR}.node"),
            F.col(f"{_ERROR}.code"),
            F.substring(F.col(f"{_ERROR}.error"), 1, aside.ERROR_CHARACTERS).alias("error"),
            F.unix_millis(F.current_timestamp()).alias("at"),
        )
    )
    tail = F.concat(F.lit(',"given":'), given, F.lit(',"form":'), F.col(_FORM), F.lit("}"))
    return F.concat(F.substring(head, F.lit(1), F.length(head) - 1), tail)
