"""A queue that several writers append deliveries to, each whole and once, whatever dies. Runs in the engine process.

Every entry of the log carries the delivery it came with: its hash, and the offset that the delivery's first record has, or would have had
if all of it lay in one piece. So what is there of a delivery can be read back, and only the rest is appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock import record
from penstock.errors import Retry, Stop
from penstock.log import LogError, LogLocked, Mode, Reader, Writer
from penstock.log.batches import to_records
from penstock.log.writer import FEW
from penstock.native.beside import VERSION, Beside, refuse_older
from penstock.testing import faults
from penstock_sdk.record import Record

SEGMENT_BYTES = 64 << 20  # only closed segments can be taken away
ROWS: Final = 10_000  # of what is read at once
_MODES: Final = {mode.phase: mode for mode in Mode}


@dataclass(frozen=True)
class Journal:
    lane: str
    hash: str
    log_id: str
    begins: int  # the offset of its first record
    parts: tuple[tuple[str, int], ...]  # staged, relative to the folder beside the queue, and rows
    note: dict[str, Any]  # the receipt that is written when it is done
    version: int = VERSION

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.parts)


class Appended(Beside):
    """The queue in the folder `path`, and the folder beside it."""

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        super().__init__(path)
        self._max_bytes = max_bytes

    def append(self, lane: str, hash_: str, parts: Sequence[tuple[str, int]], note: dict[str, Any]) -> None:
        """All of it, once. `note` is what `noted` says afterwards, with the place it has in the log."""
        with self.alone(), self._writing() as log:
            self._recover(log)
            known = self.noted(lane)
            if known is not None and known["hash"] == hash_ and self._is_there(known):
                return  # somebody else has finished it
            refuse_older(known, note, self.path)
            for name, rows in parts:
                path = self.folder / name
                if not path.exists() or pq.read_metadata(path).num_rows != rows:
                    raise _harmed(self.path, f"{path} is not there with {rows} records, as it was staged")
            journal = Journal(lane, hash_, log.log_id, log.end, tuple(parts), note)
            self.begin(asdict(journal))
            self._write(log, journal, 0)

    def found(self, lane: str, hash_: str) -> Any:
        """The note of a delivery that is there, whole."""
        known = self.noted(lane)
        return known if known is not None and known["hash"] == hash_ and self._is_there(known) else None

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        """Opened for each delivery, so that writers in several engines take turns."""
        try:
            log = Writer(
                self.path,
                segment_bytes=SEGMENT_BYTES,
                max_bytes=self._max_bytes,
                when_full="error",
                commit_interval=1.0,
            )
        except LogLocked as e:
            raise Retry(str(e), code="queue.locked", why=e.why, hint=e.hint) from e
        try:
            yield log
        except BaseException:
            log.abandon()  # what is appended and not durable yet the next one appends again
            raise
        log.close()

    def _is_there(self, note: Mapping[str, Any]) -> bool:
        """Asks the log: the entry at the place that was written down has to be of this delivery."""
        first, end = note["from"], note["to"]
        if first == end or not faults.safeguard("read-back"):
            return True
        try:
            with Reader(self.path) as reader:
                if reader.log_id != note["log"] or reader.end < end:
                    return False
                found = [delivery for _, delivery in reader.deliveries(end - 1, end)]
        except LogError:
            return False
        # None: all readers have it, and compaction has taken it away.
        return all(parsed(delivery)[0] == note["hash"] for delivery in found)

    def _recover(self, log: Writer) -> None:
        """Finishes what the journal says, from wherever it stands."""
        found = self.begun()
        if found is None:
            return
        journal = Journal(**{**found, "parts": tuple((name, rows) for name, rows in found["parts"])})
        known = self.noted(journal.lane)
        if known is not None and known["hash"] == journal.hash and self._is_there(known):
            self.end()
        elif journal.log_id != log.log_id:
            raise Stop(
                f"Another queue is in {self.path} than the one that a delivery was being appended to",
                code="queue.changed",
                why=f"its log was {journal.log_id}, and this one is {log.log_id}",
                hint=f"put it back. To have the whole delivery in this one, remove {self.journal}",
            )
        else:
            self._write(log, journal, self._there(log, journal))

    def _there(self, log: Writer, journal: Journal) -> int:
        """How many records of it the log has already."""
        there = 0
        if log.end > journal.begins and faults.safeguard("queue-tail"):
            with Reader(self.path) as reader:
                for span, delivery in reader.deliveries(journal.begins, log.durable):
                    hash_, base = parsed(delivery)
                    if hash_ == journal.hash:
                        there = max(there, span.end - base)
        return there

    def _write(self, log: Writer, journal: Journal, there: int) -> None:
        base = log.end - there
        delivery = f"{journal.hash}:{base}"
        for entry in self._entries(journal, there):
            if isinstance(entry, list):
                log.append(entry, delivery)
            else:
                log.append_batch(entry.rows, entry.namespace, entry.mode, delivery)
            faults.reach("K6a", "chunk")
        if log.end != base + journal.rows:
            raise _harmed(self.path, f"{journal.rows} records were staged, and {log.end - base} were appended")
        log.commit()
        faults.reach("K6a", "appended")
        self.note(journal.lane, {**journal.note, "log": journal.log_id, "from": base, "to": log.end})
        self.end()

    def _entries(self, journal: Journal, skip: int) -> Iterator[_Run | list[Record]]:
        """What is staged, from a record on: stretches of one namespace, and between them records that change too often for that."""
        few: list[Record] = []
        for name, rows in journal.parts:
            if skip >= rows:
                skip -= rows
                continue
            for batch in pq.ParquetFile(self.folder / name).iter_batches(ROWS):
                passed = min(skip, batch.num_rows)
                skip -= passed
                for run in _runs(batch.slice(passed)):
                    if run.rows.num_rows < FEW and not run.typed:
                        few += to_records(run.rows, run.namespace, run.mode)
                        continue
                    if few:
                        yield few
                        few = []
                    yield run
                if len(few) >= ROWS:
                    yield few
                    few = []
        if few:
            yield few


@dataclass(frozen=True)
class _Run:
    namespace: str
    mode: Mode
    rows: pa.RecordBatch

    @property
    def typed(self) -> bool:
        return any(pa.types.is_struct(f.type) for f in self.rows.schema)


def _runs(batch: pa.RecordBatch) -> Iterator[_Run]:
    """Rows of one namespace and phase that follow each other, without these two columns and those that say nothing."""
    if not batch.num_rows:
        return
    names, phases = _texts(batch, record.NAMESPACE, ""), _texts(batch, record.PHASE, Mode.SYNC.phase)
    codes = [np.asarray(c.dictionary_encode().indices) for c in (names, phases)]
    changes = np.flatnonzero((codes[0][1:] != codes[0][:-1]) | (codes[1][1:] != codes[1][:-1])) + 1
    rest = batch.select([c for c in batch.schema.names if c not in (record.NAMESPACE, record.PHASE)])
    for start, end in pairwise([0, *changes.tolist(), batch.num_rows]):
        part = rest.slice(start, end - start)
        kept = [c for c in part.schema.names if part.column(c).null_count < part.num_rows]
        yield _Run(names[start].as_py(), _MODES[phases[start].as_py()], part.select(kept or [record.OPERATION]))


def _texts(batch: pa.RecordBatch, name: str, default: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.repeat(default, batch.num_rows)
    return pc.fill_null(batch.column(name), default)


def parsed(delivery: str) -> tuple[str, int]:
    hash_, _, base = delivery.partition(":")
    return hash_, int(base or 0)


def _harmed(path: Path, why: str) -> Stop:
    return Stop(
        f"What was staged for the queue {path} is not there as it was",
        code="queue.staged",
        why=why,
        hint="nothing was cut off; put the folder beside the queue back as it was",
    )
