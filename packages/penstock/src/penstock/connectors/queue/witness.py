"""What is in a queue, against what the ledger says was appended to it: the last receipt, and every entry at the place it names. Runs
wherever `penstock reconcile` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.connectors.queue.appending import Appended, parsed
from penstock.log import LogError, Reader
from penstock.native import Answer, DeliveryId, Finding, Witnessed
from penstock.native.staging import lane_name
from penstock.native.witness import Noted, by_last


def witness(queue: Appended, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
    if not deliveries:
        return
    lane = lane_name(deliveries[0].id)
    noted = Noted.read(lambda: queue.noted(lane))
    for w, finding in by_last(deliveries, known, noted, f"{queue.folder.name}/…/receipt.json"):
        if noted is not None and w.id.hash == noted.hash and not finding.answer.wrong:
            wrong = _place(queue, noted.raw)
            yield finding if wrong is None else Finding(*wrong, w.id.batch)
        else:
            yield finding


def _place(queue: Appended, note: Mapping[str, Any]) -> tuple[Answer, str] | None:
    """What is wrong with the offsets that the receipt names; None where nothing is."""
    first, end = note["from"], note["to"]
    if first == end:
        return None
    try:
        with Reader(queue.path) as reader:
            if reader.log_id != note["log"]:
                return Answer.DIFFERS, f"another log is in {queue.path} than the one it was appended to"
            if reader.end < end:
                return Answer.MISSING, f"the log ends at offset {reader.end:,}, and it ends at {end:,}"
            # What all readers have, compaction may have taken away. Others may write between two parts of it, after a crash.
            found = {parsed(delivery)[0] for _, delivery in reader.deliveries(max(first, reader.first), end)}
            last = [parsed(delivery)[0] for _, delivery in reader.deliveries(max(end - 1, reader.first), end)]
    except LogError as e:
        return Answer.DIFFERS, f"{e.what}: {e.why}" if e.why else e.what
    if found and note["hash"] not in found:
        return Answer.DIFFERS, f"what is at the offsets {first:,} to {end - 1:,} came with another delivery"
    if any(hash_ != note["hash"] for hash_ in last):
        return Answer.DIFFERS, f"what is at offset {end - 1:,} came with another delivery"
    return None
