"""What destinations keep beside a place that several of them append to, so that each delivery is there whole and once, whatever dies.

    <folder>/.NAME.penstock/<lane>/<hash>/…         staged
    <folder>/.NAME.penstock/<lane>/receipt.json     the last delivery of a lane
    <folder>/.NAME.penstock/journal.json            the delivery that is being appended, and where it begins
    <folder>/.NAME.penstock/lock                    one writer at a time

The journal is on disk before anything is appended. Whoever takes the lock and finds one finishes it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.errors import Stop
from penstock.native.delivery import DeliveryId, Receipt
from penstock.testing import faults

VERSION = 1


class Beside:
    """Of the file or folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.with_name(f".{path.name}.penstock")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits for its turn: an append takes as long as its bytes."""
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # -- the last delivery of each lane --------------------------------------------------------------------------------------

    def noted(self, lane: str) -> Any:
        try:
            return json.loads(self._note(lane).read_bytes())
        except FileNotFoundError:
            return None

    def note(self, lane: str, note: Mapping[str, Any]) -> None:
        fs.make_folder(self._note(lane).parent)
        fs.replace(self._note(lane), json.dumps(note).encode())
        faults.reach("K6a", "noted")

    def _note(self, lane: str) -> Path:
        return self.folder / lane / "receipt.json"

    # -- the delivery under way ----------------------------------------------------------------------------------------------

    @property
    def journal(self) -> Path:
        return self.folder / "journal.json"

    def begin(self, journal: Mapping[str, Any]) -> None:
        fs.replace(self.journal, json.dumps(journal).encode())
        faults.reach("K6a", "begun")

    def begun(self) -> Any:
        try:
            found = json.loads(self.journal.read_bytes())
        except FileNotFoundError:
            return None
        if found["version"] != VERSION:
            raise Stop(
                f"{self.journal} was written by another version of Penstock",
                code="journal.version",
                why=f"it has version {found['version']}, and this one knows {VERSION}",
                hint="finish the delivery with the version that has begun it",
            )
        return found

    def end(self) -> None:
        self.journal.unlink()
        fs.fsync_folder(self.folder)


def note_of(d: DeliveryId, receipt: Receipt) -> dict[str, Any]:
    """What `Beside.noted` says when the delivery is there."""
    return {
        "version": VERSION,
        "batch": d.batch,
        "hash": d.hash,
        "fence": d.fence,
        "epoch": d.epoch,
        "receipt": receipt.to_json(),
    }


def refuse_older(known: Any, note: Mapping[str, Any], place: Path) -> None:
    """An engine that was replaced must not append any more."""
    if known is None or known["epoch"] != note["epoch"] or known["fence"] <= note["fence"]:
        return
    if faults.safeguard("fence"):
        raise Stop(
            f"A newer engine has taken over the lane that writes to {place}",
            code="journal.fenced",
            why=f"it has appended batch {known['batch']} with fence {known['fence']}; this one has {note['fence']}",
            hint="end this engine; the other one goes on. If the state folder was restored from a backup, this place is ahead of it",
        )
