"""One file that several writers append deliveries to, each whole and once, whatever dies. Runs in the engine process.

The journal beside it (`native/beside.py`) is on disk before the first byte is appended. Whoever takes the lock and finds one finishes it:
what stands behind the place where it began has to be the beginning of the delivery, and the rest is appended. Nothing is ever cut off or
written over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from penstock import fs
from penstock.errors import Stop
from penstock.native.beside import VERSION, Beside, refuse_older
from penstock.testing import faults

DIGEST = 4096  # bytes before the beginning of a delivery by which the file is known again
CHUNK = 1 << 20


@dataclass(frozen=True)
class Journal:
    """Lengths in bytes."""

    lane: str
    hash: str
    device: int
    inode: int
    begins: int
    digest: str  # of what stands before
    lead: str  # a line break, where the file ended without one
    parts: tuple[tuple[str, int], ...]  # staged, relative to the folder beside the file
    note: dict[str, Any]  # the receipt that is written when it is done
    version: int = VERSION

    @property
    def size(self) -> int:
        return len(self.lead) + sum(size for _, size in self.parts)


class Appended(Beside):
    """`path` and the folder beside it."""

    def append(self, lane: str, hash_: str, parts: Sequence[tuple[str, int]], note: dict[str, Any]) -> None:
        """All of it, once. `note` is what `noted` says afterwards."""
        with self.alone():
            self._recover()
            known = self.noted(lane)
            if known is not None and known["hash"] == hash_ and faults.safeguard("lines-note"):
                return  # somebody else has finished it
            refuse_older(known, note, self.path)
            for name, size in parts:
                path = self.folder / name
                if not path.exists() or path.stat().st_size != size:
                    raise _harmed(self.path, f"{path} is not there with {size} bytes, as it was staged")
            created = not self.path.exists()
            with self.path.open("ab") as file:  # if it is rotated meanwhile, the delivery goes where it has begun
                if created:
                    fs.fsync_folder(self.path.parent)
                journal = self._begin(file, lane, hash_, tuple(parts), note)
                self._write(file, journal, 0)
            self._done(journal)

    def _begin(
        self, file: BinaryIO, lane: str, hash_: str, parts: tuple[tuple[str, int], ...], note: dict[str, Any]
    ) -> Journal:
        found = os.fstat(file.fileno())
        tail = _tail(self.path, found.st_size)
        lead = "\n" if tail and not tail.endswith(b"\n") else ""
        digest = hashlib.sha256(tail).hexdigest()
        made = Journal(lane, hash_, found.st_dev, found.st_ino, found.st_size, digest, lead, parts, note)
        self.begin(asdict(made))
        return made

    def _write(self, file: BinaryIO, journal: Journal, start: int) -> None:
        for chunk in self._bytes(journal, start):
            fs.write(file.fileno(), chunk)
            faults.reach("K6a", "chunk")
        fs.fsync(file.fileno(), self.path)
        faults.reach("K6a", "appended")

    def _done(self, journal: Journal) -> None:
        """The note says also where in the file it is: the same four facts as in the journal, of its end."""
        digest = hashlib.sha256(b"".join(self._bytes(journal, max(0, journal.size - DIGEST)))).hexdigest()
        place = {"device": journal.device, "inode": journal.inode, "from": journal.begins}
        self.note(journal.lane, {**journal.note, **place, "to": journal.begins + journal.size, "digest": digest})
        self.end()

    def _recover(self) -> None:
        """Finishes what the journal says, from wherever it stands."""
        found = self.begun()
        if found is None:
            return
        journal = Journal(**{**found, "parts": tuple((name, size) for name, size in found["parts"])})
        known = self.noted(journal.lane)
        if known is not None and known["hash"] == journal.hash:
            self.end()
            return
        there = self._there(journal)
        with self.path.open("ab") as file:
            self._write(file, journal, there)
        self._done(journal)

    def _there(self, journal: Journal) -> int:
        """How much of it the file has already."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise self._changed(journal, "it is gone") from None
        if (found.st_dev, found.st_ino) != (journal.device, journal.inode):
            raise self._changed(journal, "another file has its name: it was rotated or replaced")
        if found.st_size < journal.begins:
            raise self._changed(journal, f"it has {found.st_size} bytes and had {journal.begins}")
        if hashlib.sha256(_tail(self.path, journal.begins)).hexdigest() != journal.digest:
            raise self._changed(journal, f"what stands before byte {journal.begins} is not what stood there")
        there = 0
        with self.path.open("rb") as file:
            file.seek(journal.begins)
            for wanted in self._bytes(journal, 0):
                has = file.read(len(wanted))
                if not wanted.startswith(has):
                    raise self._changed(journal, f"somebody else has written behind byte {journal.begins + there}")
                there += len(has)
                if len(has) < len(wanted):
                    break
        return there

    def _bytes(self, journal: Journal, start: int) -> Iterator[bytes]:
        """Of the delivery, from a place on."""
        if start < len(journal.lead):
            yield journal.lead[start:].encode()
        start = max(0, start - len(journal.lead))
        for name, size in journal.parts:
            if start < size:
                path = self.folder / name
                try:
                    with path.open("rb") as file:
                        file.seek(start)
                        left = size - start
                        while left:
                            chunk = file.read(min(CHUNK, left))
                            if not chunk:
                                raise _harmed(self.path, f"{path} has not the {size} bytes that were staged")
                            left -= len(chunk)
                            yield chunk
                except FileNotFoundError:
                    raise _harmed(self.path, f"{path} is not there any more") from None
            start = max(0, start - size)

    def _changed(self, journal: Journal, what: str) -> Stop:
        return Stop(
            f"{self.path} has changed while a delivery was being appended to it: {what}",
            code="lines.changed",
            why=f"{journal.size} bytes from byte {journal.begins} on were under way when the last engine ended, and it can't be said"
            " what of them is where",
            hint="put the file back as it was, or take out what was written into it, and start again: it goes on where it stopped."
            f" To have the whole delivery in the file as it is now, remove {self.journal}",
        )


def _tail(path: Path, end: int) -> bytes:
    """What stands before a place."""
    with path.open("rb") as file:
        file.seek(max(0, end - DIGEST))
        return file.read(min(end, DIGEST))


def _harmed(path: Path, why: str) -> Stop:
    return Stop(
        f"What was staged for {path} can't be appended",
        code="lines.staged",
        why=why,
        hint="restore what was removed beside the file, then start again: it goes on where it stopped",
    )
