"""Step 3b, stage: the jobs run here. Every destination's rows are written where nobody sees them, and with them the lines
aside of their processors.

| what is to be staged                                 | how                                                              |
|------------------------------------------------------|------------------------------------------------------------------|
| no processor, one destination                        | the destination stages the scan itself                           |
| one destination, every processor in Spark            | the same, in the hope that no record fails; if one does, once more as below |
| one destination that is written as lines             | one job for all outcomes, one folder each                        |
| several destinations                                 | materialised once; then each as if it were alone                 |
| a destination with another form                      | materialised, with its own processors applied; then it stages that |
| a destination that can't stage, or need not          | materialised and kept; written when the batch is prepared        |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import fs, record
from penstock.engine import aside
from penstock.engine.batch.context import Target, Work
from penstock.engine.batch.materialise import AsideFiles, Materialised, materialise
from penstock.engine.batch.process import Flow, process, reject, uses
from penstock.engine.batch.read import Scan, read, with_defaults
from penstock.engine.python.stage import Check
from penstock.ledger import Attempt, Snapshot
from penstock.native import (
    Delivery,
    ExactlyOnceDestination,
    Kept,
    Lines,
    NativeDestination,
    Ordering,
    Staged,
    Stop,
    Unsuitable,
    Where,
)
from penstock.native.staging import FOLDER, part_order, sorted_writes
from penstock.plan.nodes import Node, Stage, fields, shape_behind, stages
from penstock.record import Shape
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Observation

_IDENTITY = (record.SEQ, record.PART)
KEPT = "kept"  # in the manifest of a destination that is written after the prepare: the folder of its rows


@dataclass(frozen=True)
class Part:
    """What one chain of processors came to, besides its records."""

    lines: AsideFiles | None = None
    filtered: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class StagedTarget:
    staged: Staged
    own: Part
    kept: Path | None = None  # its rows as they were given to it


@dataclass(frozen=True)
class StagedBatch:
    scan: Scan
    common: Part
    targets: Mapping[str, StagedTarget]
    kept: Path | None  # the materialised batch, where nacks that come late find their records
    folder: Path  # what the attempt keeps until the batch is done


class _Nacked(Exception):
    """A record failed where none was hoped to."""


def stage(work: Work, s: Snapshot, attempt: Attempt) -> StagedBatch:
    faults.reach("stage")
    work.source.begin(s.ranges)
    if work.hopeful:
        try:
            return _stage(work, s, attempt, hopeful=True)
        except _Nacked:
            work.hopes.clear()
    return _stage(work, s, attempt, hopeful=False)


def _stage(work: Work, s: Snapshot, attempt: Attempt, *, hopeful: bool) -> StagedBatch:
    common, own = _chains(work)
    wanted = set(chain.from_iterable(_wanted(t, work, s) for t in work.targets.values()))
    chains = [*common, *chain.from_iterable(own.values())]
    late = {name for name, t in work.targets.items() if t.may_refuse}
    bare = hopeful and _in_one_pass(work, chains)
    scan = read(work, s, _pruned(work, _needed(work, s, chains, wanted, bare=bare and not late)))
    if bare and late and not chains and _tells(work, s, scan):
        late = set()
    bare = bare and not late
    flow = Flow(scan.rows, work.source.shape, checked=work.source.lines)
    if work.refuse_large:
        flow = _without_large(work, s, flow)
    folder = work.workdir(s) / attempt.id
    if len(work.targets) == 1:  # what is kept for a target is kept for its late nacks, too
        [(name, target)] = work.targets.items()
        check, more = _check_of(name, target), bool(late)
        chain_ = (*common, *own[name])
        asked = _wanted(target, work, s)
        flow = process(work, s, replace(flow, bare=bare), chain_, asked, more=more, check=check)
        keep = flow.rows.columns if late and _stages(work) else ()
        staged = _stage_target(work, s, attempt, name, target, flow, folder / "own" / name, keep)
        result = StagedBatch(scan, Part(), {name: staged}, None, folder)
    else:
        later = uses([node for st in chain.from_iterable(own.values()) for node in st.nodes])
        shared = _shared_check(work, common) if not late and not any(own.values()) else None
        flow = process(work, s, flow, common, wanted | later, more=shared is None, check=shared)
        flow = replace(flow, rows=with_defaults(flow.rows, work, s, {record.AFTER, record.SEQ, record.PART, *wanted}))
        kept = materialise(work.spark, flow, flow.rows.columns, folder / "common")
        targets = {}
        for name, target in work.targets.items():
            fresh = kept.flow if faults.safeguard("materialise") else flow
            check = _check_of(name, target)
            asked = _wanted(target, work, s)
            chained = process(work, s, fresh, own[name], asked, more=name in late, check=check)
            targets[name] = _stage_target(work, s, attempt, name, target, chained, folder / "own" / name)
        result = StagedBatch(scan, Part(kept.lines(), flow.filtered), targets, kept.folder if late else None, folder)
    faults.reach("K6")
    return result


def _chains(work: Work) -> tuple[tuple[Stage, ...], dict[str, tuple[Stage, ...]]]:
    """What every record goes through, and then what is for each destination. A source whose payloads were not known before may turn
    out to give what they can't work on."""
    source = work.source
    try:
        common = stages((*(Node(p) for p in source.decoders()), *work.nodes), source.shape)
        shape = common[-1].gives if common else source.shape
        own = {name: stages(t.chain(shape), shape) for name, t in work.targets.items()}
    except Unsuitable as e:
        raise Stop(
            f"The pipeline can't work on what {source.source_id!r} gives", code="batch.shape", why=str(e), hint=e.hint
        ) from e
    for name, target in work.targets.items():
        given = own[name][-1].gives if own[name] else shape
        if given not in target.destination.shapes:
            raise Stop(
                f"{name!r} can't take the {given.value} payloads that {source.source_id!r} gives",
                code="batch.shape",
                hint="put a processor between them that makes something else of them: json.decode, json.encode",
            )
    return common, own


