"""`queue` as a source: what other pipelines have appended to a commit log. It has an offset of its own in it, by which what everybody
has read is taken away."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from penstock.connectors.queue.feed import LogSource, end_of
from penstock.connectors.queue.settings import QueueSourceSettings
from penstock.errors import PenstockError, Stop
from penstock.log import Offsets, Reader, compact
from penstock.log import offsets as offset_files
from penstock.native import Behind, Known, Limits, Ranges, Surroundings

POLL = 0.02  # seconds
TIDY = 5.0  # seconds between two looks at what can be taken away


class QueueSource(LogSource[QueueSourceSettings]):
    modules = ("penstock.connectors.queue.rows",)

    def __init__(self, settings: QueueSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        self.path = Path(settings.path).absolute()
        self._reader: Reader | None = None
        self._offsets: Offsets | None = None
        self._taken = self._end = 0
        self._tidied = time.monotonic()

    @property
    def folder(self) -> Path:
        return self.path

    def check(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise Stop(
                f"{self.path} is a file, and a queue is a folder",
                code="queue.no-folder",
                hint="correct `path`",
            )

    def start(self, around: Surroundings) -> None:
        self.around = around

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        reader = self._opened()
        if reader is None:
            return None
        log = reader.log_id
        last = known.strands.get(log)
        start: int = reader.first if last is None else last.position["to"]
        self._end = reader.end
        if start > self._end:
            raise Stop(
                f"The queue {self.path} ends before what was read from it",
                code="queue.behind",
                why=f"the ledger knows of {start:,} records, and it has {self._end:,}",
                hint="was it put back from an older copy? Put back the newer one, or give the connector another id to read all of it",
            )
        if self._offsets is None:
            self._register(start, settled=last is None or log in known.acked)
        self._taken = start
        if start == self._end:
            return None
        found = self.cut(reader, start, self._end, known, limits)
        self._taken = found[0].position["to"]
        return found

    def _opened(self) -> Reader | None:
        """None: nobody has written to it yet."""
        if self._reader is None and any(self.path.glob("*.seg")):
            self._reader = Reader(self.path)
        return self._reader

    @property
    def _name(self) -> str:
        assert self.around is not None
        return f"{self.around.pipeline}:{self.source_id}"

    def readers(self) -> tuple[str, ...]:
        return (self._name,)

    def _register(self, start: int, *, settled: bool) -> None:
        """What the ledger says goes before what the log's own file of offsets says."""
        known = offset_files.load(self.path).get(self._name)
        if known is not None and known.frontier > start:
            offset_files.forget(self.path, self._name)
        self._offsets = Offsets(self.path)
        self._offsets.register(self._name, 0)
        if settled and start:
            self._offsets.ack_through(self._name, start - 1)

    def behind(self) -> Behind | None:
        return Behind(records=self._end - self._taken)

    def wait(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL, left))
            reader = self._opened()
            if reader is not None and reader.end > self._taken:
                return

    def acked(self, ranges: Ranges) -> Collection[str]:
        if self._offsets is not None and (end := end_of(ranges)):
            self._offsets.ack_through(self._name, end - 1)
            if time.monotonic() - self._tidied > TIDY:
                self._tidy()
        return ()

    def _tidy(self) -> None:
        """Takes away what every reader has. Another process may be at it: then there is nothing to do."""
        self._tidied = time.monotonic()
        with suppress(PenstockError, OSError):
            if self._reader is not None and len(self._reader.bases()) > 1:
                compact(self.path, min_gain=0.5)

    def close(self) -> None:
        if self._offsets is not None:
            with suppress(PenstockError):
                self._offsets.close()
            self._offsets = None
        self._tidy()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
