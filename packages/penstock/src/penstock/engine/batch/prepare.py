"""Step 5, prepare: one transaction with all that commit needs. Before it a crash means start over; after it only forward.

Dead letters are staged here too, by the engine itself: the tasks have left them as lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock import fs, record
from penstock.deadletters import About
from penstock.engine import aside
from penstock.engine.batch.account import Account, Sums
from penstock.engine.batch.admit import Admitted
from penstock.engine.batch.context import DEAD_LETTERS, DLQ, Guarantee, Work
from penstock.engine.batch.deadletter import QUEUE_COLUMNS, DeadLetters, Letter, Letters, queue_rows, write_parquet
from penstock.engine.batch.materialise import reread
from penstock.engine.batch.read import Scan, read, with_defaults
from penstock.engine.batch.stage import StagedBatch, kept_manifest, sync
from penstock.ledger import Attempt, Kind, Prepared, Snapshot
from penstock.native import Delivery, Shape, Staged
from penstock.testing import faults


def prepare(work: Work, s: Snapshot, attempt: Attempt, a: Account, gates: Admitted, batch: StagedBatch) -> None:
    staged = {name: target.staged for name, target in batch.targets.items()}
    details = {name: late_detail(work, s, gates, batch, name, a) for name in batch.targets}
    deliveries = deliveries_of(work, s, staged, a.sums, details)
    deliveries += stage_letters(work, s, attempt, a.letters, schema=schema_of(work, batch.scan))
    nothing = not any(st.rows for st in staged.values())
    faults.reach("prepare")
    if nothing:
        faults.reach("K10")
    nacks = (letter.nack() for letter in a.letters) if faults.safeguard("nacks-with-prepare") else ()
    work.ledger.prepare(s, a.records, deliveries, nacks, {name: ring.to_json() for name, ring in gates.rings.items()})
    if nothing:
        faults.reach("K10a")
    faults.reach("K7")


def deliveries_of(
    work: Work, s: Snapshot, staged: dict[str, Staged], sums: Any, details: dict[str, Any] | None = None
) -> list[Prepared]:
    made = []
    for name, st in staged.items():
        target, n = work.targets[name], sums.get(name, Sums())
        hash_ = work.delivery_id(s, name).hash
        made.append(
            Prepared(
                name,
                hash_,
                target.plugin,
                target.settings,
                st.to_json(),
                n.filtered,
                produced=n.produced,
                nacked=n.dead,
                gate=(details or {}).get(name),
            )
        )
    return made


def stage_letters(
    work: Work, s: Snapshot, attempt: Attempt, letters: Iterable[Letter] | Letters, suffix: str = "", schema: str = ""
) -> list[Prepared]:
    """The deliveries that carry dead letters: to the state folder, and to the configured queue. None without any. `schema` is that of
    what the source gave, where it has types."""
    if work.replaying or next(iter(letters), None) is None:
        return []
    own = work.delivery_id(s, DEAD_LETTERS + suffix)
    about = About(work.source.shape, schema, s.ranges.to_json())
    staged = DeadLetters(work).write_letters(own, attempt.id, letters, about)
    made = [Prepared(own.destination, own.hash, "", {}, staged.to_json(), 0, kind=Kind.DEAD_LETTERS)]
    if work.dlq is not None and faults.safeguard("dlq-decides"):
        made.append(_stage_queue(work, s, attempt, letters, DLQ + suffix))
    return made


def _stage_queue(work: Work, s: Snapshot, attempt: Attempt, letters: Iterable[Letter], name: str) -> Prepared:
    assert work.dlq is not None
    folder = work.workdir(s) / attempt.id / name.replace(":", "_")
    part = folder / f"{record.OUTCOME}={aside.DELIVERED}"
    fs.make_folder(part, 0o700)
    n = write_parquet(part / "part-00000-letters.parquet", QUEUE_COLUMNS, queue_rows(letters))
    schema = work.spark.read.parquet(str(part)).schema
    d = Delivery(**asdict(work.delivery_id(s, name)), attempt=attempt.number, attempt_id=attempt.id, shape=Shape.OPEN)
    destination = work.dlq.stages(work.guarantee)
    if destination is None:
        sync(folder)
        staged = Staged(n, 0, kept_manifest(work, work.dlq, folder, schema.json(), Shape.OPEN))
    else:
        columns = [c for c in record.COLUMNS if c in destination.columns]
        rows = with_defaults(reread(work.spark, folder, schema), work, s, columns).select(*columns)
        staged = destination.stage(replace(d, rows=rows))
    return Prepared(name, d.hash, work.dlq.plugin, work.dlq.settings, staged.to_json(), 0, kind=Kind.DLQ)


def schema_of(work: Work, scan: Scan) -> str:
    """Of typed payloads as the source gives them: a replay has to make them of JSON."""
    return scan.rows.schema.json() if work.source.shape is Shape.TYPED else ""


def late_detail(work: Work, s: Snapshot, gates: Admitted, batch: StagedBatch, name: str, a: Account) -> Any:
    """For a destination that may refuse records in commit: where they are, and what the gate was."""
    if not work.targets[name].may_refuse:
        return None
    kept = batch.targets[name].kept or batch.kept
    if kept is not None:
        sync(kept)
    detail = {
        "kept": None if kept is None else str(kept.relative_to(work.state)),
        "before": gates.before[name].to_json(),
        "nacks": list(gates.nacks[name]),
        "records": a.records,
        "schema": schema_of(work, batch.scan),
    }
    if work.window.needs_ordinals and work.guarantee is not Guarantee.AT_MOST_ONCE:
        detail["seqs"] = _save_seqs(work, s, batch.folder / "seqs.npy")
    return detail


def _save_seqs(work: Work, s: Snapshot, path: Path) -> str:
    """Every seq of the batch in order: the input may be gone when a nack comes late and asks for its ordinal."""
    import numpy as np

    fs.make_folder(path.parent, 0o700)
    table = read(work, s, {record.SEQ}).rows.select(record.SEQ).toArrow()
    np.save(path, np.sort(table.column(0).to_numpy()))
    fs.fsync_file(path)
    fs.fsync_folder(path.parent)
    return str(path.relative_to(work.state))