def _stages(work: Work) -> bool:
    return any(t.stages(work.guarantee) is not None for t in work.targets.values())


def _in_one_pass(work: Work, chains: Sequence[Stage]) -> bool:
    """One destination that stages, and nothing but Spark before it: then a job may be run again if a record fails."""
    return len(work.targets) == 1 and _stages(work) and all(st.where is Where.SPARK for st in chains)


def _tells(work: Work, s: Snapshot, scan: Scan) -> bool:
    """Where records reach the only destination as the source gives them: whether it can say of one that it refuses late all that a
    dead letter holds."""
    [target] = work.targets.values()
    alone = set(scan.rows.columns) <= {record.SEQ, record.PART, record.AFTER}
    return target.destination.keeps_refused and alone and work.source.place(s.ranges) is not None


def _shared_check(work: Work, common: Sequence[Stage]) -> Check | None:
    """What none of the destinations can hold, where the last common stage can look: nothing need be carried along then."""
    checks = {target.destination.unfit_payload for target in work.targets.values()}
    if len(checks) != 1 or not common or common[-1].where is not Where.PYTHON:
        return None
    sound = all(target.destination.takes_sound for target in work.targets.values())
    return Check(", ".join(work.targets), checks.pop(), sound)


def _check_of(name: str, target: Target) -> Check:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    destination = target.destination

    def fits(ddl: str, sound: bool) -> bool:
        if destination.columns - {record.AFTER}:
            return False
        schema: StructType = StructType.fromDDL(f"{record.AFTER} {ddl}")  # type: ignore[assignment]
        return destination.unfit({record.AFTER: F.col(record.AFTER)}, Shape.TYPED, schema, sound=sound) is None

    return Check(name, destination.unfit_payload, destination.takes_sound, fits)


_LOCATED = frozenset({record.POSITION, record.METADATA})


def _wanted(target: Target, work: Work, s: Snapshot) -> frozenset[str]:
    """The columns that a destination gets. What follows from the seq need not be carried along, unless a processor may change it."""
    columns = target.destination.columns
    if not target.destination.locates or work.source.locate(s.ranges) is None:
        return columns
    nodes = [*(Node(p) for p in work.source.decoders()), *work.nodes, *target.nodes]
    return columns if uses(nodes) & _LOCATED else columns - _LOCATED


def _needed(
    work: Work, s: Snapshot, chains: Sequence[Stage], wanted: Collection[str], *, bare: bool = False
) -> set[str]:
    """The columns that are asked of the source. Where it can tell position and metadata from a seq, Python stages need
    neither. What is `bare` has no use for who a record is."""
    located = {record.POSITION, record.METADATA} if work.source.locate(s.ranges) is not None else set()
    identity = [record.SEQ, *([] if located else [record.POSITION])]
    nacks = (bool(chains) or not work.source.lines or work.refuse_large) and not bare
    needed = {record.AFTER, *wanted, *(identity if nacks else [])}
    for st in chains:
        needed |= uses(st.nodes) - (located if st.where is Where.PYTHON else set())
    return needed


