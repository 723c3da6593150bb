"""What is in the file of `lines`, against what the ledger says was appended to it: the last receipt, and the place it names. Older
deliveries can't be told from each other any more. Runs wherever `penstock reconcile` does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.connectors.lines.appending import DIGEST, Appended
from penstock.connectors.lines.trail import siblings
from penstock.native import Answer, DeliveryId, Finding, Witnessed
from penstock.native.staging import lane_name
from penstock.native.witness import Noted, by_last


def witness(file: Appended, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
    if not deliveries:
        return
    lane = lane_name(deliveries[0].id)
    noted = Noted.read(lambda: file.noted(lane))
    for w, finding in by_last(deliveries, known, noted, f"{file.folder.name}/…/receipt.json"):
        if noted is not None and w.id.hash == noted.hash and not finding.answer.wrong:
            wrong = _place(file.path, noted.raw)
            yield finding if wrong is None else Finding(*wrong, w.id.batch)
        else:
            yield finding
    if (begun := _under_way(file, lane)) is not None and begun not in {d.hash for d in known}:
        text = f"{file.journal} is of a delivery that the ledger does not know: it is finished by whoever appends next"
        yield Finding(Answer.DIFFERS, text)


def _under_way(file: Appended, lane: str) -> str | None:
    found = file.begun()
    return found["hash"] if found is not None and found["lane"] == lane else None


def _place(path: Path, note: Mapping[str, Any]) -> tuple[Answer, str] | None:
    """What is wrong with the stretch that the receipt names; None where nothing is."""
    if "digest" not in note:
        return None  # of an older Penstock, which did not write down where it is
    begins, ends = note["from"], note["to"]
    if begins == ends:
        return None
    beside = siblings(path)
    # A rotated file is the same one under another name. One that an editor has saved is another one with what it had.
    mine = note["device"], note["inode"]
    same = [path.parent / s.name for s in beside if s.identity == mine and not s.compressed]
    for place in (path, *same):
        if _has(place, ends, min(DIGEST, ends - begins), note["digest"]):
            return None
    if not path.exists() and not same:
        return Answer.MISSING, f"{path} is not there"
    there = next((p for p in (path, *same) if _is(p, note)), None)
    if there is None and any(s.rotated and s.compressed for s in beside):
        return Answer.UNKNOWN, f"it is not in {path}: it may be in a file that was compressed since"
    if there is None:
        return Answer.DIFFERS, f"another file is at {path} than the one it was appended to, and it is not in that"
    size = there.stat().st_size
    if size < ends:
        return Answer.MISSING, f"{there} has {size:,} bytes, and it ends at byte {ends:,}"
    return Answer.DIFFERS, f"what stands in {there} before byte {ends:,} is not what was appended there"


def _has(path: Path, ends: int, size: int, digest: str) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(ends - size)
            return hashlib.sha256(file.read(size)).hexdigest() == digest
    except FileNotFoundError:
        return False


def _is(path: Path, note: Mapping[str, Any]) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (note["device"], note["inode"])
