"""What topics have of the last delivery, against what the ledger says was written: the records at the places that were noted, or, where
none were, all that is read back. Older deliveries are not looked for: topics are read from their ends. Runs wherever
`penstock reconcile` does; no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.connectors.kafka.book import Book
from penstock.connectors.kafka.tail import is_at, there
from penstock.connectors.kafka.target import Target
from penstock.native import Answer, DeliveryId, Finding, Witnessed
from penstock.native.witness import ELSEWHERE, Noted, by_last, went_elsewhere

NOT_LOOKED_FOR = "only the last one is looked for in the topics"


def witness(
    book: Book, target: Target, config: Mapping[str, Any], deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]
) -> Iterator[Finding]:
    noted = at = None
    for w in deliveries:
        if (found := book.noted(w.id)) is not None:
            receipt, at = found
            noted = Noted(w.id.hash, w.id.batch, receipt)
    for w, finding in by_last(deliveries, known, noted):
        if finding.answer in (Answer.AGREES, Answer.VISIBLE):
            yield finding if is_at(config, at or [], w.id.hash) else _gone(w, at or [])
        elif finding.answer.wrong and noted is None:
            if went_elsewhere(w, deliveries, known):
                yield Finding(Answer.UNKNOWN, ELSEWHERE, w.id.batch)
            else:
                yield _read_back(target, config, w)  # the note is there to save time: it may be lost
        elif finding.answer is Answer.UNKNOWN:
            yield Finding(Answer.UNKNOWN, NOT_LOOKED_FOR, w.id.batch)
        else:
            yield finding


def _gone(w: Witnessed, at: Sequence[tuple[str, int, int]]) -> Finding:
    places = ", ".join(f"{topic}/{n} at offset {offset}" for topic, n, offset in at)
    return Finding(Answer.MISSING, f"its records are not where they were written: {places}", w.id.batch)


def _read_back(target: Target, config: Mapping[str, Any], w: Witnessed) -> Finding:
    """From where the topics ended before it began."""
    manifest = w.staged.manifest
    if w.receipt is None or not isinstance(manifest, dict) or "ends" not in manifest:
        return Finding(Answer.UNKNOWN, "where it is was not noted", w.id.batch)
    topics: list[str] = manifest["topics"]
    starts = {topic: {int(n): offset for n, offset in ends.items()} for topic, ends in manifest["ends"].items()}
    found, written = len(there(config, starts, topics, w.id.hash)), w.receipt.written
    text = f"{found:,} of its {written:,} records were read back from {', '.join(topics)}"
    if found == written:
        return Finding(Answer.AGREES, text, w.id.batch)
    if found < written and _may_be_taken_away(target, starts, topics):
        return Finding(Answer.UNKNOWN, f"{text}: the others may be taken away by retention or compaction", w.id.batch)
    return Finding(Answer.MISSING if found < written else Answer.DIFFERS, text, w.id.batch)


def _may_be_taken_away(target: Target, starts: Mapping[str, Mapping[int, int]], topics: Sequence[str]) -> bool:
    begins = target.begins(topics)
    trimmed = any(
        offset < begins.get(topic, {}).get(str(n), 0) for topic, ends in starts.items() for n, offset in ends.items()
    )
    return trimmed or any(limits.keyed for limits in target.limits(topics).values())
