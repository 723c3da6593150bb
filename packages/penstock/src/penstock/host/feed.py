"""A hosted source as its lane sees it: a feed, made of the commit log that the source's host appends to.

The log is the strand, and offsets are its positions. What is in the log is delivered first; the source is opened when all of that is
settled, at the position of the last record, which acks everything before it. Errors of the source are raised when nothing is left to
deliver. All methods but `interrupt` are called from the lane's thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from penstock import record
from penstock.config import expand_settings
from penstock.connectors.queue.feed import LogSource, end_of
from penstock.connectors.queue.rows import EXTENDED, LOST, PAYLOADS, RAW, Kind, LogRows, Stretch
from penstock.errors import PenstockError, Stop, UsageError
from penstock.host import memory
from penstock.host.avro_payload import AvroDecode
from penstock.host.extended import ExtendedDecode
from penstock.host.log_rows import RemoteRows
from penstock.host.remote import Host
from penstock.host.source_host import SCHEMAS
from penstock.host.spec import SourceSpec, Status
from penstock.log import Offsets, Reader
from penstock.log import offsets as offset_files
from penstock.native import Behind, Known, Limits, Ranges, Surroundings
from penstock.native.processor import Processor
from penstock.plugins.names import PluginName
from penstock.testing import faults
from penstock_protocol.schemas import SchemaError, read_schemas

PATIENCE = 20.0  # seconds that a source may take to stop giving
CLOSE = 15.0  # and to close
HANGS = 30.0  # seconds after which a source that does not even say that it has nothing counts as empty
LOCKED = 5.0  # that the host of an engine which was killed may take to notice


@dataclass(frozen=True)
class LogOptions:
    """Of the log between a source and Spark."""

    max_size: int = 1 << 30
    resend_window: int = 100_000
    compression: Literal["none", "zstd"] = "none"


class HostedSource(LogSource[Mapping[str, str]]):
    """`settings` have values; `references` are the same as the file has them."""

    modules = ("penstock.host.log_rows", "penstock.host.avro_payload")
    avro = True
    numbered = False

    def __init__(
        self,
        plugin: str,
        settings: Mapping[str, str],
        references: Mapping[str, str],
        source_id: str,
        options: LogOptions | None = None,
    ) -> None:
        super().__init__(settings, source_id)
        self._plugin, self._references, self._options = plugin, dict(references), options or LogOptions()
        self._host: Host | None = None
        self._reader: Reader | None = None
        self._offsets: Offsets | None = None
        self._opened = False
        self._told: float | None = None  # when it was told to stop
        self._status = Status()
        self._grown = 0.0  # when the source last gave something
        self._decoders: tuple[Processor[Any], ...] = ()
        self._taken = 0  # up to this offset batches were taken, or looked at
        self._begun = 0  # and up to this one they are in the ledger
        self._left = 0
        self._refused: dict[int, str] = {}

    @property
    def folder(self) -> Path:
        assert self.around is not None
        return self.around.folder

    # -- its life ------------------------------------------------------------------------------------------------------------

    def start(self, around: Surroundings) -> None:
        """A host that is gone is started again; the source in it is opened when it is time."""
        self.around = around
        if self._host is not None:
            try:
                if not self._host.status().error:
                    return
            except PenstockError:
                pass
            self._end_host(0.0)
        before = self._before(around)
        self._host = self._started(around, before)
        self._reader = Reader(around.folder)
        self._opened, self._told, self._offsets = False, None, None
        self._status = self._host.status()
        self._grown = time.monotonic()

    def _started(self, around: Surroundings, before: Mapping[str, str] | None) -> Host:
        """The host of an engine that was killed a moment ago may still be there: it is about to end."""
        until = time.monotonic() + LOCKED
        while True:
            try:
                return Host(lambda tokens: self._spec(around, tokens, before), around.log)
            except PenstockError as e:
                if e.code != "log.locked" or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _spec(self, around: Surroundings, tokens: dict[str, str], before: Mapping[str, str] | None) -> SourceSpec:
        return SourceSpec(
            f"{around.pipeline}:{self.source_id}",
            self._plugin,
            self.settings,
            str(around.folder),
            tokens,
            self._options.max_size,
            window=self._options.resend_window,
            compression=None if self._options.compression == "none" else self._options.compression,
            references=self._references,
            before=before,
            lifecycle=around.lifecycle,
        )

    def _before(self, around: Surroundings) -> dict[str, str] | None:
        """The settings it was last opened with. Their references have the values of today: others are not kept."""
        found = memory.load(around.folder)
        if found is None:
            return None
        then, now = PluginName.parse(found.plugin).name, PluginName.parse(self._plugin).name
        if then != now:
            raise Stop(
                f"The log of {self.source_id!r} was written by the plugin {then!r}, and the pipeline has {now!r} now",
                code="host.other-plugin",
                why="the positions in it are of the other one: nobody knows where this one should go on",
                hint="give the connector another id: an id is identity",
            )
        return expanded(found.settings)

    def _register(self, around: Surroundings, reached: int, acked: int) -> None:
        """Each destination is a reader of the log, with an offset of its own: what compaction and `penstock log offsets` go by."""
        self._offsets = Offsets(around.folder)
        known = offset_files.load(around.folder)
        for name, state in known.items():
            rewound = state.frontier > reached
            if rewound or name not in around.destinations:
                offset_files.forget(around.folder, name)
        for name in around.destinations:
            self._offsets.register(name, 0)
            if acked:
                self._offsets.ack_through(name, acked - 1)

    def readers(self) -> tuple[str, ...]:
        assert self.around is not None
        return self.around.destinations

    def stop(self) -> bool:
        if self._told is None:
            self._told = time.monotonic()
            if self._host is not None and self._opened:
                self._host.stop()
        return True

    def drained(self) -> bool:
        if self._host is None or not self._opened or self._told is None:
            return True
        self._look()
        late = time.monotonic() - self._told > PATIENCE
        over = self._status.drained or self._status.ended or bool(self._status.error) or late
        return over and self._status.end <= self._taken  # it may have come to that after the last look

    def close(self) -> None:
        started = self._host is not None
        self._end_host(CLOSE)
        if started:
            self._left = self._count_left()  # now: up to its end the host may have logged more

    def interrupt(self) -> None:
        if (host := self._host) is not None:
            host.kill()

    def _end_host(self, patience: float) -> None:
        host, self._host = self._host, None
        if self._offsets is not None:
            with suppress(PenstockError):
                self._offsets.close()
            self._offsets = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if host is not None:
            host.close(patience) if patience else host.kill()

    # -- what is there -------------------------------------------------------------------------------------------------------

    def _look(self) -> Status:
        """What the host has said by now. Raises if it is gone."""
        assert self._host is not None
        now = self._host.status()
        if (now.read, now.end) != (self._status.read, self._status.end):
            self._grown = time.monotonic()
        self._status = now
        return now

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        assert self._host is not None
        assert self.around is not None
        assert self._reader is not None
        status = self._look()
        log = self._host.ready.log_id
        last = known.strands.get(log)
        start: int = self._reader.first if last is None else last.position["to"]
        if start > status.end:
            raise Stop(
                f"The log of {self.source_id!r} ends before what was read from it",
                code="host.log-behind",
                why=f"the ledger knows of {start:,} records, and the log has {status.end:,}",
                hint="was it put back from an older copy? Ledger and logs belong together: put back the whole state folder",
            )
        settled = last is None or log in known.acked
        if self._offsets is None:
            self._register(self.around, start, start if settled else 0)
        self._taken = self._begun = start
        end = status.end if faults.safeguard("log-durable") else self._reader.end
        if not faults.safeguard("open-when-settled") and not self._opened:
            self._open()
        if start < end:
            taken = self.cut(self._reader, start, end, known, limits)
            self._taken = taken[0].position["to"]
            return taken
        if (error := self._host.trouble()) is not None:
            raise error
        if not self._opened and self._told is None and (settled or not self._host.ready.resumes):
            self._open(start if settled else 0)
        return None

    def _open(self, settled: int = 0) -> None:
        assert self._host is not None
        self._host.open(settled)
        self._opened = True
        self._grown = time.monotonic()

    def behind(self) -> Behind | None:
        return Behind(records=max(0, self._status.end - self._taken))

    def idle(self) -> bool:
        """Nothing came for a while since it is open. A source that has ended has nothing on its way."""
        if not self._opened or self.around is None:
            return False
        status, since = self._look(), time.monotonic() - self._grown
        long = since >= self.around.idle and status.quiet  # a machine that is busy is no source that has nothing
        quiet = status.ended or long or since >= max(HANGS, 10 * self.around.idle)
        return quiet and status.end <= self._taken

    def wait(self, timeout: float) -> None:
        assert self._host is not None
        if self._opened and self.around is not None and self.around.once:
            timeout = min(timeout, max(0.01, self._grown + self.around.idle - time.monotonic()))
        self._host.wait(timeout, self._status)

    def left(self) -> int:
        return self._left if self._host is None else self._count_left()

    def _count_left(self) -> int:
        """Records of the log that no batch has taken."""
        if self.around is None:
            return 0
        with suppress(PenstockError, OSError), Reader(self.around.folder) as reader:
            return max(0, reader.end - self._begun)
        return 0

    # -- reading -------------------------------------------------------------------------------------------------------------

    def begin(self, ranges: Ranges) -> None:
        super().begin(ranges)
        (r,) = ranges
        self._begun = max(self._begun, r.position["to"])
        self._decoders = tuple(self._made_decoders(self.kind, r.position.get("lost", "")))

    def _made_decoders(self, kind: Kind, lost: str) -> Iterator[Processor[Any]]:
        if kind.after == LOST:
            yield AvroDecode(self.source_id, None, None, f"it is damaged in the log: {lost}", parts=frozenset())
            return
        if extended := frozenset(name for name in PAYLOADS if getattr(kind, name) == EXTENDED):
            yield ExtendedDecode(self.source_id, extended)
        payload, key = kind.payload_schema, kind.key_schema
        if payload is None and key is None:
            return
        parts = {name for name in (record.AFTER, record.BEFORE) if payload and getattr(kind, name) == RAW}
        parts |= {record.KEY} if key else set()
        try:
            texts = tuple(self._schema(*found) if found is not None else None for found in (payload, key))
        except SchemaError as e:
            yield AvroDecode(self.source_id, None, None, str(e), parts=frozenset(parts))
            return
        yield AvroDecode(self.source_id, texts[0], texts[1], parts=frozenset(parts))

    def _schema(self, subject: str, version: str) -> str:
        assert self.around is not None
        number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
        try:
            return read_schemas(self.around.folder / SCHEMAS).get(subject, number).text
        except SchemaError as e:
            raise SchemaError(f"the schema {subject} version {version} is not known here: {e}", missing=True) from e

    def decoders(self) -> tuple[Processor[Any], ...]:
        return self._decoders

    def rows(self, log_id: str, stretches: tuple[Stretch, ...], columns: tuple[str, ...]) -> LogRows:
        made = RemoteRows(str(self.folder), log_id, stretches, columns, self.kind)
        return made if self._host is None else replace(made, address=self._host.address, token=self._host.token("read"))

    # -- after a commit ------------------------------------------------------------------------------------------------------

    def delivered(self, destination: str, ranges: Ranges) -> None:
        if self._offsets is not None and (end := end_of(ranges)):
            self._offsets.ack_through(destination, end - 1)

    @property
    def answers(self) -> bool:
        return self._host is not None and self._host.ready.answers

    def refused(self, errors: Mapping[int, str]) -> None:
        self._refused = dict(errors)

    def acked(self, ranges: Ranges) -> Collection[str]:
        """What was logged before the source was opened is acked by the position that it is opened with."""
        refused, self._refused = self._refused, {}
        if self._host is not None and self._opened:
            (r,) = ranges
            shift = r.base - r.position["from"]
            self._host.ack(end_of(ranges), {seq - shift: why for seq, why in refused.items()})
        return ()


def expanded(references: Mapping[str, str]) -> dict[str, str]:
    """Settings of an earlier start, as far as what they refer to is still there."""
    found: dict[str, str] = {}
    for name, text in references.items():
        with suppress(UsageError):
            found |= expand_settings({name: text}, os.environ)
    return found