def _pruned(work: Work, needed: set[str]) -> set[str]:
    """Where no destination gets the payload as it is, only the fields that processors look at are read."""
    if not work.source.prunes:
        return needed
    shape = shape_behind(work.nodes, work.source.shape)
    chains = [fields((*work.nodes, *target.chain(shape))) for target in work.targets.values()]
    if None in chains:
        return needed
    names = set().union(*(found for found in chains if found is not None))
    return (needed - {record.AFTER}) | {f"{record.AFTER}.{name}" for name in names} if names else needed


def _stage_target(
    work: Work,
    s: Snapshot,
    attempt: Attempt,
    name: str,
    target: Target,
    flow: Flow,
    folder: Path,
    keep: Collection[str] = (),
) -> StagedTarget:
    """`keep`: these columns are kept, because records may be refused late that are kept nowhere else."""
    from pyspark.sql import functions as F

    attempt_id = attempt.id if faults.safeguard("attempt-names") else "attempt"
    d = Delivery(**asdict(work.delivery_id(s, name)), attempt=attempt.number, attempt_id=attempt_id, size=s.ranges.size)
    d = replace(d, bases=tuple(sorted(r.base for r in s.ranges)))
    destination = target.stages(work.guarantee)
    columns = [c for c in record.COLUMNS if c in _wanted(target, work, s)]
    flow = fitting(work, s, name, target, flow, columns)
    d = replace(d, schema=flow.rows.schema, shape=flow.shape)
    if destination is not None and not flow.marked and flow.ordered and not keep:
        rows = with_defaults(flow.rows, work, s, columns).select(*columns)
        return StagedTarget(destination.stage(replace(d, rows=rows)), Part())
    if destination is not None and flow.bare:
        return _stage_bare(work, s, destination, d, flow, columns)
    if destination is not None and (lines := destination.lines(d, {c: F.col(c) for c in columns})) is not None:
        return _stage_lines(destination, d, replace(flow, rows=with_defaults(flow.rows, work, s, columns)), lines)
    part, kept, in_order = Part(), None, flow.ordered
    if flow.marked or destination is None or keep:
        needed = [c for c in record.COLUMNS if c in {*columns, *keep, record.SEQ, record.PART}]
        if destination is None:  # what is the same for all is put in when they are written
            needed = [c for c in needed if c in flow.rows.columns or c == record.SEQ]
        made = materialise(work.spark, replace(flow, rows=with_defaults(flow.rows, work, s, needed)), needed, folder)
        part, kept = Part(made.lines(), flow.filtered), made.folder
        if destination is None:
            return StagedTarget(_keep(work, target, made), part, kept)
        flow = made.flow
    rows = with_defaults(flow.rows, work, s, columns)
    order = [] if flow.ordered else [record.ORDER]
    d = replace(d, rows=rows.select(*columns, *order), ordered=flow.ordered)
    if kept is not None and destination.reads_kept and in_order:
        where = kept / f"{record.OUTCOME}={aside.DELIVERED}"
        d = replace(d, kept=Kept(where, tuple(columns), {}, work.spark, lambda: rows.select(*columns, *order)))
    return StagedTarget(destination.stage(d), part, kept)


def fitting(work: Work, s: Snapshot, name: str, target: Target, flow: Flow, columns: Sequence[str]) -> Flow:
    """Nacks what the destination can't hold, where that has not been looked at already."""
    from pyspark.sql import functions as F

    if flow.checked and set(columns) <= {record.AFTER}:
        return flow
    if type(target.destination).unfit is NativeDestination.unfit:
        return flow
    rows = with_defaults(flow.rows, work, s, columns)
    here = {c: F.col(c) for c in record.COLUMNS if c in rows.columns}
    unfit = target.destination.unfit(here, flow.shape, rows.schema, sound=flow.sound)
    if unfit is None:
        return flow
    rows = with_defaults(rows, work, s, {record.SEQ, record.PART})
    rejected = reject(rows, unfit, name, "destination.unfit", flow.shape, bare=flow.bare)
    return replace(flow, rows=rejected, marked=True)


