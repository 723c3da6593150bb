"""Who may write the records of a lane now, and where its last delivery is: two files in the state folder, beside what is staged.

    <lane>/writer.json     epoch and fence of the engine that writes, and the name of its try
    <lane>/last.json       hash, receipt and place of the last delivery: where to look, not the truth
    <lane>/lock            held while the first one is changed

A writer asks after Kafka has given it its transactional id, which has ended every other writer with this id. So a writer that was replaced
either loses its id, or finds another name than its own.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.errors import Stop
from penstock.native import DeliveryId, Receipt
from penstock.testing import faults

VERSION = 1
Place = tuple[str, int, int]  # topic, partition, offset


class Book:
    """Of one lane at one destination. Tasks only ask `is_newest`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer, self._last = folder / "writer.json", folder / "last.json"

    def take(self, d: DeliveryId) -> str:
        """The name of a new try. From now on no writer of another one begins. Raises `Stop` where a newer engine was here."""
        fs.make_folder(self.folder, 0o700)
        with self._alone():
            known = self._read(self._writer)
            if (
                known is not None
                and known["epoch"] == d.epoch
                and known["fence"] > d.fence
                and faults.safeguard("fence")
            ):
                raise Stop(
                    f"{d.destination}: a newer engine has taken over this pipeline",
                    code="kafka.fenced",
                    why=f"it writes with fence {known['fence']}; this one has {d.fence}",
                    hint="end this engine; the other one goes on. If the state folder was restored from a backup, the topics are ahead",
                )
            name = secrets.token_hex(8)
            found = {"version": VERSION, "epoch": d.epoch, "fence": d.fence, "try": name}
            fs.replace(self._writer, json.dumps(found).encode())
        faults.reach("K6a", "taken")
        return name

    def is_newest(self, name: str) -> bool:
        known = self._read(self._writer)
        return (known is not None and known["try"] == name) or not faults.safeguard("kafka-fence")

    def note(self, d: DeliveryId, receipt: Receipt, at: Sequence[Place]) -> None:
        """The delivery is there. On disk before what was staged is removed: without both nobody could tell what Kafka has of it."""
        note = {"version": VERSION, "hash": d.hash, "receipt": receipt.to_json(), "at": at}
        fs.replace(self._last, json.dumps(note).encode())
        faults.reach("K6a", "noted")

    def noted(self, d: DeliveryId) -> tuple[Receipt, list[Place]] | None:
        try:
            known = self._read(self._last)
        except ValueError:  # a power cut has left half of it
            return None
        if known is None or known["hash"] != d.hash:
            return None
        return Receipt.from_json(known["receipt"]), [(topic, n, offset) for topic, n, offset in known["at"]]

    def _read(self, path: Path) -> Any:
        try:
            known = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        if known["version"] != VERSION:
            raise Stop(
                f"{path} was written by another version of Penstock",
                code="kafka.version",
                why=f"it has version {known['version']}, and this one knows {VERSION}",
                hint="use the version that has written it",
            )
        return known

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
