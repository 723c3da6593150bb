"""Steps 6 and 7, commit and done, and the acks they allow. Called by the lane and by recovery: there is one way forward.

Destinations commit side by side. Each is idempotent under its hash, so this may be entered again at any point. An ack is
not a step: it is what the ledger says once a transaction has raised the frontier. A record that is refused here is a late
nack (`late.py`).
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.engine import aside
from penstock.engine.batch.context import DLQ, Outcomes, Target, Work
from penstock.engine.batch.deadletter import DeadLetters
from penstock.engine.batch.late import LateNacks
from penstock.engine.batch.materialise import reread
from penstock.engine.batch.read import defaults, with_defaults
from penstock.engine.batch.skipped import without_skipped
from penstock.engine.batch.stage import KEPT
from penstock.engine.frontier import frontier
from penstock.errors import AccountError, Stop
from penstock.ledger import Kind, Prepared, Snapshot
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Kept,
    NativeDestination,
    Ordering,
    Ranges,
    Receipt,
    Refusal,
    Refuse,
    Shape,
    Staged,
)
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def finish(work: Work, s: Snapshot) -> list[Ranges]:
    """Commits every delivery of a prepared batch that is not done, marks it done, and acks what that settles.

    Returns what was acked, and which strands of it are gone for good. Raises `GateClosed` where a late nack was one too
    many: everything else of the batch is done then, and acked up to that record.
    """
    faults.reach("commit")
    acked: list[Ranges] = []
    stopped: dict[str, tuple[LateNacks, Receipt]] = {}
    while pending := [p for p in work.ledger.prepared(s) if p.receipt is None and p.destination not in stopped]:
        lates = [LateNacks(work, s, p) for p in pending]
        receipts = _together([(p, late) for p, late in zip(pending, lates, strict=True)], work, s)
        faults.reach("K8")
        for p, late, receipt in zip(pending, lates, receipts, strict=True):
            if receipt is None:
                settled = work.ledger.abandon(s, p.destination, work.lane.pipeline, p.staged["rows"], frontier)
            elif receipt.stopped_at is not None:
                stopped[p.destination] = late, receipt
                continue
            else:
                brought = late.settle(receipt)
                settle = not work.handlers or not faults.safeguard("outcome-first")
                settled = work.ledger.done(
                    s, p.destination, receipt.to_json(), receipt.written, frontier, late=brought, settle=settle
                )
                if p.kind is Kind.DESTINATION:
                    work.source.delivered(p.destination, s.ranges)
            acked += ack(work, s.lane, settled)
    for late, receipt in stopped.values():
        faults.reach("hold")
        before = late.hold(receipt.settled_to)
        acked += ack(work, s.lane, [before] if before else [])
    for late, _ in stopped.values():
        raise late.closed()
    if work.replaying and not faults.safeguard("replayed-with-done"):
        work.ledger.mark_replayed(s)
    tell(work, s)
    acked += ack(work, s.lane, work.ledger.advance(s.lane, frontier) if work.handlers else [])
    shutil.rmtree(work.workdir(s), ignore_errors=True)
    return acked


def tell(work: Work, s: Snapshot) -> None:
    """After the ledger commit and before the ack. A handler that raises stops the pipeline; it is told again next time."""
    if not work.handlers:
        return
    faults.reach("outcome")
    own = [p for p in work.ledger.prepared(s) if p.kind is Kind.DESTINATION]
    late = {p.destination: len((p.receipt or {}).get("refused", ())) for p in own}
    outcomes = Outcomes(
        work.lane.pipeline,
        work.lane.source,
        s.batch,
        work.ledger.records(s),
        {p.destination: (p.receipt or {}).get("written", 0) for p in own},
        {p.destination: p.filtered for p in own},
        {p.destination: p.nacked + late[p.destination] for p in own},
    )
    for handler in work.handlers:
        try:
            handler(outcomes)
        except Exception as e:
            raise Stop(
                f"A handler of outcomes failed: {type(e).__name__}: {e}",
                code="handler.failed",
                hint="the batch is delivered and its source not acked; correct the handler and start again",
            ) from e


def ack(work: Work, lane: int, settled: Sequence[Ranges]) -> list[Ranges]:
    """The frontier is stored: the source is told, in order, at most once."""
    acked = []
    for ranges in settled:
        faults.reach("done")
        faults.reach("ack")
        if work.source.answers:
            work.source.refused(work.ledger.refused(lane, ranges))
        gone = tuple(work.source.acked(ranges))
        if gone:
            work.ledger.forget(lane, gone)
        faults.reach("acked")
        acked.append(replace(ranges, forget=gone))
    return acked


def _together(pending: list[tuple[Prepared, LateNacks]], work: Work, s: Snapshot) -> list[Receipt | None]:
    if len(pending) == 1:
        return [commit(work, s, *pending[0])]
    from pyspark import inheritable_thread_target

    with ThreadPoolExecutor(len(pending)) as pool:  # with the tag of the lane, so that a stop can cancel their jobs
        run = [inheritable_thread_target(work.spark)(commit) for _ in pending]
        futures = [pool.submit(f, work, s, p, late) for f, (p, late) in zip(run, pending, strict=True)]
        return [f.result() for f in futures]


def commit(work: Work, s: Snapshot, p: Prepared, late: Refuse) -> Receipt | None:
    """None: a person has given it up."""
    d = replace(work.delivery_id(s, p.destination), hash=p.hash)
    destination = destination_of(work, p, d)
    if destination is None:
        return None
    staged = Staged.from_json(p.staged)
    if staged.rows == 0 and staged.manifest is None:
        return Receipt(0, filtered=p.filtered)  # a batch that was given up, or a destination that keeps nothing
    if p.kind is Kind.DLQ:
        late = _not_even_there
    if isinstance(staged.manifest, dict) and KEPT in staged.manifest:
        receipt = _write(work, s, destination, d, staged, late, held=p.held is not None)
    else:
        assert isinstance(destination, ExactlyOnceDestination)
        found = destination.find(d) if faults.safeguard("receipt") else None
        if work.recovering is not None and p.kind is Kind.DESTINATION:
            work.recovering(p.destination, found is not None)
        if found is not None:
            destination.discard(d)
        receipt = found or destination.commit(d, staged, late)
    if receipt.stopped_at is None and receipt.written + len(receipt.refused) != staged.rows:
        raise AccountError(
            f"{p.destination}: {staged.rows} records were staged, {receipt.written} written and {len(receipt.refused)} refused",
            code="account.commit",
            hint="the destination's word and the ledger's differ; nothing was acked",
        )
    return replace(receipt, filtered=p.filtered)


def _not_even_there(refusal: Refusal) -> bool:
    """A dead letter that the queue refuses can't become another one: nothing is acked before it is taken."""
    raise Stop(
        f"The dead letter queue refused a dead letter: {refusal.reason}",
        code="dlq.refused",
        hint="the record is in the state folder (`penstock dlq list`), and its source is not acked; correct the queue and start again",
    )