def _without_large(work: Work, s: Snapshot, flow: Flow) -> Flow:
    """Nacks records that are larger than is allowed. Their payloads go no further, not even into the dead letter."""
    from pyspark.sql import functions as F

    size, limit = F.octet_length(record.AFTER), F.lit(work.limits.max_record_bytes)
    rows = with_defaults(flow.rows, work, s, {record.SEQ, record.PART})
    rows = rows.withColumn("_size", F.when(size > limit, size))
    rows = rows.withColumn(record.AFTER, F.when(F.col("_size").isNull(), F.col(record.AFTER)))
    text = f" bytes, more than the {work.limits.max_record_bytes} of `max-record-bytes`"
    why = F.concat(F.lit("the record has "), F.col("_size").cast("string"), F.lit(text))
    rows = reject(rows, F.when(F.col("_size").isNotNull(), why), work.source.source_id, "record.too-large", flow.shape)
    return replace(flow, rows=rows.drop("_size"), marked=True)


def _stage_bare(
    work: Work,
    s: Snapshot,
    destination: ExactlyOnceDestination[Any],
    d: Delivery,
    flow: Flow,
    columns: Sequence[str],
) -> StagedTarget:
    """One job, straight into the destination's own form. It counts only if no record failed: then nothing else is to be kept."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    rows = with_defaults(flow.rows, work, s, columns).select(*columns, record.OUTCOME)
    rows = rows.observe(seen, F.count_if(F.col(record.OUTCOME) == aside.DEAD).alias(aside.DEAD))
    staged = destination.stage(replace(d, rows=rows.where(F.col(record.OUTCOME).isNull()).select(*columns)))
    if seen.get[aside.DEAD]:
        destination.discard(d)
        raise _Nacked
    return StagedTarget(staged, Part(None, flow.filtered))


def _stage_lines(destination: ExactlyOnceDestination[Any], d: Delivery, flow: Flow, lines: Lines) -> StagedTarget:
    """One job: every outcome in a folder of its own. Spark keeps a writer open for each, so nothing is sorted, unless the
    destination wants folders of its own: there may be many of these."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    outcome = F.col(record.OUTCOME) if flow.marked else F.lit(None).cast("string")
    text = F.when(outcome.isNull(), lines.text).otherwise(F.col(record.ASIDE)) if flow.marked else lines.text
    order = [] if flow.ordered else [F.col(record.ORDER)]
    place: list[Any] = []
    if lines.folder is not None:
        place = [F.when(outcome.isNull(), lines.folder).alias(FOLDER), *_IDENTITY]
    rows = flow.rows.select(
        text.alias("value"), F.coalesce(outcome, F.lit(aside.DELIVERED)).alias(record.OUTCOME), *order, *place
    )
    if lines.tasks is not None:
        rows = rows.coalesce(lines.tasks)
    delivered = F.col(record.OUTCOME) == aside.DELIVERED
    seen = Observation()
    size = F.octet_length("value") + F.lit(1)
    rows = rows.observe(seen, F.count_if(delivered).alias("rows"), F.sum(F.when(delivered, size)).alias("size"))
    folder = destination.staging_folder(d)
    names = [record.OUTCOME, *([FOLDER] if place else []), *([] if flow.ordered else [record.ORDER])]
    options = {"compression": lines.compression, "maxRecordsPerFile": str(lines.rows_per_file)}
    with sorted_writes(rows.sparkSession, bool(place)):
        if place:
            rows = rows.sortWithinPartitions(*names, *_IDENTITY).drop(*_IDENTITY)
        rows.write.partitionBy(*names).options(**options).text(str(folder))
    files = sorted(folder.glob(f"{record.OUTCOME}={aside.DELIVERED}/**/part-*"), key=part_order)
    staged = destination.adopt(d, files, seen.get["rows"], seen.get["size"] or 0)
    return StagedTarget(staged, Part(AsideFiles(folder, parquet=False), flow.filtered))


def _keep(work: Work, target: Target, made: Materialised) -> Staged:
    """Rows that are written after the prepare: they have to be on disk by then."""
    sync(made.folder)
    return Staged(made.rows, 0, kept_manifest(work, target, made.folder, made.schema.json(), made.shape))


def kept_manifest(work: Work, target: Target, folder: Path, schema: str, shape: Shape) -> dict[str, Any]:
    """All that is needed to write these rows, also by another engine on another machine, and once more."""
    ordering = target.destination.ordering
    partitions = 1 if ordering is Ordering.SOURCE else work.spark.sparkContext.defaultParallelism
    where = str(folder.relative_to(work.state))
    more = {"shape": shape.value, "ordering": ordering.value, "partitions": partitions}
    return {KEPT: where, "schema": schema, **more}


def sync(folder: Path) -> None:
    """Everything under a folder is on disk when this returns, its own name included."""
    for path in folder.rglob("*"):
        (fs.fsync_folder if path.is_dir() else fs.fsync_file)(path)
    fs.fsync_folder(folder)
    fs.fsync_folder(folder.parent)
