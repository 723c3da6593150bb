"""How far a hosted destination has come with a delivery: what it has answered, so that only the rest is sent again.

One file per delivery, appended to after every answer. It is written at once and fsynced about every second: a process that is killed loses
nothing of it, a power cut at most what was answered since. What is missing then is sent again. Used by the destination's host, one thread
per partition.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.errors import Stop
from penstock.native import Refusal
from penstock.testing import faults

FORMAT, VERSION = "penstock marks", 1
FLUSH = 1.0  # seconds between two fsyncs
FOLDER = "marks"
Place = tuple[int, int]  # seq and part of a record
BEGINNING: Place = (-1, -1)


@dataclass
class Mark:
    """Of one partition. Records come in order of their places."""

    at: Place = BEGINNING  # everything up to it is settled
    beyond: set[Place] = field(default_factory=set)  # and these, which were written after one that was refused
    written: int = 0
    refused: list[Refusal] = field(default_factory=list)

    def has(self, place: Place) -> bool:
        return place <= self.at or place in self.beyond


def reached(folder: Path, name: str, delivery: str) -> Any:
    """How far a delivery has come, whoever has written it down: another value whenever it is further. None: nothing is known of it."""
    path = path_of(folder, name)
    try:
        found = Found(path.read_bytes(), delivery, path)
    except FileNotFoundError:
        return None
    return {n: (mark.at, mark.written, len(mark.refused)) for n, mark in found.partitions.items()} or None


def path_of(folder: Path, name: str) -> Path:
    return folder / FOLDER / (hashlib.blake2b(name.encode(), digest_size=16).hexdigest() + ".jsonl")


class Found:
    """What a file says."""

    def __init__(self, data: bytes, delivery: str, path: Path) -> None:
        self.partitions: dict[int, Mark] = {}
        self.done = False
        self.end: int | None = None  # how many bytes are good; None: it is of another delivery
        end = data.find(b"\n") + 1
        try:
            header = json.loads(data[:end])
            newer = header["format"] == FORMAT and header["version"] > VERSION
            other = header["delivery"] != delivery
        except (ValueError, KeyError, TypeError):
            return  # written in one piece with its name: it is of nobody
        if newer:
            raise Stop(
                f"What a destination has answered was written by a newer Penstock: {path}",
                code="host.marks",
                hint="finish this delivery with that one",
            )
        if other:
            return
        self.end = end
        for line in data[end:].splitlines(keepends=True):
            try:
                if not line.endswith(b"\n"):
                    break
                self._replay(json.loads(line))
            except (ValueError, KeyError, TypeError):
                break
            self.end += len(line)

    def _replay(self, found: dict[str, Any]) -> None:
        if found.get("done"):
            self.done = True
            return
        mark = self.partitions.setdefault(found["partition"], Mark())
        mark.at, mark.written = (found["at"][0], found["at"][1]), found["written"]
        mark.beyond = {(seq, part) for seq, part in found.get("beyond", ())}
        mark.refused += [Refusal(*r) for r in found.get("refused", ())]


class Marks:
    """Of one delivery, by partition."""

    def __init__(self, folder: Path, name: str, delivery: str) -> None:
        """`name` tells apart what is under way at a time: a lane and where it delivers to. What is there of an earlier delivery goes."""
        self._path = path_of(folder, name)
        self._lock = threading.Lock()
        self._flushed = time.monotonic()
        known = Found(self._path.read_bytes() if self._path.exists() else b"", delivery, self._path)
        self.partitions, self.done = known.partitions, known.done
        if known.end is None:
            header = {"format": FORMAT, "version": VERSION, "name": name, "delivery": delivery}
            fs.make_folder(self._path.parent, 0o700)
            fs.replace(self._path, json.dumps(header).encode() + b"\n")
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if known.end is not None:
            os.ftruncate(self._file, known.end)  # a line that was torn

    def partition(self, number: int) -> Mark:
        with self._lock:
            return self.partitions.setdefault(number, Mark())

    def save(self, number: int, refused: Sequence[Refusal] = ()) -> None:
        """The partition as it stands, and what of its records was refused since the last time."""
        mark = self.partitions[number]
        line: dict[str, Any] = {"partition": number, "at": mark.at, "written": mark.written}
        if mark.beyond:
            line["beyond"] = sorted(mark.beyond)
        if refused:
            mark.refused += refused
            line["refused"] = [[r.seq, r.part, r.reason, r.code] for r in refused]
        self._append(line)

    def finish(self) -> None:
        """Every record has its answer."""
        if not self.done:
            self.done = True
            self._append({"done": True}, durable=True)

    def _append(self, line: Mapping[str, Any], *, durable: bool = False) -> None:
        if not faults.safeguard("high-water"):
            return
        with self._lock:
            fs.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
            now = time.monotonic()
            if durable or now - self._flushed >= FLUSH:
                fs.fsync(self._file, self._path)
                self._flushed = now

    def close(self) -> None:
        with self._lock:
            fs.fsync(self._file, self._path)
            os.close(self._file)