def _write(
    work: Work,
    s: Snapshot,
    destination: NativeDestination[Any],
    d: DeliveryId,
    staged: Staged,
    refuse: Refuse,
    *,
    held: bool = False,
) -> Receipt:
    """A destination that can't stage, or need not: it gets the rows that were kept, maybe once more after a crash; without those that a
    person wants to be skipped, where it stopped at one."""
    from pyspark.sql.types import StructType

    manifest = staged.manifest
    schema = StructType.fromJson(json.loads(manifest["schema"]))
    folder, skipped = (
        without_skipped(work, s, work.state / manifest[KEPT]) if held else (work.state / manifest[KEPT], [])
    )
    columns = [c for c in record.COLUMNS if c in destination.columns]
    locate = None
    if destination.locates and record.POSITION not in schema.names:
        locate = work.source.locate(s.ranges)
        columns = [c for c in columns if c not in (record.POSITION, record.METADATA)]

    def frame() -> DataFrame:
        return with_defaults(reread(work.spark, folder, schema), work, s, columns).select(*columns, record.ORDER)

    kept = None
    if destination.reads_kept:
        part = folder / f"{record.OUTCOME}={aside.DELIVERED}"
        kept = Kept(part, tuple(columns), defaults(work, s), work.spark, frame)
    delivery = Delivery(
        **asdict(d),
        attempt=0,
        attempt_id=secrets.token_hex(8),
        rows=frame() if kept is None else None,
        kept=kept,
        shape=Shape(manifest.get("shape", Shape.RAW)),
        ordering=Ordering(manifest.get("ordering", Ordering.SOURCE)),
        partitions=manifest.get("partitions", 1),
        locate=locate,
        ordered=False,
    )
    if work.start is not None:
        work.start(destination)
    for refusal in skipped:
        refuse(refusal)
    receipt = destination.write(delivery, refuse)
    faults.reach("written")
    return replace(receipt, refused=(*receipt.refused, *skipped))


def destination_of(work: Work, p: Prepared, d: DeliveryId) -> NativeDestination[Any] | None:
    """Who commits a delivery: the destination as it was when the batch was prepared, unless nothing of it can be there yet."""
    if p.kind is Kind.DEAD_LETTERS:
        return DeadLetters(work)
    target = work.dlq if p.kind is Kind.DLQ else work.targets.get(p.destination)
    if target is not None and (same(target, p) or not faults.safeguard("prepared-settings")):
        return target.destination
    if target is not None and target.plugin == p.plugin:
        if work.start is not None:
            work.start(target.destination)
        if not target.destination.begun(d):
            return target.destination
    name = DLQ if p.kind is Kind.DLQ else p.destination
    if name in work.abandon:
        return None
    if target is None and not work.finish_gone:
        raise Stop(
            f"{p.staged['rows']} records are prepared for {name!r}, which is not in the pipeline any more",
            code="state.destination-gone",
            why="they were processed before the file was changed, and nothing decides what becomes of them",
            hint=f"run with --finish to deliver them as they were prepared, or with --abandon {name} to give them up"
            " (counted as discarded); or put the destination back",
        )
    return work.rebuild(p)


def same(target: Target, p: Any) -> bool:
    return (target.plugin, dict(target.settings)) == (p.plugin, dict(p.settings))
